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
	"time"

	"github.com/catena-dev/catena/internal/elapsed"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
)

// releaseTimeout is the time that a failed append takes at most to make room for others, and a failed creation to leave nothing behind, and for
// which an operation waits for a deletion that has begun meanwhile.
const releaseTimeout = 2 * time.Second

// ReserveOptions are the options of Conversations.Reserve.
type ReserveOptions struct {
	// Duration is how long others wait if this process dies, in whole seconds, from 1 s to 10 min. 0 means DefaultReservation. The
	// reservation is renewed until the turn is saved, however long that takes. Each renewal, after half of the duration, is a write: choose
	// twice the time that most turns take.
	Duration time.Duration
}

// Reserve reserves the place of the next turn of a conversation before its model runs, so that others need not run theirs in vain: as
// long as it is reserved, the error of Reserve is ErrConversationLocked. The error is ErrConflict if a turn with the response ID is stored, and
// ErrNotFound if the last turn was deleted and a fork or a rollback had made it the last one. A deleted turn that was appended counts as one that
// is still being saved.
//
// Call Save or Release on the result. Until then, a goroutine renews the reservation, or until the context ends.
func (c *Conversations) Reserve(ctx context.Context, conversationID, responseID string, options ReserveOptions) (*Reservation, error) {
	return conversationCall(c, "reserve", conversationID, func(d driver.Conversations) (*Reservation, error) {
		if err := (&Session{ResponseID: responseID, ConversationID: conversationID, Status: StatusCompleted}).Validate(); err != nil {
			return nil, err
		}
		r := reserver{c: c, d: d, conversationID: conversationID, responseID: responseID, read: c.store.getWithoutBodies}
		reservation, err := r.reserve(ctx, options.Duration, false, func(*Session, []HiddenItem) error { return nil })
		if errors.Is(err, errStored) {
			return nil, driver.Conflict(responseID, "response %q is already stored", responseID)
		}
		return reservation, err
	})
}

func validDuration(d time.Duration) (time.Duration, error) {
	switch {
	case d == 0:
		return DefaultReservation, nil
	case d < driver.MinReservation || d > driver.MaxReservation || d%time.Second != 0:
		return 0, &Error{
			Code:    CodeInvalid,
			Message: fmt.Sprintf("the duration of the reservation is %v: must be whole seconds, from %v to %v", d, driver.MinReservation, driver.MaxReservation),
		}
	}
	return d, nil
}

// Reservation is the reserved place of a turn in a conversation. Its methods are not safe for concurrent use.
type Reservation struct {
	reserver
	base string
	// hidden are the hidden items of the conversation when the place was reserved.
	hidden []HiddenItem
	// first indicates that nobody else can have saved the turn before the reservation is renewed once more.
	first bool
	// before takes the place of the head if the reservation is given up.
	before Head
	// ended is set by Save and Release.
	ended bool

	// kept ends when the reservation is lost or no longer needed. Its cause is the error that Save returns.
	kept context.Context
	end  context.CancelCauseFunc
	done chan struct{}

	// Until done is closed, only the goroutine uses these.
	head    Head
	renewed time.Time // before the update that has stored head
}

// newReservation returns the reservation of a conversation's head that was made after begin, and keeps it.
func newReservation(ctx context.Context, r *reserver, reserved *Conversation, begin time.Time, first bool, before Head) *Reservation {
	kept, end := context.WithCancelCause(metered.Without(ctx)) // the caller counts until it has the result
	reservation := &Reservation{
		reserver: *r, base: reserved.Head.BaseResponseID, hidden: reserved.HiddenItems, first: first, before: before,
		kept: kept, end: end, done: make(chan struct{}),
		head: reserved.Head, renewed: begin,
	}
	go reservation.keep()
	return reservation
}

// trusted is for how long a process relies on its reservation. The rest is for clocks that run at different speeds.
func (r *Reservation) trusted() time.Duration { return r.head.Reservation.Duration * 3 / 4 }

// isSafe reports whether others cannot have taken over the place yet.
func (r *Reservation) isSafe() bool { return elapsed.Since(r.renewed) < r.trusted() }

// PreviousResponseID returns the turn that the reserved place follows. It is empty if it is the first.
func (r *Reservation) PreviousResponseID() string { return r.base }

// Load returns the history that the turn is to continue, as Conversations.Load does. It does not change while the place is reserved.
func (r *Reservation) Load(ctx context.Context, options ResolveOptions) (*History, error) {
	return conversationCall(r.c, "load", r.conversationID, func(driver.Conversations) (*History, error) {
		return r.c.loadVisible(ctx, Head{ResponseID: r.base}, r.hidden, options)
	})
}

// Context returns a context for the run of the model, which is also done when the reservation is lost: what the model returns could not be
// saved any more. Its cause is then the error that Save would return. Save and Release do not end it. Call cancel when the run has ended.
func (r *Reservation) Context(ctx context.Context) (running context.Context, cancel context.CancelFunc) {
	running, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.kept, func() {
		if cause := context.Cause(r.kept); !errors.Is(cause, errEnded) {
			end(cause)
		}
	})
	return running, func() {
		stop()
		end(nil)
	}
}

