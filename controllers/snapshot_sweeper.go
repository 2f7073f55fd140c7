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

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks,verbs=get;list;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// SnapshotSweeper periodically compares the stored snapshots with the sessions that refer to them. It removes snapshots
// that no session refers to and that are older than any save takes, and has the snapshot of a session read again if parts
// of it have disappeared or are back. It runs on the leader.
//
// The UID of the namespace kube-system identifies the cluster, so that two clusters that share a bucket do not delete
// each other's snapshots.
type SnapshotSweeper struct {
	View *sessions.View
	// Live reads past every cache.
	Live   client.Reader
	Stores []snapshot.Store
	// Interval is the time between two sweeps.
	Interval time.Duration
	// Grace is the age at which a snapshot that no session refers to is deleted, counted from when it was written. It must be
	// longer than snapshot.MaxWriteTime.
	Grace time.Duration
	Clock clock.Clock
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
	var known []snapshot.Stored
	for _, session := range s.View.External() {
		if session.Verified && session.Snapshot.Store == store.Name() {
			known = append(known, snapshot.Stored{Session: session.NamespacedName(), Key: session.Snapshot.Key})
		}
	}
	return store.Claim(ctx, known)
}

// storedKey identifies a stored snapshot.
type storedKey struct {
	session types.NamespacedName
	key     string
}

func (s *SnapshotSweeper) sweep(ctx context.Context, store snapshot.Store) error {
	// The sessions first: any snapshot that they refer to was stored before the list.
	referring := s.View.External()
	found := map[storedKey]snapshot.Stored{}
	for stored, err := range store.List(ctx) {
		if err != nil {
			return err
		}
		at := storedKey{stored.Session, stored.Key}
		known := found[at]
		stored.Parts += known.Parts
		if stored.Since.Before(known.Since) {
			stored.Since = known.Since
		}
		found[at] = stored
	}
	for _, session := range referring {
		if session.Snapshot.Store != store.Name() {
			continue
		}
		at := storedKey{session.NamespacedName(), session.Snapshot.Key}
		complete := found[at].Parts == int(session.Snapshot.Parts)
		if complete == session.Turn.Unreadable {
			s.View.Recheck(session)
		}
		delete(found, at)
	}
	var errs []error
	for _, stored := range found {
		errs = append(errs, s.collect(ctx, store, stored))
	}
	return errors.Join(errs...)
}

// collect deletes a snapshot that is older than the grace period and that its session, read live, does not refer to.
func (s *SnapshotSweeper) collect(ctx context.Context, store snapshot.Store, stored snapshot.Stored) error {
	if s.Clock.Since(stored.Since) < s.Grace {
		return nil
	}
	if !isName(stored.Session.Name) {
		return store.Delete(ctx, stored) // no session can refer to it
	}
	session := &v1alpha1.ResponseSession{}
	err := s.Live.Get(ctx, stored.Session, session)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("unable to read session %s: %w", stored.Session, err)
	}
	if err == nil && session.Spec.Snapshot != nil && session.Spec.Snapshot.Key == stored.Key {
		return nil
	}
	if err := store.Delete(ctx, stored); err != nil {
		return fmt.Errorf("unable to delete a leftover of session %s: %w", stored.Session, err)
	}
	log.FromContext(ctx).Info("Deleted a snapshot that no session refers to",
		"namespace", stored.Session.Namespace, "name", stored.Session.Name, "key", stored.Key)
	return nil
}

// isName reports whether an object can have a name. The annotation of a chunk, which has the name of its session, can have
// any value.
func isName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }
