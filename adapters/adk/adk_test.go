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

package adk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"

	"github.com/catena-dev/catena/adapters/adk"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
	_ "github.com/catena-dev/catena/store/memory"
	_ "github.com/catena-dev/catena/store/sqlite"
)

// env is the control plane of the tests, with an operator.
var env *testenv.Environment

func TestMain(m *testing.M) {
	os.Exit(testenv.RunSuite(m.Run, func(ctx context.Context, started *testenv.Environment) error {
		env = started
		_, err := env.StartOperator(ctx, catenatest.OperatorOptions{})
		return err
	}))
}

// stores open stores of each kind.
var stores = map[string]func(t *testing.T) *store.Store{
	"memory": func(t *testing.T) *store.Store { return open(t, "memory:") },
	"sqlite": func(t *testing.T) *store.Store { return open(t, "sqlite:"+t.TempDir()+"/sessions.db") },
	"kube": func(t *testing.T) *store.Store {
		s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: env.NewNamespace(t)})
		if err != nil {
			t.Fatal(err)
		}
		return closed(t, s)
	},
}

func open(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, s)
}

// closed closes a store at the end of the test.
func closed(t *testing.T, s *store.Store) *store.Store {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// eachStore runs a test with a service on a store of each kind.
func eachStore(t *testing.T, test func(t *testing.T, s session.Service, on *store.Store)) {
	t.Helper()
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			on := open(t)
			test(t, adk.NewService(on), on)
		})
	}
}

// TestService runs the suite that ADK has for its own services.
func TestService(t *testing.T) {
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			options := sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}
			sessiontestsuite.RunServiceTests(t, options, func(t *testing.T) session.Service { return adk.NewService(open(t)) })
		})
	}
}

func create(t *testing.T, s session.Service, app, user, id string, state map[string]any) session.Session {
	t.Helper()
	r, err := s.Create(t.Context(), &session.CreateRequest{AppName: app, UserID: user, SessionID: id, State: state})
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return r.Session
}

func get(t *testing.T, s session.Service, r session.GetRequest) sessiontestsuite.ExpectedSession {
	t.Helper()
	got, err := s.Get(t.Context(), &r)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return sessiontestsuite.Snapshot(got.Session)
}

func event(id string, delta map[string]any) *session.Event {
	return &session.Event{ID: id, Author: "user", InvocationID: "inv", Actions: session.EventActions{StateDelta: delta}}
}

func ids(events []*session.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

// TestHandles: a handle shows what was appended through it, and is stale once the session has got another event. An event that is appended again
// after an error is stored once.
func TestHandles(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, _ *store.Store) {
		request := session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"}
		first := create(t, s, "app", "user", "s", map[string]any{"a": 1.0, "b": 1.0})
		got, err := s.Get(t.Context(), &request)
		if err != nil {
			t.Fatal(err)
		}
		second := got.Session
		if err := s.AppendEvent(t.Context(), first, event("1", map[string]any{"a": 2.0, "temp:x": true, "user:u": nil})); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(t.Context(), second, event("2", nil)); !errors.Is(err, store.ErrConflict) {
			t.Errorf("Appended through a stale handle: %v, want ErrConflict", err)
		}
		if err := s.AppendEvent(t.Context(), second, event("1", map[string]any{"a": 2.0, "temp:x": true, "user:u": nil})); err != nil {
			t.Errorf("Unable to append the same event again: %v", err)
		}
		if err := s.AppendEvent(t.Context(), second, event("2", map[string]any{"b": 2.0})); err != nil {
			t.Errorf("Unable to append the next event: %v", err)
		}

		stored := get(t, s, request)
		wantState := map[string]any{"a": 2.0, "b": 2.0, "user:u": nil}
		if diff := cmp.Diff(wantState, stored.State) + cmp.Diff([]string{"1", "2"}, ids(stored.Events)); diff != "" {
			t.Errorf("stored session (-want +got):\n%s", diff)
		}
		wantState["temp:x"] = true
		view := sessiontestsuite.Snapshot(second)
		if diff := cmp.Diff(wantState, view.State) + cmp.Diff(stored.Events, view.Events); diff != "" {
			t.Errorf("handle (-want +got):\n%s", diff)
		}
	})
}

// TestTooLargeSharedState: an event that would make what sessions share too large is not stored, and the next one is.
func TestTooLargeSharedState(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, _ *store.Store) {
		h := create(t, s, "app", "user", "s", map[string]any{"user:a": strings.Repeat("x", 40<<10)})
		for _, name := range []string{"user:b", "app:b"} {
			size := map[string]int{"user:b": 30 << 10, "app:b": 70 << 10}[name]
			err := s.AppendEvent(t.Context(), h, event("large", map[string]any{name: strings.Repeat("x", size)}))
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: got %v, want ErrInvalid", name, err)
			}
		}
		if err := s.AppendEvent(t.Context(), h, event("next", map[string]any{"user:a": "small"})); err != nil {
			t.Errorf("Unable to append the next event: %v", err)
		}
		got := get(t, s, session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if diff := cmp.Diff([]string{"next"}, ids(got.Events)) + cmp.Diff(map[string]any{"user:a": "small"}, got.State); diff != "" {
			t.Errorf("stored session (-want +got):\n%s", diff)
		}
	})
}

