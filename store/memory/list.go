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

package memory

import (
	"context"
	"slices"

	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

var _ driver.Lister = (*memory)(nil)

// List implements driver.Lister. The result is always current.
func (m *memory) List(ctx context.Context, namespace, conversationID string, options driver.ListOptions) (*driver.TurnList, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if options.History {
		return m.history(ctx, namespace, conversationID, options)
	}
	return local.List(namespace, conversationID, options, func(q sortedlist.Query, limit int) ([]driver.TurnInfo, error) {
		return m.conversations[conversationKey{namespace, conversationID}].find(q, limit), nil
	})
}

// history lists the turns of a conversation's history. The lock must be held.
func (m *memory) history(ctx context.Context, namespace, conversationID string, options driver.ListOptions) (*driver.TurnList, error) {
	stored, err := m.conversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, err
	}
	return local.History(ctx, stored.Conversation, options, func(responseID string) (found []driver.TurnInfo, err error) {
		turns := m.namespaces[namespace]
		for turn := turns[responseID]; turn != nil && len(found) <= driver.MaxDepthLimit; turn = turns[turn.PreviousResponseID] {
			found = append(found, infoOf(turn))
		}
		return found, nil
	})
}

// conversationKey identifies a conversation.
type conversationKey struct{ namespace, id string }

// conversation has the turns of a conversation in their order. Nearly all turns are added at the end. If one is added before it,
// all that follow are moved.
type conversation []*local.Session

func positionOf(turn *local.Session) sortedlist.Position {
	return sortedlist.PositionOf(turn.CreatedAt, turn.ResponseID)
}

// search returns the index of a position, or the one at which a turn with it belongs.
func (c conversation) search(p sortedlist.Position) (int, bool) {
	return slices.BinarySearchFunc(c, p, func(turn *local.Session, p sortedlist.Position) int { return positionOf(turn).Compare(p) })
}

// find returns up to limit turns that follow q.After.
func (c conversation) find(q sortedlist.Query, limit int) []driver.TurnInfo {
	i, found := c.search(q.After)
	var turns []*local.Session
	if q.Descending {
		turns = slices.Clone(c[max(i-limit, 0):i])
		slices.Reverse(turns)
	} else {
		if found {
			i++
		}
		turns = c[i:min(i+limit, len(c))]
	}
	infos := make([]driver.TurnInfo, len(turns))
	for i, turn := range turns {
		infos[i] = infoOf(turn)
	}
	return infos
}

func infoOf(turn *local.Session) driver.TurnInfo {
	return driver.TurnInfo{
		ResponseID: turn.ResponseID, PreviousResponseID: turn.PreviousResponseID, Status: turn.Status,
		CreatedAt: turn.CreatedAt, CompletedAt: turn.CompletedAt, Version: turn.Version,
	}
}

// list adds a turn to its conversation, if it has one.
func (m *memory) list(namespace string, turn *local.Session) {
	key := conversationKey{namespace, turn.ConversationID}
	if key.id == "" {
		return
	}
	c := m.conversations[key]
	i, _ := c.search(positionOf(turn))
	m.conversations[key] = slices.Insert(c, i, turn)
}

// unlist removes a turn, which may be nil, from its conversation.
func (m *memory) unlist(namespace string, turn *local.Session) {
	if turn == nil || turn.ConversationID == "" {
		return
	}
	key := conversationKey{namespace, turn.ConversationID}
	c := m.conversations[key]
	if len(c) == 1 {
		delete(m.conversations, key)
		return
	}
	i, _ := c.search(positionOf(turn))
	m.conversations[key] = slices.Delete(c, i, i+1)
}
