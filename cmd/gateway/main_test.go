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
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testutil/flagtable"
	"github.com/catena-dev/catena/internal/testutil/golden"
	"github.com/catena-dev/catena/internal/version"
	"github.com/catena-dev/catena/store/kube"
)

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		wantErr string
	}{
		"defaults":                  {[]string{"--upstream=http://localhost:1"}, ""},
		"no upstream":               {nil, "--upstream is required"},
		"certificate without key":   {[]string{"--upstream=http://127.0.0.1:1", "--tls-cert-file=tls.crt"}, "--tls-private-key-file must be set"},
		"invalid upstream":          {[]string{"--upstream=http://[x"}, `invalid argument "http://[x" for "--upstream" flag`},
		"upstream that is not HTTP": {[]string{"--upstream=ftp://host"}, "must be an http or https URL"},
		"upstream with query":       {[]string{"--upstream=http://host?a=b"}, "must not have a query or a fragment"},
		"argument":                  {[]string{"--upstream=http://localhost:1", "x"}, `unexpected argument "x"`},
		"unknown flag":              {[]string{"--nothing"}, "unknown flag: --nothing"},
		"localhost":                 {[]string{"--upstream=http://localhost:1", "--listen-address=localhost:0"}, ""},
		"IPv6 loopback":             {[]string{"--upstream=http://localhost:1", "--listen-address=[::1]:0"}, ""},
		"all addresses":             {[]string{"--upstream=http://localhost:1", "--listen-address=:8090"}, "--listen-address is :8090: must be a loopback address unless --tenants-file"},
		"another address":           {[]string{"--upstream=http://localhost:1", "--listen-address=192.0.2.1:80"}, "must be a loopback address unless --tenants-file"},
		"host name":                 {[]string{"--upstream=http://localhost:1", "--listen-address=gateway:80"}, "must be a loopback address unless --tenants-file"},
		"anonymous":                 {[]string{"--upstream=http://localhost:1", "--listen-address=:80", "--insecure-allow-anonymous"}, ""},
		"tenants on all addresses":  {[]string{"--upstream=http://localhost:1", "--listen-address=:80", "--tenants-file=x"}, ""},
		"origins":                   {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=https://app.example.com,http://localhost:3000,tauri://localhost"}, ""},
		"all origins":               {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=*"}, ""},
		"origin with path":          {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=https://app.example.com/"}, `--cors-allowed-origins: invalid origin "https://app.example.com/"`},
		"origin without scheme":     {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=app.example.com"}, `invalid origin "app.example.com"`},
		"origin with pattern":       {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=https://*.example.com"}, `invalid origin "https://*.example.com"`},
		"origin with default port":  {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=https://app.example.com:443"}, `invalid origin "https://app.example.com:443"`},
		"origin null":               {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=null"}, `invalid origin "null"`},
		"empty origin":              {[]string{"--upstream=http://localhost:1", "--cors-allowed-origins=https://app.example.com,"}, `invalid origin ""`},
		"upstream with /v1":         {[]string{"--upstream=https://engine.example/v1/"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(tc.args, io.Discard)
			if err == nil {
				err = o.gateway.Validate()
			}
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

// TestLargestTurn: a turn with the largest request and the largest response can be stored.
func TestLargestTurn(t *testing.T) {
	o := gateway.DefaultOptions()
	if got := o.MaxRequestBytes + o.MaxResponseBytes; got != kube.DefaultMaxTurnBytes {
		t.Errorf("the gateway accepts turns of up to %d bytes, the store only up to %d", got, kube.DefaultMaxTurnBytes)
	}
}

// TestFlagsInDocs: docs/operations.md lists all flags.
func TestFlagsInDocs(t *testing.T) {
	flags := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	newOptions().addFlags(flags)
	golden.Section(t, "docs/operations.md", "gateway flags", flagtable.Of(flags, map[string]string{"max-parses": "CPUs, at least 2"}))
}

func TestRunFails(t *testing.T) {
	for name, tc := range map[string]struct{ arg, wantErr string }{
		"store":                 {"--store=nowhere:", "unable to open the store"},
		"tenants file":          {"--tenants-file=" + filepath.Join(t.TempDir(), "none"), "unable to read the tenants file"},
		"key file":              {"--upstream-api-key-file=/dev/null", "unable to use the upstream-api-key file /dev/null: must not be empty"},
		"instructions":          {"--instructions=Some", `--instructions is "Some": must be one of Omit, Last, All`},
		"depth above the limit": {"--max-depth=20000", `--max-depth is 20000: must be from 1 to 10000`},
		"depth":                 {"--max-depth=0", "--max-depth is 0: must be from 1 to 10000"},
		"short reservation":     {"--conversation-reservation=999ms", "--conversation-reservation is 999ms: must be whole seconds, from 1s to 10m0s"},
		"zero timeout":          {"--request-timeout=0s", "--request-timeout is 0s: must be positive"},
		"negative delay":        {"--shutdown-delay-duration=-1s", "--shutdown-delay-duration is -1s: must not be negative"},
		"on disconnect":         {"--on-disconnect=go-on", `--on-disconnect is "go-on": must be cancel or finish`},
		"request size":          {"--max-request-bytes=0", "--max-request-bytes is 0: must be at least 1"},
		"response size":         {"--max-response-bytes=0", "--max-response-bytes is 0: must be at least 1"},
		"in-flight size":        {"--max-inflight-bytes=1", "--max-inflight-bytes is 1: must be at least 292421632 for --max-request-bytes=33554432 and --response-reserve-bytes=65536"},
		"parses":                {"--max-parses=1", "--max-parses is 1: must be at least 2"},
		"reads":                 {"--max-reads=1", "--max-reads is 1: must be at least 2"},
		"namespace":             {"--namespace=A", `--namespace: invalid namespace "A"`},
		"invalid address":       {"--listen-address=127.0.0.1:x", "unable to listen on 127.0.0.1:x"},
		"metrics address":       {"--metrics-bind-address=127.0.0.1:x", "unable to listen on 127.0.0.1:x"},
		"health address":        {"--health-probe-bind-address=127.0.0.1:x", "unable to listen on 127.0.0.1:x"},
		"profiling address":     {"--profiling-bind-address=127.0.0.1:x", "unable to listen on 127.0.0.1:x"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{
				"--upstream=http://localhost:1", "--store=memory:", "--listen-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
				"--health-probe-bind-address=127.0.0.1:0", "--shutdown-delay-duration=0s", tc.arg,
			}
			if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var stdout strings.Builder
	if err := run(t.Context(), []string{"--version"}, &stdout, io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := "gateway " + version.String() + "\n"; stdout.String() != want {
		t.Errorf("got %q, want %q", stdout.String(), want)
	}
}

// start runs the gateway with a store until the test ends or stop is called, and returns its URL.
func start(t *testing.T, store, upstream string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	log, stderr := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--store=" + store, "--upstream=" + upstream, "--listen-address=127.0.0.1:0", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--shutdown-delay-duration=0s"}, io.Discard, stderr)
		_ = stderr.Close()
	}()
	lines := bufio.NewScanner(log)
	if !lines.Scan() || gjson.Get(lines.Text(), "msg").Str != "serving" {
		t.Fatalf("the gateway is not serving: %s, %v", lines.Text(), <-done)
	}
	url = "http://" + gjson.Get(lines.Text(), "address").Str
	go func() { _, _ = io.Copy(io.Discard, log) }()
	return url, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTurnsSurviveRestart(t *testing.T) {
	engine := httptest.NewServer(enginetest.Handler())
	defer engine.Close()
	store := "sqlite:" + filepath.Join(t.TempDir(), "turns.db")
	previous := ""
	for i, upstream := range []string{engine.URL, engine.URL + "/v1", engine.URL + "/v1/"} {
		url, stop := start(t, store, upstream)
		body := create(t, url, map[string]any{"input": fmt.Sprint(i), "previous_response_id": previous})
		want := fmt.Sprintf("You said %d things, from '0' to '%d'.", i+1, i)
		if got := gjson.Get(body, "output.0.content.0.text").Str; got != want {
			t.Errorf("got %s, want %s", body, want)
		}
		previous = gjson.Get(body, "id").Str
		stop()
	}
}

func TestReplicasShareTurns(t *testing.T) {
	engine := httptest.NewServer(enginetest.Handler())
	defer engine.Close()
	store := "sqlite:" + filepath.Join(t.TempDir(), "turns.db")
	var urls []string
	for range 2 {
		url, stop := start(t, store, engine.URL)
		defer stop()
		urls = append(urls, url)
	}
	previous := ""
	for i := range 10 {
		body := create(t, urls[i%2], map[string]any{"input": fmt.Sprint(i), "previous_response_id": previous})
		if got := gjson.Get(body, "output.0.content.0.text").Str; !strings.HasPrefix(got, fmt.Sprintf("You said %d things", i+1)) {
			t.Fatalf("turn %d: got %s, want %d messages in the conversation", i, body, i+1)
		}
		previous = gjson.Get(body, "id").Str
	}
}

func create(t *testing.T, url string, body map[string]any) string {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/responses", strings.NewReader(string(encoded)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
