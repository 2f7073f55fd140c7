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

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

// The delays between two looks at a conversation whose end is reserved.
const (
	firstLook = 20 * time.Millisecond
	maxLook   = time.Second
)

// AppendOptions are the options of Conversations.Append.
type AppendOptions struct {
	// ExpectedPreviousResponseID, if set, must be the last turn of the history; the empty string means that it must have none. If it is
	// not, the error is ErrConflict.
	ExpectedPreviousResponseID *string
	// Branch saves the turn if another one than ExpectedPreviousResponseID, which must be set, is the last. It continues the
	// expected one, and is not part of the conversation.
	Branch bool
	// Reservation is how long a place is reserved for the turn, in whole seconds, from 1 s to 10 min: if this process dies,
	// other writers wait that long. 0 means DefaultReservation.
	Reservation time.Duration
}

// Append saves a turn as the next one of a conversation. It sets the turn's ConversationID and PreviousResponseID, whatever they were, and
// its Version. It reports whether the turn is part of the conversation, which is false only for a branch.
//
// If other writers are appending, it waits for them. If one has died, that takes as long as its reservation. If the context ends before, the
// error is ErrConversationLocked. Nothing was stored then. It does not wait if the turn is already stored.
//
// Appending the same turn again is a success, and changes nothing, even if the conversation was archived meanwhile. It is ErrConflict if the
// turn is stored but was rolled back or lost its place to another writer, or if another turn is stored under its ID. After any other error, it
// is unknown whether the turn was stored, until it is appended again.
//
// The error is ErrInvalid if the last turn has function calls without an output, unless the turn's input has their outputs, and if the
// status of the turn is StatusFailed, StatusCancelled or an unknown one, because no history with it could be loaded. It is ErrNotFound if the
// last turn was deleted and a fork or a rollback had made it the last one. A deleted turn that was appended counts as one that is still being saved.
//
// Append does not count the turns. A history of more than MaxDepthLimit turns, or of the operator's --max-depth-limit in a cluster, cannot be
// loaded, counted or rolled back, except to the empty ID: continue with a new conversation before that. Recent returns its end.
func (c *Conversations) Append(ctx context.Context, conversationID string, session *Session, options AppendOptions) (bool, error) {
	return conversationCall(c, "append", conversationID, func(d driver.Conversations) (bool, error) {
		return c.append(ctx, d, conversationID, session, options)
	})
}

func (c *Conversations) append(
	ctx context.Context, d driver.Conversations, conversationID string, session *Session, options AppendOptions,
) (bool, error) {
	next := *session
	next.ConversationID, next.PreviousResponseID = conversationID, ""
	if _, err := c.store.prepare(&next, SaveOptions{}); err != nil {
		return false, err
	}
	if err := checkAppended(&next); err != nil {
		return false, err
	}
	if options.Branch && options.ExpectedPreviousResponseID == nil {
		return false, &Error{Code: CodeInvalid, Message: "invalid options: Branch requires ExpectedPreviousResponseID"}
	}
	a := appender{
		reserver: reserver{c: c, d: d, conversationID: conversationID, responseID: next.ResponseID},
		next:     &next, options: options,
	}
	a.read = a.readOnce
	part, err := a.append(ctx)
	if err == nil {
		session.ConversationID, session.PreviousResponseID, session.Version = next.ConversationID, next.PreviousResponseID, next.Version
	}
	return part, err
}

// checkAppended returns an error if no history with a turn can be loaded, because of its status.
func checkAppended(session *Session) error {
	switch session.Status {
	case StatusCompleted, StatusIncomplete, StatusInProgress, StatusQueued:
		return nil
	}
	return &Error{
		Code: CodeInvalid, ResponseID: session.ResponseID,
		Message: fmt.Sprintf("response %q has the status %.100q: no history with it can be loaded, so it cannot be appended", session.ResponseID, session.Status),
	}
}

// appender is a call of Append.
type appender struct {
	reserver
	next    *Session
	options AppendOptions
	// last is the turn that readOnce has read.
	last *Session
}

