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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

const (
	// saverEnv has the path of the database for TestSaver, and saverTurnsEnv the number of turns.
	saverEnv      = "CATENA_TEST_SAVER"
	saverTurnsEnv = "CATENA_TEST_SAVER_TURNS"
	saverTurns    = 200
)

// TestSaver is not a test but the process that startSaver starts. It saves a chain of turns named after its process, and as
// many turns with the same names but different contents in every saver. It prints the IDs of the saved turns.
func TestSaver(t *testing.T) {
	path := os.Getenv(saverEnv)
	if path == "" {
		t.Skip("only started by other tests")
	}
	turns, err := strconv.Atoi(os.Getenv(saverTurnsEnv))
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	s := open(t, path)
	previous := ""
	for i := range turns {
		own := testturn.Make(fmt.Sprintf("own_%d_%d", os.Getpid(), i), previous)
		save(t, s, own)
		fmt.Fprintln(os.Stdout, own.ResponseID)
		previous = own.ResponseID

		shared := testturn.Make(fmt.Sprintf("shared_%d", i), "")
		shared.Metadata = fmt.Appendf(nil, `{"saver":%d}`, os.Getpid())
		switch err := s.Save(t.Context(), shared, store.SaveOptions{}); {
		case err == nil:
			fmt.Fprintln(os.Stdout, shared.ResponseID)
		case !errors.Is(err, store.ErrConflict):
			t.Fatalf("Unable to save: %v", err)
		}
	}
}

// startSaver starts a saver and returns its output. If nothing reads the output, the saver stops as soon as the pipe is full.
func startSaver(t *testing.T, path string, turns int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSaver$")
	cmd.Env = append(os.Environ(), saverEnv+"="+path, saverTurnsEnv+"="+strconv.Itoa(turns))
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

// TestConcurrentProcesses: two other processes save concurrently, to a file that does not exist yet.
func TestConcurrentProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	var mu sync.Mutex
	winners := map[string]int{} // by response ID
	own := map[int]int{}
	var wait sync.WaitGroup
	for range 2 {
		cmd, lines := startSaver(t, path, saverTurns)
		wait.Go(func() {
			for lines.Scan() {
				mu.Lock()
				switch id := lines.Text(); {
				case strings.HasPrefix(id, "own"):
					own[cmd.Process.Pid]++
				case strings.HasPrefix(id, "shared"):
					if winners[id] != 0 {
						t.Errorf("two savers of %s succeeded", id)
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
			t.Errorf("Process %d saved %d turns, and resolving the last one returned error %v", pid, n, err)
		}
	}
}

// TestKill: saved turns are kept, and more can be saved, after a saver was killed.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	for range 3 {
		cmd, lines := startSaver(t, path, saverTurns)
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
		save(t, s, testturn.Make(fmt.Sprintf("after_%d", cmd.Process.Pid), saved[0]))
		if err := s.Close(); err != nil {
			t.Errorf("Unable to close the store: %v", err)
		}
	}
}
