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
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
)

// openConversations opens the driver of a file.
func openConversations(t *testing.T, path string) driver.Conversations {
	t.Helper()
	d, err := sqlite.OpenDriver(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Unable to close the driver: %v", err)
		}
	})
	return d.(driver.Conversations)
}

func newConversations(t *testing.T) driver.Conversations {
	t.Helper()
	return openConversations(t, filepath.Join(t.TempDir(), "turns.db"))
}

// conversation returns one that has every field except CreatedAt.
func conversation(id string) *driver.Conversation {
	return &driver.Conversation{
		ConversationID: id, UserID: "user ü", Title: "Größe 🦊", SystemPrompt: "prompt\x00\n\u2028", Metadata: json.RawMessage(` { "k":"é\u00e9", "n":1.0 }`),
		State: driver.ConversationActive,
		Head: driver.Head{
			ResponseID: "resp_2", BaseResponseID: "resp_1", Reservation: driver.Reservation{Duration: driver.MaxReservation, Renewals: 1 << 40},
		},
		ForkedFrom: driver.Fork{ConversationID: "conv_0", ResponseID: "resp_0"}, ParentConversationID: "conv_p",
		HiddenItems: []driver.HiddenItem{{ResponseID: "resp_1"}},
	}
}

// create creates a conversation, and sets its CreatedAt.
func create(t *testing.T, s driver.Conversations, c *driver.Conversation) {
	t.Helper()
	created, err := s.CreateConversation(t.Context(), "default", c)
	if err != nil {
		t.Fatalf("Unable to create %q: %v", c.ConversationID, err)
	}
	c.CreatedAt = created.CreatedAt
	if diff := cmp.Diff(c, created); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
}

