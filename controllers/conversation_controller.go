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
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// conversationWorkers is the number of Conversations that are reconciled at once.
const conversationWorkers = 8

// conversationUnitBytes is the size of a Conversation that counts as one unit. It is larger than sessionUnitBytes: with fewer workers, a
// namespace's share has fewer units.
const conversationUnitBytes = 32 << 10

// DefaultConversationInterval is the default of ConversationReconciler.Interval.
const DefaultConversationInterval = 5 * time.Second

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=conversations/status,verbs=patch

// ConversationReconciler writes the verdict on the history of each Conversation into its status, and the figures of its turns. The verdict follows
// from the spec and from that on the turn at which the history ends, which the view of the sessions has. The figures follow from the bodies of
// the turns, of which only those are read that the figures in the status do not have. It writes only what differs, so that a restart writes
// nothing.
type ConversationReconciler struct {
	// Client writes.
	Client client.Client
	// Conversations and Sessions are the views. The caller runs them; the controller waits for their first lists.
	Conversations *conversations.View
	Sessions      *sessions.View
	// Live reads Conversations from the API server, as a client of their group and version, and Resolve the turns whose figures are in the status.
	Live    rest.Interface
	Resolve ResolveFunc
	// Interval is the time between two writes of the status of one conversation: turns can follow each other quickly. It is also how long
	// the status of a changed conversation waits for the turn of its head, which is usually being saved.
	Interval time.Duration
	// Statuses limits the statuses that are written for each namespace.
	Statuses StatusLimits
	// Clock provides the lastTransitionTime of conditions, and the times of waits.
	Clock clock.PassiveClock
	// StallTimeout is how long one reconcile may take before Healthy returns an error, more than ReconcileTimeout.
	StallTimeout time.Duration

	progress progress
	// order is the order of the queue.
	order *fair.Queue[ctrl.Request]
	// intervals holds the conversations whose statuses have been written within the last interval, as tenants of their own, and paces those
	// whose statuses exceed the limits of their namespaces.
	intervals *fair.Pace[types.NamespacedName]
	paces     statusPaces
	// full are the conversations that cannot be written until they change.
	full full
}

// SetupWithManager adds the controller to a manager.
func (r *ConversationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.order = newOrder(conversationWorkers)
	r.intervals = fair.NewPace[types.NamespacedName](0)
	r.paces = newStatusPaces(r.Statuses)
	return ctrl.NewControllerManagedBy(mgr).
		Named("conversation").
		WatchesRawSource(&conversationSource{r}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: conversationWorkers,
			CacheSyncTimeout:        math.MaxInt64, // if the CRD of Conversations is not installed, everything else continues to work
			NewQueue:                withOrder(r.order),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBackoff, maxBackoff),
			SkipNameValidation:      new(true), // see ResponseSessionReconciler
		}).
		Complete(r)
}

