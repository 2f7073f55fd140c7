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
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// conversationTests are the tests for drivers that implement driver.Conversations.
var conversationTests = map[string]func(*testing.T, *suite){
	"Conversation":               testConversation,
	"ConversationIDs":            testConversationIDs,
	"ConversationInvalid":        testConversationInvalid,
	"ConversationMissing":        testConversationMissing,
	"ConversationPatch":          testConversationPatch,
	"ConversationArchive":        testConversationArchive,
	"ConversationDelete":         testConversationDelete,
	"ConversationDeleteTurns":    testConversationDeleteTurns,
	"ConversationDeleteReserved": testConversationDeleteReserved,
	"ConversationDeleteRace":     testConversationDeleteRace,
	"ConversationModel":          testConversationModel,
	"ConversationDeletePending":  testConversationDeletePending,
	"ConversationDeleteRollback": testConversationDeleteRollback,
	"ConversationAppend":         testConversationAppend,
	"ConversationAppendAgain":    testConversationAppendAgain,
	"ConversationExpected":       testConversationExpected,
	"ConversationCalls":          testConversationCalls,
	"ConversationWriters":        testConversationWriters,
	"ConversationReserve":        testConversationReserve,
	"ConversationTakeover":       testConversationTakeover,
	"ConversationRefused":        testConversationRefused,
	"ConversationRollback":       testConversationRollback,
	"RollbackUnderAppends":       testRollbackUnderAppends,
	"ConversationFork":           testConversationFork,
	"ConversationHeadDeleted":    testConversationHeadDeleted,
	"ConversationSummaries":      testConversationSummaries,
	"TooManySummaries":           testTooManySummaries,
	"ConversationHide":           testConversationHide,
	"ConversationRecent":         testConversationRecent,
	"ConversationTurns":          testConversationTurns,
	"ConversationPages":          testConversationPages,
	"ConversationItems":          testConversationItems,
	"ConversationReserved":       testConversationReserved,
}

// newConversation creates the conversation conv_1 in a new namespace.
func newConversation(t *testing.T, s *suite) (*store.Store, *store.Conversations) {
	t.Helper()
	st := s.newStore(t)
	create(t, st.Conversations(), &store.Conversation{ConversationID: "conv_1"})
	return st, st.Conversations()
}

func create(t *testing.T, c *store.Conversations, conversation *store.Conversation) *store.Conversation {
	t.Helper()
	created, err := c.Create(t.Context(), conversation)
	if err != nil {
		t.Fatalf("Unable to create %q: %v", conversation.ConversationID, err)
	}
	return created
}

func getConversation(t *testing.T, c *store.Conversations, id string) *store.Conversation {
	t.Helper()
	conversation, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Unable to get %q: %v", id, err)
	}
	return conversation
}

// wantTurns checks the response IDs of a conversation's history.
func wantTurns(t *testing.T, c *store.Conversations, id string, want ...string) {
	t.Helper()
	history, err := c.Load(t.Context(), id, store.ResolveOptions{})
	if err != nil {
		t.Fatalf("Unable to load %q: %v", id, err)
	}
	if diff := cmp.Diff(want, history.Turns, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Unexpected turns of %q (-want,+got):\n%s", id, diff)
	}
	if diff := cmp.Diff(texts(want...), textsOf(t, history)); diff != "" {
		t.Errorf("Unexpected items of %q (-want,+got):\n%s", id, diff)
	}
}

// wantConversation checks a conversation, but not when it was created, and not its version.
func wantConversation(t *testing.T, want, got *store.Conversation) {
	t.Helper()
	if diff := cmp.Diff(want, got,
		cmp.Comparer(func(a, b json.RawMessage) bool { return differenceJSON(a, b) == "" }),
		cmpopts.IgnoreFields(store.Conversation{}, "CreatedAt", "Version")); diff != "" {
		t.Errorf("Unexpected conversation (-want,+got):\n%s", diff)
	}
	if age := time.Since(got.CreatedAt); age < -time.Minute || age > time.Hour || got.CreatedAt != got.CreatedAt.UTC().Truncate(time.Second) {
		t.Errorf("Unexpected time of creation: %v", got.CreatedAt)
	}
}

