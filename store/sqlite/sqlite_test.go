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
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/sqlite"
	"github.com/catena-dev/catena/store/storetest"
)

func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	storetest.Run(t, func(t *testing.T) driver.Store {
		d, err := sqlite.OpenDriver(t.Context(), path, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func open(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Namespace: "default"})
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	})
	return s
}

func makeTurn(id, previous string) *store.Session {
	return &store.Session{
		ResponseID: id, PreviousResponseID: previous, Status: store.StatusCompleted,
		Request: fmt.Appendf(nil, `{"input":"ask %s"}`, id),
	}
}

func save(t testing.TB, s *store.Store, session *store.Session) {
	t.Helper()
	if err := s.Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatalf("Unable to save %q: %v", session.ResponseID, err)
	}
}

// TestReopen: G35, and byte for byte.
func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?mode=memory#é%20.db")
	want := makeTurn("resp_1", "resp_0")
	want.Request = json.RawMessage(` { "z" : 1.0, "input":[ ], "a":12345678901234567890,"html":"<b>&é\u00e9","a":2 }`)
	want.Metadata = json.RawMessage(`{ }`)
	s := open(t, path)
	save(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	if _, err := s.Get(t.Context(), "resp_1"); err == nil {
		t.Error("The closed store can still be used")
	}
	got, err := open(t, path).Get(t.Context(), "resp_1")
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected session (-want,+got):\n%s", diff)
	}
}

func TestFileModes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := open(t, "turns.db")
	t.Chdir(t.TempDir()) // a relative path is resolved by Open
	save(t, s, makeTurn("resp_1", ""))
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
		"no directory":     {path: "no/such/turns.db", want: "does not exist"},
		"a directory":      {path: ".", want: "not a regular file"},
		"not a database":   {path: "text", setup: writeText, want: "not an SQLite database"},
		"another program":  {path: "other.db", setup: execute(`CREATE TABLE t (a)`), want: "another program"},
		"application ID":   {path: "other.db", setup: execute(`PRAGMA application_id = 7`), want: "another program"},
		"of a newer time":  {path: "new.db", setup: newer, want: "its schema has version 1000000, and this program supports versions up to 1"},
		"an empty file":    {path: "empty", setup: func(t *testing.T, path string) { write(t, path, "") }},
		"an empty, opened": {path: "empty.db", setup: execute(`VACUUM`)},
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
				t.Errorf("Unexpected error: want %q and the path in it, got %v", tc.want, err)
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
func openSQL(t *testing.T, path string) *sql.DB {
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
		"version":      {`PRAGMA user_version`, "1"},
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
		t.Errorf("Children are looked up by %q, error %v", plan, err)
	}
}

func TestCascadeOfCycle(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "turns.db"))
	for _, turn := range []*store.Session{makeTurn("a", "c"), makeTurn("b", "a"), makeTurn("c", "b"), makeTurn("d", "b"), makeTurn("x", "")} {
		save(t, s, turn)
	}
	if err := s.Delete(t.Context(), "b", store.DeleteOptions{Cascade: true}); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s is still there: %v", id, err)
		}
	}
	if _, err := s.Get(t.Context(), "x"); err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}

// TestBusy: while another process writes, a save waits until its context is done.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	save(t, s, makeTurn("resp_1", ""))
	db := openSQL(t, path)
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := s.Save(ctx, makeTurn("resp_2", ""), store.SaveOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Unexpected error: want that of the context, got %v", err)
	}
	if took := time.Since(start); took > 8*time.Second { // without a deadline it is 10 s
		t.Errorf("The save ended only after %v", took)
	}
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Errorf("Unexpected error of a read: %v", err)
	}

	saved := make(chan error)
	go func() { saved <- s.Save(t.Context(), makeTurn("resp_3", ""), store.SaveOptions{}) }()
	if _, err := db.ExecContext(t.Context(), `COMMIT`); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if err := <-saved; err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	for i := range 50 {
		save(t, s, makeTurn(fmt.Sprintf("resp_%d", i), strings.Repeat("x", 500)))
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	const page = 4096 // the first page has the schema
	for i := page; i < len(content); i++ {
		content[i] = 0xff
	}
	write(t, path, string(content))
	_, err = open(t, path).Get(t.Context(), "resp_7")
	if !errors.Is(err, store.ErrUnreadable) || store.IsRetryable(err) {
		t.Errorf("Unexpected error: want unreadable, got %v", err)
	}
}

