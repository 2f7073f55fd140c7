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
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

// history is the status of a conversation without its times.
type history struct {
	Status metav1.ConditionStatus
	Reason string
	Turns  int32
}

var noTurns = history{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoTurns}

func historyOf(turns int32) history {
	return history{metav1.ConditionTrue, v1alpha1.ReasonResolved, turns}
}

func reserved(turns int32) history {
	return history{metav1.ConditionUnknown, v1alpha1.ReasonHeadReserved, turns}
}

func pendingHistory(turns int32) history {
	return history{metav1.ConditionUnknown, v1alpha1.ReasonTurnPending, turns}
}

func brokenHistory(reason string, turns int32) history {
	return history{metav1.ConditionFalse, reason, turns}
}

// converse creates a conversation with a part of a spec, in JSON.
func converse(t *testing.T, namespace, id, spec string) {
	t.Helper()
	if err := env.Client.Create(t.Context(), unstructuredConversation(t, namespace, id, spec)); err != nil {
		t.Fatalf("create conversation %s: %v", id, err)
	}
}

// setHead merges a part of a spec, in JSON, into that of a conversation.
func setHead(t *testing.T, namespace, id, spec string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))
	if err := env.Client.Patch(t.Context(), unstructuredConversation(t, namespace, id, `{}`), patch); err != nil {
		t.Fatalf("change conversation %s: %v", id, err)
	}
}

// reserve returns the part of a spec that reserves the place after a base, which may be empty, for a head.
func reserve(head, base string) string {
	if base == "" {
		return fmt.Sprintf(`{"headResponseID":%q,"baseResponseID":null,"reservation":{"durationSeconds":30}}`, head)
	}
	return fmt.Sprintf(`{"headResponseID":%q,"baseResponseID":%q,"reservation":{"durationSeconds":30}}`, head, base)
}

// endsAt returns the part of a spec that sets the head without a reservation.
func endsAt(head string) string {
	return fmt.Sprintf(`{"headResponseID":%q,"baseResponseID":null,"reservation":null}`, head)
}

// wantHistories waits until the conversations of a namespace have these statuses, by conversation ID, each for its current generation.
func wantHistories(t *testing.T, namespace string, want map[string]history) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		got := map[string]history{}
		list := &v1alpha1.ConversationList{}
		if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, c := range list.Items {
			condition := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHeadResolved)
			if condition == nil || condition.ObservedGeneration != c.Generation || c.Status.ObservedGeneration != c.Generation {
				return fmt.Errorf("%s has no verdict at generation %d: %+v", c.Spec.ConversationID, c.Generation, c.Status)
			}
			got[c.Spec.ConversationID] = history{condition.Status, condition.Reason, c.Status.Turns}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("histories (-want +got):\n%s", diff)
		}
		return nil
	})
}

func wantHistoryMessage(t *testing.T, namespace, id, want string) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		c := &v1alpha1.Conversation{}
		if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, c); err != nil {
			return err
		}
		if got := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHeadResolved); got == nil || got.Message != want {
			return fmt.Errorf("got the condition %+v, want the message %q", got, want)
		}
		return nil
	})
}

// statusWrites returns the number of writes to the status of a conversation.
func statusWrites(namespace, id string) int {
	return op.writes.to(fmt.Sprintf("/namespaces/%s/conversations/%s/status", namespace, v1alpha1.ObjectName(id)))
}

// TestHistory follows a conversation from its creation through reservations, turns, a rollback and deletions.
func TestHistory(t *testing.T) {
	ns := env.NewNamespace(t)
	want := func(h history) {
		t.Helper()
		wantHistories(t, ns, map[string]history{"conv_1": h})
	}
	converse(t, ns, "conv_1", `{}`)
	want(noTurns)
	wantHistoryMessage(t, ns, "conv_1", "The conversation has no turns.")

	setHead(t, ns, "conv_1", reserve("resp_1", ""))
	want(reserved(0))
	wantHistoryMessage(t, ns, "conv_1", `Response "resp_1", for which the head is reserved, is not stored as the next turn yet: until then, the history ends before it.`)
	create(t, turn(ns, "resp_1"))
	want(historyOf(1))

	setHead(t, ns, "conv_1", reserve("resp_2", "resp_1"))
	want(reserved(1))
	create(t, turn(ns, "resp_2", "resp_1"))
	want(historyOf(2))
	wantHistoryMessage(t, ns, "conv_1", "Every turn up to the root is stored and completed.")

	setHead(t, ns, "conv_1", endsAt("resp_1"))
	want(historyOf(1))
	setHead(t, ns, "conv_1", endsAt("resp_2"))
	want(historyOf(2))

	remove(t, ns, "resp_2")
	want(brokenHistory(v1alpha1.ReasonParentNotFound, 0))
	wantHistoryMessage(t, ns, "conv_1", `Response "resp_2" was not found.`)
	setHead(t, ns, "conv_1", `{"headResponseID":null}`)
	want(noTurns)
}

