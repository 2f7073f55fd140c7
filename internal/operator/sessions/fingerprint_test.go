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

package sessions

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// TestFingerprint checks that the fingerprint covers every part of a status that the leader writes, and nothing that others write.
func TestFingerprint(t *testing.T) {
	status := func() *v1alpha1.ResponseSessionStatus {
		return &v1alpha1.ResponseSessionStatus{
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: "r", Message: "m", ObservedGeneration: 1,
			}},
			ObservedGeneration: 1, Depth: 2, RootResponseID: "root", BrokenAt: "at",
		}
	}
	tests := map[string]struct {
		change func(*v1alpha1.ResponseSessionStatus)
		same   bool
	}{
		"nothing":         {func(*v1alpha1.ResponseSessionStatus) {}, true},
		"transition time": {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"another condition": {func(s *v1alpha1.ResponseSessionStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Other"})
		}, true},
		"no condition":         {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions = nil }, false},
		"status":               {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, false},
		"reason":               {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Reason = "x" }, false},
		"message":              {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Message = "x" }, true},
		"condition generation": {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].ObservedGeneration = 2 }, false},
		"generation":           {func(s *v1alpha1.ResponseSessionStatus) { s.ObservedGeneration = 2 }, false},
		"depth":                {func(s *v1alpha1.ResponseSessionStatus) { s.Depth = 3 }, false},
		"root":                 {func(s *v1alpha1.ResponseSessionStatus) { s.RootResponseID = "x" }, false},
		"broken at":            {func(s *v1alpha1.ResponseSessionStatus) { s.BrokenAt = "x" }, false},
		"snapshot store":       {func(s *v1alpha1.ResponseSessionStatus) { s.SnapshotStore = "Chunks" }, false},
		"snapshot bytes":       {func(s *v1alpha1.ResponseSessionStatus) { s.SnapshotBytes = 1 }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := status()
			tc.change(changed)
			if same := NewFingerprint(status()) == NewFingerprint(changed); same != tc.same {
				t.Errorf("same fingerprint is %t, want %t", same, tc.same)
			}
		})
	}
}
