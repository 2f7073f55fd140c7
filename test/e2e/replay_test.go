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

package e2e_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// recordedTurns returns lines in the format that cmd/replay reads.
func recordedTurns() []string {
	var lines []string
	for i, request := range []string{
		`{"instructions":"Be brief.","input":"Weather?","temperature":1.0}`,
		`{"input":[{"role":"user","content":"no type"},{"type":"function_call_output","call_id":"c","output":"21.50"}],"tools":[{"type":"function"}]}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"<é> \ud83d\ude00"}]}],"top_logprobs":-0.00012345678901234567890}`,
		`{"input":null,"background":true}`,
	} {
		status := "completed"
		if strings.Contains(request, "background") {
			status = "queued"
		}
		id := fmt.Sprintf("resp_%d", i%3) // resp_0 occurs twice
		lines = append(lines, fmt.Sprintf(
			`{"source":"test","request":%s,"response":{"id":%q,"status":%q,"created_at":1778276251.5,"output":[%s,{"type":"reasoning","summary":[],"n":1e2}]}}`,
			request, id, status, testutil.AssistantMessage("answer")))
	}
	return lines
}

// replay runs cmd/replay with a file of lines.
func replay(t *testing.T, program, namespace string, compress bool, lines []string, flags ...string) (output, stderr string, code int) {
	t.Helper()
	content := []byte(strings.Join(lines, "\n"))
	if compress {
		var buffer bytes.Buffer
		writer := gzip.NewWriter(&buffer)
		if _, err := writer.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		content = buffer.Bytes()
	}
	path := filepath.Join(t.TempDir(), "turns")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	args := append([]string{"--kubeconfig=" + env.Kubeconfig, "--namespace=" + namespace}, flags...)
	command := exec.CommandContext(t.Context(), program, append(args, path)...)
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

func TestReplay(t *testing.T) {
	program, err := testenv.BuildProgram(t.Context(), "replay")
	if err != nil {
		t.Fatal(err)
	}
	large := `{"request":{"input":"` + strings.Repeat("a", 1_500_000) + `"},"response":{"id":"resp_large"}}`
	cases := map[string]struct {
		compress   bool
		lines      []string
		flags      []string
		want       []string // part of the output
		wantErrors []string // part of the error output
		wantCode   int
	}{
		"one chain": {
			lines: recordedTurns(),
			want:  []string{"4 recorded, 4 stored, 0 skipped", "chains 1 of up to 16 turns", "items 13 in", "differences 0"},
		},
		"gzipped, short chains, a turn larger than an object": {
			compress: true, lines: append([]string{large}, recordedTurns()...), flags: []string{"--chain-length=3", "--workers=2"},
			want: []string{"5 recorded, 5 stored, 0 skipped", "chains 2 of up to 3 turns", "differences 0"},
		},
		"a turn that is too large": {
			lines: append([]string{large}, recordedTurns()...), flags: []string{"--max-turn-bytes=1000000"},
			want:       []string{"5 recorded, 4 stored, 1 skipped", "chains 1 of up to 16 turns", "differences 0"},
			wantErrors: []string{`line 1: skipping turn "resp_large"`, "--max-turn-bytes"},
		},
		"a chain beyond the default depth": {
			lines: longRecording(70), flags: []string{"--chain-length=70"},
			want: []string{"chains 1 of up to 70 turns", "differences 0"},
		},
		// A custom resource would not preserve integers beyond int64.
		"a number that the API server would change": {
			lines: []string{`{"request":{"input":[{"type":"x","n":12345678901234567890}]},"response":{"id":"resp_n"}}`},
			want:  []string{"1 recorded, 1 stored", "differences 0"},
		},
		"a turn that cannot be resolved": {
			lines:      []string{`{"request":{"instructions":["a"]},"response":{"id":"resp_u"}}`},
			wantErrors: []string{"cannot be converted into input items"}, wantCode: 1,
		},
		"not a turn": {lines: []string{"hello"}, wantErrors: []string{"line 1 is not a turn"}, wantCode: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := env.NewNamespace(t) + "-replay" // which cmd/replay creates
			for run := range 2 {
				output, stderr, code := replay(t, program, namespace, tc.compress, tc.lines, tc.flags...)
				if code != tc.wantCode {
					t.Fatalf("run %d: exit code %d, want %d\n%s%s", run, code, tc.wantCode, output, stderr)
				}
				output = strings.Join(lines(output), "\n")
				for _, want := range tc.want {
					if !strings.Contains(output, want) {
						t.Errorf("run %d: want %q in\n%s%s", run, want, output, stderr)
					}
				}
				for _, want := range tc.wantErrors {
					if !strings.Contains(stderr, want) {
						t.Errorf("run %d: want %q in\n%s", run, want, stderr)
					}
				}
			}
		})
	}
}

func longRecording(turns int) []string {
	var lines []string
	for i := range turns {
		lines = append(lines, fmt.Sprintf(`{"request":{"input":"question %d"},"response":{"id":"resp_long_%d","output":[%s]}}`, i, i, testutil.AssistantMessage("answer")))
	}
	return lines
}
