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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// scan finds an item in a history with origins, the newest item first, of which it decodes every item.
func scan(t *testing.T, history *store.History, itemID string) *store.Item {
	t.Helper()
	next := 0
	for _, origin := range history.Origins {
		for i := range origin.Count {
			var item map[string]any
			if err := json.Unmarshal(history.Items[next], &item); err != nil {
				t.Fatal(err)
			}
			if id, ok := item["id"].(string); ok && id == itemID && id != "" {
				return &store.Item{ResponseID: origin.ResponseID, Number: origin.First - i, JSON: history.Items[next]}
			}
			next++
		}
	}
	return nil
}

// wantItem checks the result of FindItem; a nil item is one that does not exist.
func wantItem(t *testing.T, s *store.Store, responseID, itemID string, options store.ResolveOptions, want *store.Item) {
	t.Helper()
	got, err := s.FindItem(t.Context(), responseID, itemID, options)
	if want == nil {
		wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: responseID})
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", itemID)) {
			t.Errorf("The error does not contain the ID %q: %v", itemID, err)
		}
		return
	}
	if err != nil {
		t.Errorf("Unable to find item %.20q of %q: %v", itemID, responseID, err)
		return
	}
	if got.ResponseID != want.ResponseID || got.Number != want.Number {
		t.Errorf("Unexpected item %q of %q: want number %d of %q, got number %d of %q", itemID, responseID, want.Number, want.ResponseID, got.Number, got.ResponseID)
	}
	if difference := differenceJSON(want.JSON, got.JSON); difference != "" {
		t.Errorf("Item %q of %q%s", itemID, responseID, difference)
	}
}

// testFindItem: FindItem finds what a scan of the whole history finds.
func testFindItem(t *testing.T, st *store.Store, leaves []string) {
	options := store.ResolveOptions{MaxDepth: forestOptions()["default"].MaxDepth, IncludeIncomplete: true}
	for _, responseID := range append(leaves, "deep_35", "fork.b", "") {
		whole := options
		whole.Order, whole.Instructions, whole.Origins = store.OrderDescending, store.InstructionsOmit, true
		history := resolve(t, st, responseID, whole)
		for _, itemID := range []string{"in_0", "in_35", "in_63", "small", "absent", ""} {
			wantItem(t, st, responseID, itemID, options, scan(t, history, itemID))
		}
	}
}

// testItemIDs: only a string that is the ID counts, however it is written.
func testItemIDs(t *testing.T, s *suite) {
	st := s.newStore(t)
	huge := strings.Repeat("x", 200<<10)
	turn := testturn.Make("ids", "")
	turn.Request = json.RawMessage(`{"instructions":"be brief","input":[` + strings.Join([]string{
		`{"id":"plain","n":0}`, `{"id":"\u0065scaped","n":1}`, `{"\u0069d":"escaped key","n":2}`, `{"id":5,"n":3}`, `{"id":null,"n":4}`,
		`{"id":{"id":"nested"},"n":5}`, `{"x":{"id":"nested"},"n":6}`, `{"x":[{"id":"nested"}],"n":7}`, `{"id":"é 漢字 😀","n":8}`, `{"id":"\ud83d\ude00","n":9}`,
		`{"id":"","n":10}`, `{"id":"quote\"s","n":11}`, `{"text":"` + huge + `","id":"after huge","n":12}`, `{"id":"` + huge + `","n":13}`,
		`{"id":"twice","n":14}`, `{"id":"slash\/es","n":15}`, `{"id" : "spaced" , "n":16}`,
	}, ",") + `]}`)
	turn.Response = json.RawMessage(`{"output":[{"id":"twice","n":17},{"ID":"upper","n":18}]}`)
	save(t, st, turn, store.SaveOptions{})
	for itemID, want := range map[string]int{
		"plain": 0, "escaped": 1, "escaped key": 2, "5": -1, "null": -1, "nested": -1, `{"id":"nested"}`: -1, "é 漢字 😀": 8, "😀": 9, "": -1,
		`quote"s`: 11, `quote\"s`: -1, "after huge": 12, huge: 13, "twice": 17, "slash/es": 15, "spaced": 16, "upper": -1, `\u0065scaped`: -1, "Plain": -1,
		"plai": -1, "plain ": -1,
	} {
		item, err := st.FindItem(t.Context(), "ids", itemID, store.ResolveOptions{})
		if want < 0 {
			wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "ids"})
			continue
		}
		var content struct{ N int }
		if err == nil {
			err = json.Unmarshal(item.JSON, &content)
		}
		if err != nil || item.ResponseID != "ids" || item.Number != want || content.N != want {
			t.Errorf("Unexpected item %.20q: want number %d, got number %d, %d in its JSON, error %v", itemID, want, item.Number, content.N, err)
		}
	}
}

