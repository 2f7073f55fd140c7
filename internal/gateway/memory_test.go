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
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/testutil"
)

// TestShares checks that a tenant that has reached a limit gets an error that names it, and that other tenants are not
// affected.
func TestShares(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options)
		body   string
		want   string
	}{
		"requests": {func(o *Options) { o.MaxInFlightRequests = 6 }, `{"input":"x"}`, "concurrent requests is used up (--max-inflight-requests)"},
		"streams":  {func(o *Options) { o.MaxInFlightStreams = 6 }, `{"input":"x","stream":true}`, "concurrent streams is used up (--max-inflight-streams)"},
		"memory": {
			func(o *Options) { o.MaxRequestBytes, o.MaxInFlightBytes = 1<<20, 64<<20 },
			`{"input":"` + strings.Repeat("x", 1<<20-20) + `"}`, "memory is used up (--max-inflight-bytes)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			waiting, proceed := make(chan struct{}), make(chan struct{})
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				waiting <- struct{}{}
				<-proceed
				jsonHandler(200, `{"status":"completed","output":[]}`).ServeHTTP(w, r)
			}), tc.change, twoTenants(t))
			done := make(chan reply)
			ask := func(tenant string) (refused *reply) {
				go func() { done <- f.do(http.MethodPost, "/v1/responses", tc.body, "Authorization", "Bearer "+tenant) }()
				select {
				case <-waiting:
					return nil
				case r := <-done:
					return &r
				}
			}
			held := 0
			refused := ask("a")
			for ; refused == nil; refused = ask("a") {
				held++
			}
			if held == 0 || refused.status != http.StatusTooManyRequests || refused.get("error.code") != "overloaded" ||
				!strings.Contains(refused.get("error.message"), tc.want) || refused.header.Get("Retry-After") == "" {
				t.Errorf("after %d held requests: got %d %s", held, refused.status, refused.body)
			}
			if r := ask("b"); r != nil {
				t.Fatalf("another tenant got %d %s", r.status, r.body)
			}
			close(proceed)
			for range held + 1 {
				<-done
			}
			if r := ask("a"); r != nil {
				t.Fatalf("afterwards, got %d %s", r.status, r.body)
			}
			<-done
		})
	}
}

// TestAdmittedRequestsFinish checks that, even if a tenant's share is in use, every request that reaches the engine is
// answered and saved: none waits for the memory of another.
func TestAdmittedRequestsFinish(t *testing.T) {
	item := `{"type":"message","text":"` + strings.Repeat("y", DefaultResponseReserveBytes-200) + `"}`
	response := `{"status":"completed","output":[` + item + `]}`
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			waiting, proceed := make(chan struct{}), make(chan struct{})
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				waiting <- struct{}{}
				<-proceed
				if !stream {
					jsonHandler(200, response).ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.output_item.done\",\"item\":%s}\n\n", item)
				_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.completed\",\"response\":%s}\n\n", response)
			}), func(o *Options) { o.MaxRequestBytes, o.MaxInFlightBytes = 1<<20, 96<<20 })
			body := fmt.Sprintf(`{"stream":%t,"input":"%s"}`, stream, strings.Repeat("x", 1<<20-100))
			done := make(chan reply)
			held := 0
			for refused := false; !refused; {
				go func() { done <- f.do(http.MethodPost, "/v1/responses", body) }()
				select {
				case <-waiting:
					held++
				case r := <-done:
					if refused = true; r.status != http.StatusTooManyRequests || r.header.Get("X-Should-Retry") == "false" {
						t.Errorf("got %d %s", r.status, r.body)
					}
				}
			}
			if held < 2 {
				t.Fatalf("got %d concurrent requests, want at least 2", held)
			}
			close(proceed)
			for range held {
				if r := <-done; r.status != http.StatusOK || strings.Contains(r.body, "response.failed") {
					t.Errorf("got %d %.300s", r.status, r.body)
				}
			}
		})
	}
}

