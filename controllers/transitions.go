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
	"context"
	"math"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// The reasons of the events.
const (
	EventChainBroken = "ChainBroken"
	EventChainHealed = "ChainHealed"
	// EventChainPending is that of a broken chain that now waits for a turn to be completed.
	EventChainPending = "ChainPending"
)

// transitions counts, per direction, how often a session's chain broke or healed.
var transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "catena_chain_transitions_total",
	Help: "Number of times that a session's chain became broken, and that a broken one became intact or pending.",
}, []string{"to"})

func init() {
	metrics.Registry.MustRegister(transitions)
	for _, to := range []string{"broken", "intact", "pending"} {
		transitions.WithLabelValues(to)
	}
}

// recordTransition counts and tells where a session's chain becomes broken, or no longer is. A chain that is judged for the
// first time is taken to have been intact, and one that only waits for a turn to be completed is not broken. Every
// transition is counted and logged, but events are objects that etcd holds: beyond the limiter's rate, as where the root
// of a large tree goes, they are left out.
func (r *ResponseSessionReconciler) recordTransition(ctx context.Context, j sessions.Judgement, status *v1alpha1.ResponseSessionStatus) {
	condition := status.Conditions[0]
	wasBroken := j.Session.ChainValid == metav1.ConditionFalse
	isBroken := condition.Status == metav1.ConditionFalse
	logger := log.FromContext(ctx).WithValues("reason", condition.Reason, "brokenAt", status.BrokenAt)
	switch {
	case isBroken && !wasBroken:
		transitions.WithLabelValues("broken").Inc()
		logger.Info("Chain is broken")
		r.event(j.Session, at(j), corev1.EventTypeWarning, EventChainBroken, condition)
	case wasBroken && condition.Status == metav1.ConditionUnknown:
		transitions.WithLabelValues("pending").Inc()
		logger.Info("Chain is no longer broken and waits for a turn")
		r.event(j.Session, at(j), corev1.EventTypeNormal, EventChainPending, condition)
	case wasBroken && !isBroken:
		transitions.WithLabelValues("intact").Inc()
		logger.Info("Chain is intact again")
		r.event(j.Session, nil, corev1.EventTypeNormal, EventChainHealed, condition)
	default:
		logger.V(1).Info("Judged")
	}
}

// at is the session at which the chain breaks; it need not exist. Events that differ in this are not taken for repetitions
// of one another, of which only the first would keep its note.
func at(j sessions.Judgement) runtime.Object {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind,
		Namespace: j.Session.Namespace, Name: v1alpha1.ObjectName(j.Verdict.BrokenAt),
	}
}

func (r *ResponseSessionReconciler) event(s *sessions.Session, related runtime.Object, eventType, reason string, condition metav1.Condition) {
	if r.EventLimiter.Allow() {
		note := truncate(condition.Reason+": "+condition.Message, maxNoteBytes)
		r.Recorder.Eventf(reference(s), related, eventType, reason, "Judge", "%s", note)
	}
}

// maxNoteBytes is how long the note of an event may be; the API server refuses a longer one.
const maxNoteBytes = 1024

// truncate cuts a text to a number of bytes, between characters.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}

// NewEventLimiter returns a limiter of events per second; bursts may have ten seconds' worth. Zero lets none pass.
func NewEventLimiter(perSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), int(math.Ceil(10*perSecond)))
}
