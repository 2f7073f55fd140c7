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
	"slices"

	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/store/driver"
)

// The first byte of a cursor of turns. No other cursor begins with it.
const (
	turnsAscending  = 0x90
	turnsDescending = 0x91
)

// PageTurns returns a page of the turns of a history in the order of the options, whose limit is set, and the cursor of the next page. The
// cursor has the last turn of its page, so pages stay the same when turns are appended. PageTurns returns a pagecursor.Error if the turns,
// oldest first, do not have it.
func PageTurns[T any](turns []T, options driver.ListOptions, id func(T) string) (page []T, next string, err error) {
	order := byte(turnsAscending)
	descending := options.Order == driver.OrderDescending
	if descending {
		order = turnsDescending
	}
	after := -1
	if options.After != "" {
		if after, err = findTurn(turns, options.After, order, id); err != nil {
			return nil, "", err
		}
	}
	window := NewWindow(len(turns), options.Limit, after, descending)
	page = slices.Clone(turns[window.From:window.To])
	if descending {
		slices.Reverse(page)
	}
	if window.More {
		next = pagecursor.Encode(append([]byte{order}, id(page[len(page)-1])...))
	}
	return page, next, nil
}

// FollowingTurns returns the cursor of the turns that follow a turn, oldest first.
func FollowingTurns(responseID string) string {
	return pagecursor.Encode(append([]byte{turnsAscending}, responseID...))
}

// findTurn returns the index of the turn that a cursor has.
func findTurn[T any](turns []T, cursor string, order byte, id func(T) string) (int, error) {
	b, err := pagecursor.Decode(cursor)
	switch {
	case err != nil:
		return 0, err
	case len(b) == 0 || b[0] != turnsAscending && b[0] != turnsDescending:
		return 0, pagecursor.ErrInvalid
	case b[0] != order:
		return 0, pagecursor.Error("it belongs to pages in the other order")
	}
	i := slices.IndexFunc(turns, func(turn T) bool { return id(turn) == string(b[1:]) })
	if i < 0 {
		return 0, pagecursor.Error("it points to a turn that is not in the history")
	}
	return i, nil
}
