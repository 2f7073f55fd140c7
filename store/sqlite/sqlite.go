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

// Package sqlite stores turns and conversations in one file, for gateways on one machine without a cluster. Several processes
// may use the file at the same time if they run on that machine and its file system is local. Importing the package is
// sufficient to open sqlite: URLs with store.Open.
//
// The file is an SQLite database in WAL mode, so there may be two more files next to it, with -wal and -shm appended to its
// name; they belong to the database and must be moved, copied and deleted with it. A file created by Open is readable only by
// its owner. What is stored survives a crash of the process or the machine. Damage to the file is detected only if SQLite
// detects it, which has no checksums: a byte of a body that changed on the disk may be returned as it is.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

func init() { driver.Register("sqlite", openURL) }

// Options are the options of Open.
type Options struct {
	// Namespace is the store's namespace. Namespaces do not have to be created.
	Namespace string
	// MaxDepth is the maximum number of turns in a chain if ResolveOptions do not set one, at most store.MaxDepthLimit; 0
	// means store.DefaultMaxDepth.
	MaxDepth int
}

// Open opens the store in a file. If the file does not exist, it is created; its directory must exist. Close the store when it
// is no longer needed.
//
// Open returns an error if the file is not a database, belongs to another program, or has the schema of a newer version. If a
// newer version migrates the file later, every call fails with store.ErrUnsupported.
func Open(ctx context.Context, path string, options Options) (*store.Store, error) {
	d, err := openDriver(ctx, path, options.MaxDepth)
	if err != nil {
		return nil, fmt.Errorf("unable to open the sqlite store: %w", err)
	}
	return store.New(d, driver.Options{Namespace: options.Namespace}), nil
}

func openURL(ctx context.Context, url string) (driver.Store, driver.Options, error) {
	path, namespace, err := driver.ParseURL(url)
	if err != nil {
		return nil, driver.Options{}, err
	}
	if path == "" {
		return nil, driver.Options{}, errors.New("the URL must have the path of a file")
	}
	d, err := openDriver(ctx, path, 0)
	return d, driver.Options{Namespace: namespace}, err
}

// turns is a driver that stores turns and conversations in a database.
type turns struct {
	*database
	maxDepth int
}

func openDriver(ctx context.Context, path string, maxDepth int) (driver.Store, error) {
	db, err := openDatabase(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("database %q: %w", path, err)
	}
	return &turns{database: db, maxDepth: maxDepth}, nil
}

// Close closes the database.
func (s *turns) Close() error { return errors.Join(s.reader.Close(), s.writer.Close()) }

