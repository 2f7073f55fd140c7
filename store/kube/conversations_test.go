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
package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/kube"
)

// conversations is the driver of a cluster with a namespace. Like package store, it repeats the calls that may succeed later.
type conversations struct {
	driver.Conversations
	namespace string
}

func openConversations(t *testing.T) *conversations {
	t.Helper()
	return openConversationsThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) { return next.RoundTrip(r) })
}

// openConversationsThrough opens a driver whose requests are handled by a function.
func openConversationsThrough(
	t *testing.T, namespace string, through func(next http.RoundTripper, r *http.Request) (*http.Response, error),
) *conversations {
	t.Helper()
	d, _, err := kube.OpenDriver(t.Context(), kube.Options{Config: configThrough(through), Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return &conversations{d.(driver.Conversations), namespace}
}

func (c *conversations) create(ctx context.Context, conversation *driver.Conversation) (*driver.Conversation, error) {
	return driver.Retry(ctx, func() (*driver.Conversation, error) { return c.CreateConversation(ctx, c.namespace, conversation) })
}

func (c *conversations) get(ctx context.Context, id string) (*driver.Conversation, error) {
	return driver.Retry(ctx, func() (*driver.Conversation, error) { return c.GetConversation(ctx, c.namespace, id) })
}

func (c *conversations) update(ctx context.Context, id string, update driver.ConversationUpdate) (*driver.Conversation, error) {
	return driver.Retry(ctx, func() (*driver.Conversation, error) { return c.UpdateConversation(ctx, c.namespace, id, update) })
}

func (c *conversations) remove(ctx context.Context, id string) error {
	_, err := driver.Retry(ctx, func() (struct{}, error) { return struct{}{}, c.DeleteConversation(ctx, c.namespace, id) })
	return err
}

func (c *conversations) mustCreate(t *testing.T, conversation *driver.Conversation) {
	t.Helper()
	if _, err := c.create(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
}

// want checks what is stored.
func (c *conversations) want(t *testing.T, want *driver.Conversation) {
	t.Helper()
	got, err := c.get(t.Context(), want.ConversationID)
	if err != nil {
		t.Error(err)
		return
	}
	wantConversation(t, want, got)
}

func wantConversation(t *testing.T, want, got *driver.Conversation) {
	t.Helper()
	if got.CreatedAt.IsZero() || got.CreatedAt.Location() != time.UTC || got.CreatedAt.Nanosecond() != 0 {
		t.Errorf("created at %s, want a time in UTC and whole seconds", got.CreatedAt)
	}
	if got.Version == "" {
		t.Error("no version")
	}
	got = got.Clone()
	got.CreatedAt, got.Version = want.CreatedAt, want.Version
	if diff := cmp.Diff(want, got, sameJSON); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
}

// sameJSON compares metadata by their JSON values.
var sameJSON = cmp.Comparer(func(a, b json.RawMessage) bool { return (a == nil) == (b == nil) && jsonvalue.Equal(a, b) })

func active(id string) *driver.Conversation {
	return &driver.Conversation{ConversationID: id, State: driver.ConversationActive}
}

// strangeIDs are IDs that the parts of a request or of a JSON patch could take for something else.
var strangeIDs = []string{
	"conv_67cc", "héllo/日本", `a=b,c\,d!=`, "<&>'\"\u2028\u2029", "a\nb\tc\b\f\x01\x7f", "~0/~1/0/-", "null", " ", "%2F..", "ﷺ🙂", strings.Repeat("é", 512),
}

// TestConversationRoundTrip: everything is stored and returned, under any ID, in as many requests as there are calls.
func TestConversationRoundTrip(t *testing.T) {
	sent := &requestLog{}
	c := openConversationsThrough(t, env.NewNamespace(t), sent.through)
	for i, id := range strangeIDs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			sent.sent = nil
			want := &driver.Conversation{
				ConversationID: id, UserID: id, Title: id, SystemPrompt: "Be brief.\n" + id, State: driver.ConversationArchived,
				Metadata: json.RawMessage(`{"a":null,"b":[1.5,"<",{"c":{}}]}`),
				Head: driver.Head{
					ResponseID: id, BaseResponseID: "resp_1", Reservation: driver.Reservation{Duration: 10 * time.Minute, Renewals: 1 << 60},
				},
				ForkedFrom: driver.Fork{ConversationID: id, ResponseID: id}, ParentConversationID: id,
			}
			created, err := c.create(t.Context(), want)
			if err != nil {
				t.Fatal(err)
			}
			wantConversation(t, want, created)
			c.want(t, want)
			updated, err := c.update(t.Context(), id, driver.ConversationUpdate{
				ExpectedState: want.State, ExpectedHead: &want.Head, State: driver.ConversationActive, Head: &driver.Head{ResponseID: want.Head.BaseResponseID},
			})
			if err != nil {
				t.Fatal(err)
			}
			want.State, want.Head = driver.ConversationActive, driver.Head{ResponseID: want.Head.BaseResponseID}
			wantConversation(t, want, updated)
			if err := c.remove(t.Context(), id); err != nil {
				t.Error(err)
			}
			if _, err := c.get(t.Context(), id); !errors.Is(err, driver.ErrConversationNotFound) {
				t.Errorf("got %v after the deletion, want ErrConversationNotFound", err)
			}
			calls := []string{
				"POST conversations", "GET conversations", "PATCH conversations", "GET conversations metadata", "DELETE conversations", "GET conversations",
			}
			if diff := cmp.Diff(calls, sent.sent); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConversationIDsAreUnique: the second creation is a conflict, even of an equal conversation.
func TestConversationIDsAreUnique(t *testing.T) {
	c := openConversations(t)
	for _, id := range strangeIDs {
		c.mustCreate(t, active(id))
		_, err := c.create(t.Context(), active(id))
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.CodeConflict || e.ConversationID != id || e.Retryable {
			t.Errorf("%q: got %v, want a conflict", id, err)
		}
	}
}

// TestConversationUpdate: an update is one request, changes what is set, and clears what is empty.
func TestConversationUpdate(t *testing.T) {
	const id = "conv_1"
	described := func() *driver.Conversation {
		c := active(id)
		c.UserID, c.Title, c.SystemPrompt, c.Metadata = "ada", "Lisbon", "Be brief.", json.RawMessage(`{"a":1}`)
		return c
	}
	reserved := driver.Head{ResponseID: "resp_2", BaseResponseID: "resp_1", Reservation: driver.Reservation{Duration: time.Second}}
	withHead := func(head driver.Head) *driver.Conversation {
		c := described()
		c.Head = head
		return c
	}
	patch := func(p driver.ConversationPatch) driver.ConversationUpdate {
		return driver.ConversationUpdate{ConversationPatch: p}
	}
	tests := map[string]struct {
		before *driver.Conversation
		update driver.ConversationUpdate
	}{
		"nothing":                {described(), driver.ConversationUpdate{}},
		"state":                  {described(), driver.ConversationUpdate{State: driver.ConversationArchived}},
		"title":                  {described(), patch(driver.ConversationPatch{Title: new("Porto")})},
		"descriptions":           {active(id), patch(driver.ConversationPatch{UserID: new("bob"), Title: new("b"), SystemPrompt: new("c"), Metadata: json.RawMessage(`{"b":{}}`)})},
		"descriptions away":      {described(), patch(driver.ConversationPatch{UserID: new(""), Title: new(""), SystemPrompt: new(""), Metadata: json.RawMessage(`null`)})},
		"no descriptions away":   {active(id), patch(driver.ConversationPatch{UserID: new(""), Title: new(""), SystemPrompt: new(""), Metadata: json.RawMessage(`null`)})},
		"metadata is replaced":   {described(), patch(driver.ConversationPatch{Metadata: json.RawMessage(`{"b":2}`)})},
		"metadata becomes empty": {described(), patch(driver.ConversationPatch{Metadata: json.RawMessage(`{}`)})},
		"first head":             {described(), driver.ConversationUpdate{Head: &driver.Head{ResponseID: "resp_1"}}},
		"reservation":            {withHead(driver.Head{ResponseID: "resp_1"}), driver.ConversationUpdate{Head: &reserved}},
		"rollback":               {withHead(reserved), driver.ConversationUpdate{Head: &driver.Head{ResponseID: "resp_1"}}},
		"clear":                  {withHead(reserved), driver.ConversationUpdate{Head: &driver.Head{}}},
		"clear nothing":          {described(), driver.ConversationUpdate{Head: &driver.Head{}}},
		"renewal": {withHead(reserved), driver.ConversationUpdate{Head: &driver.Head{
			ResponseID: "resp_2", BaseResponseID: "resp_1", Reservation: driver.Reservation{Duration: time.Second, Renewals: 1},
		}}},
		"everything": {withHead(reserved), driver.ConversationUpdate{
			State: driver.ConversationArchived, Head: &driver.Head{ResponseID: "resp_0"},
			ConversationPatch: driver.ConversationPatch{UserID: new("bob"), Title: new(""), SystemPrompt: new("b"), Metadata: json.RawMessage(`{"b":2}`)},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sent := &requestLog{}
			c := openConversationsThrough(t, env.NewNamespace(t), sent.through)
			c.mustCreate(t, tc.before)
			want := tc.before.Clone()
			if err := tc.update.Apply(want); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time, nothing is left to be done
				sent.sent = nil
				got, err := c.update(t.Context(), id, tc.update)
				if err != nil {
					t.Fatal(err)
				}
				wantConversation(t, want, got)
				if diff := cmp.Diff([]string{"PATCH conversations"}, sent.sent); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			}
			c.want(t, want)
		})
	}
}

// TestConversationExpectations: an update with expectations changes something exactly if all are met, including those of absent fields.
func TestConversationExpectations(t *testing.T) {
	reservation := driver.Reservation{Duration: 30 * time.Second, Renewals: 1}
	heads := []driver.Head{
		{},
		{ResponseID: "resp_1"},
		{ResponseID: "<&>\u2028é"},
		{ResponseID: "resp_1", Reservation: reservation},
		{ResponseID: "resp_1", BaseResponseID: "resp_0", Reservation: reservation},
		{ResponseID: "resp_1", BaseResponseID: "resp_2", Reservation: reservation},
		{ResponseID: "resp_1", BaseResponseID: "resp_0", Reservation: driver.Reservation{Duration: 30 * time.Second}},
		{ResponseID: "resp_1", BaseResponseID: "resp_0", Reservation: driver.Reservation{Duration: 31 * time.Second, Renewals: 1}},
	}
	states := []string{driver.ConversationActive, driver.ConversationArchived}
	sent := &requestLog{}
	c := openConversationsThrough(t, env.NewNamespace(t), sent.through)
	check := func(stored *driver.Conversation, update driver.ConversationUpdate) {
		t.Helper()
		want := stored.Clone()
		wantErr := update.Apply(want)
		sent.sent = nil
		_, err := c.update(t.Context(), stored.ConversationID, update)
		requests := []string{"PATCH conversations"}
		if wantErr != nil {
			requests = append(requests, "GET conversations")
		}
		if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(err)) + cmp.Diff(requests, sent.sent); diff != "" {
			t.Errorf("%+v of %+v (-want +got):\n%s", update, stored, diff)
		}
		c.want(t, want)
	}
	i := 0
	for _, stored := range heads {
		for _, expected := range heads {
			i++
			conversation := active(fmt.Sprintf("conv_%d", i))
			conversation.Head = stored
			c.mustCreate(t, conversation)
			check(conversation, driver.ConversationUpdate{ExpectedHead: &expected, ConversationPatch: driver.ConversationPatch{Title: new("changed")}})
		}
	}
	for _, stored := range states {
		for _, expected := range states {
			i++
			conversation := active(fmt.Sprintf("conv_%d", i))
			conversation.State = stored
			c.mustCreate(t, conversation)
			check(conversation, driver.ConversationUpdate{ExpectedState: expected, Head: &driver.Head{ResponseID: "resp_9"}})
		}
	}
}

// TestConversationInOtherWords: an expectation is met if someone has stored the same value in other words.
func TestConversationInOtherWords(t *testing.T) {
	c := openConversations(t)
	head := driver.Head{ResponseID: "resp_1", Reservation: driver.Reservation{Duration: 30 * time.Second}}
	conversation := active("conv_1")
	conversation.Head = head
	c.mustCreate(t, conversation)
	object := &v1alpha1.Conversation{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "conv.1"}}
	zero := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"reservation":{"renewals":0}}}`))
	if err := env.Client.Patch(t.Context(), object, zero); err != nil {
		t.Fatal(err)
	}
	conversation.Head.Reservation.Renewals = 1
	got, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{ExpectedHead: &head, Head: &conversation.Head})
	if err != nil {
		t.Fatal(err)
	}
	wantConversation(t, conversation, got)
}

// TestConversationChangedMeanwhile: a conversation that is as expected again when it is read is changed, unless it is changed once more.
func TestConversationChangedMeanwhile(t *testing.T) {
	for name, changedAgain := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			direct := openConversations(t)
			direct.mustCreate(t, active("conv_1"))
			setHead := func(id string) error {
				_, err := direct.update(t.Context(), "conv_1", driver.ConversationUpdate{Head: &driver.Head{ResponseID: id}})
				return err
			}
			patches := 0
			c := openConversationsThrough(t, direct.namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPatch {
					return next.RoundTrip(r)
				}
				patches++
				if patches == 1 || patches == 2 && changedAgain {
					if err := setHead("theirs"); err != nil {
						return nil, err
					}
				}
				response, err := next.RoundTrip(r)
				if patches == 1 {
					err = errors.Join(err, setHead(""))
				}
				return response, err
			})
			want := active("conv_1")
			want.Head.ResponseID = "ours"
			_, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{ExpectedHead: &driver.Head{}, Head: &want.Head})
			if changedAgain {
				want.Head.ResponseID = "theirs"
				if !errors.Is(err, driver.ErrConflict) || driver.IsRetryable(err) {
					t.Errorf("got %v, want a conflict", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			c.want(t, want)
		})
	}
}

// TestConversationExtended: an item is hidden although the rest of the conversation changes all the time, and a member of the metadata is set
// once it does not. If the list or the metadata changes, nothing is lost.
func TestConversationExtended(t *testing.T) {
	theirs := driver.ConversationUpdate{Hide: &driver.HiddenItem{ResponseID: "theirs", Number: 1}}
	ours := driver.ConversationUpdate{Hide: &driver.HiddenItem{ResponseID: "<&>\u2028é", Number: 2}}
	title := driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{Title: new("title")}}
	member := func(name string) driver.ConversationUpdate {
		return driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{MetadataMembers: map[string]json.RawMessage{name: json.RawMessage(`"<x>"`)}}}
	}
	withHidden := func(items ...driver.HiddenItem) *driver.Conversation {
		c := active("conv_1")
		c.HiddenItems = items
		return c
	}
	withMetadata := func(metadata string) *driver.Conversation {
		c := active("conv_1")
		c.Metadata = json.RawMessage(metadata)
		return c
	}
	const unusual = `{"<&>":"\u2028é","f":1e300,"i":123456789012,"n":null,"l":[null,{"n":null}]}`
	for name, tc := range map[string]struct {
		stored       *driver.Conversation
		theirs, ours driver.ConversationUpdate // theirs comes before the first patch
		want         *driver.Conversation
		wantPatches  int
	}{
		"first hidden item": {active("conv_1"), title, ours, withHidden(*ours.Hide), 1},
		"next hidden item":  {withHidden(*theirs.Hide), title, ours, withHidden(*theirs.Hide, *ours.Hide), 1},
		// A conflict takes two patches: the one whose test fails, and the one that expects the version.
		"two first hidden items":  {active("conv_1"), theirs, ours, withHidden(*theirs.Hide, *ours.Hide), 3},
		"beside unusual metadata": {withMetadata(unusual), title, driver.ConversationUpdate{Hide: ours.Hide}, withMetadata(unusual), 1},
		"first members":           {active("conv_1"), title, member("a"), withMetadata(`{"a":"<x>"}`), 2},
		"next member":             {withMetadata(`{"<b>":1}`), title, member("a"), withMetadata(`{"<b>":1,"a":"<x>"}`), 2},
		"two members":             {withMetadata(`{}`), member("b"), member("a"), withMetadata(`{"a":"<x>","b":"<x>"}`), 2},
		"next to unusual members": {withMetadata(unusual), title, member("a"), withMetadata(unusual[:len(unusual)-1] + `,"a":"<x>"}`), 2},
	} {
		t.Run(name, func(t *testing.T) {
			direct := openConversations(t)
			direct.mustCreate(t, tc.stored)
			patches := 0
			c := openConversationsThrough(t, direct.namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPatch {
					return next.RoundTrip(r)
				}
				patches++
				update := tc.theirs
				if patches > 1 {
					update = driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{Title: new(fmt.Sprintf("title %d", patches))}}
				}
				if patches == 1 || tc.ours.Hide != nil {
					if _, err := direct.update(t.Context(), "conv_1", update); err != nil {
						return nil, err
					}
				}
				return next.RoundTrip(r)
			})
			if _, err := c.update(t.Context(), "conv_1", tc.ours); err != nil {
				t.Fatal(err)
			}
			if patches != tc.wantPatches {
				t.Errorf("%d patches, want %d", patches, tc.wantPatches)
			}
			got, err := direct.get(t.Context(), "conv_1")
			if err != nil {
				t.Fatal(err)
			}
			got.Title = tc.want.Title
			if tc.want.Metadata != nil && tc.ours.Hide != nil {
				tc.want.HiddenItems = []driver.HiddenItem{*tc.ours.Hide}
			}
			wantConversation(t, tc.want, got)
		})
	}
}

// TestConversationWriters: of the writers that expect the same head, one succeeds.
func TestConversationWriters(t *testing.T) {
	const writers, rounds = 16, 8
	c := openConversations(t)
	c.mustCreate(t, active("conv_1"))
	var head driver.Head
	for round := range rounds {
		var won atomic.Pointer[driver.Conversation]
		var wins, conflicts atomic.Int32
		var writing sync.WaitGroup
		for writer := range writers {
			writing.Go(func() {
				next := driver.Head{
					ResponseID: fmt.Sprintf("resp_%d_%d", round, writer), BaseResponseID: head.ResponseID, Reservation: driver.Reservation{Duration: time.Minute},
				}
				updated, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{ExpectedHead: &head, Head: &next})
				switch {
				case err == nil && updated.Head == next:
					wins.Add(1)
					won.Store(updated)
				case errors.Is(err, driver.ErrConflict):
					conflicts.Add(1)
				default:
					t.Errorf("got %+v and error %v", updated, err)
				}
			})
		}
		writing.Wait()
		if wins.Load() != 1 || conflicts.Load() != writers-1 {
			t.Fatalf("%d writers succeeded and %d had a conflict", wins.Load(), conflicts.Load())
		}
		c.want(t, won.Load())
		head = won.Load().Head
	}
}

// TestNoConversation: without a conversation, or with one that is being deleted, every call but the deletion reports that it does not exist.
func TestNoConversation(t *testing.T) {
	c := openConversations(t)
	held := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "conv.held", Finalizers: []string{"example.com/hold"}},
		Spec:       v1alpha1.ConversationSpec{ConversationID: "conv_held"},
	}
	if err := env.Client.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := c.remove(t.Context(), "conv_held"); err != nil {
		t.Fatal(err)
	}
	// The name is the hash of another ID than that of the object. The API server cannot compute it.
	other := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.ObjectName("Hashed")}, Spec: v1alpha1.ConversationSpec{ConversationID: "Another"},
	}
	if err := env.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, id := range []string{"conv_none", "conv_held", "Hashed"} {
		calls := map[string]func(id string) error{
			"get": func(id string) error { _, err := c.get(ctx, id); return err },
			"update": func(id string) error {
				_, err := c.update(ctx, id, driver.ConversationUpdate{ExpectedHead: &driver.Head{}})
				return err
			},
			"patch": func(id string) error {
				_, err := c.update(ctx, id, driver.ConversationUpdate{ConversationPatch: driver.ConversationPatch{Title: new("a")}})
				return err
			},
		}
		if id != "Hashed" { // only the metadata of the object is read
			calls["save a summary"] = func(id string) error {
				return c.SaveSummary(ctx, c.namespace, id, driver.Summary{EndTurn: 1, Content: "a"})
			}
			calls["summaries"] = func(id string) error { _, err := c.Summaries(ctx, c.namespace, id); return err }
		}
		for name, call := range calls {
			err := call(id)
			if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.CodeConversationNotFound || e.ConversationID != id {
				t.Errorf("%s, %s: got %v, want ErrConversationNotFound", id, name, err)
			}
		}
	}
	if err := c.remove(t.Context(), "conv_none"); err != nil {
		t.Error(err)
	}
	// Until the finalizer is removed, the ID is taken.
	posts := 0
	c = openConversationsThrough(t, c.namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			if posts++; posts == 2 {
				release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				if err := env.Client.Patch(t.Context(), held, release); err != nil {
					return nil, err
				}
			}
		}
		return next.RoundTrip(r)
	})
	c.mustCreate(t, active("conv_held"))
	if posts != 2 {
		t.Errorf("%d attempts, want 2", posts)
	}
}

// TestConversationAgain: a call is repeated if that can help, and a creation whose response was lost has succeeded.
func TestConversationAgain(t *testing.T) {
	var failures atomic.Int32
	fail := loseResponse
	c := openConversationsThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if failures.Add(-1) >= 0 {
			return fail(next, r)
		}
		return next.RoundTrip(r)
	})
	want := active("conv_1")
	want.Metadata, want.Head.ResponseID = json.RawMessage(`{"b":2,"a":1.0}`), "resp_1"
	failures.Store(1)
	if _, err := c.create(t.Context(), want); err != nil {
		t.Errorf("create: %v", err)
	}
	for name, fails := range map[string]func(http.RoundTripper, *http.Request) (*http.Response, error){"lost": loseResponse, "overloaded": overloaded} {
		fail = fails
		for call, do := range map[string]func() error{
			"get": func() error { _, err := c.get(t.Context(), "conv_1"); return err },
			"update": func() error {
				_, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{State: driver.ConversationActive})
				return err
			},
			"delete": func() error { return c.remove(t.Context(), "conv_2") },
			"summaries": func() error {
				_, err := driver.Retry(t.Context(), func() ([]driver.Summary, error) { return c.Summaries(t.Context(), c.namespace, "conv_1") })
				return err
			},
			"save a summary": func() error { return c.saveSummary(t.Context(), "conv_1", driver.Summary{EndTurn: 1, Content: name}) },
		} {
			if call == "save a summary" && name != "lost" {
				continue
			}
			failures.Store(2)
			if err := do(); err != nil {
				t.Errorf("%s, %s: %v", call, name, err)
			}
		}
	}
	fail = func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		// Another one is created before ours: the attempt without a response has not succeeded.
		if _, err := openConversationsThrough(t, c.namespace, http.RoundTripper.RoundTrip).create(t.Context(), active("conv_3")); err != nil {
			return nil, err
		}
		return loseResponse(next, r)
	}
	failures.Store(1)
	other := active("conv_3")
	other.Title = "ours"
	if _, err := c.create(t.Context(), other); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("got %v, want a conflict with another conversation", err)
	}
}

// TestDeletedConversationIsCreatedAgain: a deletion whose response was lost does not delete the next conversation with the ID.
func TestDeletedConversationIsCreatedAgain(t *testing.T) {
	others := openConversationsThrough(t, env.NewNamespace(t), http.RoundTripper.RoundTrip)
	create := func() error {
		_, err := others.create(t.Context(), active("conv_1"))
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	attempts := 0
	c := openConversationsThrough(t, others.namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodDelete {
			return next.RoundTrip(r)
		}
		if attempts++; attempts > 1 {
			return next.RoundTrip(r)
		}
		response, err := loseResponse(next, r)
		return response, errors.Join(err, create())
	})
	if err := c.remove(t.Context(), "conv_1"); err != nil {
		t.Error(err)
	}
	if _, err := others.get(t.Context(), "conv_1"); err != nil || attempts != 2 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

// TestConversationErrors: errors of the API server have the code that explains them.
func TestConversationErrors(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   driver.Code
	}{
		"no CRDs":   {http.StatusNotFound, "404 page not found\n", driver.CodeUnsupported},
		"forbidden": {http.StatusForbidden, "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			requests := 0
			c := openConversationsThrough(t, env.NewNamespace(t), func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
				requests++
				response := answer(r, tc.status)
				response.Body = io.NopCloser(strings.NewReader(tc.body))
				return response, nil
			})
			for call, do := range map[string]func() error{
				"create":         func() error { _, err := c.create(t.Context(), active("conv_1")); return err },
				"get":            func() error { _, err := c.get(t.Context(), "conv_1"); return err },
				"update":         func() error { _, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{}); return err },
				"delete":         func() error { return c.remove(t.Context(), "conv_1") },
				"save a summary": func() error { return c.saveSummary(t.Context(), "conv_1", driver.Summary{EndTurn: 1, Content: "a"}) },
				"summaries":      func() error { _, err := c.Summaries(t.Context(), c.namespace, "conv_1"); return err },
			} {
				requests = 0
				err := do()
				e, ok := errors.AsType[*driver.Error](err)
				if err == nil || ok != (tc.want != "") || ok && (e.Code != tc.want || e.ConversationID != "conv_1" || e.Retryable) {
					t.Errorf("%s: got %v, want the code %q", call, err, tc.want)
				}
				if requests != 1 {
					t.Errorf("%s: %d requests, want 1", call, requests)
				}
			}
		})
	}
}

// TestInvalidConversations: what a cluster cannot store is refused, and not taken for a conflict.
func TestInvalidConversations(t *testing.T) {
	sent := &requestLog{}
	c := openConversationsThrough(t, env.NewNamespace(t), sent.through)
	c.mustCreate(t, active("conv_1"))
	wantInvalid := func(what string, err error, requests ...string) {
		t.Helper()
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.CodeInvalid || e.ConversationID == "" || e.Retryable {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
		if diff := cmp.Diff(requests, sent.sent); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", what, diff)
		}
	}
	sent.sent = nil
	_, err := c.update(t.Context(), "conv_1", driver.ConversationUpdate{
		ExpectedHead: &driver.Head{}, Head: &driver.Head{ResponseID: "resp_1", Reservation: driver.Reservation{Duration: time.Hour}},
	})
	wantInvalid("a long reservation", err, "PATCH conversations")
	c.want(t, active("conv_1"))
}

// TestConversationQuota: an exceeded quota is reported as one.
func TestConversationQuota(t *testing.T) {
	c := openConversations(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/conversations.sessions.catena.dev":         resource.MustParse("1"),
			"count/conversationsummaries.sessions.catena.dev": resource.MustParse("1"),
		}},
	}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && len(quota.Status.Used) != 2 {
			return fmt.Errorf("kube-controller-manager has not updated the usage: %+v", quota.Status)
		}
		return err
	})
	c.mustCreate(t, active("conv_1"))
	if err := c.saveSummary(t.Context(), "conv_1", driver.Summary{EndTurn: 1, Content: "a"}); err != nil {
		t.Fatal(err)
	}
	_, createErr := c.create(t.Context(), active("conv_2"))
	for what, err := range map[string]error{
		"create": createErr, "save a summary": c.saveSummary(t.Context(), "conv_1", driver.Summary{EndTurn: 2, Content: "a"}),
	} {
		if !errors.Is(err, store.ErrQuotaExceeded) || !strings.Contains(err.Error(), "conversation ") {
			t.Errorf("%s: got %v, want ErrQuotaExceeded", what, err)
		}
	}
}
