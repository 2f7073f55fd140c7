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
	"math"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
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
// mark is removed if a session appears within the grace period, as in a restore.
type SnapshotSweeper struct {
	View *sessions.View
	// Client is a client of the ResponseSessions' group and version.
	Client rest.Interface
	Stores []snapshot.Store
	// Interval is the time between two sweeps.
	Interval time.Duration
	Limits   SweepLimits
	Clock    clock.Clock
	// Now returns the time with which marks are made and compared. Leaders follow each other, so it must not be that of one of their own
	// clocks: kubeclient.Now.
	Now func(context.Context) (time.Time, error)

	// heldOff holds the names of the stores whose last sweep was held off. Only Start uses it.
	heldOff map[string]bool
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
	for {
		for _, store := range s.Stores {
			err := s.claim(ctx, store)
			if errors.Is(err, snapshot.ErrForeign) {
				return err
			}
			result := sweepFailed
			if err == nil {
				result, err = s.sweep(ctx, store)
			}
			if ctx.Err() == nil {
				s.record(ctx, store, result, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(s.Interval):
		}
	}
}

// claim records in a store that it belongs to this cluster.
func (s *SnapshotSweeper) claim(ctx context.Context, store snapshot.Store) error {
	var known []snapshot.Part
	for _, session := range s.View.External() {
		if session.Verified && session.Snapshot.Store == store.Name() {
			known = append(known, snapshot.Part{Session: session.NamespacedName(), Key: session.Snapshot.Key})
		}
	}
	return store.Claim(ctx, known)
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
// store, or if the view is stale.
func (s *SnapshotSweeper) sweep(ctx context.Context, store snapshot.Store) (sweepResult, error) {
	if s.View.IsStale() {
		return sweepFailed, errStale
	}
	// List the sessions first: every snapshot that they refer to was stored before the store is listed.
	known := s.references(store)
	kept := math.MaxInt
	if store.Name() == v1alpha1.SnapshotStoreChunks {
		kept = maxKeptChunks
	}
	found, err := known.compare(store.List(ctx), kept)
	if err != nil {
		return sweepFailed, err
	}
	for session, parts := range known.parts {
		complete := parts == int(session.Snapshot.Parts)
		if complete == session.Turn.Unreadable {
			s.View.Recheck(session)
		}
	}
	now, err := s.Now(ctx)
	if err != nil {
		return sweepFailed, err
	}
	plan := s.Limits.plan(found, now)
	errs := []error{s.mark(ctx, store, plan)}
	lastSweep.WithLabelValues(store.Name()).Set(float64(now.Unix()))
	// Marking many parts takes hours. A hold-off that begins now began after all of them were marked.
	now, err = s.Now(ctx)
	if err != nil {
		return sweepFailed, errors.Join(append(errs, err)...)
	}
	// A part that cannot be marked does not prevent the deletion of others.
	result, err := s.delete(ctx, store, plan, found.returned, now)
	if errs = append(errs, err); result == sweepCompleted && errors.Join(errs...) != nil {
		result = sweepFailed
	}
	return result, errors.Join(errs...)
}

// delete executes the deletions of a plan, unless they are held off or refused.
func (s *SnapshotSweeper) delete(
	ctx context.Context, store snapshot.Store, plan sweepPlan, returned []snapshot.Part, now time.Time,
) (sweepResult, error) {
	held, err := s.holdOff(ctx, store, returned, now)
	switch {
	case err != nil:
		return sweepFailed, err
	case held:
		return sweepHeldOff, nil
	}
	due, refusal := s.Limits.permitted(plan)
	err = each(due, func(parts []snapshot.Part) error { return s.collect(ctx, store, parts) })
	if refusal != nil {
		return sweepRefused, errors.Join(refusal, err)
	}
	return sweepCompleted, err
}

// each makes one request per element and returns the errors. It stops after the first request that times out, because each of
// the others would take as long. The next sweep retries them.
func each[T any](all []T, request func(T) error) error {
	var errs []error
	for _, one := range all {
		err := request(one)
		errs = append(errs, err)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			break
		}
	}
	return errors.Join(errs...)
}

// holdOff reports whether a sweep must not delete. If sessions have returned, a restore may be in progress.
//
// Only the return of a session that was missing when the hold-off began prolongs it. Its snapshot was marked by the first sweep or, if the
// sweep could not mark it yet, by one within the grace period. Otherwise a tenant could prolong the hold-off for all others by deleting
// sessions and creating one of them again from time to time.
func (s *SnapshotSweeper) holdOff(ctx context.Context, store snapshot.Store, returned []snapshot.Part, now time.Time) (bool, error) {
	h, err := store.HeldOff(ctx, now)
	restored := func(part snapshot.Part) bool { return part.Unreferenced.Before(h.Begun.Add(s.Limits.Grace)) }
	switch {
	case err != nil || h == (snapshot.HoldOff{}):
		return false, err
	case slices.ContainsFunc(returned, restored):
		h.Since = now
		return true, store.SetHeldOff(ctx, h)
	case now.Sub(h.Since) < s.Limits.HoldOff:
		return true, nil
	}
	return false, store.SetHeldOff(ctx, snapshot.HoldOff{})
}

// collect deletes a snapshot, unless a session named by one of its parts refers to it according to a live read.
func (s *SnapshotSweeper) collect(ctx context.Context, store snapshot.Store, parts []snapshot.Part) error {
	read := map[types.NamespacedName]bool{}
	for _, part := range parts {
		if read[part.Session] {
			continue
		}
		read[part.Session] = true
		referred, err := s.refers(ctx, part)
		if err != nil || referred {
			return err
		}
	}
	for _, part := range parts {
		err := store.Delete(ctx, part)
		if errors.Is(err, snapshot.ErrChanged) {
			return nil // the next sweep decides
		}
		if err != nil {
			return fmt.Errorf("unable to delete an unreferenced snapshot of session %s/%s: %w", part.Session.Namespace, logged(part.Session.Name), err)
		}
	}
	log.FromContext(ctx).Info("Deleted a snapshot that no session refers to",
		"namespace", parts[0].Session.Namespace, "name", logged(parts[0].Session.Name), "key", parts[0].Key)
	return nil
}

// logged returns the name of a session for the log. The annotation that it comes from can have any text.
func logged(name string) string {
	if !isName(name) {
		return "(invalid)"
	}
	return name
}

// isName reports whether an object can have a name.
func isName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// refers reports whether the session named by a part refers to its snapshot.
func (s *SnapshotSweeper) refers(ctx context.Context, part snapshot.Part) (bool, error) {
	if !isName(part.Session.Name) {
		return false, nil
	}
	raw, err := kubeclient.GetRaw(ctx, s.Client, kubeclient.Sessions, part.Session)
	if kubeclient.IsGone(err, kubeclient.Sessions, part.Session.Name) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("unable to read session %s: %w", part.Session, err)
	}
	return gjson.GetBytes(raw, "spec.snapshot.key").String() == part.Key, nil
}
