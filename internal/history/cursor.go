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

package history

import (
	"encoding/binary"
	"slices"

	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/store/driver"
)

// cursor identifies the last entry of a page, and the view to which the page belongs. It contains the turn instead of the
// entry's index in the history, so that it can be validated, and so that overwriting one turn does not shift the entries of
// others.
type cursor struct {
	view       byte
	uid        string
	responseID string
	entry      int
}

// view returns the options on which the pages of a history must agree, as one byte.
func view(o *driver.ResolveOptions) byte {
	b := byte(slices.Index([]string{driver.InstructionsLast, driver.InstructionsOmit}, o.Instructions) + 1)
	if o.Order == driver.OrderDescending {
		b |= 1 << 2
	}
	if o.IncludeIncomplete {
		b |= 1 << 3
	}
	return b
}

// encode returns the wire form of the cursor.
func (c cursor) encode() string {
	b := []byte{c.view}
	b = binary.AppendUvarint(b, uint64(c.entry))
	b = binary.AppendUvarint(b, uint64(len(c.uid)))
	b = append(b, c.uid...)
	b = append(b, c.responseID...)
	return pagecursor.Encode(b)
}

func decodeCursor(s string) (cursor, error) {
	b, err := pagecursor.Decode(s)
	if err != nil {
		return cursor{}, err
	}
	if len(b) == 0 {
		return cursor{}, pagecursor.ErrInvalid
	}
	c := cursor{view: b[0]}
	entry, n := binary.Uvarint(b[1:])
	if n <= 0 || entry > 1<<31 {
		return cursor{}, pagecursor.ErrInvalid
	}
	b = b[1+n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return cursor{}, pagecursor.ErrInvalid
	}
	b = b[n:]
	c.entry, c.uid, c.responseID = int(entry), string(b[:length]), string(b[length:])
	return c, nil
}

// CursorAfter returns a cursor for pages that follow an item of a turn, with its number in driver.Origin. It is for options whose
// Instructions are InstructionsOmit, and belongs to every stored turn whose chain has that turn.
func CursorAfter(responseID string, item int, options driver.ResolveOptions) string {
	return cursor{view: view(&options), responseID: responseID, entry: item}.encode()
}

// Unbound returns the cursor of Page.Next for every stored turn whose chain has its turn: pages of a conversation stay the same when turns are
// appended to it. With InstructionsLast, it returns the cursor as it is, because the numbers of the entries depend on which turn is the last.
func Unbound(next string, options driver.ResolveOptions) string {
	c, err := decodeCursor(next)
	if err != nil || options.Instructions == driver.InstructionsLast {
		return next
	}
	c.uid = ""
	return c.encode()
}

// cursor returns the cursor of the page after this one. This page must not be empty.
func (p *Page) cursor() string {
	last := p.to - 1
	if p.Descending() {
		last = p.from
	}
	turn := 0
	for last >= p.entries(turn) {
		last -= p.entries(turn)
		turn++
	}
	return cursor{view(&p.options), p.uid, p.turns[turn].ResponseID, last}.encode()
}

// find returns the number of the entry that a cursor identifies.
func (p *Page) find(after string) (int, error) {
	c, err := decodeCursor(after)
	switch {
	case err != nil:
		return 0, err
	case c.uid != "" && c.uid != p.uid:
		return 0, pagecursor.Error("it belongs to another session, or to one that was deleted and created again")
	case c.view != view(&p.options):
		return 0, pagecursor.Error("it belongs to pages with different values of order, instructions or includeIncomplete")
	}
	turn := slices.IndexFunc(p.turns, func(turn TurnItems) bool { return turn.ResponseID == c.responseID })
	if turn < 0 || c.entry >= p.entries(turn) {
		return 0, pagecursor.Error("it points to a turn or an item that is no longer in the chain")
	}
	number := c.entry
	for i := range turn {
		number += p.entries(i)
	}
	return number, nil
}