// check checks that a conversation is stored.
func check(t *testing.T, s driver.Conversations, want *driver.Conversation) {
	t.Helper()
	got, err := s.GetConversation(t.Context(), "default", want.ConversationID)
	if err != nil {
		t.Fatalf("Unable to get %q: %v", want.ConversationID, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

func saveSummary(t *testing.T, s driver.Conversations, conversationID string, summary driver.Summary) {
	t.Helper()
	if err := s.SaveSummary(t.Context(), "default", conversationID, summary); err != nil {
		t.Fatalf("Unable to save a summary of %q: %v", conversationID, err)
	}
}

func checkSummaries(t *testing.T, s driver.Conversations, conversationID string, want ...driver.Summary) {
	t.Helper()
	got, err := s.Summaries(t.Context(), "default", conversationID)
	if err != nil {
		t.Fatalf("Unable to get the summaries of %q: %v", conversationID, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summaries (-want +got):\n%s", diff)
	}
}

func TestCreateConversation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := openConversations(t, path)
	all := []*driver.Conversation{
		conversation("conv_1"),
		conversation("conv_ü 🦊\x00' --"),
		conversation("conv_u\u0308"), // not the same as conv_ü
		conversation("conv_ü"),
		{ConversationID: "CONV_1", State: driver.ConversationArchived, ForkedFrom: driver.Fork{ConversationID: "conv_0"}},
	}
	before := time.Now()
	for _, c := range all {
		create(t, s, c)
		if at := c.CreatedAt; at.Location() != time.UTC || at.Nanosecond() != 0 || at.Unix() < before.Unix() || at.After(time.Now()) {
			t.Errorf("%q was created at %v, want the time now, in UTC and whole seconds", c.ConversationID, at)
		}
	}
	s = openConversations(t, path)
	for _, c := range all {
		check(t, s, c)
	}
}

func TestCreateConversationConflict(t *testing.T) {
	s := newConversations(t)
	c := conversation("conv_1")
	create(t, s, c)
	_, err := s.CreateConversation(t.Context(), "default", &driver.Conversation{ConversationID: "conv_1", State: driver.ConversationActive})
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.CodeConflict || e.ConversationID != "conv_1" {
		t.Errorf("got %v, want a conflict", err)
	}
	check(t, s, c)
	if _, err := s.CreateConversation(t.Context(), "other", conversation("conv_1")); err != nil {
		t.Errorf("in another namespace: got %v", err)
	}
}

func TestUpdateConversation(t *testing.T) {
	text, empty := "new ü", ""
	head := driver.Head{ResponseID: "resp_3"}
	stored := conversation("conv_1").Head
	renewed := stored
	renewed.Reservation.Renewals++
	for name, tc := range map[string]struct {
		update driver.ConversationUpdate
		want   func(*driver.Conversation) // nil: a conflict
	}{
		"nothing": {driver.ConversationUpdate{}, func(*driver.Conversation) {}},
		"without expectations": {
			driver.ConversationUpdate{State: driver.ConversationArchived, Head: &head},
			func(c *driver.Conversation) { c.State, c.Head = driver.ConversationArchived, head },
		},
		"renewed, as expected": {
			driver.ConversationUpdate{ExpectedState: driver.ConversationActive, ExpectedHead: &stored, Head: &renewed},
			func(c *driver.Conversation) { c.Head = renewed },
		},
		"another state":        {driver.ConversationUpdate{ExpectedState: driver.ConversationArchived, Head: &head}, nil},
		"another head":         {driver.ConversationUpdate{ExpectedHead: &head, Head: &head}, nil},
		"another renewal":      {driver.ConversationUpdate{ExpectedHead: &renewed, Head: &head}, nil},
		"expected to be empty": {driver.ConversationUpdate{ExpectedHead: &driver.Head{}, Head: &head}, nil},
		"texts": {
			driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{UserID: &text, Title: &text, Metadata: json.RawMessage(`{ }`)}},
			func(c *driver.Conversation) { c.UserID, c.Title, c.Metadata = text, text, json.RawMessage(`{ }`) },
		},
		"cleared": {
			driver.ConversationUpdate{Head: &driver.Head{}, ConversationPatch: driver.ConversationPatch{
				UserID: &empty, Title: &empty, SystemPrompt: &empty, Metadata: json.RawMessage(`null`),
			}},
			func(c *driver.Conversation) {
				c.UserID, c.Title, c.SystemPrompt, c.Metadata, c.Head = "", "", "", nil, driver.Head{}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newConversations(t)
			c, other := conversation("conv_1"), conversation("conv_2")
			create(t, s, c)
			create(t, s, other)
			got, err := s.UpdateConversation(t.Context(), "default", "conv_1", tc.update)
			if tc.want == nil {
				if !errors.Is(err, driver.ErrConflict) {
					t.Errorf("got %v, want a conflict", err)
				}
			} else {
				tc.want(c)
				if diff := cmp.Diff(c, got); diff != "" || err != nil {
					t.Errorf("got error %v and (-want +got):\n%s", err, diff)
				}
			}
			check(t, s, c)
			check(t, s, other)
		})
	}
}

// TestConversationOfAnotherNamespace: without a conversation in the namespace, deleting it succeeds, and everything else fails.
func TestConversationOfAnotherNamespace(t *testing.T) {
	s := newConversations(t)
	c := conversation("conv_1")
	create(t, s, c)
	saveSummary(t, s, "conv_1", storedSummary())
	for name, call := range conversationCalls(t.Context(), s, "other") {
		if name == "create" {
			continue
		}
		err := call()
		if e, ok := errors.AsType[*driver.Error](err); name != "delete" && (!ok || e.Code != driver.CodeConversationNotFound || e.ConversationID != "conv_1") {
			t.Errorf("%s: got %v, want that the conversation does not exist", name, err)
		}
		if name == "delete" && err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	check(t, s, c)
	checkSummaries(t, s, "conv_1", storedSummary())
}

// TestConversationsAfterMigration: see TestMigratedWhileOpen.
func TestConversationsAfterMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := openConversations(t, path)
	execute(migration)(t, path)
	for name, call := range conversationCalls(t.Context(), s, "default") {
		if err := call(); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: got %v, want an error that requires a newer program", name, err)
		}
	}
}

// conversationCalls returns a call of each method with the conversation conv_1.
func conversationCalls(ctx context.Context, s driver.Conversations, namespace string) map[string]func() error {
	return map[string]func() error{
		"create": func() error { _, err := s.CreateConversation(ctx, namespace, conversation("conv_1")); return err },
		"get":    func() error { _, err := s.GetConversation(ctx, namespace, "conv_1"); return err },
		"update": func() error {
			_, err := s.UpdateConversation(ctx, namespace, "conv_1", driver.ConversationUpdate{State: driver.ConversationArchived})
			return err
		},
		"delete":       func() error { return s.DeleteConversation(ctx, namespace, "conv_1") },
		"save summary": func() error { return s.SaveSummary(ctx, namespace, "conv_1", storedSummary()) },
		"summaries":    func() error { _, err := s.Summaries(ctx, namespace, "conv_1"); return err },
	}
}

// TestConcurrentUpdates: of several writers with two handles on a file that expect the same, exactly one wins.
func TestConcurrentUpdates(t *testing.T) {
	const writers, rounds = 8, 20
	path := filepath.Join(t.TempDir(), "turns.db")
	handles := []driver.Conversations{openConversations(t, path), openConversations(t, path)}
	// race calls write concurrently and returns the winner.
	race := func(write func(s driver.Conversations, writer int) error) int {
		var wins, winner atomic.Int64
		var wait sync.WaitGroup
		for writer := range writers {
			wait.Go(func() {
				switch err := write(handles[writer%len(handles)], writer); {
				case err == nil:
					wins.Add(1)
					winner.Store(int64(writer))
				case !errors.Is(err, driver.ErrConflict):
					t.Errorf("got %v, want a conflict", err)
				}
			})
		}
		wait.Wait()
		if wins.Load() != 1 {
			t.Fatalf("%d writers won, want one", wins.Load())
		}
		return int(winner.Load())
	}
	conversationBy := func(writer int) *driver.Conversation {
		return &driver.Conversation{ConversationID: "conv_1", Title: fmt.Sprint(writer), State: driver.ConversationActive}
	}
	want := conversationBy(race(func(s driver.Conversations, writer int) error {
		_, err := s.CreateConversation(t.Context(), "default", conversationBy(writer))
		return err
	}))
	for round := range rounds {
		current, err := handles[round%len(handles)].GetConversation(t.Context(), "default", "conv_1")
		if err != nil {
			t.Fatal(err)
		}
		want.CreatedAt = current.CreatedAt
		if diff := cmp.Diff(want, current); diff != "" {
			t.Fatalf("round %d: stored (-want +got):\n%s", round, diff)
		}
		headBy := func(writer int) *driver.Head {
			return &driver.Head{ResponseID: fmt.Sprintf("resp_%d_%d", round, writer), BaseResponseID: current.Head.ResponseID}
		}
		want.Head = *headBy(race(func(s driver.Conversations, writer int) error {
			update := driver.ConversationUpdate{ExpectedHead: &current.Head, Head: headBy(writer)}
			_, err := s.UpdateConversation(t.Context(), "default", "conv_1", update)
			return err
		}))
	}
	check(t, handles[0], want)
}

func TestSummaries(t *testing.T) {
	s := newConversations(t)
	create(t, s, conversation("conv_1"))
	create(t, s, conversation("conv_2"))
	checkSummaries(t, s, "conv_1")
	at := time.Unix(1_700_000_000, 0).UTC()
	sorted := []driver.Summary{
		{StartTurn: 0, EndTurn: 2, Content: "one"},
		{StartTurn: 0, EndTurn: 10, Content: "two ü\x00🦊", TokenCount: 3, CreatedAt: at},
		{StartTurn: 2, EndTurn: 4, Content: strings.Repeat("€", driver.MaxSummaryLength)},
		{StartTurn: 10, EndTurn: 11, Content: "four"},
	}
	for _, i := range []int{3, 1, 0, 2, 3, 1} { // an equal one is no conflict
		saveSummary(t, s, "conv_1", sorted[i])
	}
	checkSummaries(t, s, "conv_1", sorted...)
	saveSummary(t, s, "conv_2", driver.Summary{StartTurn: 0, EndTurn: 2, Content: "other"})

	for name, tc := range map[string]struct {
		change   func(*driver.Summary)
		conflict bool
	}{
		"equal":               {func(*driver.Summary) {}, false},
		"equal, another zone": {func(s *driver.Summary) { s.CreatedAt = s.CreatedAt.In(time.FixedZone("", 3600)) }, false},
		"content":             {func(s *driver.Summary) { s.Content = "two" }, true},
		"tokens":              {func(s *driver.Summary) { s.TokenCount = 0 }, true},
		"time":                {func(s *driver.Summary) { s.CreatedAt = at.Add(time.Second) }, true},
		"no time":             {func(s *driver.Summary) { s.CreatedAt = time.Time{} }, true},
	} {
		next := sorted[1]
		tc.change(&next)
		if err := s.SaveSummary(t.Context(), "default", "conv_1", next); tc.conflict != errors.Is(err, driver.ErrConflict) || !tc.conflict && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	checkSummaries(t, s, "conv_1", sorted...)
}

// TestDeleteConversation: one with the same ID does not get the summaries of the deleted one.
func TestDeleteConversation(t *testing.T) {
	s := newConversations(t)
	c, other := conversation("conv_1"), conversation("conv_2")
	create(t, s, c)
	create(t, s, other)
	saveSummary(t, s, "conv_1", storedSummary())
	saveSummary(t, s, "conv_2", storedSummary())
	for range 2 {
		if err := s.DeleteConversation(t.Context(), "default", "conv_1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.GetConversation(t.Context(), "default", "conv_1"); !errors.Is(err, driver.ErrConversationNotFound) {
		t.Errorf("got %v, want that the conversation does not exist", err)
	}
	create(t, s, c)
	checkSummaries(t, s, "conv_1")
	check(t, s, other)
	checkSummaries(t, s, "conv_2", storedSummary())
}

// TestMemoryOfConversations: the memory for reading texts is counted before they are read.
func TestMemoryOfConversations(t *testing.T) {
	s := newConversations(t)
	const size = 50_000
	long := strings.Repeat("x", size)
	create(t, s, &driver.Conversation{
		ConversationID: "conv_1", State: driver.ConversationActive,
		SystemPrompt: long, Metadata: json.RawMessage(`{"long":"` + long + `"}`),
	})
	saveSummary(t, s, "conv_1", driver.Summary{StartTurn: 0, EndTurn: 1, Content: long})
	saveSummary(t, s, "conv_1", driver.Summary{StartTurn: 1, EndTurn: 2, Content: long})
	var taken int64
	tooMuch := errors.New("too much")
	ctx := metered.With(t.Context(), func(bytes int64) error { taken += bytes; return tooMuch })
	calls := conversationCalls(ctx, s, "default")
	for _, name := range []string{"get", "update", "summaries"} {
		taken = 0
		if err := calls[name](); !errors.Is(err, tooMuch) || taken < 2*2*size || taken > 2*2*size+1000 {
			t.Errorf("%s: took %d bytes, with error %v", name, taken, err)
		}
	}
}
