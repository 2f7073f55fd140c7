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
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

const testUID = "0c3f2b1e-6f0a-4a35-9a53-7d0f6f6f0001"

// makeHistory returns a history of turns resp_1, resp_2 and so on.
func makeHistory(items ...*chain.Items) []TurnItems {
	turns := make([]TurnItems, len(items))
	for i := range items {
		turns[i] = TurnItems{ResponseID: fmt.Sprintf("resp_%d", i+1), Items: items[i]}
	}
	return turns
}

func joined(p *Page) string {
	return strings.Join(slices.Collect(func(yield func(string) bool) {
		for raw := range p.Raw() {
			if !yield(string(raw)) {
				return
			}
		}
	}), ",")
}

func TestPage(t *testing.T) {
	turns := makeHistory(
		testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1.0}`),
		testutil.FlattenTurn(t, ""),
		testutil.FlattenTurn(t, "be kind", `{"c": 12345678901234567890}`),
		testutil.FlattenTurn(t, "only this"),
		testutil.FlattenTurn(t, "", `{"d":"é"}`),
	)
	brief, kind, only := testutil.SystemMessage("be brief"), testutil.SystemMessage("be kind"), testutil.SystemMessage("only this")
	tests := map[string]struct {
		options  driver.ResolveOptions
		want     []string
		wantMore bool
	}{
		"everything": {
			want: []string{brief, `{"a":1}`, `{"b":1.0}`, kind, `{"c": 12345678901234567890}`, only, `{"d":"é"}`},
		},
		"newest first": {
			options: driver.ResolveOptions{Order: driver.OrderDescending},
			want:    []string{`{"d":"é"}`, only, `{"c": 12345678901234567890}`, kind, `{"b":1.0}`, `{"a":1}`, brief},
		},
		"no instructions": {
			options: driver.ResolveOptions{Instructions: driver.InstructionsOmit},
			want:    []string{`{"a":1}`, `{"b":1.0}`, `{"c": 12345678901234567890}`, `{"d":"é"}`},
		},
		"last instructions, absent": {
			options: driver.ResolveOptions{Instructions: driver.InstructionsLast},
			want:    []string{`{"a":1}`, `{"b":1.0}`, `{"c": 12345678901234567890}`, `{"d":"é"}`},
		},
		"first page": {
			options:  driver.ResolveOptions{Limit: 2},
			want:     []string{brief, `{"a":1}`},
			wantMore: true,
		},
		"first page, newest first": {
			options:  driver.ResolveOptions{Limit: 3, Order: driver.OrderDescending},
			want:     []string{`{"d":"é"}`, only, `{"c": 12345678901234567890}`},
			wantMore: true,
		},
		"page of exactly all items": {
			options: driver.ResolveOptions{Limit: 7},
			want:    []string{brief, `{"a":1}`, `{"b":1.0}`, kind, `{"c": 12345678901234567890}`, only, `{"d":"é"}`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := New(testUID, turns, tc.options)
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if diff := cmp.Diff(strings.Join(tc.want, ","), joined(got)); diff != "" {
				t.Errorf("Unexpected items (-want,+got):\n%s", diff)
			}
			if got.Len() != len(tc.want) {
				t.Errorf("Unexpected length: want %d, got %d", len(tc.want), got.Len())
			}
			if more := got.Next() != ""; more != tc.wantMore {
				t.Errorf("Unexpected next page: want %v, got %v", tc.wantMore, more)
			}
		})
	}
}

func TestPageLastInstructions(t *testing.T) {
	turns := makeHistory(testutil.FlattenTurn(t, "old", `{"a":1}`), testutil.FlattenTurn(t, "new", `{"b":1}`))
	got, err := New(testUID, turns, driver.ResolveOptions{Instructions: driver.InstructionsLast})
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(`{"a":1},`+testutil.SystemMessage("new")+`,{"b":1}`, joined(got)); diff != "" {
		t.Errorf("Unexpected items (-want,+got):\n%s", diff)
	}
}

// TestPagesAreComplete reads random histories in pages of random sizes.
func TestPagesAreComplete(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var turns []TurnItems
		for turn := range rapid.IntRange(1, 8).Draw(r, "turns") {
			var items []string
			for i := range rapid.IntRange(0, 5).Draw(r, "items") {
				items = append(items, fmt.Sprintf(`{"turn":%d,"item":%d}`, turn, i))
			}
			instructions := rapid.SampledFrom([]string{"", fmt.Sprintf("instructions %d", turn)}).Draw(r, "instructions")
			turns = append(turns, TurnItems{ResponseID: fmt.Sprintf("resp_%d", turn), Items: testutil.FlattenTurn(t, instructions, items...)})
		}
		options := driver.ResolveOptions{
			Order:        rapid.SampledFrom([]string{"", "asc", driver.OrderDescending}).Draw(r, "order"),
			Instructions: rapid.SampledFrom([]string{"", "All", driver.InstructionsLast, driver.InstructionsOmit}).Draw(r, "mode"),
		}
		whole, err := New(testUID, turns, options)
		if err != nil {
			r.Fatalf("Unexpected error: %v", err)
		}

		var pages []string
		for {
			options.Limit = rapid.IntRange(1, 7).Draw(r, "limit")
			page, err := New(testUID, turns, options)
			if err != nil {
				r.Fatalf("Unexpected error of page %d: %v", len(pages), err)
			}
			if page.Len() > options.Limit || (page.Next() != "" && page.Len() != options.Limit) {
				r.Fatalf("Page %d has %d items with limit %d and next %q", len(pages), page.Len(), options.Limit, page.Next())
			}
			if page.Len() > 0 {
				pages = append(pages, joined(page))
			}
			if options.After = page.Next(); page.Next() == "" {
				break
			}
		}
		if diff := cmp.Diff(joined(whole), strings.Join(pages, ",")); diff != "" {
			r.Fatalf("The pages differ from the whole history (-want,+got):\n%s", diff)
		}
	})
}

func TestInvalidCursors(t *testing.T) {
	turns := makeHistory(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`), testutil.FlattenTurn(t, "", `{"c":1}`))
	first := func(uid string, o driver.ResolveOptions) string {
		o.Limit = 1
		page, err := New(uid, turns, o)
		if err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
		return page.Next()
	}
	good := first(testUID, driver.ResolveOptions{})

	tests := map[string]struct {
		options driver.ResolveOptions
		after   string
		want    string
	}{
		"good":                  {after: good},
		"explicit defaults":     {after: good, options: driver.ResolveOptions{Order: "asc", Instructions: "All"}},
		"not base64":            {after: "=?=", want: "not a cursor"},
		"garbage":               {after: "AAAA", want: "not a cursor"},
		"too short":             {after: "AQ", want: "not a cursor"},
		"truncated":             {after: good[:8], want: "not a cursor"},
		"of a newer version":    {after: base64.RawURLEncoding.EncodeToString([]byte{pagecursor.Version + 1, 0, 'x'}), want: "version 2, and this server reads cursors up to version 1: upgrade"},
		"of version 0":          {after: base64.RawURLEncoding.EncodeToString([]byte{0, 0, 0, 0}), want: "not a cursor"},
		"response ID":           {after: "resp_123", want: "not a cursor"},
		"of another session":    {after: first("another", driver.ResolveOptions{}), want: "another session"},
		"of the other order":    {after: first(testUID, driver.ResolveOptions{Order: "desc"}), want: "different values of order"},
		"of other instructions": {after: first(testUID, driver.ResolveOptions{Instructions: "Omit"}), want: "different values of order"},
		"of incomplete turns":   {after: first(testUID, driver.ResolveOptions{IncludeIncomplete: true}), want: "different values of order"},
		"of a removed turn":     {after: cursor{uid: testUID, responseID: "resp_9"}.encode(), want: "no longer in the chain"},
		"of a removed item":     {after: cursor{uid: testUID, responseID: "resp_2", entry: 1}.encode(), want: "no longer in the chain"},
		"position out of range": {after: cursor{uid: testUID, responseID: "resp_2", entry: 1 << 40}.encode(), want: "not a cursor"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.options.Limit, tc.options.After = 1, tc.after
			_, err := New(testUID, turns, tc.options)
			var bad pagecursor.Error
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Unexpected error: %v", err)
			case tc.want != "" && !errors.As(err, &bad):
				t.Errorf("Unexpected error: want a pagecursor.Error, got %v", err)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("Unexpected error: want an error that contains %q, got %q", tc.want, err)
			}
		})
	}
}