func testConversation(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	given := &store.Conversation{
		ConversationID: "conv_1", UserID: "user é 1", Title: "A title \u2028", SystemPrompt: strings.Repeat("Be brief.\n", 1000),
		Metadata: json.RawMessage(`{"b":{"c":[1,null,"\u00e9"]},"a":""}`), ParentConversationID: "conv_0",
	}
	want := given.Clone()
	want.State = store.ConversationActive
	wantConversation(t, want, create(t, c, given))
	wantConversation(t, want, getConversation(t, c, "conv_1"))
	wantTurns(t, c, "conv_1")

	_, err := c.Create(t.Context(), given)
	wantError(t, err, &store.Error{Code: store.CodeConflict})
	other := s.newStore(t).Conversations()
	_, err = other.Get(t.Context(), "conv_1")
	wantError(t, err, &store.Error{Code: store.CodeConversationNotFound})
	create(t, other, &store.Conversation{ConversationID: "conv_1", State: store.ConversationArchived})
	wantConversation(t, want, getConversation(t, c, "conv_1"))
}

func testConversationIDs(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	ids := []string{
		"conv_1", "conv.1", "CONV_1", "conv-1", "c", " ", "a/b", "../a", "é", "日本語", "%41", "sha256_a", strings.Repeat("é", store.MaxIDLength),
		strings.Repeat("a", store.MaxIDLength), "2f0e5b0c-6a54-4d0b-9c7f-1a2b3c4d5e6f",
	}
	for _, id := range ids {
		create(t, c, &store.Conversation{ConversationID: id, Title: id})
	}
	for i, id := range ids {
		if got := getConversation(t, c, id); got.ConversationID != id || got.Title != id {
			t.Errorf("got %q with the title %q, want %q", got.ConversationID, got.Title, id)
		}
		turn := fmt.Sprintf("resp_%d", i)
		appendTurns(t, c, id, turn)
		wantTurns(t, c, id, turn)
	}
}

func testConversationInvalid(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	create(t, c, &store.Conversation{ConversationID: "conv_1"})
	long := strings.Repeat("é", 65_537)
	for name, change := range map[string]func(*store.Conversation){
		"no ID":                func(c *store.Conversation) { c.ConversationID = "" },
		"long ID":              func(c *store.Conversation) { c.ConversationID = long[:2*513] },
		"long user":            func(c *store.Conversation) { c.UserID = long[:2*513] },
		"long title":           func(c *store.Conversation) { c.Title = long[:2*1025] },
		"long prompt":          func(c *store.Conversation) { c.SystemPrompt = long },
		"no UTF-8":             func(c *store.Conversation) { c.Title = "\xff" },
		"long parent":          func(c *store.Conversation) { c.ParentConversationID = long[:2*513] },
		"metadata a list":      func(c *store.Conversation) { c.Metadata = json.RawMessage(`[]`) },
		"metadata no JSON":     func(c *store.Conversation) { c.Metadata = json.RawMessage(`{`) },
		"metadata imprecise":   func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":12345678901234567890}`) },
		"a key twice":          func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":1,"a":2}`) },
		"half a character":     func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":"\ud800"}`) },
		"large metadata":       func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":"` + long + `"}`) },
		"unknown state":        func(c *store.Conversation) { c.State = "Closed" },
		"created for deletion": func(c *store.Conversation) { c.State = store.ConversationDeleting },
		"reserved":             func(c *store.Conversation) { c.Head.Reservation.Duration = time.Second },
		"fork of nothing":      func(c *store.Conversation) { c.ForkedFrom.ResponseID = "resp_1" },
		"hidden in no turn":    func(c *store.Conversation) { c.HiddenItems = []store.HiddenItem{{Number: 1}} },
		"hidden before 0":      func(c *store.Conversation) { c.HiddenItems = []store.HiddenItem{{ResponseID: "a", Number: -1}} },
		"hidden after 2^31":    func(c *store.Conversation) { c.HiddenItems = []store.HiddenItem{{ResponseID: "a", Number: 1 << 32}} },
		"with a base":          func(c *store.Conversation) { c.Head.BaseResponseID = "resp_1" },
	} {
		conversation := &store.Conversation{ConversationID: "conv_2"}
		change(conversation)
		if _, err := c.Create(t.Context(), conversation); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	_, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_2", Head: store.Head{ResponseID: "resp_missing"}})
	wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "resp_missing"})
	title := long[:2*1025]
	_, err = c.Patch(t.Context(), "conv_1", store.ConversationPatch{Title: &title})
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
	_, err = c.Append(t.Context(), "conv_1", &store.Session{ResponseID: "resp_1"}, store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
	for _, d := range []time.Duration{-time.Second, time.Millisecond, 1500 * time.Millisecond, time.Hour} {
		_, err = c.Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{Reservation: d})
		wantError(t, err, &store.Error{Code: store.CodeInvalid})
	}
	_, err = c.Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{Branch: true})
	wantError(t, err, &store.Error{Code: store.CodeInvalid})
	if got := getConversation(t, c, "conv_1"); got.Head != (store.Head{}) {
		t.Errorf("invalid turns have changed the head: %+v", got.Head)
	}
}

