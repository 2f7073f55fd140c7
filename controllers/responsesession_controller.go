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

// Package controllers has the controller of ResponseSessions: it writes the verdict on each chain into the session's
// status, and the ownerReference that lets garbage collection delete a turn with its descendants.
package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	acv1alpha1 "github.com/catena-dev/catena/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// After a failed write a session is tried again. The longest wait is also how much longer than the API server's outage
// a verdict may be out of date; controller-runtime's own is a quarter of an hour.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// syncTimeout is how long the first list may take before the process ends. It is long, because the next process would
// start the list again; the replica is not ready meanwhile. controller-runtime's own is two minutes.
const syncTimeout = time.Hour

// FieldOwner is the field manager of all that the controller writes.
const FieldOwner = client.FieldOwner("catena")

// ResponseSessionReconciler brings the status and the ownerReference of ResponseSessions in line with the view. It
// writes only what differs, so that a restart over judged sessions writes nothing. The rights that it needs are in
// config/rbac/role.yaml.
type ResponseSessionReconciler struct {
	// Client writes. It must not be asked for ResponseSessions through a cache: the view is the only watch of them.
	Client client.Client
	// Live reads past every cache.
	Live client.Reader
	// View has the verdicts. Somebody else runs it; the controller waits for its first list.
	View *sessions.View
	// Recorder records an event where a chain breaks or heals.
	Recorder events.EventRecorder
	// ReadSnapshot reads the snapshot of a session that has one outside its object, and reports whether it can be turned
	// into input items.
	ReadSnapshot func(ctx context.Context, s *sessions.Session) (readable bool, err error)
	// Concurrency is how many sessions are reconciled at once.
	Concurrency int
	// EventLimiter bounds the events recorded: those beyond it are left out.
	EventLimiter *rate.Limiter
	// Clock gives the lastTransitionTime of conditions.
	Clock clock.PassiveClock
}

// SetupWithManager adds the controller to a manager.
func (r *ResponseSessionReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("responsesession").
		WatchesRawSource(&viewSource{view: r.View}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Concurrency,
			CacheSyncTimeout:        syncTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBackoff, maxBackoff),
		}).
		Complete(r)
}

// Reconcile judges one session. A status that cannot be written does not keep the ownerReference from being set, nor
// the other way round.
func (r *ResponseSessionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.verify(ctx, req); err != nil {
		return ctrl.Result{}, err
	}
	judgement, found := r.View.Judge(req.Namespace, req.Name)
	if !found {
		return ctrl.Result{}, nil
	}
	var statusErr, ownerErr error
	if status := r.status(judgement); sessions.Sum(status) != judgement.Session.Written {
		if statusErr = r.applyStatus(ctx, judgement.Session, status); statusErr == nil {
			r.recordTransition(ctx, judgement, status)
		}
	}
	if wantsOwner(judgement) {
		ownerErr = r.applyOwner(ctx, judgement)
	}
	return ctrl.Result{}, errors.Join(ignoreGone(statusErr), ignoreGone(ownerErr))
}

// ignoreGone drops the error of a write to a session that was deleted, or deleted and created again, meanwhile: the
// watch brings what is there now.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// wantsOwner reports whether the session lacks the ownerReference to its parent. A reference that is there is left
// alone, whatever its UID: garbage collection is the judge of that one.
func wantsOwner(j sessions.Judgement) bool {
	return j.Verdict.CanBeOwned(j.Parent != nil) && j.Session.OwnerUID == "" && !j.Session.OmitOwner
}

// applyOwner adds the ownerReference. The parent's UID is read just before, because garbage collection deletes a
// session whose owner's UID does not exist.
func (r *ResponseSessionReconciler) applyOwner(ctx context.Context, j sessions.Judgement) error {
	parent := partialMetadata(j.Session.Namespace, j.Parent.Name)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(parent), parent); err != nil {
		return fmt.Errorf("unable to read the parent's UID: %w", err)
	}
	if parent.DeletionTimestamp != nil {
		return nil
	}
	apply := acv1alpha1.ResponseSession(j.Session.Name, j.Session.Namespace).
		WithUID(j.Session.UID).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(v1alpha1.GroupVersion.String()).
			WithKind(v1alpha1.ResponseSessionKind).
			WithName(parent.Name).
			WithUID(parent.UID).
			WithController(false).
			WithBlockOwnerDeletion(false))
	written, err := r.apply(ctx, j.Session, apply, r.Client.Patch)
	if err != nil {
		return fmt.Errorf("unable to set the ownerReference: %w", err)
	}
	// The parent may have been deleted, and its children kept, since its UID was read: then garbage collection did not know
	// of this child, and would now delete it.
	if gone, err := r.gone(ctx, parent); err != nil || gone {
		none := acv1alpha1.ResponseSession(j.Session.Name, j.Session.Namespace).WithUID(j.Session.UID)
		if written, err = r.apply(ctx, j.Session, none, r.Client.Patch); err != nil {
			return fmt.Errorf("unable to take the ownerReference back: %w", err)
		}
	}
	r.View.Observe(j.Session.Namespace, j.Session.Name, func(known *sessions.Session) *sessions.Session { return known.WithMetadata(written) })
	log.FromContext(ctx).V(1).Info("Set the ownerReference", "parent", parent.Name)
	return nil
}

