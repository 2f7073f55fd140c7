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

package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

var withBodies = store.ResolveOptions{Bodies: true}

// TestBodiesRequests: a history with bodies takes one resolve of a single item, and one read for each turn, of which a limited number is in
// progress at once.
func TestBodiesRequests(t *testing.T) {
	const turns = 2*kube.TurnsAtOnce + 3
	var mu sync.Mutex
	var resolves []string
	reads, reading, most := 0, 0, 0
	full := make(chan struct{})
	s := openThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		switch {
		case strings.Contains(r.URL.Path, "/inputitems/"):
			resolves = append(resolves, r.URL.RawQuery)
		case r.Method == http.MethodGet && !strings.Contains(r.Header.Get("Accept"), "Partial"):
			mu.Lock()
			reads++
			if reading++; reading == kube.TurnsAtOnce && most < reading {
				close(full) // the others wait for it, so a lower limit would be noticed
			}
			most = max(most, reading)
			mu.Unlock()
			<-full
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				reading--
			}()
		}
		return next.RoundTrip(r)
	})
	previous := ""
	for i := range turns {
		turn := testturn.Make(fmt.Sprintf("resp_%d", i), previous)
		save(t, s, turn)
		previous = turn.ResponseID
	}
	history, err := s.Resolve(t.Context(), previous, withBodies)
	if err != nil || len(history.Sessions) != turns {
		t.Fatalf("got %d sessions and error %v, want %d", len(history.Sessions), err, turns)
	}
	if want := []string{"instructions=Omit&limit=1&order=desc"}; !cmp.Equal(want, resolves) {
		t.Errorf("resolves %v, want %v", resolves, want)
	}
	if reads != turns || most != kube.TurnsAtOnce {
		t.Errorf("%d reads, %d at once, want %d and %d", reads, most, turns, kube.TurnsAtOnce)
	}
}

// TestBodiesOfChangedChain: a chain that changes after the operator has resolved it is a chain of its new turns, or broken.
func TestBodiesOfChangedChain(t *testing.T) {
	failed := testturn.Make("b", "a")
	failed.Status = store.StatusFailed
	other := testturn.Make("b", "a")
	other.Request = []byte(`{"input":"another question"}`)
	for name, tc := range map[string]struct {
		change   func(t *testing.T, s *store.Store)
		want     []string // the turns
		wantErr  *store.Error
		resolves int
	}{
		"deleted": {
			change:  func(t *testing.T, s *store.Store) { remove(t, s, "b") },
			wantErr: &store.Error{Code: store.CodeNotFound, ResponseID: "b", PreviousResponseID: "c"}, resolves: 1,
		},
		"failed": {
			change:  func(t *testing.T, s *store.Store) { overwrite(t, s, failed) },
			wantErr: &store.Error{Code: store.CodeUnavailable, ResponseID: "b", PreviousResponseID: "c"}, resolves: 1,
		},
		"unreadable": {
			change:  func(t *testing.T, s *store.Store) { damage(t, object(t, s.Namespace(), "b")) },
			wantErr: &store.Error{Code: store.CodeUnreadable, ResponseID: "b", PreviousResponseID: "c"}, resolves: 1,
		},
		"two changes": { // the one that is nearer to the requested turn counts
			change: func(t *testing.T, s *store.Store) {
				remove(t, s, "a")
				overwrite(t, s, failed)
			},
			wantErr: &store.Error{Code: store.CodeUnavailable, ResponseID: "b", PreviousResponseID: "c"}, resolves: 1,
		},
		"overwritten": {
			change: func(t *testing.T, s *store.Store) { overwrite(t, s, other) },
			want:   []string{"a", "b", "c"}, resolves: 1,
		},
		"another parent": {
			change: func(t *testing.T, s *store.Store) {
				remove(t, s, "b")
				save(t, s, testturn.Make("b", "z"))
			},
			want: []string{"y", "z", "b", "c"}, resolves: 2,
		},
		"now a root": {
			change: func(t *testing.T, s *store.Store) {
				remove(t, s, "b")
				save(t, s, testturn.Make("b", ""))
			},
			want: []string{"b", "c"}, resolves: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := open(t, kube.Options{InlineBytes: -1, SnapshotStore: bucketURL()})
			for _, turn := range []*store.Session{
				testturn.Make("a", ""), testturn.Make("b", "a"), testturn.Make("c", "b"), testturn.Make("y", ""), testturn.Make("z", "y"),
			} {
				save(t, direct, turn)
			}
			resolves := 0
			s := openWith(t, kube.Options{Namespace: direct.Namespace(), SnapshotStore: bucketURL()}, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if strings.Contains(r.URL.Path, "/inputitems/") {
					if resolves++; resolves == 1 {
						tc.change(t, direct)
					}
				}
				return response, err
			})
			history, err := s.Resolve(t.Context(), "c", withBodies)
			if tc.wantErr != nil {
				e, ok := errors.AsType[*store.Error](err)
				if !ok || e.Code != tc.wantErr.Code || e.ResponseID != tc.wantErr.ResponseID || e.PreviousResponseID != tc.wantErr.PreviousResponseID || e.Retryable {
					t.Errorf("got %v, want %+v", err, tc.wantErr)
				}
			} else {
				wantWholeTurns(t, direct, history, err, tc.want)
			}
			if resolves != tc.resolves {
				t.Errorf("%d resolves, want %d", resolves, tc.resolves)
			}
		})
	}
}

// wantWholeTurns checks the turns of a history with bodies, which are as they are stored.
func wantWholeTurns(t *testing.T, s *store.Store, history *store.History, err error, want []string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(want, history.Turns) {
		t.Fatalf("turns %v, want %v", history.Turns, want)
	}
	for i, id := range want {
		stored, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stored, history.Sessions[i], sameSession); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
		if question := strings.Trim(string(stored.Input()), `"`); !strings.Contains(string(history.Items[2*i]), question) {
			t.Errorf("item %s, want %s", history.Items[2*i], question)
		}
	}
}

func remove(t *testing.T, s *store.Store, id string) {
	t.Helper()
	if err := s.Delete(t.Context(), id, store.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, s *store.Store, session *store.Session) {
	t.Helper()
	if err := s.Save(t.Context(), session.Clone(), store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
}

// TestBodiesMemory: the memory of bodies and items is counted before it is taken.
func TestBodiesMemory(t *testing.T) {
	s := open(t, kube.Options{})
	first, large := testturn.Make("resp_1", ""), largeTurn("resp_2", "resp_1")
	save(t, s, first)
	save(t, s, large)
	bodies := int64(len(first.Request) + len(first.Response) + len(large.Request) + len(large.Response))
	refused := errors.New("refused")
	resolve := func(limit int64) (taken int64, err error) {
		var mu sync.Mutex
		ctx := metered.With(t.Context(), func(bytes int64) error {
			mu.Lock()
			defer mu.Unlock()
			if taken += bytes; taken > limit {
				return refused
			}
			return nil
		})
		_, err = s.Resolve(ctx, "resp_2", withBodies)
		return taken, err
	}
	taken, err := resolve(1 << 30)
	if err != nil || taken < 2*bodies {
		t.Errorf("%d bytes are counted for bodies of %d, error %v", taken, bodies, err)
	}
	if _, err := resolve(bodies); !errors.Is(err, refused) {
		t.Errorf("got %v, want the error of the meter", err)
	}
}
