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
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testPages: the pages of a long history together are the whole history.
func testPages(t *testing.T, s *suite) {
	st := s.newStore(t)
	ids := []string{"a", "b", "c", "d"}
	previous := ""
	for i, id := range ids {
		var items []string
		for n := range []int{600, 0, 1, 500}[i] {
			items = append(items, fmt.Sprintf(`{"role":"user","content":[{"text":"%s%d"}]}`, id, n))
		}
		turn := testturn.Make(id, previous)
		turn.Request = fmt.Appendf(nil, `{"instructions":"be brief","input":[%s]}`, strings.Join(items, ","))
		save(t, st, turn, store.SaveOptions{})
		previous = id
	}
	tests := map[string]struct {
		options store.ResolveOptions
		total   int
	}{
		"by 1000":                      {store.ResolveOptions{Limit: store.MaxLimit}, 1109},
		"by 100":                       {store.ResolveOptions{Limit: 100}, 1109},
		"by 7, newest first":           {store.ResolveOptions{Limit: 7, Order: store.OrderDescending}, 1109},
		"by 603, newest first":         {store.ResolveOptions{Limit: 603, Order: store.OrderDescending}, 1109},
		"by 221, without instructions": {store.ResolveOptions{Limit: 221, Instructions: store.InstructionsOmit}, 1105},
		"by 13, last instructions":     {store.ResolveOptions{Limit: 13, Instructions: store.InstructionsLast}, 1106},
		"by 50, with origins":          {store.ResolveOptions{Limit: 50, Origins: true}, 1109},
		"by 70, newest, with origins":  {store.ResolveOptions{Limit: 70, Origins: true, Order: store.OrderDescending}, 1109},
		"by 111, incomplete turns":     {store.ResolveOptions{Limit: 111, IncludeIncomplete: true}, 1109},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			unlimited := tc.options
			unlimited.Limit = 0
			want := textsOf(t, resolve(t, st, "d", unlimited))
			if len(want) != tc.total {
				t.Fatalf("Unexpected number of items: want %d, got %d", tc.total, len(want))
			}
			wantOrigins := originsOf(t, resolve(t, st, "d", unlimited), unlimited)
			var got, gotOrigins []string
			for options := tc.options; len(got) <= tc.total; {
				page := resolve(t, st, "d", options)
				got, gotOrigins = append(got, textsOf(t, page)...), append(gotOrigins, originsOf(t, page, options)...)
				if page.Next != "" && len(page.Items) != options.Limit || len(page.Items) > options.Limit {
					t.Fatalf("A page has %d items, with the limit %d and the next page %q", len(page.Items), options.Limit, page.Next)
				}
				if diff := cmp.Diff(ids, page.Turns); diff != "" {
					t.Fatalf("Unexpected turns of a page (-want,+got):\n%s", diff)
				}
				if options.After = page.Next; page.Next == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("The pages differ from the whole history (-want,+got):\n%s", diff)
			}
			if diff := cmp.Diff(wantOrigins, gotOrigins); diff != "" {
				t.Errorf("The origins on the pages differ from those of the whole history (-want,+got):\n%s", diff)
			}
		})
	}
}

// testOrigins: each item has a turn and a number, on a page and in a whole history, in both orders.
func testOrigins(t *testing.T, s *suite) {
	st := s.newStore(t)
	for id, previous := range map[string]string{"a": "", "empty": "a", "b": "empty"} {
		turn := testturn.Make(id, previous)
		turn.Request, turn.Response = []byte(`{"instructions":"be brief","input":[{"n":0},{"n":1}]}`), []byte(`{"output":[{"n":2}]}`)
		if id == "empty" {
			turn.Request, turn.Response = []byte(`{}`), []byte(`{}`)
		}
		save(t, st, turn, store.SaveOptions{})
	}
	tests := map[string]struct {
		options store.ResolveOptions
		want    []store.Origin
	}{
		"not requested": {},
		"instructions": {
			options: store.ResolveOptions{Origins: true},
			want:    []store.Origin{{ResponseID: "a", First: -1, Count: 4}, {ResponseID: "b", First: -1, Count: 4}},
		},
		"no instructions": {
			options: store.ResolveOptions{Origins: true, Instructions: store.InstructionsOmit},
			want:    []store.Origin{{ResponseID: "a", First: 0, Count: 3}, {ResponseID: "b", First: 0, Count: 3}},
		},
		"newest first": {
			options: store.ResolveOptions{Origins: true, Order: store.OrderDescending, Instructions: store.InstructionsLast},
			want:    []store.Origin{{ResponseID: "b", First: 2, Count: 4}, {ResponseID: "a", First: 2, Count: 3}},
		},
		"page, newest first": {
			options: store.ResolveOptions{Origins: true, Order: store.OrderDescending, Instructions: store.InstructionsOmit, Limit: 4},
			want:    []store.Origin{{ResponseID: "b", First: 2, Count: 3}, {ResponseID: "a", First: 2, Count: 1}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, resolve(t, st, "b", tc.options).Origins); diff != "" {
				t.Errorf("origins (-want,+got):\n%s", diff)
			}
		})
	}
}