// TestHistoryTimes: the status has the times by which conversations are listed. That of the last turn does not go back, and a change that only
// removes something counts as one.
func TestHistoryTimes(t *testing.T) {
	ns := env.NewNamespace(t)
	later := startTime.AddDate(10, 0, 0)
	op.clock.SetTime(later)
	t.Cleanup(func() { op.clock.SetTime(startTime) })
	stored := turn(ns, "resp_1")
	create(t, stored)
	want := func(updated func(c *v1alpha1.Conversation) time.Time) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			c := &v1alpha1.Conversation{}
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "conv.1"}, c); err != nil {
				return err
			}
			s := c.Status
			if s.ObservedGeneration != c.Generation || s.LastActivityTime == nil || s.LastUpdateTime == nil ||
				!s.LastActivityTime.Equal(&stored.CreationTimestamp) || !s.LastUpdateTime.Time.Equal(updated(c)) {
				return fmt.Errorf("got %+v of %+v", s, c.ObjectMeta)
			}
			return nil
		})
	}
	written := func(c *v1alpha1.Conversation) time.Time {
		for _, entry := range c.ManagedFields {
			if entry.Subresource == "" {
				return entry.Time.Time
			}
		}
		return time.Time{}
	}
	converse(t, ns, "conv_1", endsAt("resp_1"))
	want(written)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"lastActivityTime":"2090-01-01T00:00:00Z"}}`))
	if err := env.Client.Status().Patch(t.Context(), unstructuredConversation(t, ns, "conv_1", `{}`), patch); err != nil {
		t.Fatal(err)
	}
	want(written)
	setHead(t, ns, "conv_1", `{"headResponseID":null}`)
	want(func(*v1alpha1.Conversation) time.Time { return later })
}

// TestBrokenHistory: the verdict is that on the chain of the head, or of the base as long as the head is only reserved, and follows every
// change of them.
func TestBrokenHistory(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "b", "a"), turn(ns, "c", "b"), turn(ns, "d", "c"))
	converse(t, ns, "head", endsAt("c"))
	converse(t, ns, "base", reserve("new", "c"))
	want := func(head, base history) {
		t.Helper()
		wantHistories(t, ns, map[string]history{"head": head, "base": base})
	}
	all := func(h history) { t.Helper(); want(h, h) }
	all(brokenHistory(v1alpha1.ReasonParentNotFound, 0))
	wantHistoryMessage(t, ns, "base", `Response "a", an ancestor of "c", was not found.`)

	create(t, turn(ns, "a"))
	want(historyOf(3), reserved(3))
	overwrite(t, ns, "a", `{"responseStatus":"failed"}`)
	all(brokenHistory(v1alpha1.ReasonTurnNotCompleted, 3))
	overwrite(t, ns, "a", `{"responseStatus":"in_progress"}`)
	want(history{metav1.ConditionUnknown, v1alpha1.ReasonTurnPending, 3}, reserved(3))
	remove(t, ns, "b")
	all(brokenHistory(v1alpha1.ReasonParentNotFound, 0))
	remove(t, ns, "a") // the chain still breaks at b
	create(t, turn(ns, "b"))
	want(historyOf(2), reserved(2))
	remove(t, ns, "c")
	all(brokenHistory(v1alpha1.ReasonParentNotFound, 0))
	wantHistoryMessage(t, ns, "base", `Response "c" was not found.`)
	create(t, turn(ns, "c", "b"), turn(ns, "new", "c"))
	want(historyOf(2), historyOf(3))
}

// TestLostHead: a turn that is stored too late, after another turn than the base, is not the head that is reserved.
func TestLostHead(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "late", "a"))
	converse(t, ns, "after-a", reserve("late", "a"))
	converse(t, ns, "after-b", reserve("late", "b"))
	converse(t, ns, "first", reserve("late", ""))
	converse(t, ns, "unreserved", endsAt("late"))
	wantHistories(t, ns, map[string]history{
		"after-a": historyOf(2), "after-b": reserved(2), "first": reserved(0), "unreserved": historyOf(2),
	})
}

// TestMisnamedHistory: neither a session nor a conversation counts under an ID that its name does not follow from.
func TestMisnamedHistory(t *testing.T) {
	ns := env.NewNamespace(t)
	// The API server can check that "Turn" needs a hashed name, but not which one.
	misnamed := turn(ns, "Turn")
	misnamed.Name = v1alpha1.ObjectName("OTHER")
	create(t, misnamed)
	converse(t, ns, "own-id", endsAt("Turn"))
	converse(t, ns, "other-id", endsAt("OTHER"))
	stray := unstructuredConversation(t, ns, "Conv", `{}`)
	stray.SetName(v1alpha1.ObjectName("CONV"))
	if err := env.Client.Create(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	wantHistories(t, ns, map[string]history{
		"own-id":   brokenHistory(v1alpha1.ReasonParentNotFound, 0),
		"other-id": brokenHistory(v1alpha1.ReasonParentNotFound, 0),
		"Conv":     brokenHistory(v1alpha1.ReasonNameMismatch, 0),
	})
}

// TestHistoryWrites: a change of a turn rewrites exactly the statuses of the conversations that it concerns, and a restart none.
func TestHistoryWrites(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	create(t, turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "fork", "a"), turn(other, "b"))
	ids := []string{"at-a", "at-b", "at-b-too", "at-fork", "none"}
	for _, id := range ids {
		head, _, _ := strings.Cut(strings.TrimPrefix(id, "at-"), "-")
		if id == "none" {
			converse(t, ns, id, `{}`)
			continue
		}
		converse(t, ns, id, endsAt(head))
	}
	converse(t, other, "at-b", endsAt("b"))
	intact := map[string]history{"at-a": historyOf(1), "at-b": historyOf(2), "at-b-too": historyOf(2), "at-fork": historyOf(2), "none": noTurns}
	wantHistories(t, ns, intact)
	wantHistories(t, other, map[string]history{"at-b": historyOf(1)})
	wantWrites := func(want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for _, id := range ids {
			got[id] = statusWrites(ns, id)
		}
		got["other"] = statusWrites(other, "at-b")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	}
	wantWrites(map[string]int{"at-a": 1, "at-b": 1, "at-b-too": 1, "at-fork": 1, "none": 1, "other": 1})

	overwrite(t, ns, "b", `{"responseStatus":"failed"}`)
	failed := brokenHistory(v1alpha1.ReasonTurnNotCompleted, 2)
	wantHistories(t, ns, map[string]history{
		"at-a": historyOf(1), "at-b": failed, "at-b-too": failed, "at-fork": historyOf(2), "none": noTurns,
	})
	wantWrites(map[string]int{"at-a": 1, "at-b": 2, "at-b-too": 2, "at-fork": 1, "none": 1, "other": 1})

	restartOperator(t, func() { // the next operator counts from zero
		overwrite(t, ns, "b", `{"responseStatus":"completed"}`)
		setHead(t, ns, "at-b-too", endsAt("a"))
		setHead(t, ns, "none", reserve("c", "b"))
	})
	wantHistories(t, ns, map[string]history{
		"at-a": historyOf(1), "at-b": historyOf(2), "at-b-too": historyOf(1), "at-fork": historyOf(2), "none": reserved(2),
	})
	wantWrites(map[string]int{"at-a": 0, "at-b": 1, "at-b-too": 1, "at-fork": 0, "none": 1, "other": 0})
}

// TestForeignHistory: the operator corrects a status that another writer has changed.
func TestForeignHistory(t *testing.T) {
	ns := env.NewNamespace(t)
	converse(t, ns, "conv_1", `{}`)
	wantHistories(t, ns, map[string]history{"conv_1": noTurns})
	for _, status := range []string{`{"turns":7}`, `{"observedGeneration":0}`, `{"conditions":[]}`} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
		if err := env.Client.Status().Patch(t.Context(), unstructuredConversation(t, ns, "conv_1", `{}`), patch); err != nil {
			t.Fatal(err)
		}
		wantHistories(t, ns, map[string]history{"conv_1": noTurns})
	}
}

// TestUndecodableConversation: a conversation that Go cannot decode in a list gets a status too, and does not keep others from getting
// theirs, neither in the watch nor in the list.
func TestUndecodableConversation(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	create(t, used(ns, "a", "", "m", 1))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a")})
	const depth = 9997 // the API server and Go decode 10,000 levels
	deep := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"deep"},"spec":{"conversationID":"deep","headResponseID":"a","metadata":%s1%s}}`,
		v1alpha1.GroupVersion.String(), v1alpha1.ConversationKind, strings.Repeat(`{"a":`, depth+1), strings.Repeat(`}`, depth+1))
	if err := sessionClient(t, env.Config).Post().Namespace(ns).Resource("conversations").Body([]byte(deep)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.List(t.Context(), &v1alpha1.ConversationList{}, client.InNamespace(ns)); err == nil {
		t.Error("Go can decode the list")
	}
	wantStatus := func(reason string) { // with the figures of the history that resolved
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			raw, err := kubeclient.GetRaw(t.Context(), sessionClient(t, env.Config), kubeclient.Conversations, client.ObjectKey{Namespace: ns, Name: "deep"})
			if got := gjson.GetManyBytes(raw, "status.items", "status.conditions.0.reason"); err == nil && (got[0].Int() != 2 || got[1].Str != reason) {
				return fmt.Errorf("%d items and the reason %q; want 2 and %s", got[0].Int(), got[1].Str, reason)
			}
			return err
		})
	}
	wantStatus(v1alpha1.ReasonResolved)
	converse(t, other, "watched", `{}`)
	wantHistories(t, other, map[string]history{"watched": noTurns})
	restartOperator(t, func() {
		converse(t, other, "listed", `{}`)
		setHead(t, ns, "deep", endsAt("b"))
	})
	wantHistories(t, other, map[string]history{"watched": noTurns, "listed": noTurns})
	wantStatus(v1alpha1.ReasonParentNotFound)
}

