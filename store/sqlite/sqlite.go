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

// Package sqlite keeps turns in one file: for gateways on one machine without a cluster. Several processes may use the
// file at once, as long as they are on that machine and its file system is a local one.
//
// The file is an SQLite database in WAL mode, so that beside it there may be two more, named after it with -wal and -shm
// behind; they belong to it and must be moved, copied and deleted with it. Only its owner can read a file that Open
// created. A turn that was saved survives the end of the process and of the machine, however sudden. Damage to the file is
// noticed where SQLite notices it, which has no checksums: a byte that a disk changed within a body may come back so.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/internal/localstore"
	"github.com/catena-dev/catena/store"
)

// Options are the options of Open.
type Options struct {
	// Namespace is the store's namespace.
	Namespace string
	// MaxDepth is how many turns a chain may have where ResolveOptions name no limit, at most store.MaxDepthLimit; 0 is
	// store.DefaultMaxDepth.
	MaxDepth int
}

// Store keeps turns in a database.
type Store struct {
	*database
	maxDepth  int
	namespace string
	owner     bool // of the database, which is closed with it
}

var _ store.Store = &Store{}

// Open returns the store in a file, which it creates if there is none, in a directory that exists. Close it.
//
// It returns an error where the file is not a database, or one of another program or of a newer version of this one.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	db, err := openDatabase(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("unable to open the database %q: %w", path, err)
	}
	return &Store{database: db, maxDepth: options.MaxDepth, namespace: options.Namespace, owner: true}, nil
}

// InNamespace returns the store of another namespace, which need not be created.
func (s *Store) InNamespace(namespace string) store.Store {
	return &Store{database: s.database, maxDepth: s.maxDepth, namespace: namespace}
}

// Close closes the database.
func (s *Store) Close() error {
	if !s.owner {
		return nil
	}
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, responseID string) (*store.Session, error) {
	var turn *localstore.Turn
	err := retry(ctx, func() (err error) {
		turn, err = s.get(ctx, s.reader, responseID)
		return err
	})
	if err != nil {
		return nil, failure(ctx, "get", responseID, err)
	}
	if turn == nil {
		return nil, localstore.NotFound(responseID)
	}
	return turn.Session, nil
}

// Save implements store.Store. It returns when the turn is on the disk.
func (s *Store) Save(ctx context.Context, session *store.Session, options store.SaveOptions) error {
	next, err := localstore.Prepare(ctx, session, options)
	if err != nil {
		return err
	}
	var turn *localstore.Turn
	err = s.write(ctx, func(tx *sql.Tx) error {
		current, err := s.get(ctx, tx, next.ResponseID)
		if err != nil {
			return err
		}
		if turn, err = localstore.Decide(current, next, options); err != nil || turn == current {
			return err
		}
		return s.put(ctx, tx, current, turn)
	})
	if err != nil {
		return failure(ctx, "save", next.ResponseID, err)
	}
	session.Version = turn.Version
	return nil
}

// Resolve implements store.Store. Every answer is the newest.
func (s *Store) Resolve(ctx context.Context, responseID string, options store.ResolveOptions) (*store.History, error) {
	var history *store.History
	err := retry(ctx, func() error {
		// One statement, so that all turns are of one state.
		rows, err := s.chain.QueryContext(ctx, s.namespace, responseID)
		if err != nil {
			return err
		}
		history, err = localstore.Resolve(ctx, responseID, options, s.maxDepth, following(rows))
		return errors.Join(err, rows.Close())
	})
	if err != nil {
		return nil, failure(ctx, "resolve", responseID, err)
	}
	return history, nil
}

// Delete implements store.Store. The descendants are gone when it has returned.
func (s *Store) Delete(ctx context.Context, responseID string, options store.DeleteOptions) error {
	query := deleteTurn
	if options.Cascade {
		query = deleteTree
	}
	err := s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, s.namespace, responseID)
		return err
	})
	if err != nil {
		return failure(ctx, "delete", responseID, err)
	}
	return nil
}

