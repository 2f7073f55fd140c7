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
	"errors"
	"math"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

var _ driver.ConversationDeleter = (*turns)(nil)

// turnsPerDeletion is the number of turns that one transaction of a deletion looks at.
const turnsPerDeletion = 200

// DeleteConversationTurns implements driver.ConversationDeleter. It leaves the database to other writers after each few turns.
func (s *turns) DeleteConversationTurns(ctx context.Context, namespace, conversationID string) error {
	d := deletion{namespace: namespace, conversationID: conversationID, before: math.MaxInt64}
	for {
		start, next, done := time.Now(), d, false
		err := s.write(ctx, namespace, func(tx *sql.Tx) (err error) {
			next = d
			done, err = next.batch(ctx, tx)
			return err
		})
		if err != nil || done {
			return toError(ctx, err)
		}
		d = next
		select {
		case <-time.After(time.Since(start)): // SQLite has no queue for the writers of other processes
		case <-ctx.Done():
			return toError(ctx, ctx.Err())
		}
	}
}

// deletion is the deletion of a conversation with its turns. It goes through the turns once, the newest first. When it deletes one, it
// continues with the turn before it, which may be needed no longer.
type deletion struct {
	namespace, conversationID string
	// The turn with this time and response ID, and those that are listed after it, have been looked at.
	before   int64
	beforeID string
	// next is the response ID of the turn to look at next. If it is empty, it is the newest one of the others.
	next string
}

// batch deletes a few turns in a transaction and, after the last one, the conversation. It reports whether that was done.
func (d *deletion) batch(ctx context.Context, tx *sql.Tx) (done bool, err error) {
	var state string
	err = tx.QueryRowContext(ctx, selectState, d.namespace, d.conversationID).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) || err == nil && state != driver.ConversationDeleting {
		return true, nil // it was deleted meanwhile, and perhaps created again
	}
	for i := 0; i < turnsPerDeletion && err == nil; i++ {
		if d.next == "" {
			err = tx.QueryRowContext(ctx, selectTurnBefore, d.namespace, d.conversationID, d.before, d.beforeID).Scan(&d.before, &d.beforeID)
			if errors.Is(err, sql.ErrNoRows) {
				return true, removeConversation(ctx, tx, d.namespace, d.conversationID)
			}
			d.next = d.beforeID
			continue
		}
		id := d.next
		d.next = ""
		err = tx.QueryRowContext(ctx, deleteUnneeded, d.namespace, d.conversationID, id).Scan(&d.next)
		if errors.Is(err, sql.ErrNoRows) { // it is needed
			err = nil
		}
	}
	return false, err
}

const (
	selectState = `SELECT state FROM conversations WHERE namespace = ? AND conversation_id = ?`

	selectTurnBefore = `
SELECT listed_at, response_id
FROM turns WHERE namespace = ?1 AND conversation_id = ?2 AND (listed_at, response_id) < (?3, ?4)
ORDER BY listed_at DESC, response_id DESC LIMIT 1`

	// deleteUnneeded deletes a turn of a conversation if neither a turn nor another conversation needs it, and returns the response ID of the
	// turn before it.
	deleteUnneeded = `
DELETE FROM turns WHERE namespace = ?1 AND conversation_id = ?2 AND response_id = ?3
AND NOT EXISTS (SELECT 1 FROM turns AS next WHERE next.namespace = ?1 AND next.previous_response_id = ?3)
AND NOT EXISTS (SELECT 1 FROM conversations AS other WHERE other.namespace = ?1 AND other.head_response_id = ?3 AND other.conversation_id <> ?2)
AND NOT EXISTS (SELECT 1 FROM conversations AS other WHERE other.namespace = ?1 AND other.base_response_id = ?3 AND other.conversation_id <> ?2)
RETURNING coalesce(previous_response_id, '')`
)