// TestHistoryInterval: while a conversation changes quickly, its status is not written, and then once. That a head is not stored is
// not written as long as it may still be on its way.
func TestHistoryInterval(t *testing.T) {
	conversationInterval = 50 * time.Millisecond
	restartOperator(t, func() {})
	defer func() {
		conversationInterval = 0
		restartOperator(t, func() {})
	}()
	ns := env.NewNamespace(t)
	// The clock stands still, so that no interval ends.
	processed := 0
	wantProcessed := func() { // all that has been done so far
		t.Helper()
		processed++
		id := fmt.Sprintf("marker%d", processed)
		converse(t, ns, id, `{}`)
		testutil.Eventually(t, func(context.Context) error {
			if statusWrites(ns, id) == 0 {
				return fmt.Errorf("%s has no status", id)
			}
			return nil
		})
	}
	wantWrites := func(id string, want int) {
		t.Helper()
		if got := statusWrites(ns, id); got != want {
			t.Errorf("%s: got %d writes, want %d", id, got, want)
		}
	}
	converse(t, ns, "conv_1", `{}`)
	wantHistories(t, ns, map[string]history{"conv_1": noTurns})
	base := ""
	for i := range 5 {
		head := fmt.Sprintf("resp_%d", i)
		setHead(t, ns, "conv_1", reserve(head, base))
		create(t, turn(ns, head, base))
		base = head
	}
	converse(t, ns, "conv_2", reserve("resp_5", base))
	wantProcessed()
	wantWrites("conv_1", 1)
	wantWrites("conv_2", 0)
	create(t, turn(ns, "resp_5", base)) // in time
	testutil.Eventually(t, func(context.Context) error {
		if statusWrites(ns, "conv_2") == 0 {
			return fmt.Errorf("no status is written although the turn is stored")
		}
		return nil
	})

	op.clock.SetTime(startTime.Add(conversationInterval))
	wantHistories(t, ns, map[string]history{"conv_1": historyOf(5), "conv_2": historyOf(6), "marker1": noTurns})
	wantWrites("conv_1", 2)
	wantWrites("conv_2", 1)
}

