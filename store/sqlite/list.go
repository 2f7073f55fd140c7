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

	"github.com/catena-dev/catena/internal/sortedlist"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

var _ driver.Lister = (*turns)(nil)

// List implements driver.Lister. The result is always current.
func (s *turns) List(ctx context.Context, namespace, conversationID string, options driver.ListOptions) (*driver.TurnList, error) {
	if options.History {
		list, err := s.history(ctx, namespace, conversationID, options)
		return list, toError(ctx, err)
	}
	list, err := local.List(namespace, conversationID, options, func(q sortedlist.Query, limit int) (found []driver.TurnInfo, err error) {
		query := selectPage
		if q.Descending {
			query = selectPageDescending
		}
		err = s.read(ctx, namespace, func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, query, namespace, conversationID, q.After.Time, q.After.ID, limit)
			if err != nil {
				return err
			}
			found, err = infos(rows)
			return errors.Join(err, rows.Close())
		})
		return found, err
	})
	return list, toError(ctx, err)
}

// history lists the turns of a conversation's history.
func (s *turns) history(ctx context.Context, namespace, conversationID string, options driver.ListOptions) (*driver.TurnList, error) {
	var list *driver.TurnList
	err := s.read(ctx, namespace, func(tx *sql.Tx) error {
		c, err := getConversation(ctx, tx, namespace, conversationID)
		if err != nil {
			return err
		}
		list, err = local.History(ctx, c, options, func(responseID string) ([]driver.TurnInfo, error) {
			rows, err := tx.QueryContext(ctx, selectInfos, namespace, responseID, driver.MaxDepthLimit)
			if err != nil {
				return nil, err
			}
			found, err := infos(rows)
			return found, errors.Join(err, rows.Close())
		})
		return err
	})
	return list, err
}

// infos reads the rows of selectPage or selectInfos.
func infos(rows *sql.Rows) ([]driver.TurnInfo, error) {
	var infos []driver.TurnInfo
	for rows.Next() {
		var info driver.TurnInfo
		var previous sql.NullString
		var createdAt, completedAt sql.NullInt64
		if err := rows.Scan(&info.ResponseID, &previous, &info.Status, &createdAt, &completedAt, &info.Version); err != nil {
			return nil, err
		}
		info.PreviousResponseID = previous.String
		info.CreatedAt, info.CompletedAt = fromSeconds(createdAt), fromSeconds(completedAt)
		infos = append(infos, info)
	}
	return infos, rows.Err()
}