// TestStoredCursor: a cursor issued by the first version. Clients keep cursors while the operator is upgraded, so later
// versions must read it.
func TestStoredCursor(t *testing.T) {
	const stored = "AQ2sAgd1aWQtb25lcmVzcF8x"
	want := cursor{view: 13, uid: "uid-one", responseID: "resp_1", entry: 300}
	got, err := decodeCursor(stored)
	if err != nil || got != want {
		t.Errorf("got %+v and error %v, want %+v", got, err, want)
	}
	options := driver.ResolveOptions{Instructions: driver.InstructionsLast, Order: driver.OrderDescending, IncludeIncomplete: true}
	if view(&options) != want.view {
		t.Errorf("the options are %d in a cursor, want %d", view(&options), want.view)
	}
	if want.encode() != stored {
		t.Errorf("the cursor is %s, want %s", want.encode(), stored)
	}
}

// TestCursorSurvivesOverwrite checks that the next page continues after the last one although an earlier turn was overwritten.
func TestCursorSurvivesOverwrite(t *testing.T) {
	options := driver.ResolveOptions{Limit: 2}
	before := makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`), testutil.FlattenTurn(t, "", `{"b":1}`, `{"c":1}`))
	page, err := New(testUID, before, options)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	options.After = page.Next()
	after := makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`, `{"a":2}`), testutil.FlattenTurn(t, "", `{"b":1}`, `{"c":1}`))
	if page, err = New(testUID, after, options); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(`{"c":1}`, joined(page)); diff != "" {
		t.Errorf("Unexpected items (-want,+got):\n%s", diff)
	}
}

