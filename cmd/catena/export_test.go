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
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriteOutput: a file has its name only if it is complete, and replaces none.
func TestWriteOutput(t *testing.T) {
	failure := errors.New("the cluster is gone")
	tests := map[string]struct {
		existing string
		err      error
		want     []string
		wantErr  bool
	}{
		"complete":  {want: []string{"file"}},
		"failed":    {err: failure, wantErr: true},
		"exists":    {existing: "file", want: []string{"file"}, wantErr: true},
		"a rest of": {existing: "file.partial", want: []string{"file"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.existing != "" {
				if err := os.WriteFile(filepath.Join(dir, tc.existing), []byte("old text"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := writeOutput(filepath.Join(dir, "file"), func(out io.Writer) error {
				_, err := io.WriteString(out, "text")
				return errors.Join(err, tc.err)
			})
			if (err != nil) != tc.wantErr || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("got %v", err)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				left = append(left, entry.Name())
			}
			if diff := cmp.Diff(tc.want, left); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if text, err := os.ReadFile(filepath.Join(dir, "file")); !tc.wantErr && (err != nil || string(text) != "text") {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
}

func TestPrintProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		sessions int
		want     string
	}{"known": {3, "import: 1 of 3 sessions\nimport: 2 of 3 sessions\n"}, "unknown": {-1, "import: 1 sessions\nimport: 2 sessions\n"}} {
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
