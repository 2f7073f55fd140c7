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

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// deleting is the part of a spec that asks for the deletion of a conversation with its turns.
const deleting = `{"state":"Deleting"}`

// turnOf returns a turn of a conversation.
func turnOf(conversation, namespace, id string, previous ...string) *v1alpha1.ResponseSession {
	s := turn(namespace, id, previous...)
	s.Spec.ConversationID = conversation
	return s
}

// createRow creates turns of a conversation, each of which continues the one before it.
func createRow(t *testing.T, conversation, namespace string, ids ...string) {
	t.Helper()
	previous := ""
	for _, id := range ids {
		create(t, turnOf(conversation, namespace, id, previous))
		previous = id
	}
}

// conversationState returns the state of a conversation, or "" if it does not exist.
func conversationState(t *testing.T, namespace, id string) string {
	t.Helper()
	c := &v1alpha1.Conversation{}
	err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, c)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return c.Spec.State
}

// awaitDeleted waits until a conversation is deleted.
func awaitDeleted(t *testing.T, namespace, id string) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		if state := conversationState(t, namespace, id); state != "" {
			return fmt.Errorf("conversation %s still exists, in the state %s", id, state)
		}
		return nil
	})
}

// wantDeleted waits until a conversation is deleted, and then checks which turns of the namespace are neither deleted nor being deleted, sorted
// by name.
func wantDeleted(t *testing.T, namespace, id string, left ...string) {
	t.Helper()
	awaitDeleted(t, namespace, id)
	var got []string
	for _, s := range list(t, client.InNamespace(namespace)) {
		if s.DeletionTimestamp == nil {
			got = append(got, s.Spec.ResponseID)
		}
	}
	if diff := cmp.Diff(left, got); diff != "" {
		t.Errorf("turns after the deletion of %s (-want +got):\n%s", id, diff)
	}
}

// throughOperator has a function handle the requests of a new operator until the test ends.
func throughOperator(t *testing.T, handle func(next http.RoundTripper, r *http.Request) (*http.Response, error)) {
	t.Helper()
	direct := connect
	connect = func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) { return handle(next, r) })
		})
		return config
	}
	restartOperator(t, func() {})
	t.Cleanup(func() {
		connect = direct
		restartOperator(t, func() {})
	})
}

// isDeletion reports whether a request deletes the turn with an ID.
func isDeletion(r *http.Request, namespace, id string) bool {
	return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+namespace+"/responsesessions/"+v1alpha1.ObjectName(id))
}

// TestDeletionsOfNamespace: a namespace deletes two conversations at a time, however many workers are free.
func TestDeletionsOfNamespace(t *testing.T) {
	named := func(namespace, name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	order := controllers.DeletionOrder(named("a", "1"), named("a", "2"), named("a", "3"), named("b", "1"))
	var first []string
	for order.Len() > 0 {
		first = append(first, order.Pop().Namespace)
	}
	slices.Sort(first)
	if diff := cmp.Diff([]string{"a", "a", "b"}, first); diff != "" {
		t.Errorf("namespaces of the first deletions (-want +got):\n%s", diff)
	}
	order.Done(named("a", "1"))
	if order.Len() == 0 {
		t.Error("the third deletion of a namespace waits after the first one has ended")
	}
}

// TestDeleteConversation: a patch of the state deletes a conversation with its summaries, and with the turns that nothing else needs.
//
//	a - b - c - d    p - q    all are turns of conv_1, except e
//	     \   \       |
//	      e   f      pin
//	      |   |
//	   fork   branch
func TestDeleteConversation(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	createRow(t, "conv_1", ns, "a", "b", "c", "d")
	createRow(t, "conv_1", other, "a", "b")
	create(t, turnOf("fork", ns, "e", "b"), turnOf("conv_1", ns, "f", "c"), turnOf("conv_1", ns, "p"), turnOf("conv_1", ns, "q", "p"))
	converse(t, ns, "pin", endsAt("p"))
	converse(t, ns, "conv_1", endsAt("d"))
	converse(t, ns, "fork", endsAt("e"))
	converse(t, ns, "branch", endsAt("f"))
	summary := newSummary(ns, "conv_1")
	conversation := &v1alpha1.Conversation{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "conv.1"}, conversation); err != nil {
		t.Fatal(err)
	}
	summary.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ConversationKind, Name: conversation.Name, UID: conversation.UID,
	}}
	if err := env.Client.Create(t.Context(), summary); err != nil {
		t.Fatal(err)
	}

	setHead(t, ns, "branch", `{"state":"Deleting"}`) // has no turn of its own
	wantDeleted(t, ns, "branch", "a", "b", "c", "d", "e", "f", "p", "q")
	setHead(t, ns, "conv_1", deleting)
	wantDeleted(t, ns, "conv_1", "a", "b", "e", "p")
	wantHistories(t, ns, map[string]history{"fork": historyOf(3), "pin": historyOf(1)})
	testutil.Eventually(t, func(context.Context) error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(summary), summary); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the summary still exists: %w", err)
		}
		return nil
	})
	setHead(t, ns, "fork", deleting)
	wantDeleted(t, ns, "fork", "a", "b", "p") // which belong to a conversation that does not exist any more
	wantSessions(t, other, "a", "b")
}