// originsOf returns the turn and the number of each item, nil if the history has no origins.
func originsOf(t *testing.T, h *store.History, options store.ResolveOptions) (items []string) {
	t.Helper()
	step := 1
	if options.Order == store.OrderDescending {
		step = -1
	}
	for _, o := range h.Origins {
		for i := range o.Count {
			items = append(items, fmt.Sprintf("%s/%d", o.ResponseID, o.First+step*i))
		}
	}
	if items != nil && len(items) != len(h.Items) {
		t.Errorf("%d items have origins, of %d", len(items), len(h.Items))
	}
	return items
}

// testCursors: a cursor is valid only for its history and its options.
func testCursors(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	saveRow(t, st, "a", "b")
	saveRow(t, elsewhere, "a", "b")
	cursor := func(st *store.Store, id string, options store.ResolveOptions) string {
		t.Helper()
		options.Limit = 1
		next := resolve(t, st, id, options).Next
		if next == "" {
			t.Fatal("The page has no cursor for a next page")
		}
		return next
	}
	good := cursor(st, "b", store.ResolveOptions{})
	tests := map[string]struct {
		after   string
		options store.ResolveOptions
		wantErr bool
	}{
		"good":                      {after: good},
		"good, with a larger limit": {after: good, options: store.ResolveOptions{Limit: 10}},
		"good, explicit defaults":   {after: good, options: store.ResolveOptions{Order: store.OrderAscending, Instructions: store.InstructionsAll}},
		"garbage":                   {after: "garbage", wantErr: true},
		"not text":                  {after: "\x00\xff", wantErr: true},
		"truncated":                 {after: good[:len(good)/2], wantErr: true},
		"response ID":               {after: "a", wantErr: true},
		"of another turn":           {after: cursor(st, "a", store.ResolveOptions{}), wantErr: true},
		"of another namespace":      {after: cursor(elsewhere, "b", store.ResolveOptions{}), wantErr: true},
		"of the other order":        {after: cursor(st, "b", store.ResolveOptions{Order: store.OrderDescending}), wantErr: true},
		"for the other order":       {after: good, options: store.ResolveOptions{Order: store.OrderDescending}, wantErr: true},
		"of other instructions":     {after: cursor(st, "b", store.ResolveOptions{Instructions: store.InstructionsOmit}), wantErr: true},
		"of incomplete turns":       {after: cursor(st, "b", store.ResolveOptions{IncludeIncomplete: true}), wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.options.Limit == 0 {
				tc.options.Limit = 1
			}
			tc.options.After = tc.after
			history, err := st.Resolve(t.Context(), "b", tc.options)
			if tc.wantErr {
				wantError(t, err, &store.Error{Code: store.CodeInvalid})
				return
			}
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if diff := cmp.Diff(texts("a", "b")[1:][:min(3, tc.options.Limit)], textsOf(t, history)); diff != "" {
				t.Errorf("Unexpected items (-want,+got):\n%s", diff)
			}
		})
	}
}

func testResolveOptions(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a")
	for name, options := range map[string]store.ResolveOptions{
		"negative depth":         {MaxDepth: new(-1)},
		"depth above the limit":  {MaxDepth: new(store.MaxDepthLimit + 1)},
		"negative limit":         {Limit: -1},
		"limit above the limit":  {Limit: store.MaxLimit + 1},
		"cursor without a limit": {After: "AAAA"},
		"unknown instructions":   {Instructions: "all"},
		"unknown order":          {Order: "newest first"},
	} {
		for _, id := range []string{"a", "nope", ""} {
			_, err := st.Resolve(t.Context(), id, options)
			if wantError(t, err, &store.Error{Code: store.CodeInvalid}); err == nil {
				t.Errorf("No error with a %s for %q", name, id)
			}
		}
	}
}

// testResolveVersion: a result is at least as new as requested.
func testResolveVersion(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a", "b")
	for i := range 10 {
		changed := testturn.Make("a", "")
		changed.Request = fmt.Appendf(nil, `{"input":"change %d"}`, i)
		save(t, st, changed, store.SaveOptions{Overwrite: true})
		history := resolve(t, st, "b", store.ResolveOptions{Version: changed.Version})
		if want, got := fmt.Sprintf("user: change %d", i), textsOf(t, history)[0]; got != want {
			t.Errorf("Unexpected item: want %q, got %q", want, got)
		}
	}
}
