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

package resolveapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/resolve"
)

func joined(t *transcript) string {
	return strings.Join(slices.Collect(func(yield func(string) bool) {
		for raw := range t.raw() {
			if !yield(string(raw)) {
				return
			}
		}
	}), ",")
}

func TestTranscript(t *testing.T) {
	history := makeHistory(
		makeTurn(t, "be brief", `{"a":1}`, `{"b":1.0}`),
		makeTurn(t, ""),
		makeTurn(t, "be kind", `{"c": 12345678901234567890}`),
		makeTurn(t, "only this"),
		makeTurn(t, "", `{"d":"é"}`),
	)
	brief, kind, only := system("be brief"), system("be kind"), system("only this")
	tests := map[string]struct {
		options  resolvev1alpha1.InputItemsOptions
		want     []string
		wantMore bool
	}{
		"everything": {
			want: []string{brief, `{"a":1}`, `{"b":1.0}`, kind, `{"c": 12345678901234567890}`, only, `{"d":"é"}`},
		},
		"newest first": {
			options: resolvev1alpha1.InputItemsOptions{Order: resolvev1alpha1.OrderDescending},
			want:    []string{`{"d":"é"}`, only, `{"c": 12345678901234567890}`, kind, `{"b":1.0}`, `{"a":1}`, brief},
		},
		"no instructions": {
			options: resolvev1alpha1.InputItemsOptions{Instructions: resolvev1alpha1.InstructionsOmit},
			want:    []string{`{"a":1}`, `{"b":1.0}`, `{"c": 12345678901234567890}`, `{"d":"é"}`},
		},
		"the last instructions, which are none": {
			options: resolvev1alpha1.InputItemsOptions{Instructions: resolvev1alpha1.InstructionsLast},
			want:    []string{`{"a":1}`, `{"b":1.0}`, `{"c": 12345678901234567890}`, `{"d":"é"}`},
		},
		"a page": {
			options:  resolvev1alpha1.InputItemsOptions{Limit: 2},
			want:     []string{brief, `{"a":1}`},
			wantMore: true,
		},
		"a page from the end": {
			options:  resolvev1alpha1.InputItemsOptions{Limit: 3, Order: resolvev1alpha1.OrderDescending},
			want:     []string{`{"d":"é"}`, only, `{"c": 12345678901234567890}`},
			wantMore: true,
		},
		"a page of just everything": {
			options: resolvev1alpha1.InputItemsOptions{Limit: 7},
			want:    []string{brief, `{"a":1}`, `{"b":1.0}`, kind, `{"c": 12345678901234567890}`, only, `{"d":"é"}`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := newTranscript(history, &tc.options)
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if diff := cmp.Diff(strings.Join(tc.want, ","), joined(got)); diff != "" {
				t.Errorf("Unexpected items (-want,+got):\n%s", diff)
			}
			if got.len() != len(tc.want) {
				t.Errorf("Unexpected length: want %d, got %d", len(tc.want), got.len())
			}
			if more := got.next != ""; more != tc.wantMore {
				t.Errorf("Unexpected next page: want %v, got %v", tc.wantMore, more)
			}
		})
	}
}

func TestTranscriptLastInstructions(t *testing.T) {
	history := makeHistory(makeTurn(t, "old", `{"a":1}`), makeTurn(t, "new", `{"b":1}`))
	got, err := newTranscript(history, &resolvev1alpha1.InputItemsOptions{Instructions: resolvev1alpha1.InstructionsLast})
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(`{"a":1},`+system("new")+`,{"b":1}`, joined(got)); diff != "" {
		t.Errorf("Unexpected items (-want,+got):\n%s", diff)
	}
}

// TestPagesMakeTheWhole turns pages of random sizes over random histories until the last one.
func TestPagesMakeTheWhole(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		history := &resolve.History{UID: testUID}
		for turn := range rapid.IntRange(1, 8).Draw(r, "turns") {
			var items []string
			for i := range rapid.IntRange(0, 5).Draw(r, "items") {
				items = append(items, fmt.Sprintf(`{"turn":%d,"item":%d}`, turn, i))
			}
			instructions := rapid.SampledFrom([]string{"", fmt.Sprintf("instructions %d", turn)}).Draw(r, "instructions")
			history.Turns = append(history.Turns, resolve.Turn{ResponseID: fmt.Sprintf("resp_%d", turn), Items: makeTurn(t, instructions, items...)})
		}
		options := resolvev1alpha1.InputItemsOptions{
			Order:        rapid.SampledFrom([]string{"", resolvev1alpha1.OrderAscending, resolvev1alpha1.OrderDescending}).Draw(r, "order"),
			Instructions: rapid.SampledFrom([]string{"", resolvev1alpha1.InstructionsAll, resolvev1alpha1.InstructionsLast, resolvev1alpha1.InstructionsOmit}).Draw(r, "mode"),
		}
		whole, err := newTranscript(history, &options)
		if err != nil {
			r.Fatalf("Unexpected error: %v", err)
		}

		var pages []string
		for {
			options.Limit = int32(rapid.IntRange(1, 7).Draw(r, "limit"))
			page, err := newTranscript(history, &options)
			if err != nil {
				r.Fatalf("Unexpected error of page %d: %v", len(pages), err)
			}
			if page.len() > int(options.Limit) || (page.next != "" && page.len() != int(options.Limit)) {
				r.Fatalf("Page %d has %d items with limit %d and next %q", len(pages), page.len(), options.Limit, page.next)
			}
			if page.len() > 0 {
				pages = append(pages, joined(page))
			}
			if options.After = page.next; page.next == "" {
				break
			}
		}
		if diff := cmp.Diff(joined(whole), strings.Join(pages, ",")); diff != "" {
			r.Fatalf("The pages are not the whole (-want,+got):\n%s", diff)
		}
	})
}

