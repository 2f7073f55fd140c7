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
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

const (
	// deletionWorkers is the number of Conversations whose deletion may be in progress at once. Nearly all of them wait for the rate of their namespace. A
	// namespace has at most deletionsPerNamespace of them, so that one list serves many deletions.
	deletionWorkers       = 64
	deletionsPerNamespace = 2
	// activeDeletions is how many of them list or delete turns at the same time.
	activeDeletions = 4
	// DefaultTurnDeletionsPerSecond is the default of ConversationDeleter.TurnsPerSecond.
	DefaultTurnDeletionsPerSecond = 100
	// deletionBurst is how far a namespace may be ahead of that.
	deletionBurst = 250 * time.Millisecond
	// minDeletionTurn is how long a worker stays with one conversation, waits included. It is short because many namespaces can occupy all
	// workers. In a large namespace it is up to maxDeletionTurn, because each time the worker begins by listing all sessions.
	minDeletionTurn = 250 * time.Millisecond
	maxDeletionTurn = 5 * time.Second
	// deletionRetry is when a conversation is looked at again whose turns have changed meanwhile, or that waits for one.
	deletionRetry = time.Second
	// maxHeadPoll is the longest time until a conversation is looked at again that waits for the turn for which its head is reserved.
	maxHeadPoll = 10 * time.Second
)

// EventDeletionFailed is the reason of the event for a conversation that cannot be deleted with its turns, because the API server refuses it.
const EventDeletionFailed = "DeletionFailed"

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=conversations,verbs=get;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=list;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// ConversationDeleter deletes the Conversations in the state Deleting, each with those of its turns that nothing else needs:
// docs/decisions/conversation-deletion.md explains how. After a restart, it continues. It runs on the leader.
type ConversationDeleter struct {
	// Client is a client of the group and version of the Conversations.
	Client rest.Interface
	// Conversations and Sessions are the views. The caller runs them; the controller waits for their first lists.
	Conversations *conversations.View
	Sessions      *sessions.View
	// Snapshots has the chunks of turns.
	Snapshots snapshot.Stores
	// Recorder records an event when a conversation cannot be deleted.
	Recorder     events.EventRecorder
	EventLimiter *EventLimiter
	// TurnsPerSecond is the number of turns that are deleted for each namespace.
	TurnsPerSecond float64
	// Clock provides the times of waits.
	Clock clock.PassiveClock
	// StallTimeout is how long one reconcile may take before Healthy returns an error, more than ReconcileTimeout.
	StallTimeout time.Duration

	progress progress
	order    *fair.Queue[ctrl.Request]
	pace     *fair.Pace[types.NamespacedName]
	// slots limits the active deletions, and shares them among namespaces.
	slots *fair.Budget

	mu        sync.Mutex
	deletions map[types.NamespacedName]*conversationDeletion
}

// conversationDeletion is what the leader remembers of a deletion. Only the worker that has the conversation uses it.
type conversationDeletion struct {
	uid sessions.UID
	// reserved is the head with its reservation as it was last read. If it is the same at the time until, the reservation is over.
	reserved string
	until    time.Time
	// complete is set once all turns of the conversation were stored, and the view had them.
	complete bool
	pass     turnPass
	// failed is set if the last attempt has failed because the API server has refused it.
	failed bool
}

// SetupWithManager adds the controller to a manager.
func (r *ConversationDeleter) SetupWithManager(mgr ctrl.Manager) error {
	r.order = newDeletionOrder()
	r.pace, r.slots = fair.NewPace[types.NamespacedName](deletionBurst), fair.NewBudget(activeDeletions)
	r.deletions = map[types.NamespacedName]*conversationDeletion{}
	return ctrl.NewControllerManagedBy(mgr).
		Named("conversation-deletion").
		WatchesRawSource(&deletionSource{r}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: deletionWorkers,
			CacheSyncTimeout:        math.MaxInt64, // see ConversationReconciler
			NewQueue:                withOrder(r.order),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minBackoff, maxBackoff),
			SkipNameValidation:      new(true), // see ResponseSessionReconciler
		}).
		Complete(r)
}

