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
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

// serveFixture serves a gateway on loopback addresses until stop is called. done then receives the result.
func serveFixture(t *testing.T, f *fixture) (metrics, health string, stop context.CancelFunc, done <-chan error) {
	t.Helper()
	var listeners []net.Listener
	for range 3 {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, listener)
	}
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- f.gateway.Serve(ctx, Listeners{API: listeners[0], Metrics: listeners[1], Health: listeners[2]}, f.registry)
	}()
	f.url = "http://" + listeners[0].Addr().String()
	return "http://" + listeners[1].Addr().String(), "http://" + listeners[2].Addr().String(), stop, result
}

func TestShutdownDrainsStreams(t *testing.T) {
	steps := make(chan string)
	f := newFixture(t, stepHandler(steps, make(chan struct{})))
	_, health, stop, done := serveFixture(t, f)
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	steps <- sse(created)
	id := nextData(stream).get("response.id")
	f.expect(health+"/readyz", http.StatusOK)
	stop()
	f.await(health+"/readyz", http.StatusServiceUnavailable)
	steps <- sse(completed)
	if got := nextData(stream).get("type"); got != "response.completed" {
		t.Errorf("got %q", got)
	}
	close(steps)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if session := f.saved(id); session == nil || session.Status != "completed" {
		t.Errorf("got the saved turn %v, want it completed", session)
	}
}

// TestShutdownDelay checks that clients that have not yet noticed that the gateway is not ready are still served.
func TestShutdownDelay(t *testing.T) {
	t.Parallel() // mostly waits
	f := newFixture(t, enginetest.Handler(), func(o *Options) { o.ShutdownDelay = 5 * time.Second })
	_, health, stop, done := serveFixture(t, f)
	f.expect(health+"/readyz", http.StatusOK)
	stop()
	f.await(health+"/readyz", http.StatusServiceUnavailable)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/responses", strings.NewReader(`{"input":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("status %d, want 200; connection closed: %t, want true", response.StatusCode, response.Close)
	}
	f.dial() // a WebSocket connection is still possible
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := newFixture(t, stepHandler(steps, gone), func(o *Options) { o.ShutdownTimeout = time.Nanosecond })
	_, _, stop, done := serveFixture(t, f)
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	steps <- sse(created)
	id := nextData(stream).get("response.id")
	stop()
	last := nextData(stream)
	if got, want := last.get("response.error.message"), "The gateway is shutting down. (shutting_down)"; last.get("type") != "response.failed" || got != want {
		t.Errorf("got %s", last.body)
	}
	<-gone
	if err := <-done; err != nil {
		t.Error(err)
	}
	if session := f.saved(id); session == nil || session.Status != "failed" {
		t.Errorf("got the saved turn %v, want it failed", session)
	}
}

// TestShutdownEndsRequests checks that clients without a response are asked to retry, which reaches another replica, unless
// the engine has already received their request.
func TestShutdownEndsRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		inEngine                        bool
		wantRetryAfter, wantShouldRetry string
	}{
		"before the engine": {false, "1", ""},
		"in the engine":     {true, "", "false"},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			hang := func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				return ctx.Err()
			}
			f := newFixture(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = hang(r.Context()) }),
				func(o *Options) { o.ShutdownTimeout = time.Nanosecond })
			f.seed("resp_a", "", "completed")
			if !tc.inEngine {
				f.store.onResolve = hang
			}
			_, _, stop, done := serveFixture(t, f)
			replies := make(chan reply)
			go func() {
				replies <- f.do(http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_a","input":"a"}`)
			}()
			<-begun
			stop()
			r := <-replies
			retryAfter, shouldRetry := r.header.Get("Retry-After"), r.header.Get("X-Should-Retry")
			if r.code() != "Service Unavailable shutting_down" || retryAfter != tc.wantRetryAfter || shouldRetry != tc.wantShouldRetry {
				t.Errorf("got %d %s %v, want Retry-After %q and X-Should-Retry %q", r.status, r.body, r.header, tc.wantRetryAfter, tc.wantShouldRetry)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConnectionsAreLimited checks that a client without a key can keep neither much memory nor a connection for long.
func TestConnectionsAreLimited(t *testing.T) {
	f := newFixture(t, enginetest.Handler())
	server := f.gateway.server(t.Context(), f.gateway.Handler())
	if server.ReadHeaderTimeout != 10*time.Second || server.IdleTimeout != 2*time.Minute {
		t.Errorf("got the timeouts %s and %s, want those of docs/gateway.md", server.ReadHeaderTimeout, server.IdleTimeout)
	}
	_, _, stop, done := serveFixture(t, f)
	if r := f.do(http.MethodGet, "/v1/responses/x", "", "X-Large", strings.Repeat("x", 2*maxHeaderBytes)); r.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d for large headers, want %d", r.status, http.StatusRequestHeaderFieldsTooLarge)
	}
	for values, want := range map[int]int{maxHeaderValues / 2: http.StatusNotFound, maxHeaderValues: http.StatusRequestHeaderFieldsTooLarge} {
		var headers []string
		for i := range values { // Go's client adds more
			headers = append(headers, fmt.Sprint("X-", i), "")
		}
		if r := f.do(http.MethodGet, "/v1/responses/x", "", headers...); r.status != want {
			t.Errorf("got %d for %d headers, want %d", r.status, values, want)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	f := newFixture(t, streamHandler(sse(created, completed)))
	metrics, health, stop, done := serveFixture(t, f)
	f.create(`{"input":"a","stream":true}`)
	f.do(http.MethodGet, "/v1/responses/resp_1", "")
	f.expect(health+"/healthz", http.StatusOK)
	problems, err := testutil.GatherAndLint(f.registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	body := f.expect(metrics+"/metrics", http.StatusOK)
	for _, want := range []string{
		`catena_gateway_requests_total{code="200",route="POST /v1/responses"} 1`,
		`catena_gateway_requests_total{code="404",route="GET /v1/responses/{id}"} 1`,
		`catena_gateway_streams 0`,
		`catena_gateway_upstream_seconds_count 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// expect gets a URL and returns its body. It reports an error for any other status than the expected one.
func (f *fixture) expect(url string, want int) string {
	f.t.Helper()
	status, body := f.get(url)
	if status != want {
		f.t.Errorf("%s: status %d, want %d", url, status, want)
	}
	return body
}

// await gets a URL until it returns the wanted status.
func (f *fixture) await(url string, want int) {
	f.t.Helper()
	for {
		if status, _ := f.get(url); status == want {
			return
		}
	}
}

func (f *fixture) get(url string) (int, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
