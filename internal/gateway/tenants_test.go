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

package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

func TestParseTenants(t *testing.T) {
	sum := sha256.Sum256([]byte("sk-b"))
	hash := hex.EncodeToString(sum[:])
	for name, tc := range map[string]struct {
		content, wantErr string
		want             int
	}{
		"YAML":            {"- {namespace: a, key: sk-a}\n- {namespace: b, keySHA256: " + hash + "}\n", "", 2},
		"JSON":            {`[{"namespace":"a","key":"sk-a"}]`, "", 1},
		"no tenants":      {`[]`, "", 0},
		"two keys":        {`[{"namespace":"a","key":"1"},{"namespace":"a","key":"2"}]`, "", 2},
		"upper-case hash": {`[{"namespace":"a","keySHA256":"` + strings.ToUpper(hash) + `"}]`, "", 1},
		"empty":           {"", "must not be empty", 0},
		"not a list":      {"sk-a: a", "must be a list of {namespace, key or keySHA256}", 0},
		"unknown field":   {`[{"namespace":"a","keys":"sk-a"}]`, "must be a list of {namespace, key or keySHA256}", 0},
		"no key":          {`[{"namespace":"a"}]`, "entry 0: must have either a `key` or a `keySHA256`", 0},
		"both":            {`[{"namespace":"a","key":"sk-a","keySHA256":"` + hash + `"}]`, "entry 0: must have either a `key` or a `keySHA256`", 0},
		"short hash":      {`[{"namespace":"a","keySHA256":"abcd"}]`, "entry 0: `keySHA256` must be 64 hexadecimal digits", 0},
		"no namespace":    {`[{"key":"sk-a"}]`, `entry 0: invalid namespace ""`, 0},
		"duplicate key": {
			`[{"namespace":"a","key":"sk-b"},{"namespace":"b","keySHA256":"` + hash + `"}]`, `entry 1: the key already belongs to the namespace "a"`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTenants([]byte(tc.content))
			if tc.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.wantErr) || strings.Contains(err.Error(), "sk-") {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || len(got) != tc.want {
				t.Errorf("got %d, %v, want %d", len(got), err, tc.want)
			}
		})
	}
}

// startTenants starts a gateway for the tenants a and b, with the keys sk-a and sk-b.
func startTenants(t *testing.T) (f *fixture, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tenants.yaml")
	write(t, file, "- {namespace: a, key: sk-a}\n- {namespace: b, key: sk-b}\n")
	return start(t, nil, func(o *Options) { o.TenantsFile = file }), file
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTenantsAreIsolated(t *testing.T) {
	f, _ := startTenants(t)
	a, b := []string{"Authorization", "Bearer sk-a"}, []string{"Authorization", "bearer sk-b"}
	id := f.create(`{"input":"My name is Ada."}`, a...).get("id")
	if _, header := f.sent.last(); header.Get("Authorization") != "" {
		t.Error("the engine received the tenant's key")
	}
	for name, tc := range map[string]struct{ method, path, body string }{
		"retrieve":    {http.MethodGet, "/v1/responses/ID", ""},
		"delete":      {http.MethodDelete, "/v1/responses/ID", ""},
		"input items": {http.MethodGet, "/v1/responses/ID/input_items", ""},
		"continue":    {http.MethodPost, "/v1/responses", `{"previous_response_id":"ID","input":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(id string) string {
				r := f.do(tc.method, strings.ReplaceAll(tc.path, "ID", id), strings.ReplaceAll(tc.body, "ID", id), append(b, "X-Request-Id", "x")...)
				r.header.Del("Date")
				return strings.ReplaceAll(fmt.Sprint(r.status, r.header, r.body), id, "ID")
			}
			other, none := ask(id), ask("resp_"+strings.Repeat("0", 32))
			if other != none {
				t.Errorf("another tenant's response is visible:\n%s\n%s", other, none)
			}
		})
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"previous_response_id":"`+id+`","input":"x"}`, a...); r.status != http.StatusOK {
		t.Errorf("the tenant itself got %d %s", r.status, r.body)
	}
}

func TestKeys(t *testing.T) {
	f, _ := startTenants(t)
	for name, tc := range map[string]struct {
		authorization, wantMessage string
	}{
		"missing": {"", "You didn't provide an API key: send it in an Authorization header, as in Authorization: Bearer KEY."},
		"basic":   {"Basic sk-a", "You didn't provide an API key: send it in an Authorization header, as in Authorization: Bearer KEY."},
		"unknown": {"Bearer sk-c", "Incorrect API key provided."},
		"prefix":  {"Bearer sk-", "Incorrect API key provided."},
		"hash":    {"Bearer " + fmt.Sprintf("%x", sha256.Sum256([]byte("sk-a"))), "Incorrect API key provided."},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/responses/resp_a", "/v1/models", "/nowhere"} {
				r := f.do(http.MethodGet, path, "", "Authorization", tc.authorization)
				if r.code() != "Unauthorized invalid_api_key" || r.get("error.message") != tc.wantMessage {
					t.Errorf("%s: got %d %s", path, r.status, r.body)
				}
			}
		})
	}
	if f.sent.count() != 0 {
		t.Error("the engine received a request")
	}
}