// readOnce reads a turn with its bodies, which check needs, unless it has them. A writer that waits looks at the last turn many times.
func (a *appender) readOnce(ctx context.Context, responseID string) (*Session, error) {
	if a.last != nil && a.last.ResponseID == responseID {
		info, err := a.c.store.getWithoutBodies(ctx, responseID)
		switch {
		case err != nil:
			return nil, err
		case info.Version == a.last.Version:
			return a.last, nil
		}
	}
	turn, err := a.c.turn(ctx, responseID)
	if err == nil {
		a.last = turn
	}
	return turn, err
}

func (a *appender) append(ctx context.Context) (bool, error) {
	reservation, err := a.reserve(ctx, a.options.Reservation, true, a.check)
	switch {
	case errors.Is(err, errStored):
		return a.again(ctx)
	case errors.Is(err, errBranch):
		return false, a.branch(ctx, *a.options.ExpectedPreviousResponseID)
	case err != nil:
		return false, err
	}
	return true, reservation.Save(ctx, a.next)
}

// branch saves the turn after one that is not the last. That one must be stored.
func (a *appender) branch(ctx context.Context, parent string) error {
	if parent != "" {
		if _, err := a.c.store.getWithoutBodies(ctx, parent); err != nil {
			return err
		}
	}
	a.next.PreviousResponseID = parent
	return a.c.store.Save(ctx, a.next, SaveOptions{})
}

// errBranch indicates that the turn is to be saved as a branch.
var errBranch = errors.New("another turn is the last one")

// check returns an error if the turn cannot be appended to a history that ends with another one, which is nil if it is empty. hidden are the
// hidden items of the conversation.
func (a *appender) check(last *Session, hidden []HiddenItem) error {
	end := idOf(last)
	if expected := a.options.ExpectedPreviousResponseID; expected != nil && *expected != end {
		if a.options.Branch {
			return errBranch
		}
		return &Error{
			Code: CodeConflict, ResponseID: a.responseID, PreviousResponseID: end,
			Message: fmt.Sprintf("the last turn of conversation %.100q is %q, not %q as expected", a.conversationID, end, *expected),
		}
	}
	if last == nil {
		return nil
	}
	if call := unanswered(last, hidden, a.next); call != "" {
		return &Error{
			Code: CodeInvalid, ResponseID: a.responseID, PreviousResponseID: end,
			Message: fmt.Sprintf("no output found for the call %.100q of response %q, the last one of conversation %.100q", call, end, a.conversationID),
		}
	}
	return nil
}

// again handles a turn that is already stored.
func (a *appender) again(ctx context.Context) (bool, error) {
	stored, err := a.c.store.getWithoutBodies(ctx, a.responseID)
	if err != nil {
		return false, err
	}
	a.next.PreviousResponseID = stored.PreviousResponseID
	// A caller that expects the turn itself to be the last one has already seen it appended.
	if expected := a.options.ExpectedPreviousResponseID; expected != nil && *expected != a.responseID {
		a.next.PreviousResponseID = *expected
	}
	if err := a.c.store.Save(ctx, a.next, SaveOptions{Existing: true}); err != nil {
		return false, err
	}
	err = a.confirm(ctx, stored.PreviousResponseID)
	if a.options.Branch && errors.Is(err, errNoPart) {
		return false, nil
	}
	return err == nil, err
}

// Confirm returns nil if a stored turn is part of the conversation, and stays so until it is rolled back. The error is ErrConflict if it was
// rolled back or has lost its place to another writer, and ErrNotFound if it is not stored.
func (c *Conversations) Confirm(ctx context.Context, conversationID, responseID string) error {
	_, err := conversationCall(c, "confirm", conversationID, func(d driver.Conversations) (struct{}, error) {
		stored, err := c.store.getWithoutBodies(ctx, responseID)
		if err != nil {
			return struct{}{}, err
		}
		r := &reserver{c: c, d: d, conversationID: conversationID, responseID: responseID}
		return struct{}{}, r.confirm(ctx, stored.PreviousResponseID)
	})
	return err
}

// errNoPart is the cause of the error for a stored turn that is not part of the conversation.
var errNoPart = errors.New("it was rolled back, or lost its place")