const (
	deleteTurn = `DELETE FROM turns WHERE namespace = ?1 AND response_id = ?2`
	// UNION leaves out what it has already, so that a cycle ends.
	deleteTree = `
WITH RECURSIVE doomed (id) AS (
  SELECT response_id FROM turns WHERE namespace = ?1 AND response_id = ?2
  UNION
  SELECT turns.response_id FROM doomed JOIN turns ON turns.namespace = ?1 AND turns.previous_response_id = doomed.id
)
DELETE FROM turns WHERE namespace = ?1 AND response_id IN (SELECT id FROM doomed)`

	selectTurn = `
SELECT uid, version, previous_response_id, conversation_id, status, created_at, completed_at, immutable, request, response, metadata
FROM turns WHERE namespace = ? AND response_id = ?`

	// selectChain selects what a history is made of, turn by turn from the newest on. It goes round a cycle as long as
	// it is read, but no longer than any chain may be.
	selectChain = `
WITH RECURSIVE walk (id, depth) AS (
  SELECT ?2, 1
  UNION ALL
  SELECT turns.previous_response_id, depth + 1 FROM walk CROSS JOIN turns
  WHERE turns.namespace = ?1 AND turns.response_id = walk.id AND depth <= 10000
)
SELECT response_id, uid, previous_response_id, status, request, response FROM walk CROSS JOIN turns
WHERE turns.namespace = ?1 AND turns.response_id = walk.id`

	// upsertTurn changes nothing where there is a turn with another version than the last argument.
	upsertTurn = `
INSERT INTO turns (namespace, response_id, uid, version, previous_response_id, conversation_id, status, created_at, completed_at, immutable, request, response, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT (namespace, response_id) DO UPDATE SET
  version = ?4, conversation_id = ?6, status = ?7, created_at = ?8, completed_at = ?9, immutable = ?10, request = ?11, response = ?12, metadata = ?13
WHERE version = ?14`
)

// queryer is a database or a transaction.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// get returns a turn, nil where there is none.
func (s *Store) get(ctx context.Context, q queryer, responseID string) (*localstore.Turn, error) {
	turn := &localstore.Turn{Session: &store.Session{ResponseID: responseID}}
	var previous, conversation sql.NullString
	var createdAt, completedAt sql.NullInt64
	err := q.QueryRowContext(ctx, selectTurn, s.namespace, responseID).Scan(
		&turn.UID, &turn.Version, &previous, &conversation, &turn.Status, &createdAt, &completedAt, &turn.Immutable,
		(*[]byte)(&turn.Request), (*[]byte)(&turn.Response), (*[]byte)(&turn.Metadata))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	turn.PreviousResponseID, turn.ConversationID = previous.String, conversation.String
	turn.CreatedAt, turn.CompletedAt = fromSeconds(createdAt), fromSeconds(completedAt)
	return turn, err
}

// following returns the getter of a history, which reads the rows of selectChain.
func following(rows *sql.Rows) localstore.Getter {
	return func(context.Context, string) (*localstore.Turn, error) {
		if !rows.Next() {
			return nil, rows.Err()
		}
		turn := &localstore.Turn{Session: &store.Session{}}
		var previous sql.NullString
		err := rows.Scan(&turn.ResponseID, &turn.UID, &previous, &turn.Status,
			(*sql.RawBytes)(&turn.Request), (*sql.RawBytes)(&turn.Response))
		turn.PreviousResponseID = previous.String
		return turn, err
	}
}

// put stores a turn in the place of the current one, nil where there is none.
func (s *Store) put(ctx context.Context, tx *sql.Tx, current, turn *localstore.Turn) error {
	expected := ""
	if current != nil {
		expected = current.Version
	}
	result, err := tx.ExecContext(ctx, upsertTurn,
		s.namespace, turn.ResponseID, turn.UID, turn.Version, nullable(turn.PreviousResponseID), nullable(turn.ConversationID),
		turn.Status, seconds(turn.CreatedAt), seconds(turn.CompletedAt), turn.Immutable,
		nullable(string(turn.Request)), nullable(string(turn.Response)), nullable(string(turn.Metadata)), expected)
	if err != nil {
		return err
	}
	if written, err := result.RowsAffected(); err != nil || written == 1 {
		return err
	}
	return &store.Error{
		Code: store.CodeConflict, ResponseID: turn.ResponseID,
		Message: fmt.Sprintf("response %q was overwritten at the same time", turn.ResponseID),
	}
}

func nullable(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func seconds(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: t.Unix(), Valid: !t.IsZero()} }

func fromSeconds(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.Unix(n.Int64, 0).UTC()
}