// TestDeleteMisnamedConversation: no turns belong to a conversation whose name is that of another ID.
func TestDeleteMisnamedConversation(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turnOf("CONV", ns, "a"), turnOf("Conv", ns, "b"))
	stray := unstructuredConversation(t, ns, "Conv", deleting)
	stray.SetName(v1alpha1.ObjectName("CONV"))
	if err := env.Client.Create(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	wantDeleted(t, ns, "CONV", "a", "b")
}

// TestDeleteReservedConversation: a deletion waits for the turn for which the head is reserved, until its reservation was seen unchanged for the
// whole of its duration.
func TestDeleteReservedConversation(t *testing.T) {
	restartOperator(t, func() {}) // with the clock at its start
	ns := env.NewNamespace(t)
	for _, id := range []string{"saved", "renewed", "dead", "lost"} {
		create(t, turnOf(id, ns, id+"_1"))
		converse(t, ns, id, reserve(id+"_2", id+"_1"))
	}
	create(t, turnOf("lost", ns, "lost_2")) // not in its place
	for _, id := range []string{"saved", "renewed", "dead", "lost"} {
		setHead(t, ns, id, deleting)
	}
	marker := 0
	wantKept := func(ids ...string) { // after all that was done before
		t.Helper()
		marker++
		id := fmt.Sprintf("marker_%d", marker)
		create(t, turnOf(id, ns, id+"_1"))
		converse(t, ns, id, deleting)
		wantDeleted(t, ns, id, ids...)
	}
	wantKept("dead_1", "lost_1", "lost_2", "renewed_1", "saved_1")
	create(t, turnOf("saved", ns, "saved_2", "saved_1"))
	wantDeleted(t, ns, "saved", "dead_1", "lost_1", "lost_2", "renewed_1")

	op.clock.SetTime(startTime.Add(29 * time.Second))
	setHead(t, ns, "renewed", `{"reservation":{"durationSeconds":30,"renewals":1}}`)
	wantKept("dead_1", "lost_1", "lost_2", "renewed_1")
	testutil.Eventually(t, func(context.Context) error { // the renewal is seen
		if record, _ := op.named.Get(ns, "renewed"); record.Generation < 3 {
			return fmt.Errorf("the view has the generation %d", record.Generation)
		}
		return nil
	})
	wantKept("dead_1", "lost_1", "lost_2", "renewed_1")
	op.clock.SetTime(startTime.Add(30 * time.Second))
	awaitDeleted(t, ns, "dead")
	wantDeleted(t, ns, "lost", "renewed_1")
	op.clock.SetTime(startTime.Add(time.Hour))
	wantDeleted(t, ns, "renewed")
}

