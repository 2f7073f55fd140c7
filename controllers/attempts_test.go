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
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestAttempts: a status that is written again after a failure is byte-identical, because the first one may have been stored.
func TestAttempts(t *testing.T) {
	status := func(reason string, second int) *v1alpha1.ResponseSessionStatus {
		return &v1alpha1.ResponseSessionStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionChainValid, Reason: reason, LastTransitionTime: metav1.Unix(int64(second), 0),
		}}}
	}
	record := &sessions.Record{Namespace: "ns", Name: "a", UID: "1"}
	recreated, other := *record, *record
	recreated.UID, other.Name = "2", "b"
	first := status(v1alpha1.ReasonResolved, 1)
	for name, tc := range map[string]struct {
		record    *sessions.Record
		next      *v1alpha1.ResponseSessionStatus
		forget    bool
		wantFirst bool
	}{
		"same verdict":      {record: record, next: status(v1alpha1.ReasonResolved, 2), wantFirst: true},
		"another verdict":   {record: record, next: status(v1alpha1.ReasonParentNotFound, 2)},
		"recreated session": {record: &recreated, next: status(v1alpha1.ReasonResolved, 2)},
		"another session":   {record: &other, next: status(v1alpha1.ReasonResolved, 2)},
		"forgotten attempt": {record: record, next: status(v1alpha1.ReasonResolved, 2), forget: true},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := &controllers.Attempts{}
			attempts.FailedWith(record, first)
			if tc.forget {
				attempts.Forget(record.NamespacedName())
			}
			want := tc.next
			if tc.wantFirst {
				want = first
			}
			if diff := cmp.Diff(want, attempts.Repeat(tc.record, tc.next)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAttemptsOfDeletedSessions: a failed write to a session that has since been deleted, or deleted and recreated, is not
// remembered.
func TestAttemptsOfDeletedSessions(t *testing.T) {
	ns := env.NewNamespace(t)
	settle(t, ns)
	release := op.writes.hold()
	defer release()
	for _, id := range []string{"a", "b", "c", "d"} {
		create(t, turn(ns, id))
	}
	testutil.Eventually(t, func(context.Context) error {
		if op.writes.waiting.Load() < 4 {
			return errors.New("not all statuses are being written")
		}
		return nil
	})
	for _, id := range []string{"a", "b", "c", "d"} {
		if err := env.Client.Delete(t.Context(), turn(ns, id)); err != nil {
			t.Fatal(err)
		}
	}
	create(t, turn(ns, "c"))
	release()
	wantVerdicts(t, ns, map[string]verdict{"c": resolved(1, "c")})
	settle(t, ns)
	if pending := controllers.PendingAttempts(op.reconciler); pending > 0 {
		t.Errorf("%d failed writes are remembered, want none", pending)
	}
}
