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

package resolve_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/store/driver"
)

// name creates a conversation.
func (f *fixture) name(id, head string, changes ...func(*v1alpha1.Conversation)) *v1alpha1.Conversation {
	f.Helper()
	conversation := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.ObjectName(id)},
		Spec:       v1alpha1.ConversationSpec{ConversationID: id, HeadResponseID: head},
	}
	for _, change := range changes {
		change(conversation)
	}
	if err := env.Client.Create(f.Context(), conversation); err != nil {
		f.Fatal(err)
	}
	return conversation
}

// reserved makes the head of a conversation a reserved place.
func reserved(base string) func(*v1alpha1.Conversation) {
	return func(c *v1alpha1.Conversation) {
		c.Spec.BaseResponseID, c.Spec.Reservation = base, &v1alpha1.Reservation{DurationSeconds: 600, Renewals: 1}
	}
}

// history summarizes the history of a conversation: its ID and turns, or an error.
func (f *fixture) history(name string, query resolve.Query) string {
	f.Helper()
	result, err := f.resolver.ResolveConversation(f.Context(), f.namespace, name, 0, query)
	if broken, ok := errors.AsType[*chain.Error](err); ok {
		return fmt.Sprintf("%s at %s", broken.Code(), broken.ResponseID)
	}
	if err != nil {
		return err.Error()
	}
	defer result.Release()
	texts := []string{result.Conversation.ID + ":"}
	for i, s := range result.Path {
		texts = append(texts, s.Turn.ID)
		if !query.NoItems && (result.Turns[i].ResponseID != s.Turn.ID || result.Turns[i].Items == nil) {
			f.Errorf("%s: turn %d is %+v", name, i, result.Turns[i])
		}
	}
	if query.NoItems && result.Turns != nil {
		f.Errorf("%s: items were read", name)
	}
	return strings.Join(texts, " ")
}

// TestResolveConversation: the history of a conversation is that of its head as it is now, although the view has seen nothing.
func TestResolveConversation(t *testing.T) {
	f := newFixture(t)
	f.freeze()
	f.save("resp_1", "")
	f.save("resp_2", "resp_1")
	f.save("resp_3", "resp_2")
	f.save("resp.3", "")
	deleted := f.save("resp_5", "")
	f.delete(deleted)
	f.save("resp_6", "resp_0")
	f.name("conv_1", "resp_3")
	f.name("conv.1", "resp_1")
	f.name("CONV/1", "resp_2")
	f.name("conv_empty", "")
	f.name("conv_stored", "resp_3", reserved("resp_2"))
	f.name("conv_reserved", "resp_4", reserved("resp_2"))
	f.name("conv_late", "resp_3", reserved("resp_1"))
	f.name("conv_first", "resp_4", reserved(""))
	f.name("conv_deleted", "resp_5")
	f.name("conv_base_deleted", "resp_4", reserved("resp_5"))
	f.name("conv_broken", "resp_6")
	f.name("conv_broken_place", "resp_6", reserved("resp_0"))
	f.name("conv_broken_late", "resp_6", reserved("resp_2"))
	f.name("conv_other_name", "resp.2") // the object name of resp_2
	hashed := v1alpha1.ObjectName("conv.1")
	plain := chain.WalkOptions{MaxDepth: chain.DefaultMaxDepth}
	for name, tc := range map[string]struct {
		name    string
		options chain.WalkOptions
		want    string
	}{
		"by ID":                        {"conv_1", plain, "conv_1: resp_1 resp_2 resp_3"},
		"by object name":               {"conv.1", plain, "conv_1: resp_1 resp_2 resp_3"},
		"by hash":                      {hashed, plain, "conv.1: resp_1"},
		"ID that needs a hash":         {"CONV/1", plain, "CONV/1: resp_1 resp_2"},
		"no turns":                     {"conv_empty", plain, "conv_empty:"},
		"place taken":                  {"conv_stored", plain, "conv_stored: resp_1 resp_2 resp_3"},
		"place reserved":               {"conv_reserved", plain, "conv_reserved: resp_1 resp_2"},
		"place lost":                   {"conv_late", plain, "conv_late: resp_1"},
		"first place reserved":         {"conv_first", plain, "conv_first:"},
		"head deleted":                 {"conv_deleted", plain, "session.chain.not_found at resp_5"},
		"base deleted":                 {"conv_base_deleted", plain, "session.chain.not_found at resp_5"},
		"ancestor missing":             {"conv_broken", plain, "session.chain.not_found at resp_0"},
		"ancestor missing, in place":   {"conv_broken_place", plain, "session.chain.not_found at resp_0"},
		"ancestor missing, place lost": {"conv_broken_late", plain, "conv_broken_late: resp_1 resp_2"},
		"before the missing":           {"conv_broken", chain.WalkOptions{MaxDepth: 1, Last: 1}, "conv_broken: resp_6"},
		"last":                         {"conv_1", chain.WalkOptions{MaxDepth: 2, Last: 2}, "conv_1: resp_2 resp_3"},
		"last, place taken":            {"conv_stored", chain.WalkOptions{MaxDepth: 1, Last: 1}, "conv_stored: resp_3"},
		"last, place lost":             {"conv_late", chain.WalkOptions{MaxDepth: 1, Last: 1}, "conv_late: resp_1"},
		"too deep":                     {"conv_1", chain.WalkOptions{MaxDepth: 2}, "session.chain.depth_exceeded at resp_1"},
		"missing":                      {"conv_9", plain, resolve.ErrNoConversation.Error()},
		"missing, an object name":      {"conv.9", plain, resolve.ErrNoConversation.Error()},
		"missing, not a name":          {"..", plain, resolve.ErrNoConversation.Error()},
		"ID that is an object name":    {"conv_other_name", plain, "session.chain.not_found at resp.2"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, noItems := range []bool{false, true} {
				f := &fixture{T: t, namespace: f.namespace, resolver: f.resolver}
				if got := f.history(tc.name, resolve.Query{WalkOptions: tc.options, NoItems: noItems}); got != tc.want {
					t.Errorf("without items %t: got %q, want %q", noItems, got, tc.want)
				}
			}
		})
	}
}

