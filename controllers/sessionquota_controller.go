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
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// quotaWorkers is the number of SessionQuotas that are reconciled at once.
const quotaWorkers = 8

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=sessionquotas,verbs=list;watch
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=sessionquotas/status,verbs=patch

// SessionQuotaReconciler writes the storage usage of a namespace into the status of its SessionQuotas. The admission policy
// quota.sessions.catena.dev compares it with their limits. It runs on the leader, and collects a metric that shows how full they are.
type SessionQuotaReconciler struct {
	// Client writes, and reads SessionQuotas from its cache.
	Client client.Client
	Usage  *UsageCounter
	// Interval is the time between two writes of a status, if the usage has changed.
	Interval time.Duration
	// Clock provides the lastTransitionTime of conditions.
	Clock clock.PassiveClock
	// StallTimeout is how long one reconcile may take before Healthy fails.
	StallTimeout time.Duration

	limits   quotaLimits
	progress progress
}

// SetupWithManager adds the controller to a manager.
func (r *SessionQuotaReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("sessionquota").
		// A new limit takes effect immediately. Changes of the status must not cause more than one write in each interval.
		For(&v1alpha1.SessionQuota{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: quotaWorkers,
			CacheSyncTimeout:        math.MaxInt64, // if the CRD of SessionQuotas is not installed, everything else continues to work
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBackoff, maxBackoff),
			SkipNameValidation:      new(true), // see ResponseSessionReconciler
		}).
		Complete(r)
}

// Reconcile writes the status of one SessionQuota if it differs, and returns after the interval.
func (r *SessionQuotaReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.progress.start(r.Clock.Now())()
	ctx, cancel := context.WithTimeout(ctx, ReconcileTimeout)
	defer cancel()
	quota := &v1alpha1.SessionQuota{}
	if err := r.Client.Get(ctx, req.NamespacedName, quota); err != nil {
		if apierrors.IsNotFound(err) {
			r.limits.set(req.NamespacedName, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.limits.set(req.NamespacedName, quota)
	// An incomplete count would lift the limit.
	if r.Usage.HasSynced() {
		if err := ignoreGone(r.reconcileStatus(ctx, quota)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

func (r *SessionQuotaReconciler) reconcileStatus(ctx context.Context, quota *v1alpha1.SessionQuota) error {
	status := r.newStatus(quota)
	if sameQuotaStatus(status, &quota.Status) {
		return nil
	}
	patch, err := applyPatch(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       v1alpha1.SessionQuotaKind,
		"metadata":   map[string]any{"namespace": quota.Namespace, "name": quota.Name, "uid": quota.UID},
		"status":     status,
	})
	if err != nil {
		return err
	}
	written := partialMetadata(v1alpha1.SessionQuotaKind, quota.Namespace, quota.Name)
	if err := r.Client.Status().Patch(ctx, written, patch, FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("unable to write the status: %w", err)
	}
	return nil
}

// newStatus returns the complete status of a quota as the leader writes it.
func (r *SessionQuotaReconciler) newStatus(quota *v1alpha1.SessionQuota) *v1alpha1.SessionQuotaStatus {
	counted := quota.DeepCopy()
	usage := r.Usage.Of(quota.Namespace)
	counted.Status.Used = &usage
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionExceeded,
		Status:             metav1.ConditionFalse,
		Reason:             v1alpha1.ReasonWithinLimit,
		Message:            "The namespace stores less than the limit.",
		ObservedGeneration: quota.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	switch {
	case counted.IsExceeded():
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonLimitReached
		condition.Message = "The limit is reached. Sessions cannot be saved or changed until some are deleted or the limit is raised."
	case quota.Spec.Hard.Bytes == nil:
		condition.Reason, condition.Message = v1alpha1.ReasonNoLimit, "No limit is set."
	}
	if before := meta.FindStatusCondition(quota.Status.Conditions, condition.Type); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return &v1alpha1.SessionQuotaStatus{
		Conditions:         []metav1.Condition{condition},
		ObservedGeneration: quota.Generation,
		Used:               &usage,
	}
}

// sameQuotaStatus reports whether a status equals the quota's current one, except for the message of the condition, so that an
// upgrade that rewords it writes nothing.
func sameQuotaStatus(status, stored *v1alpha1.SessionQuotaStatus) bool {
	want := status.Conditions[0]
	got := meta.FindStatusCondition(stored.Conditions, want.Type)
	return got != nil && got.Status == want.Status && got.Reason == want.Reason && got.ObservedGeneration == want.ObservedGeneration &&
		stored.ObservedGeneration == status.ObservedGeneration && stored.Used != nil && sameUsage(status.Used, stored.Used)
}

func sameUsage(a, b *v1alpha1.SessionUsage) bool {
	return a.Bytes.Cmp(b.Bytes) == 0 && a.Sessions == b.Sessions && a.SnapshotChunks == b.SnapshotChunks
}

// usageUnit is the unit of the bytes in a status: 1 KiB is more readable than bytes, and rewrites fewer statuses.
const usageUnit = 1 << 10

// usageBytes returns a number of bytes as a quantity, rounded up to the unit.
func usageBytes(bytes int64) resource.Quantity {
	return *resource.NewQuantity((bytes+usageUnit-1)/usageUnit*usageUnit, resource.BinarySI)
}
