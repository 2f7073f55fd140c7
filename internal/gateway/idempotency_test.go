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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
)

// TestIdempotencyKey sends a request with a key, and then another to a second replica.
func TestIdempotencyKey(t *testing.T) {
	const first = `{"input":"a","model":"m"}`
	long := strings.Repeat("k", maxKeyBytes+1)
	for name, tc := range map[string]struct {
		first, second       string // bodies
		firstKey, secondKey string
		want                string // of the second request
		wantSame            bool   // whether it is the response of the first
		wantRuns            int
		wantNoRetry         bool
	}{
		"same request":              {first, first, "k", "k", "OK", true, 1, false},
		"same JSON value":           {first, `{ "model": "m", "input": "\u0061" }`, "k", "k", "OK", true, 1, false},
		"different request":         {first, `{"input":"b","model":"m"}`, "k", "k", "Conflict idempotency_key_reused", false, 1, true},
		"same request, as a stream": {first, `{"input":"a","model":"m","stream":true}`, "k", "k", "Conflict idempotency_key_reused", false, 1, true},
		"different key":             {first, first, "k", "l", "OK", false, 2, false},
		"without a key":             {first, first, "", "", "OK", false, 2, false},
		"not stored":                {`{"input":"a","store":false}`, `{"input":"a","store":false}`, "k", "k", "OK", false, 2, false},
		"key too long":              {first, first, "k", long, "Bad Request invalid_idempotency_key", false, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			replica := start(t, f.sent, func(o *Options) { o.Store = f.store.open() })
			a := f.do(http.MethodPost, "/v1/responses", tc.first, key(tc.firstKey)...)
			b := replica.do(http.MethodPost, "/v1/responses", tc.second, key(tc.secondKey)...)
			if a.status != http.StatusOK || b.code() != tc.want {
				t.Errorf("got %d %s, then %d %s, want %s", a.status, a.body, b.status, b.body, tc.want)
			}
			if same := a.get("id") == b.get("id") && a.body == b.body; same != tc.wantSame {
				t.Errorf("got %s, then %s", a.body, b.body)
			}
			if got := f.sent.count(); got != tc.wantRuns {
				t.Errorf("the engine ran %d times, want %d", got, tc.wantRuns)
			}
			if noRetry := b.header.Get("X-Should-Retry") == "false"; noRetry != tc.wantNoRetry {
				t.Errorf("got X-Should-Retry %q", b.header.Get("X-Should-Retry"))
			}
		})
	}
}

// TestComparedInTurn checks that comparing a request with a stored one waits for a turn if one of them is large, and that its
// memory counts.
func TestComparedInTurn(t *testing.T) {
	text := func(bytes int) string { return `"` + strings.Repeat("x", bytes) + `"` }
	members := "{" + strings.Repeat(`"k":{},`, largeBody/7) + `"l":0}`
	const memoryBytes = 10 << 20
	for name, tc := range map[string]struct {
		body, stored string
		turns, free  int64
		want         bool
		wantErr      string
	}{
		"small":                    {" 1", "1", 0, 0, true, ""},
		"large":                    {text(largeBody), " " + text(largeBody), 2, 0, true, ""},
		"large, different":         {text(largeBody), text(largeBody + 1), 2, 0, false, ""},
		"large, no turn":           {text(largeBody), " " + text(largeBody), 0, 0, false, "1 units were requested"},
		"large, same bytes":        {text(largeBody), text(largeBody), 0, 0, true, ""},
		"stored is large":          {"[]", strings.Repeat(" ", largeBody) + "[]", 2, 1 << 10, true, ""},
		"stored is large, no turn": {"[]", strings.Repeat(" ", largeBody) + "[]", 0, 1 << 10, false, "1 units were requested"},
		"many members":             {members, " " + members, 2, memoryBytes, false, ""}, // with the same key
		"many members, no memory":  {members, " " + members, 2, 1 << 10, false, "(--flag)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Gateway{parses: fair.NewBudget(tc.turns), memory: newSharedLimit(memoryBytes, "--flag", "memory")}
			c := &call{store: memory.New(memory.Options{}).InNamespace("a"), memory: g.memory.of("a")}
			used := memoryBytes - tc.free
			if used > 0 && !g.memory.budget.TryAcquire("b", used) {
				t.Fatal("unable to take the memory")
			}
			got, err := g.sameRequest(t.Context(), c, []byte(tc.body), []byte(tc.stored))
			if got != tc.want || (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %t and error %v, want %t and %q", got, err, tc.want, tc.wantErr)
			}
			if got := g.memory.budget.Used(); got != used || g.parses.Used() != 0 {
				t.Errorf("afterwards, %d bytes and %d turns are in use, want %d and none", got, g.parses.Used(), used)
			}
		})
	}
}

