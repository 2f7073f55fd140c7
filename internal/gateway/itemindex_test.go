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

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/store"
)

// saveTurn saves a completed turn with the given input items and one output item.
func (f *fixture) saveTurn(t *testing.T, id, previous string, items []string) {
	t.Helper()
	session := &store.Session{
		ResponseID: id, PreviousResponseID: previous, Status: store.StatusCompleted,
		Request: []byte(`{"input":[` + strings.Join(items, ",") + `]}`), Response: []byte(`{"output":[{"id":"out_` + id + `"}]}`),
	}
	if err := f.store.next.InNamespace("default").Save(t.Context(), session, store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
}

// longItems returns items: some have an ID of their own, some have none, and some share the ID of another item.
func longItems(prefix string, count int) []string {
	var items []string
	for i := range count {
		switch {
		case i%5 == 0:
			items = append(items, `{"role":"user"}`)
		case i%7 == 0:
			items = append(items, `{"id":"again"}`)
		default:
			items = append(items, fmt.Sprintf(`{"id":"%s_%d"}`, prefix, i))
		}
	}
	return items
}

// TestPagesOfLongConversation compares the pages of a conversation, in any order, with windows of the whole list. Once the
// conversation has been read, a page takes at most two resolves.
func TestPagesOfLongConversation(t *testing.T) {
	f := start(t, nil)
	var all []string
	previous := ""
	for _, turn := range []struct {
		id    string
		items int
	}{{"resp_a", 99}, {"resp_b", 250}, {"resp_c", 47}, {"resp_1", 150}} {
		items := longItems(turn.id, turn.items)
		f.saveTurn(t, turn.id, previous, items)
		if all, previous = append(all, items...), turn.id; turn.id != "resp_1" {
			all = append(all, `{"id":"out_`+turn.id+`"}`)
		}
	}
	ids := uniqueIDs(all)
	resolves := 0
	f.store.onResolve = func(context.Context) error { resolves++; return nil }
	rapid.Check(t, func(t *rapid.T) {
		f.gateway.items = newItemIndexes() // as in another replica
		whole := false
		t.Repeat(map[string]func(*rapid.T){
			"page": func(t *rapid.T) {
				limit, descending := rapid.IntRange(1, 100).Draw(t, "limit"), rapid.Bool().Draw(t, "descending")
				after := rapid.IntRange(-1, len(ids)-1).Draw(t, "after")
				resolves = 0
				wantPage(t, f, ids, limit, descending, after)
				if whole && resolves > 2 {
					t.Errorf("a page after item %d took %d resolves, want at most 2", after, resolves)
				}
				whole = whole || descending && after < 0
			},
		})
	})
}

func wantPage(t *rapid.T, f *fixture, ids []string, limit int, descending bool, after int) {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "order": {map[bool]string{false: "asc", true: "desc"}[descending]}}
	if after >= 0 {
		query.Set("after", ids[after])
	}
	r := f.do(http.MethodGet, "/v1/responses/resp_1/input_items?"+query.Encode(), "")
	window := history.NewWindow(len(ids), limit, after, descending)
	want := slices.Clone(ids[window.From:window.To])
	if descending {
		slices.Reverse(want)
	}
	got := []string{}
	for _, item := range gjson.Get(r.body, "data").Array() {
		got = append(got, item.Get("id").Str)
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" || (r.get("has_more") == "true") != window.More {
		t.Fatalf("%s: has_more %s, want %t (-want +got):\n%s", query.Encode(), r.get("has_more"), window.More, diff)
	}
}

// TestPagesAfterOverwrite checks that overwriting an earlier turn with fewer items does not hide items of other turns.
func TestPagesAfterOverwrite(t *testing.T) {
	f := start(t, nil)
	f.saveTurn(t, "resp_a", "", longItems("a", 350))
	f.saveTurn(t, "resp_1", "resp_a", longItems("b", 10))
	page := func(query string) []string {
		t.Helper()
		r := f.do(http.MethodGet, "/v1/responses/resp_1/input_items?"+query, "")
		var got []string
		for _, item := range gjson.Get(r.body, "data").Array() {
			got = append(got, item.Get("id").Str)
		}
		return got
	}
	before := page("limit=2") // reads all
	f.saveTurn(t, "resp_a", "", longItems("a", 150))
	if diff := cmp.Diff(before, page("limit=2")); diff != "" {
		t.Errorf("the newest (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"item_1_147", "a_148"}, page("limit=2&order=asc&after=a_146")); diff != "" {
		t.Errorf("after the 146th (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a_148", "a_149"}, page("limit=2&order=asc&after=item_1_147")); diff != "" {
		t.Errorf("after the 147th (-want +got):\n%s", diff)
	}
	if got := page("limit=2&order=asc&after=a_349"); got != nil {
		t.Errorf("got %q after an item that no longer exists, want an error", got)
	}
}

// TestIndexesAreBounded checks that the item indexes stay within their memory limit, and that the most recently used ones are
// kept.
func TestIndexesAreBounded(t *testing.T) {
	x := newItemIndexes()
	index := largeIndex(maxIndexBytes)
	key := func(i int) indexKey { return indexKey{"a", strconv.Itoa(i), "1"} }
	const kept = maxIndexesBytes / maxIndexBytes
	for i := range 2 * kept {
		x.put(key(i), index)
		x.get(key(0))
	}
	for i := range 2 * kept {
		if want := i == 0 || i > kept; (x.get(key(i)).count > 0) != want {
			t.Errorf("index %d is kept: %t, want %t", i, !want, want)
		}
	}
	x.put(key(0), largeIndex(indexOverhead+seenBytes)) // a shorter one
	if used, want := x.cache.Used(), int64(kept*index.bytes()); x.get(key(0)).count != index.count || used != want {
		t.Errorf("%d bytes are counted, want %d", used, want)
	}
	for i := range 2 * kept {
		x.drop(key(i))
	}
	if used := x.cache.Used(); used != 0 {
		t.Errorf("%d bytes are counted without an index", used)
	}
}

// largeIndex returns an index that takes a number of bytes.
func largeIndex(bytes int) *itemIndex {
	positions := map[uint64]int{}
	for i := range (bytes - indexOverhead) / seenBytes {
		positions[uint64(i)] = i
	}
	return (&itemIndex{}).extended(positions, nil, len(positions), false)
}

// TestIndexesAreShared: a tenant that reads more conversations than there is memory for does not discard the index of another,
// and even conversations without items take memory.
func TestIndexesAreShared(t *testing.T) {
	tests := map[string]*itemIndex{"large": largeIndex(maxIndexBytes), "empty": {complete: true}}
	for name, greedy := range tests {
		t.Run(name, func(t *testing.T) {
			x := newItemIndexes()
			modest := indexKey{"modest", "resp_1", "1"}
			x.put(modest, largeIndex(maxIndexBytes))
			key := func(i int) indexKey { return indexKey{"greedy", strconv.Itoa(i), "1"} }
			for i := range maxIndexesBytes/greedy.bytes() + 1 {
				x.put(key(i), greedy)
			}
			if x.get(modest).count == 0 {
				t.Error("the index of another tenant was discarded")
			}
			if _, found := x.cache.Get(key(0)); found {
				t.Error("more indexes are kept than there is memory for")
			}
		})
	}
}
