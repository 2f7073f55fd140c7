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

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestConfirm: a snapshot is confirmed when all of it is stored and nothing has a mark.
func TestConfirm(t *testing.T) {
	bodies := Bodies{Request: []byte(`{"a":1}`)}
	warm := memoryStore(t) // the coders create channels on first use, which must not belong to a synctest bubble
	if _, err := (Stores{warm}).Read(t.Context(), session, mustWrite(t, warm, bodies)); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		// before changes the snapshot before it is confirmed, and after does so an hour later.
		before, after func(ctx context.Context, store Store, part Part) error
		bodies        Bodies
		wantWait      bool
		want          error
	}{
		"stored": {bodies: bodies},
		"missing": {
			before: func(ctx context.Context, store Store, part Part) error { return store.Delete(ctx, part) },
			bodies: bodies,
		},
		"missing, with other bodies": {
			before: func(ctx context.Context, store Store, part Part) error { return store.Delete(ctx, part) },
			bodies: Bodies{Request: []byte(`{"a":2}`)}, want: ErrUnreadable,
		},
		"a mark that is removed": {
			before: func(ctx context.Context, store Store, part Part) error { return store.Mark(ctx, part, time.Now()) },
			after:  func(ctx context.Context, store Store, part Part) error { return store.Mark(ctx, part, time.Time{}) },
			bodies: bodies, wantWait: true,
		},
		"a mark, and then deleted": {
			before: func(ctx context.Context, store Store, part Part) error { return store.Mark(ctx, part, time.Now()) },
			after: func(ctx context.Context, store Store, part Part) error {
				part.Unreferenced = time.Now()
				return store.Delete(ctx, part)
			},
			bodies: bodies, wantWait: true,
		},
		"a mark without a snapshot, removed later": {
			before: func(ctx context.Context, store Store, part Part) error {
				return errors.Join(store.Delete(ctx, part), store.Mark(ctx, part, time.Now()))
			},
			after:  func(ctx context.Context, store Store, part Part) error { return store.Mark(ctx, part, time.Time{}) },
			bodies: bodies, wantWait: true,
		},
		"a mark that remains": {
			before: func(ctx context.Context, store Store, part Part) error { return store.Mark(ctx, part, time.Now()) },
			bodies: bodies, wantWait: true, want: context.DeadlineExceeded,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memoryStore(t)
				ref := mustWrite(t, store, bodies)
				part := list(t, store)[0]
				change := func(by func(context.Context, Store, Part) error) {
					if by == nil {
						return
					}
					if err := by(t.Context(), store, part); err != nil {
						t.Error(err)
					}
				}
				change(tc.before)
				const later = time.Hour
				start := time.Now()
				changed := make(chan struct{})
				time.AfterFunc(later, func() {
					change(tc.after)
					close(changed)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 2*later)
				defer cancel()
				err := Stores{store}.Confirm(ctx, session, ref, tc.bodies)
				if waited := time.Since(start) >= later; !errors.Is(err, tc.want) || waited != tc.wantWait {
					t.Errorf("got %v, waited: %t; want %v, %t", err, waited, tc.want, tc.wantWait)
				}
				if got, err := (Stores{store}).Read(t.Context(), session, ref); tc.want == nil && (err != nil || !bytes.Equal(got.Request, bodies.Request)) {
					t.Errorf("the snapshot is incomplete: %v", err)
				}
				<-changed
			})
		})
	}
}

// TestStrayMark: a mark whose snapshot is gone is found, and does not count as a stored part.
func TestStrayMark(t *testing.T) {
	store := memoryStore(t)
	ref := mustWrite(t, store, Bodies{})
	part := list(t, store)[0]
	since := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	if err := errors.Join(store.Mark(t.Context(), part, since), store.Delete(t.Context(), part)); err != nil {
		t.Fatal(err)
	}
	listed := list(t, store)
	if len(listed) != 1 || listed[0].Key != ref.Key || !listed[0].Written.IsZero() || !listed[0].Unreferenced.Equal(since) {
		t.Fatalf("listed %+v, want the mark", listed)
	}
	if found, err := store.Find(t.Context(), session, ref.Key, 1); err != nil || len(found) > 0 {
		t.Errorf("found %+v and %v, want no part", found, err)
	}
	if err := store.Mark(t.Context(), listed[0], time.Time{}); err != nil {
		t.Fatal(err)
	}
	if listed := list(t, store); len(listed) > 0 {
		t.Errorf("listed %+v after it was removed", listed)
	}
}

// rivalStore has another save restore a snapshot after the first look at it.
type rivalStore struct {
	Store
	rival   func()
	looks   int
	changes int
}

func (s *rivalStore) Find(ctx context.Context, session types.NamespacedName, key string, parts int) ([]Part, error) {
	if s.looks++; s.looks == 2 {
		s.rival()
	}
	return s.Store.Find(ctx, session, key, parts)
}

func (s *rivalStore) Delete(ctx context.Context, part Part) error {
	s.changes++
	return s.Store.Delete(ctx, part)
}

func (s *rivalStore) Write(ctx context.Context, session types.NamespacedName, key string, encode func(io.Writer) error) (int, error) {
	s.changes++
	return s.Store.Write(ctx, session, key, encode)
}

// TestConfirmAfterAnother: a snapshot that another save has restored meanwhile, which may have been acknowledged, is neither deleted nor rewritten.
func TestConfirmAfterAnother(t *testing.T) {
	bodies, store := Bodies{Request: []byte(`{"a":1}`)}, memoryStore(t)
	ref := mustWrite(t, store, bodies)
	if err := store.Delete(t.Context(), list(t, store)[0]); err != nil {
		t.Fatal(err)
	}
	rival := &rivalStore{Store: store, rival: func() {
		if err := (Stores{store}).Confirm(t.Context(), session, ref, bodies); err != nil {
			t.Error(err)
		}
	}}
	if err := (Stores{rival}).Confirm(t.Context(), session, ref, bodies); err != nil || rival.looks < 2 || rival.changes > 0 {
		t.Errorf("after %d looks, the slower save has made %d changes: %v", rival.looks, rival.changes, err)
	}
}