// TestDeleteLooks: what was stored since the views were current is kept, and so are turns that have left the conversation.
func TestDeleteLooks(t *testing.T) {
	ns := env.NewNamespace(t)
	var late, moved, back sync.Once
	throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if isListOf(r, ns, "spec.previousResponseID=late_2") {
			late.Do(func() { create(t, turn(ns, "child", "late_2")) })
		}
		if isListOf(r, ns, "spec.previousResponseID=back_2") {
			back.Do(func() {
				converse(t, ns, "fork", endsAt("back_2"))
				testutil.Eventually(t, func(context.Context) error {
					if _, found := op.named.Get(ns, "fork"); !found {
						return errors.New("the view does not have the fork")
					}
					return nil
				})
			})
		}
		if isDeletion(r, ns, "moved_2") {
			moved.Do(func() { overwrite(t, ns, "moved_2", `{"conversationID":"other"}`) })
		}
		return next.RoundTrip(r)
	})
	createRow(t, "late", ns, "late_1", "late_2")
	createRow(t, "moved", ns, "moved_1", "moved_2", "moved_3")
	createRow(t, "back", ns, "back_1", "back_2")
	converse(t, ns, "late", endsAt("late_2"))
	converse(t, ns, "moved", reserve("moved_3", "moved_2")) // which does not count again once the head is deleted
	converse(t, ns, "back", endsAt("back_2"))
	setHead(t, ns, "late", deleting)
	wantDeleted(t, ns, "late", "back_1", "back_2", "child", "late_1", "late_2", "moved_1", "moved_2", "moved_3")
	setHead(t, ns, "moved", deleting)
	wantDeleted(t, ns, "moved", "back_1", "back_2", "child", "late_1", "late_2", "moved_1", "moved_2")
	setHead(t, ns, "back", deleting)
	wantDeleted(t, ns, "back", "back_1", "back_2", "child", "late_1", "late_2", "moved_1", "moved_2")
	if got := get(t, ns, "moved_2").Spec.ConversationID; got != "other" {
		t.Errorf("the turn was not moved: it belongs to %s", got)
	}
}

// TestDeletedConversationIsCreatedAgain: a deletion of turns ends with the conversation that asked for it. One that is created with its name, even before
// the view shows it, keeps the turns.
func TestDeletedConversationIsCreatedAgain(t *testing.T) {
	ns := env.NewNamespace(t)
	var again sync.Once
	throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		isLook := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
		if isLook && strings.HasSuffix(r.URL.Path, "/"+ns+"/conversations/conv") {
			again.Do(func() {
				if err := env.Client.Delete(t.Context(), unstructuredConversation(t, ns, "conv", `{}`)); err != nil {
					t.Error(err)
				}
				converse(t, ns, "conv", endsAt("b"))
			})
		}
		return next.RoundTrip(r)
	})
	createRow(t, "conv", ns, "a", "b")
	converse(t, ns, "conv", endsAt("b"))
	var uid types.UID
	testutil.Eventually(t, func(context.Context) error {
		known, found := op.named.Get(ns, "conv")
		if !found {
			return errors.New("the view does not have the conversation")
		}
		uid = known.UID.Text()
		return nil
	})
	setHead(t, ns, "conv", deleting)
	testutil.Eventually(t, func(context.Context) error {
		if known, found := op.named.Get(ns, "conv"); !found || known.UID.Text() == uid {
			return errors.New("the view does not have the new conversation")
		}
		return nil
	})
	settle(t, ns)
	for _, id := range []string{"a", "b"} {
		if turn := get(t, ns, id); turn.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", id)
		}
	}
}

// isListOf reports whether a request lists the turns that a field selector selects.
func isListOf(r *http.Request, namespace, selector string) bool {
	return strings.HasSuffix(r.URL.Path, "/"+namespace+"/responsesessions") && r.URL.Query().Get("fieldSelector") == selector
}

