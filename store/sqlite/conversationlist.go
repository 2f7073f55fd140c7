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

	"github.com/catena-dev/catena/internal/conversationlist"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

var _ driver.ConversationLister = (*turns)(nil)

// ListConversations implements driver.ConversationLister. The result is always current.
func (s *turns) ListConversations(
	ctx context.Context, namespace string, options driver.ConversationListOptions,
) (*driver.ConversationList, error) {
	list, err := local.ListConversations(namespace, options, func(q conversationlist.Query) (found []driver.ConversationInfo, err error) {
		err = s.read(ctx, namespace, func(tx *sql.Tx) error {
			if options.Descendants {
				found, err = descendants(ctx, tx, namespace, options.ParentConversationID)
				return err
			}
			found, err = listed(ctx, tx, namespace, q)
			return err
		})
		return found, err
	})
	return list, toError(ctx, err)
}

const (
	// infoColumns are those that conversationInfos reads.
	infoColumns = `conversation_id, user_id, title, state, parent_conversation_id, head_response_id, created_at, updated_at, active_at`

	// selectDescendants selects the conversations below a parent. UNION drops duplicate rows, which ends a cycle. Without INDEXED BY, SQLite
	// would search all conversations for the children of each.
	selectDescendants = `
WITH RECURSIVE below (id) AS (
  SELECT ?2
  UNION
  SELECT conversations.conversation_id FROM below CROSS JOIN conversations INDEXED BY child_conversations_by_created_at
  ON conversations.namespace = ?1 AND conversations.parent_conversation_id = below.id AND conversations.parent_conversation_id <> ''
)
SELECT ` + infoColumns + ` FROM below CROSS JOIN conversations
WHERE namespace = ?1 AND conversation_id = below.id AND conversation_id <> ?2 LIMIT ?3`

	// touchConversations records when a turn was stored in those whose history ends with it: see driver.Head.Holds.
	touchConversations = `
UPDATE conversations SET active_at = max(active_at, ?4)
WHERE namespace = ?1 AND head_response_id = ?2 AND head_response_id <> ''
  AND (base_response_id = ?3 OR reservation_seconds = 0 AND reservation_renewals = 0)`
)

// selectConversations returns the statement that selects the conversations of a state that follow a position. It finds them in an index. Its
// arguments are the namespace, the user, the parent, the state, the position, and the limit.
func selectConversations(q conversationlist.Query) string {
	column := map[string]string{driver.SortCreated: "created_at", driver.SortUpdated: "updated_at", driver.SortActivity: "active_at"}[q.Selection.Sort]
	comparison, direction := ">", ""
	if q.Descending {
		comparison, direction = "<", " DESC"
	}
	where := `namespace = ?1`
	if q.Selection.UserID != "" {
		where += ` AND user_id = ?2 AND user_id <> ''`
	}
	if q.Selection.ParentConversationID != "" {
		where += ` AND parent_conversation_id = ?3 AND parent_conversation_id <> ''`
	}
	return `SELECT ` + infoColumns + ` FROM conversations
WHERE ` + where + ` AND state = ?4 AND (` + column + `, conversation_id) ` + comparison + ` (?5, ?6)
ORDER BY ` + column + direction + `, conversation_id` + direction + ` LIMIT ?7`
}

// listed returns the conversations of a page, and more.
func listed(ctx context.Context, tx *sql.Tx, namespace string, q conversationlist.Query) ([]driver.ConversationInfo, error) {
	var all []driver.ConversationInfo
	for _, state := range q.Selection.States {
		found, err := conversationInfos(tx.QueryContext(ctx, selectConversations(q), namespace, q.Selection.UserID, q.Selection.ParentConversationID,
			state, q.After.Time, q.After.ID, q.Limit+1))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// descendants returns the conversations below a parent.
func descendants(ctx context.Context, tx *sql.Tx, namespace, parent string) ([]driver.ConversationInfo, error) {
	found, err := conversationInfos(tx.QueryContext(ctx, selectDescendants, namespace, parent, driver.MaxDescendants+1))
	if err == nil && len(found) > driver.MaxDescendants {
		err = driver.TooManyDescendants(parent)
	}
	return found, err
}

// conversationInfos reads the infoColumns of rows.
func conversationInfos(rows *sql.Rows, err error) ([]driver.ConversationInfo, error) {
	if err != nil {
		return nil, err
	}
	var infos []driver.ConversationInfo
	for rows.Next() {
		var info driver.ConversationInfo
		var created, updated, active sql.NullInt64
		err := rows.Scan(&info.ConversationID, &info.UserID, &info.Title, &info.State, &info.ParentConversationID, &info.HeadResponseID,
			&created, &updated, &active)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		info.Title = driver.ListedTitle(info.Title)
		info.CreatedAt, info.UpdatedAt, info.LastActivityAt = fromSeconds(created), fromSeconds(updated), fromSeconds(active)
		infos = append(infos, info)
	}
	return infos, errors.Join(rows.Err(), rows.Close())
}