// Reconcile continues the deletion of one Conversation, and ends it if nothing more has to be done.
func (r *ConversationDeleter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer r.progress.start(r.Clock.Now())()
	ctx, cancel := context.WithTimeout(ctx, ReconcileTimeout)
	defer cancel()
	record, found := r.Conversations.Get(req.Namespace, req.Name)
	if !found || record.Deleting || !record.WithTurns {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	if r.Conversations.IsStale() || r.Sessions.IsStale() { // what needs a turn may be missing
		r.order.Mark(req, deletionMark)
		return ctrl.Result{RequeueAfter: deletionRetry}, nil
	}
	deletion := r.deletion(record)
	wait, err := r.reconcile(ctx, record, deletion)
	r.report(record, deletion, err)
	if err != nil || wait > 0 {
		r.order.Mark(req, deletionMark)
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// newDeletionOrder returns the order of the queue of conversations, each of which must have the deletionMark.
func newDeletionOrder() *fair.Queue[ctrl.Request] {
	return fair.NewQueue(namespaceOf, deletionWorkers, deletionWorkers)
}

// deletionMark limits a namespace to deletionsPerNamespace: that many have as many units as half of the workers.
var deletionMark = fair.Mark{Units: deletionWorkers / 2 / deletionsPerNamespace}

// reconcile does a part of a deletion, and returns when the next one may be done.
func (r *ConversationDeleter) reconcile(ctx context.Context, record *conversations.Record, deletion *conversationDeletion) (time.Duration, error) {
	if !record.Misnamed { // otherwise, no turn belongs to it
		if wait, err := r.prepare(ctx, record, deletion); wait > 0 || err != nil {
			return wait, err
		}
		if wait, err := r.deleteTurns(ctx, record, &deletion.pass); wait > 0 || err != nil {
			return wait, err
		}
	}
	uid := record.UID.Text()
	_, err := kubeclient.Delete(ctx, r.Client, kubeclient.Conversations, record.NamespacedName(),
		&metav1.Preconditions{UID: &uid}, metav1.DeletePropagationBackground)
	if err := ignoreGone(err); err != nil {
		return 0, fmt.Errorf("unable to delete the conversation: %w", err)
	}
	log.FromContext(ctx).Info("Deleted a conversation with the turns that nothing else needs")
	return 0, nil
}

// prepare returns 0 once all turns of a conversation are stored, and the view has them. Otherwise, it returns when to continue.
func (r *ConversationDeleter) prepare(ctx context.Context, record *conversations.Record, deletion *conversationDeletion) (time.Duration, error) {
	if deletion.complete { // the turn of the head may be deleted
		return 0, nil
	}
	if wait, err := r.awaitHead(ctx, record, deletion); wait > 0 || err != nil {
		return wait, err
	}
	if wait := r.pace.Delay(r.Clock.Now(), record.Namespace, record.NamespacedName(), 0); wait > 0 { // for the lists that were charged
		return wait, nil
	}
	if complete, err := r.isComplete(ctx, record); !complete || err != nil {
		return deletionRetry, err
	}
	deletion.complete = true
	return 0, nil
}

// awaitHead returns how long to wait for the turn for which the head is reserved, which is to be deleted with the others. It may be saved until
// its reservation has been seen unchanged for its whole duration.
func (r *ConversationDeleter) awaitHead(ctx context.Context, record *conversations.Record, deletion *conversationDeletion) (time.Duration, error) {
	if !record.Reserved {
		return 0, nil
	}
	if head, found := r.Sessions.Lookup(record.Namespace, record.Head); found && head.Turn.Previous == record.Base {
		return 0, nil
	}
	now := r.Clock.Now() // before the reservation is read
	if wait := deletion.until.Sub(now); wait > 0 {
		return min(wait, max(deletionRetry, min(wait/16, maxHeadPoll))), nil // many can wait for long
	}
	raw, err := kubeclient.GetRaw(ctx, r.Client, kubeclient.Conversations, record.NamespacedName())
	if err != nil {
		return deletionRetry, ignoreGone(err)
	}
	reservation := gjson.GetBytes(raw, "spec.reservation")
	reserved := gjson.GetBytes(raw, "spec.headResponseID").Raw + reservation.Raw
	if reserved == deletion.reserved {
		return 0, nil
	}
	deletion.reserved, deletion.until = reserved, now.Add(time.Duration(reservation.Get("durationSeconds").Int())*time.Second)
	return deletionRetry, nil
}

// sessionsPerPage is the number of sessions that are listed at once.
const sessionsPerPage = 500

// isComplete reports whether the view has all turns of a conversation. No more are appended, but those of a moment ago may be missing.
func (r *ConversationDeleter) isComplete(ctx context.Context, record *conversations.Record) (complete bool, err error) {
	if err := r.slots.Acquire(ctx, record.Namespace, 1); err != nil {
		return false, err
	}
	defer r.slots.Release(record.Namespace, 1)
	raw, err := kubeclient.GetRaw(ctx, r.Client, kubeclient.Conversations, record.NamespacedName())
	if err != nil {
		return false, ignoreGone(err)
	}
	complete = true
	err = r.eachListed(ctx, record.Namespace, "conversationID", gjson.GetBytes(raw, "spec.conversationID").String(),
		func(turn *metav1.ObjectMeta, known *sessions.Record) bool {
			complete = complete && (turn.DeletionTimestamp != nil || known != nil && known.UID == sessions.NewUID(turn.UID))
			return complete
		})
	if err != nil {
		return false, fmt.Errorf("unable to list the turns of the conversation: %w", err)
	}
	return complete, nil
}

// eachListed calls a function with the turns of a namespace that have a value in a field of their spec, and with what the view has of each, or nil. It
// reads no more pages once the function has returned false. The namespace is charged for the list.
func (r *ConversationDeleter) eachListed(
	ctx context.Context, namespace, field, value string, yield func(turn *metav1.ObjectMeta, known *sessions.Record) (more bool),
) (err error) {
	bytes := int64(0)
	defer func() {
		r.pace.Charge(r.Clock.Now(), namespace, r.costOfList(namespace)+time.Duration(bytes)*listedByteCost)
	}()
	for next, more := "", true; more; more = more && next != "" {
		next, err = kubeclient.ListSessions(ctx, r.Client, namespace, field, value, sessionsPerPage, next, func(turn *metav1.ObjectMeta) {
			known, found := r.Sessions.Get(turn.Namespace, turn.Name)
			if found {
				bytes += int64(known.ObjectBytes)
			}
			more = yield(turn, known)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// exists reports whether a conversation exists now. If it was deleted by hand, its turns are to stay. Another one may have its name.
func (r *ConversationDeleter) exists(ctx context.Context, record *conversations.Record) (bool, error) {
	current, err := kubeclient.GetMetadata(ctx, r.Client, kubeclient.Conversations, record.NamespacedName())
	if err != nil {
		return false, ignoreGone(err)
	}
	return current.UID == record.UID.Text() && current.DeletionTimestamp == nil, nil
}

// listCost is what a list costs a namespace for each of its sessions: the API server compares all of them with a field selector. listedByteCost
// is what each byte of a session in the list costs: all of them may be metadata, which is sent.
const (
	listCost       = 10 * time.Microsecond
	listedByteCost = 10 * time.Nanosecond
)

func (r *ConversationDeleter) costOfList(namespace string) time.Duration {
	return time.Duration(r.Sessions.Sessions(namespace)) * listCost
}

// turn returns how long a worker deletes turns of a conversation: so long that the list at the beginning is a small part of what it costs.
func (r *ConversationDeleter) turn(namespace string) time.Duration {
	return min(max(8*r.costOfList(namespace), minDeletionTurn), maxDeletionTurn)
}

// report records the transition to a deletion that the API server refuses.
func (r *ConversationDeleter) report(record *conversations.Record, deletion *conversationDeletion, err error) {
	refused := isRefusal(err)
	if refused && !deletion.failed && r.EventLimiter.Allow(record.Namespace) {
		reference := &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ConversationKind,
			Namespace: record.Namespace, Name: record.Name, UID: record.UID.Text(),
		}
		r.Recorder.Eventf(reference, nil, corev1.EventTypeWarning, EventDeletionFailed, "DeleteConversation", "%s", truncate(err.Error(), maxNoteBytes))
	}
	deletion.failed = refused
}

// isRefusal reports whether the API server has refused a request that it would refuse again. An object of the largest size has no room for the
// finalizer of its deletion.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if kubeclient.IsTooLargeForEtcd(err) {
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code/100 == 4
	}
}

// deletion returns what is known of the deletion of a conversation.
func (r *ConversationDeleter) deletion(record *conversations.Record) *conversationDeletion {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.deletions[record.NamespacedName()]
	if known == nil || known.uid != record.UID {
		known = &conversationDeletion{uid: record.UID}
		r.deletions[record.NamespacedName()] = known
	}
	return known
}

func (r *ConversationDeleter) forget(name types.NamespacedName) {
	r.pace.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.deletions, name)
}

// deletionSource feeds the controller's queue from the view of the conversations.
type deletionSource struct{ *ConversationDeleter }

var _ source.SyncingSource = &deletionSource{}

// Start implements source.Source.
func (s *deletionSource) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.Conversations.Subscribe(func(namespace string, names []string) {
		for _, name := range names {
			record, found := s.Conversations.Get(namespace, name)
			switch {
			case !found:
				s.forget(types.NamespacedName{Namespace: namespace, Name: name})
			case record.WithTurns:
				s.order.Mark(request(namespace, name), deletionMark)
				queue.Add(request(namespace, name))
			}
		}
	})
	return nil
}

// WaitForSync implements source.SyncingSource. Turns that an incomplete view does not show would not be deleted, or not be kept.
func (s *deletionSource) WaitForSync(ctx context.Context) error {
	if err := s.Conversations.WaitForSync(ctx); err != nil {
		return err
	}
	return s.Sessions.WaitForSync(ctx)
}
