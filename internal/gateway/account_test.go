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
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

// TestAccount checks that clients get the engine's errors and rate limit headers if the account at the engine is theirs, and no errors
// about the account and no such headers if it is the gateway's. The gateway's key is removed from all errors.
func TestAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	accounts := map[string]struct {
		owned, keyed bool
		content      string // of the file
		change       func(*Options)
	}{
		"account of the client":  {change: func(*Options) {}},
		"account of the gateway": {owned: true, keyed: true, content: "sk-of-the-gateway", change: func(o *Options) { o.UpstreamAPIKeyFile = file }},
		"engine without keys":    {owned: true, content: "[{namespace: default, key: sk-client}]", change: func(o *Options) { o.TenantsFile = file }},
	}
	// The answers of a gateway that owns the account. The others are those of the engine.
	answers := map[int]string{
		http.StatusUnauthorized: "Bad Gateway upstream_refused", http.StatusForbidden: "Bad Gateway upstream_refused",
		http.StatusTooManyRequests: "Too Many Requests rate_limit_exceeded",
	}
	for name, account := range accounts {
		for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusNotFound, http.StatusInternalServerError} {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				write(t, file, account.content)
				f := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Ratelimit-Remaining-Requests", "7")
					w.Header().Set("Retry-After", "8")
					w.Header().Set("Retry-After-Ms", "8000")
					w.Header().Set("X-Should-Retry", "true")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(`{"error":{"message":"org-1 has reached a limit with sk-of-the-gateway"}}`))
				}), account.change)
				r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`, "Authorization", "Bearer sk-client")
				models := f.do(http.MethodGet, "/v1/models", "", "Authorization", "Bearer sk-client")
				want, wantLimit := http.StatusText(status), "7"
				if account.owned {
					wantLimit = ""
				}
				replaced := account.owned && answers[status] != ""
				if replaced {
					want = answers[status]
				}
				wantKey := !replaced && !account.keyed // it is not the gateway's
				for i, r := range []reply{r, models} {
					if r.code() != want || r.header.Get("X-Ratelimit-Remaining-Requests") != wantLimit {
						t.Errorf("got %d %s %v, want %s and the limit %q", r.status, r.body, r.header, want, wantLimit)
					}
					if strings.Contains(r.body, "org-1") == replaced || strings.Contains(r.body, "sk-of-the-gateway") != wantKey {
						t.Errorf("got %s, want the engine's message: %t, and the key: %t", r.body, !replaced, wantKey)
					}
					advice := []string{r.header.Get("X-Should-Retry"), r.header.Get("Retry-After"), r.header.Get("Retry-After-Ms")}
					wantAdvice := []string{"true", "8", "8000"}
					switch {
					case r.status == http.StatusBadGateway:
						wantAdvice = []string{"false", "", ""}
					case i == 0 && r.status != http.StatusTooManyRequests:
						wantAdvice[0] = "false" // the engine may have run
					}
					if diff := cmp.Diff(wantAdvice, advice); diff != "" {
						t.Errorf("advice to retry (-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}

// TestAccountHeaders checks that clients choose the account at the engine only with their own key.
func TestAccountHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for name, tc := range map[string]struct {
		content string // of the file
		change  func(*Options)
		want    []string
	}{
		"account of the client":  {"", func(*Options) {}, []string{"Bearer sk-client", "org-1", "proj-1"}},
		"account of the gateway": {"sk-of-the-gateway", func(o *Options) { o.UpstreamAPIKeyFile = file }, []string{"Bearer sk-of-the-gateway", "", ""}},
		"engine without keys":    {"[{namespace: default, key: sk-client}]", func(o *Options) { o.TenantsFile = file }, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, file, tc.content)
			f := start(t, nil, tc.change)
			f.create(`{"input":"a"}`, "Authorization", "Bearer sk-client", "OpenAI-Organization", "org-1", "OpenAI-Project", "proj-1")
			_, header := f.sent.last()
			got := []string{header.Get("Authorization"), header.Get("Openai-Organization"), header.Get("Openai-Project")}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("headers that the engine received (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRateLimitError checks that the gateway's own answer for an engine that refuses requests has the format of OpenAI's.
func TestRateLimitError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "sk-of-the-gateway")
	f := start(t, jsonHandler(http.StatusTooManyRequests, "busy"), func(o *Options) { o.UpstreamAPIKeyFile = file })
	r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`)
	const want = `{"error":{"message":"The upstream has reached a limit; retry later.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	if r.body != want || r.header.Get("X-Should-Retry") != "" {
		t.Errorf("got %s %v, want %s, which may be retried", r.body, r.header, want)
	}
}

// TestRateLimitErrorWithoutBody checks that clients learn that they may retry even if the engine does not send the body of its error.
func TestRateLimitErrorWithoutBody(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "sk-of-the-gateway")
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(o *Options) { o.UpstreamAPIKeyFile = file })
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`); r.code() != "Too Many Requests rate_limit_exceeded" {
		t.Errorf("got %d %s, want 429", r.status, r.body)
	}
}

