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
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/store"
)

// conversationListTests are the tests for drivers that implement driver.ConversationLister.
var conversationListTests = map[string]func(*testing.T, *suite){
	"ConversationList":            testConversationList,
	"ConversationListFields":      testConversationListFields,
	"ConversationListPages":       testConversationListPages,
	"ConversationListSort":        testConversationListSort,
	"ConversationListRemoved":     testConversationListRemoved,
	"ConversationListDescendants": testConversationListDescendants,
	"ConversationListCycles":      testConversationListCycles,
	"ConversationListInvalid":     testConversationListInvalid,
}

func listConversations(t *testing.T, c *store.Conversations, options store.ConversationListOptions) *store.ConversationList {
	t.Helper()
	list, err := c.List(t.Context(), options)
	if err != nil {
		t.Fatalf("Unable to list %+v: %v", options, err)
	}
	return list
}

func idsOfList(list *store.ConversationList) []string {
	ids := []string{}
	for _, info := range list.Conversations {
		ids = append(ids, info.ConversationID)
	}
	return ids
}

// wantListedConversations checks which conversations are listed, in any order.
func wantListedConversations(t *testing.T, c *store.Conversations, options store.ConversationListOptions, want ...string) {
	t.Helper()
	got := idsOfList(listConversations(t, c, options))
	slices.Sort(got)
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("listed with %+v (-want +got):\n%s", options, diff)
	}
}

// createAll creates conversations and returns the version of the last one.
func createAll(t *testing.T, c *store.Conversations, conversations ...*store.Conversation) (version string) {
	t.Helper()
	for _, conversation := range conversations {
		version = create(t, c, conversation).Version
	}
	return version
}

