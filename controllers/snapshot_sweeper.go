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
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks,verbs=get;list;patch;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:urls=/version,verbs=get

// SnapshotSweeper periodically compares the stored snapshots with the sessions that refer to them. It marks snapshots that no
// session refers to, and deletes them once they have been marked for the grace period. It triggers another read of a snapshot
// if parts of it have disappeared or reappeared. It runs on the leader.
//
// The mark is stored with the snapshot, so that every leader sees it, and it can only be lost together with the snapshot. The
// mark is removed if a session appears within the grace period, as in a restore, even if it is gone again when the next sweep begins.
//
// Tenants can store as many snapshots without sessions as they like. So namespaces take turns, mark by mark and deletion by deletion, and
// stores take turns, each for a limited time.
type SnapshotSweeper struct {
	View *sessions.View
	// Client is a client of the ResponseSessions' group and version.
	Client rest.Interface
	Stores []snapshot.Store
	// Interval is the time between two sweeps, and the time after which a sweep of one store leaves the rest to the next.
	Interval time.Duration
	Limits   SweepLimits
	// Releases must receive what View releases.
	Releases *Releases
	Clock    clock.Clock
	// Now returns the time with which marks are made and compared. Leaders follow each other, so it must not be that of one of their own
	// clocks: kubeclient.Now.
	Now func(context.Context) (time.Time, error)

	// heldOff holds the names of the stores whose last sweep was held off. Only Start uses it.
	heldOff map[string]bool
	// firstSweeps is when this process first swept each store.
	firstSweeps map[string]time.Time
}

