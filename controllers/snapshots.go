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
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	acv1alpha1 "github.com/catena-dev/catena/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// reportQueue is how many unreadable snapshots may wait to be marked. Those beyond it are reported again when they are
// next read.
const reportQueue = 64

// verify reads a snapshot that is outside its object and was not read before, or could not be, and makes the session its
// owner. The status says afterwards that this was done.
func (r *ResponseSessionReconciler) verify(ctx context.Context, req ctrl.Request) error {
	s, found := r.View.Get(req.Namespace, req.Name)
	if !found || s.Snapshot == nil || s.Verified {
		return nil
	}
	readable, err := r.ReadSnapshot(ctx, s)
	if err != nil {
		return fmt.Errorf("unable to verify the snapshot: %w", err)
	}
	if readable && s.Snapshot.Store == v1alpha1.SnapshotStoreChunks {
		if err := r.adopt(ctx, s); err != nil {
			return fmt.Errorf("unable to make the session the owner of its snapshot: %w", err)
		}
	}
	r.View.SetReadable(s, readable)
	return nil
}

// adopt makes a session the owner of the first chunk of its snapshot, which owns the others.
func (r *ResponseSessionReconciler) adopt(ctx context.Context, s *sessions.Session) error {
	apply := acv1alpha1.SnapshotChunk(v1alpha1.SnapshotChunkName(s.Snapshot.Key, 0), s.Namespace).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(v1alpha1.GroupVersion.String()).
			WithKind(v1alpha1.ResponseSessionKind).
			WithName(s.Name).
			WithUID(s.UID).
			WithController(false).
			WithBlockOwnerDeletion(false))
	chunk := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SnapshotChunkKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: *apply.Name},
	}
	// Without the chunk's UID an apply would create the chunk where it has gone meanwhile.
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(chunk), chunk); err != nil {
		return err
	}
	data, err := json.Marshal(apply.WithUID(chunk.UID))
	if err != nil {
		return err
	}
	err = r.Client.Patch(ctx, chunk, client.RawPatch(types.ApplyPatchType, data), FieldOwner, client.ForceOwnership)
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("chunk %s is invalid", chunk.Name) // the API server's own words repeat the chunk's data
	}
	return err
}

// UnreadableReporter marks sessions whose snapshot the resolve API could not read. It runs on every replica, because
// every one answers reads, and because only what the status says reaches the leader.
type UnreadableReporter struct {
	reconciler *ResponseSessionReconciler
	queue      chan *sessions.Session
}

// NewUnreadableReporter returns a reporter that marks sessions as the reconciler does.
func NewUnreadableReporter(reconciler *ResponseSessionReconciler) *UnreadableReporter {
	return &UnreadableReporter{reconciler, make(chan *sessions.Session, reportQueue)}
}

// Report has a session marked. It does not block.
func (r *UnreadableReporter) Report(s *sessions.Session) {
	select {
	case r.queue <- s:
	default:
	}
}

// NeedLeaderElection returns false.
func (r *UnreadableReporter) NeedLeaderElection() bool { return false }

// Start runs until ctx is done.
func (r *UnreadableReporter) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-r.queue:
			r.reconciler.View.SetReadable(s, false)
			if _, err := r.reconciler.Reconcile(ctx, request(s.Namespace, s.Name)); err != nil {
				log.FromContext(ctx).Error(err, "Unable to mark a session whose snapshot is unreadable", "namespace", s.Namespace, "name", s.Name)
			}
		}
	}
}
