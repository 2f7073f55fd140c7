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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// appendTurns appends turns to a conversation.
func appendTurns(t *testing.T, c *store.Conversations, id string, turns ...string) {
	t.Helper()
	for _, turn := range turns {
		if part, err := c.Append(t.Context(), id, testturn.Make(turn, ""), store.AppendOptions{}); err != nil || !part {
			t.Fatalf("Unable to append %q: part %v, %v", turn, part, err)
		}
	}
}

func testConversationAppend(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	turn := testturn.Make("resp_1", "ignored")
	if _, err := c.Append(t.Context(), "conv_1", turn, store.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if turn.ConversationID != "conv_1" || turn.PreviousResponseID != "" || turn.Version == "" {
		t.Errorf("Append has set %+v", turn)
	}
	wantStored(t, st, turn)
	appendTurns(t, c, "conv_1", "resp_2", "resp_3")
	wantTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")
	if got := get(t, st, "resp_3"); got.PreviousResponseID != "resp_2" || got.ConversationID != "conv_1" {
		t.Errorf("Unexpected turn %+v", got)
	}
	history, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{Limit: 2, Order: store.OrderDescending})
	if err != nil || history.Next == "" {
		t.Fatalf("Unable to load a page: %v", err)
	}
	if diff := cmp.Diff([]string{"assistant: answer of resp_3", "user: question of resp_3"}, textsOf(t, history)); diff != "" {
		t.Errorf("Unexpected page (-want,+got):\n%s", diff)
	}
}

func testConversationAppendAgain(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_1", "resp_2", "resp_1", "resp_2", "resp_3")
	wantTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")

	different := testturn.Make("resp_2", "")
	different.Status = store.StatusIncomplete
	_, err := c.Append(t.Context(), "conv_1", different, store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: "resp_2"})
	if _, err := c.Rollback(t.Context(), "conv_1", "resp_1"); err != nil {
		t.Fatal(err)
	}
	_, err = c.Append(t.Context(), "conv_1", testturn.Make("resp_2", ""), store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: "resp_2"})
	wantTurns(t, c, "conv_1", "resp_1")

	// Nobody waits for the turn of another writer to learn what has become of a stored one.
	r, err := c.Reserve(t.Context(), "conv_1", "resp_4", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	appendTurns(t, c, "conv_1", "resp_1")
	_, err = c.Append(t.Context(), "conv_1", testturn.Make("resp_2", ""), store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: "resp_2"})
	if err := c.Confirm(t.Context(), "conv_1", "resp_1"); err != nil {
		t.Errorf("Unable to confirm a turn: %v", err)
	}
	wantError(t, c.Confirm(t.Context(), "conv_1", "resp_2"), &store.Error{Code: store.CodeConflict, ResponseID: "resp_2"})
	wantError(t, c.Confirm(t.Context(), "conv_1", "resp_4"), &store.Error{Code: store.CodeNotFound, ResponseID: "resp_4"})
	r.Release(t.Context())
}

func testConversationExpected(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	expect := func(id string) store.AppendOptions { return store.AppendOptions{ExpectedPreviousResponseID: &id} }
	// A caller that reads the conversation again before it retries finds the turn itself at the end.
	for _, turn := range [][2]string{
		{"resp_1", ""}, {"resp_1", "resp_1"}, {"resp_2", "resp_1"}, {"resp_1", ""}, {"resp_2", "resp_1"}, {"resp_2", "resp_2"},
	} {
		if _, err := c.Append(t.Context(), "conv_1", testturn.Make(turn[0], ""), expect(turn[1])); err != nil {
			t.Fatalf("Unable to append %q after %q: %v", turn[0], turn[1], err)
		}
	}
	for _, expected := range []string{"", "resp_1", "resp_gap", "resp_3"} {
		_, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_3", ""), expect(expected))
		wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: "resp_3"})
		wantMissing(t, st, "resp_3")
	}
	branch := expect("resp_1")
	branch.Branch = true
	for range 2 {
		turn := testturn.Make("resp_3", "")
		part, err := c.Append(t.Context(), "conv_1", turn, branch)
		if err != nil || part || turn.PreviousResponseID != "resp_1" {
			t.Errorf("Unexpected branch: part %v, after %q, %v", part, turn.PreviousResponseID, err)
		}
	}
	gap := expect("resp_gap")
	gap.Branch = true
	_, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_5", ""), gap)
	wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "resp_gap"})
	wantMissing(t, st, "resp_5")
	last := expect("resp_2")
	last.Branch = true
	if part, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_4", ""), last); err != nil || !part {
		t.Errorf("Unable to append without a branch: part %v, %v", part, err)
	}
	wantTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_4")
}

