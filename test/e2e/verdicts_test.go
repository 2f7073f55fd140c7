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
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// judgement is what a status says.
type judgement struct {
	Reason, BrokenAt, Root string
	Depth                  int32
	Observed               bool
}

// misjudged compares the sessions with the plan and their statuses with a plain walk over all of them.
func misjudged(ctx context.Context, t *testing.T, namespace string, plan []testsession.Builder) string {
	t.Helper()
	stored := listSessions(ctx, t, namespace)
	turns := map[string]chain.Turn{}
	specs := map[string]v1alpha1.ResponseSessionSpec{}
	got, want := map[string]judgement{}, map[string]judgement{}
	for i := range stored {
		session := &stored[i]
		turns[session.Spec.ResponseID] = sessions.NewRecord(session, nil).Turn
		specs[session.Spec.ResponseID] = session.Spec
		got[session.Spec.ResponseID] = judgement{
			chainValid(session).Reason, session.Status.BrokenAt, session.Status.RootResponseID, session.Status.Depth,
			session.Status.ObservedGeneration == session.Generation && chainValid(session).ObservedGeneration == session.Generation,
		}
	}
	for _, next := range plan {
		spec := next.Obj().Spec
		saved, found := specs[spec.ResponseID]
		if !found || saved.PreviousResponseID != spec.PreviousResponseID || saved.ResponseStatus != spec.ResponseStatus {
			t.Fatalf("%s was lost: %+v", spec.ResponseID, saved)
		}
		want[spec.ResponseID] = judge(ctx, t, turns, spec.ResponseID)
	}
	return cmp.Diff(want, got)
}

// judge is the definition of a verdict.
func judge(ctx context.Context, t *testing.T, turns map[string]chain.Turn, id string) judgement {
	t.Helper()
	get := func(_ context.Context, id string) (chain.Turn, bool, error) {
		turn, found := turns[id]
		return turn, found, nil
	}
	j := judgement{Reason: v1alpha1.ReasonResolved, Observed: true}
	if _, err := chain.Walk(ctx, id, get, chain.WalkOptions{MaxDepth: chain.DefaultMaxDepth}); err != nil {
		chainError, ok := errors.AsType[*chain.Error](err)
		if !ok {
			t.Fatal(err)
		}
		j.Reason, j.BrokenAt = chainError.Rule.Reason(), chainError.ResponseID
	}
	// The root and the depth count as far as there are parents, whatever is wrong with them.
	seen := map[string]bool{}
	for current := id; !seen[current]; current = turns[current].Previous {
		seen[current] = true
		turn, found := turns[current]
		if !found {
			break
		}
		if turn.Previous == "" {
			j.Root, j.Depth = current, int32(len(seen))
			break
		}
	}
	return j
}

// checkOwners: every session whose parent is there is owned by it and nothing else. On a cycle, only those are that were
// judged before it was closed, so that nothing ever owns itself.
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
			t.Errorf("%s has no owner, and its parent is there", id)
		}
		if leadsBack(byID, id, func(session *v1alpha1.ResponseSession) bool { return len(session.OwnerReferences) > 0 }) {
			t.Errorf("%s owns itself", id)
		}
	}
}

// leadsBack reports whether the parents of a session that are to be followed lead back to it.
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