func key(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Idempotency-Key", key}
}

// TestKeysPerTenant checks that two tenants with the same key get separate turns.
func TestKeysPerTenant(t *testing.T) {
	f, _ := startTenants(t)
	ids := map[string]bool{}
	for _, tenant := range []string{"sk-a", "sk-b", "sk-a"} {
		r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`, "Idempotency-Key", "k", "Authorization", "Bearer "+tenant)
		if r.status != http.StatusOK {
			t.Fatalf("got %d %s", r.status, r.body)
		}
		ids[r.get("id")] = true
	}
	if len(ids) != 2 || f.sent.count() != 2 {
		t.Errorf("%d turns and %d runs, want 2 and 2", len(ids), f.sent.count())
	}
}

// TestKeysPerAccount checks that clients with accounts of their own at the engine do not share their keys.
func TestKeysPerAccount(t *testing.T) {
	f := start(t, nil)
	ids := map[string]bool{}
	for _, account := range []string{"sk-a", "sk-b", "sk-a"} {
		ids[f.create(`{"input":"a"}`, "Idempotency-Key", "k", "Authorization", "Bearer "+account).get("id")] = true
	}
	if len(ids) != 2 || f.sent.count() != 2 {
		t.Errorf("%d turns and %d runs, want 2 and 2", len(ids), f.sent.count())
	}
}

// TestRepeatedStream checks that a repeated stream has the same items and the same end as the first.
func TestRepeatedStream(t *testing.T) {
	f := start(t, streamHandler(sse(created, itemDone, completed)))
	const body = `{"input":"a","stream":true}`
	a, b := f.create(body, "Idempotency-Key", "k"), f.create(body, "Idempotency-Key", "k")
	want := []string{"response.created", "response.output_item.added", "response.output_item.done", "response.completed"}
	if diff := cmp.Diff(want, kinds(b.body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	begin, end := events(b.body)[0], events(b.body)[3]
	if begin.get("response.status") != "in_progress" || begin.get("response.output") != "[]" || begin.get("response.id") != end.get("response.id") {
		t.Errorf("got the first event %s, want an empty response in progress with the ID of the last event", begin.body)
	}
	if diff := cmp.Diff(events(a.body)[2].get("response"), end.get("response")); diff != "" || f.sent.count() != 1 {
		t.Errorf("%d runs, the end differs (-first +second):\n%s", f.sent.count(), diff)
	}
}

// TestRepeatedLargeStream: a repeated stream has every item of a large response, in order, with the numbers of a stream.
func TestRepeatedLargeStream(t *testing.T) {
	const items = 3 * pieceBytes / 100
	var output strings.Builder
	for i := range items {
		text := ""
		if i%1000 == 500 {
			text = strings.Repeat("x", 2*pieceBytes)
		}
		fmt.Fprintf(&output, `,{"id":"msg_%d","type":"message","role":"assistant","content":[{"type":"output_text","text":"%s"}]}`, i, text)
	}
	f := start(t, streamHandler(sse(created, `{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[`+output.String()[1:]+`]}}`)))
	const body = `{"input":"a","stream":true}`
	first, got := events(f.create(body, "Idempotency-Key", "k").body), events(f.create(body, "Idempotency-Key", "k").body)
	response := first[len(first)-1].get("response")
	if len(got) != 2*items+2 || got[len(got)-1].get("response") != response {
		t.Fatalf("got %d events, want %d, the last one with the same response", len(got), 2*items+2)
	}
	want := gjson.Get(response, "output").Array()
	for i, e := range got {
		if e.get("sequence_number") != strconv.Itoa(i) {
			t.Fatalf("event %d has the number %s", i, e.get("sequence_number"))
		}
		if item := (i - 1) / 2; i > 0 && i < len(got)-1 && (e.get("output_index") != strconv.Itoa(item) || e.get("item") != want[item].Raw) {
			t.Fatalf("event %d has item %s, want %d", i, e.get("output_index"), item)
		}
	}
	if used := f.gateway.parses.Used(); used != 0 {
		t.Errorf("%d turns are still taken", used)
	}
}

// TestRepeatAfterFailure checks that a request whose first response failed runs again and replaces the failed turn.
func TestRepeatAfterFailure(t *testing.T) {
	var runs atomic.Int64
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream := sse(created) // ends without a terminal event
		if runs.Add(1) > 1 {
			stream = sse(created, completed)
		}
		streamHandler(stream).ServeHTTP(w, r)
	}))
	const body = `{"input":"a","stream":true}`
	first := events(f.create(body, "Idempotency-Key", "k").body)[0].get("response.id")
	if got := f.saved(first).Status; got != "failed" {
		t.Errorf("the first response is %s, want failed", got)
	}
	for range 2 {
		f.create(body, "Idempotency-Key", "k")
		if got := f.saved(first).Status; got != "completed" || runs.Load() != 2 {
			t.Errorf("the turn is %s after %d runs, want completed after 2", got, runs.Load())
		}
	}
}

// TestRepeatAfterDeletion checks that a request is saved if the failed turn that it would replace is deleted in the meantime.
func TestRepeatAfterDeletion(t *testing.T) {
	var runs atomic.Int64
	var f *fixture
	var id string
	f = start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"status":"failed","output":[]}`
		if runs.Add(1) > 1 {
			body = `{"status":"completed","output":[]}`
			if err := f.store.next.InNamespace("default").Delete(r.Context(), id, store.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		jsonHandler(http.StatusOK, body).ServeHTTP(w, r)
	}))
	id = f.create(`{"input":"a"}`, "Idempotency-Key", "k").get("id")
	second := f.create(`{"input":"a"}`, "Idempotency-Key", "k")
	if second.get("id") != id || f.saved(id) == nil || f.saved(id).Status != "completed" {
		t.Errorf("got %s", second.body)
	}
}

