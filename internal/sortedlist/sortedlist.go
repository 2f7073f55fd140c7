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

// Package sortedlist defines the pages of lists that are sorted by a time: of the turns of a conversation, and of conversations.
//
// Entries of the same time are sorted by their IDs. A cursor contains the time and the ID of the last entry of its page, so the next page
// begins at the same place whatever has been added or removed since.
package sortedlist

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/store/driver"
)

// Unknown is the Position.Time of an entry without a time: that of the zero time.Time.
const Unknown int64 = -62135596800

// Position is the place of an entry in a list.
type Position struct {
	// Time is in seconds since 1970, or Unknown.
	Time int64
	// ID orders entries of the same second, by its bytes.
	ID string
}

// PositionOf returns the position of an entry.
func PositionOf(at time.Time, id string) Position {
	return Position{at.Unix(), id}
}

// Compare returns a negative number if the entry is listed before the other one in ascending order, and 0 if they are the same.
func (p Position) Compare(other Position) int {
	if order := cmp.Compare(p.Time, other.Time); order != 0 {
		return order
	}
	return cmp.Compare(p.ID, other.ID)
}

// Query is a request for a page.
type Query struct {
	// Limit is the maximum number of entries on the page.
	Limit int
	// Descending is set if the newest entry comes first.
	Descending bool
	// After is the position that the page follows in its order. On the first page, it is before or after those of all entries.
	After Position

	list list
}

// New returns the query for valid options, whose Limit is set. The list is named by any text that identifies it in its
// namespace, always the same. New returns a pagecursor.Error if the cursor does not belong to this list and this order.
func New(namespace, name string, options driver.ListOptions) (Query, error) {
	q := Query{
		Limit: options.Limit, Descending: options.Order == driver.OrderDescending, After: Position{Time: math.MinInt64},
		list: listOf(namespace, name),
	}
	if q.Descending {
		q.After.Time = math.MaxInt64
	}
	if options.After == "" {
		return q, nil
	}
	err := q.decode(options.After)
	return q, err
}

// Follows reports whether a position follows After.
func (q *Query) Follows(p Position) bool {
	order := p.Compare(q.After)
	return order > 0 && !q.Descending || order < 0 && q.Descending
}

// Cut returns the entries of the page and the cursor of the next one, empty if it is the last. The caller has found up to
// Limit+1 entries after After, in the order of the page.
func Cut[T any](q Query, entries []T, position func(T) Position) (page []T, next string) {
	if len(entries) <= q.Limit {
		return entries, ""
	}
	return entries[:q.Limit], q.encode(position(entries[q.Limit-1]))
}

// list identifies a list in a cursor, so that a cursor of another list is noticed. It protects nothing: a cursor is only a position.
type list [8]byte

func listOf(namespace, name string) (id list) {
	sum := sha256.Sum256([]byte(namespace + "\x00" + name))
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
	b = binary.AppendVarint(b, last.Time)
	return pagecursor.Encode(append(b, last.ID...))
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
	at, n := binary.Varint(b)
	switch {
	case n <= 0:
		return pagecursor.ErrInvalid
	case id != q.list:
		return pagecursor.Error("it belongs to another list")
	case order != q.order():
		return pagecursor.Error("it belongs to pages in the other order")
	}
	q.After = Position{at, string(b[n:])}
	return nil
}
