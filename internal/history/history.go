/*
Copyright 2026 The Catena Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Package history selects, orders and pages the entries of a turn's history according to options.
package history

import (
	"iter"
	"slices"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store/driver"
)

// TurnItems are the items of one turn of a history.
type TurnItems struct {
	ResponseID string
	Items      *chain.Items
}

// Page is the part of a history that the options select, possibly all of it. Its entries are instructions and items,
// numbered from the oldest.
type Page struct {
	// uid identifies the requested stored turn.
	uid     string
	turns   []TurnItems // oldest first
	options driver.ResolveOptions
	// The page has the entries in the half-open range [from, to).
	from, to int
	next     string
	// hidden has the numbers of the hidden items of each turn that has any, in ascending order.
	hidden map[string][]int
}

// New returns the page that the options select, or the whole history if they do not request a page. uid identifies the
// requested turn, and turns are the turns of its chain, oldest first. The options must be valid. New returns a
// pagecursor.Error if the cursor does not belong to this history and these options.
func New(uid string, turns []TurnItems, options driver.ResolveOptions) (*Page, error) {
	p := &Page{uid: uid, turns: turns, options: options}
	for turn := range turns {
		p.to += p.entries(turn)
	}
	if options.Limit == 0 {
		return p, nil
	}

	after := -1
	if options.After != "" {
		var err error
		if after, err = p.find(options.After); err != nil {
			return nil, err
		}
	}
	window := NewWindow(p.to, options.Limit, after, p.Descending())
	p.from, p.to = window.From, window.To
	if window.More {
		p.next = p.cursor()
	}
	return p, nil
}

// Descending reports whether the newest entry comes first.
func (p *Page) Descending() bool { return p.options.Order == driver.OrderDescending }

// Hide leaves items out of the page. It then has fewer entries than the limit, but the cursors stay the same.
func (p *Page) Hide(items []driver.HiddenItem) {
	p.hidden = map[string][]int{}
	for _, item := range items {
		p.hidden[item.ResponseID] = append(p.hidden[item.ResponseID], item.Number)
	}
	for _, numbers := range p.hidden {
		slices.Sort(numbers)
	}
}

// Len returns the number of entries on the page.
func (p *Page) Len() int {
	if len(p.hidden) == 0 {
		return p.to - p.from
	}
	n := 0
	for r := range p.Ranges() {
		n += r.To - r.From
	}
	return n
}

// Next returns the cursor of the next page, empty on the last one.
func (p *Page) Next() string { return p.next }

// instructions returns the instructions of a turn, nil if it has none or they are not shown.
func (p *Page) instructions(turn int) []byte {
	switch p.options.Instructions {
	case driver.InstructionsOmit:
		return nil
	case driver.InstructionsLast:
		if turn < len(p.turns)-1 {
			return nil
		}
	}
	return p.turns[turn].Items.Instructions
}

// leading returns the number of entries of a turn before its items: one if its instructions are shown.
func (p *Page) leading(turn int) int {
	if p.instructions(turn) == nil {
		return 0
	}
	return 1
}

func (p *Page) entries(turn int) int {
	return p.leading(turn) + p.turns[turn].Items.Len()
}

// Entry returns one entry of a turn, as raw JSON.
func (p *Page) Entry(turn, i int) []byte {
	i -= p.leading(turn)
	if i < 0 {
		return p.instructions(turn)
	}
	return p.turns[turn].Items.Slice(i, i+1)
}

// Range selects the entries of a turn that are on the page: the half-open range [From, To). Start is the number of entries
// before the turn.
type Range struct{ Turn, Start, From, To int }

// Ranges returns the ranges of the turns that are on the page, in its order. A turn with hidden items can have several, or none.
func (p *Page) Ranges() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		turns, start := len(p.turns), 0
		if p.Descending() {
			for turn := range turns {
				start += p.entries(turn)
			}
		}
		for i := range turns {
			turn := i
			if p.Descending() {
				turn = turns - 1 - i
				start -= p.entries(turn)
			}
			r := Range{turn, start, max(p.from-start, 0), min(p.to-start, p.entries(turn))}
			if !p.eachVisible(r, yield) {
				return
			}
			if !p.Descending() {
				start += p.entries(turn)
			}
		}
	}
}

// eachVisible yields the parts of a range that are not hidden, in the order of the page, and reports whether to continue.
func (p *Page) eachVisible(r Range, yield func(Range) bool) bool {
	hidden := p.hidden[p.turns[r.Turn].ResponseID]
	if len(hidden) == 0 {
		return r.From >= r.To || yield(r)
	}
	var parts []Range
	for _, number := range hidden {
		if entry := number + p.leading(r.Turn); entry >= r.From && entry < r.To {
			parts = append(parts, Range{r.Turn, r.Start, r.From, entry})
			r.From = entry + 1
		}
	}
	if parts = append(parts, r); p.Descending() {
		slices.Reverse(parts)
	}
	for _, part := range parts {
		if part.From < part.To && !yield(part) {
			return false
		}
	}
	return true
}

// Entries returns the entries one by one in the order of the page, as raw JSON.
func (p *Page) Entries() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for r := range p.Ranges() {
			for i := range r.To - r.From {
				entry := r.From + i
				if p.Descending() {
					entry = r.To - 1 - i
				}
				if !yield(p.Entry(r.Turn, entry)) {
					return
				}
			}
		}
	}
}

// Origins returns the origins of the entries in the order of the page, nil if the options do not request them.
func (p *Page) Origins() []driver.Origin {
	if !p.options.Origins {
		return nil
	}
	var origins []driver.Origin
	for r := range p.Ranges() {
		first := r.From - p.leading(r.Turn)
		if p.Descending() {
			first = r.To - 1 - p.leading(r.Turn)
		}
		origins = append(origins, driver.Origin{ResponseID: p.turns[r.Turn].ResponseID, First: first, Count: r.To - r.From})
	}
	return origins
}

// Digests returns the digests of all turns, oldest first, nil if the options do not request them. It computes those that have not been
// computed.
func (p *Page) Digests() []string {
	if !p.options.Digests {
		return nil
	}
	digests := make([]string, len(p.turns))
	for i, turn := range p.turns {
		digests[i] = turn.Items.Digest()
	}
	return digests
}

// Raw returns the entries in the order of the page, as raw JSON. Each yielded slice is one entry or several joined by
// commas, and is never empty.
func (p *Page) Raw() iter.Seq[[]byte] {
	if p.Descending() {
		return p.Entries()
	}
	return func(yield func([]byte) bool) {
		for r := range p.Ranges() {
			leading := p.leading(r.Turn)
			if r.From < leading && !yield(p.instructions(r.Turn)) {
				return
			}
			items := p.turns[r.Turn].Items.Slice(max(r.From-leading, 0), r.To-leading)
			if len(items) > 0 && !yield(items) {
				return
			}
		}
	}
}
