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

package recorded

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readAll(t *testing.T, content []byte) ([]string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "turns")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	turns, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer turns.Close()
	var got []string
	for {
		next, err := turns.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(next.Request)+string(next.Response))
	}
}

func gzipped(t *testing.T, content string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	zipper := gzip.NewWriter(&buffer)
	if _, err := zipper.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := zipper.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func TestReader(t *testing.T) {
	const two = `{"source":"x","request":{"a":1.0},"response":{}}` + "\n\n" + `{"request":{"b":2},"response":{"id":"r"}}`
	large := `{"request":{"input":"` + strings.Repeat("a", 3<<20) + `"},"response":{}}`
	cases := map[string]struct {
		content []byte
		want    []string
		wantErr string
	}{
		"plain":               {content: []byte(two), want: []string{`{"a":1.0}{}`, `{"b":2}{"id":"r"}`}},
		"gzipped":             {content: gzipped(t, two+"\n"), want: []string{`{"a":1.0}{}`, `{"b":2}{"id":"r"}`}},
		"long line":           {content: gzipped(t, large), want: []string{large[len(`{"request":`):len(large)-len(`,"response":{}}`)] + "{}"}},
		"nothing":             {},
		"not JSON":            {content: []byte(two + "\nhello\n"), want: []string{`{"a":1.0}{}`, `{"b":2}{"id":"r"}`}, wantErr: "line 4 is not a turn"},
		"no response":         {content: []byte(`{"request":{}}`), wantErr: `line 1 is not a turn: "response" must be an object`},
		"request is null":     {content: []byte(`{"request":null,"response":{}}`), wantErr: `"request" must be an object`},
		"truncated gzip":      {content: gzipped(t, large)[:50], wantErr: "unexpected EOF"},
		"invalid gzip header": {content: []byte("\x1f\x8bxx"), wantErr: "unable to read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(t, tc.content)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}