// TestConcurrentRepeats checks that concurrent copies of a request create one turn, and all receive it, even after a
// failure.
func TestConcurrentRepeats(t *testing.T) {
	for name, tc := range map[string]struct{ failed, stream bool }{
		"new":                         {false, false},
		"after a failure":             {true, false},
		"new, as streams":             {false, true},
		"after a failure, as streams": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 4
			var runs atomic.Int64
			var together sync.WaitGroup
			together.Add(clients)
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				run := runs.Add(1)
				response := `{"status":"failed","output":[]}`
				if !tc.failed || run > 1 {
					together.Done()
					together.Wait() // none has found a finished response
					response = fmt.Sprintf(`{"status":"completed","output":[],"run":%d}`, run)
				}
				if tc.stream {
					end := fmt.Sprintf(`{"type":"response.%s","response":%s}`, gjson.Get(response, "status"), response)
					streamHandler(sse(created, end)).ServeHTTP(w, r)
					return
				}
				jsonHandler(http.StatusOK, response).ServeHTTP(w, r)
			}))
			body := fmt.Sprintf(`{"input":"a","stream":%t}`, tc.stream)
			if tc.failed {
				f.do(http.MethodPost, "/v1/responses", body, "Idempotency-Key", "k")
			}
			replies := make(chan reply, clients)
			for range clients {
				go func() { replies <- f.do(http.MethodPost, "/v1/responses", body, "Idempotency-Key", "k") }()
			}
			got := map[string]bool{}
			for range clients {
				r := <-replies
				if tc.stream {
					all := events(r.body)
					r = reply{r.status, r.header, all[len(all)-1].get("response")}
				}
				if r.status != http.StatusOK || r.get("status") != "completed" {
					t.Errorf("got %d %s", r.status, r.body)
				}
				got[r.body] = true
			}
			if len(got) != 1 {
				t.Errorf("got different responses for the same request: %v", got)
			}
		})
	}
}

// TestKeyAllowsRetries checks that the error asks a client with a key to retry if the turn could not be saved.
func TestKeyAllowsRetries(t *testing.T) {
	f := start(t, nil)
	f.store.onSave = func(context.Context, *store.Session, func() error) error {
		return &store.Error{Code: store.CodeUnreachable, Retryable: true}
	}
	r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`, "Idempotency-Key", "k")
	if r.code() != "Service Unavailable session.store.unreachable" || r.header.Get("Retry-After") != "1" || r.header.Get("X-Should-Retry") != "" {
		t.Errorf("got %d %s %v, want an error that can be retried", r.status, r.body, r.header)
	}
}
