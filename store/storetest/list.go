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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// listed returns a turn of a conversation that was created some seconds after a fixed time, or at an unknown time if they are negative.
func listed(id, conversation string, seconds int) *store.Session {
	turn := testturn.Make(id, "")
	turn.ConversationID = conversation
	if seconds >= 0 {
		turn.CreatedAt = time.Unix(1_700_000_000+int64(seconds), 0).UTC()
	}
	return turn
}

// saveListed saves turns, and returns the version of the last one.
func saveListed(t *testing.T, st *store.Store, turns ...*store.Session) string {
	t.Helper()
	for _, turn := range turns {
		save(t, st, turn, store.SaveOptions{Overwrite: true})
	}
	return turns[len(turns)-1].Version
}

func list(t *testing.T, st *store.Store, conversation string, options store.ListOptions) *store.TurnList {
	t.Helper()
	page, err := st.List(t.Context(), conversation, options)
	if err != nil {
		t.Fatalf("Unable to list %q: %v", conversation, err)
	}
	return page
}

func idsOf(page *store.TurnList) []string {
	var ids []string
	for _, turn := range page.Turns {
		ids = append(ids, turn.ResponseID)
	}
	return ids
}

// wantListed checks the turns of a conversation in both orders, in pages of several sizes.
func wantListed(t *testing.T, st *store.Store, conversation, version string, want ...string) {
	t.Helper()
	for _, order := range []string{store.OrderAscending, store.OrderDescending} {
		for _, limit := range []int{1, 2, 3, 0} {
			var got []string
			options := store.ListOptions{Limit: limit, Order: order, Version: version}
			for more := true; more; more = options.After != "" {
				page := list(t, st, conversation, options)
				if options.After = page.Next; limit > 0 && (len(page.Turns) > limit || page.Next != "" && len(page.Turns) != limit) {
					t.Fatalf("A page with limit %d has %d turns, and the next page %q", limit, len(page.Turns), page.Next)
				}
				got = append(got, idsOf(page)...)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Unexpected turns of %q with order %s and limit %d (-want,+got):\n%s", conversation, order, limit, diff)
			}
		}
		want = slices.Clone(want)
		slices.Reverse(want)
	}
}

// testList: the turns of a conversation are listed in order, and no others.
func testList(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	saveListed(t, elsewhere, listed("e", "conv_1", 1))
	version := saveListed(t, st,
		listed("late", "conv_1", 30), listed("early", "conv_1", 10), listed("unknown", "conv_1", -1), listed("unknowable", "conv_1", -1),
		listed("b", "conv_1", 20), listed("a", "conv_1", 20), listed("ä", "conv_1", 20), listed("B", "conv_1", 20), listed("😀", "conv_1", 20), listed("\uffff", "conv_1", 20),
		listed("other", "conv_2", 15), listed("none", "", 15), listed("longer", "conv_10", 15), listed("case", "Conv_1", 15))
	wantListed(t, st, "conv_1", version, "unknowable", "unknown", "early", "B", "a", "b", "ä", "\uffff", "😀", "late")
	wantListed(t, st, "conv_2", version, "other")
	wantListed(t, st, "conv_10", version, "longer")
	wantListed(t, st, "Conv_1", version, "case")
	wantListed(t, st, "conv_3", version)
	wantListed(t, st, "conv", version)
	wantListed(t, elsewhere, "conv_1", version, "e")
}

// testListFields: a list has the fields of the stored turns.
func testListFields(t *testing.T, s *suite) {
	st := s.newStore(t)
	turn := listed("b", "conv_1", 1)
	turn.PreviousResponseID, turn.Status = "a", store.StatusInProgress
	turn.CompletedAt = time.Unix(1_700_000_009, 999_999_999)
	plain := listed("c", "conv_1", -1)
	ancient := listed("d", "conv_1", 0)
	ancient.CreatedAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) // before the zero time
	last := listed("e", "conv_1", 0)
	last.CreatedAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	version := saveListed(t, st, turn, plain, ancient, last)
	page := list(t, st, "conv_1", store.ListOptions{Version: version})
	want := []store.TurnInfo{
		{ResponseID: "d", Status: store.StatusCompleted, CreatedAt: ancient.CreatedAt},
		{ResponseID: "c", Status: store.StatusCompleted},
		{
			ResponseID: "b", PreviousResponseID: "a", Status: store.StatusInProgress, CreatedAt: turn.CreatedAt,
			CompletedAt: time.Unix(1_700_000_009, 0).UTC(),
		},
		{ResponseID: "e", Status: store.StatusCompleted, CreatedAt: last.CreatedAt},
	}
	if diff := cmp.Diff(want, page.Turns, cmpopts.IgnoreFields(store.TurnInfo{}, "Version")); diff != "" {
		t.Errorf("Unexpected turns (-want,+got):\n%s", diff)
	}
	// The version is current for an overwrite.
	for _, info := range page.Turns {
		next := get(t, st, info.ResponseID)
		next.Status, next.Version = store.StatusFailed, info.Version
		save(t, st, next, store.SaveOptions{Overwrite: true})
	}
}

