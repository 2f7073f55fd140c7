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
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/history"
)

// TestPage checks a page, to which items are added one by one, against the window of the whole list.
func TestPage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.SampledFrom([]string{`{}`, `{"id":"a"}`, `{"id":"b","x":1}`, `{"x":1,"id":"c"}`, `{"id":"item_1_2"}`}), 0, 12).Draw(t, "items")
		ids := uniqueIDs(raw)
		options := &pageOptions{
			limit: rapid.IntRange(1, 5).Draw(t, "limit"), descending: rapid.Bool().Draw(t, "descending"),
			after: rapid.SampledFrom(append([]string{"", "unknown"}, ids...)).Draw(t, "after"),
		}
		held := int64(0)
		p := newPage(options, "resp_1", maphash.MakeSeed(), &itemIndex{}, func(bytes int64) error { held += bytes; return nil }, func(bytes int64) { held -= bytes })
		for _, item := range raw {
			if err := p.add(item); errors.Is(err, errPageComplete) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		body, err := p.body()
		after := slices.Index(ids, options.after)
		if unknown := options.after != "" && after < 0; unknown != (err != nil) {
			t.Fatalf("got %v", err)
		} else if unknown {
			return
		}
		window := history.NewWindow(len(ids), options.limit, after, options.descending)
		want := slices.Clone(ids[window.From:window.To])
		if options.descending {
			slices.Reverse(want)
		}
		var got []string
		for _, item := range gjson.Get(body, "data").Array() {
			got = append(got, item.Get("id").Str)
		}
		if diff := cmp.Diff(want, got); !gjson.Valid(body) || len(got)+len(want) > 0 && diff != "" || gjson.Get(body, "has_more").Bool() != window.More {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if held < int64(len(body)) {
			t.Errorf("counted %d bytes for a page of %d bytes", held, len(body))
		}
	})
}

// uniqueIDs returns the IDs of the items of resp_1.
func uniqueIDs(raw []string) []string {
	var ids []string
	for i, item := range raw {
		id := gjson.Get(item, "id").Str
		if id == "" || slices.Contains(ids, id) {
			id = fmt.Sprintf("item_1_%d", i)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestPageMemory checks that a page of a long history takes only the memory of its items and of one ID for each other
// item.
func TestPageMemory(t *testing.T) {
	held, most := int64(0), int64(0)
	hold := func(bytes int64) error { held += bytes; most = max(most, held); return nil }
	p := newPage(&pageOptions{limit: 2, descending: true}, "resp_1", maphash.MakeSeed(), &itemIndex{}, hold, func(bytes int64) { held -= bytes })
	const count, size = 1000, 10_000
	for range count {
		if err := p.add(`{"text":"` + strings.Repeat("x", size) + `"}`); err != nil {
			t.Fatal(err)
		}
	}
	if most > count*seenBytes+4*size {
		t.Errorf("held %d bytes, want at most %d", most, count*seenBytes+4*size)
	}
}