// gone reports whether a parent that was read before is not there any more, or is on its way out.
func (r *ResponseSessionReconciler) gone(ctx context.Context, parent *metav1.PartialObjectMetadata) (bool, error) {
	now := partialMetadata(parent.Namespace, parent.Name)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	return now.UID != parent.UID || now.DeletionTimestamp != nil, nil
}

func (r *ResponseSessionReconciler) applyStatus(ctx context.Context, s *sessions.Session, status *v1alpha1.ResponseSessionStatus) error {
	condition := status.Conditions[0]
	applyStatus := acv1alpha1.ResponseSessionStatus().
		WithConditions(metav1ac.Condition().
			WithType(condition.Type).
			WithStatus(condition.Status).
			WithReason(condition.Reason).
			WithMessage(condition.Message).
			WithObservedGeneration(condition.ObservedGeneration).
			WithLastTransitionTime(condition.LastTransitionTime)).
		WithObservedGeneration(status.ObservedGeneration).
		WithSnapshotStore(status.SnapshotStore)
	if status.RootResponseID != "" {
		applyStatus.WithDepth(status.Depth).WithRootResponseID(status.RootResponseID)
	}
	if status.BrokenAt != "" {
		applyStatus.WithBrokenAt(status.BrokenAt)
	}
	if status.SnapshotBytes > 0 {
		applyStatus.WithSnapshotBytes(status.SnapshotBytes)
	}
	apply := acv1alpha1.ResponseSession(s.Name, s.Namespace).WithUID(s.UID).WithStatus(applyStatus)
	patchStatus := func(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
		options := (&client.PatchOptions{}).ApplyOptions(opts)
		return r.Client.Status().Patch(ctx, object, patch, &client.SubResourcePatchOptions{PatchOptions: *options})
	}
	written, err := r.apply(ctx, s, apply, patchStatus)
	if err != nil {
		return fmt.Errorf("unable to write the status: %w", err)
	}
	if s.SameVersion(written) {
		// The apply has changed nothing, and still the status differs: it has fields that somebody else set.
		if err := r.clearStatus(ctx, written, status); err != nil {
			return fmt.Errorf("unable to clear foreign fields of the status: %w", err)
		}
	}
	r.View.Observe(s.Namespace, s.Name, func(known *sessions.Session) *sessions.Session { return known.WithMetadata(written).WithStatus(status) })
	return nil
}

// clearStatus removes the fields that a status does not have. An apply removes those that it set itself, no others.
func (r *ResponseSessionReconciler) clearStatus(ctx context.Context, object *metav1.PartialObjectMetadata, status *v1alpha1.ResponseSessionStatus) error {
	absent := map[string]any{}
	if status.RootResponseID == "" {
		absent["depth"], absent["rootResponseID"] = nil, nil
	}
	if status.BrokenAt == "" {
		absent["brokenAt"] = nil
	}
	if status.SnapshotBytes == 0 {
		absent["snapshotBytes"] = nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": absent})
	if err != nil {
		return err
	}
	return r.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, data), FieldOwner)
}

type patchFunc func(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error

// apply sends a server-side apply and returns the metadata that the object has then. It asks for nothing more, because
// the answer to a write would otherwise carry the whole body back.
func (r *ResponseSessionReconciler) apply(
	ctx context.Context, s *sessions.Session, apply *acv1alpha1.ResponseSessionApplyConfiguration, patch patchFunc,
) (*metav1.PartialObjectMetadata, error) {
	data, err := json.Marshal(apply)
	if err != nil {
		return nil, err
	}
	object := partialMetadata(s.Namespace, s.Name)
	return object, patch(ctx, object, client.RawPatch(types.ApplyPatchType, data), FieldOwner, client.ForceOwnership)
}

func partialMetadata(namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}

// reference is what an event is about.
func reference(s *sessions.Session) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind,
		Namespace: s.Namespace, Name: s.Name, UID: s.UID,
	}
}