// Save saves the turn in its place. It sets the turn's ConversationID and PreviousResponseID, whatever they were, and its Version. The
// statuses that Append rejects are ErrInvalid.
//
// The error is ErrConflict if the reservation was lost, because this process did not renew it for so long that another writer took
// the place, or because the conversation was rolled back or deleted: if the turn is stored, it is not part of the conversation. After ErrInvalid,
// ErrTooLarge and ErrQuotaExceeded, nothing was stored. After any other error, it is unknown whether the turn was stored, until it is appended
// with Append.
func (r *Reservation) Save(ctx context.Context, session *Session) error {
	if session.ResponseID != r.responseID {
		return &Error{
			Code: CodeInvalid, ResponseID: session.ResponseID, ConversationID: r.conversationID,
			Message: fmt.Sprintf("the place is reserved for response %q, not for %q", r.responseID, session.ResponseID),
		}
	}
	r.ended = true
	session.ConversationID, session.PreviousResponseID = r.conversationID, r.base
	saving, stop := context.WithCancelCause(ctx)
	defer context.AfterFunc(r.kept, func() { stop(context.Cause(r.kept)) })()
	saving, repeated := driver.NoteRepeats(saving)
	err := checkAppended(session)
	if err == nil {
		err = r.c.store.Save(saving, session, SaveOptions{})
	}
	lost := context.Cause(r.kept)
	r.stop()
	switch {
	case err == nil && lost == nil && r.isSafe() && r.first && !repeated.Load():
		return nil
	case err == nil:
		return r.confirmSaved(ctx)
	case isFinal(err):
		r.release(ctx)
		return err
	case errors.Is(lost, ErrConflict) && ctx.Err() == nil:
		if err := r.unlessContinued(ctx, lost); err != nil {
			return err
		}
		return r.c.store.Save(ctx, session, SaveOptions{Existing: true}) // another attempt may have stored other content
	case lost != nil && ctx.Err() == nil:
		return lost
	}
	return err
}

// confirmSaved returns an error unless the turn, which is stored, is in the conversation and stays so until it is rolled back. If there was an
// earlier attempt to save it, that may have stored the turn, which was deleted with the conversation before it was stored again.
func (r *Reservation) confirmSaved(ctx context.Context) error {
	err := r.extend(ctx)
	if errors.Is(err, ErrConflict) {
		return r.unlessContinued(ctx, err)
	}
	return err
}

// unlessContinued returns nil if a place was not lost, but others have continued the turn, and otherwise the error.
func (r *Reservation) unlessContinued(ctx context.Context, lost error) error {
	current, err := r.c.get(ctx, r.d, r.conversationID)
	if err == nil && current.State == ConversationDeleting {
		return lost
	}
	if err == nil {
		err = r.mustBePart(ctx, r.base)
	}
	if errors.Is(err, ErrConversationNotFound) || errors.Is(err, errNoPart) {
		return lost
	}
	return err
}

// isFinal reports whether the error of a save means that this turn is not stored and will not be.
func isFinal(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case CodeInvalid, CodeTooLarge, CodeQuotaExceeded, CodeConflict:
		return true
	}
	return false
}

// Release gives up the reservation without saving a turn. It does nothing after Save.
func (r *Reservation) Release(ctx context.Context) {
	if !r.ended {
		r.ended = true
		r.stop()
		r.release(ctx)
	}
}

// release makes room for others at once. If that fails, they wait. A place that another attempt for the same turn may also have is
// not given up.
func (r *Reservation) release(ctx context.Context) {
	if !r.first {
		return
	}
	r.giveUp(ctx, r.head, r.before)
}

// errEnded is the cause with which the renewals end after Save and Release.
var errEnded = errors.New("the reservation is no longer needed")

// stop ends the renewals.
func (r *Reservation) stop() {
	r.end(errEnded)
	<-r.done
}

// keep renews the reservation until it is lost or no longer needed. A renewal is due after half of the duration. Until the process must not
// rely on the reservation any more, one that has failed is repeated.
func (r *Reservation) keep() {
	defer close(r.done)
	for pause := r.head.Reservation.Duration / 2; ; {
		select {
		case <-time.After(pause):
		case <-r.kept.Done():
			return
		}
		ctx, cancel := context.WithDeadline(r.kept, r.renewed.Add(r.trusted()))
		err := r.extend(ctx)
		cancel()
		pause = r.head.Reservation.Duration / 2
		switch {
		case errors.Is(err, ErrConflict):
			r.end(err)
		case err != nil && !r.isSafe():
			r.end(r.expired(err))
		case err != nil:
			pause /= 16
		}
	}
}

// extend renews the reservation. The error is ErrConflict if the place was lost, or the conversation is being deleted with its turns.
func (r *Reservation) extend(ctx context.Context) error {
	for {
		begin := time.Now()
		current, err := r.renew(ctx, r.head)
		if err == nil {
			r.head, r.renewed = current.Head, begin
			if current.State == ConversationDeleting {
				return r.lost()
			}
			return nil
		}
		if errors.Is(err, ErrConflict) {
			// It may have been renewed for another attempt to save the turn, or by an update whose response was lost.
			current, err = r.c.get(ctx, r.d, r.conversationID)
		}
		switch {
		case errors.Is(err, ErrConversationNotFound):
			return r.lost()
		case err != nil:
			return err
		case current.Head.ResponseID != r.responseID || current.Head.BaseResponseID != r.base:
			return r.lost()
		}
		r.head, r.first = current.Head, false
	}
}

// expired returns the error for a reservation that was not renewed in time. Whether another writer has taken the place is unknown.
func (r *Reservation) expired(err error) error {
	return &Error{
		Code: CodeUnreachable, ResponseID: r.responseID, ConversationID: r.conversationID, Retryable: true, Err: err,
		Message: fmt.Sprintf("the reservation of conversation %.100q was not renewed in time", r.conversationID),
	}
}

func (r *Reservation) lost() error {
	return &Error{
		Code: CodeConflict, ResponseID: r.responseID, ConversationID: r.conversationID,
		Message: fmt.Sprintf("response %q lost its place in conversation %.100q, to another turn, a rollback, or because it was deleted",
			r.responseID, r.conversationID),
	}
}