// testConversationList: a list has what its options select, and of one namespace only.
func testConversationList(t *testing.T, s *suite) {
	c, other := s.newStore(t).Conversations(), s.newStore(t).Conversations()
	wantListedConversations(t, c, store.ConversationListOptions{})
	create(t, other, &store.Conversation{ConversationID: "other", UserID: "maria"})
	version := createAll(t, c,
		&store.Conversation{ConversationID: "a", UserID: "maria"},
		&store.Conversation{ConversationID: "b", UserID: "ada", ParentConversationID: "a"},
		&store.Conversation{ConversationID: "c", UserID: "maria", ParentConversationID: "a", State: store.ConversationArchived},
		&store.Conversation{ConversationID: "d", ParentConversationID: "none"},
		&store.Conversation{ConversationID: "e", UserID: "maria", ParentConversationID: "a"},
	)
	all := []string{store.ConversationActive, store.ConversationArchived, store.ConversationDeleting}
	for _, tc := range []struct {
		options store.ConversationListOptions
		want    []string
	}{
		{store.ConversationListOptions{}, []string{"a", "b", "d", "e"}},
		{store.ConversationListOptions{States: []string{store.ConversationArchived}}, []string{"c"}},
		{store.ConversationListOptions{States: []string{store.ConversationDeleting}}, nil},
		{store.ConversationListOptions{States: append(all, all...)}, []string{"a", "b", "c", "d", "e"}},
		{store.ConversationListOptions{UserID: "maria"}, []string{"a", "e"}},
		{store.ConversationListOptions{UserID: "maria", States: all}, []string{"a", "c", "e"}},
		{store.ConversationListOptions{UserID: "mar"}, nil},
		{store.ConversationListOptions{ParentConversationID: "a"}, []string{"b", "e"}},
		{store.ConversationListOptions{ParentConversationID: "a", States: all}, []string{"b", "c", "e"}},
		{store.ConversationListOptions{ParentConversationID: "a", UserID: "maria"}, []string{"e"}},
		{store.ConversationListOptions{ParentConversationID: "none"}, []string{"d"}},
		{store.ConversationListOptions{ParentConversationID: "b"}, nil},
	} {
		tc.options.Version = version
		for _, tc.options.Sort = range []string{"", store.SortCreated, store.SortUpdated, store.SortActivity} {
			wantListedConversations(t, c, tc.options, tc.want...)
		}
	}
	if _, err := c.Archive(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	user := "ada"
	patched, err := c.Patch(t.Context(), "e", store.ConversationPatch{UserID: &user})
	if err != nil {
		t.Fatal(err)
	}
	wantListedConversations(t, c, store.ConversationListOptions{Version: patched.Version}, "b", "d", "e")
	wantListedConversations(t, c, store.ConversationListOptions{Version: patched.Version, UserID: "ada"}, "b", "e")
	wantListedConversations(t, c, store.ConversationListOptions{Version: patched.Version, UserID: "maria"})
}

func testConversationListFields(t *testing.T, s *suite) {
	st := s.newStore(t)
	c := st.Conversations()
	saveRow(t, st, "resp_1")
	long := strings.Repeat("é", store.MaxListedTitleLength)
	created := create(t, c, &store.Conversation{
		ConversationID: "conv_É", UserID: "user é", Title: long + "é", ParentConversationID: "a/b", Head: store.Head{ResponseID: "resp_1"},
		State: store.ConversationArchived, SystemPrompt: "prompt",
	})
	list := listConversations(t, c, store.ConversationListOptions{Version: created.Version, States: []string{store.ConversationArchived}})
	want := []store.ConversationInfo{{
		ConversationID: "conv_É", UserID: "user é", Title: long, ParentConversationID: "a/b", HeadResponseID: "resp_1",
		State: store.ConversationArchived, CreatedAt: created.CreatedAt,
	}}
	if diff := gocmp.Diff(want, list.Conversations, cmpopts.IgnoreFields(store.ConversationInfo{}, "UpdatedAt", "LastActivityAt")); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if got := list.Conversations[0]; !sameSoon(got.UpdatedAt, created.CreatedAt) || !sameSoon(got.LastActivityAt, created.CreatedAt) {
		t.Errorf("created at %s, but updated at %s and active at %s", created.CreatedAt, got.UpdatedAt, got.LastActivityAt)
	}
	short := create(t, c, &store.Conversation{ConversationID: "short", Title: "Größe 🦊"})
	if got := listConversations(t, c, store.ConversationListOptions{Version: short.Version}).Conversations[0]; got.Title != "Größe 🦊" || got.UserID != "" {
		t.Errorf("listed: %+v", got)
	}
}

// sameSoon reports whether a time in whole seconds is that of the creation, or shortly after it.
func sameSoon(at, created time.Time) bool {
	return !at.Before(created) && at.Sub(created) < time.Minute && at.Equal(at.Truncate(time.Second)) && at.Location() == time.UTC
}

// testConversationListPages: the pages are the list, whatever is created, deleted or archived in between.
func testConversationListPages(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	version := ""
	for i := range 9 {
		version = create(t, c, &store.Conversation{ConversationID: fmt.Sprintf("conv_%d", i), State: []string{
			store.ConversationActive, store.ConversationArchived, store.ConversationActive,
		}[i%3]}).Version
	}
	states := []string{store.ConversationArchived, store.ConversationActive}
	for _, order := range []string{"", store.OrderAscending, store.OrderDescending} {
		options := store.ConversationListOptions{States: states, Order: order, Version: version}
		whole := listConversations(t, c, options)
		if !slices.IsSortedFunc(whole.Conversations, func(a, b store.ConversationInfo) int {
			compared := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ConversationID, b.ConversationID))
			if order != store.OrderAscending {
				return -compared
			}
			return compared
		}) || len(whole.Conversations) != 9 || whole.Next != "" {
			t.Errorf("order %q: listed %+v", order, whole)
		}
		want := idsOfList(whole)
		for limit := 1; limit <= 9; limit++ {
			options.Limit, options.After = limit, ""
			var got []string
			for more := true; more; more = options.After != "" {
				page := listConversations(t, c, options)
				got, options.After = append(got, idsOfList(page)...), page.Next
				if options.After != "" && len(page.Conversations) != limit {
					t.Errorf("a page with the limit %d has %d conversations", limit, len(page.Conversations))
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("order %q, limit %d (-want +got):\n%s", order, limit, diff)
			}
		}
	}

	options := store.ConversationListOptions{States: states, Order: store.OrderAscending, Version: version, Limit: 3}
	page := listConversations(t, c, options)
	seen := idsOfList(page)
	if err := c.Delete(t.Context(), seen[1], store.DeleteConversationOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), seen[2], store.DeleteConversationOptions{}); err != nil { // at the cursor
		t.Fatal(err)
	}
	options.Version = create(t, c, &store.Conversation{ConversationID: "zzz"}).Version
	options.After, options.Limit = page.Next, 100
	if got := idsOfList(listConversations(t, c, options)); len(got) != 7 || got[6] != "zzz" || slices.Contains(got, seen[2]) {
		t.Errorf("after %q, %q are listed", seen, got)
	}
}

