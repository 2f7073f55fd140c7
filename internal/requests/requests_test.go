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

package requests

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/fair"
)

const statusPath = "/apis/sessions.catena.dev/v1alpha1/namespaces/team-a/responsesessions/resp.1/status"

// TestOutcomes: responses of the API server to one request, and their effect on a limit of eight writes.
func TestOutcomes(t *testing.T) {
	cases := map[string]struct {
		method, path string
		code         int
		body         string
		want         int64
	}{
		"served":                      {http.MethodPatch, statusPath, http.StatusOK, "", 8},
		"not found":                   {http.MethodPatch, statusPath, http.StatusNotFound, "", 8},
		"conflict":                    {http.MethodPatch, statusPath, http.StatusConflict, "", 8},
		"too many requests":           {http.MethodPatch, statusPath, http.StatusTooManyRequests, "", 4},
		"unavailable":                 {http.MethodDelete, statusPath, http.StatusServiceUnavailable, "", 4},
		"too slow":                    {http.MethodPost, statusPath, http.StatusGatewayTimeout, "", 4},
		"internal error":              {http.MethodPatch, statusPath, http.StatusInternalServerError, "etcdserver: leader changed", 4},
		"too large for etcd":          {http.MethodPatch, statusPath, http.StatusInternalServerError, "etcdserver: request is too large", 8},
		"a read":                      {http.MethodGet, statusPath, http.StatusTooManyRequests, "", 8},
		"a write without a namespace": {http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", http.StatusTooManyRequests, "", 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer server.Close()
			limiter := NewLimiter(Limits{Writes: 8})
			code, body, err := send(t.Context(), limiter, server.URL, tc.method, tc.path)
			if err != nil || code != tc.code || body != tc.body {
				t.Fatalf("got %d %q, %v", code, body, err)
			}
			if got := limiter.Writes(); got != tc.want {
				t.Errorf("the limit is %d, want %d", got, tc.want)
			}
		})
	}
}

// TestUnreachable: an API server that cannot be reached gets fewer writes, and a canceled request has no effect on the limit.
func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	limiter := NewLimiter(Limits{Writes: 8})
	if _, _, err := send(t.Context(), limiter, server.URL, http.MethodPatch, statusPath); err == nil {
		t.Fatal("a closed server has responded")
	}
	if got := limiter.Writes(); got != 4 {
		t.Errorf("the limit is %d, want 4", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	busy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer busy.Close()
	if _, _, err := send(ctx, limiter, busy.URL, http.MethodPatch, statusPath); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if got := limiter.Writes(); got != 4 {
		t.Errorf("the limit is %d, want 4", got)
	}
}

// TestUnanswered: a write that is not answered within its deadline reduces the limit, unless the deadline is short.
func TestUnanswered(t *testing.T) {
	for deadline, want := range map[time.Duration]int64{unanswered: 4, unanswered - 1: 8} {
		synctest.Test(t, func(t *testing.T) {
			limiter := NewLimiter(Limits{Writes: 8})
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			request := httptest.NewRequestWithContext(ctx, http.MethodPatch, statusPath, nil)
			next := silent(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			response, err := (&transport{limiter, next}).RoundTrip(request)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the context's error", err)
			}
			if response != nil {
				_ = response.Body.Close()
			}
			if got := limiter.Writes(); got != want {
				t.Errorf("the limit is %d after %s, want %d", got, deadline, want)
			}
		})
	}
}

// TestBeforeWrite: a write is checked when its turn has come, and not sent if it may not be.
func TestBeforeWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewLimiter(Limits{Writes: 2}) // one for each namespace
		var sent int
		next := silent(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		end, err := limiter.writes.Begin(t.Context(), "team-a")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Hour) //nolint:forbidigo // in a bubble, it takes no time
			end(fair.Served)
		}()
		start, refused := time.Now(), errors.New("refused")
		for _, want := range []error{refused, nil} {
			var checked []time.Duration
			ctx := BeforeWrite(t.Context(), func(context.Context) error {
				checked = append(checked, time.Since(start))
				return want
			})
			response, err := (&transport{limiter, next}).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPatch, statusPath, nil))
			if response != nil {
				_ = response.Body.Close()
			}
			if !errors.Is(err, want) || (sent == 1) != (want == nil) || len(checked) != 1 || checked[0] != time.Hour {
				t.Errorf("got %v, checked after %s, sent %d times, want %v", err, checked, sent, want)
			}
		}
	})
}

type silent func(r *http.Request) (*http.Response, error)

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

// TestReadsDoNotWait: while writes that are never answered take a namespace's whole share, it can read, and another namespace
// can write.
func TestReadsDoNotWait(t *testing.T) {
	arrived, end := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "team-a") {
			arrived <- struct{}{}
			<-end
		}
	}))
	defer server.Close()
	defer close(end)
	limiter := NewLimiter(Limits{Writes: 4})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 10 {
		go func() { _, _, _ = send(ctx, limiter, server.URL, http.MethodPatch, statusPath) }()
	}
	<-arrived
	<-arrived
	for _, request := range []struct{ method, path string }{
		{http.MethodGet, statusPath},
		{http.MethodPatch, strings.Replace(statusPath, "team-a", "team-b", 1)},
	} {
		if _, _, err := send(t.Context(), limiter, server.URL, request.method, request.path); err != nil {
			t.Errorf("%s %s: %v", request.method, request.path, err)
		}
	}
	if len(arrived) > 0 {
		t.Errorf("the namespace has %d writes more than its share", len(arrived))
	}
}

// TestReadsAreShared: a namespace has at most half of the reads in progress, until it has read the responses, while it can write,
// and another namespace can read.
func TestReadsAreShared(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	limiter := NewLimiter(Limits{Writes: 4, Reads: 4})
	client, err := rest.HTTPClientFor(limiter.Limit(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	first, second := get(statusPath), get(statusPath)
	defer func() { _ = second.Body.Close() }()
	_ = get("/apis/sessions.catena.dev/v1alpha1/responsesessions").Body.Close()
	_ = get(strings.Replace(statusPath, "team-a", "team-b", 1)).Body.Close()
	if _, _, err := send(t.Context(), limiter, server.URL, http.MethodPatch, statusPath); err != nil {
		t.Errorf("unable to write: %v", err)
	}
	if limiter.reads.TryAcquire("team-a", 1) {
		t.Error("the namespace can have a third read")
	}
	_ = first.Body.Close()
	_ = first.Body.Close() // no error, and released once
	_ = get(statusPath).Body.Close()
	if used := limiter.reads.Used(); used != 1 {
		t.Errorf("%d reads are in progress, want 1", used)
	}
}

// send sends a request through a client that the limiter limits, and returns the status code and the body of the response.
func send(ctx context.Context, limiter *Limiter, host, method, path string) (int, string, error) {
	client, err := rest.HTTPClientFor(limiter.Limit(&rest.Config{Host: host}))
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, host+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
