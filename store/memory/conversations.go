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
	"cmp"
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

var (
	_ driver.Conversations       = (*memory)(nil)
	_ driver.ConversationDeleter = (*memory)(nil)
)

// storedConversation is a conversation with its summaries, which are sorted.
type storedConversation struct {
	*driver.Conversation
	updatedAt time.Time
	// activeAt is when a turn was last stored that was not that of the Head, or when the conversation was created.
	activeAt  time.Time
	summaries []driver.Summary
}

// CreateConversation implements driver.Conversations.
func (m *memory) CreateConversation(ctx context.Context, namespace string, c *driver.Conversation) (*driver.Conversation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := conversationKey{namespace, c.ConversationID}
	if _, found := m.stored[key]; found {
		return nil, driver.ConversationExists(c.ConversationID)
	}
	stored := c.Clone()
	stored.CreatedAt = now()
	m.stored[key] = &storedConversation{Conversation: stored, updatedAt: stored.CreatedAt, activeAt: stored.CreatedAt}
	return stored.Clone(), nil
}

// GetConversation implements driver.Conversations.
func (m *memory) GetConversation(ctx context.Context, namespace, conversationID string) (*driver.Conversation, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	stored, err := m.conversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, err
	}
	return stored.Clone(), nil
}

// UpdateConversation implements driver.Conversations.
func (m *memory) UpdateConversation(
	ctx context.Context, namespace, conversationID string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, err := m.conversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, err
	}
	active, before := m.activity(namespace, stored), stored.Clone()
	if err := update.Apply(stored.Conversation); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(before, stored.Clone()) { // a change of nothing must not move it to the front of the lists
		stored.updatedAt, stored.activeAt = now(), active
	}
	return stored.Clone(), nil
}

// DeleteConversation implements driver.Conversations.
func (m *memory) DeleteConversation(ctx context.Context, namespace, conversationID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	delete(m.stored, conversationKey{namespace, conversationID})
	return nil
}

// DeleteConversationTurns implements driver.ConversationDeleter. It takes effect at once.
func (m *memory) DeleteConversationTurns(ctx context.Context, namespace, conversationID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := conversationKey{namespace, conversationID}
	if stored, found := m.stored[key]; !found || stored.State != driver.ConversationDeleting {
		return nil
	}
	turns, needed := m.namespaces[namespace], m.neededBy(namespace, conversationID)
	for _, listed := range slices.Backward(slices.Clone(m.conversations[key])) {
		// A turn may be needed only by those after it, which may be listed before it.
		for turn := turns[listed.ResponseID]; turn != nil && turn.ConversationID == conversationID && needed[turn.ResponseID] == 0; {
			m.unlist(namespace, turn)
			delete(turns, turn.ResponseID)
			needed[turn.PreviousResponseID]--
			turn = turns[turn.PreviousResponseID]
		}
	}
	delete(m.stored, key)
	return nil
}

// neededBy returns how many turns and other conversations need each turn, so that it must not be deleted with its conversation.
func (m *memory) neededBy(namespace, conversationID string) map[string]int {
	needed := map[string]int{}
	for _, turn := range m.namespaces[namespace] {
		needed[turn.PreviousResponseID]++
	}
	for key, c := range m.stored {
		if key.namespace == namespace && key.id != conversationID {
			needed[c.Head.ResponseID]++
			needed[c.Head.BaseResponseID]++
		}
	}
	return needed
}

// GetWithoutBodies implements driver.Conversations.
func (m *memory) GetWithoutBodies(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	turn, found := m.namespaces[namespace][responseID]
	if !found {
		return nil, driver.NotFound(responseID)
	}
	session := *turn.Session
	session.Request, session.Response, session.Metadata = nil, nil, nil
	return &session, nil
}

// SaveSummary implements driver.Conversations.
func (m *memory) SaveSummary(ctx context.Context, namespace, conversationID string, summary driver.Summary) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, err := m.conversation(ctx, namespace, conversationID)
	if err != nil {
		return err
	}
	i, found := slices.BinarySearchFunc(stored.summaries, summary, compareSummaries)
	switch {
	case found && stored.summaries[i] != summary:
		return driver.SummaryExists(conversationID, summary)
	case !found && len(stored.summaries) >= driver.MaxSummaries:
		return driver.TooManySummaries(conversationID)
	case !found:
		stored.summaries = slices.Insert(stored.summaries, i, summary)
		stored.updatedAt = now()
	}
	return nil
}

// Summaries implements driver.Conversations.
func (m *memory) Summaries(ctx context.Context, namespace, conversationID string) ([]driver.Summary, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	stored, err := m.conversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, err
	}
	return slices.Clone(stored.summaries), nil
}

// conversation returns a stored conversation. The lock must be held.
func (m *memory) conversation(ctx context.Context, namespace, conversationID string) (*storedConversation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stored, found := m.stored[conversationKey{namespace, conversationID}]
	if !found {
		return nil, driver.ConversationNotFound(conversationID)
	}
	return stored, nil
}

// now returns the time to the second.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

func compareSummaries(a, b driver.Summary) int {
	return cmp.Or(cmp.Compare(a.StartTurn, b.StartTurn), cmp.Compare(a.EndTurn, b.EndTurn))
}
