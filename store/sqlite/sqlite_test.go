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
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
	"github.com/catena-dev/catena/store/storetest"
)

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	storetest.Run(t, func(t *testing.T) driver.Store {
		d, err := sqlite.OpenDriver(t.Context(), path, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func open(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Namespace: "default"})
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	})
	return s
}

func save(t testing.TB, s *store.Store, session *store.Session) {
	t.Helper()
	if err := s.Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatalf("Unable to save %q: %v", session.ResponseID, err)
	}
}

// TestReopen: G35, and byte for byte.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?mode=memory#é%20.db")
	want := testturn.Make("resp_1", "resp_0")
	want.Request = json.RawMessage(` { "z" : 1.0, "input":[ ], "a":12345678901234567890,"html":"<b>&é\u00e9","a":2 }`)
	want.Metadata = json.RawMessage(`{ }`)
	s := open(t, path)
	save(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	if _, err := s.Get(t.Context(), "resp_1"); err == nil {
		t.Error("The closed store can still be used")
	}
	got, err := open(t, path).Get(t.Context(), "resp_1")
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected session (-want,+got):\n%s", diff)
	}
}

func TestCascadeOfCycle(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "turns.db"))
	for _, turn := range []*store.Session{testturn.Make("a", "c"), testturn.Make("b", "a"), testturn.Make("c", "b"), testturn.Make("d", "b"), testturn.Make("x", "")} {
		save(t, s, turn)
	}
	if err := s.Delete(t.Context(), "b", store.DeleteOptions{Cascade: true}); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s still exists: %v", id, err)
		}
	}
	if _, err := s.Get(t.Context(), "x"); err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}

// TestBusy: while another process writes, a save waits until its context is done.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	save(t, s, testturn.Make("resp_1", ""))
	db := openSQL(t, path)
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := s.Save(ctx, testturn.Make("resp_2", ""), store.SaveOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Unexpected error: want the error of the context, got %v", err)
	}
	if took := time.Since(start); took > 8*time.Second { // without a deadline it is 10 s
		t.Errorf("The save ended after %v, want less than 8s", took)
	}
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Errorf("Unexpected error from a read: %v", err)
	}

	saved := make(chan error)
	go func() { saved <- s.Save(t.Context(), testturn.Make("resp_3", ""), store.SaveOptions{}) }()
	if _, err := db.ExecContext(t.Context(), `COMMIT`); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if err := <-saved; err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}
