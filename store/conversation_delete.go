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

	"github.com/catena-dev/catena/store/driver"
)

// DeleteConversationOptions are the options of Conversations.Delete.
type DeleteConversationOptions struct {
	// Turns deletes the turns of the conversation, too, except those that something else needs.
	Turns bool
}

// Delete removes a conversation and its summaries. It is not an error if the conversation does not exist.
//
// Its turns stay, unless DeleteConversationOptions.Turns is set. Then those with this Session.ConversationID are deleted, whether they are part
// of the history, were rolled back, or are branches. A turn stays if another turn that stays continues it, or if another conversation
// ends at it: if it is the head there, or the base of a reserved head. So other conversations keep their whole histories.
//
// The state of the conversation becomes ConversationDeleting first, and cannot change after that. No turn can be appended any more, and no
// conversation can begin with one of the turns. If a place is reserved, the deletion waits for its turn, which is deleted with the others.
// Then the turns are deleted, the last ones first, and in the end the conversation.
//
// If the state is ConversationDeleting, Delete goes on with that, whatever its options are. If a deletion with the turns begins while a Delete
// without them removes the conversation, turns may stay.
//
// In a cluster, Delete returns as soon as the state is ConversationDeleting. The operator deletes the rest, and Get returns the conversation
// until it is done. Other stores have deleted everything when Delete returns. After an error or a crash, another Delete continues.
//
// A turn stays if it is stored only after the deletion, because its place was rolled back while it was being saved, or was taken over by another
// writer, or because an attempt to save it takes effect after another one. A turn that is saved with Store.Save within the milliseconds in which
// the turn that it continues is deleted is treated as one that is saved during a Store.Delete: in a cluster, garbage collection may delete it.
func (c *Conversations) Delete(ctx context.Context, conversationID string, options DeleteConversationOptions) error {
	_, err := conversationCall(c, "delete", conversationID, func(d driver.Conversations) (struct{}, error) {
		if options.Turns {
			return struct{}{}, c.deleteWithTurns(ctx, d, conversationID)
		}
		current, err := c.get(ctx, d, conversationID)
		switch {
		case errors.Is(err, ErrConversationNotFound):
			return struct{}{}, nil
		case err != nil:
			return struct{}{}, err
		case current.State == ConversationDeleting:
			return struct{}{}, c.deleteWithTurns(ctx, d, conversationID)
		}
		return driver.Retry(ctx, func() (struct{}, error) {
			return struct{}{}, d.DeleteConversation(ctx, c.store.namespace, conversationID)
		})
	})
	return err
}

func (c *Conversations) deleteWithTurns(ctx context.Context, d driver.Conversations, conversationID string) error {
	err := c.startDeletion(ctx, d, conversationID)
	if deleter, ok := c.store.driver.(driver.ConversationDeleter); ok && err == nil {
		if err = c.awaitTurn(ctx, d, conversationID); err == nil {
			_, err = driver.Retry(ctx, func() (struct{}, error) {
				return struct{}{}, deleter.DeleteConversationTurns(ctx, c.store.namespace, conversationID)
			})
		}
	}
	if errors.Is(err, ErrConversationNotFound) {
		return nil
	}
	return err
}

// startDeletion sets the state to ConversationDeleting.
func (c *Conversations) startDeletion(ctx context.Context, d driver.Conversations, conversationID string) error {
	for {
		current, err := c.get(ctx, d, conversationID)
		if err != nil || current.State == ConversationDeleting {
			return err
		}
		_, err = c.update(ctx, d, conversationID, driver.ConversationUpdate{ExpectedState: current.State, State: ConversationDeleting})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// awaitTurn waits until the turn for which the head of a conversation is reserved is stored, or its reservation is over. Its writer
// does not renew it once it has seen that the conversation is being deleted.
func (c *Conversations) awaitTurn(ctx context.Context, d driver.Conversations, conversationID string) error {
	for pause := firstLook; ; pause = min(2*pause, maxLook) {
		current, err := c.get(ctx, d, conversationID)
		if err != nil {
			return err
		}
		seen := time.Now() // before it is looked up whether the turn is stored, as in reserver.try
		_, pending, err := c.last(ctx, current.Head, c.store.getWithoutBodies)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		case !pending || c.abandoned(conversationID, current.Head, seen):
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return &Error{
				Code: CodeConversationLocked, Retryable: true, Err: ctx.Err(),
				Message: fmt.Sprintf("a turn of conversation %.100q is still being made: delete the conversation again", conversationID),
			}
		}
	}
}

// checkDeletion returns an error that is ErrConflict if a turn, which may be nil, is to be deleted with its conversation.
func (c *Conversations) checkDeletion(ctx context.Context, d driver.Conversations, turn *Session) error {
	if turn == nil || turn.ConversationID == "" {
		return nil
	}
	conversation, err := c.get(ctx, d, turn.ConversationID)
	switch {
	case errors.Is(err, ErrConversationNotFound):
		return nil
	case err == nil && conversation.State == ConversationDeleting:
		return &Error{
			Code: CodeConflict, ResponseID: turn.ResponseID,
			Message: fmt.Sprintf("response %.100q belongs to conversation %.100q, which is being deleted with its turns", turn.ResponseID, turn.ConversationID),
		}
	}
	return err
}

// awaitDeletion waits until a deletion of the conversation of a turn, which may be nil, has ended, if one has begun. If that takes long, the error
// is that of checkDeletion.
func (c *Conversations) awaitDeletion(ctx context.Context, d driver.Conversations, turn *Session) error {
	begin := time.Now()
	for pause := firstLook; ; pause = min(2*pause, releaseTimeout/10) {
		err := c.checkDeletion(ctx, d, turn)
		if !errors.Is(err, ErrConflict) || time.Since(begin) > releaseTimeout {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
