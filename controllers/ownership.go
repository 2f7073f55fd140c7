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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	acv1alpha1 "github.com/catena-dev/catena/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/catena-dev/catena/internal/elapsed"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/requests"
)

// The right to delete is not used here: the admission plugin OwnerReferencesPermissionEnforcement, if enabled, requires it of clients that
// change ownerReferences. For references that do not block the deletion of their owner, it requires no other right.
//
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=get;patch;delete

// largeParentBytes is the size of a parent above which ownerReferences to it must keep the pace of rewrites: each adds a read of the parent.
const largeParentBytes = 32 << 10

// reconcileOwner adds the ownerReference to the parent if the session may have one and has none. An existing reference is left
// unchanged, whatever its UID: garbage collection decides whether it is valid. If the session is unchanged since it got its verdict, its
// parent has appeared, as that of 100,000 others may have. Then the write must keep the pace of rewrites, and reconcileOwner may return the delay. So
// it may if the parent is large, which is read for each of its children.
func (r *ResponseSessionReconciler) reconcileOwner(ctx context.Context, v sessions.Verdict, unchanged bool) (wait time.Duration, err error) {
	name := v.Record.NamespacedName()
	if !lacksOwner(v) {
		r.paces.owners.Forget(name)
		r.owners.forget(name)
		return 0, nil
	}
	if wait := r.owners.wait(&v.Record.Object); wait > 0 {
		return wait, nil
	}
	if unchanged || v.Parent.ObjectBytes > largeParentBytes {
		if wait := r.paces.ownerDelay(r.Clock.Now(), &v.Record.Object, &v.Parent.Object); wait > 0 {
			return wait, nil
		}
	}
	switch err := r.addOwner(ctx, v); {
	case err == nil:
		r.owners.forget(name)
		return 0, nil
	case ignoreGone(err) == nil:
		return 0, nil
	case isRefusal(err):
		r.owners.add(&v.Record.Object, maxOwnerBackoff)
		return 0, err
	default:
		r.owners.add(&v.Record.Object, maxBackoff)
		return 0, err
	}
}

// lacksOwner reports whether a session may have an ownerReference to its parent, and has none.
func lacksOwner(v sessions.Verdict) bool {
	return v.CanBeOwned(v.Parent != nil) && !v.Record.HasOwner && !v.Record.OmitOwner
}

// addOwner adds the ownerReference to the parent. The parent's UID is read just before, because garbage collection deletes a session
// whose owner's UID does not exist.
func (r *ResponseSessionReconciler) addOwner(ctx context.Context, v sessions.Verdict) error {
	parent, read := partialMetadata(v1alpha1.ResponseSessionKind, v.Record.Namespace, v.Parent.Name), time.Now()
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(parent), parent); err != nil {
		return fmt.Errorf("unable to read the parent's UID: %w", err)
	}
	if parent.DeletionTimestamp != nil {
		return nil
	}
	var written *metav1.PartialObjectMetadata
	version := v.Record.Version()
	set, err := r.setOwner(ctx, parent, read, func(ctx context.Context, owners ...*metav1ac.OwnerReferenceApplyConfiguration) (err error) {
		written, err = r.applyOwner(ctx, v.Record, version, owners...)
		version = anyVersion
		return err
	})
	if err != nil || !set {
		return err
	}
	r.View.Observe(v.Record.Namespace, v.Record.Name, func(known *sessions.Record) *sessions.Record {
		return known.WithMetadata(written)
	})
	log.FromContext(ctx).V(1).Info("Set the ownerReference", "parent", parent.Name)
	return nil
}

// maxOwnerBackoff is the longest time between two attempts to write an ownerReference that the API server refuses. A tenant can have it refuse
// those of many sessions. As the time doubles with each attempt, it is never much longer than what has kept the reference from being written.
const maxOwnerBackoff = time.Hour

// maxOwnerAge is how long after it was read an owner is used without being read again. Only an API server that takes its time with the write
// itself can make that longer.
const maxOwnerAge = 20 * time.Millisecond

// setOwner sets an ownerReference to a session that was read at a time, with a function that applies ownerReferences. If the session has
// been deleted without its dependents since, garbage collection did not see this dependent, and would now delete it: then setOwner returns false,
// and removes the reference, which may have been written even if there was no answer.
func (r *ResponseSessionReconciler) setOwner(
	ctx context.Context, owner *metav1.PartialObjectMetadata, read time.Time,
	apply func(context.Context, ...*metav1ac.OwnerReferenceApplyConfiguration) error,
) (set bool, err error) {
	applyErr := apply(requests.BeforeWrite(ctx, func(ctx context.Context) error {
		if elapsed.Since(read) < maxOwnerAge {
			return nil
		}
		read = time.Now()
		gone, err := r.gone(ctx, owner)
		if err == nil && gone {
			err = errors.New("the owner was deleted meanwhile")
		}
		return err
	}), ownerReference(v1alpha1.ResponseSessionKind, owner))
	if isRefusal(applyErr) || apierrors.IsConflict(applyErr) {
		return false, fmt.Errorf("unable to set the ownerReference: %w", applyErr)
	}
	gone, err := r.gone(ctx, owner)
	if err != nil || gone {
		if err := apply(ctx); err != nil {
			return false, fmt.Errorf("unable to remove the ownerReference again: %w", err)
		}
		return false, nil
	}
	if applyErr != nil {
		return false, fmt.Errorf("unable to set the ownerReference: %w", applyErr)
	}
	return true, nil
}

// applyOwner applies the ownerReferences of a version of a session and returns the resulting metadata.
func (r *ResponseSessionReconciler) applyOwner(
	ctx context.Context, record *sessions.Record, version string, owners ...*metav1ac.OwnerReferenceApplyConfiguration,
) (*metav1.PartialObjectMetadata, error) {
	configuration := acv1alpha1.ResponseSession(record.Name, record.Namespace).WithUID(record.UID.Text()).WithOwnerReferences(owners...)
	if version != anyVersion {
		configuration.WithResourceVersion(version)
	}
	patch, err := applyPatch(configuration)
	if err != nil {
		return nil, err
	}
	written := partialMetadata(v1alpha1.ResponseSessionKind, record.Namespace, record.Name)
	return written, r.Client.Patch(ctx, written, patch, FieldOwner, client.ForceOwnership)
}

// ownerReference returns a reference to an owner that neither manages its dependents nor blocks on their deletion.
func ownerReference(kind string, owner metav1.Object) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind(kind).
		WithName(owner.GetName()).
		WithUID(owner.GetUID()).
		WithController(false).
		WithBlockOwnerDeletion(false)
}

// gone reports whether a session that was read earlier no longer exists, or is being deleted.
func (r *ResponseSessionReconciler) gone(ctx context.Context, session *metav1.PartialObjectMetadata) (bool, error) {
	now := partialMetadata(v1alpha1.ResponseSessionKind, session.Namespace, session.Name)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return now.UID != session.UID || now.DeletionTimestamp != nil, nil
}
