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
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestLargerThanReserved checks responses that exceed the reserve while their tenant's share is in use. None waits for memory,
// because all would wait for each other. Some are lost, and their error does not ask for a retry. A tenant within its share is
// not affected.
func TestLargerThanReserved(t *testing.T) {
	// There is memory for one response of these sizes, but not while two others are in flight.
	for stream, size := range map[bool]int{false: 230 << 10, true: 100 << 10} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			engine := &heldEngine{waiting: make(chan struct{}), proceed: map[string]chan struct{}{}}
			engine.proceed["small"], engine.proceed["large"] = make(chan struct{}), make(chan struct{})
			engine.item = `{"type":"message","text":"` + strings.Repeat("y", size) + `"}`
			f := start(t, engine, twoTenants(t), func(o *Options) {
				o.MaxRequestBytes, o.ResponseReserveBytes, o.MaxInFlightBytes = 64<<10, 4<<10, 8<<20
			})
			// begin sends a request, and returns once the engine has received it or has received a response.
			begin := func(tenant, body string) (done chan reply, refused bool) {
				done = make(chan reply, 1)
				answered := make(chan struct{})
				go func() {
					done <- f.do(http.MethodPost, "/v1/responses", body, "Authorization", "Bearer "+tenant)
					close(answered)
				}()
				select {
				case <-engine.waiting:
					return done, false
				case <-answered:
					return done, true
				}
			}
			const small = `{"model":"small","input":"x"}`
			large := fmt.Sprintf(`{"model":"large","stream":%t,"input":"%s"}`, stream, strings.Repeat("x", 64<<10-100))

			modest, refused := begin("b", small)
			if refused {
				t.Fatalf("got %+v", <-modest)
			}
			var filling []chan reply
			for done, refused := begin("a", large); !refused; done, refused = begin("a", large) {
				filling = append(filling, done)
			}
			close(engine.proceed["large"])
			lost := 0
			for _, done := range filling {
				if isLost(t, <-done) {
					lost++
				}
			}
			if len(filling) < 3 || lost == 0 {
				t.Errorf("%d concurrent responses, %d lost", len(filling), lost)
			}
			again, _ := begin("b", small)
			close(engine.proceed["small"])
			for _, done := range []chan reply{modest, again} {
				if r := <-done; r.status != http.StatusOK {
					t.Errorf("another tenant got %d %s", r.status, r.body)
				}
			}
			f.wantFree(f.gateway.options.MaxInFlightBytes)
			if alone, _ := begin("a", large); isLost(t, <-alone) {
				t.Error("a response was lost although nothing else is in flight")
			}
		})
	}
}

// TestNamingBytes: the memory for the IDs of calls is more than a response grows by them.
func TestNamingBytes(t *testing.T) {
	for name, tc := range map[string]struct {
		item  string
		store bool
		grows bool
	}{
		"calls":        {`{"type":"a_call","call_id":"c%d"}`, true, true},
		"answers":      {`{"type":"function_call_output","call_id":"c%d"}`, true, false},
		"approvals":    {`{"type":"mcp_call","approval_request_id":"r%d"}`, true, true},
		"other items":  {`{"type":"message","n":%d}`, true, false},
		"not stored":   {`{"type":"a_call","call_id":"c%d"}`, false, false},
		"no items":     {`{"n":%d}`, true, false},
		"nested calls": {`{"type":"a","x":{"call_id":"c%d"}}`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			const items = 1000
			var output, input strings.Builder
			for i := range items {
				_, _ = fmt.Fprintf(&output, ","+tc.item, i)
				_, _ = fmt.Fprintf(&input, `,{"type":"mcp_approval_response","approval_request_id":%s}`, quote(itemName{"resp_" + strings.Repeat("1", 32), i}.behind(fmt.Sprint("r", i))))
			}
			request, err := parseRequest([]byte(fmt.Sprintf(`{"store":%t,"input":[%s]}`, tc.store, input.String()[1:])))
			if err != nil {
				t.Fatal(err)
			}
			turn := &turn{id: "resp_" + strings.Repeat("0", 32), request: request}
			response, err := parseObject([]byte(`{"output":[` + output.String()[1:] + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			before, counted := len(response.String()), turn.namingBytes(response)
			turn.nameCalls(response)
			grown := int64(len(response.String()) - before)
			if (grown > 0) != tc.grows || 2*grown > counted {
				t.Errorf("%d bytes more, twice, and %d counted", grown, counted)
			}
		})
	}
}

// heldEngine blocks each response until its model may proceed. The model large returns an item, the model small does not.
type heldEngine struct {
	waiting chan struct{}
	proceed map[string]chan struct{}
	item    string
}

func (e *heldEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	request := gjson.ParseBytes(body)
	model := request.Get("model").Str
	e.waiting <- struct{}{}
	<-e.proceed[model]
	response := `{"status":"completed","output":[]}`
	if model == "large" {
		response = `{"status":"completed","output":[` + e.item + `]}`
	}
	if !request.Get("stream").Bool() {
		jsonHandler(200, response).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.output_item.done\",\"item\":%s}\n\n", e.item)
	_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.completed\",\"response\":%s}\n\n", response)
}

// isLost reports whether a response was lost for lack of memory.
func isLost(t *testing.T, r reply) bool {
	t.Helper()
	const message = "exceeds the memory reserved for it (--response-reserve-bytes)"
	switch {
	case r.status == http.StatusTooManyRequests && r.get("error.code") == codeOverloaded && r.header.Get("X-Should-Retry") == "false":
		if !strings.Contains(r.get("error.message"), message) {
			t.Errorf("got %s", r.body)
		}
		return true
	case r.status == http.StatusOK && strings.Contains(r.body, "response.failed"):
		if !strings.Contains(r.body, message) || !strings.Contains(r.body, "("+codeOverloaded+")") {
			t.Errorf("got %.300s", r.body)
		}
		return true
	case r.status != http.StatusOK || !gjson.Valid(r.body) && !strings.Contains(r.body, "response.completed"):
		t.Errorf("got %d %.300s", r.status, r.body)
	}
	return false
}
