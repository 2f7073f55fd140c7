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
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

func readAll(t *testing.T, content []byte) ([]string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "turns")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	turns, err := openTurns(path)
	if err != nil {
		return nil, err
	}
	defer turns.close()
	var got []string
	for {
		next, err := turns.next()
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

func TestReadTurns(t *testing.T) {
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

func TestIdentities(t *testing.T) {
	ids := &identities{run: "run", used: map[string]bool{}}
	var got []string
	for i, recorded := range []string{"resp_a", "resp_b", "resp_a", "", "", "resp_a"} {
		got = append(got, ids.choose(recorded, i+1))
	}
	want := []string{"resp_a", "resp_b", "resp_a_run_3", "resp_run_4", "resp_run_5", "resp_a_run_6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := newIdentities().run; got == newIdentities().run || got != strings.ToLower(got) {
		t.Errorf("run is %q, want a unique lower-case name", got)
	}
}

func TestSession(t *testing.T) {
	recorded := &turn{
		Request:  []byte(`{"model":"m","previous_response_id":"resp_recorded"}`),
		Response: []byte(`{"id":"resp_a","status":"queued","created_at":1778276251,"completed_at":null}`),
	}
	got, err := recorded.session("resp_b", "resp_a")
	if err != nil {
		t.Fatal(err)
	}
	want := &store.Session{
		ResponseID: "resp_b", PreviousResponseID: "resp_a", Status: store.StatusQueued,
		CreatedAt: time.Unix(1778276251, 0), Request: recorded.Request, Response: recorded.Response,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := recorded.recordedID(); got != "resp_a" {
		t.Errorf("got ID %q, want resp_a", got)
	}
	recorded.Response = []byte(`{"id":5}`)
	if got, err := recorded.session("resp_b", ""); err != nil || got.Status != store.StatusCompleted || recorded.recordedID() != "" {
		t.Errorf("got %+v and error %v, want a completed session without a recorded ID", got, err)
	}
}
