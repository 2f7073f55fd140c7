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

package controllers

import (
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// status returns the status that a judgement asks for. It has one condition, ChainValid.
func (r *ResponseSessionReconciler) status(j sessions.Judgement) *v1alpha1.ResponseSessionStatus {
	s := j.Session
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionChainValid,
		Status:             metav1.ConditionStatus(j.Verdict.Rule.ConditionStatus()),
		Reason:             j.Verdict.Rule.Reason(),
		Message:            message(j.Explanation),
		ObservedGeneration: s.Generation,
		LastTransitionTime: metav1.NewTime(s.Since),
	}
	if condition.Status != s.ChainValid {
		condition.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	}
	status := &v1alpha1.ResponseSessionStatus{
		Conditions:         []metav1.Condition{condition},
		ObservedGeneration: s.Generation,
		Depth:              int32(j.Verdict.Depth),
		RootResponseID:     j.Verdict.Root,
		BrokenAt:           j.Verdict.BrokenAt,
		SnapshotStore:      v1alpha1.SnapshotStoreInline,
		SnapshotBytes:      s.SnapshotBytes,
	}
	if s.Snapshot != nil {
		status.SnapshotStore = s.Snapshot.Store
		if !s.Verified {
			status.SnapshotBytes = 0
		}
	}
	return status
}

// message returns the sentence of a verdict as the message of a condition.
func message(explanation *chain.Error) string {
	sentence := explanation.Error()
	first, size := utf8.DecodeRuneInString(sentence)
	return string(unicode.ToUpper(first)) + sentence[size:] + "."
}
