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

	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
)

// Load returns the history of a conversation, or a page of it, in either order, as Store.Resolve does for its head. Without turns, the history
// is empty. It contains neither hidden items, except in Sessions and Digests, nor a turn for which a place is reserved. The error is ErrNotFound
// if a fork or a rollback set the head, and its turn was deleted. After an appended turn that was deleted, the history is that of the base. It is
// ErrDepthExceeded if the history has more turns than ResolveOptions.MaxDepth, by default DefaultMaxDepth or, in a cluster, the operator's
// --max-depth.
//
// A page can have fewer items than the limit. Turns that are appended between two pages neither repeat nor hide items, unless the options have
// InstructionsLast: then the cursor becomes invalid. It also does if its turn is rolled back.
func (c *Conversations) Load(ctx context.Context, conversationID string, options ResolveOptions) (*History, error) {
	return conversationCall(c, "load", conversationID, func(d driver.Conversations) (*History, error) {
		return c.loadByID(ctx, d, conversationID, options)
	})
}

// Recent returns the history of the last turns of a conversation: all that it has if these are fewer than requested, and none for 0. It is Load
// with ResolveOptions.Last: what is before these turns is not read. A negative number is ErrInvalid.
func (c *Conversations) Recent(ctx context.Context, conversationID string, turns int, options ResolveOptions) (*History, error) {
	return conversationCall(c, "load_recent", conversationID, func(d driver.Conversations) (*History, error) {
		if turns < 0 {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the number of turns is %d: must not be negative", turns)}
		}
		options.Last = min(turns, MaxDepthLimit) // no history has more
		if turns > 0 {
			return c.loadByID(ctx, d, conversationID, options)
		}
		if _, err := c.get(ctx, d, conversationID); err != nil {
			return nil, err
		}
		return c.store.resolve(ctx, "", options)
	})
}

// Turns returns a page of the turns of a conversation's history, without their bodies, which Get returns. The oldest turn is first, or the newest
// with OrderDescending. Turns are part of the history whatever their status is; those that were rolled back are not: see Store.List. To read all pages,
// pass each TurnList.Next as ListOptions.After until it is empty. Turns that are appended meanwhile neither repeat nor hide others. The errors are those of
// Load, except that bodies need not be readable. A turn that was overwritten a moment ago may be listed as it was, unless ListOptions.Version is set.
func (c *Conversations) Turns(ctx context.Context, conversationID string, options ListOptions) (*TurnList, error) {
	return conversationCall(c, "list_turns", conversationID, func(driver.Conversations) (*TurnList, error) {
		options.History = true
		return c.store.list(ctx, conversationID, options)
	})
}

// Count returns the number of turns of a conversation's history. It reads no bodies, and takes one request in a cluster. The errors are those of
// Turns.
func (c *Conversations) Count(ctx context.Context, conversationID string) (int, error) {
	return conversationCall(c, "count_turns", conversationID, func(driver.Conversations) (int, error) {
		list, err := c.store.list(ctx, conversationID, ListOptions{History: true, Limit: 1, Order: OrderDescending})
		if err != nil {
			return 0, err
		}
		return list.Count, nil
	})
}

func (c *Conversations) loadByID(ctx context.Context, d driver.Conversations, conversationID string, options ResolveOptions) (*History, error) {
	conversation, err := c.get(ctx, d, conversationID)
	if err != nil {
		return nil, err
	}
	return c.loadVisible(ctx, conversation.Head, conversation.HiddenItems, options)
}

// loadVisible is load without hidden items.
func (c *Conversations) loadVisible(ctx context.Context, head Head, hidden []HiddenItem, options ResolveOptions) (*History, error) {
	applied := options
	applied.Origins = options.Origins || len(hidden) > 0
	loaded, err := c.load(ctx, head, applied)
	if err != nil {
		return nil, err
	}
	if loaded.Next != "" {
		loaded.Next = history.Unbound(loaded.Next, options)
	}
	if len(hidden) == 0 {
		return loaded, nil
	}
	const itemBytes = 24
	return loaded, metered.Process(ctx, itemBytes*len(loaded.Items), func() error { return hideItems(loaded, hidden, options) })
}

// load returns the history that ends at a head, or at its base if the head's turn is not stored in its place.
func (c *Conversations) load(ctx context.Context, head Head, options ResolveOptions) (*History, error) {
	history, err := c.store.resolve(ctx, head.ResponseID, options)
	if err == nil && !head.Holds(lastParent(history)) ||
		err != nil && head.Reservation != (driver.Reservation{}) && c.isOutOfPlace(ctx, head, err) {
		return c.store.resolve(ctx, head.BaseResponseID, options)
	}
	return history, err
}

// isOutOfPlace reports whether the turn for which a head is reserved was not stored in its place when its history could not be resolved.
func (c *Conversations) isOutOfPlace(ctx context.Context, head Head, resolveErr error) bool {
	e, ok := errors.AsType[*Error](resolveErr)
	if !ok || e.Retryable {
		return false
	}
	if errors.Is(e, ErrNotFound) && e.ResponseID == head.ResponseID {
		return true // it may be stored now
	}
	_, pending, _ := c.last(ctx, head, c.store.getWithoutBodies) // whether the base can be read, its resolve says
	return pending
}

// lastParent returns the parent of the last turn of a history.
func lastParent(h *History) string {
	if len(h.Turns) < 2 {
		return h.PreviousResponseID
	}
	return h.Turns[len(h.Turns)-2]
}