// testConversationListSort: a change of the conversation counts as an update, and a turn as an activity.
func testConversationListSort(t *testing.T, s *suite) {
	st := s.newStore(t)
	c := st.Conversations()
	saveRow(t, st, "resp_0")
	created := create(t, c, &store.Conversation{ConversationID: "conv_1"})
	createAll(t, c, &store.Conversation{ConversationID: "conv_2"}, &store.Conversation{ConversationID: "conv_3", Head: store.Head{ResponseID: "resp_0"}})
	first := func(sort string) (store.ConversationInfo, error) {
		list, err := c.List(t.Context(), store.ConversationListOptions{Sort: sort})
		if err != nil || len(list.Conversations) != 3 {
			return store.ConversationInfo{}, fmt.Errorf("listed: %+v, %w", list, err)
		}
		return list.Conversations[0], nil
	}
	// Patches until a second has passed.
	patched, last := 0, created
	s.eventually(t, func() error {
		title := fmt.Sprint(patched)
		patched++
		var err error
		if last, err = c.Patch(t.Context(), "conv_1", store.ConversationPatch{Title: &title}); err != nil {
			return err
		}
		list := listConversations(t, c, store.ConversationListOptions{Sort: store.SortUpdated, Version: last.Version})
		if got := list.Conversations[0]; got.ConversationID != "conv_1" || got.UpdatedAt.Sub(created.CreatedAt) < 2*time.Second {
			return fmt.Errorf("updated last: %+v", got)
		}
		return nil
	})
	if got, err := first(store.SortActivity); err != nil || got.LastActivityAt.Sub(created.CreatedAt) > time.Minute {
		t.Errorf("active last: %+v, %v", got, err)
	}
	appendTurns(t, c, "conv_2", "resp_1")
	var active store.ConversationInfo
	s.eventually(t, func() (err error) {
		if active, err = first(store.SortActivity); err == nil && (active.ConversationID != "conv_2" || !active.LastActivityAt.After(created.CreatedAt)) {
			err = fmt.Errorf("active last: %+v", active)
		}
		return err
	})
	if active.UpdatedAt.Before(created.CreatedAt.Add(time.Second)) || active.HeadResponseID != "resp_1" {
		t.Errorf("after a turn: %+v", active)
	}
	if _, err := c.Rollback(t.Context(), "conv_2", ""); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, func() error {
		got, err := first(store.SortActivity)
		if err == nil && got.HeadResponseID != "" {
			err = errors.New("not rolled back yet")
		}
		if err == nil && (got.ConversationID != "conv_2" || !got.LastActivityAt.Equal(active.LastActivityAt)) {
			t.Errorf("active last after a rollback: %+v, want %+v", got, active)
		}
		return err
	})
	if err := c.SaveSummary(t.Context(), "conv_3", store.Summary{EndTurn: 1, Content: "x"}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, func() error {
		got, err := first(store.SortUpdated)
		if err == nil && got.ConversationID != "conv_3" {
			err = fmt.Errorf("updated last after a summary: %+v", got)
		}
		return err
	})
}

