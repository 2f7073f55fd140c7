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

// Package turnlist defines the pages of the list of a conversation: the order of its turns, and the cursors.
//
// Pages are in the order of creation times, then response IDs. A cursor contains both for the last turn of its page, so a page
// begins at the same place whatever has been saved or deleted since.
package turnlist

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/store/driver"
)

// Unknown is the Position.CreatedAt of a turn without a creation time: that of the zero time.Time.
const Unknown int64 = -62135596800

// Position is the place of a turn in the list of its conversation.
type Position struct {
	// CreatedAt is the creation time in seconds since 1970, or Unknown.
	CreatedAt int64
	// ResponseID orders turns of the same second, by its bytes.
	ResponseID string
}

// PositionOf returns the position of a turn.
func PositionOf(createdAt time.Time, responseID string) Position {
	return Position{createdAt.Unix(), responseID}
}

// Compare returns a negative number if the turn is listed before the other one in ascending order, and 0 if they are the same.
func (p Position) Compare(other Position) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, other.CreatedAt), cmp.Compare(p.ResponseID, other.ResponseID))
}

// Query is a request for a page.
type Query struct {
	// Limit is the maximum number of turns on the page.
	Limit int
	// Descending is set if the newest turn comes first.
	Descending bool
	// After is the position that the page follows in its order. On the first page, it is before or after those of all turns.
	After Position

	list list
}

// New returns the query for valid options, whose Limit is set. The conversation is named by any text that identifies it in its
// namespace, always the same. New returns a pagecursor.Error if the cursor does not belong to this list and this order.
func New(namespace, conversation string, options driver.ListOptions) (Query, error) {
	q := Query{
		Limit: options.Limit, Descending: options.Order == driver.OrderDescending, After: Position{CreatedAt: math.MinInt64},
		list: listOf(namespace, conversation),
	}
	if q.Descending {
		q.After.CreatedAt = math.MaxInt64
	}
	if options.After == "" {
		return q, nil
	}
	err := q.decode(options.After)
	return q, err
}

// Cut returns the turns of the page and the cursor of the next one, empty if it is the last. The caller has found up to
// Limit+1 turns after After, in the order of the page.
func Cut[T any](q Query, turns []T, position func(T) Position) (page []T, next string) {
	if len(turns) <= q.Limit {
		return turns, ""
	}
	return turns[:q.Limit], q.encode(position(turns[q.Limit-1]))
}

// list identifies a list in a cursor, so that a cursor of another list is noticed. It protects nothing: a cursor is only a position.
type list [8]byte

func listOf(namespace, conversation string) (id list) {
	sum := sha256.Sum256([]byte(namespace + "\x00" + conversation))
	copy(id[:], sum[:])
	return id
}

// The first byte of a list's cursor. No cursor of a history begins with it.
const (
	ascending  = 0x80
	descending = 0x81
)

func (q *Query) order() byte {
	if q.Descending {
		return descending
	}
	return ascending
}

func (q *Query) encode(last Position) string {
	b := append([]byte{q.order()}, q.list[:]...)
	b = binary.AppendVarint(b, last.CreatedAt)
	return pagecursor.Encode(append(b, last.ResponseID...))
}

// decode sets After.
func (q *Query) decode(after string) error {
	b, err := pagecursor.Decode(after)
	if err != nil {
		return err
	}
	if len(b) < 1+len(q.list) || b[0] != ascending && b[0] != descending {
		return pagecursor.ErrInvalid
	}
	order, id, b := b[0], list(b[1:]), b[1+len(q.list):]
	createdAt, n := binary.Varint(b)
	switch {
	case n <= 0:
		return pagecursor.ErrInvalid
	case id != q.list:
		return pagecursor.Error("it belongs to another conversation")
	case order != q.order():
		return pagecursor.Error("it belongs to pages in the other order")
	}
	q.After = Position{createdAt, string(b[n:])}
	return nil
}
