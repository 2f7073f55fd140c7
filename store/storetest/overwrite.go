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
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testOverwrite: G29, with the parent kept.
func testOverwrite(t *testing.T, s *suite) {
	for name, change := range changes() {
		if name == "parent" {
			continue // see testReparent
		}
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			before := testturn.Make("resp_1", "")
			save(t, st, before, store.SaveOptions{})
			after := before.Clone()
			after.Version = ""
			change(after)
			save(t, st, after, store.SaveOptions{Overwrite: true})
			if after.Version == before.Version || after.Version == "" {
				t.Errorf("Unexpected version: was %q, got %q", before.Version, after.Version)
			}
			wantStored(t, st, after)
		})
	}
	t.Run("removed fields", func(t *testing.T) {
		st := s.newStore(t)
		full := testturn.Make("resp_1", "resp_0")
		full.ConversationID, full.Metadata, full.CreatedAt = "conv_1", json.RawMessage(`{"a":1}`), time.Unix(1, 0)
		save(t, st, full, store.SaveOptions{})
		bare := &store.Session{ResponseID: "resp_1", PreviousResponseID: "resp_0", Status: store.StatusFailed}
		save(t, st, bare.Clone(), store.SaveOptions{Overwrite: true})
		wantStored(t, st, bare)
	})
	t.Run("missing turn", func(t *testing.T) {
		st := s.newStore(t)
		save(t, st, testturn.Make("resp_1", "resp_0"), store.SaveOptions{Overwrite: true})
		wantStored(t, st, testturn.Make("resp_1", "resp_0"))
	})
}

// testReparent: the parent never changes.
func testReparent(t *testing.T, s *suite) {
	tests := map[string]struct{ before, after string }{
		"another": {"resp_0", "resp_9"},
		"none":    {"resp_0", ""},
		"added":   {"", "resp_0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			want := testturn.Make("resp_1", tc.before)
			save(t, st, want.Clone(), store.SaveOptions{})
			session := testturn.Make("resp_1", tc.after)
			for _, options := range []store.SaveOptions{{}, {Overwrite: true}, {Overwrite: true, ExpectedPreviousResponseID: &tc.after}} {
				wantError(t, st.Save(t.Context(), session, options), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
			}
			wantStored(t, st, want)
		})
	}
}

func testImmutable(t *testing.T, s *suite) {
	for name, change := range changes() {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			want := testturn.Make("resp_1", "")
			want.Immutable = true
			save(t, st, want.Clone(), store.SaveOptions{})
			session := want.Clone()
			change(session)
			session.Immutable = name != "immutable"
			wantError(t, st.Save(t.Context(), session, store.SaveOptions{Overwrite: true}), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
			wantStored(t, st, want)
		})
	}
	t.Run("made immutable", func(t *testing.T) {
		st := s.newStore(t)
		session := testturn.Make("resp_1", "")
		save(t, st, session, store.SaveOptions{})
		session.Immutable = true
		save(t, st, session, store.SaveOptions{Overwrite: true})
		session.Status = store.StatusFailed
		wantError(t, st.Save(t.Context(), session, store.SaveOptions{Overwrite: true}), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	})
	t.Run("delete", func(t *testing.T) {
		st := s.newStore(t)
		session := testturn.Make("resp_1", "")
		session.Immutable = true
		save(t, st, session, store.SaveOptions{})
		if err := st.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
			t.Fatalf("Unable to delete: %v", err)
		}
		wantMissing(t, st, "resp_1")
	})
}

// testVersion: overwriting a turn that has changed since it was read is a conflict.
func testVersion(t *testing.T, s *suite) {
	st := s.newStore(t)
	session := testturn.Make("resp_1", "")
	session.Version = "ignored if nothing is overwritten"
	save(t, st, session, store.SaveOptions{})

	stale := get(t, st, "resp_1")
	overwrite := func(current *store.Session, status string) error {
		current.Status = status
		return st.Save(t.Context(), current, store.SaveOptions{Overwrite: true})
	}
	s.eventually(t, func() error { // the store may write its own version in between
		return overwrite(get(t, st, "resp_1"), store.StatusFailed)
	})
	wantError(t, overwrite(stale.Clone(), store.StatusCancelled), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	if status := get(t, st, "resp_1").Status; status != store.StatusFailed {
		t.Errorf("Unexpected status: want failed, got %s", status)
	}
	if err := overwrite(stale.Clone(), store.StatusFailed); err != nil {
		t.Errorf("Unexpected error when the overwrite is repeated: %v", err)
	}
	stale.Version = ""
	if err := overwrite(stale, store.StatusCancelled); err != nil {
		t.Errorf("Unexpected error from an overwrite without a version: %v", err)
	}

	deleted := get(t, st, "resp_1")
	if err := st.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
		t.Fatalf("Unable to delete: %v", err)
	}
	wantError(t, overwrite(deleted.Clone(), store.StatusFailed), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	wantMissing(t, st, "resp_1")
	save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
	wantError(t, overwrite(deleted, store.StatusFailed), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
}

// testNoLostUpdate: concurrent overwrites with a version do not undo each other.
func testNoLostUpdate(t *testing.T, s *suite) {
	st := s.newStore(t)
	const writers, updates = 4, 5
	session := testturn.Make("resp_1", "")
	session.Metadata = json.RawMessage(`{"n":0}`)
	save(t, st, session, store.SaveOptions{})
	increment := func() error {
		for {
			session, err := st.Get(t.Context(), "resp_1")
			if err != nil {
				return err
			}
			var metadata struct{ N int }
			if err := json.Unmarshal(session.Metadata, &metadata); err != nil {
				return err
			}
			session.Metadata = fmt.Appendf(nil, `{"n":%d}`, metadata.N+1)
			// Saving what another writer has just stored is a success too, so each writer adds its own ID.
			session.ConversationID = rand.Text()
			err = st.Save(t.Context(), session, store.SaveOptions{Overwrite: true})
			if !isConflict(err) {
				return err
			}
		}
	}
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for range updates {
				if err := increment(); err != nil {
					t.Errorf("Unexpected error: %v", err)
				}
			}
		})
	}
	wait.Wait()
	want := fmt.Sprintf(`{"n":%d}`, writers*updates)
	if difference := differenceJSON(json.RawMessage(want), get(t, st, "resp_1").Metadata); difference != "" {
		t.Errorf("Updates were lost: %s", difference)
	}
}

// testEqualOverwrites: concurrent overwrites with the same content all succeed.
func testEqualOverwrites(t *testing.T, s *suite) {
	st := s.newStore(t)
	save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
	next := testturn.Make("resp_1", "")
	next.ConversationID = "next"
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if err := st.Save(t.Context(), next.Clone(), store.SaveOptions{Overwrite: true}); err != nil {
				t.Errorf("Unexpected error: %v", err)
			}
		})
	}
	wait.Wait()
	wantStored(t, st, next)
}
