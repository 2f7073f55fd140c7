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
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/store"
)

func TestUpstreamErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		upstream   http.Handler
		wantStatus int
		wantBody   string
		mayRetry   bool
	}{
		"too many requests":           {jsonHandler(429, `{"error":{"message":"slow down"}}`), 429, `{"error":{"message":"slow down","type":"requests","param":null,"code":null}}`, true},
		"declined":                    {advise(jsonHandler(503, `{"error":{"message":"starting"}}`), "Retry-After", "1"), 503, `{"error":{"message":"starting","type":"server_error","param":null,"code":null}}`, true},
		"unavailable":                 {jsonHandler(503, `upstream connect error or disconnect/reset before headers`), 503, "disconnect/reset", false},
		"unavailable, Retry-After-Ms": {advise(jsonHandler(503, ""), "Retry-After-Ms", "1"), 503, "", false},
		"bad gateway, Retry-After":    {advise(jsonHandler(502, ""), "Retry-After", "1"), 502, "", false},
		"unavailable, advice":         {advise(jsonHandler(503, ""), "X-Should-Retry", "true"), 503, "", false},
		"error with advice":           {advise(jsonHandler(500, ""), "X-Should-Retry", "true"), 500, "", false},
		"not JSON":                    {jsonHandler(500, `oops`), 500, `oops`, false},
		"redirect":                    {http.RedirectHandler("/elsewhere", http.StatusFound), 502, "upstream_invalid_response", false},
		"status that HTTP lacks":      {jsonHandler(999, `{}`), 502, "upstream_invalid_response", false},
		"large header": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", engineHeaderBytes))
			jsonHandler(200, `{}`).ServeHTTP(w, r)
		}), 502, "upstream_unreachable", false},
		"truncated JSON":        {jsonHandler(200, `{"output":`), 502, "upstream_invalid_response", false},
		"output not a list":     {jsonHandler(200, `{"output":1}`), 502, "upstream_invalid_response", false},
		"no output":             {jsonHandler(200, `{"status":"completed"}`), 502, "upstream_invalid_response", false},
		"error with status 200": {jsonHandler(200, `{"error":{"message":"model not found"}}`), 502, "upstream_invalid_response", false},
		"status not final":      {jsonHandler(200, `{"status":"in_progress","output":[]}`), 502, "upstream_invalid_response", false},
		"status not a string":   {jsonHandler(200, `{"status":7,"output":[]}`), 502, "upstream_invalid_response", false},
		"compressed": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(sse(completed)))
		}), 502, "upstream_invalid_response", false},
		"too large":   {jsonHandler(200, `{"status":"completed","output":[]}`+strings.Repeat(" ", 4000)), 502, "upstream_invalid_response", false},
		"large error": {jsonHandler(500, strings.Repeat(" ", 4001)), 502, "upstream_invalid_response", false},
		"truncated body": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"output":[]`))
		}), 502, "upstream_broken", false},
	} {
		for _, stream := range []string{"false", "true"} {
			t.Run(name+" stream="+stream, func(t *testing.T) {
				f := start(t, tc.upstream, func(o *Options) { o.MaxResponseBytes = 4000 })
				r := f.do(http.MethodPost, "/v1/responses", `{"input":"a","stream":`+stream+`}`)
				want := tc.wantBody
				if stream == "true" && want == "upstream_broken" {
					want = "upstream_invalid_response" // not a stream either
				}
				if r.status != tc.wantStatus || !strings.Contains(r.body, want) {
					t.Errorf("got %d %s, want %d %s", r.status, r.body, tc.wantStatus, want)
				}
				if got := r.header.Get("X-Should-Retry") == "false"; got == tc.mayRetry {
					t.Errorf("X-Should-Retry: %q, want false unless the engine has not run", r.header.Get("X-Should-Retry"))
				}
				r = f.do(http.MethodPost, "/v1/responses", `{"input":"a","stream":`+stream+`}`, "Idempotency-Key", "k")
				if got := r.header.Get("X-Should-Retry"); got == "false" {
					t.Errorf("X-Should-Retry: %q with an Idempotency-Key", got)
				}
			})
		}
	}
}

// advise returns an engine that sends a header, too.
func advise(engine http.Handler, name, value string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		engine.ServeHTTP(w, r)
	})
}

// TestLargestLimit checks that the largest number is a valid limit.
func TestLargestLimit(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		f := start(t, nil, func(o *Options) {
			o.MaxRequestBytes, o.MaxResponseBytes, o.MaxInFlightBytes = math.MaxInt64/16, math.MaxInt64, math.MaxInt64
		})
		if r := f.create(`{"input":"a","stream":` + stream + `}`); !strings.Contains(r.body, "You said 1 things") {
			t.Errorf("got %s", r.body)
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	f := start(t, nil)
	r := f.create(`{"input":"a"}`, "Traceparent", "trace", "Cookie", "x", "X-Request-Id", "bad id", "Openai-Project", "p")
	_, sent := f.sent.last()
	for name, want := range map[string]string{"Traceparent": "trace", "Openai-Project": "p", "Cookie": "", "X-Request-Id": r.header.Get("X-Request-Id")} {
		if got := sent.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if id := sent.Get("X-Request-Id"); !strings.HasPrefix(id, "req_") {
		t.Errorf("got request ID %q, want a generated one", id)
	}
}

// TestResponseHeaders checks that the same headers pass through for all kinds of responses.
func TestResponseHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		upstream     http.Handler
		body         string
		wantEncoding string
	}{
		"response": {jsonHandler(200, `{"status":"completed","output":[]}`), `{"input":"a"}`, ""},
		"stream":   {streamHandler(sse(completed)), `{"input":"a","stream":true}`, ""},
		"error": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.WriteHeader(http.StatusTooManyRequests)
		}), `{"input":"a"}`, "br"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, name := range []string{"Retry-After", "X-Ratelimit-Limit-Tokens", "Set-Cookie", "X-Request-Id"} {
					w.Header().Set(name, "7")
				}
				tc.upstream.ServeHTTP(w, r)
			}))
			r := f.do(http.MethodPost, "/v1/responses", tc.body, "X-Request-Id", "mine")
			for name, want := range map[string]string{
				"Retry-After": "7", "X-Ratelimit-Limit-Tokens": "7", "Set-Cookie": "", "X-Request-Id": "mine", "Content-Encoding": tc.wantEncoding,
			} {
				if got := r.header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestUpstreamUnreachable(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.Upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} })
	r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`)
	if r.code() != "Bad Gateway upstream_unreachable" || r.header.Get("X-Should-Retry") != "" {
		t.Errorf("got %d %s %v, want an error that can be retried", r.status, r.body, r.header)
	}
}