// TestShortKeys checks that a key that may be a word is removed from errors, in every form, but not from what the model says.
func TestShortKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, "SHORT/KEY")
	const text = `{"message":"SHORT\/KEY or SHORT/KEY"}`
	for name, tc := range map[string]struct {
		engine http.Handler
		stream bool
		want   string
	}{
		"error":       {jsonHandler(500, `{"error":`+text+`}`), false, "*** or ***"},
		"error event": {streamHandler(sse(created, `{"type":"error","error":`+text+`}`)), true, "*** or ***"},
		"failed":      {streamHandler(sse(created, `{"type":"response.failed","response":{"output":[],"error":`+text+`}}`)), true, "*** or ***"},
		"response":    {jsonHandler(200, `{"status":"failed","output":[],"error":`+text+`}`), false, "*** or ***"},
		"output":      {jsonHandler(200, `{"output":[`+text+`]}`), false, "SHORT/KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, tc.engine, func(o *Options) { o.UpstreamAPIKeyFile = file })
			r := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"input":"a","stream":%t}`, tc.stream))
			if !strings.Contains(r.body, tc.want) {
				t.Errorf("got %s, want %s", r.body, tc.want)
			}
		})
	}
}

// TestKeyInErrors checks that clients and the store do not get the gateway's key from a response that fails, even if another key has
// replaced it since.
func TestKeyInErrors(t *testing.T) {
	const failure = `{"code":"server_error","message":"unable to use sk-of-the-gateway"}`
	encoded := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "x-unknown")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte("sk-of-the-gateway"))
	}
	for name, tc := range map[string]struct {
		engine http.Handler
		stream bool
		want   string
	}{
		"response":                   {jsonHandler(200, `{"status":"failed","output":[],"error":`+failure+`}`), false, "unable to use ***"},
		"response without a status":  {jsonHandler(200, `{"output":[],"error":`+failure+`}`), false, "unable to use ***"},
		"stream":                     {streamHandler(sse(created, `{"type":"response.failed","response":{"error":`+failure+`}}`)), true, "unable to use ***"},
		"error event":                {streamHandler(sse(created, `{"type":"error","message":"unable to use sk-of-the-gateway"}`)), true, "unable to use ***"},
		"error event with an error":  {streamHandler(sse(created, `{"type":"error","error":`+failure+`}`)), true, "unable to use ***"},
		"error event without a type": {streamHandler(sse(created) + `data: {"error":` + failure + "}\n\n"), true, "unable to use ***"},
		"error event of plain text":  {streamHandler(sse(created) + "event: error\ndata: unable to use sk-of-the-gateway\n\n"), true, "unable to use ***"},
		"error event of another type": {
			streamHandler(sse(created) + `event: error` + "\n" + `data: {"type":"invalid_request_error","message":"unable to use sk-of-the-gateway"}` + "\n\n"),
			true, "unable to use ***",
		},
		"comment": {
			streamHandler(sse(created) + ": unable to use sk-of-the-gateway\n\n" + sse(`{"type":"response.completed","response":{"output":[]}}`)),
			true, "unable to use ***",
		},
		"incomplete response": {streamHandler(sse(created, `{"type":"response.incomplete","response":{"output":[],"error":`+failure+`}}`)), true, "unable to use ***"},
		"encoded error":       {http.HandlerFunc(encoded), false, "upstream_invalid_response"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			write(t, file, "sk-of-the-gateway")
			var f *fixture
			f = start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				write(t, file, "sk-newer")
				f.gateway.reloadFiles()
				tc.engine.ServeHTTP(w, r)
			}), func(o *Options) { o.UpstreamAPIKeyFile = file })
			saved := ""
			f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
				saved = string(session.Response)
				return next()
			}
			r := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"input":"a","stream":%t}`, tc.stream))
			if !strings.Contains(r.body, tc.want) || strings.Contains(r.body+saved, "sk-of-the-gateway") {
				t.Errorf("got %s and saved %s, want %s", r.body, saved, tc.want)
			}
		})
	}
}
