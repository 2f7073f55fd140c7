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

package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

var _ driver.Conversations = (*turns)(nil)

// CreateConversation implements driver.Conversations. When it returns, the conversation is on disk.
func (s *turns) CreateConversation(ctx context.Context, namespace string, conversation *driver.Conversation) (*driver.Conversation, error) {
	c := conversation.Clone()
	c.CreatedAt = time.Now().UTC().Truncate(time.Second)
	err := s.write(ctx, namespace, func(tx *sql.Tx) error {
		created, err := wrote(tx.ExecContext(ctx, insertConversation, conversationValues(namespace, c)...))
		if err == nil && !created {
			err = driver.ConversationExists(c.ConversationID)
		}
		return err
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	return c, nil
}

// GetConversation implements driver.Conversations. The result is always current.
func (s *turns) GetConversation(ctx context.Context, namespace, conversationID string) (*driver.Conversation, error) {
	var c *driver.Conversation
	err := s.read(ctx, namespace, func(tx *sql.Tx) (err error) {
		c, err = getConversation(ctx, tx, namespace, conversationID)
		return err
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	return c, nil
}

// UpdateConversation implements driver.Conversations. When it returns, the change is on disk.
func (s *turns) UpdateConversation(
	ctx context.Context, namespace, conversationID string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	var c *driver.Conversation
	err := s.write(ctx, namespace, func(tx *sql.Tx) (err error) {
		if c, err = getConversation(ctx, tx, namespace, conversationID); err != nil {
			return err
		}
		before := c.Clone()
		if err = update.Apply(c); err != nil || reflect.DeepEqual(before, c.Clone()) { // a change of nothing must not move it to the front of the lists
			return err
		}
		_, err = tx.ExecContext(ctx, replaceConversation, append(conversationValues(namespace, c), time.Now().Unix())...)
		return err
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	return c, nil
}

// DeleteConversation implements driver.Conversations.
func (s *turns) DeleteConversation(ctx context.Context, namespace, conversationID string) error {
	return toError(ctx, s.write(ctx, namespace, func(tx *sql.Tx) error { return removeConversation(ctx, tx, namespace, conversationID) }))
}

// removeConversation deletes a conversation and its summaries.
func removeConversation(ctx context.Context, tx *sql.Tx, namespace, conversationID string) error {
	for _, query := range []string{deleteConversation, deleteSummaries} {
		if _, err := tx.ExecContext(ctx, query, namespace, conversationID); err != nil {
			return err
		}
	}
	return nil
}

// GetWithoutBodies implements driver.Conversations. The result is always current.
func (s *turns) GetWithoutBodies(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	var turn *local.Session
	err := s.read(ctx, namespace, func(tx *sql.Tx) (err error) {
		turn, err = getTurn(ctx, tx, selectWithoutBodies, namespace, responseID)
		return err
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	if turn == nil {
		return nil, driver.NotFound(responseID)
	}
	return turn.Session, nil
}

// SaveSummary implements driver.Conversations. When it returns, the summary is on disk.
func (s *turns) SaveSummary(ctx context.Context, namespace, conversationID string, summary driver.Summary) error {
	err := s.write(ctx, namespace, func(tx *sql.Tx) error {
		if err := checkConversation(ctx, tx, namespace, conversationID); err != nil {
			return err
		}
		values := []any{
			namespace, conversationID, summary.StartTurn, summary.EndTurn, summary.Content, summary.TokenCount, seconds(summary.CreatedAt),
		}
		switch inserted, err := wrote(tx.ExecContext(ctx, insertSummary, values...)); {
		case err != nil:
			return err
		case inserted:
			return summaryAdded(ctx, tx, namespace, conversationID)
		}
		var equal bool
		err := tx.QueryRowContext(ctx, selectHasSummary, values...).Scan(&equal)
		if err == nil && !equal {
			err = driver.SummaryExists(conversationID, summary)
		}
		return err
	})
	return toError(ctx, err)
}

// summaryAdded returns driver.TooManySummaries if a conversation has one too many, and otherwise records that it has changed.
func summaryAdded(ctx context.Context, tx *sql.Tx, namespace, conversationID string) error {
	var count int
	if err := tx.QueryRowContext(ctx, selectSummariesCount, namespace, conversationID).Scan(&count); err != nil {
		return err
	}
	if count > driver.MaxSummaries {
		return driver.TooManySummaries(conversationID)
	}
	_, err := tx.ExecContext(ctx, updateChanged, namespace, conversationID, time.Now().Unix())
	return err
}

// Summaries implements driver.Conversations. The result is always current.
func (s *turns) Summaries(ctx context.Context, namespace, conversationID string) ([]driver.Summary, error) {
	var found []driver.Summary
	err := s.read(ctx, namespace, func(tx *sql.Tx) error {
		if err := checkConversation(ctx, tx, namespace, conversationID); err != nil {
			return err
		}
		if err := countMemory(ctx, tx, selectSummariesSize, namespace, conversationID); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, selectSummaries, namespace, conversationID)
		if err != nil {
			return err
		}
		found, err = summaries(rows)
		return errors.Join(err, rows.Close())
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	return found, nil
}

const (
	// conversationColumns are those that conversationValues and getConversation have.
	conversationColumns = `conversation_id, user_id, title, system_prompt, metadata, state,
  head_response_id, base_response_id, reservation_seconds, reservation_renewals,
  forked_from_conversation_id, forked_from_response_id, parent_conversation_id, hidden_items, created_at`

	// insertConversation has no effect if the conversation ID is taken.
	insertConversation = `INSERT` + intoConversations + `?16, ?16) ON CONFLICT DO NOTHING`
	// replaceConversation has the time of the change as its last argument.
	replaceConversation = `REPLACE` + intoConversations + `?17, (SELECT active_at FROM conversations WHERE namespace = ?1 AND conversation_id = ?2))`
	intoConversations   = ` INTO conversations (namespace, ` + conversationColumns + `, updated_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, `

	selectConversation     = `SELECT ` + conversationColumns + ` FROM conversations WHERE namespace = ? AND conversation_id = ?`
	selectConversationSize = `
SELECT octet_length(title) + octet_length(system_prompt) + coalesce(octet_length(metadata), 0) + coalesce(octet_length(hidden_items), 0)
FROM conversations WHERE namespace = ? AND conversation_id = ?`
	selectHasConversation = `SELECT EXISTS (SELECT 1 FROM conversations WHERE namespace = ? AND conversation_id = ?)`

	deleteConversation = `DELETE FROM conversations WHERE namespace = ? AND conversation_id = ?`
	deleteSummaries    = `DELETE FROM conversation_summaries WHERE namespace = ? AND conversation_id = ?`

	// updateChanged records when a conversation was changed.
	updateChanged = `UPDATE conversations SET updated_at = ?3 WHERE namespace = ?1 AND conversation_id = ?2`

	// insertSummary has no effect if a summary of the same turns is stored. selectHasSummary has the same arguments.
	insertSummary = `
INSERT INTO conversation_summaries (namespace, conversation_id, start_turn, end_turn, content, token_count, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING`
	selectHasSummary = `
SELECT EXISTS (SELECT 1 FROM conversation_summaries WHERE namespace = ?1 AND conversation_id = ?2 AND start_turn = ?3 AND end_turn = ?4
  AND content = ?5 AND token_count = ?6 AND created_at IS ?7)`
	selectSummariesCount = `SELECT count(*) FROM conversation_summaries WHERE namespace = ? AND conversation_id = ?`

	selectSummaries = `
SELECT start_turn, end_turn, content, token_count, created_at
FROM conversation_summaries WHERE namespace = ? AND conversation_id = ? ORDER BY start_turn, end_turn`
	selectSummariesSize = `
SELECT coalesce(sum(octet_length(content)), 0) FROM conversation_summaries WHERE namespace = ? AND conversation_id = ?`
)

// conversationValues returns the namespace and the conversationColumns of a conversation.
func conversationValues(namespace string, c *driver.Conversation) []any {
	return []any{
		namespace, c.ConversationID, c.UserID, c.Title, c.SystemPrompt, nullable(string(c.Metadata)), c.State,
		c.Head.ResponseID, c.Head.BaseResponseID, int64(c.Head.Reservation.Duration / time.Second), c.Head.Reservation.Renewals,
		c.ForkedFrom.ConversationID, c.ForkedFrom.ResponseID, c.ParentConversationID, hiddenItems(c.HiddenItems), seconds(c.CreatedAt),
	}
}

// hiddenItems is the column hidden_items.
type hiddenItems []driver.HiddenItem

// Value implements driver.Valuer of package database/sql.
func (h hiddenItems) Value() (sqldriver.Value, error) {
	if len(h) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(h)
	return string(encoded), err
}

// getConversation returns a conversation, or driver.ConversationNotFound.
func getConversation(ctx context.Context, tx *sql.Tx, namespace, conversationID string) (*driver.Conversation, error) {
	if err := countMemory(ctx, tx, selectConversationSize, namespace, conversationID); err != nil {
		return nil, err
	}
	c := &driver.Conversation{}
	var reserved int64
	var hidden []byte
	var createdAt sql.NullInt64
	err := tx.QueryRowContext(ctx, selectConversation, namespace, conversationID).Scan(
		&c.ConversationID, &c.UserID, &c.Title, &c.SystemPrompt, (*[]byte)(&c.Metadata), &c.State,
		&c.Head.ResponseID, &c.Head.BaseResponseID, &reserved, &c.Head.Reservation.Renewals,
		&c.ForkedFrom.ConversationID, &c.ForkedFrom.ResponseID, &c.ParentConversationID, &hidden, &createdAt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, driver.ConversationNotFound(conversationID)
	}
	if err == nil && hidden != nil {
		err = json.Unmarshal(hidden, &c.HiddenItems)
	}
	c.Head.Reservation.Duration, c.CreatedAt = time.Duration(reserved)*time.Second, fromSeconds(createdAt)
	return c, err
}

// checkConversation returns driver.ConversationNotFound if a conversation does not exist.
func checkConversation(ctx context.Context, tx *sql.Tx, namespace, conversationID string) error {
	var found bool
	err := tx.QueryRowContext(ctx, selectHasConversation, namespace, conversationID).Scan(&found)
	if err == nil && !found {
		err = driver.ConversationNotFound(conversationID)
	}
	return err
}

// summaries reads the rows of selectSummaries.
func summaries(rows *sql.Rows) ([]driver.Summary, error) {
	var all []driver.Summary
	for rows.Next() {
		var s driver.Summary
		var createdAt sql.NullInt64
		if err := rows.Scan(&s.StartTurn, &s.EndTurn, &s.Content, &s.TokenCount, &createdAt); err != nil {
			return nil, err
		}
		s.CreatedAt = fromSeconds(createdAt)
		all = append(all, s)
	}
	return all, rows.Err()
}
