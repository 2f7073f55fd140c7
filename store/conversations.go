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
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/store/driver"
)

// Conversations stores conversations: names for chains of turns. A conversation's history is the chain that ends at its head. It is
// bound to the namespace of its Store, as are the conversations. All methods are safe for concurrent use, and return an *Error as those of
// Store do. The error is ErrConversationNotFound if the conversation does not exist, and ErrUnsupported if the kind of store has none.
//
// There are two kinds of changes. Append, Reserve and Rollback move the head, and change nothing else. Patch, Archive, Unarchive,
// HideItem and SaveSummary change what describes the conversation, and infer nothing from its turns.
//
// # How the head moves
//
// A turn's parent cannot change, so its place is decided before it is saved. A writer first reserves the end of the
// history: one update replaces the head by the ID of the new turn, records the previous head as its base, and fails if another writer was
// faster. Then it saves the turn, with the base as its parent. This ends the reservation. As long as the turn is not stored,
// the history is that of the base.
//
// The order of the turns is that of the reservations. A Rollback between the two steps comes after the append.
//
// A writer that dies between the two steps leaves a reservation. Another writer takes the place over, with the same base, once it has seen the
// reservation unchanged for the whole of its duration. No clocks are compared. A writer renews its reservation while it is
// saving. If it was too slow, or the turn was saved more than once, it renews it after the turn was stored, too: only if that succeeds, or others
// have continued the turn, it is in the conversation.
type Conversations struct{ store *Store }

// Conversations returns the conversations of the store's namespace.
func (s *Store) Conversations() *Conversations { return &Conversations{store: s} }

// Create stores a new conversation and returns it. It is ConversationActive if no State is set. It can begin with stored turns: set
// Head.ResponseID to the last one. The error is ErrConflict if the conversation ID is taken, or if that turn is about to be deleted with its
// conversation. If such a deletion has begun at the same time, Create waits for it, up to two seconds. After a retryable error, it is unknown
// whether the conversation was created.
func (c *Conversations) Create(ctx context.Context, conversation *Conversation) (*Conversation, error) {
	return conversationCall(c, "create", conversation.ConversationID, func(d driver.Conversations) (*Conversation, error) {
		next := conversation.Clone()
		if next.State == "" {
			next.State = ConversationActive
		}
		if string(next.Metadata) == "null" {
			next.Metadata = nil
		}
		if err := validateNew(next); err != nil {
			return nil, err
		}
		return c.create(ctx, d, next)
	})
}

func validateNew(c *Conversation) error {
	if err := c.Validate(); err != nil {
		return err
	}
	switch {
	case c.State != ConversationActive && c.State != ConversationArchived:
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the state of a new conversation is %.100q: must be Active or Archived", c.State)}
	case len(c.HiddenItems) > MaxHiddenItems:
		return driver.TooManyHidden(c.ConversationID)
	case c.Head != Head{ResponseID: c.Head.ResponseID}:
		return &Error{Code: CodeInvalid, Message: "the head of a new conversation has a base or a reservation: use Append or Reserve"}
	}
	return nil
}

// create stores a conversation. Its head must be stored, and not be about to be deleted with its conversation, before and after. After
// that, the deletion of the head's conversation begins, if at all, when this one can be seen to need the head. If it has begun in between, it
// may have seen that or not: what it leaves decides, because nothing else would delete it. The order of the last two checks matters: a
// conversation that does not exist any more deletes no turn after that.
func (c *Conversations) create(ctx context.Context, d driver.Conversations, next *Conversation) (*Conversation, error) {
	next.Version = ""
	head, err := c.head(ctx, next)
	if err == nil {
		err = c.checkDeletion(ctx, d, head)
	}
	if err != nil {
		return nil, err
	}
	created, err := driver.Retry(ctx, func() (*Conversation, error) { return d.CreateConversation(ctx, c.store.namespace, next) })
	if err != nil {
		return nil, err
	}
	if err = c.awaitDeletion(ctx, d, head); err == nil {
		_, err = c.head(ctx, next)
	}
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) { // otherwise, whether the head is stored is not known
		c.undo(ctx, d, created)
	}
	if err != nil {
		return nil, err
	}
	return created, nil
}

// undo deletes a new conversation, unless others use it already. If that fails, it stays, and its history may not resolve.
func (c *Conversations) undo(ctx context.Context, d driver.Conversations, created *Conversation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	current, err := c.get(ctx, d, created.ConversationID)
	if err == nil && current.Head == created.Head && current.CreatedAt.Equal(created.CreatedAt) {
		_ = d.DeleteConversation(ctx, c.store.namespace, created.ConversationID)
	}
}

