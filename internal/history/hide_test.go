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

package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

// namesOf returns the turn and the number of each entry of a page with origins.
func namesOf(p *Page) (names []driver.HiddenItem) {
	step := 1
	if p.Descending() {
		step = -1
	}
	for _, origin := range p.Origins() {
		for i := range origin.Count {
			names = append(names, driver.HiddenItem{ResponseID: origin.ResponseID, Number: origin.First + i*step})
		}
	}
	return names
}

// TestHide: a page with hidden items is the page without them.
func TestHide(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var turns []TurnItems
		var hidden, all []driver.HiddenItem
		for turn := range rapid.IntRange(1, 4).Draw(r, "turns") {
			id := fmt.Sprintf("resp_%d", turn)
			var items []string
			for item := range rapid.IntRange(0, 4).Draw(r, "items") {
				items = append(items, fmt.Sprintf(`{"n":"%d %d"}`, turn, item))
				all = append(all, driver.HiddenItem{ResponseID: id, Number: item})
			}
			instructions := rapid.SampledFrom([]string{"", "be brief"}).Draw(r, "instructions")
			turns = append(turns, TurnItems{id, testutil.FlattenTurn(t, instructions, items...)})
		}
		for _, item := range rapid.Permutation(all).Draw(r, "order of hidden items") {
			if rapid.Bool().Draw(r, "hide") {
				hidden = append(hidden, item)
			}
		}
		options := driver.ResolveOptions{
			Order: rapid.SampledFrom([]string{driver.OrderAscending, driver.OrderDescending}).Draw(r, "order"),
			Limit: rapid.IntRange(0, 6).Draw(r, "limit"), Origins: true,
		}
		for more := true; more; more = options.After != "" {
			options.After = checkHidden(r, turns, hidden, options)
		}
	})
}

// checkHidden compares a page with the one that has all items, and returns the cursor of the next page.
func checkHidden(t *rapid.T, turns []TurnItems, hidden []driver.HiddenItem, options driver.ResolveOptions) string {
	full, err := New(testUID, turns, options)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	var wantNames []driver.HiddenItem
	names, i := namesOf(full), 0
	for entry := range full.Entries() {
		if !slices.Contains(hidden, names[i]) {
			want, wantNames = append(want, string(entry)), append(wantNames, names[i])
		}
		i++
	}
	page, err := New(testUID, turns, options)
	if err != nil {
		t.Fatal(err)
	}
	page.Hide(hidden)
	if diff := cmp.Diff(strings.Join(want, ","), joined(page)); diff != "" || page.Len() != len(want) || page.Next() != full.Next() {
		t.Fatalf("%d entries (-want +got):\n%s", page.Len(), diff)
	}
	if diff := cmp.Diff(wantNames, namesOf(page)); diff != "" {
		t.Fatalf("origins (-want +got):\n%s", diff)
	}
	return page.Next()
}

// TestUnbound: a cursor that is not bound to a turn continues the history of one that was saved after it, unless its place depends on which turn
// is the last.
func TestUnbound(t *testing.T) {
	turns := makeHistory(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`), testutil.FlattenTurn(t, "be kind", `{"c":1}`))
	for instructions, bound := range map[string]bool{"": false, driver.InstructionsOmit: false, driver.InstructionsLast: true} {
		options := driver.ResolveOptions{Limit: 1, Instructions: instructions}
		first, err := New(testUID, turns[:1], options)
		if err != nil {
			t.Fatal(err)
		}
		options.After = Unbound(first.Next(), options)
		second, err := New("another UID", turns, options)
		switch {
		case bound && err == nil:
			t.Errorf("%q: the cursor is not bound", instructions)
		case !bound && err != nil:
			t.Errorf("%q: %v", instructions, err)
		case !bound && joined(first) == joined(second):
			t.Errorf("%q: both pages are %s", instructions, joined(first))
		}
	}
	if got := Unbound("x", driver.ResolveOptions{}); got != "x" {
		t.Errorf("what is not a cursor became %q", got)
	}
}
