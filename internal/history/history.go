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

// Len returns the number of entries on the page.
func (p *Page) Len() int { return p.to - p.from }

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

// Ranges returns the ranges of the turns that are on the page, in its order.
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
			if r.From < r.To && !yield(r) {
				return
			}
			if !p.Descending() {
				start += p.entries(turn)
			}
		}
	}
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