// TestHistoryRewrites: a turn at which many conversations end is written into their statuses at the pace of rewrites, which is that of their
// namespace alone. A conversation does not wait for the status of its head.
func TestHistoryRewrites(t *testing.T) {
	before := statuses
	statuses.RewritesPerSecond = 4 // each costs as much as the burst, and the clock stands still
	restartOperator(t, func() {})
	defer func() {
		statuses = before
		restartOperator(t, func() {})
	}()
	greedy, modest := env.NewNamespace(t), env.NewNamespace(t)
	const many = 20
	create(t, turn(greedy, "a"))
	const turns = 8 // the statuses of all but the first are rewrites, and only one can be written
	createChain(t, modest, turns)
	intact := map[string]history{}
	for i := range many {
		id := fmt.Sprintf("conv_%d", i)
		converse(t, greedy, id, endsAt("a"))
		intact[id] = historyOf(1)
	}
	converse(t, modest, "conv_0", endsAt(fmt.Sprintf("t%d", turns)))
	wantHistories(t, greedy, intact)
	wantHistories(t, modest, map[string]history{"conv_0": historyOf(turns)})
	rewrites := func() (n int) {
		for i := range many {
			n += statusWrites(greedy, fmt.Sprintf("conv_%d", i))
		}
		return n - many
	}

	overwrite(t, greedy, "a", `{"responseStatus":"failed"}`)
	testutil.Eventually(t, func(context.Context) error {
		if rewrites() == 0 {
			return fmt.Errorf("no status is rewritten")
		}
		return nil
	})
	overwrite(t, modest, "t1", `{"responseStatus":"failed"}`)
	wantHistories(t, modest, map[string]history{"conv_0": brokenHistory(v1alpha1.ReasonTurnNotCompleted, turns)})
	if got := rewrites(); got != 1 {
		t.Errorf("got %d rewrites, want 1", got)
	}
	overwrite(t, greedy, "a", `{"responseStatus":"completed"}`)
	settle(t, greedy)
	op.clock.SetTime(startTime.Add(time.Hour))
	wantHistories(t, greedy, intact)
	if got := rewrites(); got != 2 {
		t.Errorf("got %d rewrites, want 2: the others need none", got)
	}
}

