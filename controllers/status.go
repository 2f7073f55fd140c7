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
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// status returns the status that a judgement asks for. It has one condition, ChainValid.
func (r *ResponseSessionReconciler) status(j sessions.Judgement) *v1alpha1.ResponseSessionStatus {
	s := j.Session
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionChainValid,
		Status:             conditionStatus(j.Verdict.Reason),
		Reason:             j.Verdict.Reason,
		Message:            r.message(j),
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

func conditionStatus(reason string) metav1.ConditionStatus {
	switch reason {
	case v1alpha1.ReasonResolved:
		return metav1.ConditionTrue
	case v1alpha1.ReasonTurnPending:
		return metav1.ConditionUnknown
	}
	return metav1.ConditionFalse
}

// message says in a sentence what the reason means for this session.
func (r *ResponseSessionReconciler) message(j sessions.Judgement) string {
	at := j.Verdict.BrokenAt
	self := at == j.Session.Turn.ID
	switch j.Verdict.Reason {
	case v1alpha1.ReasonResolved:
		return "All turns up to the root are there and completed."
	case v1alpha1.ReasonTurnPending:
		return which(self, at) + " is not completed yet."
	case v1alpha1.ReasonTurnNotCompleted:
		return which(self, at) + " ended without being completed and cannot be used as context."
	case v1alpha1.ReasonSnapshotUnreadable:
		return which(self, at) + " has a request or response that is missing, damaged, or cannot be turned into input items."
	case v1alpha1.ReasonParentNotFound:
		if at == j.Session.Turn.Previous {
			return fmt.Sprintf("The parent %q does not exist in this namespace.", at)
		}
		return fmt.Sprintf("The ancestor %q does not exist in this namespace.", at)
	case v1alpha1.ReasonCycleDetected:
		return fmt.Sprintf("The parents lead back to %q.", at)
	case v1alpha1.ReasonDepthExceeded:
		return fmt.Sprintf("The chain has more than %d turns: %q is beyond the limit.", r.MaxDepth, at)
	case v1alpha1.ReasonNameMismatch:
		return fmt.Sprintf("The object's name must be %q for this response ID. The session is left out of every chain.", v1alpha1.ObjectName(at))
	}
	return j.Verdict.Reason
}

func which(self bool, at string) string {
	if self {
		return "This turn"
	}
	return fmt.Sprintf("The ancestor %q", at)
}