// TestRepeatedSharedState: an event that is appended again, because it was not known whether what it shares was stored, changes nothing that a
// later event has set.
func TestRepeatedSharedState(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, _ *store.Store) {
		first, other := create(t, s, "app", "user", "s", nil), create(t, s, "app", "user", "other", nil)
		again, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if err != nil {
			t.Fatal(err)
		}
		earlier, later := event("1", map[string]any{"app:x": 1.0, "user:y": 1.0}), event("2", map[string]any{"app:x": 2.0})
		later.Timestamp = earlier.Timestamp.Add(time.Second)
		for _, appended := range []struct {
			to    session.Session
			event *session.Event
		}{{first, earlier}, {other, later}, {again.Session, earlier}} {
			if err := s.AppendEvent(t.Context(), appended.to, appended.event); err != nil {
				t.Fatal(err)
			}
		}
		got := get(t, s, session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if diff := cmp.Diff(map[string]any{"app:x": 2.0, "user:y": 1.0}, got.State); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	})
}

// TestSharedStateFull: an event is stored while others make what it shares too large. It cannot be appended again, and the next one can.
func TestSharedStateFull(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, on *store.Store) {
		h := create(t, s, "app", "user", "s", nil)
		large := event("1", map[string]any{"app:a": strings.Repeat("x", 40<<10)})
		again, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(t.Context(), h, large); err != nil {
			t.Fatal(err)
		}
		// As if another session had been faster, and the answer to the first attempt were lost.
		full := map[string]json.RawMessage{"app:a": json.RawMessage("null"), "app:b": json.RawMessage(`["` + strings.Repeat("x", 50<<10) + `"]`)}
		if _, err := on.Conversations().Patch(t.Context(), "adk:app", store.ConversationPatch{MetadataMembers: full}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.AppendEvent(t.Context(), again.Session, large); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
			if n := again.Session.Events().Len(); n != 1 {
				t.Errorf("the session has %d events, want the one", n)
			}
		}
		if err := s.AppendEvent(t.Context(), again.Session, event("2", nil)); err != nil {
			t.Errorf("Unable to append the next event: %v", err)
		}
	})
}

// TestConcurrentSessions: sessions that change what they share lose nothing.
func TestConcurrentSessions(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, _ *store.Store) {
		want := map[string]any{}
		var all sync.WaitGroup
		for i := range 4 {
			want[fmt.Sprint("app:", i)], want[fmt.Sprint("user:", i)] = float64(i), float64(i)
			all.Go(func() {
				handle := create(t, s, "app", "user", fmt.Sprint(i), nil)
				delta := map[string]any{fmt.Sprint("app:", i): i, fmt.Sprint("user:", i): i}
				if err := s.AppendEvent(t.Context(), handle, event("1", delta)); err != nil {
					t.Errorf("AppendEvent: %v", err)
				}
			})
		}
		all.Wait()
		if diff := cmp.Diff(want, get(t, s, session.GetRequest{AppName: "app", UserID: "user", SessionID: "0"}).State); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		list, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
		if err != nil || len(list.Sessions) != 4 {
			t.Fatalf("Got %d sessions, %v", len(list.Sessions), err)
		}
		for _, listed := range list.Sessions {
			if diff := cmp.Diff(want, sessiontestsuite.Snapshot(listed).State); diff != "" || listed.Events().Len() != 0 {
				t.Errorf("listed session with %d events (-want +got):\n%s", listed.Events().Len(), diff)
			}
		}
	})
}

// TestLongSession: a session has more events than a chain has turns by default, and more than a page. Hidden ones are on no page.
func TestLongSession(t *testing.T) {
	on := stores["memory"](t)
	s := adk.NewService(on)
	handle := create(t, s, "app", "user", "s", nil)
	var want []string
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range store.MaxLimit + 100 {
		e := event(fmt.Sprint(i), nil)
		e.Timestamp = at.Add(time.Duration(i) * time.Second)
		if err := s.AppendEvent(t.Context(), handle, e); err != nil {
			t.Fatal(err)
		}
		want = append(want, e.ID)
	}
	request := session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"}
	if diff := cmp.Diff(want, ids(get(t, s, request).Events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	request.After = at.Add(1000 * time.Second)
	if diff := cmp.Diff(want[1000:], ids(get(t, s, request).Events)); diff != "" {
		t.Errorf("events after a time (-want +got):\n%s", diff)
	}
	last, err := on.Conversations().Recent(t.Context(), "adk:app:user:s", 5, store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := on.Conversations().HideItem(t.Context(), "adk:app:user:s", last.Turns[len(last.Turns)-5], 0); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, len(want)-5, len(want)-4)
	if diff := cmp.Diff(want[1000:], ids(get(t, s, request).Events)); diff != "" {
		t.Errorf("events without a hidden one (-want +got):\n%s", diff)
	}
}

// TestNames: sessions of apps and users with any names are told apart.
func TestNames(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, _ *store.Store) {
		names := [][2]string{{"a:b", "c"}, {"a", "b:c"}, {"a", "b"}, {"a%3Ab", "c"}, {"ä/🙂 ", "x.y_z"}}
		for i, name := range names {
			create(t, s, name[0], name[1], "s:1", map[string]any{"user:i": i, "app:" + name[1]: i, "own": i})
		}
		for i, name := range names {
			got := get(t, s, session.GetRequest{AppName: name[0], UserID: name[1], SessionID: "s:1"})
			if i := float64(i); got.State["user:i"] != i || got.State["app:"+name[1]] != i || got.State["own"] != i {
				t.Errorf("%q: got the state %v", name, got.State)
			}
			list, err := s.List(t.Context(), &session.ListRequest{AppName: name[0], UserID: name[1]})
			if err != nil || len(list.Sessions) != 1 || list.Sessions[0].ID() != "s:1" || list.Sessions[0].UserID() != name[1] {
				t.Errorf("%q: got %v, %v", name, list, err)
			}
		}
		for _, request := range []session.CreateRequest{
			{AppName: "", UserID: "u"}, {AppName: "a", UserID: ""}, {AppName: "a", UserID: strings.Repeat("u", 600)},
			{AppName: "a", UserID: "u", SessionID: "bad", State: map[string]any{"f": func() {}}},
		} {
			if _, err := s.Create(t.Context(), &request); err == nil {
				t.Errorf("Created a session for %.40q of %.40q with %v", request.UserID, request.AppName, request.State)
			}
		}
	})
}

