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

package conversations

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

// index has the listed conversations of a namespace in each order in which they can be listed, so that a page takes a number of comparisons that
// grows with the logarithm of the conversations, whatever it selects.
type index [scopes][len(sorts)]*btree.BTree[*Record]

// scope is what a list selects by besides the state.
type scope int

const (
	byUser scope = 1 << iota
	byParent
	scopes // the number of scopes, from none of them to both
)

// sorts are the times by which lists can be sorted.
var sorts = [...]string{driver.SortCreated, driver.SortUpdated, driver.SortActivity}

// IsListed reports whether a conversation is in lists. One with the name of another ID is not, and does not affect others.
func (r *Record) IsListed() bool { return !r.Misnamed && !r.Deleting }

// Time returns the time of a conversation by which a list is sorted.
func (r *Record) Time(sort string) sessions.Seconds {
	switch sort {
	case driver.SortUpdated:
		return max(r.Created, r.Updated)
	case driver.SortActivity:
		return max(r.Created, r.Activity)
	}
	return r.Created
}

func (r *Record) position(sort string) sortedlist.Position {
	return sortedlist.Position{Time: int64(r.Time(sort)), ID: r.ID}
}

// has reports whether the conversations of a scope include the record.
func (s scope) has(r *Record) bool {
	return (s&byUser == 0 || r.User != "") && (s&byParent == 0 || r.Parent != "")
}

// compareGroups compares what a scope selects by.
func (s scope) compareGroups(a, b *Record) int {
	if s&byParent != 0 {
		if order := cmp.Compare(a.Parent, b.Parent); order != 0 {
			return order
		}
	}
	if s&byUser != 0 {
		if order := cmp.Compare(a.User, b.User); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.State, b.State)
}

// newTree returns the tree of a scope. In a group, conversations are sorted by a time and their IDs.
func newTree(s scope, sort string) *btree.BTree[*Record] {
	before := func(a, b *Record) bool {
		if order := s.compareGroups(a, b); order != 0 {
			return order < 0
		}
		return a.position(sort).Compare(b.position(sort)) < 0
	}
	return btree.NewWithFreeList(treeDegree, before, btree.NewFreeList[*Record](0))
}

func (x *index) set(r *Record) {
	x.each(r, func(s scope, i int) {
		if x[s][i] == nil {
			x[s][i] = newTree(s, sorts[i])
		}
		x[s][i].ReplaceOrInsert(r)
	})
}

func (x *index) remove(r *Record) {
	x.each(r, func(s scope, i int) { x[s][i].Delete(r) })
}

// each calls a function for each of the trees that a conversation belongs to.
func (x *index) each(r *Record, do func(s scope, sort int)) {
	if !r.IsListed() {
		return
	}
	for s := range scopes {
		for i := range sorts {
			if s.has(r) {
				do(s, i)
			}
		}
	}
}

// page returns the first conversations in each state that a query selects, which may be more than a page.
func (x *index) page(q conversationlist.Query) (found []*Record) {
	s := scope(0)
	if q.Selection.UserID != "" {
		s |= byUser
	}
	if q.Selection.ParentConversationID != "" {
		s |= byParent
	}
	tree := x[s][slices.Index(sorts[:], q.Selection.Sort)]
	if tree == nil {
		return nil
	}
	for _, state := range q.Selection.States {
		from := pivot(q, state)
		limit := len(found) + q.Limit + 1
		collect := func(r *Record) bool {
			if s.compareGroups(r, from) != 0 {
				return false
			}
			if q.Follows(r.position(q.Selection.Sort)) {
				found = append(found, r)
			}
			return len(found) < limit
		}
		if q.Descending {
			tree.DescendLessOrEqual(from, collect)
		} else {
			tree.AscendGreaterOrEqual(from, collect)
		}
	}
	return found
}

// pivot returns a record at the position that a page follows.
func pivot(q conversationlist.Query, state string) *Record {
	at := sessions.Seconds(min(max(q.After.Time, 0), math.MaxUint32))
	id := q.After.ID
	if q.After.Time > math.MaxUint32 {
		id = "\xff" // after every ID: later times are stored as the last one
	}
	return &Record{
		ID: id, User: q.Selection.UserID, Parent: q.Selection.ParentConversationID, State: state,
		Created: at, Updated: at, Activity: at,
	}
}

// children returns up to limit of the children of a conversation, in any state.
func (x *index) children(parent string, limit int) (found []*Record) {
	if tree := x[byParent][0]; tree != nil {
		tree.AscendGreaterOrEqual(&Record{Parent: parent}, func(r *Record) bool {
			if r.Parent != parent {
				return false
			}
			found = append(found, r)
			return len(found) < limit
		})
	}
	return found
}

// Page is a page of conversations.
type Page struct {
	Records []*Record
	// Next is the cursor of the next page, empty if it is the last.
	Next string
}

// List returns a page of the conversations of a namespace that a query selects, unless it selects descendants: see Search.
func (v *View) List(namespaceName string, q conversationlist.Query) Page {
	var found []*Record
	v.read(namespaceName, func(ns *namespace) { found = ns.lists.page(q) })
	return cut(q, found)
}

// Cut returns the first n conversations of the page of a query.
func (p Page) Cut(q conversationlist.Query, n int) Page {
	if n >= len(p.Records) {
		return p
	}
	q.Limit = n
	return cut(q, p.Records)
}

func cut(q conversationlist.Query, found []*Record) (page Page) {
	page.Records, page.Next = conversationlist.Cut(q, found, func(r *Record) sortedlist.Position { return r.position(q.Selection.Sort) })
	return page
}

// Search looks for the conversations below a parent. It is done in steps, because it can visit driver.MaxDescendants.
type Search struct {
	*conversationlist.Search[*Record]
	query conversationlist.Query
}

// Search returns a search for the descendants that a query selects. The view is not locked for longer than it takes to find the children of one.
func (v *View) Search(namespaceName string, q conversationlist.Query) *Search {
	children := func(id string, limit int) (found []*Record) {
		v.read(namespaceName, func(ns *namespace) { found = ns.lists.children(id, limit) })
		return found
	}
	return &Search{conversationlist.NewSearch(q.Selection.ParentConversationID, children, func(r *Record) string { return r.ID }), q}
}

// Page returns the page of what has been found.
func (s *Search) Page() Page {
	q := s.query
	return cut(q, slices.DeleteFunc(slices.Clone(s.Found()), func(r *Record) bool {
		return !q.Selects(r.State, r.User) || !q.Follows(r.position(q.Selection.Sort))
	}))
}