// NeedLeaderElection returns true.
func (s *SnapshotSweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx is done. A failed sweep is logged, and the next sweep retries it. Start returns an error if a store
// belongs to another cluster, which would treat the snapshots of this one as unreferenced.
func (s *SnapshotSweeper) Start(ctx context.Context) error {
	if err := s.View.WaitForSync(ctx); err != nil {
		return nil //nolint:nilerr // the context is done
	}
	s.heldOff = map[string]bool{}
	for _, store := range s.Stores {
		initSweepMetrics(store.Name())
	}
	for {
		unfinished, err := s.pass(ctx)
		if err != nil {
			return err
		}
		if unfinished && ctx.Err() == nil {
			continue // it has taken as long as a phase of a sweep, so lists are not much of the work
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(s.Interval):
		}
	}
}

// pass sweeps each store once. It reports whether another pass must follow at once, because a sweep has reached its time limit. A sweep with
// an error, such as that it would have deleted too much, is repeated only after the interval, in which an administrator can act.
func (s *SnapshotSweeper) pass(ctx context.Context) (unfinished bool, foreign error) {
	for _, store := range s.Stores {
		err := s.claim(ctx, store)
		if errors.Is(err, snapshot.ErrForeign) {
			return false, err
		}
		result, left := sweepFailed, false
		if err == nil {
			result, left, err = s.sweep(ctx, store)
		}
		if ctx.Err() == nil {
			s.record(ctx, store, result, err)
		}
		unfinished = unfinished || left && err == nil
	}
	return unfinished, nil
}

// claim records in a store that it belongs to this cluster.
func (s *SnapshotSweeper) claim(ctx context.Context, store snapshot.Store) error {
	return store.Claim(ctx, knownSnapshots(s.View.External(), store.Name()))
}

// knownSnapshots returns the verified snapshots, which identify a bucket as this cluster's own. A restore does not bring back statuses, so no snapshot
// is verified after it. In that case knownSnapshots returns everything that sessions refer to, alternating between namespaces: the operator must
// not mistake an empty bucket for the right one.
func knownSnapshots(external []*sessions.Record, store string) []snapshot.Part {
	var read, unread []snapshot.Part
	for _, session := range external {
		reference := session.Snapshot()
		part := snapshot.Part{Session: session.NamespacedName(), Key: reference.Key}
		switch {
		case reference.Store != store:
		case session.Verified:
			read = append(read, part)
		default:
			unread = append(unread, part)
		}
	}
	if len(read) > 0 {
		return read
	}
	return slices.Collect(inTurns(slices.Values(unread), func(part snapshot.Part) string { return part.Session.Namespace }))
}

// snapshotKey identifies a snapshot. The session is not part of it: a chunk may have lost the annotation with its name.
type snapshotKey struct{ namespace, key string }

// record counts a sweep, and logs its error, and when sweeps start or stop being held off.
func (s *SnapshotSweeper) record(ctx context.Context, store snapshot.Store, result sweepResult, err error) {
	sweeps.WithLabelValues(store.Name(), string(result)).Inc()
	if err != nil {
		log.FromContext(ctx).Error(err, "Unable to sweep the snapshots", "store", store.Name())
	}
	if result == sweepFailed {
		return
	}
	held := result == sweepHeldOff
	if held != s.heldOff[store.Name()] {
		message := "Sweeps of a bucket are no longer held off: snapshots that no session refers to are deleted"
		if held {
			message = "Sweeps of a bucket are held off: nothing is deleted until an administrator confirms or no session has returned for --snapshot-sweep-hold-off"
		}
		log.FromContext(ctx).Info(message, "store", store.Name())
	}
	s.heldOff[store.Name()] = held
	value := 0.0
	if held {
		value = 1
	}
	sweepsHeldOff.WithLabelValues(store.Name()).Set(value)
}

// errStale indicates that the view may lack sessions, whose snapshots would be marked.
var errStale = errors.New("the view of the sessions is out of date: the kube-apiserver has not sent changes for too long")

// sweep compares a store with the sessions, and marks and deletes snapshots. It does nothing if it could not list the whole
// store, or if the view is stale. It reports whether it left some marks or deletions to the next sweep.
func (s *SnapshotSweeper) sweep(ctx context.Context, store snapshot.Store) (result sweepResult, left bool, err error) {
	hold, begun, err := store.HeldOff(ctx)
	if err != nil {
		return sweepFailed, false, err
	}
	deletes := begun && hold == (snapshot.HoldOff{})
	now, err := s.Now(ctx)
	if err != nil {
		return sweepFailed, false, err
	}
	follows := s.Releases.at(now).follows
	inBucket := store.Name() != v1alpha1.SnapshotStoreChunks // a snapshot in chunks has several parts, of which one has the mark
	found, err := s.compare(ctx, store, func(unreferenced snapshot.Part) bool {
		return inBucket && s.Limits.needsNothing(unreferenced, now, deletes) && !follows(unreferenced)
	})
	if err != nil {
		return sweepFailed, false, err
	}
	if now, err = s.Now(ctx); err != nil {
		return sweepFailed, false, err
	}
	s.noteSweep(store.Name(), now)
	released := s.Releases.at(now)
	plan := s.Limits.plan(found, now, released.follows)
	if !released.complete || !deletes {
		plan.due, plan.omitted = nil, nil // a session may have referred to any of them within the grace period, or is being restored
	}
	var refusal error
	if deletes { // otherwise, marks show which sessions return
		plan.mark, refusal = s.Limits.markable(plan)
	}
	unmarked, markErr := s.mark(ctx, store, plan)
	lastSweep.WithLabelValues(store.Name()).Set(float64(now.Unix()))
	// A part that cannot be marked does not prevent the deletion of others.
	result, undeleted, err := s.delete(ctx, store, plan, found, unmarked)
	err = errors.Join(refusal, markErr, err)
	switch {
	case result != sweepCompleted: // it was held off or refused, or has failed
	case refusal != nil:
		result = sweepRefused
	case err != nil:
		result = sweepFailed
	}
	return result, unmarked || undeleted, err
}

// noteSweep records the first sweep of a store.
func (s *SnapshotSweeper) noteSweep(store string, now time.Time) {
	if s.firstSweeps == nil {
		s.firstSweeps = map[string]time.Time{}
	}
	if _, swept := s.firstSweeps[store]; !swept {
		s.firstSweeps[store] = now
	}
}

// compare compares a store with the sessions, and has snapshots read again whose parts have disappeared or reappeared.
func (s *SnapshotSweeper) compare(
	ctx context.Context, store snapshot.Store, needsNothing func(unreferenced snapshot.Part) bool,
) (*comparison, error) {
	if s.View.IsStale() {
		return nil, errStale
	}
	// List the sessions first: every snapshot that they refer to was stored before the store is listed.
	known := s.references(store)
	found, err := known.compare(store.List(ctx), maxKeptParts, needsNothing)
	if err != nil {
		return nil, err
	}
	for session, parts := range known.parts {
		complete := parts == int(session.Snapshot().Parts)
		if complete == session.Turn.Unreadable {
			s.View.Recheck(session)
		}
	}
	return found, nil
}

// delete executes the deletions of a plan, unless they are held off or refused. It reports whether it left some to the next sweep. unmarked
// is whether this sweep has left snapshots to be marked.
func (s *SnapshotSweeper) delete(
	ctx context.Context, store snapshot.Store, plan sweepPlan, found *comparison, unmarked bool,
) (result sweepResult, left bool, err error) {
	held, err := s.holdOff(ctx, store, found.returned, unmarked || found.moreToMark)
	switch {
	case err != nil:
		return sweepFailed, false, err
	case held:
		return sweepHeldOff, false, nil
	}
	due, refusal := s.Limits.permitted(plan)
	left, err = each(inTurns(deletionSteps(due), deletionStep.namespace), s.phase(), func(step deletionStep) error {
		return s.collect(ctx, store, plan, step)
	})
	if refusal != nil {
		return sweepRefused, left, errors.Join(refusal, err)
	}
	return sweepCompleted, left, err
}

// sweepPhases is the number of phases of a sweep: it unmarks, marks, and deletes. Each has its share of the interval, so that one with much
// to do, which a tenant can cause, does not take the time of the others.
const sweepPhases = 3

// phase begins a phase of a sweep, and returns a function that reports whether its time is over.
func (s *SnapshotSweeper) phase() (over func() bool) {
	end := s.Clock.Now().Add(s.Interval / sweepPhases)
	return func() bool { return !s.Clock.Now().Before(end) }
}

// each makes one request per element, and returns the first error, with the number of the others: a tenant can cause any number of requests. It
// stops when the phase is over, or after the first request that times out or does not reach the server, because each of the others would fail
// in the same way. It reports whether it left some out. The next sweep makes them.
func each[T any](all iter.Seq[T], over func() bool, request func(T) error) (left bool, err error) {
	failed := 0
	for one := range all {
		if left = over(); left {
			break
		}
		failure := request(one)
		if failure == nil {
			continue
		}
		if failed++; err == nil {
			err = failure
		}
		left = errors.Is(failure, context.DeadlineExceeded) || errors.Is(failure, context.Canceled) || utilnet.IsConnectionRefused(failure)
		if left {
			break
		}
	}
	if failed > 1 {
		err = fmt.Errorf("%w (and %d more failures)", err, failed-1)
	}
	return left, err
}

// holdOff reports whether a sweep must not delete. If sessions have returned, a restore may be in progress.
//
// Only the return of a session that was missing when the hold-off began prolongs it. Its snapshot was marked before, or was too young for
// that, and was marked by a sweep within the grace period. Otherwise a tenant could prolong the hold-off for all others by deleting sessions
// and creating one of them again from time to time. So the hold-off begins only once no snapshots remain to be marked. It does not wait for
// snapshots whose sessions were deleted after the mark, which the next sweep marks again, and for all others only as long as it lasts itself: a
// tenant could keep creating some.
func (s *SnapshotSweeper) holdOff(ctx context.Context, store snapshot.Store, returned []snapshot.Part, unmarked bool) (bool, error) {
	h, begun, err := store.HeldOff(ctx)
	if err != nil || begun && h == (snapshot.HoldOff{}) {
		return false, err
	}
	now, err := s.Now(ctx) // after the marks were made
	switch {
	case err != nil:
		return false, err
	case !begun && unmarked && now.Sub(s.firstSweeps[store.Name()]) < s.Limits.HoldOff:
		return true, nil
	case !begun:
		h = snapshot.HoldOff{Since: now, Begun: now}
	}
	restored := func(part snapshot.Part) bool { return part.Unreferenced.Before(h.Begun.Add(s.Limits.Grace)) }
	switch {
	case slices.ContainsFunc(returned, restored), !begun && s.Limits.HoldOff > 0:
		h.Since = now
		return true, store.SetHeldOff(ctx, h)
	case now.Sub(h.Since) < s.Limits.HoldOff:
		return true, nil
	}
	return false, store.SetHeldOff(ctx, snapshot.HoldOff{})
}
