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

package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/sqlite"
)

func TestFileModes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := open(t, "turns.db")
	t.Chdir(t.TempDir()) // a relative path is resolved by Open
	save(t, s, testturn.Make("resp_1", ""))
	for _, name := range []string{"turns.db", "turns.db-wal", "turns.db-shm"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("Unexpected mode of %s: want 0600, got %v", name, info.Mode())
		}
	}
}

func TestOpenErrors(t *testing.T) {
	tests := map[string]struct {
		path  string // in the directory of the test
		setup func(t *testing.T, path string)
		want  string
	}{
		"no directory":       {path: "no/such/turns.db", want: "does not exist"},
		"directory":          {path: ".", want: "not a regular file"},
		"text file":          {path: "text", setup: writeText, want: "not an SQLite database"},
		"another program":    {path: "other.db", setup: execute(`CREATE TABLE t (a)`), want: "another program"},
		"application ID":     {path: "other.db", setup: execute(`PRAGMA application_id = 7`), want: "another program"},
		"newer schema":       {path: "new.db", setup: newer, want: "its schema has version 1000000, and this program supports versions up to 5"},
		"empty file":         {path: "empty", setup: func(t *testing.T, path string) { write(t, path, "") }},
		"empty file, opened": {path: "empty.db", setup: execute(`VACUUM`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tc.path)
			if tc.setup != nil {
				tc.setup(t, path)
			}
			before, _ := os.ReadFile(path)
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if tc.want == "" {
				if err != nil {
					t.Fatalf("Unexpected error: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("Unable to close the store: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Unexpected error: want one that contains %q and the path, got %v", tc.want, err)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("The file was changed")
			}
		})
	}
	for _, path := range []string{"", ":memory:", "file::memory:", "file:turns.db?mode=memory"} {
		if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "store/memory") {
			t.Errorf("Unexpected error for %q: %v", path, err)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("Unable to write: %v", err)
	}
}

func writeText(t *testing.T, path string) {
	write(t, path, strings.Repeat("this is text, and not a database\n", 100))
}

func newer(t *testing.T, path string) {
	if err := open(t, path).Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	execute(`PRAGMA user_version = 1000000`)(t, path)
}

// openSQL opens a database as another program would.
func openSQL(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Unable to close the database: %v", err)
		}
	})
	return db
}

func execute(statement string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		db := openSQL(t, path)
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
	}
}

// TestSchema: G35, and the walk and a cascade use the indices.
func TestSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	open(t, path)
	db := openSQL(t, path)
	tests := map[string]struct{ query, want string }{
		"journal":      {`PRAGMA journal_mode`, "wal"},
		"version":      {`PRAGMA user_version`, "5"},
		"parent":       {`SELECT name FROM pragma_index_list('turns') WHERE name = 'turns_by_parent'`, "turns_by_parent"},
		"conversation": {`SELECT name FROM pragma_index_list('turns') WHERE name = 'turns_by_conversation'`, "turns_by_conversation"},
	}
	for name, tc := range tests {
		var got string
		if err := db.QueryRowContext(t.Context(), tc.query).Scan(&got); err != nil || got != tc.want {
			t.Errorf("Unexpected %s: want %q, got %q and error %v", name, tc.want, got, err)
		}
	}
	var id, parent, unused int
	var plan string
	if err := db.QueryRowContext(t.Context(), `EXPLAIN QUERY PLAN SELECT response_id FROM turns WHERE namespace = ? AND previous_response_id = ?`, "n", "p").
		Scan(&id, &parent, &unused, &plan); err != nil || !strings.Contains(plan, "turns_by_parent") {
		t.Errorf("Unexpected query plan for children: %q, error %v", plan, err)
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	for i := range 50 {
		save(t, s, testturn.Make(fmt.Sprintf("resp_%d", i), strings.Repeat("x", 500)))
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	var root int
	row := openSQL(t, path).QueryRowContext(t.Context(), `SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_turns_1'`)
	if err := row.Scan(&root); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	const page = 4096
	for i := (root - 1) * page; i < root*page; i++ {
		content[i] = 0xff
	}
	write(t, path, string(content))
	_, err = open(t, path).Get(t.Context(), "resp_7")
	if !errors.Is(err, store.ErrUnreadable) || store.IsRetryable(err) {
		t.Errorf("Unexpected error: want unreadable, got %v", err)
	}
}

// TestConcurrentOpen: several stores find no schema, and one creates it.
func TestConcurrentOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Errorf("Unexpected error: %v", err)
				return
			}
			if err := errors.Join(s.Save(t.Context(), testturn.Make(fmt.Sprintf("resp_%d", i), ""), store.SaveOptions{}), s.Close()); err != nil {
				t.Errorf("Unexpected error: %v", err)
			}
		})
	}
	wait.Wait()
	s := open(t, path).InNamespace("")
	for i := range 8 {
		if _, err := s.Get(t.Context(), fmt.Sprintf("resp_%d", i)); err != nil {
			t.Errorf("Unexpected error: %v", err)
		}
	}
}
