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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// TestPing: a store whose file is no longer the one that was opened cannot be used.
func TestPing(t *testing.T) {
	replace := func(with func(t *testing.T, path string)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			other := filepath.Join(t.TempDir(), "other.db")
			with(t, other)
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, path string)
		want   string
		code   error
	}{
		"unchanged":           {func(*testing.T, string) {}, "", nil},
		"removed":             {remove, "was removed or replaced", nil},
		"directory removed":   {func(t *testing.T, path string) { moveAway(t, filepath.Dir(path)) }, "was removed or replaced", nil},
		"replaced by another": {replace(func(t *testing.T, path string) { open(t, path) }), "was removed or replaced", nil},
		"replaced by a text":  {replace(writeText), "was removed or replaced", nil},
		"migrated":            {execute(migration), "use a newer program", store.ErrUnsupported},
		"of an older version": {execute(`PRAGMA user_version = 0`), "replaced by another file", nil},
		"of another program":  {execute(`PRAGMA application_id = 7`), "another program", nil},
		"without the table":   {execute(`DROP TABLE turns`), "no such table", nil},
		"written by another":  {execute(`DELETE FROM turns`), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "turns.db")
			s := open(t, path)
			save(t, s, testturn.Make("resp_1", ""))
			tc.change(t, path)
			err := s.Ping(t.Context())
			if tc.want == "" {
				if err != nil {
					t.Errorf("Unexpected error: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || store.IsRetryable(err) || tc.code != nil && !errors.Is(err, tc.code) {
				t.Errorf("Unexpected error: want one that contains %q with code %v, got %v", tc.want, tc.code, err)
			}
		})
	}
}

func moveAway(t *testing.T, dir string) {
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
}

// TestPingWhileWriting: a store can be used while another process holds the write lock.
func TestPingWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turns.db")
	s := open(t, path)
	tx, err := openSQL(t, path).BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), `DELETE FROM turns`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Ping(t.Context()), tx.Rollback()); err != nil {
		t.Errorf("Unexpected error: %v", err)
	}
}