func testConversationCalls(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	turn := func(id, input, output string) *store.Session {
		return &store.Session{
			ResponseID: id, Status: store.StatusCompleted,
			Request: json.RawMessage(`{"input":` + input + `}`), Response: json.RawMessage(`{"output":[` + output + `]}`),
		}
	}
	add := func(s *store.Session) error {
		_, err := c.Append(t.Context(), "conv_1", s, store.AppendOptions{})
		return err
	}
	calls := `{"type":"function_call","call_id":"call_1"},{"type":"custom_tool_call","call_id":"call_2"},{"type":"web_search_call","id":"ws_1"}`
	if err := add(turn("resp_1", `"go"`, calls)); err != nil {
		t.Fatal(err)
	}
	first := `{"type":"function_call_output","call_id":"call_1","output":""}`
	for id, input := range map[string]string{"resp_2": `"go on"`, "resp_3": `[` + first + `]`, "resp_4": `[]`} {
		wantError(t, add(turn(id, input, "")), &store.Error{Code: store.CodeInvalid, ResponseID: id})
	}
	create(t, c, &store.Conversation{
		ConversationID: "conv_2", Head: store.Head{ResponseID: "resp_1"},
		HiddenItems: []store.HiddenItem{{ResponseID: "resp_1", Number: 1}, {ResponseID: "resp_1", Number: 2}}, // the calls
	})
	if _, err := c.Append(t.Context(), "conv_2", turn("resp_hidden", `"go on"`, ""), store.AppendOptions{}); err != nil {
		t.Errorf("Unable to append to hidden calls: %v", err)
	}
	second := `{"type":"custom_tool_call_output","call_id":"call_2","output":""}`
	if err := add(turn("resp_5", `[`+second+`,`+first+`]`, "")); err != nil {
		t.Errorf("Unable to answer the calls: %v", err)
	}
	if err := add(turn("resp_6", `"go on"`, "")); err != nil {
		t.Errorf("Unable to continue: %v", err)
	}
}

func testConversationWriters(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	const writers = 32
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() { appendTurns(t, c, "conv_1", fmt.Sprintf("resp_%d", i)) })
	}
	all.Wait()
	history, err := c.Load(t.Context(), "conv_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if turns := slices.Compact(slices.Sorted(slices.Values(history.Turns))); len(turns) != writers || len(history.Turns) != writers {
		t.Errorf("got %q, want %d turns", history.Turns, writers)
	}
}

func testConversationReserve(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1")
	reserve := func(id string) *store.Reservation {
		t.Helper()
		r, err := c.Reserve(t.Context(), "conv_1", id, store.ReserveOptions{})
		if err != nil {
			t.Fatalf("Unable to reserve for %q: %v", id, err)
		}
		return r
	}
	r := reserve("resp_2")
	if r.PreviousResponseID() != "resp_1" {
		t.Errorf("got %q, want resp_1", r.PreviousResponseID())
	}
	for range 2 {
		_, err := c.Reserve(t.Context(), "conv_1", "resp_3", store.ReserveOptions{})
		wantError(t, err, &store.Error{Code: store.CodeConversationLocked, Retryable: true})
	}
	wantTurns(t, c, "conv_1", "resp_1")
	wantReserved(t, r, "resp_1")
	if err := r.Save(t.Context(), testturn.Make("resp_other", "")); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid for another turn", err)
	}
	if err := r.Save(t.Context(), testturn.Make("resp_2", "")); err != nil {
		t.Fatalf("Unable to save: %v", err)
	}
	_, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})

	reserve("resp_3").Release(t.Context())
	wantMissing(t, st, "resp_3")
	r = reserve("resp_4")
	if _, err := c.Rollback(t.Context(), "conv_1", "resp_1"); err != nil {
		t.Fatal(err)
	}
	appendTurns(t, c, "conv_1", "resp_5")
	wantReserved(t, r, "resp_1", "resp_2")
	r.Release(t.Context()) // what is not reserved any more
	wantTurns(t, c, "conv_1", "resp_1", "resp_5")

	if _, err := c.HideItem(t.Context(), "conv_1", "resp_1", 0); err != nil {
		t.Fatal(err)
	}
	r = reserve("resp_6")
	defer r.Release(t.Context())
	for name, load := range map[string]func() (*store.History, error){
		"reservation": func() (*store.History, error) { return r.Load(t.Context(), store.ResolveOptions{Origins: true}) },
		"conversation": func() (*store.History, error) {
			return c.Load(t.Context(), "conv_1", store.ResolveOptions{Origins: true})
		},
	} {
		h, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(store.Origin{ResponseID: "resp_1", First: 1, Count: 1}, h.Origins[0]); diff != "" {
			t.Errorf("%s: the first item that is not hidden (-want +got):\n%s", name, diff)
		}
	}
}