// TestDeleteWithStaleView: while the watch of the sessions lags behind, a deletion waits for the turns that it does not show.
func TestDeleteWithStaleView(t *testing.T) {
	ns := env.NewNamespace(t)
	gate := &watchGate{}
	var lists atomic.Int32
	throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if isListOf(r, ns, "spec.conversationID=conv_1") {
			lists.Add(1)
		}
		return gate.wrap(next).RoundTrip(r)
	})
	settle(t, ns)
	gate.Lock()
	createRow(t, "conv_1", ns, "a", "b")
	converse(t, ns, "conv_1", `{"headResponseID":"b","state":"Deleting"}`)
	testutil.Eventually(t, func(context.Context) error {
		if n := lists.Load(); n < 2 {
			return fmt.Errorf("the turns were listed %d times, want twice", n)
		}
		return nil
	})
	gate.Unlock()
	wantDeleted(t, ns, "conv_1")
}

// TestDeletionSurvivesOperator: wherever the operator dies during a deletion, the next one ends it, and deletes nothing else.
func TestDeletionSurvivesOperator(t *testing.T) {
	const deletions = 3 // of two turns, and of the conversation
	for nth := 1; nth <= deletions; nth++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("deletion %d, applied: %t", nth, applied), func(t *testing.T) {
				ns := env.NewNamespace(t)
				createRow(t, "conv_1", ns, "a", "b", "c")
				create(t, turnOf("conv_1", ns, "d", "a"), turn(ns, "other", "d"))
				converse(t, ns, "fork", endsAt("a"))
				converse(t, ns, "conv_1", endsAt("c"))
				t.Run("first", func(t *testing.T) {
					var made atomic.Int32
					dead := make(chan struct{})
					throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
						if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/"+ns+"/") {
							return next.RoundTrip(r)
						}
						n := made.Add(1)
						if n == int32(nth) {
							defer close(dead)
						}
						if n > int32(nth) || n == int32(nth) && !applied {
							return nil, errors.New("the operator is dead")
						}
						response, err := next.RoundTrip(r)
						if n < int32(nth) || err != nil {
							return response, err
						}
						return nil, errors.Join(errors.New("the operator is dead"), response.Body.Close())
					})
					setHead(t, ns, "conv_1", deleting)
					select {
					case <-dead:
					case <-time.After(testutil.Patience):
						t.Fatalf("the operator has made %d deletions", made.Load())
					}
				})
				wantDeleted(t, ns, "conv_1", "a", "d", "other")
				if state := conversationState(t, ns, "fork"); state == "" {
					t.Error("the fork is deleted")
				}
			})
		}
	}
}

// TestDeletionIsRefused: a deletion that the API server refuses is reported once. Others proceed, and a restart continues it.
func TestDeletionIsRefused(t *testing.T) {
	ns := env.NewNamespace(t)
	t.Run("refused", func(t *testing.T) {
		throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			if !isDeletion(r, ns, "held_1") {
				return next.RoundTrip(r)
			}
			body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s is on hold"}`, path.Base(r.URL.Path))
			return &http.Response{
				StatusCode: http.StatusForbidden, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		})
		createRow(t, "held", ns, "held_0", "held_1", "held_2")
		create(t, turnOf("held", ns, "held"), turnOf("held", ns, "held_branch", "held_0"))
		createRow(t, "free", ns, "free_1", "free_2")
		converse(t, ns, "held", endsAt("held_2"))
		converse(t, ns, "free", endsAt("free_2"))
		setHead(t, ns, "held", deleting)
		wantSessions(t, ns, "free_1", "free_2", "held_0", "held_1")
		setHead(t, ns, "free", deleting)
		wantDeleted(t, ns, "free", "held_0", "held_1")
		failed := event{"held", "Warning", "DeletionFailed", "unable to delete a turn of the conversation: held.1 is on hold"}
		wantEvents(t, ns, map[event]int{failed: 1})
		recorded := &eventsv1.EventList{}
		if err := env.Client.List(t.Context(), recorded, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		if recorded.Items[0].Series != nil {
			t.Errorf("the event was repeated: %+v", recorded.Items[0].Series)
		}
		if state := conversationState(t, ns, "held"); state != v1alpha1.ConversationStateDeleting {
			t.Errorf("the state is %q", state)
		}
	})
	wantDeleted(t, ns, "held")
}

