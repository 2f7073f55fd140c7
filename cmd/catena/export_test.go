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

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriteOutput: a file has its name only if it is complete, and replaces none. Nothing else is left, or touched.
func TestWriteOutput(t *testing.T) {
	failure := errors.New("the cluster is gone")
	tests := map[string]struct {
		before, during map[string]string // as for create
		err            error
		want           map[string]string
		wantErr        string
	}{
		"complete":          {want: map[string]string{"file": "text"}},
		"failed":            {err: failure, want: map[string]string{}, wantErr: failure.Error()},
		"exists":            {before: map[string]string{"file": "old"}, want: map[string]string{"file": "old"}, wantErr: "exists: choose another name"},
		"a link exists":     {before: map[string]string{"file": "-> gone"}, want: map[string]string{"file": "-> gone"}, wantErr: "exists: choose another name"},
		"appears meanwhile": {during: map[string]string{"file": "other"}, want: map[string]string{"file": "other"}, wantErr: "exists: choose another name"},
		"left by a killed export": {
			before: map[string]string{"file.1.partial": "rest", "file.partial": "rest"},
			want:   map[string]string{"file.1.partial": "rest", "file.partial": "rest", "file": "text"},
		},
		"a planted link": {
			before: map[string]string{"file.partial": "-> victim", "victim": "old"},
			want:   map[string]string{"file.partial": "-> victim", "victim": "old", "file": "text"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			create(t, dir, tc.before)
			err := writeOutput(filepath.Join(dir, "file"), func(out io.Writer) error {
				create(t, dir, tc.during)
				_, err := io.WriteString(out, "text")
				return errors.Join(err, tc.err)
			})
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, contents(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOutputOfTwo: of two exports to one file, the first that is complete has the name, and the file is as it has written it.
func TestOutputOfTwo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	err := writeOutput(path, func(out io.Writer) error {
		_, err := io.WriteString(out, "the slow one")
		return errors.Join(err, writeOutput(path, func(out io.Writer) error {
			_, err := io.WriteString(out, "the fast one")
			return err
		}))
	})
	if err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(map[string]string{"file": "the fast one"}, contents(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v, want 0600", info.Mode(), err)
	}
}

// TestPublishWithoutLinks: where links are refused, as those to directories always are, a file is renamed.
func TestPublishWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	temporary, path := filepath.Join(dir, "temporary"), filepath.Join(dir, "file")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := publish(temporary, path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(temporary); !os.IsNotExist(err) {
		t.Errorf("the temporary name is left: %v", err)
	}
}

// create creates files with texts in a directory, or symbolic links for texts that begin with an arrow.
func create(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		var err error
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns what create needs to create the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if target, err := os.Readlink(path); err == nil {
			files[entry.Name()] = "-> " + target
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = string(text)
	}
	return files
}

func TestPrintProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		sessions int
		want     string
	}{"known": {3, "import: 1 of 3 objects\nimport: 2 of 3 objects\n"}, "unknown": {-1, "import: 1 objects\nimport: 2 objects\n"}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			step, end := printProgress(&out, "import", tc.sessions, 0)
			step()
			step()
			end()
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
