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

// Package transcript shows a history as its options ask for it: which entries, in which order, and which page of them.
package transcript

import (
	"iter"

	"github.com/catena-dev/catena/internal/chain"
)

// The values of Options that are not the default, as the resolve API and package store have them.
const (
	InstructionsLast = "Last"
	InstructionsOmit = "Omit"
	OrderDescending  = "desc"
)

// Options say what of a history is shown. They are valid, as whoever read them has checked.
type Options struct {
	// Instructions is InstructionsLast or InstructionsOmit; with anything else every turn's are shown.
	Instructions string
	// Limit is the largest number of entries on a page; 0 asks for all of the history.
	Limit int
	// After is Transcript.Next of the page before, and empty for the first one.
	After string
	// Order is OrderDescending; with anything else the oldest entry is the first.
	Order string
	// IncludeIncomplete says how the history was resolved. It only tells cursors apart.
	IncludeIncomplete bool
}

// History is what a transcript is made of.
type History struct {
	// UID identifies the stored turn that was asked for.
	UID string
	// Turns are the turns of the chain, oldest first.
	Turns []Turn
}

// Turn is one turn of a History.
type Turn struct {
	ResponseID string
	Items      *chain.Items
}

// Transcript is a history as the options show it: its entries, which are instructions and items, numbered in the order
// of the conversation, and the range of them that is answered.
type Transcript struct {
	history History
	options Options
	// from is the first entry of the range, to the one behind it.
	from, to int
	next     string
}

// New returns the page that the options ask for, or all of the history where they ask for no page. It returns a
// CursorError where the cursor is not one of this history with these options.
func New(history History, options Options) (*Transcript, error) {
	t := &Transcript{history: history, options: options}
	for turn := range history.Turns {
		t.to += t.entries(turn)
	}
	if options.Limit == 0 {
		return t, nil
	}

	after := -1
	if options.After != "" {
		var err error
		if after, err = t.find(options.After); err != nil {
			return nil, err
		}
	}
	window := NewWindow(t.to, options.Limit, after, t.Descending())
	t.from, t.to = window.From, window.To
	if window.More {
		t.next = t.cursor()
	}
	return t, nil
}

// Descending reports whether the newest entry is the first of the answer.
func (t *Transcript) Descending() bool { return t.options.Order == OrderDescending }

// Len returns the number of entries in the range.
func (t *Transcript) Len() int { return t.to - t.from }

// Next returns the cursor of the next page, empty on the last one.
func (t *Transcript) Next() string { return t.next }

// instructions returns the instructions of a turn, nil where it has none or they are not shown.
func (t *Transcript) instructions(turn int) []byte {
	switch t.options.Instructions {
	case InstructionsOmit:
		return nil
	case InstructionsLast:
		if turn < len(t.history.Turns)-1 {
			return nil
		}
	}
	return t.history.Turns[turn].Items.Instructions
}

// leading returns the number of entries of a turn that come before its items: one where its instructions are shown.
func (t *Transcript) leading(turn int) int {
	if t.instructions(turn) == nil {
		return 0
	}
	return 1
}

func (t *Transcript) entries(turn int) int {
	return t.leading(turn) + t.history.Turns[turn].Items.Len()
}

// Entry returns one entry of a turn, as raw JSON.
func (t *Transcript) Entry(turn, i int) []byte {
	i -= t.leading(turn)
	if i < 0 {
		return t.instructions(turn)
	}
	return t.history.Turns[turn].Items.Slice(i, i+1)
}

// Part is the part of a turn that is in the range: its entries From up to, but without, To, where Start is the number of
// entries before the turn.
type Part struct{ Turn, Start, From, To int }

// Parts returns the parts of the turns in the order of the answer.
func (t *Transcript) Parts() iter.Seq[Part] {
	return func(yield func(Part) bool) {
		turns, start := len(t.history.Turns), 0
		if t.Descending() {
			for turn := range turns {
				start += t.entries(turn)
			}
		}
		for i := range turns {
			turn := i
			if t.Descending() {
				turn = turns - 1 - i
				start -= t.entries(turn)
			}
			p := Part{turn, start, max(t.from-start, 0), min(t.to-start, t.entries(turn))}
			if p.From < p.To && !yield(p) {
				return
			}
			if !t.Descending() {
				start += t.entries(turn)
			}
		}
	}
}

// Entries returns the entries one by one in the order of the answer, as raw JSON.
func (t *Transcript) Entries() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for p := range t.Parts() {
			for i := range p.To - p.From {
				entry := p.From + i
				if t.Descending() {
					entry = p.To - 1 - i
				}
				if !yield(t.Entry(p.Turn, entry)) {
					return
				}
			}
		}
	}
}

// Raw returns the entries in the order of the answer, as raw JSON. What it yields is one entry or several, joined by
// commas, and never empty.
func (t *Transcript) Raw() iter.Seq[[]byte] {
	if t.Descending() {
		return t.Entries()
	}
	return func(yield func([]byte) bool) {
		for p := range t.Parts() {
			leading := t.leading(p.Turn)
			if p.From < leading && !yield(t.instructions(p.Turn)) {
				return
			}
			items := t.history.Turns[p.Turn].Items.Slice(max(p.From-leading, 0), p.To-leading)
			if len(items) > 0 && !yield(items) {
				return
			}
		}
	}
}
