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

package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// The gateway's memory limit in TestMemory, and the additional memory that docs/gateway.md allows for the program.
const (
	memoryLimit   = 192 << 20
	memoryProgram = 128 << 20
)

// The load of TestMemory: for each tenant, clients that send every kind of request, and some that only begin to
// send a request or to read a response.
const (
	memoryTenants = 3
	memoryClients = 8
	memoryRounds  = 1
	memoryStalled = 2
)

// TestMemory reads the resident memory of the gateway's process, which must stay below its limit, while tenants send large
// requests of many tiny members, the engine sends equally large responses, and long conversations are continued and listed.
func TestMemory(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(largeAnswer))
	defer engine.Close()
	var tenants []string
	var file strings.Builder
	for range memoryTenants {
		namespace := env.NewNamespace(t)
		tenants = append(tenants, namespace)
		fmt.Fprintf(&file, "- {namespace: %s, key: %s}\n", namespace, namespace)
	}
	path := filepath.Join(t.TempDir(), "tenants.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Upstream: engine.URL, Args: []string{
		"--store=" + testenv.StoreURL("default", env.Kubeconfig), "--tenants-file=" + path,
		fmt.Sprintf("--max-inflight-bytes=%d", memoryLimit), "--max-request-bytes=8388608", "--max-response-bytes=8388608",
		"--save-timeout=2s", // a save that cannot succeed holds its memory until this timeout
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := gateway.Stop(); err != nil {
			t.Error(err)
		}
	}()
	load := &memoryLoad{rawClient: rawClient{url: gateway.URL, replies: map[string]int{}}, tenants: tenants, previous: map[string]string{}}
	load.seed(t)
	load.run(t)
	for kind := range memoryRequests("") {
		t.Logf("%s: %d of %d answered, the others rejected", kind, load.replies[kind+" 200"], memoryTenants*memoryClients*memoryRounds)
	}
	for reply, n := range load.replies {
		switch {
		case strings.HasSuffix(reply, " 200"), strings.HasSuffix(reply, " 429 overloaded"), reply == "delete missing 404 ":
		case strings.HasSuffix(reply, syscall.EPIPE.Error()), strings.HasSuffix(reply, syscall.ECONNRESET.Error()):
			// Half a second after a rejection, net/http closes the connection: a client that is late does not receive the response.
		default:
			t.Errorf("%d times %s", n, reply)
		}
	}
	peak := testutil.PeakMemory(t, gateway.PID())
	t.Logf("resident memory: at most %d MiB", peak>>20)
	if peak > memoryLimit+memoryProgram {
		t.Errorf("the gateway used %d MiB, want at most %d", peak>>20, (memoryLimit+memoryProgram)>>20)
	}
}

// tinyItems are many tiny items: parsed into trees of objects, they would take many times their size.
var tinyItems = "[" + strings.Repeat(`{"a":1},`, 1<<20/8) + "{}]"

// largeAnswer is an engine with large responses.
func largeAnswer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if !gjson.GetBytes(body, "stream").Bool() {
		_, _ = io.WriteString(w, `{"status":"completed","output":`+tinyItems+`}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	item := `{"a":[` + strings.Repeat("1,", 1<<17) + `1]}`
	for i := range 4 {
		_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.output_item.done\",\"output_index\":%d,\"item\":%s}\n\n", i, item)
	}
	_, _ = io.WriteString(w, `data: {"type":"response.completed","response":{"output":[]}}`+"\n\n")
}

// memoryLoad is the load of TestMemory.
type memoryLoad struct {
	rawClient

	tenants []string
	// previous has the last response of each tenant's conversation.
	previous map[string]string
	stalled  []net.Conn
}

// rawClient sends requests as they are, and counts the replies.
type rawClient struct {
	url string

	mu      sync.Mutex
	replies map[string]int // by kind of request, status and code
}

// memoryRequests returns the requests of a tenant by their kind, as method, path and body.
func memoryRequests(previous string) map[string][3]string {
	large := fmt.Sprintf(`{"input":%s,"previous_response_id":%q`, tinyItems, previous)
	return map[string][3]string{
		"create":         {http.MethodPost, "/v1/responses", `{"input":` + tinyItems + `}`},
		"members":        {http.MethodPost, "/v1/responses", `{"input":"x","metadata":{"a":1` + strings.Repeat(`,"b":1`, 1<<18) + `}}`},
		"continue":       {http.MethodPost, "/v1/responses", large + `}`},
		"stream":         {http.MethodPost, "/v1/responses", large + `,"stream":true}`},
		"repeat":         {http.MethodPost, "/v1/responses", large + `}`},
		"retrieve":       {http.MethodGet, "/v1/responses/" + previous, ""},
		"input items":    {http.MethodGet, "/v1/responses/" + previous + "/input_items?limit=100", ""},
		"models":         {http.MethodGet, "/v1/models", ""},
		"delete missing": {http.MethodDelete, "/v1/responses/" + previous + "_other", ""},
	}
}

// seed makes a conversation for each tenant, and sends every kind of request once. Alone, none is rejected.
func (l *memoryLoad) seed(t *testing.T) {
	t.Helper()
	for _, tenant := range l.tenants {
		status, body := l.do(t.Context(), tenant, "seed", [3]string{http.MethodPost, "/v1/responses", `{"input":` + tinyItems + `}`})
		if status != http.StatusOK {
			t.Fatalf("got %d %.200s", status, body)
		}
		l.previous[tenant] = gjson.Get(body, "id").Str
	}
	for kind, request := range memoryRequests(l.previous[l.tenants[0]]) {
		status, body := l.do(t.Context(), l.tenants[0], kind, request)
		if status != http.StatusOK && kind != "delete missing" {
			t.Errorf("%s: got %d %.200s", kind, status, body)
		}
	}
	clear(l.replies)
}

// run sends the requests of all clients at once.
func (l *memoryLoad) run(t *testing.T) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for _, tenant := range l.tenants {
		for range memoryStalled {
			l.stall(t, tenant)
		}
		for range memoryClients {
			group.Go(func() error {
				for range memoryRounds {
					for kind, request := range memoryRequests(l.previous[tenant]) { // in another order each time
						l.do(ctx, tenant, kind, request)
					}
				}
				return ctx.Err()
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, connection := range l.stalled {
		_ = connection.Close()
	}
}

// do sends a request with the key of a tenant, and counts the reply.
func (l *rawClient) do(ctx context.Context, tenant, kind string, request [3]string) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, request[0], l.url+request[1], strings.NewReader(request[2]))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+tenant)
	if kind == "repeat" {
		r.Header.Set("Idempotency-Key", "the same")
	}
	code := ""
	if response, err := http.DefaultClient.Do(r); err != nil {
		code = err.Error()
	} else {
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			code = err.Error()
		}
		status, body = response.StatusCode, string(content)
	}
	if status != http.StatusOK {
		code = " " + gjson.Get(body, "error.code").Str + code
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies[fmt.Sprintf("%s %d%s", kind, status, code)]++
	return status, body
}

// stall sends half of a request, and another one whose response it does not read.
func (l *memoryLoad) stall(t *testing.T, tenant string) {
	t.Helper()
	for _, request := range []string{
		"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tenant + "\r\nContent-Length: 1000000\r\n\r\n" + tinyItems[:1<<19],
		"GET /v1/responses/" + l.previous[tenant] + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tenant + "\r\n\r\n",
	} {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(l.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		l.stalled = append(l.stalled, connection)
		if _, err := io.WriteString(connection, request); err != nil {
			t.Fatal(err)
		}
	}
}