// TestDeletionOfHeldTurns: a turn that a finalizer holds counts as deleted, and an object with the name of another ID does not continue a turn.
func TestDeletionOfHeldTurns(t *testing.T) {
	ns := env.NewNamespace(t)
	held := turnOf("conv_1", ns, "b", "a")
	held.Finalizers = []string{"example.com/hold"}
	stray := turnOf("other", ns, "Stray", "c") // continues nothing, because it has the name of another ID
	stray.Name = v1alpha1.ObjectName("Other")
	create(t, turnOf("conv_1", ns, "a"), held, turnOf("conv_1", ns, "c", "b"), stray)
	converse(t, ns, "conv_1", endsAt("c"))
	setHead(t, ns, "conv_1", deleting)
	wantDeleted(t, ns, "conv_1", "Stray")
	wantSessions(t, ns, "Stray", "b")
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := env.Client.Patch(t.Context(), held, release); err != nil {
		t.Fatal(err)
	}
	wantSessions(t, ns, "Stray")
}

// TestDeletionOfSnapshots: the chunks of a turn are deleted with it, without a sweep. Those that belong to another turn stay, although a
// deleted turn refers to them.
func TestDeletionOfSnapshots(t *testing.T) {
	ns := env.NewNamespace(t)
	refer := func(s *v1alpha1.ResponseSession, ref *v1alpha1.SnapshotReference) {
		s.Spec.Request, s.Spec.Response, s.Spec.Snapshot = nil, nil, ref
		create(t, s)
	}
	written := map[string]*v1alpha1.SnapshotReference{}
	for _, id := range []string{"a", "b", "other"} {
		ref, err := snapshot.Write(t.Context(), chunkStore(t), types.NamespacedName{Namespace: ns, Name: id}, snapshot.Bodies{Request: []byte(`{"input":"hi"}`)})
		if err != nil {
			t.Fatal(err)
		}
		written[id] = ref
	}
	refer(turnOf("conv_1", ns, "a"), written["a"])
	refer(turnOf("conv_1", ns, "b", "a"), written["b"])
	refer(turnOf("conv_1", ns, "thief", "b"), written["other"])
	refer(turn(ns, "other"), written["other"])
	converse(t, ns, "conv_1", deleting)
	wantDeleted(t, ns, "conv_1", "other")
	testutil.Eventually(t, func(context.Context) error {
		var got []string
		for _, chunk := range testsession.Chunks(t, env.Client, ns) {
			got = append(got, chunk.Annotations[v1alpha1.SessionAnnotation])
		}
		if diff := cmp.Diff([]string{"other"}, got); diff != "" {
			return fmt.Errorf("the sessions of the chunks (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestChunksOfRestoredTurn: a turn that is restored while its chunks are about to be deleted keeps them.
func TestChunksOfRestoredTurn(t *testing.T) {
	ns := env.NewNamespace(t)
	restored := make(chan struct{})
	restore := func() {}
	var once sync.Once
	throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/"+ns+"/responsesessions/a") {
			once.Do(func() { restore() })
		}
		return response, err
	})
	ref, err := snapshot.Write(t.Context(), chunkStore(t), types.NamespacedName{Namespace: ns, Name: "a"}, snapshot.Bodies{Request: []byte(`{"input":"hi"}`)})
	if err != nil {
		t.Fatal(err)
	}
	session := func(of *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
		of.Spec.Request, of.Spec.Response, of.Spec.Snapshot = nil, nil, ref
		return of
	}
	create(t, session(turnOf("conv_1", ns, "a")))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a")})
	settle(t, ns)
	restore = func() {
		defer close(restored)
		testutil.Eventually(t, func(context.Context) error {
			err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, &v1alpha1.ResponseSession{})
			if err == nil {
				return errors.New("the deleted turn still exists")
			}
			return client.IgnoreNotFound(err)
		})
		create(t, session(turn(ns, "a")))
	}
	converse(t, ns, "conv_1", `{"headResponseID":"a","state":"Deleting"}`)
	<-restored
	wantDeleted(t, ns, "conv_1", "a")
	if got := testsession.Chunks(t, env.Client, ns); len(got) != 1 {
		t.Errorf("got %d chunks, want 1", len(got))
	}
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a")})
}

// TestDeletionLooksAfterWait: a turn that is continued while its deletion waits, because the namespace keeps its pace, is kept.
func TestDeletionLooksAfterWait(t *testing.T) {
	turnDeletions = 40 // ten cost as much as the burst, and the clock stands still
	restartOperator(t, func() {})
	defer func() {
		turnDeletions = 1e6
		restartOperator(t, func() {})
	}()
	ns := env.NewNamespace(t)
	const turns = 14
	var ids []string
	verdicts := map[string]verdict{}
	for i := range turns {
		ids = append(ids, fmt.Sprintf("t%02d", i))
		verdicts[ids[i]] = resolved(int32(i+1), ids[0])
	}
	createRow(t, "conv_1", ns, ids...)
	wantVerdicts(t, ns, verdicts)
	settle(t, ns) // a deletion that meets a write of the operator fails, and has its cost
	converse(t, ns, "conv_1", `{"headResponseID":"t13","state":"Deleting"}`)
	wantSessions(t, ns, ids[:4]...)
	create(t, turn(ns, "child", "t03"))
	testutil.Eventually(t, func(context.Context) error {
		if !op.view.IsContinued(ns, "t03") {
			return errors.New("the view does not have the new turn")
		}
		return nil
	})
	op.clock.SetTime(op.clock.Now().Add(time.Hour))
	wantDeleted(t, ns, "conv_1", "child", "t00", "t01", "t02", "t03")
}

// TestDeletionPace: a namespace with many turns to delete keeps its pace, and does not delay others.
func TestDeletionPace(t *testing.T) {
	turnDeletions = 40 // ten cost as much as the burst, and the clock stands still
	restartOperator(t, func() {})
	defer func() {
		turnDeletions = 1e6
		restartOperator(t, func() {})
	}()
	greedy := env.NewNamespace(t)
	const conversations, turns = 5, 4
	for i := range conversations {
		var ids []string
		for j := range turns {
			ids = append(ids, fmt.Sprintf("t%d-%d", i, j))
		}
		id := fmt.Sprintf("conv_%d", i)
		createRow(t, id, greedy, ids...)
		converse(t, greedy, id, endsAt(ids[turns-1]))
	}
	for i := range conversations {
		setHead(t, greedy, fmt.Sprintf("conv_%d", i), deleting)
	}
	for range 5 { // meanwhile, the others could be deleted
		modest := env.NewNamespace(t)
		createRow(t, "conv_0", modest, "a")
		wantVerdicts(t, modest, map[string]verdict{"a": resolved(1, "a")}) // a deletion that meets the write of the status fails, and has its cost
		converse(t, modest, "conv_0", deleting)
		wantDeleted(t, modest, "conv_0")
	}
	if left := len(testsession.Metadata(t, env.Client, greedy)); left < conversations*turns-11 {
		t.Errorf("%d turns are left although only eleven could be deleted", left)
	}
	for i := range conversations {
		id := fmt.Sprintf("conv_%d", i)
		testutil.Eventually(t, func(context.Context) error {
			op.clock.SetTime(op.clock.Now().Add(time.Hour))
			if state := conversationState(t, greedy, id); state != "" {
				return fmt.Errorf("%s is in the state %s", id, state)
			}
			return nil
		})
	}
	wantSessions(t, greedy)
}