// TestCursorAfter: a page can begin after any item of any turn of the chain.
func TestCursorAfter(t *testing.T) {
	turns := makeHistory(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`), testutil.FlattenTurn(t, "", `{"c":1}`))
	for name, tc := range map[string]struct {
		responseID string
		item       int
		order      string
		want       string
		wantErr    bool
	}{
		"first item":                {responseID: turns[0].ResponseID, item: 0, want: `{"b":1},{"c":1}`},
		"last of a turn":            {responseID: turns[0].ResponseID, item: 1, want: `{"c":1}`},
		"last":                      {responseID: turns[1].ResponseID, item: 0},
		"newest first":              {responseID: turns[1].ResponseID, item: 0, order: driver.OrderDescending, want: `{"b":1},{"a":1}`},
		"item that does not exist":  {responseID: turns[1].ResponseID, item: 1, wantErr: true},
		"turn that is not in chain": {responseID: "resp_other", item: 0, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			options := driver.ResolveOptions{Limit: 10, Order: tc.order, Instructions: driver.InstructionsOmit}
			options.After = CursorAfter(tc.responseID, tc.item, options)
			page, err := New(testUID, turns, options)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got %v, want an error: %t", err, tc.wantErr)
			}
			if err == nil && joined(page) != tc.want {
				t.Errorf("got %s, want %s", joined(page), tc.want)
			}
		})
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(cursor{view: 5, uid: testUID, responseID: "resp_1", entry: 300}.encode())
	f.Add("AQAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := decodeCursor(s)
		if err != nil {
			return
		}
		if again, err := decodeCursor(c.encode()); err != nil || again != c {
			t.Errorf("%q is decoded as %+v, but %+v after another round", s, c, again)
		}
	})
}

// TestCursorsAreBoundToOptions: a cursor is only valid for the same values of every option, except those that may differ from page to
// page.
func TestCursorsAreBoundToOptions(t *testing.T) {
	mayDiffer := map[string]bool{"MaxDepth": true, "Last": true, "ContinueIncomplete": true, "Origins": true, "Digests": true, "Bodies": true, "Limit": true, "After": true, "Version": true}
	other := driver.ResolveOptions{IncludeIncomplete: true, Instructions: driver.InstructionsOmit, Order: driver.OrderDescending}
	for field := range reflect.TypeFor[driver.ResolveOptions]().Fields() {
		if mayDiffer[field.Name] {
			continue
		}
		options := driver.ResolveOptions{}
		reflect.ValueOf(&options).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(other).FieldByIndex(field.Index))
		if view(&options) == view(&driver.ResolveOptions{}) {
			t.Errorf("a cursor is valid for any value of %s", field.Name)
		}
	}
}
