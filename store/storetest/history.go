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

package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// wantRecent checks the last turns of a conversation's history, and how many turns it has.
func wantRecent(t *testing.T, c *store.Conversations, id string, n int, want ...string) {
	t.Helper()
	h, err := c.Recent(t.Context(), id, n, store.ResolveOptions{})
	if err != nil {
		t.Fatalf("Unable to read the last %d turns of %q: %v", n, id, err)
	}
	if diff := cmp.Diff(want, h.Turns); diff != "" {
		t.Errorf("the last %d turns of %q (-want +got):\n%s", n, id, diff)
	}
	if diff := cmp.Diff(texts(want...), textsOf(t, h)); diff != "" {
		t.Errorf("the items of the last %d turns of %q (-want +got):\n%s", n, id, diff)
	}
}

func wantCount(t *testing.T, c *store.Conversations, id string, want int) {
	t.Helper()
	if got, err := c.Count(t.Context(), id); err != nil || got != want {
		t.Errorf("%q has %d turns, %v: want %d", id, got, err, want)
	}
}

// turnsOf returns the turns of a conversation's history in pages.
func turnsOf(t *testing.T, c *store.Conversations, id string, options store.ListOptions) (turns []store.TurnInfo) {
	t.Helper()
	for {
		page, err := c.Turns(t.Context(), id, options)
		if err != nil {
			t.Fatalf("Unable to list the turns of %q: %v", id, err)
		}
		if len(page.Turns) > options.Limit && options.Limit > 0 {
			t.Errorf("a page has %d turns, the limit is %d", len(page.Turns), options.Limit)
		}
		if turns = append(turns, page.Turns...); page.Next == "" {
			last := ""
			if n := len(turns); n > 0 && options.Order == store.OrderDescending {
				last = turns[0].ResponseID
			} else if n > 0 {
				last = turns[n-1].ResponseID
			}
			if page.Head != last {
				t.Errorf("the history of %q ends with %q, want %q", id, page.Head, last)
			}
			return turns
		}
		options.After = page.Next
	}
}

// wantTurnIDs checks the turns of a conversation's history in both orders, on pages of different sizes.
func wantTurnIDs(t *testing.T, c *store.Conversations, id string, want ...string) {
	t.Helper()
	wantCount(t, c, id, len(want))
	for _, order := range []string{store.OrderAscending, store.OrderDescending} {
		for limit := range 4 {
			got := idsOf(&store.TurnList{Turns: turnsOf(t, c, id, store.ListOptions{Limit: limit, Order: order})})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the turns of %q, %s, limit %d (-want +got):\n%s", id, order, limit, diff)
			}
		}
		want = slices.Clone(want)
		slices.Reverse(want)
	}
}

