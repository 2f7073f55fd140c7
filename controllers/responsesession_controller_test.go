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
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/testutil/golden"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func broken(reason, at string) verdict {
	return verdict{Status: metav1.ConditionFalse, Reason: reason, BrokenAt: at}
}

func brokenIn(reason, at string, depth int32, root string) verdict {
	return verdict{Status: metav1.ConditionFalse, Reason: reason, BrokenAt: at, Depth: depth, Root: root}
}

// TestReasons reaches each reason of ChainValid on a chain a <- b <- c, which heals to all Resolved.
func TestReasons(t *testing.T) {
	intact := map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a"), "c": resolved(3, "a")}
	everywhere := func(reason, at string) map[string]verdict {
		return map[string]verdict{
			"a": brokenIn(reason, at, 1, "a"), "b": brokenIn(reason, at, 2, "a"), "c": brokenIn(reason, at, 3, "a"),
		}
	}
	pending := map[string]verdict{
		"a": {Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTurnPending, BrokenAt: "a", Depth: 1, Root: "a"},
		"b": {Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTurnPending, BrokenAt: "a", Depth: 2, Root: "a"},
		"c": {Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonTurnPending, BrokenAt: "a", Depth: 3, Root: "a"},
	}
	withStatus := func(status string) func(a, b, c *v1alpha1.ResponseSession) {
		return func(a, _, _ *v1alpha1.ResponseSession) { a.Spec.ResponseStatus = status }
	}
	withRequest := func(request string) func(a, b, c *v1alpha1.ResponseSession) {
		return func(a, _, _ *v1alpha1.ResponseSession) { a.Spec.Request = &runtime.RawExtension{Raw: []byte(request)} }
	}
	complete := func(t *testing.T, ns string) { overwrite(t, ns, "a", `{"responseStatus":"completed"}`) }

	tests := map[string]struct {
		change      func(a, b, c *v1alpha1.ResponseSession)
		want        map[string]verdict
		wantMessage map[string]string
		heal        func(t *testing.T, ns string)
	}{
		"TurnPending, queued": {
			change: withStatus("queued"), want: pending, heal: complete,
			wantMessage: map[string]string{
				"a": `Response "a" is "queued" and cannot be used as context until it is completed.`,
				"c": `Response "a" is pending and cannot be used as context until it is completed.`,
			},
		},
		"TurnPending, in_progress": {change: withStatus("in_progress"), want: pending, heal: complete},
		"TurnIncomplete": {
			change: withStatus("incomplete"), want: everywhere(v1alpha1.ReasonTurnIncomplete, "a"), heal: complete,
			wantMessage: map[string]string{
				"c": `Response "a" is incomplete, and can be used as context only by a request with continueIncomplete.`,
			},
		},
		"TurnNotCompleted, failed": {
			change: withStatus("failed"), want: everywhere(v1alpha1.ReasonTurnNotCompleted, "a"), heal: complete,
			wantMessage: map[string]string{
				"a": `Response "a" is "failed", not completed, and cannot be used as context.`,
				"c": `Response "a" is not completed and cannot be used as context.`,
			},
		},
		"TurnNotCompleted, cancelled": {change: withStatus("cancelled"), want: everywhere(v1alpha1.ReasonTurnNotCompleted, "a"), heal: complete},
		"TurnNotCompleted, unknown":   {change: withStatus("paused"), want: everywhere(v1alpha1.ReasonTurnNotCompleted, "a"), heal: complete},
		"SnapshotUnreadable, input is a number": {
			change: withRequest(`{"input":5}`), want: everywhere(v1alpha1.ReasonSnapshotUnreadable, "a"),
			wantMessage: map[string]string{
				"a": "The snapshot of response \"a\" cannot be read or turned into input items: unable to read `input` of the request: " +
					"must be a string or a list of objects: must be a list.",
				"b": `The snapshot of response "a" cannot be read or turned into input items.`,
			},
			heal: func(t *testing.T, ns string) { overwrite(t, ns, "a", `{"request":{"input":"five"}}`) },
		},
		"SnapshotUnreadable, instructions are a list": {
			change: withRequest(`{"instructions":["be brief"]}`), want: everywhere(v1alpha1.ReasonSnapshotUnreadable, "a"),
			heal: func(t *testing.T, ns string) { overwrite(t, ns, "a", `{"request":{"instructions":"be brief"}}`) },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			a, b, c := turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "c", "b")
			tc.change(a, b, c)
			create(t, a, b, c)
			wantVerdicts(t, ns, tc.want)
			wantMessages(t, ns, tc.wantMessage)
			tc.heal(t, ns)
			wantVerdicts(t, ns, intact)
			wantMessages(t, ns, map[string]string{"c": "Every turn up to the root is stored and completed."})
		})
	}
}

