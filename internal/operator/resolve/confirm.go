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

package resolve

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// waits are the times that queries wait. Only tests change them.
type waits struct {
	// immediate is the number of turns that are confirmed without waiting for the view, unless the namespace has exceeded its rate of
	// confirmations.
	immediate int
	// view is how long a query waits for the view, which is usually some milliseconds old.
	view time.Duration
	// rate is how long a query waits until its namespace may have turns confirmed, or bytes returned, again.
	rate time.Duration
}

var defaultWaits = waits{immediate: readsPerQuery, view: 250 * time.Millisecond, rate: 5 * time.Second}

// confirm makes sure that the known state of the unconfirmed turns is at least as new as the lookup.
//
// Turns whose state the view does not show are read first. If there are many others, or the namespace has exceeded its rate of
// confirmations, it waits until the view has caught up: that takes one live read and the next event of any session. If no event
// comes in time, it reads each turn. It does so at once if the view is stale, because then all turns of all namespaces have to be
// confirmed. The argument broken indicates that the lookup shows an error at present.
func (l *lookup) confirm(ctx context.Context, broken bool) error {
	if l.view.IsStale() {
		return l.confirmStale(ctx, broken)
	}
	if err := l.readHidden(ctx); err != nil {
		return err
	}
	turns := len(l.unconfirmed())
	if turns > l.waits.immediate || l.confirmations.delay(l, int64(turns)) > 0 {
		if err := l.catchUp(ctx); err != nil || l.caughtUp {
			l.confirmations.forget(l)
			return err
		}
		if err := l.confirmations.take(ctx, l, int64(turns)); err != nil {
			return err
		}
	}
	return l.readTurns(ctx, l.unconfirmed())
}

// confirmStale reads each unconfirmed turn. Histories cost nothing, because the namespace did not cause the reads, and errors cost as
// much as the turns that were read for them: see settle. It is not known before the reads which of them it is, so a namespace that
// has exceeded its rate waits in either case. A long chain that seems to be broken is paid for in advance: otherwise clients that
// cancel such queries, or send many at once, would not pay.
func (l *lookup) confirmStale(ctx context.Context, broken bool) error {
	turns := l.unconfirmed()
	advance := 0
	if broken && len(turns) > l.waits.immediate {
		advance = len(turns)
	}
	if err := l.confirmations.take(ctx, l, int64(advance)); err != nil {
		return err
	}
	l.paid += int64(advance)
	l.stale += int64(len(turns))
	return l.readTurns(ctx, turns)
}

// settle charges the namespace for the turns that were read while the view was stale if the walk has ended in an error. Otherwise it
// returns what was paid in advance.
func (l *lookup) settle(broken bool) {
	switch {
	case broken && l.stale > l.paid:
		l.confirmations.charge(l.namespace, l.stale-l.paid)
		l.paid = l.stale
	case !broken && l.paid > 0:
		l.confirmations.refund(l.namespace, l.paid)
		l.paid = 0
	}
}

// readHidden reads the turns whose state the view does not show.
func (l *lookup) readHidden(ctx context.Context) error {
	hidden := slices.DeleteFunc(l.unconfirmed(), func(id string) bool { return !l.hidesState(l.get(id)) })
	if len(hidden) == 0 {
		return nil
	}
	if err := l.confirmations.take(ctx, l, int64(len(hidden))); err != nil {
		return err
	}
	return l.readTurns(ctx, hidden)
}

// chargeError waits until the namespace may receive an error that the view has shown. The error costs as much as the turns that
// would have been read without waiting. Otherwise clients that repeat such queries would all proceed with each event of another
// namespace.
func (l *lookup) chargeError(ctx context.Context) error {
	if !l.caughtUp {
		return nil
	}
	return l.confirmations.take(ctx, l, int64(min(len(l.visited), readsPerQuery)))
}

// unconfirmed returns the visited turns whose state in the lookup may be outdated.
func (l *lookup) unconfirmed() []string {
	return slices.DeleteFunc(slices.Clone(l.visited), func(id string) bool {
		_, read := l.confirmed[id]
		return read || l.caughtUp && !l.hidesState(l.get(id))
	})
}

// hidesState reports whether a turn, nil if it does not exist, is unreadable because of a snapshot outside its object. The snapshot
// may have changed since then without a change of the object. Nothing depends on it for a query that includes unreadable turns.
func (l *lookup) hidesState(s *sessions.Record) bool {
	return s != nil && s.Snapshot() != nil && s.Turn.Unreadable && !l.query.IncludeUnreadable
}

// catchUp waits until the view reflects the current state of the API server, and sets caughtUp if it does so in time.
func (l *lookup) catchUp(ctx context.Context) error {
	version, err := l.reader.currentVersion(ctx, l.namespace)
	if err != nil {
		return err
	}
	l.caughtUp = l.await(ctx, version)
	return ctx.Err()
}

// await reports whether the view reflects a resource version in time.
func (l *lookup) await(ctx context.Context, version uint64) bool {
	if l.view.Reflects(l.namespace, version) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, l.waits.view)
	defer cancel()
	return l.view.WaitUntilReflects(ctx, l.namespace, version) == nil
}

// readTurns reads turns live. If the view has the object of a turn, only its metadata is read.
func (l *lookup) readTurns(ctx context.Context, ids []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsPerQuery)
	for _, id := range ids {
		group.Go(func() error { return l.readTurn(ctx, id) })
	}
	return group.Wait()
}

func (l *lookup) readTurn(ctx context.Context, id string) error {
	// The view is asked once, because it may receive the turn at any time.
	object, found := l.view.Get(l.namespace, v1alpha1.ObjectName(id))
	var known *sessions.Record // unless the object is not part of a chain
	if found && object.InChain() {
		known = object
	}
	if found && !l.hidesState(known) {
		current, err := l.reader.isCurrent(ctx, object)
		if err != nil {
			return err
		}
		if current {
			l.set(id, known)
			return nil
		}
	}
	s, err := l.readState(ctx, id)
	if err != nil {
		return err
	}
	l.set(id, s)
	return nil
}

// readState reads a turn, and its snapshot if the query depends on that. It returns nil if it does not exist.
func (l *lookup) readState(ctx context.Context, id string) (*sessions.Record, error) {
	if !l.query.IncludeUnreadable {
		s, _, err := l.reader.getID(ctx, l.namespace, id, l.payForSnapshot)
		return s, err
	}
	s, _, err := l.reader.getObject(ctx, l.namespace, v1alpha1.ObjectName(id))
	if err != nil || s == nil || !s.InChain() {
		return nil, err
	}
	return s, nil
}