// head returns the turn at which a conversation without a reservation ends, or nil if it has no turns.
func (c *Conversations) head(ctx context.Context, conversation *Conversation) (*Session, error) {
	if conversation.Head.ResponseID == "" {
		return nil, nil
	}
	return c.store.getWithoutBodies(ctx, conversation.Head.ResponseID)
}

// Get returns a conversation.
func (c *Conversations) Get(ctx context.Context, conversationID string) (*Conversation, error) {
	return conversationCall(c, "get", conversationID, func(d driver.Conversations) (*Conversation, error) {
		return c.get(ctx, d, conversationID)
	})
}

func (c *Conversations) get(ctx context.Context, d driver.Conversations, conversationID string) (*Conversation, error) {
	return driver.Retry(ctx, func() (*Conversation, error) { return d.GetConversation(ctx, c.store.namespace, conversationID) })
}

// Patch changes what describes a conversation, and returns it. What the patch does not have stays unchanged, and what is empty is
// cleared. The result is the same whether or not turns are appended at the same time. An archived conversation can be patched.
func (c *Conversations) Patch(ctx context.Context, conversationID string, patch ConversationPatch) (*Conversation, error) {
	return conversationCall(c, "patch", conversationID, func(d driver.Conversations) (*Conversation, error) {
		if patch.Metadata != nil && len(patch.Metadata) == 0 { // a driver gets null for it
			patch.Metadata = json.RawMessage("null")
		}
		if err := patch.ValidateFor(conversationID); err != nil {
			return nil, err
		}
		return c.update(ctx, d, conversationID, driver.ConversationUpdate{ConversationPatch: patch})
	})
}

// update changes a conversation. If it expects something, an attempt whose response was lost can make it a conflict with itself.
func (c *Conversations) update(
	ctx context.Context, d driver.Conversations, conversationID string, update driver.ConversationUpdate,
) (*Conversation, error) {
	return driver.Retry(ctx, func() (*Conversation, error) {
		return d.UpdateConversation(ctx, c.store.namespace, conversationID, update)
	})
}

// Archive makes a conversation one that cannot be continued or rolled back. A turn for which a place was reserved before is still saved.
// Archiving an archived conversation changes nothing.
func (c *Conversations) Archive(ctx context.Context, conversationID string) (*Conversation, error) {
	return c.setState(ctx, "archive", conversationID, ConversationActive, ConversationArchived)
}

// Unarchive makes an archived conversation active again. It changes nothing if it is active.
func (c *Conversations) Unarchive(ctx context.Context, conversationID string) (*Conversation, error) {
	return c.setState(ctx, "unarchive", conversationID, ConversationArchived, ConversationActive)
}

func (c *Conversations) setState(ctx context.Context, operation, conversationID, from, to string) (*Conversation, error) {
	return conversationCall(c, operation, conversationID, func(d driver.Conversations) (*Conversation, error) {
		updated, err := c.update(ctx, d, conversationID, driver.ConversationUpdate{ExpectedState: from, State: to})
		if !errors.Is(err, ErrConflict) {
			return updated, err
		}
		current, err := c.get(ctx, d, conversationID)
		if err == nil && current.State != to {
			err = &Error{Code: CodeConflict, Message: fmt.Sprintf("conversation %.100q is in the state %q", conversationID, current.State)}
		}
		return current, err
	})
}

// Rollback ends the history of a conversation at an earlier turn, and returns the conversation. The empty ID clears the history. No turn is
// deleted: those after the turn can be reached by their response IDs. The error is ErrInvalid if the turn is not part of the history, and
// ErrConflict if it belongs to a conversation that is being deleted with its turns, from which this one was forked. If that has begun at the same
// time, Rollback waits for it, up to two seconds. Then the history may end at the turn in spite of the error.
func (c *Conversations) Rollback(ctx context.Context, conversationID, responseID string) (*Conversation, error) {
	return c.rollback(ctx, conversationID, responseID, func(Head) bool { return true })
}

// RollbackFrom is Rollback as long as the history ends with the turn last, or with one that was appended to that. Otherwise, it changes nothing.
func (c *Conversations) RollbackFrom(ctx context.Context, conversationID, last, responseID string) (*Conversation, error) {
	return c.rollback(ctx, conversationID, responseID, func(head Head) bool { return head.ResponseID == last || head.BaseResponseID == last })
}

