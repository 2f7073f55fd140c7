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
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/sortedlist"
)

const (
	// turnsPerPage is the number of turns of a conversation that are read from the view at once.
	turnsPerPage = 256
	// reflectTimeout is how long a worker waits until the view shows what it has done.
	reflectTimeout = 5 * time.Second
	// minReflectTime is how long it waits even if its time for the conversation is over.
	minReflectTime = 100 * time.Millisecond
)

// turnPass is how far a conversation's turns have been gone through, the newest first.
type turnPass struct {
	// after is the position of the last turn that was looked at, or nil at the beginning.
	after *sortedlist.Position
	// changed is set if another pass is necessary: the views did not show what is stored, or the namespace has waited for its share.
	changed bool
	// refused is the first refusal of the API server to delete one of them.
	refused error
}

// turnDeletion deletes turns of one conversation that nothing else needs, the last ones first. It goes through all of them, the newest
// first. When it deletes one, it continues with the turn before it, which may be needed no longer.
//
// Before a turn is deleted, it is looked up, in this order, which conversations end at it, whether turns continue it, and whether the conversation
// of the deletion still exists. The views can
// lag, so the second look must be at a state after the first one: then a turn that a conversation needs, and does not end at any more, is
// continued by a stored turn in that state. This is the state of the API server or, if it is recent enough, of the view.
type turnDeletion struct {
	*ConversationDeleter
	record *conversations.Record
	pass   *turnPass
	end    time.Time
	// current is set if the view of the sessions shows a turn deleted that was deleted after it was looked up which conversations end at those
	// of the page.
	current bool
}

// deleteTurns deletes turns until none is left that is not needed, and then returns 0. Otherwise, it returns when to continue. A turn that the API
// server refuses to delete does not keep it from deleting others.
func (r *ConversationDeleter) deleteTurns(ctx context.Context, record *conversations.Record, pass *turnPass) (wait time.Duration, err error) {
	d := &turnDeletion{ConversationDeleter: r, record: record, pass: pass, end: time.Now().Add(r.turn(record.Namespace))}
	q := sortedlist.Query{Descending: true, After: sortedlist.Position{Time: math.MaxInt64}}
	if pass.after != nil {
		q.After = *pass.after
	}
	for {
		page := r.Sessions.List(record.Namespace, record.Name, q, turnsPerPage)
		if wait, err := d.page(ctx, page); wait > 0 || err != nil {
			pass.changed = pass.changed || pass.after != nil // meanwhile, a newer turn can cease to be needed
			return wait, err
		}
		if len(page) < turnsPerPage {
			break
		}
		if !time.Now().Before(d.end) {
			return time.Millisecond, nil
		}
		q.After = *pass.after
	}
	again := pass.changed && pass.refused == nil
	err = pass.refused
	*pass = turnPass{}
	if again {
		return deletionRetry, nil
	}
	return 0, err
}

func (d *turnDeletion) page(ctx context.Context, turns []*sessions.Record) (wait time.Duration, err error) {
	d.current = false
	unused := make([]bool, len(turns))
	for i, turn := range turns {
		unused[i] = d.isUnused(turn.Turn.ID)
	}
	for i, turn := range turns {
		switch wait, err := d.climb(ctx, turn.Turn.ID, unused[i]); {
		case isRefusal(err):
			d.pass.refused = cmp.Or(d.pass.refused, err)
		case wait > 0 || err != nil:
			return wait, err
		}
		d.pass.after = new(turn.Position())
	}
	return 0, nil
}

// climb deletes a turn and those before it, as long as nothing needs them. unused is whether no other conversation ended at the first one when
// that was looked up.
func (d *turnDeletion) climb(ctx context.Context, id string, unused bool) (wait time.Duration, err error) {
	for unused {
		turn, found := d.Sessions.Lookup(d.record.Namespace, id)
		if !found || !d.owns(turn) || d.Sessions.IsContinued(d.record.Namespace, id) {
			return 0, nil
		}
		if wait, err := d.pause(ctx, turn); wait > 0 || err != nil {
			return wait, err
		}
		if unused, wait, err = d.deleteUnneeded(ctx, turn); wait > 0 || err != nil {
			return wait, err
		}
		id = turn.Turn.Previous
	}
	return 0, nil
}

// deleteUnneeded deletes a turn with its chunks unless something needs it. unused reports that it did, and that no other conversation had ended at the
// previous turn. wait is not 0 if the conversation of the deletion no longer exists.
func (d *turnDeletion) deleteUnneeded(ctx context.Context, turn *sessions.Record) (unused bool, wait time.Duration, err error) {
	version, unused, wait, err := d.deleteObject(ctx, turn)
	if version == 0 {
		return false, wait, err
	}
	return d.isReflected(ctx, turn, version) && unused, 0, nil
}

// deleteObject is deleteUnneeded without the wait for the view. It holds a share of the namespace. version is that of delete.
func (d *turnDeletion) deleteObject(ctx context.Context, turn *sessions.Record) (version uint64, unused bool, wait time.Duration, err error) {
	if err := d.slots.Acquire(ctx, turn.Namespace, 1); err != nil {
		return 0, false, 0, err
	}
	defer d.slots.Release(turn.Namespace, 1)
	if continued, err := d.isContinued(ctx, turn.Turn.ID); continued || err != nil {
		return 0, false, 0, err
	}
	if !d.isUnused(turn.Turn.ID) { // a conversation was rolled back to it, or has just been created
		return 0, false, 0, nil
	}
	unused = d.isUnused(turn.Turn.Previous) // before this turn is deleted
	if exists, err := d.exists(ctx, d.record); !exists || err != nil {
		return 0, false, deletionRetry, err
	}
	version, err = d.delete(ctx, turn)
	return version, unused, 0, err
}