// TestConversationIsRead: the result has what its ETag depends on, and a conversation that is being deleted does not exist.
func TestConversationIsRead(t *testing.T) {
	f := newFixture(t)
	f.freeze()
	f.save("resp_1", "")
	held := f.name("conv_1", "resp_1", reserved(""), func(c *v1alpha1.Conversation) {
		c.Spec.HiddenItems = []v1alpha1.HiddenItem{{ResponseID: "resp_1", Number: 0}, {ResponseID: "é \"", Number: 7}}
		c.Finalizers = []string{"example.com/hold"}
	})
	t.Cleanup(func() {
		held.Finalizers = nil
		if err := env.Client.Update(f.Context(), held); client.IgnoreNotFound(err) != nil {
			t.Log(err)
		}
	})
	query := resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 1}, Unchanged: func(h *resolve.Result) bool { return h.Conversation.ID == "conv_1" }}
	result, err := f.resolver.ResolveConversation(t.Context(), f.namespace, "conv_1", 0, query)
	if err != nil || !result.Unchanged {
		t.Fatalf("got %+v, %v", result, err)
	}
	result.Release()
	want := &resolve.Conversation{
		Name: "conv.1", UID: held.UID, ID: "conv_1",
		Head:   driver.Head{ResponseID: "resp_1", Reservation: driver.Reservation{Duration: 10 * time.Minute, Renewals: 1}},
		Hidden: []driver.HiddenItem{{ResponseID: "resp_1", Number: 0}}, // of its turns
	}
	if diff := cmp.Diff(want, result.Conversation); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	if err := env.Client.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if got := f.history("conv_1", query); got != resolve.ErrNoConversation.Error() {
		t.Errorf("being deleted: got %q", got)
	}
}