// rollback is Rollback as long as the head is such that it may be replaced.
func (c *Conversations) rollback(
	ctx context.Context, conversationID, responseID string, mayReplace func(Head) bool,
) (*Conversation, error) {
	return conversationCall(c, "rollback", conversationID, func(d driver.Conversations) (*Conversation, error) {
		if _, err := c.getActive(ctx, d, conversationID); err != nil {
			return nil, err
		}
		turn, err := c.turnOfAnother(ctx, conversationID, responseID)
		if err == nil {
			err = c.checkDeletion(ctx, d, turn)
		}
		if err != nil {
			return nil, err
		}
		for {
			last, err := c.mustFind(ctx, conversationID, responseID)
			if err != nil {
				return nil, err
			}
			current, err := c.getActive(ctx, d, conversationID)
			if err != nil {
				return nil, err
			}
			head := current.Head
			if !mayReplace(head) {
				return current, nil
			}
			if responseID != "" && last != head.ResponseID && last != head.BaseResponseID {
				continue // the conversation was changed so much meanwhile that its history may not have the turn any more
			}
			updated, err := c.update(ctx, d, conversationID, driver.ConversationUpdate{
				ExpectedState: current.State, ExpectedHead: &head, Head: &Head{ResponseID: responseID},
			})
			switch {
			case errors.Is(err, ErrConflict):
				continue
			case err != nil:
				return nil, err
			}
			// A deletion that has begun meanwhile may not see yet that this conversation ends at the turn. It keeps the turn as long as another
			// one continues it, which the caller may delete next. To go back to that would not be safe: it may be deleted already.
			if err := c.awaitDeletion(ctx, d, turn); err != nil {
				return nil, err
			}
			return updated, nil
		}
	})
}

// turnOfAnother returns a turn of another conversation, which a history has if the conversation was forked from that one, or nil. No other turn
// is deleted with another conversation.
func (c *Conversations) turnOfAnother(ctx context.Context, conversationID, responseID string) (*Session, error) {
	if responseID == "" || utf8.RuneCountInString(responseID) > MaxIDLength {
		return nil, nil
	}
	turn, err := c.store.getWithoutBodies(ctx, responseID)
	switch {
	case errors.Is(err, ErrNotFound): // mustFind says that it is not part of the history
		return nil, nil
	case err != nil || turn.ConversationID == conversationID:
		return nil, err
	}
	return turn, nil
}

// getActive returns a conversation that can be continued.
func (c *Conversations) getActive(ctx context.Context, d driver.Conversations, conversationID string) (*Conversation, error) {
	current, err := c.get(ctx, d, conversationID)
	switch {
	case err != nil:
		return nil, err
	case current.State == ConversationArchived:
		return nil, &Error{
			Code: CodeConversationArchived, Message: fmt.Sprintf("conversation %.100q is archived: unarchive it to continue it", conversationID),
		}
	case current.State != ConversationActive:
		return nil, beingDeleted(conversationID)
	}
	return current, nil
}

func beingDeleted(conversationID string) *Error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf("conversation %.100q is being deleted", conversationID)}
}

// mustFind returns the last turn of a conversation's history, or an error that is ErrInvalid if a turn is not part of that. The empty ID is
// where each history begins.
func (c *Conversations) mustFind(ctx context.Context, conversationID, responseID string) (last string, err error) {
	if responseID == "" {
		return "", nil
	}
	last, found, err := c.find(ctx, conversationID, responseID)
	if err == nil && !found {
		err = &Error{
			Code: CodeInvalid, ResponseID: responseID,
			Message: fmt.Sprintf("response %.100q is not part of conversation %.100q", responseID, conversationID),
		}
	}
	return last, err
}

