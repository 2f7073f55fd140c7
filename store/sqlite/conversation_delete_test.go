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
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
)

// longConversation creates the conversation conv_1 with more turns than one transaction deletes, which end with turn-5999.
func longConversation(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	insert := `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 5999)
INSERT INTO turns (namespace, response_id, previous_response_id, conversation_id, uid, version, status, immutable)
SELECT 'default', format('turn-%04d', i), iif(i > 0, format('turn-%04d', i - 1), NULL), 'conv_1', format('uid-%d', i), format('v-%d', i), 'completed', 0 FROM n`
	if _, err := openSQL(t, path).ExecContext(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Conversations().Create(t.Context(), &store.Conversation{ConversationID: "conv_1", Head: store.Head{ResponseID: "turn-5999"}}); err != nil {
		t.Fatal(err)
	}
	return path
}

var withTurns = store.DeleteConversationOptions{Turns: true}

// TestLongDeletion: a conversation with many turns, some of which are needed, is deleted in several transactions.
func TestLongDeletion(t *testing.T) {
	path := longConversation(t)
	s := open(t, path)
	save(t, s, testturn.Make("branch", "turn-0001"))
	if err := s.Conversations().Delete(t.Context(), "conv_1", withTurns); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"branch completed", "turn-0000 completed", "turn-0001 completed"}, rows(t, path)); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

// TestInterruptedDeletion: a deletion that ends in the middle has deleted the last turns. Another process continues it.
func TestInterruptedDeletion(t *testing.T) {
	path := longConversation(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- open(t, path).Conversations().Delete(ctx, "conv_1", withTurns) }()
	other := open(t, path)
	testutil.Eventually(t, func(context.Context) error {
		if _, err := other.Get(t.Context(), "turn-5999"); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("got %w, want that the last turn is deleted", err)
		}
		return nil
	})
	cancel()
	if err := <-ended; err == nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that the deletion was interrupted", err)
	}
	conversation, err := other.Conversations().Get(t.Context(), "conv_1")
	if err != nil || conversation.State != store.ConversationDeleting {
		t.Fatalf("got %+v, %v, want a conversation that is being deleted", conversation, err)
	}
	left := 0
	for _, row := range rows(t, path) {
		if want := fmt.Sprintf("turn-%04d completed", left); row != want {
			t.Fatalf("got %s, want %s: the first turns are left", row, want)
		}
		left++
	}
	if left == 0 {
		t.Fatal("all turns were deleted before the deletion was interrupted")
	}
	if err := other.Conversations().Delete(t.Context(), "conv_1", withTurns); err != nil {
		t.Fatal(err)
	}
	if left := rows(t, path); len(left) > 0 {
		t.Errorf("%d turns are left", len(left))
	}
}

// TestDeletionOfActive: the turns of a conversation that is not being deleted, or not any more, stay.
func TestDeletionOfActive(t *testing.T) {
	path := longConversation(t)
	before := rows(t, path)
	d := openConversations(t, path).(driver.ConversationDeleter)
	for _, id := range []string{"conv_1", "conv_missing"} {
		if err := d.DeleteConversationTurns(t.Context(), "default", id); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, rows(t, path)); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

// TestDeletionUsesIndexes: what needs a turn is found in indexes.
func TestDeletionUsesIndexes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	_ = open(t, path)
	found, err := openSQL(t, path).QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+sqlite.DeleteUnneeded, "ns", "conv_1", "resp_1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = found.Close() }()
	var plans []string
	for found.Next() {
		var id, parent, unused int
		var plan string
		if err := found.Scan(&id, &parent, &unused, &plan); err != nil {
			t.Fatal(err)
		}
		plans = append(plans, plan)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(plans, "\n")
	if strings.Contains(plan, "SCAN") {
		t.Errorf("the plan scans:\n%s", plan)
	}
	for _, index := range []string{"turns_by_parent", "conversations_by_head", "conversations_by_base"} {
		if !strings.Contains(plan, index) {
			t.Errorf("the plan does not use %s:\n%s", index, plan)
		}
	}
}
