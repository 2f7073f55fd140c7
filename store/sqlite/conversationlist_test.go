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

package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
)

// insertConversations adds conversations with a parent, which may be empty. Every second one is archived.
func insertConversations(t testing.TB, path, parent string, many int) {
	t.Helper()
	_, err := openSQL(t, path).ExecContext(t.Context(), `
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
INSERT INTO conversations SELECT 'default', 'conv_' || i, 'user_' || (i / 2 % 500), 'A title', '', NULL, iif(i % 2, 'Archived', 'Active'),
  '', '', 0, 0, '', '', ?, NULL, i AS created_at, i AS updated_at, i AS active_at FROM n`, many, parent)
	if err != nil {
		t.Fatal(err)
	}
}

// TestChangeOfNothing: a conversation is not among the last changed ones if an update changes nothing.
func TestChangeOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	c := open(t, path).Conversations()
	insertConversations(t, path, "", 3) // changed at 0, 1 and 2 seconds
	title := "A title"
	for _, patch := range []store.ConversationPatch{{}, {Title: &title}, {Metadata: json.RawMessage("null")}} {
		if _, err := c.Patch(t.Context(), "conv_0", patch); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.List(t.Context(), store.ConversationListOptions{Sort: store.SortUpdated})
	if err != nil || len(list.Conversations) != 2 || list.Conversations[1].UpdatedAt.Unix() != 0 {
		t.Errorf("got %+v and %v, want conv_0 to be unchanged", list, err)
	}
}

// TestTooManyDescendants: a list of more descendants than the limit is an error, and one of as many is none.
func TestTooManyDescendants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	c := open(t, path).Conversations()
	insertConversations(t, path, "root", store.MaxDescendants)
	options := store.ConversationListOptions{ParentConversationID: "root", Descendants: true}
	if list, err := c.List(t.Context(), options); err != nil || len(list.Conversations) != store.DefaultListLimit {
		t.Errorf("got %+v and %v, want a page", list, err)
	}
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "more", ParentConversationID: "conv_7"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(t.Context(), options); !errors.Is(err, store.ErrConversationLimitExceeded) || store.IsRetryable(err) {
		t.Errorf("got %v, want that there are too many", err)
	}
}

// TestConversationPagesUseAnIndex: a page of conversations is found in an index, so it costs what it has.
func TestConversationPagesUseAnIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	_ = open(t, path)
	for prefix, options := range map[string]driver.ConversationListOptions{
		"conversations":       {},
		"user_conversations":  {UserID: "maria"},
		"child_conversations": {ParentConversationID: "conv_1"},
	} {
		for sort, column := range map[string]string{driver.SortCreated: "created_at", driver.SortUpdated: "updated_at", driver.SortActivity: "active_at"} {
			for order, comparison := range map[string]string{driver.OrderAscending: ">", driver.OrderDescending: "<"} {
				options.Sort, options.Order = sort, order
				q, err := conversationlist.New("ns", options.WithDefaults())
				if err != nil {
					t.Fatal(err)
				}
				var id, parent, unused int
				var plan string
				row := openSQL(t, path).QueryRowContext(t.Context(), `EXPLAIN QUERY PLAN `+sqlite.SelectConversations(q), "ns", "maria", "conv_1", "Active", 0, "conv_1", 10)
				if err := row.Scan(&id, &parent, &unused, &plan); err != nil {
					t.Fatal(err)
				}
				want := fmt.Sprintf("USING INDEX %s_by_%s (", prefix, column)
				if !strings.Contains(plan, want) || !strings.HasSuffix(plan, fmt.Sprintf(" AND state=? AND (%s,conversation_id)%s(?,?))", column, comparison)) {
					t.Errorf("the plan is %s, want %s", plan, want)
				}
			}
		}
	}
}

// BenchmarkListConversations reads pages of 100 of the active conversations of a user, of all users, and by the last activity, of which there are
// as many as archived ones. It shows that what a page costs does not depend on their number.
func BenchmarkListConversations(b *testing.B) {
	for _, many := range []int{10, 1000, 100_000} {
		path := filepath.Join(b.TempDir(), "turns.db")
		s := open(b, path)
		insertConversations(b, path, "", 2*many)
		for name, options := range map[string]store.ConversationListOptions{
			"all": {}, "user": {UserID: "user_0"}, "activity": {Sort: store.SortActivity},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, many), func(b *testing.B) {
				for b.Loop() {
					if list, err := s.Conversations().List(b.Context(), options); err != nil || len(list.Conversations) == 0 {
						b.Fatal(list, err)
					}
				}
			})
		}
	}
}
