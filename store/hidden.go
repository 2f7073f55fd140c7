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
	"fmt"
	"slices"

	"github.com/catena-dev/catena/store/driver"
)

// HideItem removes an item from the history of a conversation, and returns the conversation. The number of an item is that of Origin. The
// item stays part of its turn, and so of other conversations with the turn, until the turn is deleted. Hiding an item again changes nothing.
// The error is ErrNotFound if the history has no such item, and ErrConversationLimitExceeded if MaxHiddenItems are hidden.
func (c *Conversations) HideItem(ctx context.Context, conversationID, responseID string, number int) (*Conversation, error) {
	return conversationCall(c, "hide_item", conversationID, func(d driver.Conversations) (*Conversation, error) {
		if _, err := c.get(ctx, d, conversationID); err != nil {
			return nil, err
		}
		_, found, err := c.find(ctx, conversationID, responseID)
		if found {
			found, err = c.hasItem(ctx, responseID, number)
		}
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, &Error{
				Code: CodeNotFound, ResponseID: responseID,
				Message: fmt.Sprintf("conversation %.100q has no item %d of response %.100q", conversationID, number, responseID),
			}
		}
		return c.update(ctx, d, conversationID, driver.ConversationUpdate{Hide: &HiddenItem{ResponseID: responseID, Number: number}})
	})
}

// hasItem reports whether a turn has an item with a number.
func (c *Conversations) hasItem(ctx context.Context, responseID string, number int) (bool, error) {
	turn, err := c.store.resolve(ctx, responseID, ResolveOptions{Last: 1, IncludeIncomplete: true, Instructions: InstructionsOmit, Origins: true})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(turn.Origins, func(o Origin) bool { return number >= o.First && number < o.First+o.Count }), nil
}

// hideItems removes items from a history with origins, and its origins unless the options request them. It needs no memory for the items.
func hideItems(h *History, hidden []HiddenItem, options ResolveOptions) error {
	hide, hides := map[HiddenItem]bool{}, map[string]bool{}
	for _, item := range hidden {
		hide[item], hides[item.ResponseID] = true, true
	}
	step := 1
	if options.Order == OrderDescending {
		step = -1
	}
	items := h.Items[:0]
	var origins []Origin
	next := 0
	for _, origin := range h.Origins {
		if next+origin.Count > len(h.Items) {
			return errOrigins
		}
		if !hides[origin.ResponseID] {
			items, origins = append(items, h.Items[next:next+origin.Count]...), append(origins, origin)
			next += origin.Count
			continue
		}
		begins := true // the next item begins an origin
		for i := range origin.Count {
			number := origin.First + i*step
			if hide[HiddenItem{ResponseID: origin.ResponseID, Number: number}] {
				begins = true
				continue
			}
			if begins {
				origins = append(origins, Origin{ResponseID: origin.ResponseID, First: number})
				begins = false
			}
			origins[len(origins)-1].Count++
			items = append(items, h.Items[next+i])
		}
		next += origin.Count
	}
	if next < len(h.Items) {
		return errOrigins
	}
	clear(h.Items[len(items):])
	h.Items, h.Origins = items, nil
	if options.Origins {
		h.Origins = origins
	}
	return nil
}
