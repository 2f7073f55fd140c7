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
	"errors"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

func isConflict(err error) bool { return errors.Is(err, store.ErrConflict) }

func remove(t *testing.T, s *store.Store, id string, options store.DeleteOptions) {
	t.Helper()
	if err := s.Delete(t.Context(), id, options); err != nil {
		t.Fatalf("Unable to delete %q: %v", id, err)
	}
}

// testDelete: G31.
func testDelete(t *testing.T, s *suite) {
	st := s.newStore(t)
	for _, options := range []store.DeleteOptions{{}, {Cascade: true}} {
		remove(t, st, "resp_1", options)
		remove(t, st, "", options)
		save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
		save(t, st, testturn.Make("resp_2", ""), store.SaveOptions{})
		remove(t, st, "resp_1", options)
		wantMissing(t, st, "resp_1")
		remove(t, st, "resp_1", options)
		wantStored(t, st, testturn.Make("resp_2", ""))
	}
	// A cascade requires that the turn itself exists.
	save(t, st, testturn.Make("orphan", "resp_1"), store.SaveOptions{})
	remove(t, st, "resp_1", store.DeleteOptions{Cascade: true})
	wantStored(t, st, testturn.Make("orphan", "resp_1"))
}

// testDeleteInChain: G31 and G32.
func testDeleteInChain(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a", "b", "c", "d")
	remove(t, st, "b", store.DeleteOptions{})
	wantMissing(t, st, "b")
	wantStored(t, st, testturn.Make("a", ""))
	wantStored(t, st, testturn.Make("c", "b"))
	wantStored(t, st, testturn.Make("d", "c"))
	for _, id := range []string{"b", "c", "d"} {
		s.wantGone(t, st, id, "b")
	}
	wantHistory(t, resolve(t, st, "a", store.ResolveOptions{}), "a", "a")
}

// wantGone checks that a chain ends at a deleted turn, which may become visible some time later.
func (s *suite) wantGone(t *testing.T, st *store.Store, id, gone string) {
	t.Helper()
	var err error
	s.eventually(t, func() error {
		if _, err = st.Resolve(t.Context(), id, store.ResolveOptions{}); err == nil {
			return errors.New(id + " still resolves")
		}
		return nil
	})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: gone, PreviousResponseID: id})
}

func testDeleteCascade(t *testing.T, s *suite) {
	tests := map[string]struct {
		turns []string
		want  []string // the remaining turns
	}{
		"alone":        {turns: []string{"x", "other"}, want: []string{"other"}},
		"linear chain": {turns: []string{"a", "x<a", "b<x", "c<b", "d<c"}, want: []string{"a"}},
		"forks":        {turns: []string{"a", "other<a", "x<a", "b<x", "c<x", "d<b", "e<c", "f<c"}, want: []string{"a", "other"}},
		"saved before their parents": {
			turns: []string{"d<c", "c<b", "other<a", "B.2<x", "b<x", "under<B.2", "x<a", "a"}, want: []string{"other", "a"},
		},
		"orphans": {turns: []string{"x", "b<x", "c<gone"}, want: []string{"c"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			saveTurns(t, st, tc.turns)
			remove(t, st, "x", store.DeleteOptions{Cascade: true})
			wantMissing(t, st, "x")
			left := map[string]bool{}
			for _, id := range tc.want {
				left[id] = true
				get(t, st, id)
			}
			for _, turn := range tc.turns {
				if id := parseTurn(turn).ResponseID; !left[id] {
					s.eventually(t, func() error {
						if _, err := st.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
							return errors.New(id + " still exists")
						}
						return nil
					})
				}
			}
			for _, id := range tc.want {
				get(t, st, id)
			}
		})
	}
	t.Run("cycle", func(t *testing.T) {
		st := s.newStore(t)
		saveTurns(t, st, []string{"a<c", "b<a", "c<b"})
		remove(t, st, "a", store.DeleteOptions{Cascade: true})
		wantMissing(t, st, "a")
	})
}

