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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// saveForest saves turns of all kinds, some of them in long chains and forks, and returns the response IDs of the leaves.
func saveForest(t *testing.T, s *store.Store) []string {
	t.Helper()
	previous := ""
	for i := range 70 {
		turn := testturn.Make(fmt.Sprintf("deep_%d", i), previous)
		if i%7 == 0 {
			turn.Request = fmt.Appendf(nil, `{"model":"m%d","instructions":"be brief","input":[{"id":"in_%d","n":1},{"n":2}]}`, i, i)
			turn.Metadata = fmt.Appendf(nil, `{"number":%d}`, i)
		}
		save(t, s, turn, store.SaveOptions{})
		previous = turn.ResponseID
	}
	full := testturn.Make("fork/a é", "deep_3")
	full.ConversationID, full.Immutable = "conv", true
	full.CreatedAt, full.CompletedAt = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), time.Date(2026, 2, 3, 4, 5, 7, 0, time.UTC)
	full.Metadata = []byte(`{"user":"é 漢字 😀"}`)
	huge := testturn.Make("fork.b", "deep_3")
	huge.Request = fmt.Appendf(nil, `{"input":[{"type":"message","role":"user","content":[{"text":%q}]},{"id":"small"}]}`, strings.Repeat("0123456789abcdef", 2<<20/16))
	for _, turn := range []*store.Session{
		full, huge, testturn.Make("after huge", "fork.b"),
		{ResponseID: "bare", PreviousResponseID: "fork/a é", Status: store.StatusCompleted},
		parseTurn("cut off<after huge:incomplete"), parseTurn("after cut off<cut off"), parseTurn("failed<bare:failed"), parseTurn("root"),
	} {
		save(t, s, turn, store.SaveOptions{})
	}
	return []string{"deep_69", "after cut off", "failed", "root"}
}

// forestOptions are options with which every turn of a forest resolves.
func forestOptions() map[string]store.ResolveOptions {
	depth := 70
	return map[string]store.ResolveOptions{
		"default":      {MaxDepth: &depth, IncludeIncomplete: true},
		"omit":         {MaxDepth: &depth, IncludeIncomplete: true, Instructions: store.InstructionsOmit, Origins: true},
		"newest first": {MaxDepth: &depth, IncludeIncomplete: true, Instructions: store.InstructionsLast, Order: store.OrderDescending, Origins: true},
	}
}

// testForest tests what reads whole histories with turns of all kinds, whose saves take long in a cluster.
func testForest(t *testing.T, s *suite) {
	st := s.newStore(t)
	leaves := saveForest(t, st)
	t.Run("Bodies", func(t *testing.T) { testBodies(t, st, leaves) })
	t.Run("FindItem", func(t *testing.T) { testFindItem(t, st, leaves) })
}

// testBodies: the sessions of a history are those that Get returns, and the rest is the history without bodies.
func testBodies(t *testing.T, st *store.Store, leaves []string) {
	for name, options := range forestOptions() {
		for _, id := range append(leaves, "deep_2", "fork.b", "") {
			if id == "deep_69" && name != "default" {
				continue // it takes long in a cluster
			}
			want := resolve(t, st, id, options)
			if want.Sessions != nil {
				t.Errorf("%s: the history of %q has %d sessions that were not requested", name, id, len(want.Sessions))
			}
			options.Bodies = true
			wantBodies(t, st, want, resolve(t, st, id, options))
			options.Bodies = false
		}
	}
	// The caller may change what it gets.
	options := store.ResolveOptions{Bodies: true}
	history := resolve(t, st, "root", options)
	want := resolve(t, st, "root", options)
	for _, raw := range []json.RawMessage{history.Sessions[0].Request, history.Sessions[0].Response} {
		clear(raw)
	}
	wantHistory(t, history, "root", "root")
	for _, item := range want.Items {
		clear(item)
	}
	wantBodies(t, st, history, resolve(t, st, "root", options))
	wantStored(t, st, want.Sessions[0])
}

// wantBodies checks a history with bodies, given the one without.
func wantBodies(t *testing.T, s *store.Store, want, got *store.History) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(store.History{}, "Items", "Sessions"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Unexpected history (-want,+got):\n%s", diff)
	}
	if len(got.Items) != len(want.Items) || len(got.Sessions) != len(want.Turns) {
		t.Fatalf("%d items and %d sessions, want %d and %d", len(got.Items), len(got.Sessions), len(want.Items), len(want.Turns))
	}
	for i := range want.Items {
		if difference := differenceJSON(want.Items[i], got.Items[i]); difference != "" {
			t.Errorf("Item %d%s", i, difference)
		}
	}
	for i, id := range want.Turns {
		stored := get(t, s, id)
		if diff := diffSessions(stored, got.Sessions[i]); diff != "" {
			t.Errorf("Unexpected session %q (-want,+got):\n%s", id, diff)
		}
		if got.Sessions[i].Version == "" {
			t.Errorf("Session %q has no version", id)
		}
	}
}