// TestStatuses pins the whole status of each verdict.
func TestStatuses(t *testing.T) {
	ns := env.NewNamespace(t)
	misnamed := turn(ns, "Misnamed")
	misnamed.Name = v1alpha1.ObjectName("MISNAMED")
	create(t, turn(ns, "resolved"), misnamed, turn(ns, "orphan", "missing"), turn(ns, "cycle-a", "cycle-b"), turn(ns, "cycle-b", "cycle-a"),
		testsession.Make(ns, "pending").Status(v1alpha1.ResponseStatusQueued).Obj(),
		testsession.Make(ns, "failed").Status(v1alpha1.ResponseStatusFailed).Obj(),
		testsession.Make(ns, "unreadable").Request(`{"input":5}`).Obj())
	createChain(t, ns, chain.DefaultMaxDepth+1)
	settle(t, ns)
	for _, id := range []string{"resolved", "Misnamed", "orphan", "cycle-a", "pending", "failed", "unreadable", "t65"} {
		s := &v1alpha1.ResponseSession{}
		name := v1alpha1.ObjectName(id)
		if id == "Misnamed" {
			name = misnamed.Name
		}
		if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, s); err != nil {
			t.Fatal(err)
		}
		for i := range s.Status.Conditions {
			s.Status.Conditions[i].LastTransitionTime = metav1.NewTime(startTime)
		}
		status, err := yaml.Marshal(s.Status)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "status "+testsession.ChainValid(s).Reason, string(status))
	}
}

func wantMessages(t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	for id, message := range want {
		if got := testsession.ChainValid(get(t, namespace, id)).Message; got != message {
			t.Errorf("message of %s: got %q, want %q", id, got, message)
		}
	}
}

// TestNearestFaultWins: of two broken rules, the verdict is the one nearer to the session.
func TestNearestFaultWins(t *testing.T) {
	ns := env.NewNamespace(t)
	b, c := turn(ns, "b", "a"), turn(ns, "c", "b")
	c.Spec.ResponseStatus = v1alpha1.ResponseStatusFailed
	create(t, b, c, turn(ns, "d", "c"))
	wantVerdicts(t, ns, map[string]verdict{
		"b": broken(v1alpha1.ReasonParentNotFound, "a"),
		"c": broken(v1alpha1.ReasonTurnNotCompleted, "c"),
		"d": broken(v1alpha1.ReasonTurnNotCompleted, "c"),
	})
}

func TestNameMismatch(t *testing.T) {
	ns := env.NewNamespace(t)
	// The API server can check that "Parent" needs a hashed name, but not which one.
	misnamed := turn(ns, "Parent")
	misnamed.Name = v1alpha1.ObjectName("PARENT")
	create(t, misnamed, turn(ns, "child", "Parent"))
	wantVerdicts(t, ns, map[string]verdict{
		"Parent": broken(v1alpha1.ReasonNameMismatch, "Parent"),
		"child":  broken(v1alpha1.ReasonParentNotFound, "Parent"),
	})
	want := fmt.Sprintf(`The object of response "Parent" must be named %q: an object with another name is not part of any chain.`, v1alpha1.ObjectName("Parent"))
	for _, s := range list(t, client.InNamespace(ns)) {
		if s.UID == misnamed.UID && testsession.ChainValid(&s).Message != want {
			t.Errorf("message: got %q, want %q", testsession.ChainValid(&s).Message, want)
		}
	}

	if err := env.Client.Delete(t.Context(), misnamed); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, misnamed)
	create(t, turn(ns, "Parent"))
	wantVerdicts(t, ns, map[string]verdict{"Parent": resolved(1, "Parent"), "child": resolved(2, "Parent")})
}

// TestDepthExceeded: a chain may have 64 turns, and the depth takes precedence over anything beyond.
func TestDepthExceeded(t *testing.T) {
	ns := env.NewNamespace(t)
	const limit = chain.DefaultMaxDepth
	createChain(t, ns, limit+2)
	within := func(n int) string { return fmt.Sprintf("t%d", n) }
	want := map[string]verdict{}
	for i := 1; i <= limit; i++ {
		want[within(i)] = resolved(int32(i), "t1")
	}
	want["t65"] = brokenIn(v1alpha1.ReasonDepthExceeded, "t1", 65, "t1")
	want["t66"] = brokenIn(v1alpha1.ReasonDepthExceeded, "t2", 66, "t1")
	wantVerdicts(t, ns, want)
	wantMessages(t, ns, map[string]string{"t66": `The chain of response "t66" has more than 64 turns: "t2" is beyond the limit, which a request can raise with maxDepth.`})

	// The first turn is deleted. It is beyond the limit of t65, whose verdict stays.
	remove(t, ns, "t1")
	delete(want, "t1")
	for i := 2; i <= limit; i++ {
		want[within(i)] = broken(v1alpha1.ReasonParentNotFound, "t1")
	}
	want["t65"] = broken(v1alpha1.ReasonDepthExceeded, "t1")
	want["t66"] = broken(v1alpha1.ReasonDepthExceeded, "t2")
	wantVerdicts(t, ns, want)

	// A parent cannot change, but a turn can be saved again as the first of its conversation.
	remove(t, ns, "t2")
	create(t, turn(ns, "t2"))
	for i := 2; i <= limit+1; i++ {
		want[within(i)] = resolved(int32(i-1), "t2")
	}
	want["t66"] = brokenIn(v1alpha1.ReasonDepthExceeded, "t2", 65, "t2")
	wantVerdicts(t, ns, want)
}

