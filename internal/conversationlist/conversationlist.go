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

// Package conversationlist defines the pages of lists of conversations. See package sortedlist.
package conversationlist

import (
	"fmt"
	"slices"
	"time"

	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

// Query is a request for a page.
type Query struct {
	sortedlist.Query
	// Selection has the options, of which those of the page are not used.
	Selection driver.ConversationListOptions
}

// New returns the query for valid options, which have their defaults. It returns a pagecursor.Error if the cursor does not belong to this
// selection and this order.
func New(namespace string, o driver.ConversationListOptions) (Query, error) {
	name := fmt.Sprintf("conversations %q %q %t %q %s", o.UserID, o.ParentConversationID, o.Descendants, o.States, o.Sort)
	q, err := sortedlist.New(namespace, name, driver.ListOptions{Limit: o.Limit, After: o.After, Order: o.Order})
	return Query{Query: q, Selection: o}, err
}

// TimeOf returns the time by which a query sorts.
func (q *Query) TimeOf(created, updated, activity time.Time) time.Time {
	switch q.Selection.Sort {
	case driver.SortUpdated:
		return updated
	case driver.SortActivity:
		return activity
	}
	return created
}

// Selects reports whether the query selects a conversation in a state with a user, leaving aside its parent.
func (q *Query) Selects(state, userID string) bool {
	return slices.Contains(q.Selection.States, state) && (q.Selection.UserID == "" || q.Selection.UserID == userID)
}

// Cut returns the page and the cursor of the next one, empty if it is the last. The entries follow q.After, in any order. If there are
// more of them, the caller has at least the first Limit+1.
func Cut[T any](q Query, entries []T, position func(T) sortedlist.Position) (page []T, next string) {
	slices.SortFunc(entries, func(a, b T) int {
		if q.Descending {
			a, b = b, a
		}
		return position(a).Compare(position(b))
	})
	return sortedlist.Cut(q.Query, entries, position)
}

// Search looks for the conversations below a parent. Cycles do no harm.
type Search[T any] struct {
	parent   string
	children func(id string, limit int) []T
	idOf     func(T) string
	seen     map[string]bool
	queue    []string // of those whose children have not been visited
	found    []T
}

// NewSearch returns a search, given a function that returns up to limit of the children of a conversation.
func NewSearch[T any](parent string, children func(id string, limit int) []T, idOf func(T) string) *Search[T] {
	return &Search[T]{parent: parent, children: children, idOf: idOf, seen: map[string]bool{parent: true}, queue: []string{parent}}
}

// Step visits the next conversations: it looks for the children of a number of them, but not further when it has found as many. It reports whether
// there are more. The error is driver.TooManyDescendants.
func (s *Search[T]) Step(visits int) (more bool, err error) {
	for end := len(s.found) + visits; visits > 0 && len(s.queue) > 0 && len(s.found) < end; s.queue = s.queue[1:] {
		visits--
		for _, child := range s.children(s.queue[0], driver.MaxDescendants+2) { // one too many, and the parent
			id := s.idOf(child)
			if s.seen[id] {
				continue
			}
			if len(s.found) == driver.MaxDescendants {
				return false, driver.TooManyDescendants(s.parent)
			}
			s.seen[id] = true
			s.found, s.queue = append(s.found, child), append(s.queue, id)
		}
	}
	return len(s.queue) > 0, nil
}

// Found returns the conversations that have been visited.
func (s *Search[T]) Found() []T { return s.found }
