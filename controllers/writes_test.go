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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestWritesPerTurn counts the writes of each turn to etcd.
func TestWritesPerTurn(t *testing.T) {
	t.Run("the saver sets the owner: one write", func(t *testing.T) {
		ns := env.NewNamespace(t)
		versions := watchVersions(t, ns)
		parent := turn(ns, "t1")
		create(t, parent)
		want := []string{"t1/status"}
		for i := 2; i <= 20; i++ {
			id := fmt.Sprintf("t%d", i)
			child := testsession.Make(ns, id).After(parent.Spec.ResponseID).OwnedBy(parent).Obj()
			create(t, child)
			parent = child
			want = append(want, id+"/status")
		}
		slices.Sort(want)
		settle(t, ns)
		if diff := cmp.Diff(want, op.writes.sessions(ns)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		for id, count := range versions(t) {
			if count != 2 {
				t.Errorf("%s has had %d versions, want 2: one from its creation and one with its status", id, count)
			}
		}
	})
	t.Run("the controller sets the owner: two writes", func(t *testing.T) {
		ns := env.NewNamespace(t)
		create(t, turn(ns, "a"))
		settle(t, ns)
		create(t, turn(ns, "b", "a"))
		settle(t, ns)
		if diff := cmp.Diff([]string{"a/status", "b", "b/status"}, op.writes.sessions(ns)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
	t.Run("a late parent: one verdict each, and the owner", func(t *testing.T) {
		ns := env.NewNamespace(t)
		create(t, turn(ns, "b", "a"))
		settle(t, ns)
		create(t, turn(ns, "a"))
		settle(t, ns)
		if diff := cmp.Diff([]string{"a/status", "b", "b/status", "b/status"}, op.writes.sessions(ns)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
	t.Run("a turn that is overwritten: one write", func(t *testing.T) {
		ns := env.NewNamespace(t)
		a := turn(ns, "a")
		a.Spec.ResponseStatus = v1alpha1.ResponseStatusInProgress
		create(t, a)
		settle(t, ns)
		overwrite(t, ns, "a", `{"responseStatus":"completed"}`)
		settle(t, ns)
		if diff := cmp.Diff([]string{"a/status", "a/status"}, op.writes.sessions(ns)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
	t.Run("changed labels: no write", func(t *testing.T) {
		ns := env.NewNamespace(t)
		create(t, turn(ns, "a"))
		settle(t, ns)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"gold"}}}`))
		if err := env.Client.Patch(t.Context(), turn(ns, "a"), patch); err != nil {
			t.Fatal(err)
		}
		settle(t, ns)
		if diff := cmp.Diff([]string{"a/status"}, op.writes.sessions(ns)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// watchVersions watches a namespace and returns a function that counts the versions of each session so far.
func watchVersions(t *testing.T, namespace string) func(t *testing.T) map[string]int {
	t.Helper()
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := watcher.Watch(ctx, &v1alpha1.ResponseSessionList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) map[string]int {
		t.Helper()
		defer stream.Stop()
		newest := testsession.ResourceVersions(t, env.Client, namespace)
		counts := map[string]int{}
		for len(newest) > 0 {
			select {
			case event, open := <-stream.ResultChan():
				s, isSession := event.Object.(*v1alpha1.ResponseSession)
				if !open || event.Type == watch.Error || !isSession {
					t.Fatalf("the watch ended: %+v", event)
				}
				counts[s.Name]++
				if newest[s.Name] == s.ResourceVersion {
					delete(newest, s.Name)
				}
			case <-t.Context().Done():
				t.Fatal(t.Context().Err())
			}
		}
		return counts
	}
}

// TestRestartWritesNothing starts the operator over sessions of every kind that have a verdict already, including those
// that other tests have left.
func TestRestartWritesNothing(t *testing.T) {
	ns := env.NewNamespace(t)
	failed, pending := turn(ns, "failed"), turn(ns, "pending")
	failed.Spec.ResponseStatus = v1alpha1.ResponseStatusFailed
	pending.Spec.ResponseStatus = v1alpha1.ResponseStatusQueued
	misnamed := turn(ns, "Misnamed")
	misnamed.Name = v1alpha1.ObjectName("Other")
	create(t, failed, pending, misnamed,
		turn(ns, "after-failed", "failed"), turn(ns, "after-pending", "pending"), turn(ns, "orphan", "missing"),
		turn(ns, "x", "y"), turn(ns, "y", "x"))
	createChain(t, ns, 70)
	wantNoWritesAfterRestart(t)

	// The restarted operator still reconciles.
	create(t, turn(ns, "new", "t3"))
	settle(t, ns)
	if diff := cmp.Diff(resolved(4, "t1"), verdictOf(get(t, ns, "new"))); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
}

func wantNoWritesAfterRestart(t *testing.T) {
	t.Helper()
	settle(t, metav1.NamespaceAll)
	before := testsession.ResourceVersions(t, env.Client, metav1.NamespaceAll)
	restartOperator(t, func() {})
	settle(t, metav1.NamespaceAll)
	if diff := cmp.Diff(before, testsession.ResourceVersions(t, env.Client, metav1.NamespaceAll)); diff != "" {
		t.Errorf("resource versions (-before +after):\n%s", diff)
	}
	if writes := op.writes.sessions(metav1.NamespaceAll); len(writes) > 0 {
		t.Errorf("the operator wrote: %v", writes)
	}
}

// TestStatusIsWrittenOnce: a status that is stored already is not written again with other times by an operator whose view is behind:
// the previous leader may have written it, or the response to the first write was lost.
func TestStatusIsWrittenOnce(t *testing.T) {
	first, second := env.NewNamespace(t), env.NewNamespace(t)
	create(t, turn(first, "a"))
	settle(t, first)
	stored := get(t, first, "a").Status
	stored.Conditions[0].LastTransitionTime = metav1.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	status, err := json.Marshal(map[string]any{"status": stored})
	if err != nil {
		t.Fatal(err)
	}
	release := op.writes.hold()
	defer release()
	create(t, turn(second, "a"))
	op.writes.awaitHeld(t)
	if err := env.Client.Status().Patch(t.Context(), turn(second, "a"), client.RawPatch(types.MergePatchType, status)); err != nil {
		t.Fatal(err)
	}
	before := testsession.ResourceVersions(t, env.Client, second)
	release()
	settle(t, second)
	if diff := cmp.Diff(before, testsession.ResourceVersions(t, env.Client, second)); diff != "" {
		t.Errorf("resource versions (-before +after):\n%s", diff)
	}
}

// watchGate delays the events of the operator's watch of sessions while it is locked.
type watchGate struct{ sync.RWMutex }

func (g *watchGate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Has("watch") && strings.HasSuffix(request.URL.Path, "/responsesessions") {
			response.Body = gatedBody{response.Body, g}
		}
		return response, err
	})
}

type gatedBody struct {
	io.ReadCloser
	gate *watchGate
}

func (b gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.RLock()
	defer b.gate.RUnlock()
	return n, err
}

// TestOwnerOfNewerVersion: while the view is behind, setting the ownerReference does not make it take an outdated status for current, and
// write the status once more.
func TestOwnerOfNewerVersion(t *testing.T) {
	gate, direct := &watchGate{}, connect
	connect = func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(direct(config))
		config.Wrap(gate.wrap)
		return config
	}
	restartOperator(t, func() {})
	t.Cleanup(func() {
		connect = direct
		restartOperator(t, func() {})
	})
	ns := env.NewNamespace(t)
	create(t, turn(ns, "parent"))
	settle(t, ns)
	release := op.writes.hold()
	defer release()
	create(t, turn(ns, "child", "parent"))
	op.writes.awaitHeld(t)
	gate.Lock()
	before := op.writes.to("/responsesessions/child")
	status, err := json.Marshal(map[string]any{"status": v1alpha1.ResponseSessionStatus{
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved,
			Message: "Every turn up to the root is stored and completed.", ObservedGeneration: 1,
			LastTransitionTime: metav1.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC),
		}},
		ObservedGeneration: 1, Depth: 2, RootResponseID: "parent",
		SnapshotStore: v1alpha1.SnapshotStoreInline, SnapshotBytes: get(t, ns, "parent").Status.SnapshotBytes,
	}})
	if err != nil {
		t.Fatal(err)
	}
	previousLeader := client.RawPatch(types.MergePatchType, status)
	if err := env.Client.Status().Patch(t.Context(), turn(ns, "child"), previousLeader, controllers.FieldOwner); err != nil {
		t.Fatal(err)
	}
	release()
	testutil.Eventually(t, func(context.Context) error {
		if op.writes.to("/responsesessions/child") == before {
			return errors.New("the ownerReference was not written")
		}
		return nil
	})
	testutil.Eventually(t, func(context.Context) error {
		if unfinished(t) > op.dropped {
			return errors.New("sessions are being reconciled")
		}
		return nil
	})
	gate.Unlock()
	settle(t, ns)
	child := get(t, ns, "child")
	if len(child.OwnerReferences) != 1 {
		t.Errorf("%d ownerReferences, want 1", len(child.OwnerReferences))
	}
	if at := child.Status.Conditions[0].LastTransitionTime; at.Year() != 2026 || at.Month() != time.January {
		t.Errorf("the status was written again, at %s", at)
	}
}

// TestForeignStatusIsCorrected: the controller owns the status and reverts changes by others.
func TestForeignStatusIsCorrected(t *testing.T) {
	const condition = `"type":"ChainValid","message":"by hand","lastTransitionTime":"2026-01-01T00:00:00Z"`
	tests := map[string]string{
		"break point":                `{"brokenAt":"elsewhere"}`,
		"break point is removed":     `{"brokenAt":null}`,
		"depth and root":             `{"depth":7,"rootResponseID":"elsewhere"}`,
		"depth and root are removed": `{"depth":null,"rootResponseID":null}`,
		"generation":                 `{"observedGeneration":7}`,
		"everything is removed":      `{"conditions":null,"brokenAt":null,"depth":null,"rootResponseID":null,"observedGeneration":null}`,
		"condition is removed":       `{"conditions":[]}`,
		"condition is flipped":       `{"conditions":[{"status":"True","reason":"Resolved",` + condition + `}]}`,
		"everything is changed":      `{"brokenAt":"elsewhere","depth":3,"rootResponseID":"elsewhere","conditions":[{"status":"Unknown","reason":"Odd",` + condition + `}]}`,
	}
	want := map[string]verdict{
		"intact": resolved(1, "intact"), "broken": broken(v1alpha1.ReasonParentNotFound, "missing"),
	}
	write := func(t *testing.T, ns, status string) {
		t.Helper()
		for id := range want {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
			if err := env.Client.Status().Patch(t.Context(), turn(ns, id), patch, client.FieldOwner("another-writer")); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(t *testing.T, ns string) {
		t.Helper()
		wantVerdicts(t, ns, want)
		wantMessages(t, ns, map[string]string{
			"intact": "Every turn up to the root is stored and completed.",
			"broken": `Response "missing", an ancestor of "broken", was not found.`,
		})
	}
	namespaces := map[string]string{}
	for name, status := range tests {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			namespaces[name] = ns
			create(t, turn(ns, "intact"), turn(ns, "broken", "missing"))
			settle(t, ns)
			write(t, ns, status)
			check(t, ns)
		})
	}
	restartOperator(t, func() {
		for name, ns := range namespaces {
			write(t, ns, tests[name])
		}
	})
	for name, ns := range namespaces {
		t.Run(name+", while no operator runs", func(t *testing.T) { check(t, ns) })
	}
	wantNoWritesAfterRestart(t)
}

// TestRewordedMessage: an upgrade that rewords the message of a condition does not rewrite the status of every
// session. The message changes with the next write.
func TestRewordedMessage(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"), turn(ns, "b", "missing"))
	settle(t, ns)
	const old = "As an earlier version worded it."
	restartOperator(t, func() {
		for _, id := range []string{"a", "b"} {
			s := get(t, ns, id)
			s.Status.Conditions[0].Message = old
			if err := env.Client.Status().Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	})
	settle(t, metav1.NamespaceAll)
	if writes := op.writes.sessions(metav1.NamespaceAll); len(writes) > 0 {
		t.Errorf("the operator wrote: %v", writes)
	}
	wantMessages(t, ns, map[string]string{"a": old, "b": old})

	overwrite(t, ns, "a", `{"metadata":{"tier":"gold"}}`)
	settle(t, ns)
	wantMessages(t, ns, map[string]string{"a": "Every turn up to the root is stored and completed.", "b": old})
}

// TestReportOfJudgedBodies: a restarted operator trusts the status of a turn that an earlier build could read, until a replica reports that
// it cannot.
func TestReportOfJudgedBodies(t *testing.T) {
	ns := env.NewNamespace(t)
	a := turn(ns, "a")
	a.Spec.Request, a.Spec.Response, a.Spec.Format, a.Spec.Packed = nil, nil, 2, "damaged"
	create(t, a)
	unreadable := map[string]verdict{"a": brokenIn(v1alpha1.ReasonSnapshotUnreadable, "a", 1, "a")}
	wantVerdicts(t, ns, unreadable)
	update := func(change func(*v1alpha1.ResponseSessionStatus)) {
		s := get(t, ns, "a")
		change(&s.Status)
		if err := env.Client.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	restartOperator(t, func() {
		update(func(status *v1alpha1.ResponseSessionStatus) {
			status.Conditions[0].Status, status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonResolved
			status.BrokenAt, status.SnapshotBytes = "", 500
		})
	})
	settle(t, ns)
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a")})
	update(func(status *v1alpha1.ResponseSessionStatus) {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionSnapshotReadable, Status: metav1.ConditionFalse, Reason: "Unreadable", ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(startTime),
		})
	})
	wantVerdicts(t, ns, unreadable)
	settle(t, ns)
	if report := meta.FindStatusCondition(get(t, ns, "a").Status.Conditions, v1alpha1.ConditionSnapshotReadable); report.Status != metav1.ConditionFalse {
		t.Errorf("the report was cleared: %+v", report)
	}
}

// TestForeignReport: a SnapshotReadable condition that another writer has set does not delay the verdict. The leader, which can read
// the bodies, sets it to True.
func TestForeignReport(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"))
	settle(t, ns)
	a := get(t, ns, "a")
	a.Status.Conditions = append(a.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionSnapshotReadable, Status: metav1.ConditionFalse, Reason: "ByHand", ObservedGeneration: 1,
		LastTransitionTime: metav1.NewTime(startTime),
	})
	if err := env.Client.Status().Update(t.Context(), a, client.FieldOwner("another-writer")); err != nil {
		t.Fatal(err)
	}
	overwrite(t, ns, "a", `{"responseStatus":"failed"}`)
	wantVerdicts(t, ns, map[string]verdict{"a": brokenIn(v1alpha1.ReasonTurnNotCompleted, "a", 1, "a")})
	settle(t, ns)
	report := meta.FindStatusCondition(get(t, ns, "a").Status.Conditions, v1alpha1.ConditionSnapshotReadable)
	if report == nil || report.Status != metav1.ConditionTrue || report.Reason != v1alpha1.ReasonSnapshotVerified {
		t.Errorf("got the condition %+v, want True", report)
	}
}

// TestOtherConditionsAreKept: conditions of other writers are kept.
func TestOtherConditionsAreKept(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a")})
	a := get(t, ns, "a")
	other := metav1.Condition{
		Type: "Exported", Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: metav1.NewTime(startTime),
	}
	a.Status.Conditions = append(a.Status.Conditions, other)
	if err := env.Client.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	overwrite(t, ns, "a", `{"responseStatus":"failed"}`)
	wantVerdicts(t, ns, map[string]verdict{"a": brokenIn(v1alpha1.ReasonTurnNotCompleted, "a", 1, "a")})
	settle(t, ns)
	for _, condition := range get(t, ns, "a").Status.Conditions {
		if condition.Type == other.Type {
			return
		}
	}
	t.Error("the condition of the other writer was removed")
}