// testBodiesErrors: a chain that does not resolve has no sessions either.
func testBodiesErrors(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	saveTurns(t, st, []string{"a", "b<a", "c<b", "failed<c:failed", "cut<c:incomplete", "d<cut", "x<y", "y<x", "queued<c:queued"})
	failure := func(code store.Code, at string) *store.Error { return &store.Error{Code: code, ResponseID: at} }
	pending := failure(store.CodeUnavailable, "queued")
	pending.Retryable = true
	for name, tc := range map[string]struct {
		id      string
		options store.ResolveOptions
		want    *store.Error
	}{
		"missing":            {id: "nope", want: failure(store.CodeNotFound, "nope")},
		"too deep":           {id: "c", options: store.ResolveOptions{MaxDepth: new(2)}, want: failure(store.CodeDepthExceeded, "a")},
		"cycle":              {id: "x", want: failure(store.CodeCycleDetected, "x")},
		"failed":             {id: "failed", want: failure(store.CodeUnavailable, "failed")},
		"queued":             {id: "queued", want: pending},
		"incomplete":         {id: "d", want: failure(store.CodeUnavailable, "cut")},
		"failed, continued":  {id: "failed", options: store.ResolveOptions{ContinueIncomplete: true}, want: failure(store.CodeUnavailable, "failed")},
		"cut off, continued": {id: "d", options: store.ResolveOptions{ContinueIncomplete: true}},
		"failed, included":   {id: "failed", options: store.ResolveOptions{IncludeIncomplete: true}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.options.Bodies = true
			history, err := st.Resolve(t.Context(), tc.id, tc.options)
			if tc.want == nil {
				if err != nil || len(history.Sessions) != len(history.Turns) {
					t.Errorf("Unexpected history %+v, error %v", history, err)
				}
				return
			}
			tc.want.PreviousResponseID = tc.id
			wantResolveError(t, err, tc.want)
			_, err = elsewhere.Resolve(t.Context(), tc.id, tc.options)
			if tc.options.MaxDepth == nil {
				wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: tc.id, PreviousResponseID: tc.id})
			}
		})
	}
	for _, options := range []store.ResolveOptions{{Bodies: true, Limit: 1}, {Bodies: true, Limit: 1, After: "x"}, {Bodies: true, After: "x"}} {
		for _, id := range []string{"c", "nope", ""} {
			_, err := st.Resolve(t.Context(), id, options)
			wantError(t, err, &store.Error{Code: store.CodeInvalid})
		}
	}
	remove(t, st, "a", store.DeleteOptions{})
	s.eventually(t, func() error {
		if _, err := st.Resolve(t.Context(), "c", store.ResolveOptions{Bodies: true}); err == nil {
			return fmt.Errorf("the chain of a deleted turn still resolves")
		}
		return nil
	})
	_, err := st.Resolve(t.Context(), "c", store.ResolveOptions{Bodies: true})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "a", PreviousResponseID: "c"})
}

// testBodiesOverwrite: an overwrite is seen with its version, and while turns are overwritten, the items are those of the bodies.
func testBodiesOverwrite(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a", "b", "c")
	overwrite := func(i int) *store.Session {
		changed := testturn.Make([]string{"a", "b"}[i%2], []string{"", "a"}[i%2])
		changed.Request = fmt.Appendf(nil, `{"input":[{"id":"change_%d"}]}`, i)
		if i%3 == 0 {
			changed.Request = fmt.Appendf(nil, `{"input":[{"id":"change_%d"},{"text":%q}]}`, i, strings.Repeat("x", 200<<10))
		}
		return changed
	}
	for i := range 4 {
		changed := overwrite(i)
		save(t, st, changed, store.SaveOptions{Overwrite: true})
		history := resolve(t, st, "c", store.ResolveOptions{Bodies: true, Version: changed.Version})
		if diff := diffSessions(changed, history.Sessions[i%2]); diff != "" {
			t.Errorf("Unexpected session after an overwrite (-want,+got):\n%s", diff)
		}
		wantOwnItems(t, history)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range 30 {
			if err := st.Save(t.Context(), overwrite(i), store.SaveOptions{Overwrite: true}); err != nil {
				t.Errorf("Unable to overwrite: %v", err)
			}
		}
	})
	for range 15 {
		wantOwnItems(t, resolve(t, st, "c", store.ResolveOptions{Bodies: true}))
	}
}

// wantOwnItems checks that the items of a history without instructions are those of its bodies.
func wantOwnItems(t *testing.T, h *store.History) {
	t.Helper()
	rest := h.Items
	for _, session := range h.Sessions {
		input := string(session.Input())
		if !jsonvalue.IsList(input) {
			input = "[" + string(rest[0]) + "]" // a message made from a string
		}
		var want []string
		for _, item := range jsonvalue.Elements(input) {
			want = append(want, item)
		}
		for _, item := range session.Output() {
			want = append(want, string(item))
		}
		if len(rest) < len(want) {
			t.Fatalf("%d items are left for %q, want %d", len(rest), session.ResponseID, len(want))
		}
		for i := range want {
			if difference := differenceJSON(json.RawMessage(want[i]), rest[i]); difference != "" {
				t.Errorf("Item %d of %q%s", i, session.ResponseID, difference)
			}
		}
		rest = rest[len(want):]
	}
	if len(rest) > 0 {
		t.Errorf("%d items belong to no session", len(rest))
	}
}