func TestBadCursors(t *testing.T) {
	history := makeHistory(makeTurn(t, "be brief", `{"a":1}`, `{"b":1}`), makeTurn(t, "", `{"c":1}`))
	first := func(h *resolve.History, o resolvev1alpha1.InputItemsOptions) string {
		o.Limit = 1
		page, err := newTranscript(h, &o)
		if err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
		return page.next
	}
	other := makeHistory(makeTurn(t, "be brief", `{"a":1}`, `{"b":1}`), makeTurn(t, "", `{"c":1}`))
	other.UID = "another"
	good := first(history, resolvev1alpha1.InputItemsOptions{})

	tests := map[string]struct {
		options resolvev1alpha1.InputItemsOptions
		after   string
		want    string
	}{
		"good":                  {after: good},
		"defaults spelled out":  {after: good, options: resolvev1alpha1.InputItemsOptions{Order: "asc", Instructions: "All"}},
		"not base64":            {after: "=?=", want: "not a cursor"},
		"garbage":               {after: "AAAA", want: "not a cursor"},
		"too short":             {after: "AQ", want: "not a cursor"},
		"cut off":               {after: good[:8], want: "not a cursor"},
		"of another session":    {after: first(other, resolvev1alpha1.InputItemsOptions{}), want: "another session"},
		"of the other order":    {after: first(history, resolvev1alpha1.InputItemsOptions{Order: "desc"}), want: "other values of order"},
		"of another mode":       {after: first(history, resolvev1alpha1.InputItemsOptions{Instructions: "Omit"}), want: "other values of order"},
		"of incomplete turns":   {after: first(history, resolvev1alpha1.InputItemsOptions{IncludeIncomplete: true}), want: "other values of order"},
		"of a turn that left":   {after: cursor{uid: testUID, responseID: "resp_9"}.encode(), want: "no longer in the chain"},
		"of an item that left":  {after: cursor{uid: testUID, responseID: "resp_2", entry: 1}.encode(), want: "no longer in the chain"},
		"of an absurd position": {after: cursor{uid: testUID, responseID: "resp_2", entry: 1 << 40}.encode(), want: "not a cursor"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.options.Limit, tc.options.After = 1, tc.after
			_, err := newTranscript(history, &tc.options)
			var bad badRequest
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Unexpected error: %v", err)
			case tc.want != "" && !errors.As(err, &bad):
				t.Errorf("Unexpected error: want a bad request, got %v", err)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("Unexpected error: want %q in it, got %q", tc.want, err)
			}
		})
	}
}

// TestCursorOutlivesChange continues where the last page ended though an earlier turn was overwritten meanwhile.
func TestCursorOutlivesChange(t *testing.T) {
	options := resolvev1alpha1.InputItemsOptions{Limit: 2}
	before := makeHistory(makeTurn(t, "", `{"a":1}`), makeTurn(t, "", `{"b":1}`, `{"c":1}`))
	page, err := newTranscript(before, &options)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	options.After = page.next
	after := makeHistory(makeTurn(t, "", `{"a":1}`, `{"a":2}`), makeTurn(t, "", `{"b":1}`, `{"c":1}`))
	if page, err = newTranscript(after, &options); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(`{"c":1}`, joined(page)); diff != "" {
		t.Errorf("Unexpected items (-want,+got):\n%s", diff)
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(cursor{view: 5, uid: testUID, responseID: "resp_1", entry: 300}.encode())
	f.Add("AQAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := decodeCursor(s)
		if !ok {
			return
		}
		if again, ok := decodeCursor(c.encode()); !ok || again != c {
			t.Errorf("%q is %+v, which becomes %+v", s, c, again)
		}
	})
}
