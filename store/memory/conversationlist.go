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
	"time"

	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

var _ driver.ConversationLister = (*memory)(nil)

// ListConversations implements driver.ConversationLister. The result is always current. A page visits all conversations.
func (m *memory) ListConversations(
	ctx context.Context, namespace string, options driver.ConversationListOptions,
) (*driver.ConversationList, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return local.ListConversations(namespace, options, func(conversationlist.Query) ([]driver.ConversationInfo, error) {
		if parent := options.ParentConversationID; parent != "" {
			return m.below(namespace, parent, options.Descendants)
		}
		return m.infos(namespace), nil
	})
}

// below returns the children of a conversation, or all conversations below it.
func (m *memory) below(namespace, parent string, descendants bool) ([]driver.ConversationInfo, error) {
	children := map[string][]driver.ConversationInfo{}
	for _, info := range m.infos(namespace) {
		children[info.ParentConversationID] = append(children[info.ParentConversationID], info)
	}
	if !descendants {
		return children[parent], nil
	}
	search := conversationlist.NewSearch(parent,
		func(id string, _ int) []driver.ConversationInfo { return children[id] },
		func(info driver.ConversationInfo) string { return info.ConversationID })
	_, err := search.Step(driver.MaxDescendants + 1) // with the parent
	return search.Found(), err
}

// infos returns the conversations of a namespace.
func (m *memory) infos(namespace string) (infos []driver.ConversationInfo) {
	for key, c := range m.stored {
		if key.namespace == namespace {
			infos = append(infos, driver.ConversationInfo{
				ConversationID: c.ConversationID, UserID: c.UserID, Title: c.Title, State: c.State,
				ParentConversationID: c.ParentConversationID, HeadResponseID: c.Head.ResponseID,
				CreatedAt: c.CreatedAt, UpdatedAt: c.updatedAt, LastActivityAt: m.activity(namespace, c),
			})
		}
	}
	return infos
}

// activity returns when a turn of a conversation was last stored, or when it was created. The lock must be held.
func (m *memory) activity(namespace string, c *storedConversation) time.Time {
	turn := m.namespaces[namespace][c.Head.ResponseID]
	if turn == nil || !c.Head.Holds(turn.PreviousResponseID) || turn.StoredAt.Before(c.activeAt) {
		return c.activeAt
	}
	return turn.StoredAt
}
