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
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/testenv"
)

// argumentsVariable is the environment variable with the arguments that make the test binary run the command.
const argumentsVariable = "CATENA_TEST_RUN"

func TestMain(m *testing.M) {
	if arguments := os.Getenv(argumentsVariable); arguments != "" {
		os.Args = append(os.Args[:1], strings.Fields(arguments)...)
		main()
		return
	}
	os.Exit(m.Run())
}

// running is the command, running as a separate process.
type running struct {
	*exec.Cmd
	output *bufio.Reader
	stderr bytes.Buffer
}

func start(t *testing.T, dir string) *running {
	t.Helper()
	r := &running{Cmd: exec.CommandContext(t.Context(), os.Args[0])}
	r.Env = append(os.Environ(), argumentsVariable+"=--gateway --gateway-port=0 --dir="+dir)
	r.Stderr = &r.stderr
	stdout, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.output = bufio.NewReader(stdout)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// until returns what the command prints, up to the first line that contains text.
func (r *running) until(t *testing.T, text string) string {
	t.Helper()
	var all strings.Builder
	for {
		line, err := r.output.ReadString('\n')
		all.WriteString(line)
		if strings.Contains(line, text) {
			return all.String()
		}
		if err != nil {
			t.Fatalf("%v before %q in\n%s%s", err, text, &all, &r.stderr)
		}
	}
}

// interrupt ends the command as Ctrl-C does.
func (r *running) interrupt(t *testing.T) {
	t.Helper()
	if err := r.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r.output)
	if err := r.Wait(); err != nil || !strings.Contains(string(rest), "Stopping") {
		t.Errorf("%v\n%s%s", err, rest, &r.stderr)
	}
	if err != nil {
		t.Error(err)
	}
}

var gatewayURL = regexp.MustCompile(`The gateway serves (http://127\.0\.0\.1:[0-9]+)/v1`)

// TestRun: the environment that `make run-gateway` starts works, leaves no processes behind when it ends, and finds its
// data again.
func TestRun(t *testing.T) {
	testenv.SkipIfShort(t)
	dir := t.TempDir()
	first := start(t, dir)
	printed := first.until(t, "Who am I?")
	for _, want := range []string{
		"resp.67ccd41be2f48190   resp_67ccd3a9da748190   completed     Resolved         3",
		"resp.5e0fabcd90028190   resp_5e0fabcd90018190   completed     ParentNotFound",
		"7       resp_67ccd41be2f48190   message                assistant   Take a light jacket",
		"conv.lisbon.pt   ada    Active   3       resp_67ccd49c0b7c8190   Resolved",
		" conv_lisbon\n",
		"export KUBECONFIG=" + dir + "/kubeconfig",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing in\n%s", want, printed)
		}
	}
	_, body := request(t, http.MethodPost, gatewayURL.FindStringSubmatch(printed)[1]+"/v1/responses", `{"model":"scripted","input":"hello"}`)
	id := gjson.Get(body, "id").String()

	second := start(t, dir)
	if err := second.Wait(); err == nil || !strings.Contains(second.stderr.String(), "stop it first") {
		t.Errorf("got %v from a second run in the same directory: %s", err, &second.stderr)
	}
	first.interrupt(t)
	if left := processesOf(t, dir); len(left) > 0 {
		t.Errorf("processes are still running: %q", left)
	}

	third := start(t, dir)
	printed = third.until(t, "Who am I?")
	status, body := request(t, http.MethodGet, gatewayURL.FindStringSubmatch(printed)[1]+"/v1/responses/"+id, "")
	if status != http.StatusOK || gjson.Get(body, "id").String() != id {
		t.Errorf("get the turn of the first run: %d %s", status, body)
	}
	third.interrupt(t)
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// processesOf returns the command lines of processes that refer to a directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(dir)) { // it may have ended meanwhile
			found = append(found, string(line))
		}
	}
	return found
}
