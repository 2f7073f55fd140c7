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

package e2e_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// verdict is the status of a session without its times.
type verdict struct {
	Reason, BrokenAt, Root string
	Depth                  int32
	Observed               bool
}

// diffVerdicts checks that all planned sessions are stored, and returns how the verdicts on all sessions of the namespace differ
// from those of a plain walk.
func diffVerdicts(ctx context.Context, t *testing.T, namespace string, plan []testsession.Builder) string {
	t.Helper()
	stored := listSessions(ctx, t, namespace)
	turns := map[string]chain.Turn{}
	specs := map[string]v1alpha1.ResponseSessionSpec{}
	got, want := map[string]verdict{}, map[string]verdict{}
	for i := range stored {
		session := &stored[i]
		var err error
		if session.Spec.Snapshot == nil && session.Spec.Packed == "" { // those of the library are readable
			_, err = chain.Flatten(session.Spec.Request.Raw, session.Spec.Response.Raw)
		}
		turns[session.Spec.ResponseID] = chain.Turn{
			ID: session.Spec.ResponseID, Previous: session.Spec.PreviousResponseID, Status: session.Spec.ResponseStatus, Unreadable: err != nil,
		}
		specs[session.Spec.ResponseID] = session.Spec
		got[session.Spec.ResponseID] = verdict{
			testsession.ChainValid(session).Reason, session.Status.BrokenAt, session.Status.RootResponseID, session.Status.Depth,
			session.Status.ObservedGeneration == session.Generation && testsession.ChainValid(session).ObservedGeneration == session.Generation,
		}
	}
	for _, next := range plan {
		spec := next.Obj().Spec
		saved, found := specs[spec.ResponseID]
		if !found || saved.PreviousResponseID != spec.PreviousResponseID || saved.ResponseStatus != spec.ResponseStatus {
			t.Fatalf("%s was lost: %+v", spec.ResponseID, saved)
		}
	}
	for id := range turns {
		want[id] = expectedVerdict(ctx, t, turns, id)
	}
	return cmp.Diff(want, got)
}

// expectedVerdict computes a verdict by its definition.
func expectedVerdict(ctx context.Context, t *testing.T, turns map[string]chain.Turn, id string) verdict {
	t.Helper()
	get := func(_ context.Context, id string) (chain.Turn, bool, error) {
		turn, found := turns[id]
		return turn, found, nil
	}
	v := verdict{Reason: v1alpha1.ReasonResolved, Observed: true}
	if _, err := chain.Walk(ctx, id, get, chain.WalkOptions{MaxDepth: chain.DefaultMaxDepth}); err != nil {
		chainError, ok := errors.AsType[*chain.Error](err)
		if !ok {
			t.Fatal(err)
		}
		v.Reason, v.BrokenAt = chainError.Rule.Reason(), chainError.ResponseID
	}
	// The root and the depth are set if all ancestors exist, even if the chain is broken for another reason.
	seen := map[string]bool{}
	for current := id; !seen[current]; current = turns[current].Previous {
		seen[current] = true
		turn, found := turns[current]
		if !found {
			break
		}
		if turn.Previous == "" {
			v.Root, v.Depth = current, int32(len(seen))
			break
		}
	}
	return v
}

// checkOwners checks that every session whose parent exists is owned by it and nothing else. On a cycle, only sessions
// that were reconciled before it was closed have owners, so that no session owns itself.
func checkOwners(t *testing.T, stored []v1alpha1.ResponseSession) {
	t.Helper()
	byID := map[string]*v1alpha1.ResponseSession{}
	for i := range stored {
		byID[stored[i].Spec.ResponseID] = &stored[i]
	}
	for id, session := range byID {
		parent := byID[session.Spec.PreviousResponseID]
		switch owners := session.OwnerReferences; {
		case len(owners) > 0:
			if parent == nil || len(owners) != 1 || owners[0].UID != parent.UID || owners[0].Name != parent.Name ||
				ptr.Deref(owners[0].Controller, true) || ptr.Deref(owners[0].BlockOwnerDeletion, true) {
				t.Errorf("%s has owners %+v", id, owners)
			}
		case parent != nil && !leadsBack(byID, id, func(*v1alpha1.ResponseSession) bool { return true }):
			t.Errorf("%s has no owner, but its parent exists", id)
		}
		if leadsBack(byID, id, func(session *v1alpha1.ResponseSession) bool { return len(session.OwnerReferences) > 0 }) {
			t.Errorf("%s owns itself", id)
		}
	}
}

// leadsBack reports whether the parents of a session lead back to it, as long as follow returns true.
func leadsBack(byID map[string]*v1alpha1.ResponseSession, id string, follow func(*v1alpha1.ResponseSession) bool) bool {
	seen := map[string]bool{}
	for current := byID[id]; current != nil && follow(current); current = byID[current.Spec.PreviousResponseID] {
		previous := current.Spec.PreviousResponseID
		if previous == id {
			return true
		}
		if seen[previous] {
			return false
		}
		seen[previous] = true
	}
	return false
}