// testConversationListRemoved: a change that only removes something counts as an update, and a deleted conversation is not listed,
// eventually.
func testConversationListRemoved(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	title, none := "title", ""
	created := create(t, c, &store.Conversation{ConversationID: "conv_1", UserID: "maria", Title: title})
	create(t, c, &store.Conversation{ConversationID: "conv_2", UserID: "maria"})
	appendTurns(t, c, "conv_1", "resp_1")
	passed := created.CreatedAt
	s.eventually(t, func() error { // a second passes
		list, err := c.List(t.Context(), store.ConversationListOptions{UserID: "none", Version: create(t, c, &store.Conversation{
			ConversationID: fmt.Sprintf("tick_%d", time.Now().UnixNano()), UserID: "clock",
		}).Version})
		if err != nil || len(list.Conversations) > 0 {
			return fmt.Errorf("listed %+v, %w", list, err)
		}
		clock := listConversations(t, c, store.ConversationListOptions{UserID: "clock", Limit: 1})
		if passed = clock.Conversations[0].CreatedAt; passed.Sub(created.CreatedAt) < 2*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{Title: &none}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, func() error {
		list, err := c.List(t.Context(), store.ConversationListOptions{UserID: "maria", Sort: store.SortUpdated, Limit: 1})
		if err != nil {
			return err
		}
		if got := list.Conversations[0]; got.ConversationID != "conv_1" || got.Title != "" || got.UpdatedAt.Before(passed) {
			return fmt.Errorf("updated last: %+v", got)
		}
		return nil
	})
	if err := c.Delete(t.Context(), "conv_1", store.DeleteConversationOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, func() error {
		if got := idsOfList(listConversations(t, c, store.ConversationListOptions{})); slices.Contains(got, "conv_1") {
			return fmt.Errorf("listed: %q", got)
		}
		return nil
	})
}

func testConversationListDescendants(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	version := createAll(t, c,
		&store.Conversation{ConversationID: "root"},
		&store.Conversation{ConversationID: "a", ParentConversationID: "root", UserID: "maria"},
		&store.Conversation{ConversationID: "b", ParentConversationID: "a", State: store.ConversationArchived, UserID: "maria"},
		&store.Conversation{ConversationID: "c", ParentConversationID: "b", UserID: "ada"},
		&store.Conversation{ConversationID: "d", ParentConversationID: "root"},
		&store.Conversation{ConversationID: "e", ParentConversationID: "none"},
		&store.Conversation{ConversationID: "f", ParentConversationID: "e"},
	)
	options := store.ConversationListOptions{ParentConversationID: "root", Descendants: true, Version: version}
	wantListedConversations(t, c, options, "a", "c", "d") // through one that is archived
	options.UserID = "ada"
	wantListedConversations(t, c, options, "c")
	options.UserID, options.States = "", []string{store.ConversationArchived, store.ConversationActive}
	wantListedConversations(t, c, options, "a", "b", "c", "d")
	wantListedConversations(t, c, store.ConversationListOptions{ParentConversationID: "none", Descendants: true, Version: version}, "e", "f")
	wantListedConversations(t, c, store.ConversationListOptions{ParentConversationID: "c", Descendants: true, Version: version})

	options.Limit = 1
	var got []string
	for more := true; more; more = options.After != "" {
		page := listConversations(t, c, options)
		got, options.After = append(got, idsOfList(page)...), page.Next
	}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("the pages have %q", got)
	}
}

// testConversationListCycles: conversations that are their own ancestors are listed once, and the asked one is not.
func testConversationListCycles(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	version := createAll(t, c,
		&store.Conversation{ConversationID: "a", ParentConversationID: "c"},
		&store.Conversation{ConversationID: "b", ParentConversationID: "a"},
		&store.Conversation{ConversationID: "c", ParentConversationID: "b"},
		&store.Conversation{ConversationID: "self", ParentConversationID: "self"},
	)
	for parent, want := range map[string][]string{"a": {"b", "c"}, "b": {"a", "c"}, "self": nil} {
		wantListedConversations(t, c, store.ConversationListOptions{ParentConversationID: parent, Descendants: true, Version: version}, want...)
	}
}

