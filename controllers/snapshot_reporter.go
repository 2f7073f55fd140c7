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
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// snapshotFieldOwner is the field manager of the SnapshotReadable condition. It has a name of its own so that a report by
// any replica is kept apart from the verdict, which only the leader writes.
const snapshotFieldOwner = client.FieldOwner("catena-snapshots")

const (
	// maxReports is the number of unreadable snapshots of a namespace that may wait to be reported. Further ones are reported
	// the next time they are read.
	maxReports = 64
	// reportWorkers is the number of reports that are written at once. Namespaces share them: while one waits for its share of the
	// writes, others go on.
	reportWorkers = 16
	// reportTimeout is how long one report may take.
	reportTimeout = 10 * time.Second
	// maxReportRetries is how often a failed report is retried, with exponential backoff up to maxBackoff: for about two
	// minutes.
	maxReportRetries = 20
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions/status,verbs=patch

// SnapshotReporter reports snapshots that the resolve API could not read, by setting the SnapshotReadable condition of their
// sessions to False. It runs on every replica, because every replica answers reads. The leader sees the condition, reads the
// snapshot again, and writes the verdict.
type SnapshotReporter struct {
	client       client.Client
	clock        clock.PassiveClock
	stallTimeout time.Duration
	paces        statusPaces
	order        *fair.Queue[reconcile.Request]
	queue        workqueue.TypedRateLimitingInterface[reconcile.Request]
	progress     progress

	mu sync.Mutex
	// pending are the sessions in the queue and those that are being reported, by namespace.
	pending map[string]map[reconcile.Request]*sessions.Record
}

// NewSnapshotReporter returns a reporter that writes with a client, within the limits. Healthy fails after the stallTimeout.
func NewSnapshotReporter(c client.Client, limits StatusLimits, clock clock.PassiveClock, stallTimeout time.Duration) *SnapshotReporter {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff)
	order := fair.NewQueue(namespaceOf, reportWorkers, reportWorkers)
	return &SnapshotReporter{
		client: c, clock: clock, stallTimeout: stallTimeout, paces: newStatusPaces(limits),
		order: order, queue: withOrder(order)("snapshot-reports", limiter),
		pending: map[string]map[reconcile.Request]*sessions.Record{},
	}
}

// Report queues the report of a session whose snapshot could not be read, unless it is queued already. It does not block.
func (r *SnapshotReporter) Report(record *sessions.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending, key := r.pending[record.Namespace], request(record.Namespace, record.Name)
	if pending[key] != nil || len(pending) >= maxReports {
		return
	}
	if pending == nil {
		pending = map[reconcile.Request]*sessions.Record{}
		r.pending[record.Namespace] = pending
	}
	pending[key] = record
	r.queue.Add(key)
}

// NeedLeaderElection returns false: every replica reports.
func (r *SnapshotReporter) NeedLeaderElection() bool { return false }

// Start reports until ctx is done. The namespaces take turns.
func (r *SnapshotReporter) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var workers sync.WaitGroup
	for range reportWorkers {
		workers.Go(func() { r.work(ctx) })
	}
	workers.Wait()
	return nil
}

func (r *SnapshotReporter) work(ctx context.Context) {
	for {
		key, done := r.queue.Get()
		switch {
		case done || ctx.Err() != nil:
			return
		case isWake(key):
			r.queue.Done(key)
			continue
		}
		r.mu.Lock()
		record := r.pending[key.Namespace][key]
		r.mu.Unlock()
		if wait := r.paces.readableDelay(r.clock.Now(), &record.Object); wait > 0 {
			r.queue.Done(key)
			r.queue.AddAfter(key, wait)
			continue
		}
		finish := r.progress.start(r.clock.Now())
		err := ignoreGone(r.report(ctx, record))
		finish()
		if err != nil {
			log.FromContext(ctx).Error(err, "Unable to report an unreadable snapshot", "namespace", record.Namespace, "name", record.Name)
		}
		r.finish(key, err)
	}
}

// finish removes a report from the queue, or requeues it if it failed. The retries are counted by the metrics of the queue.
func (r *SnapshotReporter) finish(key reconcile.Request, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.queue.Done(key)
	if err != nil && r.queue.NumRequeues(key) < maxReportRetries {
		r.queue.AddRateLimited(key)
		return
	}
	r.queue.Forget(key)
	delete(r.pending[key.Namespace], key)
	if len(r.pending[key.Namespace]) == 0 {
		delete(r.pending, key.Namespace)
	}
}

func (r *SnapshotReporter) report(ctx context.Context, record *sessions.Record) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err := applySnapshotReadable(ctx, r.client, record, anyVersion, metav1.Condition{
		Status:             metav1.ConditionFalse,
		Reason:             v1alpha1.ReasonSnapshotUnreadable,
		Message:            "A replica of the operator could not read the snapshot.",
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	return err
}

// clearReport sets the SnapshotReadable condition of a session to True if its bodies are readable although a replica failed to
// read them, or failed to read the bodies of an earlier generation. If the write must wait, it returns the delay.
func (r *ResponseSessionReconciler) clearReport(ctx context.Context, record *sessions.Record) (wait time.Duration, err error) {
	inObject := record.Snapshot() == nil && record.Problem() == ""
	if readable := inObject || record.Verified; !readable || record.Reported() == 0 {
		r.paces.readable.Forget(record.NamespacedName())
		return 0, nil
	}
	if wait = r.paces.readableDelay(r.Clock.Now(), &record.Object); wait > 0 {
		return wait, nil
	}
	written, err := applySnapshotReadable(ctx, r.Client, record, record.Version(), metav1.Condition{
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonSnapshotVerified,
		Message:            "The snapshot has been read since a replica of the operator could not read it.",
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	})
	if err != nil {
		return 0, fmt.Errorf("unable to set the SnapshotReadable condition: %w", err)
	}
	r.View.Observe(record.Namespace, record.Name, func(known *sessions.Record) *sessions.Record {
		return known.WithMetadata(written).WithoutReport()
	})
	return 0, nil
}

// applySnapshotReadable applies the SnapshotReadable condition of a session and returns the resulting metadata.
func applySnapshotReadable(
	ctx context.Context, c client.Client, record *sessions.Record, version string, condition metav1.Condition,
) (*metav1.PartialObjectMetadata, error) {
	condition.Type, condition.ObservedGeneration = v1alpha1.ConditionSnapshotReadable, record.Generation
	status := &v1alpha1.ResponseSessionStatus{Conditions: []metav1.Condition{condition}}
	written := atVersion(v1alpha1.ResponseSessionKind, &record.Object, version)
	patch, err := applyPatch(statusConfiguration(written, status))
	if err != nil {
		return nil, err
	}
	return written, c.Status().Patch(ctx, written, patch, snapshotFieldOwner, client.ForceOwnership)
}