// TestRewordedHistories: an operator that starts over the statuses of an earlier build, with other messages, writes none of them.
func TestRewordedHistories(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"))
	intact, broken, empty := newConversation(ns, "intact"), newConversation(ns, "broken"), newConversation(ns, "empty")
	intact.Spec.HeadResponseID, broken.Spec.HeadResponseID = "a", "missing"
	createAll(t, intact, broken, empty)
	histories := map[string]history{
		"intact": {metav1.ConditionTrue, v1alpha1.ReasonResolved, 1}, "broken": {metav1.ConditionFalse, v1alpha1.ReasonParentNotFound, 0},
		"empty": {metav1.ConditionTrue, v1alpha1.ReasonNoTurns, 0},
	}
	wantHistories(t, ns, histories)
	settle(t, metav1.NamespaceAll)
	const old = "As an earlier version worded it."
	restartOperator(t, func() {
		for id := range histories {
			c := &v1alpha1.Conversation{}
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.ObjectName(id)}, c); err != nil {
				t.Fatal(err)
			}
			if want := map[string]string{"broken": "missing"}[id]; c.Status.BrokenAt != want {
				t.Errorf("%s is broken at %q, want %q", id, c.Status.BrokenAt, want)
			}
			c.Status.Conditions[0].Message = old
			if err := env.Client.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	})
	createAll(t, newConversation(ns, "later"))
	histories["later"] = histories["empty"]
	wantHistories(t, ns, histories)
	settle(t, metav1.NamespaceAll)
	for id := range histories {
		if id != "later" {
			wantHistoryMessage(t, ns, id, old)
		}
	}
}

// TestTurnsBehindConversations: no verdict says that a turn is missing because the view of the sessions does not have it yet.
func TestTurnsBehindConversations(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "stored"))
	for name, tc := range map[string]struct {
		reason, brokenAt string
		want             bool
	}{
		"stored":         {v1alpha1.ReasonParentNotFound, "stored", true},
		"not stored":     {v1alpha1.ReasonParentNotFound, "other", false},
		"another reason": {v1alpha1.ReasonTurnNotCompleted, "stored", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &controllers.ConversationReconciler{Live: sessionClient(t, env.Config), Sessions: sessions.NewView(chain.DefaultMaxDepth, time.Hour)}
			got, err := controllers.IsBehind(t.Context(), r, ns, conversations.Verdict{Reason: tc.reason, BrokenAt: tc.brokenAt})
			if got != tc.want || err != nil {
				t.Errorf("got %t and %v, want %t", got, err, tc.want)
			}
		})
	}
}