// TestOpenAtOnce: several stores find no schema, and one creates it.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Errorf("Unexpected error: %v", err)
				return
			}
			if err := errors.Join(s.Save(t.Context(), makeTurn(fmt.Sprintf("resp_%d", i), ""), store.SaveOptions{}), s.Close()); err != nil {
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

const (
	// saverEnv has the path of the database for TestSaver.
	saverEnv   = "CATENA_TEST_SAVER"
	saverTurns = 200
)

// TestSaver is not a test but the process that startSaver starts. It saves a chain of turns named after its process, and as
// many turns with the same names and other contents in every saver. It prints the IDs of the saved turns.
func TestSaver(t *testing.T) {
	path := os.Getenv(saverEnv)
	if path == "" {
		t.Skip("started by other tests")
	}
	s := open(t, path)
	previous := ""
	for i := range saverTurns {
		own := makeTurn(fmt.Sprintf("own_%d_%d", os.Getpid(), i), previous)
		save(t, s, own)
		fmt.Fprintln(os.Stdout, own.ResponseID)
		previous = own.ResponseID

		shared := makeTurn(fmt.Sprintf("shared_%d", i), "")
		shared.Metadata = fmt.Appendf(nil, `{"saver":%d}`, os.Getpid())
		switch err := s.Save(t.Context(), shared, store.SaveOptions{}); {
		case err == nil:
			fmt.Fprintln(os.Stdout, shared.ResponseID)
		case !errors.Is(err, store.ErrConflict):
			t.Fatalf("Unable to save: %v", err)
		}
	}
}

// startSaver starts a saver and returns what it prints.
func startSaver(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSaver$")
	cmd.Env = append(os.Environ(), saverEnv+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("Unable to start a saver: %v", err)
	}
	return cmd, bufio.NewScanner(stdout)
}

// TestProcesses: two other processes save concurrently, to a file that does not exist yet.
func TestProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	var mu sync.Mutex
	winners := map[string]int{} // by response ID
	own := map[int]int{}
	var wait sync.WaitGroup
	for range 2 {
		cmd, lines := startSaver(t, path)
		wait.Go(func() {
			for lines.Scan() {
				mu.Lock()
				switch id := lines.Text(); {
				case strings.HasPrefix(id, "own"):
					own[cmd.Process.Pid]++
				case strings.HasPrefix(id, "shared"):
					if winners[id] != 0 {
						t.Errorf("%s has two winners", id)
					}
					winners[id] = cmd.Process.Pid
				}
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("A saver failed: %v", err)
			}
		})
	}
	wait.Wait()

	s := open(t, path)
	for i := range saverTurns {
		id := fmt.Sprintf("shared_%d", i)
		session, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatalf("Unexpected error: %v", err)
		}
		if want := fmt.Sprintf(`{"saver":%d}`, winners[id]); string(session.Metadata) != want {
			t.Errorf("%s has %s, want %s", id, session.Metadata, want)
		}
	}
	depth := saverTurns
	for pid, n := range own {
		last := fmt.Sprintf("own_%d_%d", pid, saverTurns-1)
		history, err := s.Resolve(t.Context(), last, store.ResolveOptions{MaxDepth: &depth})
		if n != saverTurns || err != nil || len(history.Turns) != saverTurns {
			t.Errorf("Process %d saved %d turns, error %v", pid, n, err)
		}
	}
}

// TestKill: saved turns are kept, and more can be saved, after a saver was killed.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	for range 3 {
		cmd, lines := startSaver(t, path)
		var saved []string
		for lines.Scan() {
			if id := lines.Text(); strings.HasPrefix(id, "own") || strings.HasPrefix(id, "shared") {
				saved = append(saved, id)
			}
			if len(saved) == 20 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatalf("Unable to kill the saver: %v", err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Log("The saver was done before it was killed")
		}
		if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
			t.Log("The saver had closed its file before it was killed")
		}
		s := open(t, path)
		for _, id := range saved {
			if _, err := s.Get(t.Context(), id); err != nil {
				t.Errorf("A saved turn is lost: %v", err)
			}
		}
		save(t, s, makeTurn(fmt.Sprintf("after_%d", cmd.Process.Pid), saved[0]))
		if err := s.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	}
}

// BenchmarkResolve is a history of 64 turns of 4 KiB.
func BenchmarkResolve(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "turns.db"))
	previous := ""
	for i := range 64 {
		turn := makeTurn(fmt.Sprintf("resp_%d", i), previous)
		turn.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("x", 4<<10))
		save(b, s, turn)
		previous = turn.ResponseID
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), previous, store.ResolveOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSave(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "turns.db"))
	i := 0
	for b.Loop() {
		turn := makeTurn(fmt.Sprintf("resp_%d", i), "")
		turn.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("x", 4<<10))
		save(b, s, turn)
		i++
	}
}