// TestConversationsAreCharged: each read of a conversation counts towards the rate of its namespace.
func TestConversationsAreCharged(t *testing.T) {
	f := newFixture(t)
	f.options.AnswerBytesPerSecond = 1 << 10
	f.freeze()
	f.name("conv_1", "", func(c *v1alpha1.Conversation) { c.Spec.SystemPrompt = strings.Repeat("x", 60_000) })
	if got := f.history("conv_1", resolve.Query{}); got != "conv_1:" {
		t.Fatal(got)
	}
	if ahead := f.resolver.ForgiveAnswers(f.namespace); ahead < 4*time.Minute {
		t.Errorf("60 kB were read at 1 KiB per second: the namespace is only ahead by %v", ahead)
	}
	if got := f.history("conv_2", resolve.Query{}); got != resolve.ErrNoConversation.Error() {
		t.Fatal(got)
	}
	if ahead := f.resolver.ForgiveAnswers(f.namespace); ahead < 50*time.Second {
		t.Errorf("nothing was found: the namespace is only ahead by %v", ahead)
	}
}

// TestConversationWithUnreadableTurn: what needs no items has the turns of a conversation although the bodies of some cannot be read.
func TestConversationWithUnreadableTurn(t *testing.T) {
	f := newFixture(t)
	input := func(s *v1alpha1.ResponseSession) { s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":5}`)} }
	f.save("resp_1", "")
	f.save("resp_2", "resp_1", withLostSnapshot)
	f.save("resp_3", "resp_2", input)
	f.freeze()
	f.save("resp_4", "resp_3")
	f.save("resp_5", "resp_4", input) // the view does not have these two
	f.name("conv_1", "resp_3")
	f.name("conv_2", "resp_5")
	options := chain.WalkOptions{MaxDepth: 64, IncludeUnreadable: true}
	for id, want := range map[string]string{"conv_1": "conv_1: resp_1 resp_2 resp_3", "conv_2": "conv_2: resp_1 resp_2 resp_3 resp_4 resp_5"} {
		if got := f.history(id, resolve.Query{WalkOptions: options, NoItems: true}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := f.history("conv_1", resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}}), "session.snapshot.unreadable at resp_3"; got != want {
		t.Errorf("with items: got %q, want %q", got, want)
	}
}

// TestConversationUnreadable: a failure of the API server is not a conversation that does not exist.
func TestConversationUnreadable(t *testing.T) {
	f := newFixture(t)
	f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/conversations/") {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
		}
		return next.RoundTrip(r)
	})
	f.freeze()
	if _, err := f.resolver.ResolveConversation(t.Context(), f.namespace, "conv_1", 0, resolve.Query{}); err == nil || errors.Is(err, resolve.ErrNoConversation) {
		t.Errorf("got %v", err)
	}
}

// TestLastIgnoresTheVerdict: the last turns of a chain that the view has found broken are answered from the view, without live reads.
func TestLastIgnoresTheVerdict(t *testing.T) {
	f := newFixture(t)
	f.save("resp_2", "resp_1")
	f.save("resp_3", "resp_2", withStatus("failed"))
	f.save("resp_4", "resp_3")
	f.save("resp_5", "resp_4")
	f.follow()
	f.answer("resp_5", chain.WalkOptions{MaxDepth: 2, Last: 2}) // reads the items
	for last, want := range map[int]string{1: "says resp_5", 2: "says resp_4, says resp_5"} {
		before := f.reads.Load()
		if got := f.answer("resp_5", chain.WalkOptions{MaxDepth: last, Last: last}); got != want {
			t.Errorf("last %d: got %q, want %q", last, got, want)
		}
		if reads := f.reads.Load() - before; reads > 0 {
			t.Errorf("last %d: %d live reads", last, reads)
		}
	}
	if got, want := f.answer("resp_5", chain.WalkOptions{MaxDepth: 9, Last: 3}), "session.chain.unavailable at resp_3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := f.answer("resp_5", chain.WalkOptions{MaxDepth: 9, Last: 3, IncludeIncomplete: true}), "says resp_3, says resp_4, says resp_5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := f.answer("resp_5", chain.WalkOptions{MaxDepth: 9, Last: 5, IncludeIncomplete: true}), "session.chain.not_found at resp_1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