// Reconcile writes the status of one Conversation if it differs, and may be written now. It writes nothing to an object that has no room.
func (r *ConversationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.progress.start(r.Clock.Now())()
	ctx, cancel := context.WithTimeout(ctx, ReconcileTimeout)
	defer cancel()
	record, found := r.Conversations.Get(req.Namespace, req.Name)
	switch {
	case !found || record.Deleting:
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	case r.full.has(&record.Object):
		return ctrl.Result{}, nil
	}
	wait, err := r.reconcile(ctx, record)
	if kubeclient.IsTooLargeForEtcd(err) {
		r.full.add(&record.Object)
		log.FromContext(ctx).Error(err, "The conversation has no room for its status, which is not written again until it changes")
		return ctrl.Result{}, nil
	}
	err = ignoreGone(err)
	if err != nil || wait > 0 {
		r.order.Mark(req, conversationMark(record))
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// conversationMark returns the mark of a conversation in the queue. One that its owner has changed is more urgent than one whose head has
// changed: one turn can be the head of 100,000 conversations, or an ancestor of their heads.
func conversationMark(record *conversations.Record) fair.Mark {
	return markOf(&record.Object, !record.HasVerdict, conversationUnitBytes)
}

// reconcile writes the status, or returns the delay if it must wait.
func (r *ConversationReconciler) reconcile(ctx context.Context, record *conversations.Record) (wait time.Duration, err error) {
	now := r.Clock.Now()
	verdict := record.Verdict(r.Sessions)
	status := newConversationStatus(record, verdict, now)
	if conversations.NewFingerprint(status) == record.Written {
		r.forgetWaits(record.NamespacedName())
		return 0, nil
	}
	if wait := r.delay(now, record, verdict.HeadStored); wait > 0 {
		return wait, nil
	}
	complete, err := r.addFigures(ctx, record, verdict, status)
	if errors.Is(err, errHistoryChanged) {
		return behindRetry, nil
	}
	if err != nil {
		return 0, err
	}
	if !complete {
		wait = max(r.Interval, behindRetry)
	}
	if conversations.NewFingerprint(status) == record.Written {
		return wait, nil
	}
	if behind, err := r.isBehind(ctx, record.Namespace, verdict); behind || err != nil {
		return behindRetry, err
	}
	written := atVersion(v1alpha1.ConversationKind, &record.Object, record.Version())
	if err := applyStatus(ctx, r.Client, written, status); err != nil {
		return 0, err
	}
	r.Conversations.Observe(record, record.WithStatus(written, status))
	r.intervals.Charge(now, record.NamespacedName().String(), r.Interval)
	return wait, nil
}

// isBehind reports whether a turn is stored that the view of the sessions does not have yet: if the API server restarts, the watch of the
// conversations can continue before that of the sessions.
func (r *ConversationReconciler) isBehind(ctx context.Context, namespace string, verdict conversations.Verdict) (bool, error) {
	if verdict.Reason != v1alpha1.ReasonParentNotFound {
		return false, nil
	}
	missing := types.NamespacedName{Namespace: namespace, Name: v1alpha1.ObjectName(verdict.BrokenAt)}
	if _, known := r.Sessions.Get(missing.Namespace, missing.Name); known {
		return false, nil // it is being deleted, or its name is that of another ID
	}
	_, err := kubeclient.GetMetadata(ctx, r.Live, kubeclient.Sessions, missing)
	if kubeclient.IsGone(err, kubeclient.Sessions, missing.Name) {
		return false, nil
	}
	return err == nil, err
}

// delay returns how long a conversation must wait until its status may be written. If the head of a changed conversation is not stored, its
// turn is probably being saved, or the watch of the sessions lags behind: to write that would cost a second write for each turn.
func (r *ConversationReconciler) delay(now time.Time, record *conversations.Record, headStored bool) time.Duration {
	name := record.NamespacedName()
	wait := r.intervals.Delay(now, name.String(), name, 0) // the cost is charged after the write
	if !headStored {
		wait = max(wait, record.Received.Add(r.Interval).Sub(now))
	}
	if wait > 0 {
		return wait
	}
	return r.paces.delay(now, &record.Object, record.HasVerdict)
}

// forgetWaits ends the waits for a status that is not needed, and forget everything about a conversation that is gone.
func (r *ConversationReconciler) forgetWaits(name types.NamespacedName) {
	r.intervals.Forget(name)
	r.paces.forgetStatus(name)
}

func (r *ConversationReconciler) forget(name types.NamespacedName) {
	r.forgetWaits(name)
	r.full.forget(name)
}

// conversationSource feeds the controller's queue from both views.
type conversationSource struct{ *ConversationReconciler }

var _ source.SyncingSource = &conversationSource{}

// Start implements source.Source.
func (s *conversationSource) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	// The watch of all namespaces calls add. So it leaves it to a worker to compare the status with the verdict, which waits for the lock of a
	// namespace.
	add := func(namespace string, names []string) {
		for _, name := range names {
			if record, found := s.Conversations.Get(namespace, name); found {
				s.order.Mark(request(namespace, name), conversationMark(record))
			}
			queue.Add(request(namespace, name))
		}
	}
	s.Conversations.Subscribe(add)
	ended := newOutlet(s.Statuses.RewritesPerSecond, s.Conversations.EndingAt, add)
	s.Sessions.Subscribe(func(change sessions.Change) {
		turns := change.Others
		if change.Name == "" { // a list: after the first one, all conversations are queued already, and others are rare
			turns = s.ends(change.Namespace, turns)
		} else {
			turns = append(slices.Clip(turns), change.Name)
		}
		ended.queue(change.Namespace, turns)
	})
	return nil
}

// ends returns the given turns at which a conversation ends.
func (s *conversationSource) ends(namespace string, turns []string) []string {
	return slices.DeleteFunc(slices.Clone(turns), func(turn string) bool {
		return len(s.Conversations.EndingAt(namespace, turn, "", 1)) == 0
	})
}

// WaitForSync implements source.SyncingSource. Verdicts from incomplete views would be wrong, and would be written.
func (s *conversationSource) WaitForSync(ctx context.Context) error {
	if err := s.Conversations.WaitForSync(ctx); err != nil {
		return err
	}
	return s.Sessions.WaitForSync(ctx)
}
