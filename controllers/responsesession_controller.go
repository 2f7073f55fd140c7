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

// Package controllers contains the controllers that run on the leader. One writes the verdict on each chain into the status of
// its session, and the ownerReference that lets garbage collection delete a turn with its descendants, unless its saver has
// written that. Another writes the verdicts on the histories of Conversations, and one deletes Conversations with their turns. The others delete snapshots that no session refers to,
// write the usage of namespaces into their SessionQuotas, and rewrite ownerReferences to another version of the API. A reporter on
// every replica marks snapshots that it could not read.
package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// After a failed write a session is retried. The longest wait is also how long a verdict may stay outdated after an outage of
// the API server; controller-runtime's default is a quarter of an hour.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// syncTimeout is how long the first list may take before the process ends. It is long because a restarted process would start
// the list again; meanwhile the replica is not ready. controller-runtime's default is two minutes.
const syncTimeout = time.Hour

// ReconcileTimeout is how long one reconcile may take, so that requests that are never answered do not occupy a worker.
const ReconcileTimeout = 2 * time.Minute

// minBusyDelay is when a session is first reconciled again if its namespace uses its share of the workers. The delay doubles
// each time, up to maxBackoff, because a namespace may have 100,000 waiting sessions.
const minBusyDelay = 50 * time.Millisecond

// FieldOwner is the field manager of all writes of the leader.
const FieldOwner = client.FieldOwner("catena")

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// ResponseSessionReconciler brings the status and the ownerReference of ResponseSessions in line with the view. It
// writes only what differs, so that a restart over validated sessions writes nothing.
type ResponseSessionReconciler struct {
	// Client writes. It must not read ResponseSessions through a cache: the view is the only watch of them.
	Client client.Client
	// Live bypasses every cache.
	Live client.Reader
	// View has the verdicts. The caller runs it; the controller waits for its first list.
	View *sessions.View
	// Recorder records an event when a chain breaks or resolves again.
	Recorder events.EventRecorder
	// Readable reads the snapshot of a session that has one outside its object, and reports whether it can be turned into
	// input items.
	Readable func(ctx context.Context, r *sessions.Record) (bool, error)
	// Concurrency is the number of sessions that are reconciled at once.
	Concurrency int
	// Statuses limits the statuses that are written for each namespace.
	Statuses StatusLimits
	// EventLimiter limits the events recorded; those beyond it are dropped.
	EventLimiter *EventLimiter
	// Clock provides the lastTransitionTime of conditions.
	Clock clock.PassiveClock
	// StallTimeout is how long one reconcile may take before Healthy returns an error, more than ReconcileTimeout.
	StallTimeout time.Duration

	// order is the order of the queue.
	order *fair.Queue[ctrl.Request]
	// settling holds the sessions that wait until their chains have settled, and paces holds those whose statuses exceed the limits.
	settling *settling
	paces    statusPaces
	// verifications are the sessions whose snapshots are being read, by namespace: large ones must not occupy all workers.
	verifications *fair.Budget
	// waits are the delays of sessions that wait for verifications.
	waits workqueue.TypedRateLimiter[ctrl.Request]
	// owners has the sessions whose ownerReferences could not be written.
	owners backoff
	// progress tracks the progress of the workers.
	progress progress
	// full are the sessions that cannot be written until they change.
	full full
}

// SetupWithManager adds the controller to a manager.
func (r *ResponseSessionReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.prepare()
	return ctrl.NewControllerManagedBy(mgr).
		Named("responsesession").
		WatchesRawSource(&viewSource{
			view: r.View, order: r.order, settling: r.settling, rewritesPerSecond: r.Statuses.RewritesPerSecond, current: r.isCurrent,
		}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Concurrency,
			CacheSyncTimeout:        syncTimeout,
			NewQueue:                withOrder(r.order),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBackoff, maxBackoff),
			// Tests and catenatest run one operator after another in one process.
			SkipNameValidation: new(true),
		}).
		Complete(r)
}

// prepare sets what the reconciles share.
func (r *ResponseSessionReconciler) prepare() {
	r.order = newOrder(r.Concurrency)
	r.settling = newSettling(r.Statuses.RewriteHold)
	r.paces = newStatusPaces(r.Statuses)
	r.verifications = fair.NewBudget(int64(r.Concurrency))
	r.waits = newWaits()
}

