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
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// NewWaits returns the delays of sessions that wait to have their snapshots read.
func NewWaits() workqueue.TypedRateLimiter[ctrl.Request] { return newWaits() }

// RewriteOwners is one pass.
func RewriteOwners(ctx context.Context, o *OwnerVersions) (failed int, err error) { return o.pass(ctx) }

// Sweep sweeps one store once.
func Sweep(ctx context.Context, s *SnapshotSweeper, store snapshot.Store) error {
	_, _, err := s.sweep(ctx, store)
	return err
}

// InTurns yields strings in an order in which their first letters take turns.
func InTurns(all []string) iter.Seq[string] {
	return inTurns(slices.Values(all), func(one string) string { return one[:1] })
}

// Each makes one request per element, without a limit of time.
func Each[T any](all []T, request func(T) error) (left bool, err error) {
	return each(slices.Values(all), func() bool { return false }, request)
}

// DeletionOrder returns the order of the queue of deletions with marked conversations.
func DeletionOrder(requests ...ctrl.Request) *fair.Queue[ctrl.Request] {
	order := newDeletionOrder()
	for _, r := range requests {
		order.Mark(r, deletionMark)
		order.Push(r)
	}
	return order
}

// MaxPlanned is for Plan what maxKeptParts is for a sweep.
const MaxPlanned = 2_000

// Plan returns what a sweep does with the parts that it found, given the keys to which sessions refer.
func Plan(
	l SweepLimits, inBucket bool, parts, referenced []snapshot.Part, now time.Time,
) (mark, unmark []snapshot.Part, due [][]snapshot.Part) {
	known := &references{found: map[snapshotKey]bool{}}
	for _, part := range referenced {
		known.found[snapshotKey{part.Session.Namespace, part.Key}] = false
	}
	found, err := known.compare(func(yield func(snapshot.Part, error) bool) {
		slices.Values(parts)(func(part snapshot.Part) bool { return yield(part, nil) })
	}, MaxPlanned, func(part snapshot.Part) bool { return inBucket && l.needsNothing(part, now, true) })
	if err != nil {
		panic(err)
	}
	plan := l.plan(found, now, func(snapshot.Part) bool { return false })
	permitted, _ := l.permitted(plan)
	markable, _ := l.markable(plan)
	return markable, plan.unmark, permitted
}

// Released reports whether a snapshot was released after a mark, according to the clock of the mark, whose time is now.
func Released(r *Releases, now time.Time, namespace, key string, mark time.Time) bool {
	return r.at(now).follows(snapshot.Part{Session: types.NamespacedName{Namespace: namespace}, Key: key, Unreferenced: mark})
}

// KnownSnapshots is knownSnapshots.
var KnownSnapshots = knownSnapshots

// Adopt makes a session the owner of the first chunk of its snapshot.
func Adopt(ctx context.Context, r *ResponseSessionReconciler, record *sessions.Record) (bool, error) {
	return r.adopt(ctx, record)
}

// Verify reads the snapshot of a session.
func Verify(ctx context.Context, r *ResponseSessionReconciler, session types.NamespacedName) error {
	r.verifications = fair.NewBudget(1)
	return r.verify(ctx, ctrl.Request{NamespacedName: session})
}

// Progress tracks reconciles.
type Progress struct{ progress }

// Start records the start of a reconcile.
func (p *Progress) Start(now time.Time) { p.start(now) }

// Standstill is the check that sessions wait and none starts.
func (p *Progress) Standstill(now time.Time, waiting int) time.Duration {
	return p.standstill(now, waiting)
}

// IsBehind reports whether a turn is stored whose absence a verdict reports.
func IsBehind(ctx context.Context, r *ConversationReconciler, namespace string, verdict conversations.Verdict) (bool, error) {
	return r.isBehind(ctx, namespace, verdict)
}
