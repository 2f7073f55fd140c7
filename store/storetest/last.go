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
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testLast: the last turns of a chain are a history of their own, whatever is before them.
func testLast(t *testing.T, s *suite) {
	st := s.newStore(t)
	cut := testturn.Make("t1", "missing")
	cut.Status = "failed"
	save(t, st, cut, store.SaveOptions{})
	const turns = store.DefaultMaxDepth + 6
	for i := 2; i <= turns; i++ {
		turn := testturn.Make(fmt.Sprint("t", i), fmt.Sprint("t", i-1))
		save(t, st, turn, store.SaveOptions{})
	}
	last := func(n int) (ids []string) {
		for i := turns - n + 1; i <= turns; i++ {
			ids = append(ids, fmt.Sprint("t", i))
		}
		return ids
	}
	id := last(1)[0]
	for name, tc := range map[string]struct {
		options store.ResolveOptions
		want    []string
		wantErr store.Code
	}{
		"one":                        {store.ResolveOptions{Last: 1}, last(1), ""},
		"three":                      {store.ResolveOptions{Last: 3}, last(3), ""},
		"three, with a depth":        {store.ResolveOptions{Last: 3, MaxDepth: new(3)}, last(3), ""},
		"three, with a small depth":  {store.ResolveOptions{Last: 3, MaxDepth: new(2)}, nil, store.CodeDepthExceeded},
		"more than the default":      {store.ResolveOptions{Last: turns - 1}, last(turns - 1), ""},
		"up to the failed turn":      {store.ResolveOptions{Last: turns}, nil, store.CodeUnavailable},
		"up to the missing turn":     {store.ResolveOptions{Last: turns, IncludeIncomplete: true}, last(turns), ""},
		"with the missing turn":      {store.ResolveOptions{Last: turns + 1, IncludeIncomplete: true}, nil, store.CodeNotFound},
		"with the most":              {store.ResolveOptions{Last: store.MaxDepthLimit, IncludeIncomplete: true}, nil, store.CodeNotFound},
		"all":                        {store.ResolveOptions{}, nil, store.CodeDepthExceeded},
		"with all their turns":       {store.ResolveOptions{Last: 3, Bodies: true}, last(3), ""},
		"with digests":               {store.ResolveOptions{Last: 3, Digests: true, Origins: true}, last(3), ""},
		"continued where incomplete": {store.ResolveOptions{Last: 2, ContinueIncomplete: true}, last(2), ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := st.Resolve(t.Context(), id, tc.options)
			if tc.wantErr != "" {
				if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != tc.wantErr {
					t.Errorf("got %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			previous := get(t, st, tc.want[0]).PreviousResponseID
			if diff := cmp.Diff(tc.want, h.Turns); diff != "" || h.PreviousResponseID != previous {
				t.Errorf("got %q before the turns, want %q; turns (-want +got):\n%s", h.PreviousResponseID, previous, diff)
			}
			if diff := cmp.Diff(texts(tc.want...), textsOf(t, h)); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			if tc.options.Bodies && len(h.Sessions) != len(tc.want) || tc.options.Digests && len(h.Digests) != len(tc.want) ||
				tc.options.Origins && (len(h.Origins) != len(tc.want) || h.Origins[0].ResponseID != tc.want[0]) {
				t.Errorf("%d sessions, %d digests, origins %v", len(h.Sessions), len(h.Digests), h.Origins)
			}
		})
	}
	testLastPages(t, st, id, last(3))
	saveRow(t, st, "a", "b")
	if h := resolve(t, st, "b", store.ResolveOptions{Last: 2}); h.PreviousResponseID != "" || len(h.Turns) != 2 {
		t.Errorf("all turns: got %q after %q", h.Turns, h.PreviousResponseID)
	}
	if h := resolve(t, st, "b", store.ResolveOptions{Last: 9}); h.PreviousResponseID != "" || len(h.Turns) != 2 {
		t.Errorf("more turns than there are: got %q after %q", h.Turns, h.PreviousResponseID)
	}
}

// testLastPages: the pages of the last turns have their items, in both orders.
func testLastPages(t *testing.T, st *store.Store, id string, turns []string) {
	t.Helper()
	for _, order := range []string{store.OrderAscending, store.OrderDescending} {
		options := store.ResolveOptions{Last: len(turns), Limit: 4, Order: order}
		want := textsOf(t, resolve(t, st, id, store.ResolveOptions{Last: len(turns), Order: order}))
		first := resolve(t, st, id, options)
		options.After = first.Next
		second := resolve(t, st, id, options)
		if diff := cmp.Diff(want, append(textsOf(t, first), textsOf(t, second)...)); diff != "" || second.Next != "" {
			t.Errorf("%s: the next page %q (-want +got):\n%s", order, second.Next, diff)
		}
		if diff := cmp.Diff(turns, second.Turns); diff != "" {
			t.Errorf("%s: turns of a page (-want +got):\n%s", order, diff)
		}
	}
}

func testLastInvalid(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a")
	for _, last := range []int{-1, store.MaxDepthLimit + 1} {
		_, err := st.Resolve(t.Context(), "a", store.ResolveOptions{Last: last})
		wantError(t, err, &store.Error{Code: store.CodeInvalid})
	}
}