// testConversationTakeover: a reservation that nobody renews is taken over by a writer that waits, but not before its end.
func testConversationTakeover(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1")
	ctx, die := context.WithCancel(t.Context())
	abandoned, err := c.Reserve(ctx, "conv_1", "resp_2", store.ReserveOptions{Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := abandoned.Context(t.Context())
	defer cancel()
	die()
	<-running.Done()
	begin := time.Now()
	appendTurns(t, c, "conv_1", "resp_3")
	if waited := time.Since(begin); waited < time.Second {
		t.Errorf("the place was taken over after %v", waited)
	}
	err = abandoned.Save(t.Context(), testturn.Make("resp_2", ""))
	if err == nil {
		t.Error("a turn was saved in a place that was lost")
	}
	wantTurns(t, c, "conv_1", "resp_1", "resp_3")
}

// testConversationRefused: a turn that cannot be stored does not keep its place.
func testConversationRefused(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	r, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Save(t.Context(), &store.Session{ResponseID: "resp_1"}), &store.Error{Code: store.CodeInvalid})
	wantMissing(t, st, "resp_1")
	r, err = c.Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{})
	if err != nil {
		t.Fatalf("Unable to reserve the place again: %v", err)
	}
	for _, status := range []string{store.StatusFailed, store.StatusCancelled, "expired"} {
		failed := testturn.Make("resp_2", "")
		failed.Status = status
		_, err := c.Append(t.Context(), "conv_1", failed, store.AppendOptions{})
		wantError(t, err, &store.Error{Code: store.CodeInvalid, ResponseID: "resp_2"})
		wantError(t, r.Save(t.Context(), failed), &store.Error{Code: store.CodeInvalid, ResponseID: "resp_2"})
	}
	wantMissing(t, st, "resp_2")
	wantTurns(t, c, "conv_1")
}

// testConversationHeadDeleted: a conversation whose last turn was deleted says so, until it is rolled back.
func testConversationHeadDeleted(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2")
	if _, err := c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := st.Delete(t.Context(), "resp_2", store.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, func() error {
		if _, err := c.Load(t.Context(), "conv_2", store.ResolveOptions{}); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("got %w, want ErrNotFound", err)
		}
		return nil
	})
	_, err := c.Append(t.Context(), "conv_2", testturn.Make("resp_3", ""), store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "resp_2"})
	for name, read := range map[string]func() error{
		"recent": func() error { _, err := c.Recent(t.Context(), "conv_2", 1, store.ResolveOptions{}); return err },
		"turns":  func() error { _, err := c.Turns(t.Context(), "conv_2", store.ListOptions{}); return err },
		"count":  func() error { _, err := c.Count(t.Context(), "conv_2"); return err },
	} {
		if e, ok := errors.AsType[*store.Error](read()); !ok || e.Code != store.CodeNotFound || e.ResponseID != "resp_2" || e.ConversationID != "conv_2" {
			t.Errorf("%s: got %v, want ErrNotFound of resp_2", name, e)
		}
	}
	if _, err := c.Rollback(t.Context(), "conv_2", ""); err != nil {
		t.Errorf("Unable to clear the history: %v", err)
	}
	appendTurns(t, c, "conv_2", "resp_4")
	wantTurns(t, c, "conv_2", "resp_4")
}

// testRollbackUnderAppends: a conversation can be rolled back while others append to it all the time, and what they append afterwards
// follows the turn.
func testRollbackUnderAppends(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2")
	rolledBack := make(chan struct{})
	var writers errgroup.Group
	for writer := range 4 {
		writers.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-rolledBack:
					return nil
				default:
				}
				_, err := c.Append(t.Context(), "conv_1", testturn.Make(fmt.Sprintf("resp_%d_%d", writer, n), ""), store.AppendOptions{})
				if err != nil && !errors.Is(err, store.ErrConflict) { // its turn may have been rolled back
					return err
				}
			}
		})
	}
	got, err := c.Rollback(t.Context(), "conv_1", "resp_1")
	close(rolledBack)
	if err := errors.Join(err, writers.Wait()); err != nil || got.Head != (store.Head{ResponseID: "resp_1"}) {
		t.Fatalf("rolled back to %+v, %v", got, err)
	}
	turns := turnsOf(t, c, "conv_1", store.ListOptions{})
	if turns[0].ResponseID != "resp_1" || len(turns) > 1 && turns[1].ResponseID == "resp_2" {
		t.Errorf("the history after the rollback is %+v", turns)
	}
}

func testConversationRollback(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")
	save(t, st, testturn.Make("resp_side", "resp_1"), store.SaveOptions{})
	for _, step := range []struct {
		to   string
		want []string
	}{
		{"resp_3", []string{"resp_1", "resp_2", "resp_3"}},
		{"resp_2", []string{"resp_1", "resp_2"}},
		{"resp_1", []string{"resp_1"}},
	} {
		if got, err := c.Rollback(t.Context(), "conv_1", step.to); err != nil || got.Head.ResponseID != step.to {
			t.Fatalf("Unable to roll back to %q: %+v, %v", step.to, got, err)
		}
		wantTurns(t, c, "conv_1", step.want...)
	}
	for _, id := range []string{"resp_2", "resp_side", "resp_missing"} {
		_, err := c.Rollback(t.Context(), "conv_1", id)
		wantError(t, err, &store.Error{Code: store.CodeInvalid, ResponseID: id})
	}
	if _, err := c.Rollback(t.Context(), "conv_1", ""); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, c, "conv_1")
	if got := resolve(t, st, "resp_3", store.ResolveOptions{}).Turns; len(got) != 3 {
		t.Errorf("a rollback has deleted turns: got %q", got)
	}
	appendTurns(t, c, "conv_1", "resp_4")
	wantTurns(t, c, "conv_1", "resp_4")
}