// confirm returns nil if the turn, which is stored with a parent, is part of the conversation and stays so until it is rolled back. If it is
// the head, another writer may have decided to take its place before the turn was stored: the renewal makes this fail.
func (r *reserver) confirm(ctx context.Context, parent string) error {
	for {
		current, err := r.c.get(ctx, r.d, r.conversationID)
		switch {
		case err != nil:
			return err
		case current.Head.ResponseID != r.responseID || !current.Head.Holds(parent):
			return r.mustBePart(ctx, parent)
		case current.Head.Reservation == driver.Reservation{}:
			return nil
		}
		if _, err = r.renew(ctx, current.Head); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// mustBePart returns an error unless the turn, which is stored with a parent, is part of the history.
func (r *reserver) mustBePart(ctx context.Context, parent string) error {
	_, part, err := r.c.find(ctx, r.conversationID, r.responseID)
	if err == nil && !part {
		err = &Error{
			Code: CodeConflict, ResponseID: r.responseID, PreviousResponseID: parent, Err: errNoPart,
			Message: fmt.Sprintf("response %q is stored, but is not part of conversation %.100q", r.responseID, r.conversationID),
		}
	}
	return err
}

// reserver reserves places for a turn.
type reserver struct {
	c                          *Conversations
	d                          driver.Conversations
	conversationID, responseID string
	// read reads the last turn, with its bodies if check needs them.
	read func(ctx context.Context, responseID string) (*Session, error)
	// tried is the last place that this process has tried to reserve as the first one for the turn, or nil.
	tried *place
}

// place is a head that reserves a place, from when on, and what it replaces.
type place struct {
	head, before Head
	begin        time.Time
}

// checkFunc returns an error if the next turn must not follow last, which is nil for the first turn. hidden are the conversation's hidden items.
type checkFunc func(last *Session, hidden []HiddenItem) error

// errStored indicates that the turn for which a place is to be reserved is stored.
var errStored = errors.New("the turn is stored")

// reserve reserves the end of the conversation for the turn. If it is reserved for another one, it waits if it may, and
// otherwise the error is ErrConversationLocked. check is called with the last turn, or nil.
func (r *reserver) reserve(ctx context.Context, duration time.Duration, wait bool, check checkFunc) (*Reservation, error) {
	duration, err := validDuration(duration)
	if err != nil {
		return nil, err
	}
	for pause := firstLook; ; pause = min(2*pause, maxLook) {
		reservation, err := r.try(ctx, duration, check)
		for errors.Is(err, errChanged) && ctx.Err() == nil { // another writer has made progress
			reservation, err = r.try(ctx, duration, check)
		}
		if errors.Is(err, errChanged) {
			err = r.locked()
		}
		if !wait || !errors.Is(err, ErrConversationLocked) {
			return reservation, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (r *reserver) locked() *Error {
	return &Error{
		Code: CodeConversationLocked, Retryable: true,
		Message: fmt.Sprintf("another turn of conversation %.100q is being made", r.conversationID),
	}
}

// errChanged indicates that the conversation has changed since it was read.
var errChanged = errors.New("the conversation was changed")

// try is one attempt to reserve.
func (r *reserver) try(ctx context.Context, duration time.Duration, check checkFunc) (*Reservation, error) {
	current, err := r.c.getActive(ctx, r.d, r.conversationID)
	if errors.Is(err, ErrConversationArchived) {
		return nil, r.unlessStored(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	seen := time.Now() // before it is looked up whether the turn is stored: what was not saved in time must be found missing after that
	last, pending, err := r.c.last(ctx, current.Head, r.read)
	if err != nil {
		return nil, err
	}
	own := current.Head.ResponseID == r.responseID
	switch {
	case own && !pending:
		return nil, errStored
	case pending && !own && !r.c.abandoned(r.conversationID, current.Head, seen):
		return nil, r.unlessStored(ctx, r.locked())
	}
	if !own {
		if err := r.unlessStored(ctx, nil); err != nil {
			return nil, err
		}
	}
	if err := check(last, current.HiddenItems); err != nil {
		return nil, err
	}
	switch {
	case own && r.tried != nil && current.Head == r.tried.head: // only the answer was lost
		return newReservation(ctx, r, current, r.tried.begin, true, r.tried.before), nil
	case own:
		return r.join(ctx, current.Head)
	}
	base := idOf(last)
	next := Head{
		ResponseID: r.responseID, BaseResponseID: base,
		Reservation: driver.Reservation{Duration: duration, Renewals: rand.Int64N(maxFirstRenewals)},
	}
	before := current.Head
	if pending {
		before = Head{ResponseID: base}
	}
	return r.take(ctx, current.Head, next, true, before)
}

// unlessStored returns err, or errStored if the turn is stored.
func (r *reserver) unlessStored(ctx context.Context, err error) error {
	switch _, readErr := r.c.store.getWithoutBodies(ctx, r.responseID); {
	case readErr == nil:
		return errStored
	case !errors.Is(readErr, ErrNotFound):
		return readErr
	}
	return err
}

// maxFirstRenewals limits the random number with which Reservation.Renewals begins. It leaves room for renewals in the integers of JSON.
const maxFirstRenewals = 1 << 40

// join continues a reservation that was made for the same turn, by an attempt whose response was lost or by a process that has died.
func (r *reserver) join(ctx context.Context, head Head) (*Reservation, error) {
	return r.take(ctx, head, renewed(head), false, Head{})
}

// take replaces the head. If it is the first attempt for the turn, it can be given up: then before takes its place.
func (r *reserver) take(ctx context.Context, head, next Head, first bool, before Head) (*Reservation, error) {
	begin := time.Now()
	if first {
		r.tried = &place{next, before, begin}
	}
	updated, err := r.c.update(ctx, r.d, r.conversationID, driver.ConversationUpdate{
		ExpectedState: ConversationActive, ExpectedHead: &head, Head: &next,
	})
	switch {
	case errors.Is(err, ErrConflict):
		return nil, errChanged
	case err != nil && first && (ctx.Err() != nil || driver.IsRetryable(err)): // only the answer may have been lost
		r.giveUp(ctx, next, before)
		return nil, err
	case err != nil:
		return nil, err
	}
	return newReservation(ctx, r, updated, begin, first, before), nil
}

// giveUp makes room for others at once, if the head is that of a reservation of this process. If that fails, they wait.
func (r *reserver) giveUp(ctx context.Context, head, before Head) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, _ = r.d.UpdateConversation(ctx, r.c.store.namespace, r.conversationID, driver.ConversationUpdate{ExpectedHead: &head, Head: &before})
}

// renew renews the reservation of a head, and returns the conversation with the new one.
func (r *reserver) renew(ctx context.Context, head Head) (*Conversation, error) {
	next := renewed(head)
	return r.c.update(ctx, r.d, r.conversationID, driver.ConversationUpdate{ExpectedHead: &head, Head: &next})
}

// renewed returns a head whose reservation is renewed.
func renewed(head Head) Head {
	head.Reservation.Renewals++
	return head
}

// last returns the last turn of the history that ends at a head, or nil if it has none, and whether the head is reserved for a turn that
// is not stored.
func (c *Conversations) last(
	ctx context.Context, head Head, read func(ctx context.Context, responseID string) (*Session, error),
) (last *Session, pending bool, err error) {
	if head.ResponseID == "" {
		return nil, false, nil
	}
	last, err = read(ctx, head.ResponseID)
	if err == nil && !head.Holds(last.PreviousResponseID) {
		last, err = nil, driver.NotFound(head.ResponseID)
	}
	if !errors.Is(err, ErrNotFound) || head.Reservation == (driver.Reservation{}) {
		return last, false, err
	}
	if head.BaseResponseID == "" {
		return nil, true, nil
	}
	last, err = read(ctx, head.BaseResponseID)
	return last, true, err
}

// idOf returns the response ID of the last turn of a history, which is nil if the history is empty.
func idOf(last *Session) string {
	if last == nil {
		return ""
	}
	return last.ResponseID
}

// conversationKey identifies a conversation.
type conversationKey struct{ namespace, conversationID string }

// observation is when a head was first seen.
type observation struct {
	head  Head
	since time.Time
}

// maxObservations is the number of conversations of which a store remembers since when it has seen their heads.
const maxObservations = 10_000

// abandoned reports whether a head was seen for the whole duration of its reservation, the last time at the given time.
func (c *Conversations) abandoned(conversationID string, head Head, seen time.Time) bool {
	key := conversationKey{c.store.namespace, conversationID}
	first, found := c.store.observations.Get(key)
	if !found || first.head != head {
		first = observation{head, seen}
		c.store.observations.Set(c.store.namespace, key, first, 1)
	}
	return seen.Sub(first.since) >= head.Reservation.Duration
}
