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

package sortedlist_test

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/pagecursor"
	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

func self(p sortedlist.Position) sortedlist.Position { return p }

// find returns up to Limit+1 positions after q.After, as a driver does.
func find(sorted []sortedlist.Position, q sortedlist.Query) (found []sortedlist.Position) {
	for _, p := range sorted {
		if order := p.Compare(q.After); len(found) <= q.Limit && (order > 0 && !q.Descending || order < 0 && q.Descending) {
			found = append(found, p)
		}
	}
	return found
}

// TestPages: the pages of a list are the list, in both orders and with any limit.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		position := rapid.Custom(func(t *rapid.T) sortedlist.Position {
			at := rapid.OneOf(rapid.Int64Range(sortedlist.Unknown-1, sortedlist.Unknown+1), rapid.Int64Range(-2, 2)).Draw(t, "time")
			return sortedlist.Position{Time: at, ID: rapid.StringN(1, 3, -1).Draw(t, "responseID")}
		})
		want := rapid.SliceOfDistinct(position, self).Draw(t, "positions")
		options := driver.ListOptions{
			Limit: rapid.IntRange(1, 5).Draw(t, "limit"), Order: rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order"),
		}
		slices.SortFunc(want, sortedlist.Position.Compare)
		if options.Order == "desc" {
			slices.Reverse(want)
		}
		var got []sortedlist.Position
		for more := true; more; more = options.After != "" {
			q, err := sortedlist.New("ns", "c", options)
			if err != nil {
				t.Fatal(err)
			}
			var page []sortedlist.Position
			page, options.After = sortedlist.Cut(q, find(want, q), self)
			if options.After != "" && len(page) != options.Limit {
				t.Fatalf("a page has %d turns", len(page))
			}
			got = append(got, page...)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
	})
}

func TestUnknown(t *testing.T) {
	if got := sortedlist.PositionOf(time.Time{}, "a"); got != (sortedlist.Position{Time: sortedlist.Unknown, ID: "a"}) {
		t.Errorf("the position of a turn without a time is %+v", got)
	}
}

func cursorOf(t *testing.T, namespace, conversation, order string) string {
	t.Helper()
	q, err := sortedlist.New(namespace, conversation, driver.ListOptions{Limit: 1, Order: order})
	if err != nil {
		t.Fatal(err)
	}
	_, next := sortedlist.Cut(q, []sortedlist.Position{{Time: -5, ID: "resp_1"}, {Time: 7, ID: "resp_2"}}, self)
	return next
}

func TestCursors(t *testing.T) {
	good := cursorOf(t, "ns", "c", "")
	for name, tc := range map[string]struct {
		after, order string
		want         string
	}{
		"good":                    {after: good},
		"explicit order":          {after: good, order: "asc"},
		"descending":              {after: cursorOf(t, "ns", "c", "desc"), order: "desc"},
		"not base64":              {after: "=?=", want: "not a cursor"},
		"empty":                   {after: "AQ", want: "not a cursor"},
		"truncated":               {after: good[:12], want: "not a cursor"},
		"cursor of a history":     {after: "AQ2sAgd1aWQtb25lcmVzcF8x", want: "not a cursor"},
		"of a newer version":      {after: base64.RawURLEncoding.EncodeToString([]byte{pagecursor.Version + 1}), want: "version 2, and this server reads cursors up to version 1: upgrade"},
		"of the other order":      {after: good, order: "desc", want: "other order"},
		"of another conversation": {after: cursorOf(t, "ns", "c2", ""), want: "another list"},
		"of another namespace":    {after: cursorOf(t, "n", "sc", ""), want: "another list"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := sortedlist.New("ns", "c", driver.ListOptions{Limit: 1, After: tc.after, Order: tc.order})
			if _, ok := errors.AsType[pagecursor.Error](err); tc.want != "" && (!ok || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want an error that contains %q", err, tc.want)
			}
			if want := (sortedlist.Position{Time: -5, ID: "resp_1"}); tc.want == "" && (err != nil || q.After != want) {
				t.Errorf("got %+v and error %v, want %+v", q.After, err, want)
			}
		})
	}
}

// TestStoredCursor: clients keep cursors while the operator is upgraded, so later versions must read one of the first version.
func TestStoredCursor(t *testing.T) {
	const stored = "AYGHIfQsQ0tVaglyZXNwXzE"
	if got := cursorOf(t, "ns", "conv_1", "desc"); got != stored {
		t.Errorf("got %s, want %s", got, stored)
	}
}

func FuzzCursor(f *testing.F) {
	q, err := sortedlist.New("ns", "c", driver.ListOptions{Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	_, next := sortedlist.Cut(q, []sortedlist.Position{{Time: 5, ID: "a"}, {}}, self)
	f.Add(next)
	f.Add("AYAAAA")
	f.Fuzz(func(t *testing.T, after string) {
		q, err := sortedlist.New("ns", "c", driver.ListOptions{Limit: 1, After: after})
		if err != nil {
			return
		}
		_, next := sortedlist.Cut(q, []sortedlist.Position{q.After, {}}, self)
		again, err := sortedlist.New("ns", "c", driver.ListOptions{Limit: 1, After: next})
		if err != nil || again.After != q.After {
			t.Errorf("%q is %+v, but %+v after another round, with error %v", after, q.After, again.After, err)
		}
	})
}