// testSaveAfterDelete: an ID can be used again, for another turn.
func testSaveAfterDelete(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a", "b", "c")
	before := resolve(t, st, "b", store.ResolveOptions{}).Parent
	remove(t, st, "b", store.DeleteOptions{})

	again := testturn.Make("b", "elsewhere")
	save(t, st, again.Clone(), store.SaveOptions{})
	wantStored(t, st, again)
	save(t, st, testturn.Make("elsewhere", ""), store.SaveOptions{})
	s.eventually(t, func() error {
		history, err := st.Resolve(t.Context(), "b", store.ResolveOptions{})
		switch {
		case err != nil:
			return err
		case history.Turns[0] != "elsewhere":
			return errors.New("the chain is still the one of the deleted turn")
		case history.Parent.UID == before.UID:
			return errors.New("the turn has the UID of the deleted one")
		}
		return nil
	})
	// The children of the deleted turn remain, and are children of the new one.
	wantStored(t, st, testturn.Make("c", "b"))
	s.eventually(t, func() error {
		history, err := st.Resolve(t.Context(), "c", store.ResolveOptions{})
		switch {
		case err != nil:
			return err
		case history.Turns[0] != "elsewhere":
			return errors.New("the chain is still the one of the deleted turn")
		}
		return nil
	})
	wantStored(t, st, testturn.Make("c", "b"))
}

func testNamespaces(t *testing.T, s *suite) {
	here, there := s.newStore(t), s.newStore(t)
	saveRow(t, here, "a", "b")
	save(t, there, testturn.Make("c", "b"), store.SaveOptions{})
	wantMissing(t, there, "a")
	_, err := there.Resolve(t.Context(), "b", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "b", PreviousResponseID: "b"})
	_, err = there.Resolve(t.Context(), "c", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "b", PreviousResponseID: "c"})

	other := testturn.Make("a", "")
	other.Metadata = []byte(`{"other":true}`)
	save(t, there, other.Clone(), store.SaveOptions{})
	wantStored(t, here, testturn.Make("a", ""))
	wantStored(t, there, other)
	remove(t, there, "a", store.DeleteOptions{Cascade: true})
	remove(t, there, "b", store.DeleteOptions{Cascade: true})
	wantHistory(t, resolve(t, here, "b", store.ResolveOptions{}), "b", "a", "b")

	// InNamespace works from any namespace, and the stores that it returns end with the one that was opened.
	name := s.newNamespace(t)
	save(t, here.InNamespace(name), testturn.Make("d", ""), store.SaveOptions{})
	if err := here.InNamespace(name).Close(); err != nil {
		t.Errorf("Unable to close the store of a namespace: %v", err)
	}
	wantStored(t, there.InNamespace(name), testturn.Make("d", ""))
	wantMissing(t, here, "d")
}

func testContext(t *testing.T, s *suite) {
	st := s.newStore(t)
	save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Get": func() error {
			_, err := st.Get(ctx, "resp_1")
			return err
		},
		"Save": func() error { return st.Save(ctx, testturn.Make("resp_2", ""), store.SaveOptions{}) },
		"Resolve": func() error {
			_, err := st.Resolve(ctx, "resp_1", store.ResolveOptions{})
			return err
		},
		"List": func() error {
			_, err := st.List(ctx, "conv_1", store.ListOptions{})
			return err
		},
		"Delete": func() error { return st.Delete(ctx, "resp_1", store.DeleteOptions{}) },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("Unexpected error from %s: want context.Canceled, got %v", name, err)
		}
	}
	wantStored(t, st, testturn.Make("resp_1", ""))
	wantMissing(t, st, "resp_2")
}

// testClose: G36.
func testClose(t *testing.T, s *suite) {
	st := s.open(t)
	for range 3 {
		if err := st.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	}
	save(t, s.newStore(t), testturn.Make("resp_1", ""), store.SaveOptions{}) // the other store is still open
}
