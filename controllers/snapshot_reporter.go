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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// snapshotFieldOwner is the field manager of the SnapshotReadable condition. It has a name of its own so that a report by
// any replica is kept apart from the verdict, which only the leader writes.
const snapshotFieldOwner = client.FieldOwner("catena-snapshots")

const (
	// reportQueue is the number of unreadable snapshots that may wait to be reported. Those beyond it are reported when
	// they are next read.
	reportQueue = 64
	// reportTimeout is how long one report may take.
	reportTimeout = 10 * time.Second
)

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions/status,verbs=patch

// SnapshotReporter reports snapshots that the resolve API could not read, by setting the SnapshotReadable condition of
// their sessions to False. It runs on every replica, because every one answers reads. The leader sees the condition, reads
// the snapshot again, and writes the verdict.
type SnapshotReporter struct {
	client client.Client
	clock  clock.PassiveClock
	queue  chan *sessions.Record
}

// NewSnapshotReporter returns a reporter that writes with a client.
func NewSnapshotReporter(c client.Client, clock clock.PassiveClock) *SnapshotReporter {
	return &SnapshotReporter{client: c, clock: clock, queue: make(chan *sessions.Record, reportQueue)}
}

// Report queues the report of a session whose snapshot could not be read. It does not block.
func (r *SnapshotReporter) Report(record *sessions.Record) {
	select {
	case r.queue <- record:
	default:
	}
}

// NeedLeaderElection returns false: every replica reports.
func (r *SnapshotReporter) NeedLeaderElection() bool { return false }

// Start reports until ctx is done.
func (r *SnapshotReporter) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case record := <-r.queue:
			if err := r.report(ctx, record); ignoreGone(err) != nil {
				log.FromContext(ctx).Error(err, "Unable to report an unreadable snapshot", "namespace", record.Namespace, "name", record.Name)
			}
		}
	}
}

func (r *SnapshotReporter) report(ctx context.Context, record *sessions.Record) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err := applySnapshotReadable(ctx, r.client, record, metav1.Condition{
		Type:               v1alpha1.ConditionSnapshotReadable,
		Status:             metav1.ConditionFalse,
		Reason:             v1alpha1.ReasonSnapshotUnreadable,
		Message:            "A replica of the operator could not read the snapshot.",
		ObservedGeneration: record.Generation,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
	return err
}

// withdrawReport removes the SnapshotReadable condition of a session.
func (r *ResponseSessionReconciler) withdrawReport(ctx context.Context, record *sessions.Record) error {
	written, err := applySnapshotReadable(ctx, r.Client, record)
	if err != nil {
		return fmt.Errorf("unable to withdraw the report of an unreadable snapshot: %w", err)
	}
	r.View.Observe(record.Namespace, record.Name, func(known *sessions.Record) *sessions.Record {
		return known.WithMetadata(written).WithoutReport()
	})
	return nil
}

// applySnapshotReadable applies the SnapshotReadable condition of a session, or removes it if none is given, and returns
// the metadata that the object has then.
func applySnapshotReadable(
	ctx context.Context, c client.Client, record *sessions.Record, conditions ...metav1.Condition,
) (*metav1.PartialObjectMetadata, error) {
	patch, err := applyPatch(statusConfiguration(record, &v1alpha1.ResponseSessionStatus{Conditions: conditions}))
	if err != nil {
		return nil, err
	}
	written := partialMetadata(v1alpha1.ResponseSessionKind, record.Namespace, record.Name)
	return written, c.Status().Patch(ctx, written, patch, snapshotFieldOwner, client.ForceOwnership)
}
