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
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/catena-dev/catena/internal/fair"
)

// The limits for waiting for other processes.
const (
	// busyTimeout is the limit for all attempts together.
	busyTimeout = 10 * time.Second
	// attemptTimeout is how long SQLite itself waits, without observing the context.
	attemptTimeout = 100 * time.Millisecond
	// retryInterval is the delay between attempts: SQLite gives up some attempts immediately.
	retryInterval = 5 * time.Millisecond
)

// database is one file. Writes share one connection and run one after the other: SQLite would serialise them anyway, but not
// in order. Namespaces share the connections as in fair.Budget, and take turns with writes.
type database struct {
	path           string
	file           os.FileInfo // identifies the file that was opened
	writer, reader *sql.DB
	writes, reads  *fair.Budget
	// These are prepared once, because parsing them takes a notable part of a small save.
	writerVersion *sql.Stmt // selectVersion, on the writer
	upsert        *sql.Stmt // upsertTurn, on the writer
	touch         *sql.Stmt // touchConversations, on the writer
	readerVersion *sql.Stmt // selectVersion, on the reader
	chain         *sql.Stmt // selectChain, on the reader
	// reading has a unit for each transaction that reads, and gives units in the order in which they are asked for.
	reading *semaphore.Weighted
	readers int64 // the number of units
	// walLimit is the size of the write-ahead log at which the next write truncates it.
	walLimit int64
	// version is the schema version that this program reads and writes.
	version int
}

func openDatabase(ctx context.Context, path string) (*database, error) {
	path, err := createFile(path)
	if err != nil {
		return nil, err
	}
	db := &database{path: path, walLimit: maxWAL}
	if db.writer, err = sql.Open("sqlite", dataSource(path)); err != nil {
		return nil, err
	}
	db.writer.SetMaxOpenConns(1)
	if db.reader, err = sql.Open("sqlite", dataSource(path)); err != nil {
		return nil, err
	}
	connections := 2 * max(4, runtime.GOMAXPROCS(0)) // a namespace alone has half
	db.writes, db.reads = fair.NewBudget(1), fair.NewBudget(int64(connections))
	db.reading, db.readers = semaphore.NewWeighted(int64(connections)), int64(connections)
	db.reader.SetMaxOpenConns(connections)
	db.reader.SetMaxIdleConns(connections)
	err = db.prepare(ctx)
	if err == nil {
		db.file, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(err, db.reader.Close(), db.writer.Close())
	}
	return db, nil
}