// Reconcile writes the status, the ownerReference and the SnapshotReadable condition that follow from the verdict on one session.
// It writes nothing to an object that has no room for them.
func (r *ResponseSessionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.progress.start(r.Clock.Now())()
	ctx, cancel := context.WithTimeout(ctx, ReconcileTimeout)
	defer cancel()
	record, found := r.View.Get(req.Namespace, req.Name)
	switch {
	case !found:
		r.forget(req)
		return ctrl.Result{}, nil
	case r.full.has(&record.Object):
		return ctrl.Result{}, nil
	}
	result, err := r.reconcile(ctx, req)
	if kubeclient.IsTooLargeForEtcd(err) {
		r.full.add(&record.Object)
		fullSessions.Inc()
		log.FromContext(ctx).Error(err, "The session has no room for what the operator writes, and is not written again until it changes")
		return ctrl.Result{}, nil
	}
	if err != nil || result.RequeueAfter > 0 {
		if current, found := r.View.Get(req.Namespace, req.Name); found { // its owner may have changed it meanwhile
			record = current
		}
		r.order.Mark(req, markOf(&record.Object, record.AwaitsVerdict(), sessionUnitBytes))
	}
	return result, err
}

// isCurrent reports that a reconcile would do nothing except end the wait for a status that is no longer needed, which it does.
func (r *ResponseSessionReconciler) isCurrent(v sessions.Verdict) bool {
	unread := v.Record.Snapshot() != nil && !v.Record.Verified && v.Record.Problem() == ""
	if unread || lacksOwner(v) || v.Record.Reported() != 0 || sessions.NewFingerprint(newStatus(v, r.Clock.Now())) != v.Record.Written {
		return false
	}
	r.paces.forgetStatus(v.Record.NamespacedName())
	return true
}

func (r *ResponseSessionReconciler) forget(req ctrl.Request) {
	r.waits.Forget(req)
	r.owners.forget(req.NamespacedName)
	r.paces.forget(req.NamespacedName)
	r.full.forget(req.NamespacedName)
}

// reconcile is Reconcile for an object that is assumed to have room. The writes are independent: an error in one does not prevent the
// others.
func (r *ResponseSessionReconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	err := r.verify(ctx, req)
	if errors.Is(err, errBusy) {
		return ctrl.Result{RequeueAfter: r.waits.When(req)}, nil
	}
	r.waits.Forget(req)
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict, found := r.View.Verdict(req.Namespace, req.Name)
	if !found {
		r.forget(req)
		return ctrl.Result{}, nil
	}
	unchanged := verdict.Record.HasVerdict
	statusWait, statusErr := r.reconcileStatus(ctx, verdict)
	verdict.Record = r.current(verdict.Record)
	ownerWait, ownerErr := r.reconcileOwner(ctx, verdict, unchanged)
	reportWait, reportErr := r.clearReport(ctx, r.current(verdict.Record))
	return ctrl.Result{RequeueAfter: earliest(statusWait, ownerWait, reportWait)}, errors.Join(ignoreGone(statusErr), ignoreGone(ownerErr), ignoreGone(reportErr))
}

// earliest returns the shortest of the waits, those of 0 left out, or 0.
func earliest(waits ...time.Duration) (first time.Duration) {
	for _, wait := range waits {
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	return first
}

// current returns the record of a session as the last write has left it. Each write is for the version that the view knows: if it
// were for any version, the view would take the result for that version, although another one may have a newer status.
func (r *ResponseSessionReconciler) current(record *sessions.Record) *sessions.Record {
	if now, found := r.View.Get(record.Namespace, record.Name); found && now.SameSpec(&record.Object) {
		return now
	}
	return record
}

// ignoreGone drops the error of a write to a session that has been changed, deleted, or deleted and recreated, in the meantime:
// the watch delivers the new state, with which the session is reconciled again. A 404 that does not concern the session is an
// error: the write must be repeated.
func ignoreGone(err error) error {
	if kubeclient.IsAnyGone(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// applyPatch returns the server-side apply of a configuration. It is sent for a PartialObjectMetadata, because the response
// would otherwise contain the whole body.
func applyPatch(configuration any) (client.Patch, error) {
	data, err := json.Marshal(configuration)
	if err != nil {
		return nil, err
	}
	return client.RawPatch(types.ApplyPatchType, data), nil
}

// partialMetadata returns a PartialObjectMetadata that identifies an object of one of our kinds.
func partialMetadata(kind, namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
}
