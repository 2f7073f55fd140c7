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
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestOverlappingReads: namespaces that read without a pause do not make the write-ahead log grow without end.
func TestOverlappingReads(t *testing.T) {
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "turns.db"))
	if err != nil {
		t.Fatal(err)
	}
	const limit, turns, turnBytes = 1 << 20, 64, 256 << 10
	execute := func(statement string, arguments ...any) {
		t.Helper()
		err := db.write(t.Context(), "modest", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), statement, arguments...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	execute(`CREATE TABLE bodies (body BLOB)`)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for i := range 6 {
		reading.Go(func() {
			for ctx.Err() == nil {
				_ = db.read(ctx, fmt.Sprint("greedy-", i%3), func(tx *sql.Tx) error {
					var bodies int
					err := tx.QueryRowContext(ctx, `SELECT count(*) FROM bodies`).Scan(&bodies)
					time.Sleep(time.Millisecond) //nolint:forbidigo // so that the reads overlap
					return err
				})
			}
		})
	}
	largest := int64(0)
	for range turns {
		db.walLimit = limit
		execute(`INSERT INTO bodies VALUES (zeroblob(?))`, turnBytes)
		if info, err := os.Stat(db.path + "-wal"); err != nil {
			t.Fatal(err)
		} else if info.Size() > largest {
			largest = info.Size()
		}
	}
	cancel()
	reading.Wait()
	if largest > 2*limit {
		t.Errorf("the write-ahead log has had %d bytes, want at most %d", largest, 2*limit)
	}
	if err := errors.Join(db.reader.Close(), db.writer.Close()); err != nil {
		t.Error(err)
	}
}