func TestRequestTimeout(t *testing.T) {
	hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := start(t, hang, func(o *Options) { o.RequestTimeout = time.Millisecond })
	r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`)
	if r.code() != "Gateway Timeout timeout" || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %s %v, want an error that is not retried", r.status, r.body, r.header)
	}
}

func TestClientDisconnectsBeforeResponse(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	f := newFixture(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leave()
		<-r.Context().Done() // the engine notices the disconnect
	}))
	f.store.onSave = func(context.Context, *store.Session, func() error) error {
		t.Error("a turn was saved although its client never received the ID")
		return nil
	}
	w := httptest.NewRecorder()
	f.gateway.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/responses", strings.NewReader(`{"input":"a"}`)))
	if got := testutil.ToFloat64(f.gateway.metrics.requests.WithLabelValues("POST /v1/responses", "499")); got != 1 || w.Body.Len() > 0 {
		t.Errorf("counted %v requests with status 499 and wrote %q, want 1 and nothing", got, w.Body)
	}
}

func TestSlowRequest(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.ReadTimeout = time.Nanosecond })
	body, stalled := io.Pipe()
	defer func() { _ = stalled.Close() }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/responses", body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("got status %d, want %d", response.StatusCode, http.StatusRequestTimeout)
	}
}

// TestStalledBody checks that a body that never arrives does not block the response, even if no handler reads it. It uses
// a bare connection, because a client would send the body.
func TestStalledBody(t *testing.T) {
	for _, body := range []string{"Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n5\r\n{"} {
		for request, want := range map[string]string{
			"POST /v1/responses":     "408",
			"GET /v1/responses/x":    "404",
			"DELETE /v1/responses/x": "404",
			"POST /nowhere":          "404",
		} {
			t.Run(request+" "+body, func(t *testing.T) {
				f := start(t, nil, func(o *Options) { o.ReadTimeout = 100 * time.Millisecond })
				connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = connection.Close() }()
				if _, err := io.WriteString(connection, request+" HTTP/1.1\r\nHost: x\r\n"+body); err != nil {
					t.Fatal(err)
				}
				line, err := bufio.NewReader(connection).ReadString('\n')
				if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+want) {
					t.Errorf("got %q and %v, want %s", line, err, want)
				}
			})
		}
	}
}

// TestOrigin checks that web pages cannot use a gateway without API keys, unless they are allowed explicitly.
func TestOrigin(t *testing.T) {
	for name, tc := range map[string]struct {
		host, origin, site string
		want               int
		allowed            []string
	}{
		"program":                    {"127.0.0.1:8090", "", "", 200, nil},
		"program, by host name":      {"localhost:8090", "", "", 200, nil},
		"IPv6":                       {"[::1]", "", "", 200, nil},
		"navigation by the user":     {"localhost:8090", "", "none", 200, nil},
		"same origin":                {"localhost:8090", "http://localhost:8090", "same-origin", 200, nil},
		"through a proxy":            {"127.0.0.1:8090", "http://localhost:5173", "same-origin", 200, nil},
		"older browser, same origin": {"localhost:8090", "http://localhost:8090", "", 200, nil},
		"cross-site page":            {"127.0.0.1:8090", "http://evil.example", "cross-site", 403, nil},
		"sandboxed page":             {"127.0.0.1:8090", "null", "", 403, nil},
		"cross-site image":           {"127.0.0.1:8090", "", "cross-site", 403, nil},
		"page on another port":       {"localhost:8090", "", "same-site", 403, nil},
		"older browser, cross-site":  {"127.0.0.1:8090", "http://evil.example", "", 403, nil},
		"DNS rebinding":              {"evil.example:8090", "http://evil.example:8090", "same-origin", 403, nil},
		"invalid origin":             {"127.0.0.1:8090", "http://[x", "", 403, nil},
		"allowed page":               {"127.0.0.1:8090", "http://localhost:3000", "cross-site", 200, []string{"http://localhost:3000"}},
		"another page":               {"127.0.0.1:8090", "http://localhost:3001", "cross-site", 403, []string{"http://localhost:3000"}},
		"all pages":                  {"127.0.0.1:8090", "http://evil.example", "cross-site", 200, []string{"*"}},
		"image, all pages":           {"127.0.0.1:8090", "", "cross-site", 403, []string{"*"}},
		"DNS rebinding, all pages":   {"evil.example:8090", "http://evil.example:8090", "same-origin", 403, []string{"*"}},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(method+" of "+name, func(t *testing.T) {
				f := newFixture(t, enginetest.Handler(), func(o *Options) { o.InsecureAllowAnonymous, o.CORSAllowedOrigins = false, tc.allowed })
				path := map[string]string{http.MethodGet: "/v1/models", http.MethodPost: "/v1/responses"}[method]
				r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"input":"a"}`))
				r.Host = tc.host
				r.Header.Set("Origin", tc.origin)
				r.Header.Set("Sec-Fetch-Site", tc.site)
				w := httptest.NewRecorder()
				f.gateway.Handler().ServeHTTP(w, r)
				if w.Code != tc.want {
					t.Errorf("got %d %s, want %d", w.Code, w.Body, tc.want)
				}
			})
		}
	}
}