// find reports whether a turn is part of a conversation's history, whatever the status of its turns is, and returns the last turn of that if
// it is. It takes one request in a cluster, whose answer does not grow with the history. The conversation must exist.
func (c *Conversations) find(ctx context.Context, conversationID, responseID string) (last string, found bool, err error) {
	if utf8.RuneCountInString(responseID) > MaxIDLength { // it would be a part of a URL
		return "", false, nil
	}
	list, err := c.store.list(ctx, conversationID, ListOptions{History: true, Limit: 1, After: history.FollowingTurns(responseID)})
	if errors.Is(err, ErrInvalid) { // a cursor is valid if its turn is part of the history
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if list.Head == "" {
		return "", false, &Error{Code: CodeUnsupported, Message: "the operator does not return the end of a history: upgrade it to the version of this program"}
	}
	return list.Head, true, nil
}

// Fork creates a conversation that begins with the history of another one, up to a turn of it, and returns the new conversation. It
// copies no turn. In a cluster, its cost does not depend on the length of the history; other stores search the history for an earlier turn.
// The new conversation is active, and has the user, the title, the system prompt, the metadata and all hidden items of the other one, but
// neither its summaries nor its parent: no agent has started it for a part of its work. If its ID is taken, the error is ErrConflict.
func (c *Conversations) Fork(ctx context.Context, conversationID, newID string, options ForkOptions) (*Conversation, error) {
	return conversationCall(c, "fork", conversationID, func(d driver.Conversations) (*Conversation, error) {
		if newID == "" {
			return nil, &Error{Code: CodeInvalid, Message: "the ID of the new conversation must not be empty"}
		}
		source, err := c.get(ctx, d, conversationID)
		if err != nil {
			return nil, err
		}
		at, err := c.forkAt(ctx, d, source, options)
		if err != nil {
			return nil, err
		}
		fork := source.Clone()
		fork.ConversationID, fork.State, fork.Head = newID, ConversationActive, Head{ResponseID: at}
		fork.ForkedFrom, fork.ParentConversationID = Fork{ConversationID: conversationID, ResponseID: at}, ""
		if err := validateNew(fork); err != nil {
			return nil, err
		}
		return c.create(ctx, d, fork)
	})
}

// forkAt returns the turn at which a conversation is forked.
func (c *Conversations) forkAt(ctx context.Context, d driver.Conversations, source *Conversation, options ForkOptions) (string, error) {
	if options.ResponseID != "" {
		_, err := c.mustFind(ctx, source.ConversationID, options.ResponseID)
		return options.ResponseID, err
	}
	last, pending, err := c.last(ctx, source.Head, c.store.getWithoutBodies)
	if err == nil && pending { // or its turn was stored, and has been deleted with the conversation
		current, err := c.get(ctx, d, source.ConversationID)
		switch {
		case err != nil:
			return "", err
		case current.State == ConversationDeleting:
			return "", beingDeleted(source.ConversationID)
		}
	}
	return idOf(last), err
}

// ForkOptions are the options of Conversations.Fork.
type ForkOptions struct {
	// ResponseID is the last turn of the new conversation's history. It must be part of the history of the other conversation. If it is
	// empty, the new conversation has the whole history.
	ResponseID string
}

// SaveSummary stores a summary of turns of a conversation. The summaries of a conversation may overlap. They name turns by number only: the
// history need not have that many turns, and a summary stays when its turns are rolled back and others take their numbers. A Fork begins
// without summaries. Saving the same summary twice stores it once; another one of the same turns is ErrConflict, and one more than
// MaxSummaries is ErrConversationLimitExceeded.
func (c *Conversations) SaveSummary(ctx context.Context, conversationID string, summary Summary) error {
	summary.CreatedAt = summary.CreatedAt.UTC().Truncate(time.Second)
	_, err := conversationCall(c, "save_summary", conversationID, func(d driver.Conversations) (struct{}, error) {
		if err := summary.ValidateFor(conversationID); err != nil {
			return struct{}{}, err
		}
		return driver.Retry(ctx, func() (struct{}, error) {
			return struct{}{}, d.SaveSummary(ctx, c.store.namespace, conversationID, summary)
		})
	})
	return err
}

// Summaries returns the summaries of a conversation, sorted by their first turns and then by their last turns. It reads nothing else but
// the conversation.
func (c *Conversations) Summaries(ctx context.Context, conversationID string) ([]Summary, error) {
	return conversationCall(c, "summaries", conversationID, func(d driver.Conversations) ([]Summary, error) {
		return driver.Retry(ctx, func() ([]Summary, error) { return d.Summaries(ctx, c.store.namespace, conversationID) })
	})
}

// turn returns a stored turn.
func (c *Conversations) turn(ctx context.Context, responseID string) (*Session, error) {
	return driver.Retry(ctx, func() (*Session, error) { return c.store.driver.Get(ctx, c.store.namespace, responseID) })
}

// conversationCall runs an operation on a conversation, records its result, and completes its error.
func conversationCall[T any](
	c *Conversations, operation, conversationID string, do func(d driver.Conversations) (T, error),
) (T, error) {
	result, err := observe(c.store, operation+"_conversation", func() (result T, err error) {
		if conversationID == "" {
			return result, &Error{Code: CodeInvalid, Message: "the conversation ID must not be empty"}
		}
		d, err := driver.Optional[driver.Conversations](c.store.driver, "store conversations")
		if err != nil {
			return result, err
		}
		return do(d)
	})
	err = complete(err, fmt.Sprintf("unable to %s conversation %.100q", operation, conversationID), "")
	if e, ok := err.(*Error); ok && e.ConversationID == "" { //nolint:errorlint // what wraps an *Error is not one
		completed := *e
		completed.ConversationID = conversationID
		err = &completed
	}
	return result, err
}