// TestWholeKeyIsCompared checks that hashes are compared to their last byte.
func TestWholeKeyIsCompared(t *testing.T) {
	for place := range sha256.Size {
		sum := sha256.Sum256([]byte("sk-a"))
		sum[place] ^= 1
		keys := &tenants{}
		if err := keys.load([]byte(`[{"namespace":"a","keySHA256":"` + hex.EncodeToString(sum[:]) + `"}]`)); err != nil {
			t.Fatal(err)
		}
		if namespace, err := keys.namespaceOf("Bearer sk-a"); err == nil {
			t.Errorf("another key, whose hash differs in byte %d, has the namespace %q", place, namespace)
		}
	}
}

// TestTenantsFileIsWatched checks that the file is reloaded while the gateway serves.
func TestTenantsFileIsWatched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tenants.yaml")
	write(t, file, "- {namespace: a, key: sk-a}\n")
	f := newFixture(t, enginetest.Handler(), func(o *Options) { o.TenantsFile, o.ReloadInterval = file, time.Millisecond })
	_, _, stop, done := serveFixture(t, f)
	write(t, file, "- {namespace: b, key: sk-b}\n")
	for f.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer sk-b").status != http.StatusOK {
		if t.Context().Err() != nil {
			t.Fatal("the change was not loaded")
		}
	}
	if r := f.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer sk-a"); r.status != http.StatusUnauthorized {
		t.Errorf("got status %d for the old key, want 401", r.status)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTenantsReload(t *testing.T) {
	f, file := startTenants(t)
	status := func(key string) int {
		return f.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer "+key).status
	}
	failures := func() float64 { return testutil.ToFloat64(f.gateway.metrics.reloadFailures.WithLabelValues("tenants")) }

	write(t, file, "- {namespace: c, key: sk-c}\n")
	f.gateway.reloadFiles()
	if a, c := status("sk-a"), status("sk-c"); a != 401 || c != 200 {
		t.Errorf("after a change: got status %d for the old key and %d for the new one, want 401 and 200", a, c)
	}

	write(t, file, "- {namespace: C, key: sk-d}\n")
	f.gateway.reloadFiles()
	f.gateway.reloadFiles()
	if c, d := status("sk-c"), status("sk-d"); c != 200 || d != 401 || failures() != 2 {
		t.Errorf("after an invalid change: got status %d for the valid key and %d for the rejected one, and %v failures, want 200, 401 and 2", c, d, failures())
	}
	if n := strings.Count(f.log.String(), "keeping its last valid content"); n != 1 || strings.Contains(f.log.String(), "sk-") {
		t.Errorf("logged the failure %d times, want once and without keys: %s", n, f.log)
	}

	// A mounted Secret changes by swapping a symbolic link.
	other := filepath.Join(t.TempDir(), "new.yaml")
	write(t, other, "- {namespace: d, key: sk-d}\n")
	if err := os.Symlink(other, file+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	f.gateway.reloadFiles()
	if d := status("sk-d"); d != 200 {
		t.Errorf("after a valid change: got status %d, want 200", d)
	}
}

func TestUpstreamKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "up-1\n")
	f := start(t, nil, func(o *Options) { o.UpstreamAPIKeyFile = file })
	for _, want := range []string{"up-1", "up-2"} {
		write(t, file, want)
		f.gateway.reloadFiles()
		f.create(`{"input":"a"}`, "Authorization", "Bearer mine", "Openai-Organization", "o", "Openai-Project", "p")
		_, header := f.sent.last()
		if header.Get("Authorization") != "Bearer "+want {
			t.Errorf("the engine got %q, want the key %s", header.Get("Authorization"), want)
		}
		if got := header.Get("Openai-Organization") + header.Get("Openai-Project"); got != "" {
			t.Errorf("the engine got the account %q that the client chose", got)
		}
	}
}

// TestReadsAreShared: a tenant whose reads take long reads no more than its share at once, and another one reads meanwhile.
func TestReadsAreShared(t *testing.T) {
	f := start(t, nil, twoTenants(t), func(o *Options) { o.MaxReads = 2 })
	create := func(tenant, input string) string {
		return "/v1/responses/" + f.do(http.MethodPost, "/v1/responses", `{"input":"`+input+`"}`, "Authorization", "Bearer "+tenant).get("id")
	}
	ofA, ofB := create("a", "x"), create("b", "x")
	reads, proceed := make(chan struct{}, 100), make(chan struct{})
	var first atomic.Bool
	first.Store(true)
	f.store.onGet = func() error {
		reads <- struct{}{}
		if first.Swap(false) {
			<-proceed
		}
		return nil
	}
	get := func(path, tenant string) {
		if r := f.do(http.MethodGet, path, "", "Authorization", "Bearer "+tenant); r.status != http.StatusOK {
			t.Errorf("tenant %s got %d %s", tenant, r.status, r.body)
		}
	}
	var group sync.WaitGroup
	group.Go(func() { get(ofA, "a") })
	<-reads // it takes long
	for range 2 {
		group.Go(func() { get(ofA, "a") })
	}
	get(ofB, "b")
	<-reads
	if more := len(reads); more != 0 {
		t.Errorf("tenant a reads %d more at once", more)
	}
	close(proceed)
	group.Wait()
	if used := f.gateway.reads.all.Used(); used != 0 {
		t.Errorf("%d reads are still counted", used)
	}
	f.gateway.reads.now = func() time.Time { return time.Unix(1, 0) }
	get(create("a", strings.Repeat("x", readUnit)), "a")
	if got := f.gateway.reads.lastOf("a"); got != readUnit {
		t.Errorf("the last turn has %d bytes, want at most %d", got, readUnit)
	}
}
