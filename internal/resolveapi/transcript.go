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

package resolveapi

import (
	"iter"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/resolve"
)

// transcript is a history as the options show it: its entries, which are instructions and items, numbered in the order
// of the conversation, and the range of them that is answered.
type transcript struct {
	history *resolve.History
	options *resolvev1alpha1.InputItemsOptions
	// from is the first entry of the range, to the one behind it.
	from, to int
	// next is the cursor of the next page, empty on the last one.
	next string
}

// newTranscript returns the page that the options ask for, or all of the history where they ask for no page. It returns
// a badRequest where the cursor is not one of this history with these options.
func newTranscript(history *resolve.History, options *resolvev1alpha1.InputItemsOptions) (*transcript, error) {
	t := &transcript{history: history, options: options}
	for turn := range history.Turns {
		t.to += t.entries(turn)
	}
	if options.Limit == 0 {
		return t, nil
	}

	first, end := 0, t.to
	if options.After != "" {
		last, err := t.find(options.After)
		if err != nil {
			return nil, err
		}
		if t.descending() {
			end = last
		} else {
			first = last + 1
		}
	}
	limit := min(int(options.Limit), end-first)
	if t.descending() {
		t.from, t.to = end-limit, end
	} else {
		t.from, t.to = first, first+limit
	}
	if limit < end-first {
		t.next = t.cursor()
	}
	return t, nil
}

func (t *transcript) descending() bool { return t.options.Order == resolvev1alpha1.OrderDescending }

// len returns the number of entries in the range.
func (t *transcript) len() int { return t.to - t.from }

// instructions returns the instructions of a turn, nil where it has none or they are not shown.
func (t *transcript) instructions(turn int) []byte {
	switch t.options.Instructions {
	case resolvev1alpha1.InstructionsOmit:
		return nil
	case resolvev1alpha1.InstructionsLast:
		if turn < len(t.history.Turns)-1 {
			return nil
		}
	}
	return t.history.Turns[turn].Items.Instructions
}

// leading returns the number of entries of a turn that come before its items: one where its instructions are shown.
func (t *transcript) leading(turn int) int {
	if t.instructions(turn) == nil {
		return 0
	}
	return 1
}

func (t *transcript) entries(turn int) int {
	return t.leading(turn) + t.history.Turns[turn].Items.Len()
}

// entry returns one entry of a turn, as raw JSON.
func (t *transcript) entry(turn, i int) []byte {
	i -= t.leading(turn)
	if i < 0 {
		return t.instructions(turn)
	}
	return t.history.Turns[turn].Items.Slice(i, i+1)
}

// part is the part of a turn that is in the range: its entries from up to, but without, to, where start is the number of
// entries before the turn.
type part struct{ turn, start, from, to int }

// parts returns the parts of the turns in the order of the answer.
func (t *transcript) parts() iter.Seq[part] {
	return func(yield func(part) bool) {
		turns, start := len(t.history.Turns), 0
		if t.descending() {
			for turn := range turns {
				start += t.entries(turn)
			}
		}
		for i := range turns {
			turn := i
			if t.descending() {
				turn = turns - 1 - i
				start -= t.entries(turn)
			}
			p := part{turn, start, max(t.from-start, 0), min(t.to-start, t.entries(turn))}
			if p.from < p.to && !yield(p) {
				return
			}
			if !t.descending() {
				start += t.entries(turn)
			}
		}
	}
}

// raw returns the entries in the order of the answer, as raw JSON. What it yields is one entry or several, joined by
// commas, and never empty.
func (t *transcript) raw() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for p := range t.parts() {
			if t.descending() {
				for i := p.to - 1; i >= p.from; i-- {
					if !yield(t.entry(p.turn, i)) {
						return
					}
				}
				continue
			}
			leading := t.leading(p.turn)
			if p.from < leading && !yield(t.instructions(p.turn)) {
				return
			}
			items := t.history.Turns[p.turn].Items.Slice(max(p.from-leading, 0), p.to-leading)
			if len(items) > 0 && !yield(items) {
				return
			}
		}
	}
}