// twoTenants configures the tenants a and b, whose keys equal their names.
func twoTenants(t *testing.T) func(*Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenants.yaml")
	if err := os.WriteFile(path, []byte("[{namespace: a, key: a}, {namespace: b, key: b}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.TenantsFile = path }
}

// TestSharesMatchModel checks shares against a model: a call holds exactly what it has taken, and nothing once it has ended.
func TestSharesMatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := newSharedLimit(1000, "--flag", "units")
		type plain struct {
			share  *share
			tenant string
			// used is the part of held that is in use, not only reserved.
			held, used, reserved int64
			ended                bool
		}
		var calls []*plain
		heldBy := func(tenant string) (all, own int64) {
			for _, c := range calls {
				all += c.held
				if c.tenant == tenant {
					own += c.held
				}
			}
			return all, own
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				tenant := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")
				calls = append(calls, &plain{share: limit.of(tenant), tenant: tenant})
			},
			"take": func(t *rapid.T) {
				c := drawCall(t, calls)
				units := rapid.Int64Range(1, 300).Draw(t, "units")
				all, own := heldBy(c.tenant)
				reserve, begin := rapid.Bool().Draw(t, "reserve"), rapid.Bool().Draw(t, "begin")
				take, more, weight := c.share.take, units, int64(1)
				if (reserve || begin) && own > c.held {
					weight = 2
				}
				if begin {
					take = c.share.begin
				}
				if reserve {
					take = c.share.reserve
				} else {
					more = max(0, units-(c.held-c.used))
				}
				fits := more == 0 || all+more <= 1000 && (own == 0 || weight*(own+more) <= 1000-all-more)
				err := take(units)
				if want := fits && !c.ended && c.held+more <= 500; (err == nil) != want {
					t.Fatalf("got %v with %d held, %d by the tenant, %d by the call, ended %t", err, all, own, c.held, c.ended)
				}
				if err == nil {
					c.held += more
					if reserve {
						c.reserved += units
					} else {
						c.used += units
					}
				}
				e, ok := errors.AsType[*apiError](err)
				if ok && e.status == http.StatusTooManyRequests && own == 0 && all <= 500 {
					t.Fatal("a tenant that holds nothing was rejected although half is free")
				}
			},
			"give": func(t *rapid.T) {
				c := drawCall(t, calls)
				units := rapid.Int64Range(0, 400).Draw(t, "units")
				c.share.give(units)
				given := min(units, c.used)
				kept := min(given, c.reserved-(c.held-c.used))
				c.used -= given
				c.held -= given - kept
			},
			"end": func(t *rapid.T) {
				c := drawCall(t, calls)
				c.share.end()
				c.held, c.used, c.reserved, c.ended = 0, 0, 0, true
			},
			"": func(t *rapid.T) {
				all, _ := heldBy("")
				// A tenant that holds nothing can take everything that is free, but not more.
				if rest := 1000 - all; rest > 0 {
					if limit.budget.TryAcquire("new", rest+1) || !limit.budget.TryAcquire("new", rest) {
						t.Fatalf("the number of free units is not %d", rest)
					}
					limit.budget.Release("new", rest)
				}
			},
		})
	})
}

func drawCall[T any](t *rapid.T, calls []T) T {
	if len(calls) == 0 {
		t.Skip("no calls")
	}
	return rapid.SampledFrom(calls).Draw(t, "call")
}

// wantFree waits until the given number of bytes is free.
func (f *fixture) wantFree(bytes int64) {
	f.t.Helper()
	testutil.Eventually(f.t, func(context.Context) error {
		budget := f.gateway.memory.budget
		if !budget.TryAcquire("probe", bytes) {
			return fmt.Errorf("fewer than %d bytes are free", bytes)
		}
		budget.Release("probe", bytes)
		return nil
	})
}

// TestSentBytesAreReleased checks that neither a stream nor a slow response holds the memory of the conversation once it
// was sent to the engine, and that all memory is released in the end.
func TestSentBytesAreReleased(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			waiting, proceed := make(chan struct{}), make(chan struct{})
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
				}
				waiting <- struct{}{}
				<-proceed
				if stream {
					_, _ = w.Write([]byte(`data: {"type":"response.completed","response":{"output":[]}}` + "\n\n"))
				} else {
					jsonHandler(200, `{"status":"completed","output":[]}`).ServeHTTP(w, r)
				}
			}))
			f.seedLarge("resp_large", 8<<20)
			done := make(chan reply)
			body := fmt.Sprintf(`{"input":"x","stream":%t,"previous_response_id":"resp_large"}`, stream)
			go func() { done <- f.do(http.MethodPost, "/v1/responses", body) }()
			<-waiting
			f.wantFree(f.gateway.options.MaxInFlightBytes - 2*callBytes - f.gateway.options.reserve(int64(len(body)), true))
			close(proceed)
			if r := <-done; r.status != http.StatusOK {
				t.Errorf("got %d %s", r.status, r.body)
			}
			f.wantFree(f.gateway.options.MaxInFlightBytes)
		})
	}
}

// TestStoredTurnsAreCounted checks that a request for a large stored turn holds the memory for reading it. If its tenant has not that
// much left, the request is refused.
func TestStoredTurnsAreCounted(t *testing.T) {
	const size, limit, others = 4 << 20, 64 << 20, 20 << 20
	for name, path := range map[string]string{"retrieve": "/v1/responses/resp_large", "input items": "/v1/responses/resp_large/input_items"} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil, func(o *Options) { o.MaxRequestBytes, o.MaxInFlightBytes = 1<<20, limit })
			f.seedLarge("resp_large", size)
			// There is memory for the request, but not for the turn.
			busy := f.gateway.memory.of(f.gateway.options.Store.Namespace())
			if err := busy.take(others); err != nil {
				t.Fatal(err)
			}
			if r := f.do(http.MethodGet, path, ""); r.code() != "Too Many Requests overloaded" {
				t.Errorf("got %d %.300s, want a refusal", r.status, r.body)
			}
			f.wantFree(limit - others)
			busy.end()
			if r := f.do(http.MethodGet, path, ""); r.status != http.StatusOK {
				t.Errorf("with enough memory, got %d %.300s", r.status, r.body)
			}
			f.wantFree(limit)
		})
	}
}