// Get implements driver.Store.
func (s *turns) Get(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	var turn *local.Session
	err := s.read(ctx, namespace, func(tx *sql.Tx) (err error) {
		if err = countMemory(ctx, tx, selectSize, namespace, responseID); err == nil {
			turn, err = get(ctx, tx, namespace, responseID)
		}
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

// countMemory counts the memory for reading what is stored under an ID, whose size is the result of the query: SQLite temporarily
// holds a copy of it.
func countMemory(ctx context.Context, tx *sql.Tx, query, namespace, id string) error {
	if !metered.Counts(ctx) {
		return nil
	}
	var size int64
	err := tx.QueryRowContext(ctx, query, namespace, id).Scan(&size)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return errors.Join(err, metered.Take(ctx, 2*size))
}

// Save implements driver.Store. When it returns, the turn is on disk.
func (s *turns) Save(ctx context.Context, namespace string, session *driver.Session, options driver.SaveOptions) (string, error) {
	var turn *local.Session
	err := s.write(ctx, namespace, func(tx *sql.Tx) (err error) {
		// Most turns are new, so that they need not be looked for first.
		if turn, err = local.Save(nil, session, options); err == nil {
			if stored, err := s.put(ctx, tx, namespace, nil, turn); stored || err != nil {
				return err
			}
		}
		current, err := get(ctx, tx, namespace, session.ResponseID)
		if err != nil {
			return err
		}
		if turn, err = local.Save(current, session, options); err != nil || turn == current {
			return err
		}
		stored, err := s.put(ctx, tx, namespace, current, turn)
		if err == nil && !stored {
			err = driver.Overwritten(turn.ResponseID)
		}
		return err
	})
	if err != nil {
		return "", toError(ctx, err)
	}
	return turn.Version, nil
}

// Resolve implements driver.Store. The result is always current.
func (s *turns) Resolve(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	var history *driver.History
	err := s.read(ctx, namespace, func(tx *sql.Tx) error {
		// A single statement reads all turns from the same state.
		rows, err := s.queryChain(ctx, tx, namespace, responseID, options)
		if err != nil {
			return err
		}
		// A turn for each large body would keep the connection waiting, of which namespaces have as many as processors.
		ctx := metered.WithTurns(ctx, func(_ context.Context, _ int, work func() error) error { return work() })
		history, err = local.Resolve(ctx, responseID, options, s.maxDepth, following(rows, options.Bodies))
		return errors.Join(err, rows.Close())
	})
	if err != nil {
		return nil, toError(ctx, err)
	}
	return history, nil
}

// queryChain selects the turns of a history, newest first, with all their columns if the options request the bodies.
func (s *turns) queryChain(ctx context.Context, tx *sql.Tx, namespace, responseID string, options driver.ResolveOptions) (*sql.Rows, error) {
	turns := cmp.Or(options.Last, driver.MaxDepthLimit)
	if options.Bodies {
		return tx.QueryContext(ctx, selectWholeChain, namespace, responseID, turns)
	}
	return tx.StmtContext(ctx, s.chain).QueryContext(ctx, namespace, responseID, turns)
}

// Delete implements driver.Store. When it returns, the descendants are gone too.
func (s *turns) Delete(ctx context.Context, namespace, responseID string, options driver.DeleteOptions) error {
	query := deleteTurn
	if options.Cascade {
		query = deleteTree
	}
	err := s.write(ctx, namespace, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, namespace, responseID)
		return err
	})
	return toError(ctx, err)
}

const (
	deleteTurn = `DELETE FROM turns WHERE namespace = ?1 AND response_id = ?2`
	// UNION drops duplicate rows, which ends a cycle.
	deleteTree = `
WITH RECURSIVE tree (id) AS (
  SELECT response_id FROM turns WHERE namespace = ?1 AND response_id = ?2
  UNION
  SELECT turns.response_id FROM tree JOIN turns ON turns.namespace = ?1 AND turns.previous_response_id = tree.id
)
DELETE FROM turns WHERE namespace = ?1 AND response_id IN (SELECT id FROM tree)`

	// columns are those that scan reads.
	columns      = smallColumns + `, request, response, metadata`
	smallColumns = `response_id, uid, version, previous_response_id, conversation_id, status, created_at, completed_at, immutable`

	selectTurn          = `SELECT ` + columns + whereTurn
	selectWithoutBodies = `SELECT ` + smallColumns + `, NULL AS request, NULL AS response, NULL AS metadata` + whereTurn
	whereTurn           = ` FROM turns WHERE namespace = ? AND response_id = ?`

	selectSize = `
SELECT coalesce(octet_length(request), 0) + coalesce(octet_length(response), 0) + coalesce(octet_length(metadata), 0)
FROM turns WHERE namespace = ? AND response_id = ?`

	// selectChain selects the turns of a history, newest first. In a cycle it continues for as long as rows are read, up to
	// the maximum number of turns in a chain, which is the third argument.
	selectChain = walk + `SELECT response_id, uid, previous_response_id, status, request, response` + fromWalk
	// selectWholeChain is selectChain with all columns.
	selectWholeChain = walk + `SELECT ` + columns + fromWalk
	// selectInfos is selectChain with the columns of selectPage.
	selectInfos = walk + `SELECT response_id, previous_response_id, status, created_at, completed_at, version` + fromWalk

	walk = `
WITH RECURSIVE walk (id, depth) AS (
  SELECT ?2, 1
  UNION ALL
  SELECT turns.previous_response_id, depth + 1 FROM walk CROSS JOIN turns
  WHERE turns.namespace = ?1 AND turns.response_id = walk.id AND depth <= ?3
)
`
	fromWalk = `
FROM walk CROSS JOIN turns WHERE turns.namespace = ?1 AND turns.response_id = walk.id`

	// selectPage selects the turns of a conversation that follow a position, in ascending and in descending order.
	selectPage = `
SELECT response_id, previous_response_id, status, created_at, completed_at, version
FROM turns WHERE namespace = ?1 AND conversation_id = ?2 AND (listed_at, response_id) > (?3, ?4)
ORDER BY listed_at, response_id LIMIT ?5`
	selectPageDescending = `
SELECT response_id, previous_response_id, status, created_at, completed_at, version
FROM turns WHERE namespace = ?1 AND conversation_id = ?2 AND (listed_at, response_id) < (?3, ?4)
ORDER BY listed_at DESC, response_id DESC LIMIT ?5`

	// upsertTurn has no effect if the version of the stored turn differs from the last argument.
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

// get returns a turn, or nil if it does not exist.
func get(ctx context.Context, q queryer, namespace, responseID string) (*local.Session, error) {
	return getTurn(ctx, q, selectTurn, namespace, responseID)
}

// getTurn returns the turn that a query with the columns selects, or nil.
func getTurn(ctx context.Context, q queryer, query, namespace, responseID string) (*local.Session, error) {
	turn := &local.Session{Session: &driver.Session{}}
	err := scan(q.QueryRowContext(ctx, query, namespace, responseID), turn,
		(*[]byte)(&turn.Request), (*[]byte)(&turn.Response), (*[]byte)(&turn.Metadata))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return turn, err
}

// scan reads a row of a whole turn into it, and its bodies into what is given for each.
func scan(row interface{ Scan(into ...any) error }, turn *local.Session, request, response, metadata any) error {
	var previous, conversation sql.NullString
	var createdAt, completedAt sql.NullInt64
	err := row.Scan(&turn.ResponseID, &turn.UID, &turn.Version, &previous, &conversation, &turn.Status, &createdAt, &completedAt,
		&turn.Immutable, request, response, metadata)
	turn.PreviousResponseID, turn.ConversationID = previous.String, conversation.String
	turn.CreatedAt, turn.CompletedAt = fromSeconds(createdAt), fromSeconds(completedAt)
	return err
}

// following returns a getter for a history, which reads the rows of queryChain.
func following(rows *sql.Rows, bodies bool) local.Getter {
	return func(context.Context, string) (*local.Session, error) {
		if !rows.Next() {
			return nil, rows.Err()
		}
		turn := &local.Session{Session: &driver.Session{}}
		if bodies {
			return turn, scan(rows, turn, (*sql.RawBytes)(&turn.Request), (*sql.RawBytes)(&turn.Response), (*sql.RawBytes)(&turn.Metadata))
		}
		var previous sql.NullString
		err := rows.Scan(&turn.ResponseID, &turn.UID, &previous, &turn.Status,
			(*sql.RawBytes)(&turn.Request), (*sql.RawBytes)(&turn.Response))
		turn.PreviousResponseID = previous.String
		return turn, err
	}
}

// put stores a turn in place of the current turn, which is nil if it is new. It stores nothing and returns false if there is another one.
func (s *turns) put(ctx context.Context, tx *sql.Tx, namespace string, current, turn *local.Session) (stored bool, err error) {
	expected := ""
	if current != nil {
		expected = current.Version
	}
	stored, err = wrote(tx.StmtContext(ctx, s.upsert).ExecContext(ctx,
		namespace, turn.ResponseID, turn.UID, turn.Version, nullable(turn.PreviousResponseID), nullable(turn.ConversationID),
		turn.Status, seconds(turn.CreatedAt), seconds(turn.CompletedAt), turn.Immutable,
		nullable(string(turn.Request)), nullable(string(turn.Response)), nullable(string(turn.Metadata)), expected))
	if stored && err == nil && current == nil {
		_, err = tx.StmtContext(ctx, s.touch).ExecContext(ctx, namespace, turn.ResponseID, turn.PreviousResponseID, turn.StoredAt.Unix())
	}
	return stored, err
}

// wrote reports whether a statement has written its row.
func wrote(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	written, err := result.RowsAffected()
	return written == 1, err
}

func nullable(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func seconds(t time.Time) sql.NullInt64 { return sql.NullInt64{Int64: t.Unix(), Valid: !t.IsZero()} }

func fromSeconds(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.Unix(n.Int64, 0).UTC()
}