// testConversationListInvalid: invalid options, and cursors of other lists, are errors.
func testConversationListInvalid(t *testing.T, s *suite) {
	st, elsewhere := s.newStore(t), s.newStore(t)
	c := st.Conversations()
	version := createAll(t, c,
		&store.Conversation{ConversationID: "root"},
		&store.Conversation{ConversationID: "a", UserID: "maria", ParentConversationID: "root"},
		&store.Conversation{ConversationID: "b", UserID: "maria", ParentConversationID: "root"},
	)
	turns := saveListed(t, st, listed("x", "c", 1), listed("y", "c", 2))
	good := store.ConversationListOptions{UserID: "maria", ParentConversationID: "root", Version: version, Limit: 1}
	good.After = listConversations(t, c, good).Next
	if rest := listConversations(t, c, good); good.After == "" || len(rest.Conversations) != 1 || rest.Next != "" {
		t.Fatalf("after %q: %+v", good.After, rest)
	}
	for name, change := range map[string]func(*store.ConversationListOptions){
		"negative limit":             func(o *store.ConversationListOptions) { o.Limit = -1 },
		"limit above the limit":      func(o *store.ConversationListOptions) { o.Limit = store.MaxLimit + 1 },
		"unknown order":              func(o *store.ConversationListOptions) { o.Order = "up" },
		"unknown sort":               func(o *store.ConversationListOptions) { o.Sort = "title" },
		"unknown state":              func(o *store.ConversationListOptions) { o.States = []string{"Closed"} },
		"no state":                   func(o *store.ConversationListOptions) { o.States = []string{""} },
		"two states in one":          func(o *store.ConversationListOptions) { o.States = []string{"Active,Archived"} },
		"long user":                  func(o *store.ConversationListOptions) { o.UserID = strings.Repeat("x", 513) },
		"user that is no UTF-8":      func(o *store.ConversationListOptions) { o.UserID = "\xff" },
		"long parent":                func(o *store.ConversationListOptions) { o.ParentConversationID = strings.Repeat("x", 513) },
		"descendants of nothing":     func(o *store.ConversationListOptions) { o.ParentConversationID, o.Descendants = "", true },
		"garbage":                    func(o *store.ConversationListOptions) { o.After = "garbage" },
		"not text":                   func(o *store.ConversationListOptions) { o.After = "\x00\xff" },
		"cursor of another user":     func(o *store.ConversationListOptions) { o.UserID = "ada" },
		"cursor of all users":        func(o *store.ConversationListOptions) { o.UserID = "" },
		"cursor of another parent":   func(o *store.ConversationListOptions) { o.ParentConversationID = "a" },
		"cursor without descendants": func(o *store.ConversationListOptions) { o.Descendants = true },
		"cursor of another sort":     func(o *store.ConversationListOptions) { o.Sort = store.SortUpdated },
		"cursor of another order":    func(o *store.ConversationListOptions) { o.Order = store.OrderAscending },
		"cursor of other states":     func(o *store.ConversationListOptions) { o.States = []string{store.ConversationArchived} },
		"cursor of turns": func(o *store.ConversationListOptions) {
			o.After = list(t, st, "c", store.ListOptions{Version: turns, Limit: 1, Order: store.OrderDescending}).Next
		},
	} {
		options := good
		change(&options)
		if _, err := c.List(t.Context(), options); !errors.Is(err, store.ErrInvalid) || store.IsRetryable(err) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if _, err := elsewhere.Conversations().List(t.Context(), store.ConversationListOptions{UserID: "maria", ParentConversationID: "root", After: good.After}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("cursor of another namespace: got %v, want ErrInvalid", err)
	}
}