// testListConversationIDs: every conversation ID that can be saved can be listed, and is not mistaken for another.
func testListConversationIDs(t *testing.T, s *suite) {
	st := s.newStore(t)
	ids := []string{
		"conv_1", "conv.1", "conv/1", "conv-1", "CONV_1", "conv", ".", "..", "/", "a/b.c_d", "a.b.c_d", "?", "#", "%2F", "a b", "ü", "😀",
		"sha256_x", "sha256.x", "\x00", "\x01\n", `"\`, strings.Repeat("x", store.MaxIDLength), strings.Repeat("😀", store.MaxIDLength),
		strings.Repeat("/", store.MaxIDLength), strings.Repeat("x", store.MaxIDLength-1) + "y",
	}
	version := ""
	for i, id := range ids {
		version = saveListed(t, st, listed(fmt.Sprint("resp_", i), id, 1), listed(fmt.Sprint("resp_", i, "_2"), id, 2))
	}
	for i, id := range ids {
		page := list(t, st, id, store.ListOptions{Version: version, Limit: 1})
		next := list(t, st, id, store.ListOptions{Version: version, Limit: 1, After: page.Next})
		want := []string{fmt.Sprint("resp_", i), fmt.Sprint("resp_", i, "_2")}
		if diff := cmp.Diff(want, append(idsOf(page), idsOf(next)...)); diff != "" || next.Next != "" {
			t.Errorf("Unexpected turns of %.40q, with the next page %q (-want,+got):\n%s", id, next.Next, diff)
		}
	}
}

// testListPages: pages stay where they are while turns are saved and deleted.
func testListPages(t *testing.T, s *suite) {
	st := s.newStore(t)
	version := saveListed(t, st, listed("b", "c", 20), listed("d", "c", 40), listed("f", "c", 60), listed("h", "c", 60))
	options := store.ListOptions{Limit: 2, Version: version}
	page := list(t, st, "c", options)
	descending := store.ListOptions{Limit: 2, Order: store.OrderDescending, Version: version}
	downwards := list(t, st, "c", descending)
	if diff := cmp.Diff([][]string{{"b", "d"}, {"h", "f"}}, [][]string{idsOf(page), idsOf(downwards)}); diff != "" {
		t.Fatalf("Unexpected first pages (-want,+got):\n%s", diff)
	}
	// Turns before, between and after those of the pages; of the same second as the last ones too.
	saveListed(t, st, listed("a", "c", 10), listed("c", "c", 30), listed("e", "c", 50), listed("d2", "c", 40), listed("c2", "c", 40),
		listed("e2", "c", 60), listed("g", "c", 60), listed("i", "c", 70))
	remove(t, st, "d", store.DeleteOptions{}) // the turn of the cursor
	remove(t, st, "f", store.DeleteOptions{})
	version = saveListed(t, st, listed("z", "another", 0)) // so that a version follows the deletions
	rest := func(page *store.TurnList, options store.ListOptions) (ids []string) {
		options.After, options.Limit, options.Version = page.Next, 100, version
		return idsOf(list(t, st, "c", options))
	}
	if diff := cmp.Diff([]string{"d2", "e", "e2", "g", "h", "i"}, rest(page, options)); diff != "" {
		t.Errorf("Unexpected turns after the first page (-want,+got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"e2", "e", "d2", "c2", "c", "b", "a"}, rest(downwards, descending)); diff != "" {
		t.Errorf("Unexpected turns after the first page, newest first (-want,+got):\n%s", diff)
	}
	for _, id := range []string{"a", "b", "c", "c2", "d2", "e", "e2", "g", "h", "i"} {
		remove(t, st, id, store.DeleteOptions{})
	}
	version = saveListed(t, st, listed("z", "yet another", 0))
	if ids := rest(page, options); ids != nil {
		t.Errorf("Unexpected turns after the first page of an empty list: %q", ids)
	}
}

// testListOverwrite: an overwrite can change the conversation and the times of a turn.
func testListOverwrite(t *testing.T, s *suite) {
	st := s.newStore(t)
	version := saveListed(t, st, listed("a", "c", 10), listed("b", "c", 20), listed("c", "d", 15))
	wantListed(t, st, "c", version, "a", "b")
	for i, step := range []struct {
		turn *store.Session
		c, d []string
	}{
		{listed("a", "d", 10), []string{"b"}, []string{"a", "c"}},
		{listed("a", "d", 99), []string{"b"}, []string{"c", "a"}},
		{listed("a", "", 99), []string{"b"}, []string{"c"}},
		{listed("b", "d", -1), nil, []string{"b", "c"}},
		{listed("a", "c", -1), []string{"a"}, []string{"b", "c"}},
	} {
		version := saveListed(t, st, step.turn)
		t.Logf("Overwrite %d", i)
		wantListed(t, st, "c", version, step.c...)
		wantListed(t, st, "d", version, step.d...)
	}
	failed := listed("a", "c", -1)
	failed.Status = store.StatusFailed
	version = saveListed(t, st, failed)
	if got := list(t, st, "c", store.ListOptions{Version: version}).Turns; len(got) != 1 || got[0].Status != store.StatusFailed {
		t.Errorf("Unexpected turns after an overwrite of the status: %+v", got)
	}
}

// testListDelete: a deleted turn is not listed, eventually.
func testListDelete(t *testing.T, s *suite) {
	st := s.newStore(t)
	child := listed("b", "c", 2)
	child.PreviousResponseID = "a"
	saveListed(t, st, listed("a", "c", 1), child, listed("d", "c", 3))
	remove(t, st, "a", store.DeleteOptions{Cascade: true})
	s.eventually(t, func() error {
		if ids := idsOf(list(t, st, "c", store.ListOptions{})); !slices.Equal(ids, []string{"d"}) {
			return fmt.Errorf("listed: %q", ids)
		}
		return nil
	})
	// Without a version, a new turn is listed eventually too.
	saveListed(t, st, listed("a", "c", 4))
	s.eventually(t, func() error {
		if ids := idsOf(list(t, st, "c", store.ListOptions{})); !slices.Equal(ids, []string{"d", "a"}) {
			return fmt.Errorf("listed: %q", ids)
		}
		return nil
	})
}

// testListLimits: a page is bounded, also without a limit.
func testListLimits(t *testing.T, s *suite) {
	st := s.newStore(t)
	version := ""
	for i := range store.DefaultListLimit + 1 {
		version = saveListed(t, st, listed(fmt.Sprintf("resp_%03d", i), "c", i))
	}
	page := list(t, st, "c", store.ListOptions{Version: version})
	rest := list(t, st, "c", store.ListOptions{Version: version, After: page.Next})
	if len(page.Turns) != store.DefaultListLimit || len(rest.Turns) != 1 || rest.Next != "" {
		t.Errorf("Pages have %d and %d turns, and %q is next", len(page.Turns), len(rest.Turns), rest.Next)
	}
	all := list(t, st, "c", store.ListOptions{Version: version, Limit: store.MaxLimit})
	if len(all.Turns) != store.DefaultListLimit+1 || all.Next != "" {
		t.Errorf("The page with the largest limit has %d turns, and %q is next", len(all.Turns), all.Next)
	}
	exact := list(t, st, "c", store.ListOptions{Version: version, Limit: store.DefaultListLimit + 1})
	if exact.Next != "" {
		t.Errorf("A next page %q follows the last one", exact.Next)
	}
}

// testListInvalid: invalid options and cursors are errors, whether the conversation exists or not.
func testListInvalid(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	version := saveListed(t, st, listed("a", "c", 1), listed("b", "c", 2), listed("x", "other", 1), listed("y", "other", 2))
	saveRow(t, st, "r1", "r2")
	cursor := func(conversation, order string) string {
		t.Helper()
		next := list(t, st, conversation, store.ListOptions{Version: version, Limit: 1, Order: order}).Next
		if next == "" {
			t.Fatal("The page has no cursor for a next page")
		}
		return next
	}
	good := cursor("c", "")
	history := resolve(t, st, "r2", store.ResolveOptions{Limit: 1}).Next
	for name, options := range map[string]store.ListOptions{
		"negative limit":          {Limit: -1},
		"limit above the limit":   {Limit: store.MaxLimit + 1},
		"unknown order":           {Order: "newest first"},
		"garbage":                 {After: "garbage"},
		"not text":                {After: "\x00\xff"},
		"truncated":               {After: good[:6]},
		"response ID":             {After: "a"},
		"cursor of another list":  {After: cursor("other", "")},
		"cursor of the order":     {After: good, Order: store.OrderDescending},
		"cursor of another order": {After: cursor("c", store.OrderDescending)},
		"cursor of a history":     {After: history},
	} {
		for _, conversation := range []string{"c", "nope"} {
			_, err := st.List(t.Context(), conversation, options)
			if wantError(t, err, &store.Error{Code: store.CodeInvalid}); err == nil {
				t.Errorf("No error with %s for %q", name, conversation)
			}
		}
	}
	for name, id := range map[string]string{
		"empty": "", "too long": strings.Repeat("x", store.MaxIDLength+1), "not UTF-8": "\xff",
	} {
		if _, err := st.List(t.Context(), id, store.ListOptions{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Unexpected error for a conversation ID that is %s: %v", name, err)
		}
	}
	_, err := elsewhere.List(t.Context(), "c", store.ListOptions{After: good})
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
	_, err = st.Resolve(t.Context(), "r2", store.ResolveOptions{Limit: 1, After: good})
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
}
