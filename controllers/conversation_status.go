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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// historyVerdict is what the status of a conversation says about its history.
type historyVerdict struct {
	status          metav1.ConditionStatus
	reason, message string
	turns           int
	// headStored is unset if there is a head whose turn is not stored, and previous is the response ID of the turn before the head.
	headStored bool
	previous   string
	// stored is when the last turn was stored, or 0.
	stored sessions.Seconds
	// last is the response ID of the last turn, or empty.
	last string
}

// verdict returns the verdict on the history of a conversation. It ends at the head or, while a place is reserved for a head that is not stored,
// at the base. A turn with the ID of the head that continues another turn than the base is an earlier attempt that has lost its place.
func (r *ConversationReconciler) verdict(c *conversations.Record) historyVerdict {
	if c.Misnamed {
		return historyVerdict{
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonNameMismatch, headStored: true,
			message: "The name of the object does not follow from spec.conversationID: nothing finds the conversation by its ID.",
		}
	}
	if c.Head == "" {
		return noTurns
	}
	head := r.verdictAt(c.Namespace, c.Head)
	if !c.Reserved || head.headStored && head.previous == c.Base {
		return head
	}
	base := noTurns
	if c.Base != "" {
		base = r.verdictAt(c.Namespace, c.Base)
	}
	base.headStored = false
	if base.status == metav1.ConditionFalse { // and remains so when the head is stored
		return base
	}
	base.status, base.reason = metav1.ConditionUnknown, v1alpha1.ReasonHeadReserved
	base.message = fmt.Sprintf("Response %q, for which the head is reserved, is not stored as the next turn yet: until then, the history ends before it.", c.Head)
	return base
}

var noTurns = historyVerdict{
	status: metav1.ConditionTrue, reason: v1alpha1.ReasonNoTurns, message: "The conversation has no turns.", headStored: true,
}

// verdictAt returns the verdict on the history that ends at a response ID.
func (r *ConversationReconciler) verdictAt(namespace, id string) historyVerdict {
	v, found := r.Sessions.Verdict(namespace, v1alpha1.ObjectName(id))
	if !found || v.Record.Misnamed { // the object with this name has another ID
		missing := &chain.Error{Rule: chain.NotFound, ResponseID: id}
		return historyVerdict{status: metav1.ConditionFalse, reason: v1alpha1.ReasonParentNotFound, message: message(missing)}
	}
	return historyVerdict{
		status: metav1.ConditionStatus(v.Rule.ConditionStatus()), reason: v.Rule.Reason(), message: message(v.Explanation),
		turns: v.Depth, headStored: true, previous: v.Record.Turn.Previous, last: id, stored: v.Record.Created,
	}
}

// newConversationStatus returns the status of a conversation as the leader writes it, without the figures of the turns of its path.
func newConversationStatus(c *conversations.Record, v historyVerdict, path []*sessions.Record, now time.Time) *v1alpha1.ConversationStatus {
	return &v1alpha1.ConversationStatus{
		Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionHeadResolved,
			Status:             v.status,
			Reason:             v.reason,
			Message:            v.message,
			ObservedGeneration: c.Generation,
			LastTransitionTime: transitionTime(v.status, c.HeadResolved, c.Since, now),
		}},
		ObservedGeneration: c.Generation,
		Turns:              int32(v.turns),
		HistoryRevision:    historyRevisionOf(c, v, path),
		LastActivityTime:   optionalTime(lastActivity(c, v, now)),
		LastUpdateTime:     optionalTime(lastUpdate(c, now)),
	}
}

// lastActivity returns when the last turn was stored. It does not return to that of an earlier turn, except from a time that has not come.
func lastActivity(c *conversations.Record, v historyVerdict, now time.Time) sessions.Seconds {
	if c.Activity > sessions.SecondsOf(now) {
		return v.stored
	}
	return max(c.Activity, v.stored)
}

// lastUpdate returns when the conversation was last changed.
func lastUpdate(c *conversations.Record, now time.Time) sessions.Seconds {
	if c.IsReduced {
		return max(c.Updated, sessions.SecondsOf(now))
	}
	return c.Updated
}

func optionalTime(s sessions.Seconds) *metav1.Time {
	if s == 0 {
		return nil
	}
	return new(s.Time())
}
