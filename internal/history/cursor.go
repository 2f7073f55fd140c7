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
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/catena-dev/catena/store/driver"
)

const (
	// cursorVersion is the first byte of a cursor, before it is encoded.
	cursorVersion = 1
	// maxCursorVersion is the largest first byte that later versions of cursors may have. Any other input with a larger
	// first byte is not a cursor.
	maxCursorVersion = 15
)

var cursorEncoding = base64.RawURLEncoding.Strict()

// cursor identifies the last entry of a page, and the view to which the page belongs. It contains the turn instead of the
// entry's index in the history, so that it can be validated, and so that overwriting one turn does not shift the entries of
// others.
type cursor struct {
	view       byte
	uid        string
	responseID string
	entry      int
}

// CursorError indicates a cursor that cannot be used. It is the reason, as a clause about "it".
type CursorError string

// Error returns the reason.
func (e CursorError) Error() string { return string(e) }

// errNotACursor is the error for a value that is not a cursor of any version.
const errNotACursor = CursorError("it is not a cursor of this API")

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
	b := []byte{cursorVersion, c.view}
	b = binary.AppendUvarint(b, uint64(c.entry))
	b = binary.AppendUvarint(b, uint64(len(c.uid)))
	b = append(b, c.uid...)
	b = append(b, c.responseID...)
	return cursorEncoding.EncodeToString(b)
}

func decodeCursor(s string) (cursor, error) {
	b, err := cursorEncoding.DecodeString(s)
	if err != nil || len(b) < 2 {
		return cursor{}, errNotACursor
	}
	if b[0] > cursorVersion && b[0] <= maxCursorVersion {
		return cursor{}, CursorError(fmt.Sprintf(
			"it has version %d, and this server reads cursors up to version %d: upgrade this server, or start with the first page",
			b[0], cursorVersion))
	}
	c := cursor{view: b[1]}
	entry, n := binary.Uvarint(b[2:])
	if b[0] != cursorVersion || n <= 0 || entry > 1<<31 {
		return cursor{}, errNotACursor
	}
	b = b[2+n:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return cursor{}, errNotACursor
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
		return 0, CursorError("it belongs to another session, or to one that was deleted and created again")
	case c.view != view(&p.options):
		return 0, CursorError("it belongs to pages with different values of order, instructions or includeIncomplete")
	}
	turn := slices.IndexFunc(p.turns, func(turn TurnItems) bool { return turn.ResponseID == c.responseID })
	if turn < 0 || c.entry >= p.entries(turn) {
		return 0, CursorError("it points to a turn or an item that is no longer in the chain")
	}
	number := c.entry
	for i := range turn {
		number += p.entries(i)
	}
	return number, nil
}