// TestDelete: with a session, its events are deleted, and its ID can be used again.
func TestDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, on *store.Store) {
		handle := create(t, s, "app", "user", "s", map[string]any{"user:kept": true})
		for i := range 3 {
			if err := s.AppendEvent(t.Context(), handle, event(fmt.Sprint(i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		request := &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: "s"}
		for range 2 {
			if err := s.Delete(t.Context(), request); err != nil {
				t.Fatalf("Delete: %v", err)
			}
		}
		if err := s.AppendEvent(t.Context(), handle, event("late", nil)); err == nil {
			t.Error("Appended an event to a deleted session")
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			_, err := s.Create(ctx, &session.CreateRequest{AppName: "app", UserID: "user", SessionID: "s"})
			return err
		})
		got := get(t, s, session.GetRequest{AppName: "app", UserID: "user", SessionID: "s"})
		if len(got.Events) != 0 || got.State["user:kept"] != true {
			t.Errorf("The new session has %d events and the state %v", len(got.Events), got.State)
		}
		testutil.Eventually(t, func(ctx context.Context) error { // a list may lag
			turns, err := on.List(ctx, "adk:app:user:s", store.ListOptions{})
			if err == nil && len(turns.Turns) != 0 {
				err = fmt.Errorf("turns are left: %v", turns)
			}
			return err
		})
	})
}

// TestLostEvents: a session of which the events were lost does not keep others from being listed, and can be deleted.
func TestLostEvents(t *testing.T) {
	eachStore(t, func(t *testing.T, s session.Service, on *store.Store) {
		for _, id := range []string{"intact", "lost"} {
			handle := create(t, s, "app", "user", id, map[string]any{"events": 0.0})
			for i := range 2 {
				if err := s.AppendEvent(t.Context(), handle, event(fmt.Sprint(i), map[string]any{"events": float64(i + 1)})); err != nil {
					t.Fatal(err)
				}
			}
		}
		history, err := on.Conversations().Load(t.Context(), "adk:app:user:lost", store.ResolveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range history.Turns {
			if err := on.Delete(t.Context(), id, store.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		list := func() map[string]any {
			r, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "user"})
			if err != nil {
				t.Fatal(err)
			}
			states := map[string]any{}
			for _, found := range r.Sessions {
				states[found.ID()] = sessiontestsuite.Snapshot(found).State["events"]
			}
			return states
		}
		if diff := cmp.Diff(map[string]any{"intact": 2.0, "lost": 0.0}, list()); diff != "" {
			t.Errorf("listed sessions (-want +got):\n%s", diff)
		}
		foreign := []json.RawMessage{json.RawMessage(`{"role":"user","content":"a"}`)}
		create(t, s, "app", "user", "foreign", map[string]any{"events": 7.0})
		if _, err := on.Conversations().AppendItems(t.Context(), "adk:app:user:foreign", foreign, store.AppendItemsOptions{}); err != nil {
			t.Fatal(err)
		}
		null := json.RawMessage("null")
		create(t, s, "app", "user", "null", map[string]any{"events": 7.0})
		if _, err := on.Conversations().Patch(t.Context(), "adk:app:user:null", store.ConversationPatch{Metadata: null}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"intact": 2.0, "lost": 0.0, "foreign": 7.0, "null": nil}, list()); diff != "" {
			t.Errorf("listed sessions that others have changed (-want +got):\n%s", diff)
		}
		for _, id := range []string{"lost", "foreign", "null"} {
			if err := s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "user", SessionID: id}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(map[string]any{"intact": 2.0}, list()); diff != "" {
			t.Errorf("listed sessions after the deletion (-want +got):\n%s", diff)
		}
	})
}
