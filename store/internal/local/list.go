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

package local

import (
	"context"
	"slices"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
)

// List returns a page of a list, as driver.Lister.List does. find returns up to limit turns that follow a position, in the order
// of the query.
func List(
	namespace, conversationID string, options driver.ListOptions, find func(q sortedlist.Query, limit int) ([]driver.TurnInfo, error),
) (*driver.TurnList, error) {
	q, err := sortedlist.New(namespace, conversationID, options)
	if err != nil {
		return nil, invalidCursor("", err)
	}
	found, err := find(q, q.Limit+1)
	if err != nil {
		return nil, err
	}
	list := &driver.TurnList{}
	list.Turns, list.Next = sortedlist.Cut(q, found, func(t driver.TurnInfo) sortedlist.Position {
		return sortedlist.PositionOf(t.CreatedAt, t.ResponseID)
	})
	return list, nil
}

// History returns a page of the turns of a conversation's history, as driver.Lister.List does with ListOptions.History. follow returns a turn
// and its ancestors without their bodies, from the turn on as far as they are stored, but not more than driver.MaxDepthLimit and one more.
func History(
	ctx context.Context, c *driver.Conversation, options driver.ListOptions, follow func(responseID string) ([]driver.TurnInfo, error),
) (*driver.TurnList, error) {
	last := c.Head.ResponseID
	found, err := follow(last)
	if c.Head.Reservation != (driver.Reservation{}) && (len(found) == 0 || !c.Head.Holds(found[0].PreviousResponseID)) && err == nil {
		last = c.Head.BaseResponseID
		found, err = follow(last)
	}
	if err != nil {
		return nil, err
	}
	if err := metered.Take(ctx, int64(len(found))*infoBytes); err != nil {
		return nil, err
	}
	walked := 0
	_, err = chain.Walk(ctx, last, func(_ context.Context, id string) (chain.Turn, bool, error) {
		if walked == len(found) {
			return chain.Turn{}, false, nil
		}
		turn := found[walked]
		walked++
		return chain.Turn{ID: id, Previous: turn.PreviousResponseID, Status: turn.Status}, true, nil
	}, chain.WalkOptions{MaxDepth: driver.MaxDepthLimit, IncludeIncomplete: true})
	if err != nil {
		return nil, chainError(err)
	}
	slices.Reverse(found)
	list := &driver.TurnList{Count: len(found), Head: last}
	list.Turns, list.Next, err = history.PageTurns(found, options, func(t driver.TurnInfo) string { return t.ResponseID })
	if err != nil {
		return nil, invalidCursor("", err)
	}
	return list, nil
}

// infoBytes is about the memory of a driver.TurnInfo.
const infoBytes = 256

// ListConversations returns a page of a list, as driver.ConversationLister.ListConversations does. find returns at least the conversations of
// the page and the next one, in any order. Their titles may be longer.
func ListConversations(
	namespace string, options driver.ConversationListOptions, find func(q conversationlist.Query) ([]driver.ConversationInfo, error),
) (*driver.ConversationList, error) {
	q, err := conversationlist.New(namespace, options)
	if err != nil {
		return nil, invalidCursor("", err)
	}
	found, err := find(q)
	if err != nil {
		return nil, err
	}
	position := func(c driver.ConversationInfo) sortedlist.Position {
		return sortedlist.PositionOf(q.TimeOf(c.CreatedAt, c.UpdatedAt, c.LastActivityAt), c.ConversationID)
	}
	found = slices.DeleteFunc(found, func(c driver.ConversationInfo) bool {
		return !q.Selects(c.State, c.UserID) || !q.Follows(position(c))
	})
	list := &driver.ConversationList{}
	list.Conversations, list.Next = conversationlist.Cut(q, found, position)
	for i := range list.Conversations {
		list.Conversations[i].Title = driver.ListedTitle(list.Conversations[i].Title)
	}
	return list, nil
}
