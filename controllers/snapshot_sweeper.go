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
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// maxUncheckedDeletions is how many snapshots a sweep may delete whatever SnapshotSweeper.MaxShare is.
const maxUncheckedDeletions = 100

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks,verbs=get;list;patch;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// SnapshotSweeper periodically compares the stored snapshots with the sessions that refer to them. It marks snapshots that
// no session refers to, and deletes them once they have been marked for the grace period. It has the snapshot of a session
// read again if parts of it have disappeared or are back. It runs on the leader.
//
// The mark is stored with the snapshot, so that any leader knows it, and it is only ever lost together with the snapshot. A
// session that appears within the grace period, as in a restore, removes it.
type SnapshotSweeper struct {
	View *sessions.View
	// Client is a client of the ResponseSessions' group and version.
	Client rest.Interface
	Stores []snapshot.Store
	// Interval is the time between two sweeps.
	Interval time.Duration
	// Grace is how long no session must have referred to a snapshot before it is deleted. At least twice
	// snapshot.MaxWriteTime.
	Grace time.Duration
	// MaxShare is the largest share of the stored snapshots, from 0 to 1, that a sweep deletes. If more are to be deleted, and
	// they are more than 100, something else is probably wrong: the sweep deletes none.
	MaxShare float64
	Clock    clock.Clock
}

// NeedLeaderElection returns true.
func (s *SnapshotSweeper) NeedLeaderElection() bool { return true }

// Start sweeps until ctx is done. A sweep that fails is logged, and the next one repeats it. Start returns an error if a
// store belongs to another cluster, which would take whatever this one stores there for leftovers.
func (s *SnapshotSweeper) Start(ctx context.Context) error {
	if err := s.View.WaitForSync(ctx); err != nil {
		return nil //nolint:nilerr // the context is done
	}
	for {
		for _, store := range s.Stores {
			err := s.claim(ctx, store)
			if errors.Is(err, snapshot.ErrForeign) {
				return err
			}
			if err == nil {
				err = s.sweep(ctx, store)
			}
			if err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Unable to sweep the snapshots", "store", store.Name())
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

// snapshotKey identifies a snapshot. The session is not part of it: a chunk can have lost the annotation that names it.
type snapshotKey struct{ namespace, key string }

// sweep compares a store with the sessions, marks, and deletes. It does nothing if it could not list the whole store.
func (s *SnapshotSweeper) sweep(ctx context.Context, store snapshot.Store) error {
	// The sessions first: any snapshot that they refer to was stored before the list.
	known := s.references(store)
	found, err := known.compare(store.List(ctx))
	if err != nil {
		return err
	}
	for session, parts := range known.parts {
		complete := parts == int(session.Snapshot.Parts)
		if complete == session.Turn.Unreadable {
			s.View.Recheck(session)
		}
	}
	var errs []error
	for _, part := range found.marked {
		errs = append(errs, store.Mark(ctx, part, time.Time{}))
	}
	due := map[snapshotKey][]snapshot.Part{}
	for key, parts := range found.unreferenced {
		switch s.stageOf(parts) {
		case unmarked:
			errs = append(errs, store.Mark(ctx, parts[0], s.Clock.Now()))
		case expired:
			due[key] = parts
		}
	}
	if len(due) > maxUncheckedDeletions && float64(len(due)) > s.MaxShare*float64(found.snapshots) {
		return errors.Join(append(errs, fmt.Errorf("%d of %d snapshots are to be deleted, because no session has referred to them for %s: "+
			"if that is right, set --snapshot-sweep-max-share for one sweep", len(due), found.snapshots, s.Grace))...)
	}
	for _, parts := range due {
		errs = append(errs, s.collect(ctx, store, parts))
	}
	return errors.Join(errs...)
}

// stage is how far an unreferenced snapshot is.
type stage int

const (
	// written: it may belong to a save that has not ended.
	written stage = iota
	// unmarked: it must be marked.
	unmarked
	// marked: the grace period has not passed.
	marked
	// expired: it must be deleted.
	expired
)

func (s *SnapshotSweeper) stageOf(parts []snapshot.Part) stage {
	now := s.Clock.Now()
	var since, newest time.Time
	for _, part := range parts {
		if newest.Before(part.Written) {
			newest = part.Written
		}
		if mark := part.Unreferenced; !mark.IsZero() && (since.IsZero() || mark.Before(since)) {
			since = mark
		}
	}
	age := now.Sub(newest)
	switch {
	case age < min(snapshot.MaxWriteTime, s.Grace/2):
		return written
	case since.IsZero():
		return unmarked
	case now.Sub(since) < s.Grace || age < s.Grace:
		return marked
	}
	return expired
}

// collect deletes a snapshot, unless a session that one of its parts names refers to it when read live.
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
		if err := store.Delete(ctx, part); err != nil {
			return fmt.Errorf("unable to delete a leftover of session %s: %w", part.Session, err)
		}
	}
	log.FromContext(ctx).Info("Deleted a snapshot that no session refers to",
		"namespace", parts[0].Session.Namespace, "name", parts[0].Session.Name, "key", parts[0].Key)
	return nil
}

// refers reports whether the session that a part names refers to its snapshot.
func (s *SnapshotSweeper) refers(ctx context.Context, part snapshot.Part) (bool, error) {
	// The annotation of a chunk, which has the name of its session, can have any value.
	if len(validation.NameIsDNSSubdomain(part.Session.Name, false)) > 0 {
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