func testConversationMissing(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"get":       func() error { _, err := c.Get(ctx, "conv_1"); return err },
		"patch":     func() error { _, err := c.Patch(ctx, "conv_1", store.ConversationPatch{}); return err },
		"archive":   func() error { _, err := c.Archive(ctx, "conv_1"); return err },
		"unarchive": func() error { _, err := c.Unarchive(ctx, "conv_1"); return err },
		"load":      func() error { _, err := c.Load(ctx, "conv_1", store.ResolveOptions{}); return err },
		"recent":    func() error { _, err := c.Recent(ctx, "conv_1", 0, store.ResolveOptions{}); return err },
		"turns":     func() error { _, err := c.Turns(ctx, "conv_1", store.ListOptions{}); return err },
		"count":     func() error { _, err := c.Count(ctx, "conv_1"); return err },
		"items": func() error {
			_, err := c.AppendItems(ctx, "conv_1", []json.RawMessage{json.RawMessage(`{}`)}, store.AppendItemsOptions{})
			return err
		},
		"rollback": func() error { _, err := c.Rollback(ctx, "conv_1", ""); return err },
		"fork":     func() error { _, err := c.Fork(ctx, "conv_1", "conv_2", store.ForkOptions{}); return err },
		"append": func() error {
			_, err := c.Append(ctx, "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{})
			return err
		},
		"reserve":      func() error { _, err := c.Reserve(ctx, "conv_1", "resp_1", store.ReserveOptions{}); return err },
		"summaries":    func() error { _, err := c.Summaries(ctx, "conv_1"); return err },
		"save summary": func() error { return c.SaveSummary(ctx, "conv_1", store.Summary{EndTurn: 1, Content: "text"}) },
	} {
		err := call()
		if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeConversationNotFound || e.ConversationID != "conv_1" {
			t.Errorf("%s: got %v, want ErrConversationNotFound of conv_1", name, err)
		}
	}
	if err := c.Delete(ctx, "conv_1", store.DeleteConversationOptions{}); err != nil {
		t.Errorf("Unable to delete a missing conversation: %v", err)
	}
}

