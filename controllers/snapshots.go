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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	acv1alpha1 "github.com/catena-dev/catena/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// newWaits returns the delays of sessions whose snapshots wait to be read: minBusyDelay at first, then twice as long each time,
// up to maxBackoff.
func newWaits() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBusyDelay, maxBackoff)
}

// errBusy indicates that the sessions of a namespace use its share of the workers, or of repeated reads.
var errBusy = errors.New("too many snapshots of the namespace are being read")

// verify reads a snapshot that is outside its object and has not been read yet, or could not be, and makes the session its
// owner. Afterwards the view has the result, and the status records it. It returns errBusy if the read must wait.
func (r *ResponseSessionReconciler) verify(ctx context.Context, req ctrl.Request) error {
	record, found := r.View.Get(req.Namespace, req.Name)
	if !found || record.Deleting || record.Snapshot() == nil || record.Verified || record.Problem() != "" {
		return nil
	}
	if !r.verifications.TryAcquire(req.Namespace, 1) {
		return errBusy
	}
	defer r.verifications.Release(req.Namespace, 1)
	// Without this limit, any change to the session would have an unreadable snapshot read again, and any change of the reference a readable one.
	if record.ChainValid.Status() != "" && r.paces.rereadDelay(r.Clock.Now(), record) > 0 {
		return errBusy
	}
	// It is adopted before it is read, which takes seconds: the session may be deleted in the meantime, and if it cannot be adopted,
	// nothing has to be read again.
	adopted := true
	if record.Snapshot().Store == v1alpha1.SnapshotStoreChunks {
		var err error
		if adopted, err = r.adopt(ctx, record); err != nil {
			return fmt.Errorf("unable to make the session the owner of its snapshot: %w", err)
		}
	}
	readable, err := r.Readable(ctx, record)
	if err != nil {
		return fmt.Errorf("unable to verify the snapshot: %w", err)
	}
	if readable && !adopted {
		return errors.New("the snapshot has appeared while it was verified")
	}
	r.View.SetReadable(record, readable)
	return nil
}

// The right to delete is for the admission plugin OwnerReferencesPermissionEnforcement; see reconcileOwner.
//
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks,verbs=get;patch;delete

// adopt makes a session the owner of the first chunk of its snapshot, which owns the others. It returns false if the chunk does not exist or
// belongs to another session, so that the snapshot is unreadable, or if the session no longer exists. A chunk that can have no further
// owner is left to the sweeper.
func (r *ResponseSessionReconciler) adopt(ctx context.Context, record *sessions.Record) (bool, error) {
	chunk := partialMetadata(v1alpha1.SnapshotChunkKind, record.Namespace, v1alpha1.SnapshotChunkName(record.Snapshot().Key, 0))
	// Without the chunk's UID, an apply would create the chunk if it has been deleted in the meantime.
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(chunk), chunk); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if chunk.Annotations[v1alpha1.SessionAnnotation] != record.Name {
		return false, nil
	}
	if len(chunk.OwnerReferences) >= v1alpha1.MaxChunkOwnerReferences {
		return true, nil
	}
	session := partialMetadata(v1alpha1.ResponseSessionKind, record.Namespace, record.Name)
	session.UID = record.UID.Text()
	read := time.Now()
	if gone, err := r.gone(ctx, session); err != nil || gone {
		return false, err
	}
	return r.setOwner(ctx, session, read, func(ctx context.Context, owners ...*metav1ac.OwnerReferenceApplyConfiguration) error {
		patch, err := applyPatch(acv1alpha1.SnapshotChunk(chunk.Name, chunk.Namespace).WithUID(chunk.UID).WithOwnerReferences(owners...))
		if err != nil {
			return err
		}
		err = r.Client.Patch(ctx, chunk, patch, FieldOwner, client.ForceOwnership)
		if apierrors.IsInvalid(err) {
			return fmt.Errorf("chunk %s is invalid", chunk.Name) // the API server's message contains the chunk's data
		}
		return err
	})
}
