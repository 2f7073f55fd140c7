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

package sessions

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/utils/third_party/forked/golang/btree"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/sortedlist"
)

// Listing has the times of a session, and its place in the list of its conversation.
type Listing struct {
	// Conversation is shared by the sessions of a conversation in the view. It is nil if the session belongs to none.
	Conversation *Conversation
	// CreatedAt and CompletedAt are those of the spec, in seconds since 1970. A time that is missing or invalid is sortedlist.Unknown.
	CreatedAt, CompletedAt int64
}

// Conversation identifies a conversation. It is never changed.
type Conversation struct {
	ID string
	// Name is the object name of the ID, by which a conversation can be requested too.
	Name string
}

// newListing returns the listing of a session with these fields of a spec.
func newListing(conversationID, createdAt, completedAt gjson.Result) Listing {
	listing := Listing{CreatedAt: listedTime(createdAt), CompletedAt: listedTime(completedAt)}
	if conversationID.Str != "" {
		id := strings.Clone(conversationID.Str) // before its name, which may share its memory
		listing.Conversation = &Conversation{ID: id, Name: v1alpha1.ObjectName(id)}
	}
	return listing
}

// listedTime returns sortedlist.Unknown for a time that Go clients cannot read. In UTC, a time of the year 0 or 9999 can be in another year.
func listedTime(field gjson.Result) int64 {
	t, err := time.Parse(time.RFC3339, field.Str)
	if year := t.UTC().Year(); err != nil || year < 0 || year > 9999 {
		return sortedlist.Unknown
	}
	return t.Unix()
}

// Position returns the position of a session in the list of its conversation.
func (r *Record) Position() sortedlist.Position {
	return sortedlist.Position{Time: r.Listing.CreatedAt, ID: r.Turn.ID}
}

// conversations has the listed sessions of a namespace, sorted by conversation and position: those that are in a chain and belong to a
// conversation. They are in one tree, because most conversations are short. A change of a session and the search for a page take a
// number of comparisons that grows with the logarithm of the sessions, in any order of the changes: in sorted slices, a list of a
// namespace that has all its sessions in one conversation would take quadratic time.
type conversations struct {
	tree *btree.BTree[*Record] // nil if there never was a session
}

// treeDegree is the degree of the trees: a node has up to 63 sessions.
const treeDegree = 32

func listedBefore(a, b *Record) bool {
	x, y := a.Listing.Conversation, b.Listing.Conversation
	if x != y {
		if order := cmp.Compare(x.Name, y.Name); order != 0 {
			return order < 0
		}
	}
	return a.Position().Compare(b.Position()) < 0
}

// ConversationName returns the name of the object of the conversation that a session belongs to, or the empty string.
func (r *Record) ConversationName() string {
	if r.Listing.Conversation == nil {
		return ""
	}
	return r.Listing.Conversation.Name
}

// isListed reports whether a session is in the list of its conversation.
func (r *Record) isListed() bool { return r.ConversationName() != "" && r.InChain() }

// set adds a session, or replaces the one at its place.
func (c *conversations) set(r *Record) {
	if !r.isListed() {
		return
	}
	if c.tree == nil {
		c.tree = btree.NewWithFreeList(treeDegree, listedBefore, btree.NewFreeList[*Record](0))
	}
	c.tree.ReplaceOrInsert(r)
}

// remove removes a session.
func (c *conversations) remove(r *Record) {
	if r.isListed() {
		c.tree.Delete(r)
	}
}

// find returns the sessions of the conversation with an object name that follow q.After, up to limit.
func (c *conversations) find(name string, q sortedlist.Query, limit int) (found []*Record) {
	if c.tree == nil {
		return nil
	}
	after := &Record{Listing: Listing{Conversation: &Conversation{Name: name}, CreatedAt: q.After.Time}}
	after.Turn.ID = q.After.ID
	collect := func(r *Record) bool {
		if r.Listing.Conversation.Name != name {
			return false
		}
		if r.Position() != q.After {
			found = append(found, r)
		}
		return len(found) < limit
	}
	if q.Descending {
		c.tree.DescendLessOrEqual(after, collect)
	} else {
		c.tree.AscendGreaterOrEqual(after, collect)
	}
	return found
}

// shared returns the conversation, or nil, as the sessions that are already in the view have it.
func (c *conversations) shared(conversation *Conversation) *Conversation {
	if conversation == nil {
		return nil
	}
	return cmp.Or(c.first(conversation.Name), conversation)
}

// first returns the conversation with an object name, or nil if it has no sessions.
func (c *conversations) first(name string) *Conversation {
	found := c.find(name, sortedlist.Query{After: sortedlist.Position{Time: math.MinInt64}}, 1)
	if len(found) == 0 {
		return nil
	}
	return found[0].Listing.Conversation
}

// Conversation returns the conversation with an object name, or nil if it has no sessions.
func (v *View) Conversation(namespace, name string) (conversation *Conversation) {
	v.read(namespace, func(ns *namespaceView) { conversation = ns.conversations.first(name) })
	return conversation
}

// List returns up to limit sessions that follow q.After in the conversation with an object name, in the order of q. Sessions that
// are not in a chain are not listed.
func (v *View) List(namespace, name string, q sortedlist.Query, limit int) (found []*Record) {
	v.read(namespace, func(ns *namespaceView) { found = ns.conversations.find(name, q, limit) })
	return found
}