// TestQuery checks that the query of a request for the models reaches the engine.
func TestQuery(t *testing.T) {
	query := ""
	f := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { query = r.URL.RawQuery }))
	f.do(http.MethodGet, "/v1/models?a=1", "")
	if query != "a=1" {
		t.Errorf("got %q", query)
	}
}

// TestConnectionsOfTenants: tenants do not share connections to the engine.
func TestConnectionsOfTenants(t *testing.T) {
	var mu sync.Mutex
	clients := map[string]string{} // of connections, by address and port
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		clients[r.RemoteAddr] += gjson.GetBytes(body, "model").Str
		mu.Unlock()
		jsonHandler(http.StatusOK, `{"status":"completed","output":[]}`).ServeHTTP(w, r)
	}), twoTenants(t))
	for range 3 {
		for _, tenant := range []string{"a", "b"} {
			r := f.do(http.MethodPost, "/v1/responses", `{"model":"`+tenant+`","input":"x"}`, "Authorization", "Bearer "+tenant)
			if r.status != http.StatusOK {
				t.Fatalf("got %d %s", r.status, r.body)
			}
		}
	}
	if len(clients) == 0 {
		t.Error("the engine got no request")
	}
	for address, tenants := range clients {
		if strings.Contains(tenants, "a") && strings.Contains(tenants, "b") {
			t.Errorf("%s has requests of both tenants: %s", address, tenants)
		}
	}
}