func TestCycleDetected(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a", "b"), turn(ns, "b", "a"), turn(ns, "c", "a"))
	wantVerdicts(t, ns, map[string]verdict{
		"a": broken(v1alpha1.ReasonCycleDetected, "a"),
		"b": broken(v1alpha1.ReasonCycleDetected, "b"),
		"c": broken(v1alpha1.ReasonCycleDetected, "a"),
	})
	wantMessages(t, ns, map[string]string{"c": `The chain of response "c" contains a cycle: it leads back to "a".`})

	remove(t, ns, "b")
	wantVerdicts(t, ns, map[string]verdict{
		"a": broken(v1alpha1.ReasonParentNotFound, "b"),
		"c": broken(v1alpha1.ReasonParentNotFound, "b"),
	})
	wantMessages(t, ns, map[string]string{
		"a": `Response "b", an ancestor of "a", was not found.`, "c": `Response "b", an ancestor of "c", was not found.`,
	})
	create(t, turn(ns, "b"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(2, "b"), "b": resolved(1, "b"), "c": resolved(3, "b")})
}

// TestAnyOrder: a tree that is saved in any order gets the verdicts that it would get in the right one.
func TestAnyOrder(t *testing.T) {
	want := map[string]verdict{
		"a": resolved(1, "a"), "b": resolved(2, "a"), "c": resolved(3, "a"),
		"fork": resolved(3, "a"), "on-fork": resolved(4, "a"),
	}
	tests := map[string][]string{
		"oldest first": {"a", "b", "c", "fork", "on-fork"},
		"newest first": {"on-fork", "fork", "c", "b", "a"},
		"middle last":  {"a", "c", "on-fork", "fork", "b"},
	}
	for name, order := range tests {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			turns := map[string]*v1alpha1.ResponseSession{
				"a": turn(ns, "a"), "b": turn(ns, "b", "a"), "c": turn(ns, "c", "b"),
				"fork": turn(ns, "fork", "b"), "on-fork": turn(ns, "on-fork", "fork"),
			}
			for i, id := range order {
				create(t, turns[id])
				if i == 0 && id != "a" {
					previous := turns[id].Spec.PreviousResponseID
					wantVerdicts(t, ns, map[string]verdict{id: broken(v1alpha1.ReasonParentNotFound, previous)})
				}
			}
			wantVerdicts(t, ns, want)
		})
	}
}

// TestNamespacesAreSeparate: a chain never leaves its namespace.
func TestNamespacesAreSeparate(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	create(t, turn(other, "a"), turn(ns, "b", "a"))
	wantVerdicts(t, other, map[string]verdict{"a": resolved(1, "a")})
	wantVerdicts(t, ns, map[string]verdict{"b": broken(v1alpha1.ReasonParentNotFound, "a")})
	settle(t, ns, other)
	if owners := get(t, ns, "b").OwnerReferences; len(owners) > 0 {
		t.Errorf("the session has an owner in another namespace: %+v", owners)
	}
}

// TestTransitionTime: lastTransitionTime is when the status of the condition last changed, not when it was last written.
func TestTransitionTime(t *testing.T) {
	ns := env.NewNamespace(t)
	op.clock.SetTime(startTime)
	create(t, turn(ns, "b", "a"))
	wantVerdicts(t, ns, map[string]verdict{"b": broken(v1alpha1.ReasonParentNotFound, "a")})

	later := startTime.Add(time.Hour)
	op.clock.SetTime(later)
	overwrite(t, ns, "b", `{"responseStatus":"failed"}`)
	wantVerdicts(t, ns, map[string]verdict{"b": broken(v1alpha1.ReasonTurnNotCompleted, "b")})
	if got := testsession.ChainValid(get(t, ns, "b")).LastTransitionTime; !got.Time.Equal(startTime) {
		t.Errorf("still broken: got the transition at %s, want %s", got, startTime)
	}

	overwrite(t, ns, "b", `{"responseStatus":"completed"}`)
	create(t, turn(ns, "a"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a")})
	if got := testsession.ChainValid(get(t, ns, "b")).LastTransitionTime; !got.Time.Equal(later) {
		t.Errorf("healed: got the transition at %s, want %s", got, later)
	}
}