func testConversationRecent(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	wantRecent(t, c, "conv_1", 0)
	wantRecent(t, c, "conv_1", 2)
	wantCount(t, c, "conv_1", 0)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")
	wantRecent(t, c, "conv_1", 0)
	wantRecent(t, c, "conv_1", 1, "resp_3")
	wantRecent(t, c, "conv_1", 2, "resp_2", "resp_3")
	wantRecent(t, c, "conv_1", 3, "resp_1", "resp_2", "resp_3")
	wantRecent(t, c, "conv_1", 1_000_000, "resp_1", "resp_2", "resp_3")
	wantCount(t, c, "conv_1", 3)
	for name, call := range map[string]func() (*store.History, error){
		"negative": func() (*store.History, error) { return c.Recent(t.Context(), "conv_1", -1, store.ResolveOptions{}) },
		"invalid options": func() (*store.History, error) {
			return c.Recent(t.Context(), "conv_1", 1, store.ResolveOptions{Limit: -1})
		},
		"invalid, none": func() (*store.History, error) {
			return c.Recent(t.Context(), "conv_1", 0, store.ResolveOptions{Limit: -1})
		},
	} {
		if h, err := call(); h != nil {
			t.Errorf("%s: got a history", name)
		} else {
			wantError(t, err, &store.Error{Code: store.CodeInvalid})
		}
	}
	if _, err := c.HideItem(t.Context(), "conv_1", "resp_3", 0); err != nil {
		t.Fatal(err)
	}
	h, err := c.Recent(t.Context(), "conv_1", 2, store.ResolveOptions{Order: store.OrderDescending, Digests: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"assistant: answer of resp_3", "assistant: answer of resp_2", "user: question of resp_2"}
	if diff := cmp.Diff(want, textsOf(t, h)); diff != "" || len(h.Digests) != 2 || h.PreviousResponseID != "resp_1" {
		t.Errorf("%d digests, after %q (-want +got):\n%s", len(h.Digests), h.PreviousResponseID, diff)
	}
}

// testConversationReserved: a turn for which a place is reserved is not part of the history, and neither is one that was saved elsewhere.
func testConversationReserved(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2")
	r, err := c.Reserve(t.Context(), "conv_1", "resp_3", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release(t.Context())
	check := func() {
		t.Helper()
		wantRecent(t, c, "conv_1", 1, "resp_2")
		wantRecent(t, c, "conv_1", 9, "resp_1", "resp_2")
		wantTurnIDs(t, c, "conv_1", "resp_1", "resp_2")
	}
	check()
	save(t, st, testturn.Make("resp_3", "resp_1"), store.SaveOptions{})
	check()

	create(t, c, &store.Conversation{ConversationID: "conv_2"})
	first, err := c.Reserve(t.Context(), "conv_2", "resp_4", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release(t.Context())
	wantRecent(t, c, "conv_2", 1)
	wantTurnIDs(t, c, "conv_2")
}

func testConversationTurns(t *testing.T, s *suite) {
	st := s.newStore(t)
	c := st.Conversations()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first := testturn.Make("resp_1", "") // of no conversation
	first.CreatedAt, first.CompletedAt = at, at.Add(time.Second)
	save(t, st, first, store.SaveOptions{})
	create(t, c, &store.Conversation{ConversationID: "conv_1", Head: store.Head{ResponseID: "resp_1"}})
	second := testturn.Make("resp_2", "")
	second.Status, second.CreatedAt = store.StatusIncomplete, at.Add(-time.Hour)
	if _, err := c.Append(t.Context(), "conv_1", second, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	appendTurns(t, c, "conv_1", "resp_3", "resp_4", "resp_5")
	wantTurnIDs(t, c, "conv_1", "resp_1", "resp_2", "resp_3", "resp_4", "resp_5")
	third := get(t, st, "resp_3")
	want := []store.TurnInfo{
		{ResponseID: "resp_1", Status: "completed", CreatedAt: first.CreatedAt, CompletedAt: first.CompletedAt},
		{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: "incomplete", CreatedAt: second.CreatedAt},
		{ResponseID: "resp_3", PreviousResponseID: "resp_2", Status: "completed"},
	}
	got := turnsOf(t, c, "conv_1", store.ListOptions{})[:3]
	for i := range got {
		if got[i].Version == "" {
			t.Errorf("%s has no version", got[i].ResponseID)
		}
		got[i].Version = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	third.Request = []byte(`{"input":"other"}`)
	save(t, st, third, store.SaveOptions{Overwrite: true})
	page, err := c.Turns(t.Context(), "conv_1", store.ListOptions{Version: third.Version})
	if err != nil || page.Count != 5 {
		t.Errorf("got %+v, %v, want 5 turns", page, err)
	}

	if _, err := c.Rollback(t.Context(), "conv_1", "resp_4"); err != nil {
		t.Fatal(err)
	}
	wantTurnIDs(t, c, "conv_1", "resp_1", "resp_2", "resp_3", "resp_4")
	if _, err := c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{ResponseID: "resp_2"}); err != nil {
		t.Fatal(err)
	}
	wantTurnIDs(t, c, "conv_2", "resp_1", "resp_2")
	testTurnsPages(t, c)
}

// testTurnsPages: appends between two pages of turns do not change them. A cursor belongs to an order, and to histories with its turn.
func testTurnsPages(t *testing.T, c *store.Conversations) {
	t.Helper()
	read := func(options store.ListOptions) *store.TurnList {
		t.Helper()
		page, err := c.Turns(t.Context(), "conv_1", options)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	up, down := store.ListOptions{Limit: 3}, store.ListOptions{Limit: 3, Order: store.OrderDescending}
	up.After, down.After = read(up).Next, read(down).Next
	appendTurns(t, c, "conv_1", "resp_6")
	if diff := cmp.Diff([]string{"resp_4", "resp_6"}, idsOf(read(up))); diff != "" {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"resp_1"}, idsOf(read(down))); diff != "" {
		t.Errorf("the second page, newest first (-want +got):\n%s", diff)
	}
	for name, options := range map[string]store.ListOptions{
		"other order":  {Limit: 3, After: up.After, Order: store.OrderDescending},
		"not a cursor": {Limit: 3, After: "x"},
		"limit":        {Limit: store.MaxLimit + 1},
	} {
		if _, err := c.Turns(t.Context(), "conv_1", options); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			wantError(t, err, &store.Error{Code: store.CodeInvalid})
		}
	}
	if _, err := c.Rollback(t.Context(), "conv_1", ""); err != nil {
		t.Fatal(err)
	}
	_, err := c.Turns(t.Context(), "conv_1", up)
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
	wantTurnIDs(t, c, "conv_1")
}

// testConversationPages: appends between two pages of items do not change them.
func testConversationPages(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")
	load := func(options store.ResolveOptions) *store.History {
		t.Helper()
		h, err := c.Load(t.Context(), "conv_1", options)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	up, down := store.ResolveOptions{Limit: 5}, store.ResolveOptions{Limit: 5, Order: store.OrderDescending}
	up.After, down.After = load(up).Next, load(down).Next
	appendTurns(t, c, "conv_1", "resp_4")
	if diff := cmp.Diff(append(texts("resp_3")[1:], texts("resp_4")...), textsOf(t, load(up))); diff != "" {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(texts("resp_1")[:1], textsOf(t, load(down))); diff != "" {
		t.Errorf("the second page, newest first (-want +got):\n%s", diff)
	}
	if _, err := c.Rollback(t.Context(), "conv_1", "resp_2"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Load(t.Context(), "conv_1", up)
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
}

// testConversationItems: items become a turn of their own, once for each operation.
func testConversationItems(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	create(t, c, &store.Conversation{ConversationID: "conv_2"})
	item := func(text string) json.RawMessage {
		return fmt.Appendf(nil, `{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}`, text)
	}
	appendItems := func(id string, options store.AppendItemsOptions, items ...json.RawMessage) *store.Session {
		t.Helper()
		turn, err := c.AppendItems(t.Context(), id, items, options)
		if err != nil {
			t.Fatalf("Unable to append items: %v", err)
		}
		return turn
	}
	first := appendItems("conv_1", store.AppendItemsOptions{}, item("a"), item("b"))
	wantStored(t, st, first)
	if first.ConversationID != "conv_1" || first.PreviousResponseID != "" || first.Status != store.StatusCompleted || first.Version == "" {
		t.Errorf("Unexpected turn: %+v", first)
	}
	again := store.AppendItemsOptions{OperationID: "op"}
	second := appendItems("conv_1", again, item("c"))
	if third := appendItems("conv_1", again, item("c")); third.ResponseID != second.ResponseID {
		t.Errorf("the same operation has made the turns %q and %q", second.ResponseID, third.ResponseID)
	}
	if other := appendItems("conv_2", again, item("c")); other.ResponseID == second.ResponseID {
		t.Error("operations of two conversations have the same turn")
	}
	expected := store.AppendItemsOptions{ExpectedPreviousResponseID: &second.ResponseID}
	third := appendItems("conv_1", expected, item("c"))
	history, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{first.ResponseID, second.ResponseID, third.ResponseID}, history.Turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"user: a", "user: b", "user: c", "user: c"}, textsOf(t, history)); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		items   []json.RawMessage
		options store.AppendItemsOptions
		want    store.Code
	}{
		"no items":            {nil, again, store.CodeInvalid},
		"not JSON":            {[]json.RawMessage{json.RawMessage(`{`)}, store.AppendItemsOptions{}, store.CodeInvalid},
		"not an object":       {[]json.RawMessage{json.RawMessage(`1`)}, store.AppendItemsOptions{}, store.CodeInvalid},
		"other items":         {[]json.RawMessage{item("d")}, again, store.CodeConflict},
		"other previous turn": {[]json.RawMessage{item("d")}, expected, store.CodeConflict},
	} {
		_, err := c.AppendItems(t.Context(), "conv_1", tc.items, tc.options)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantError(t, err, &store.Error{Code: tc.want})
	}
	before := *second // as an hour ago
	before.CreatedAt, before.CompletedAt = before.CreatedAt.Add(-time.Hour), before.CompletedAt.Add(-time.Hour)
	save(t, st, &before, store.SaveOptions{Overwrite: true})
	if repeated := appendItems("conv_1", again, item("c")); !repeated.CreatedAt.Equal(before.CreatedAt) {
		t.Errorf("the turn of an hour ago was appended again: %+v", repeated)
	}
	wantCount(t, c, "conv_1", 3)
}
