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
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// The reasons of the events.
const (
	EventChainBroken = "ChainBroken"
	EventChainHealed = "ChainHealed"
	// EventChainPending: a broken chain now only waits for a turn to be completed.
	EventChainPending = "ChainPending"
)

// transitions counts how often the chain of a session became broken, intact or pending.
var transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "catena_chain_transitions_total",
	Help: "Number of times that a session's chain became broken, or that a broken one became intact or pending.",
}, []string{"to"})

func init() {
	metrics.Registry.MustRegister(transitions)
	for _, to := range []string{"broken", "intact", "pending"} {
		transitions.WithLabelValues(to)
	}
}

// recordTransition counts and records that a session's chain becomes broken, or is no longer broken. A chain with its first
// verdict is assumed to have been intact, and a chain that only waits for a turn to be completed is not broken. Every
// transition is counted and logged, unless the response to the write of the status was lost. But events are objects that etcd
// holds: beyond the limit, for example when the root of a large tree is deleted, they are dropped.
func (r *ResponseSessionReconciler) recordTransition(ctx context.Context, v sessions.Verdict, status *v1alpha1.ResponseSessionStatus) {
	condition := status.Conditions[0]
	wasBroken := v.Record.ChainValid.Status() == metav1.ConditionFalse
	isBroken := condition.Status == metav1.ConditionFalse
	logger := log.FromContext(ctx).WithValues("reason", condition.Reason, "brokenAt", status.BrokenAt)
	switch {
	case isBroken && !wasBroken:
		transitions.WithLabelValues("broken").Inc()
		logger.Info("Chain is broken")
		r.event(v.Record, brokenAt(v), corev1.EventTypeWarning, EventChainBroken, condition)
	case wasBroken && condition.Status == metav1.ConditionUnknown:
		transitions.WithLabelValues("pending").Inc()
		logger.Info("Chain is no longer broken, but waits for a turn to be completed")
		r.event(v.Record, brokenAt(v), corev1.EventTypeNormal, EventChainPending, condition)
	case wasBroken && !isBroken:
		transitions.WithLabelValues("intact").Inc()
		logger.Info("Chain is intact again")
		r.event(v.Record, nil, corev1.EventTypeNormal, EventChainHealed, condition)
	default:
		logger.V(1).Info("Wrote the verdict")
	}
}

// brokenAt refers to the session at which the chain breaks, which may not exist. It prevents events about different breaks from
// being aggregated into one event, which would keep only the first note.
func brokenAt(v sessions.Verdict) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind,
		Namespace: v.Record.Namespace, Name: v1alpha1.ObjectName(v.BrokenAt),
	}
}

func (r *ResponseSessionReconciler) event(regarding *sessions.Record, related runtime.Object, eventType, reason string, condition metav1.Condition) {
	if r.EventLimiter.Allow(regarding.Namespace) {
		note := truncate(condition.Reason+": "+condition.Message, maxNoteBytes)
		reference := &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind,
			Namespace: regarding.Namespace, Name: regarding.Name, UID: regarding.UID.Text(),
		}
		r.Recorder.Eventf(reference, related, eventType, reason, "ValidateChain", "%s", note)
	}
}

// maxNoteBytes is the largest note of an event that the API server accepts.
const maxNoteBytes = 1024

// truncate shortens a text to at most a number of bytes without splitting a character.
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

// eventPeriod is the time for which a recorded event counts towards the limit.
const eventPeriod = 10 * time.Second

// EventLimiter limits the events that are recorded for all namespaces together. They share it as in fair.Budget: one alone can have half,
// so that its events do not suppress those of others.
type EventLimiter struct{ budget *fair.Budget }

// NewEventLimiter returns a limiter of events per second that allows bursts of ten seconds' worth. Zero allows none.
func NewEventLimiter(perSecond float64) *EventLimiter {
	return &EventLimiter{fair.NewBudget(int64(min(math.Ceil(perSecond*eventPeriod.Seconds()), math.MaxInt32)))}
}

// Allow reports whether an event of a namespace may be recorded now.
func (l *EventLimiter) Allow(namespace string) bool {
	if !l.budget.TryAcquire(namespace, 1) {
		return false
	}
	time.AfterFunc(eventPeriod, func() { l.budget.Release(namespace, 1) })
	return true
}
