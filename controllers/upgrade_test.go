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
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// deepID returns the response ID of the turn at a depth of the chain that exceeds the limit by one turn.
func deepID(depth int) string { return fmt.Sprintf("t%02d", depth) }

// storedSessions returns sessions with every kind of status.
func storedSessions(ns string) []*v1alpha1.ResponseSession {
	snapshot := func(id, key string) *v1alpha1.ResponseSession {
		s := turn(ns, id)
		s.Spec.Request, s.Spec.Response = nil, nil
		s.Spec.Snapshot = &v1alpha1.SnapshotReference{
			Store: v1alpha1.SnapshotStoreChunks, Key: strings.Repeat(key, 26), Parts: 1, SizeBytes: 9, StoredBytes: 9, SHA256: strings.Repeat("0", 64),
		}
		return s
	}
	misnamed := turn(ns, "NOT_A_NAME")
	misnamed.Name = "sha256." + strings.Repeat("a", 52)
	deep := []*v1alpha1.ResponseSession{turn(ns, deepID(1))}
	for depth := 2; depth <= chain.DefaultMaxDepth+1; depth++ {
		deep = append(deep, turn(ns, deepID(depth), deepID(depth-1)))
	}
	return append(deep,
		turn(ns, "root"), turn(ns, "child", "root"), turn(ns, "lost", "missing"), turn(ns, "cycle1", "cycle2"), turn(ns, "cycle2", "cycle1"),
		testsession.Make(ns, "pending").After("root").Status(v1alpha1.ResponseStatusInProgress).Obj(), turn(ns, "waits", "pending"),
		testsession.Make(ns, "failed").After("root").Status(v1alpha1.ResponseStatusFailed).Obj(), turn(ns, "after-failed", "failed"),
		testsession.Make(ns, "unreadable").Request(`{"input":5}`).Obj(), turn(ns, "after-unreadable", "unreadable"),
		snapshot("snapshot", "a"), snapshot("snapshot-reported", "b"), snapshot("snapshot-lost", "c"), misnamed,
	)
}

// TestUpgrade: an operator that starts over the statuses of an earlier build, with other messages, writes nothing. The statuses
// are in testdata/statuses-1.json, as the first build wrote them. Never rewrite that file.
func TestUpgrade(t *testing.T) {
	data, err := os.ReadFile("testdata/statuses-1.json")
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]*v1alpha1.ResponseSessionStatus{}
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	for depth := 1; depth < chain.DefaultMaxDepth; depth++ { // like the status of the deepest valid turn
		status := stored[deepID(chain.DefaultMaxDepth)].DeepCopy()
		status.Depth = int32(depth)
		stored[deepID(depth)] = status
	}
	before := readable
	t.Cleanup(func() { restartOperator(t, func() { readable = before }) })
	for name, message := range map[string]func(string) string{
		"same messages":  func(message string) string { return message },
		"other messages": func(message string) string { return "As an earlier version worded it: " + message },
	} {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			reasons := map[string]bool{}
			settle(t, metav1.NamespaceAll)
			restartOperator(t, func() {
				readable = func(_ context.Context, r *sessions.Record) (bool, error) { return r.Turn.ID != "snapshot-lost", nil }
				var group errgroup.Group
				for _, s := range storedSessions(ns) {
					status := stored[s.Spec.ResponseID].DeepCopy()
					for i := range status.Conditions {
						status.Conditions[i].Message = message(status.Conditions[i].Message)
						reasons[status.Conditions[i].Reason] = true
					}
					group.Go(func() error {
						if err := env.Client.Create(t.Context(), s); err != nil {
							return err
						}
						s.Status = *status
						return env.Client.Status().Update(t.Context(), s)
					})
				}
				if err := group.Wait(); err != nil {
					t.Fatal(err)
				}
			})
			settle(t, metav1.NamespaceAll)
			var writes []string
			for _, write := range op.writes.sessions(ns) {
				if strings.HasSuffix(write, "/status") {
					writes = append(writes, write)
				}
			}
			if len(writes) > 0 {
				t.Errorf("the operator wrote %v", writes)
			}
			want := []string{
				v1alpha1.ReasonCycleDetected, v1alpha1.ReasonDepthExceeded, v1alpha1.ReasonNameMismatch, v1alpha1.ReasonParentNotFound, v1alpha1.ReasonResolved,
				v1alpha1.ReasonSnapshotUnreadable, v1alpha1.ReasonSnapshotVerified, v1alpha1.ReasonTurnNotCompleted, v1alpha1.ReasonTurnPending,
			}
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(reasons))); diff != "" {
				t.Errorf("reasons of the statuses (-want +got):\n%s", diff)
			}
		})
	}
}