// createFile creates the file of a database if it does not exist, and returns its absolute path.
func createFile(path string) (string, error) {
	if path == "" || path == ":memory:" || strings.HasPrefix(path, "file:") {
		return "", errors.New("must be the path of a file: for a store in memory use package store/memory")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("the directory %q does not exist", filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	// Do not open an existing file: closing it would release the locks of this process's other stores.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, nil
	}
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// dataSource returns the file name with the options of every connection. A transaction takes the write lock when it begins,
// unless it is read-only: a transaction that has to wait for the lock later cannot continue.
func dataSource(path string) string {
	query := url.Values{
		"mode":          {"rw"},
		"_busy_timeout": {strconv.FormatInt(attemptTimeout.Milliseconds(), 10)},
		"_foreign_keys": {"off"}, // a turn may be stored before its parent and outlive it
		"_synchronous":  {"FULL"},
		"_txlock":       {"immediate"},
		"_error_rc":     {"true"},
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// applicationID is the `PRAGMA application_id` of Catena's databases: CTNA.
const applicationID = 0x43544E41

//go:embed schema/*.sql
var schema embed.FS

// prepare migrates the database to the current schema.
func (db *database) prepare(ctx context.Context) error {
	steps, err := fs.Glob(schema, "schema/*.sql")
	if err != nil {
		return err
	}
	var version int
	err = retry(ctx, func() (err error) {
		version, err = schemaVersion(ctx, db.writer, len(steps))
		return err
	})
	if err != nil {
		return err
	}
	if err := db.useWAL(ctx); err != nil {
		return err
	}
	if version < len(steps) {
		if err := transact(ctx, db.writer, nil, func(tx *sql.Tx) error { return migrate(ctx, tx, steps) }); err != nil {
			return fmt.Errorf("unable to migrate its schema: %w", err)
		}
	}
	db.version = len(steps)
	for _, prepared := range []struct {
		statement   **sql.Stmt
		connections *sql.DB
		query       string
	}{
		{&db.writerVersion, db.writer, selectVersion},
		{&db.upsert, db.writer, upsertTurn},
		{&db.touch, db.writer, touchConversations},
		{&db.readerVersion, db.reader, selectVersion},
		{&db.chain, db.reader, selectChain},
	} {
		err := retry(ctx, func() (err error) {
			*prepared.statement, err = prepared.connections.PrepareContext(ctx, prepared.query)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// selectVersion selects the schema version.
const selectVersion = `PRAGMA user_version`

// newerSchemaError is the error for a database with a schema that only a newer program supports.
type newerSchemaError struct{ stored, newest int }

// Error returns a message with both versions.
func (e *newerSchemaError) Error() string {
	return fmt.Sprintf("its schema has version %d, and this program supports versions up to %d: use a newer program", e.stored, e.newest)
}

// schemaVersion returns the number of migration steps that were applied to a database, or an error if it belongs to another
// program. The error is a newerSchemaError if a newer program has migrated it.
func schemaVersion(ctx context.Context, q queryer, newest int) (int, error) {
	var application, version, objects int
	err := q.QueryRowContext(ctx, `SELECT
  (SELECT application_id FROM pragma_application_id),
  (SELECT user_version FROM pragma_user_version),
  (SELECT count(*) FROM sqlite_schema)`).Scan(&application, &version, &objects)
	switch {
	case hasCode(err, sqlite3.SQLITE_NOTADB):
		return 0, errors.New("it is not an SQLite database")
	case err != nil:
		return 0, err
	case application == 0 && version == 0 && objects == 0:
		return 0, nil
	case application != applicationID:
		return 0, errors.New("it is a database of another program")
	case version > newest:
		return 0, &newerSchemaError{version, newest}
	}
	return version, nil
}

// useWAL enables write-ahead logging, which is a persistent property of the file.
func (db *database) useWAL(ctx context.Context) error {
	var mode string
	err := retry(ctx, func() error { return db.writer.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode) })
	if err == nil && mode != "wal" {
		return errors.New("its file system cannot share memory between processes, which SQLite needs")
	}
	return err
}

// migrate applies the steps that have not been applied yet.
func migrate(ctx context.Context, tx *sql.Tx, steps []string) error {
	version, err := schemaVersion(ctx, tx, len(steps)) // another process may have migrated it
	if err != nil {
		return err
	}
	for _, step := range steps[version:] {
		text, err := schema.ReadFile(step)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, len(steps)))
	return err
}

// write calls a function in a transaction that holds the write lock, if the database still has the schema that this program
// supports: a newer program may have migrated it since it was opened.
func (db *database) write(ctx context.Context, namespace string, do func(tx *sql.Tx) error) error {
	if err := db.writes.Acquire(ctx, namespace, 1); err != nil {
		return err
	}
	defer db.writes.Release(namespace, 1)
	if err := db.checked(ctx, db.writer, db.writerVersion, nil, do); err != nil {
		return err
	}
	db.truncateWAL(ctx)
	return nil
}

const (
	// maxWAL is the size of the write-ahead log, in bytes, beyond which it is truncated.
	maxWAL = 64 << 20
	// walTimeout is how long the reads in progress may take meanwhile.
	walTimeout = 5 * time.Second
)

// truncateWAL truncates the write-ahead log if it is large, during a write. SQLite begins it again by itself only when no one reads, which
// overlapping reads can prevent without end. So no read begins until those in progress have ended. If that fails, because one takes long or
// another process reads, the log may become twice as large before the next attempt.
func (db *database) truncateWAL(ctx context.Context) {
	log := db.path + "-wal"
	if info, err := os.Stat(log); err != nil || info.Size() < db.walLimit {
		return
	}
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, walTimeout)
	defer cancel()
	if db.reading.Acquire(limited, db.readers) == nil {
		defer db.reading.Release(db.readers)
		_, _ = db.writer.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	}
	if info, err := os.Stat(log); err == nil {
		db.walLimit = max(maxWAL, 2*info.Size())
	}
}

// read is like write, with a read-only transaction.
func (db *database) read(ctx context.Context, namespace string, do func(tx *sql.Tx) error) error {
	if err := db.reads.Acquire(ctx, namespace, 1); err != nil {
		return err
	}
	defer db.reads.Release(namespace, 1)
	if err := db.reading.Acquire(ctx, 1); err != nil {
		return err
	}
	defer db.reading.Release(1)
	return db.checked(ctx, db.reader, db.readerVersion, &sql.TxOptions{ReadOnly: true}, do)
}

// checked calls a function in a transaction, if the version that a statement of these connections selects is that of this program.
func (db *database) checked(
	ctx context.Context, connections *sql.DB, stored *sql.Stmt, options *sql.TxOptions, do func(tx *sql.Tx) error,
) error {
	return transact(ctx, connections, options, func(tx *sql.Tx) error {
		var version int
		if err := tx.StmtContext(ctx, stored).QueryRowContext(ctx).Scan(&version); err != nil {
			return err
		}
		switch {
		case version > db.version:
			return &newerSchemaError{version, db.version}
		case version < db.version:
			return fmt.Errorf("its schema had version %d when it was opened, and has version %d: it was replaced by another file", db.version, version)
		}
		return do(tx)
	})
}

// transact calls a function in a transaction until the database is no longer busy.
func transact(ctx context.Context, connections *sql.DB, options *sql.TxOptions, do func(tx *sql.Tx) error) error {
	return retry(ctx, func() error {
		tx, err := connections.BeginTx(ctx, options)
		if err != nil {
			return err
		}
		if err := do(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// retry calls a function until the database is no longer busy.
func retry(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(busyTimeout)
	for {
		err := do()
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

// hasCode reports whether an error is an SQLite error with the given code or one of its extended codes.
func hasCode(err error, code int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == code
}

func isBusy(err error) bool {
	return hasCode(err, sqlite3.SQLITE_BUSY) || hasCode(err, sqlite3.SQLITE_LOCKED)
}
