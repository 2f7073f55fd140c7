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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// newConversationStatus returns the status of a conversation as the leader writes it, without the figures of the turns of its history.
func newConversationStatus(c *conversations.Record, v conversations.Verdict, now time.Time) *v1alpha1.ConversationStatus {
	return &v1alpha1.ConversationStatus{
		Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionHeadResolved,
			Status:             v.Status,
			Reason:             v.Reason,
			Message:            v.Message(),
			ObservedGeneration: c.Generation,
			LastTransitionTime: transitionTime(v.Status, c.HeadResolved, c.Since, now),
		}},
		ObservedGeneration: c.Generation,
		Turns:              int32(v.Turns),
		BrokenAt:           v.BrokenAt,
		HistoryRevision:    historyRevisionOf(c, v),
		LastActivityTime:   optionalTime(lastActivity(c, v, now)),
		LastUpdateTime:     optionalTime(c.Updated),
	}
}

// lastActivity returns when the last turn was stored. It does not return to that of an earlier turn, except from a time that has not come.
func lastActivity(c *conversations.Record, v conversations.Verdict, now time.Time) sessions.Seconds {
	if c.Activity > sessions.SecondsOf(now) {
		return v.Stored
	}
	return max(c.Activity, v.Stored)
}

func optionalTime(s sessions.Seconds) *metav1.Time {
	if s == 0 {
		return nil
	}
	return new(s.Time())
}