// owns reports whether a turn belongs to the conversation, which must not have been replaced by another one with its name.
func (d *turnDeletion) owns(turn *sessions.Record) bool {
	conversation, found := d.Conversations.Get(d.record.Namespace, d.record.Name)
	return found && conversation.UID == d.record.UID && turn.ConversationName() == d.record.Name
}

// isUnused reports whether no other conversation ends at a response ID, which is not empty.
func (d *turnDeletion) isUnused(id string) bool {
	if id == "" {
		return false
	}
	names := d.Conversations.EndingAt(d.record.Namespace, v1alpha1.ObjectName(id), "", 2) // this one, and another
	return !slices.ContainsFunc(names, func(name string) bool { return name != d.record.Name })
}

// pause waits until the namespace may delete a turn, whose chunks cost as much each: a tenant can claim some that do not exist. If the worker
// must not wait that long, it returns the remaining time.
func (d *turnDeletion) pause(ctx context.Context, turn *sessions.Record) (wait time.Duration, err error) {
	deleted := 1
	if hasChunks(turn) {
		deleted += snapshot.DeletedParts(turn.Snapshot())
	}
	for {
		if !time.Now().Before(d.end) {
			return time.Millisecond, nil
		}
		wait := d.pace.Delay(d.Clock.Now(), d.record.Namespace, d.record.NamespacedName(), seconds(float64(deleted)/d.TurnsPerSecond))
		if wait == 0 || time.Now().Add(wait).After(d.end) {
			return wait, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// isContinued reports whether a turn continues the one with a response ID now, after all waits. The view may not show it yet. An object whose
// name is that of another ID continues nothing.
func (d *turnDeletion) isContinued(ctx context.Context, id string) (continued bool, err error) {
	if d.current {
		return d.Sessions.IsContinued(d.record.Namespace, id), nil
	}
	err = d.eachListed(ctx, d.record.Namespace, "previousResponseID", id, func(turn *metav1.ObjectMeta, known *sessions.Record) bool {
		misnamed := known != nil && known.UID == sessions.NewUID(turn.UID) && known.Misnamed
		continued = continued || turn.DeletionTimestamp == nil && !misnamed
		return !continued
	})
	if err != nil {
		return false, fmt.Errorf("unable to list the turns that continue a turn: %w", err)
	}
	return continued, nil
}

func hasChunks(turn *sessions.Record) bool {
	return turn.Snapshot() != nil && turn.Snapshot().Store == v1alpha1.SnapshotStoreChunks
}

// delete deletes a turn with its chunks, unless it has changed since the view received it. It returns the resource version of the deletion, or 0 if the
// turn was not deleted, or was gone at once, so that its version is unknown. A turn that continues it nevertheless is kept.
func (d *turnDeletion) delete(ctx context.Context, turn *sessions.Record) (version uint64, err error) {
	uid, known := turn.UID.Text(), turn.Version()
	answer, err := kubeclient.Delete(ctx, d.Client, kubeclient.Sessions, turn.NamespacedName(),
		&metav1.Preconditions{UID: &uid, ResourceVersion: &known}, metav1.DeletePropagationOrphan)
	switch {
	case apierrors.IsConflict(err) || kubeclient.IsAnyGone(err):
		d.pass.changed = true
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("unable to delete a turn of the conversation: %w", err)
	}
	d.deleteChunks(ctx, turn)
	version = sessions.ParseResourceVersion(gjson.GetBytes(answer, "metadata.resourceVersion").String())
	d.pass.changed = d.pass.changed || version == 0
	return version, nil
}

// deleteChunks deletes the chunks of a turn that was deleted, as garbage collection would. An object in a bucket stays for the grace period, for a
// restore.
func (d *turnDeletion) deleteChunks(ctx context.Context, turn *sessions.Record) {
	if !hasChunks(turn) {
		return
	}
	restored := func(ctx context.Context) (bool, error) { return d.isStoredAgain(ctx, turn) }
	if err := d.Snapshots.Delete(ctx, turn.NamespacedName(), turn.Snapshot(), restored); err != nil {
		log.FromContext(ctx).Error(err, "Unable to delete the chunks of a turn with it: the next sweeps do that", "turn", turn.Name)
	}
}

// isReflected waits until the view shows that a turn was deleted at a resource version, and reports whether it does.
func (d *turnDeletion) isReflected(ctx context.Context, turn *sessions.Record, version uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, min(reflectTimeout, max(time.Until(d.end), minReflectTime)))
	defer cancel()
	if d.Sessions.WaitUntilReflects(ctx, turn.Namespace, version) != nil {
		d.pass.changed = true
		return false
	}
	d.current = true
	return true
}

// isStoredAgain reports whether another turn has the name of one that was deleted, which may be the same one, restored from a backup.
func (d *turnDeletion) isStoredAgain(ctx context.Context, turn *sessions.Record) (bool, error) {
	current, err := kubeclient.GetMetadata(ctx, d.Client, kubeclient.Sessions, turn.NamespacedName())
	switch {
	case kubeclient.IsGone(err, kubeclient.Sessions, turn.Name):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("unable to look whether the turn was restored: %w", err)
	}
	return current.UID != turn.UID.Text(), nil
}