// testFindItemPages: the newest of the items with one ID is found on whichever page it is, and only in the branch of the response.
func testFindItemPages(t *testing.T, s *suite) {
	st := s.newStore(t)
	items := func(turn *store.Session, count int, ids map[int]string) *store.Session {
		var list []string
		for i := range count {
			list = append(list, fmt.Sprintf(`{"id":%q,"turn":%q}`, ids[i], turn.ResponseID))
		}
		turn.Request, turn.Response = fmt.Appendf(nil, `{"input":[%s]}`, strings.Join(list, ",")), nil
		return turn
	}
	for _, turn := range []*store.Session{
		items(testturn.Make("a", ""), 1200, map[int]string{0: "first", 700: "dup", 1199: "last of a"}),
		items(testturn.Make("b", "a"), 0, nil),
		items(testturn.Make("c", "b"), 1100, map[int]string{0: "first of c", 99: "dup", 100: "on the edge", 1099: "last"}),
		items(testturn.Make("fork", "b"), 1, map[int]string{0: "only in the fork"}),
	} {
		save(t, st, turn, store.SaveOptions{})
	}
	for name, want := range map[string]map[string]store.Item{
		"c": {
			"first": {ResponseID: "a", Number: 0}, "last of a": {ResponseID: "a", Number: 1199}, "first of c": {ResponseID: "c", Number: 0},
			"dup": {ResponseID: "c", Number: 99}, "on the edge": {ResponseID: "c", Number: 100}, "last": {ResponseID: "c", Number: 1099},
		},
		"fork": {"dup": {ResponseID: "a", Number: 700}, "only in the fork": {ResponseID: "fork", Number: 0}, "first": {ResponseID: "a", Number: 0}},
	} {
		for itemID, item := range want {
			item.JSON = fmt.Appendf(nil, `{"id":%q,"turn":%q}`, itemID, item.ResponseID)
			wantItem(t, st, name, itemID, store.ResolveOptions{}, &item)
		}
	}
	wantItem(t, st, "c", "only in the fork", store.ResolveOptions{}, nil)
	wantItem(t, st, "fork", "last", store.ResolveOptions{}, nil)
}

// testFindItemErrors: a history that does not resolve is distinguished from one without the item.
func testFindItemErrors(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	saveTurns(t, st, []string{"a", "b<a", "failed<b:failed", "cut<b:incomplete", "orphan<gone"})
	_, err := st.FindItem(t.Context(), "nope", "x", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "nope", PreviousResponseID: "nope"})
	_, err = st.FindItem(t.Context(), "orphan", "x", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "gone", PreviousResponseID: "orphan"})
	_, err = elsewhere.FindItem(t.Context(), "b", "x", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "b", PreviousResponseID: "b"})
	_, err = st.FindItem(t.Context(), "b", "x", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "b"})

	for name, tc := range map[string]struct {
		id      string
		options store.ResolveOptions
		want    error
	}{
		"failed":             {"failed", store.ResolveOptions{}, store.ErrUnavailable},
		"failed, continued":  {"failed", store.ResolveOptions{ContinueIncomplete: true}, store.ErrUnavailable},
		"failed, included":   {"failed", store.ResolveOptions{IncludeIncomplete: true}, store.ErrNotFound},
		"cut off":            {"cut", store.ResolveOptions{}, store.ErrUnavailable},
		"cut off, continued": {"cut", store.ResolveOptions{ContinueIncomplete: true}, store.ErrNotFound},
		"depth":              {"b", store.ResolveOptions{MaxDepth: new(2)}, store.ErrNotFound},
		"too deep":           {"b", store.ResolveOptions{MaxDepth: new(1)}, store.ErrDepthExceeded},
		"invalid depth":      {"b", store.ResolveOptions{MaxDepth: new(-1)}, store.ErrInvalid},
		"instructions":       {"b", store.ResolveOptions{Instructions: store.InstructionsOmit}, store.ErrInvalid},
		"order":              {"b", store.ResolveOptions{Order: store.OrderDescending}, store.ErrInvalid},
		"origins":            {"b", store.ResolveOptions{Origins: true}, store.ErrInvalid},
		"limit":              {"b", store.ResolveOptions{Limit: 10}, store.ErrInvalid},
		"cursor":             {"b", store.ResolveOptions{After: "x"}, store.ErrInvalid},
		"bodies":             {"b", store.ResolveOptions{Bodies: true}, store.ErrInvalid},
	} {
		if _, err := st.FindItem(t.Context(), tc.id, "x", tc.options); !errors.Is(err, tc.want) {
			t.Errorf("%s: want %v, got %v", name, tc.want, err)
		}
	}

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.FindItem(canceled, "b", "x", store.ResolveOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Unexpected error: want context.Canceled, got %v", err)
	}

	// The result is as new as the version, and does not share the memory of what is stored.
	changed := testturn.Make("a", "")
	changed.Request = json.RawMessage(`{"input":[{"id":"x"}]}`)
	save(t, st, changed, store.SaveOptions{Overwrite: true})
	for range 2 {
		item, err := st.FindItem(t.Context(), "b", "x", store.ResolveOptions{Version: changed.Version})
		if err != nil {
			t.Fatalf("Unable to find an item: %v", err)
		}
		if diff := cmp.Diff(&store.Item{ResponseID: "a", Number: 0, JSON: json.RawMessage(`{"id":"x"}`)}, item); diff != "" {
			t.Errorf("Unexpected item (-want,+got):\n%s", diff)
		}
		clear(item.JSON)
	}
}
