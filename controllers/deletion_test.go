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
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestCascade: `kubectl delete` removes a turn and all its descendants. The saver set no ownerReferences.
func TestCascade(t *testing.T) {
	ns := env.NewNamespace(t)
	const turns = 100
	chain := createChain(t, ns, turns)
	create(t, turn(ns, "fork", "t50"), turn(ns, "other"))
	testutil.Eventually(t, func(context.Context) error {
		owned := 0
		for _, s := range list(t, client.InNamespace(ns)) {
			owned += len(s.OwnerReferences)
		}
		if owned != turns {
			return fmt.Errorf("%d sessions have an owner, want %d", owned, turns)
		}
		return nil
	})
	if err := env.Client.Delete(t.Context(), chain[0]); err != nil {
		t.Fatal(err)
	}
	wantSessions(t, ns, "other")
}

// TestBeingDeleted: a turn whose object is being deleted is missing, also while a finalizer holds the object.
func TestBeingDeleted(t *testing.T) {
	ns := env.NewNamespace(t)
	held := turn(ns, "a")
	held.Finalizers = []string{"example.com/hold"}
	create(t, held, turn(ns, "b", "a"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a")})
	settle(t, ns)

	if err := env.Client.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	create(t, turn(ns, "c", "a"))
	for _, id := range []string{"b", "c"} {
		testutil.Eventually(t, func(context.Context) error {
			if diff := cmp.Diff(broken(v1alpha1.ReasonParentNotFound, "a"), verdictOf(get(t, ns, id))); diff != "" {
				return fmt.Errorf("verdict of %s (-want +got):\n%s", id, diff)
			}
			return nil
		})
	}
	settle(t, ns)
	if diff := cmp.Diff(resolved(1, "a"), verdictOf(get(t, ns, "a"))); diff != "" {
		t.Errorf("the verdict on the object that is being deleted has changed (-want +got):\n%s", diff)
	}
	if owners := get(t, ns, "c").OwnerReferences; len(owners) > 0 {
		t.Errorf("a turn saved meanwhile has the owners %v", owners)
	}

	// Background deletion also deletes b, which a owns. c remains, without a parent.
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := env.Client.Patch(t.Context(), held, release); err != nil {
		t.Fatal(err)
	}
	wantSessions(t, ns, "c")
}

// TestRemoveOne removes a turn in the middle and keeps its descendants, which the controller marks, and saves it again.
//
//	a - b - c - d - e
//	    |    \
//	    f     g
func TestRemoveOne(t *testing.T) {
	tests := map[string]struct{ savedWithOwner bool }{
		"the controller sets the owners": {},
		"the saver sets the owners":      {savedWithOwner: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			save := func(id string, previous ...string) {
				s := turn(ns, id, previous...)
				if tc.savedWithOwner && len(previous) > 0 {
					s.OwnerReferences = []metav1.OwnerReference{testsession.OwnerReference(get(t, ns, previous[0]))}
				}
				create(t, s)
			}
			save("a")
			save("b", "a")
			save("c", "b")
			save("d", "c")
			save("e", "d")
			save("f", "b")
			save("g", "c")
			intact := map[string]verdict{
				"a": resolved(1, "a"), "b": resolved(2, "a"), "c": resolved(3, "a"), "d": resolved(4, "a"),
				"e": resolved(5, "a"), "f": resolved(3, "a"), "g": resolved(4, "a"),
			}
			wantVerdicts(t, ns, intact)
			settle(t, ns)
			before := testsession.ResourceVersions(t, env.Client, ns)

			remove(t, ns, "c")
			marked := broken(v1alpha1.ReasonParentNotFound, "c")
			want := with(intact, map[string]verdict{"d": marked, "e": marked, "g": marked})
			delete(want, "c")
			wantVerdicts(t, ns, want)
			settle(t, ns)
			wantUnchanged(t, before, testsession.ResourceVersions(t, env.Client, ns), "a", "b", "f")
			// Kubernetes strips the reference of the direct children only.
			wantOwned(t, ns, map[string]string{"b": "a", "e": "d", "f": "b"})

			save("c", "b")
			wantVerdicts(t, ns, intact)
			settle(t, ns)
			wantUnchanged(t, before, testsession.ResourceVersions(t, env.Client, ns), "a", "b", "f")
			wantOwned(t, ns, map[string]string{"b": "a", "c": "b", "d": "c", "e": "d", "f": "b", "g": "c"})
		})
	}
}

func wantUnchanged(t *testing.T, before, after map[string]string, ids ...string) {
	t.Helper()
	others := func(id, _ string) bool { return !slices.Contains(ids, id) }
	maps.DeleteFunc(after, others)
	before = maps.Clone(before)
	maps.DeleteFunc(before, others)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("resource versions of the other sessions (-before +after):\n%s", diff)
	}
}

// wantOwned checks the owner of each session, by response ID. Its reference must have the owner's current UID.
func wantOwned(t *testing.T, namespace string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	sessions := list(t, client.InNamespace(namespace))
	for _, s := range sessions {
		for _, reference := range s.OwnerReferences {
			got[s.Spec.ResponseID] = "unknown UID"
			for _, owner := range sessions {
				if reference.UID == owner.UID {
					got[s.Spec.ResponseID] = owner.Spec.ResponseID
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// TestParentRecreatedWhileStopped: a parent is removed and saved again while the operator does not run.
func TestParentRecreatedWhileStopped(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "c", "b"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a"), "c": resolved(3, "a")})
	settle(t, ns)
	restartOperator(t, func() {
		remove(t, ns, "a")
		create(t, turn(ns, "a", "z"))
	})
	missing := broken(v1alpha1.ReasonParentNotFound, "z")
	wantVerdicts(t, ns, map[string]verdict{"a": missing, "b": missing, "c": missing})
	settle(t, ns)
	wantOwned(t, ns, map[string]string{"b": "a", "c": "b"})
}

// TestForegroundDeletion: the descendants are deleted too if the deletion of a turn waits for its children.
func TestForegroundDeletion(t *testing.T) {
	ns := env.NewNamespace(t)
	createChain(t, ns, 5)
	settle(t, ns)
	deleteWith(t, ns, "t2", metav1.DeletePropagationForeground)
	wantSessions(t, ns, "t1")
}

// wantSessions waits until a namespace has exactly the sessions with these response IDs.
func wantSessions(t *testing.T, namespace string, want ...string) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		if diff := cmp.Diff(want, responseIDs(t, client.InNamespace(namespace))); diff != "" {
			return fmt.Errorf("sessions (-want +got):\n%s", diff)
		}
		return nil
	})
}