func testConversationPatch(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	null := create(t, c, &store.Conversation{ConversationID: "conv_null", Metadata: json.RawMessage(`null`)})
	if null.Metadata != nil {
		t.Errorf("Unexpected metadata %s, want none", null.Metadata)
	}
	patched, err := c.Patch(t.Context(), "conv_null", store.ConversationPatch{MetadataMembers: members(`{"a":1}`)})
	if err != nil || string(patched.Metadata) != `{"a":1}` {
		t.Errorf("Unable to set a member: %+v, %v", patched, err)
	}
	want := create(t, c, &store.Conversation{ConversationID: "conv_1", UserID: "user", Title: "title", Metadata: json.RawMessage(`{"a":1}`)})
	text := func(s string) *string { return &s }
	for _, step := range []struct {
		patch store.ConversationPatch
		apply func(*store.Conversation)
	}{
		{store.ConversationPatch{}, func(*store.Conversation) {}},
		{store.ConversationPatch{Title: text("other")}, func(c *store.Conversation) { c.Title = "other" }},
		{store.ConversationPatch{SystemPrompt: text("Be brief.")}, func(c *store.Conversation) { c.SystemPrompt = "Be brief." }},
		{
			store.ConversationPatch{UserID: text(""), Metadata: json.RawMessage(`{"b":{"c":[]}}`)},
			func(c *store.Conversation) { c.UserID, c.Metadata = "", json.RawMessage(`{"b":{"c":[]}}`) },
		},
		{
			store.ConversationPatch{MetadataMembers: members(`{"b":null,"<c>":{"d":1},"e~1/":[]}`)},
			func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"<c>":{"d":1},"e~1/":[]}`) },
		},
		{
			store.ConversationPatch{MetadataMembers: members(`{"<c>":{"f":null},"missing":null}`)},
			func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"<c>":{"f":null},"e~1/":[]}`) },
		},
		{
			store.ConversationPatch{Metadata: json.RawMessage(`{"a":1,"b":2}`), MetadataMembers: members(`{"b":3}`)},
			func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":1,"b":3}`) },
		},
		{store.ConversationPatch{Metadata: json.RawMessage(`{}`)}, func(c *store.Conversation) { c.Metadata = json.RawMessage(`{}`) }},
		{store.ConversationPatch{Metadata: json.RawMessage(`null`)}, func(c *store.Conversation) { c.Metadata = nil }},
		{store.ConversationPatch{MetadataMembers: members(`{"a":null}`)}, func(*store.Conversation) {}},
		{store.ConversationPatch{Metadata: json.RawMessage(`{"a":1}`)}, func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":1}`) }},
		{store.ConversationPatch{Metadata: json.RawMessage{}}, func(c *store.Conversation) { c.Metadata = nil }},
		{store.ConversationPatch{MetadataMembers: members(`{"a":"x"}`)}, func(c *store.Conversation) { c.Metadata = json.RawMessage(`{"a":"x"}`) }},
		{store.ConversationPatch{Metadata: json.RawMessage(`null`), MetadataMembers: members(`{"a":null}`)}, func(c *store.Conversation) { c.Metadata = nil }},
		{store.ConversationPatch{Title: text(""), UserID: text("user")}, func(c *store.Conversation) { c.Title, c.UserID = "", "user" }},
	} {
		step.apply(want)
		got, err := c.Patch(t.Context(), "conv_1", step.patch)
		if err != nil {
			t.Fatalf("Unable to patch: %v", err)
		}
		wantConversation(t, want, got)
		wantConversation(t, want, getConversation(t, c, "conv_1"))
	}

	// Patches and appends at the same time change nothing of each other.
	var all sync.WaitGroup
	all.Go(func() { appendTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3") })
	for i := range 10 {
		if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{Title: text(fmt.Sprint(i))}); err != nil {
			t.Errorf("Unable to patch: %v", err)
		}
	}
	all.Wait()
	for i := range 8 {
		all.Go(func() {
			member := map[string]json.RawMessage{fmt.Sprint(i): json.RawMessage("true")}
			if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{MetadataMembers: member}); err != nil {
				t.Errorf("Unable to set a member of the metadata: %v", err)
			}
		})
	}
	all.Wait()
	if got := getConversation(t, c, "conv_1"); len(members(string(got.Metadata))) != 8 {
		t.Errorf("Got the metadata %s, want 8 members", got.Metadata)
	}
	for _, tc := range []struct {
		value string
		want  int
	}{{" null ", 7}, {"\t1\n", 8}} {
		member := map[string]json.RawMessage{"7": json.RawMessage(tc.value)}
		if got, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{MetadataMembers: member}); err != nil || len(members(string(got.Metadata))) != tc.want {
			t.Errorf("%q: got %v and %v, want %d members", tc.value, got, err, tc.want)
		}
	}
	if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{MetadataMembers: map[string]json.RawMessage{"\xff": []byte("1")}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a name that is not UTF-8: got %v, want ErrInvalid", err)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 40<<10) + `"`)
	for i, wantErr := range []error{nil, store.ErrInvalid} {
		member := map[string]json.RawMessage{fmt.Sprint("large", i): large}
		if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{MetadataMembers: member}); !errors.Is(err, wantErr) {
			t.Errorf("Got %v, want %v for 40 KiB more", err, wantErr)
		}
	}
	if got := getConversation(t, c, "conv_1"); len(members(string(got.Metadata))) != 9 {
		t.Errorf("Got the metadata %.100s, want 9 members", got.Metadata)
	}
	if got := getConversation(t, c, "conv_1"); got.Title != "9" || got.Head.ResponseID != "resp_3" || got.UserID != "user" {
		t.Errorf("Unexpected conversation: %+v", got)
	}
}

func members(object string) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &all); err != nil {
		panic(err)
	}
	return all
}

func testConversationArchive(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1")
	for range 2 {
		archived, err := c.Archive(t.Context(), "conv_1")
		if err != nil || archived.State != store.ConversationArchived {
			t.Fatalf("Unable to archive: %+v, %v", archived, err)
		}
	}
	_, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_2", ""), store.AppendOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConversationArchived})
	_, err = c.Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConversationArchived})
	_, err = c.Rollback(t.Context(), "conv_1", "")
	wantError(t, err, &store.Error{Code: store.CodeConversationArchived})
	title := "still patched"
	if _, err := c.Patch(t.Context(), "conv_1", store.ConversationPatch{Title: &title}); err != nil {
		t.Errorf("Unable to patch an archived conversation: %v", err)
	}
	wantTurns(t, c, "conv_1", "resp_1")
	if part, err := c.Append(t.Context(), "conv_1", testturn.Make("resp_1", ""), store.AppendOptions{}); err != nil || !part {
		t.Errorf("Unable to append again what was appended before: %v, %v", part, err)
	}
	for range 2 {
		active, err := c.Unarchive(t.Context(), "conv_1")
		if err != nil || active.State != store.ConversationActive {
			t.Fatalf("Unable to unarchive: %+v, %v", active, err)
		}
	}
	appendTurns(t, c, "conv_1", "resp_2")
	wantTurns(t, c, "conv_1", "resp_1", "resp_2")
}

func testConversationDelete(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2")
	if err := c.SaveSummary(t.Context(), "conv_1", store.Summary{EndTurn: 1, Content: "text"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "conv_1", store.DeleteConversationOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Get(t.Context(), "conv_1")
	wantError(t, err, &store.Error{Code: store.CodeConversationNotFound})
	if got := resolve(t, st, "resp_2", store.ResolveOptions{}).Turns; len(got) != 2 {
		t.Errorf("the turns were deleted: got %q", got)
	}
	create(t, c, &store.Conversation{ConversationID: "conv_1"})
	wantTurns(t, c, "conv_1")
	if summaries, err := c.Summaries(t.Context(), "conv_1"); err != nil || len(summaries) > 0 {
		t.Errorf("a new conversation has summaries %v, %v", summaries, err)
	}
}

// wantReserved checks the turns that a turn with a reserved place continues.
func wantReserved(t *testing.T, r *store.Reservation, want ...string) {
	t.Helper()
	h, err := r.Load(t.Context(), store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, h.Turns); diff != "" {
		t.Errorf("the turns before a reserved place (-want +got):\n%s", diff)
	}
}

func testConversationFork(t *testing.T, s *suite) {
	c := s.newStore(t).Conversations()
	source := create(t, c, &store.Conversation{
		ConversationID: "conv_1", UserID: "user", Title: "title", SystemPrompt: "Be brief.", Metadata: json.RawMessage(`{"a":1}`),
		ParentConversationID: "agent",
	})
	empty, err := c.Fork(t.Context(), "conv_1", "conv_empty", store.ForkOptions{})
	if err != nil || empty.ForkedFrom != (store.Fork{ConversationID: "conv_1"}) {
		t.Errorf("Unable to fork an empty conversation: %+v, %v", empty, err)
	}
	appendTurns(t, c, "conv_1", "resp_1", "resp_2")
	fork, err := c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{ResponseID: "resp_1"})
	if err != nil {
		t.Fatal(err)
	}
	want := source.Clone()
	want.ParentConversationID = ""
	want.ConversationID, want.Head, want.ForkedFrom = "conv_2", store.Head{ResponseID: "resp_1"}, store.Fork{ConversationID: "conv_1", ResponseID: "resp_1"}
	wantConversation(t, want, fork)
	if _, err := c.Archive(t.Context(), "conv_1"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Fork(t.Context(), "conv_1", "conv_3", store.ForkOptions{}); err != nil || got.State != store.ConversationActive {
		t.Errorf("Unable to fork an archived conversation: %+v, %v", got, err)
	}
	appendTurns(t, c, "conv_2", "resp_3")
	appendTurns(t, c, "conv_3", "resp_4")
	wantTurns(t, c, "conv_1", "resp_1", "resp_2")
	wantTurns(t, c, "conv_2", "resp_1", "resp_3")
	wantTurns(t, c, "conv_3", "resp_1", "resp_2", "resp_4")

	_, err = c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict})
	_, err = c.Fork(t.Context(), "conv_1", "conv_1", store.ForkOptions{})
	wantError(t, err, &store.Error{Code: store.CodeConflict})
	_, err = c.Fork(t.Context(), "conv_1", "conv_4", store.ForkOptions{ResponseID: "resp_3"})
	wantError(t, err, &store.Error{Code: store.CodeInvalid, ResponseID: "resp_3"})
	for _, source := range []string{"conv_1", "conv_missing"} {
		_, err = c.Fork(t.Context(), source, "", store.ForkOptions{})
		wantError(t, err, &store.Error{Code: store.CodeInvalid})
	}
}
