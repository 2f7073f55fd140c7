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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/store"
)

func TestRejectedRequests(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.MaxRequestBytes, o.MaxDepth = 2000, 2 })
	f.seed("resp_done", "", "completed")
	f.seed("resp_orphan", "resp_gone", "completed")
	f.seed("resp_failed", "", "failed")
	f.seed("resp_cancelled", "", "cancelled")
	f.seed("resp_pending", "", "in_progress")
	f.seed("resp_after_failed", "resp_failed", "completed")
	f.seed("resp_a", "resp_b", "completed")
	f.seed("resp_b", "resp_a", "completed")
	f.seed("resp_2", "resp_done", "completed")
	f.seed("resp_3", "resp_2", "completed")
	sent := f.sent.count()
	for name, tc := range map[string]struct {
		body      string
		wantCode  int
		wantError string
	}{
		"not JSON":      {`{"input":`, 400, `{"message":"We could not parse the JSON body of your request: it must be JSON.","type":"invalid_request_error","param":null,"code":"invalid_json"}`},
		"nothing":       {``, 400, `{"message":"We could not parse the JSON body of your request: it must be an object.","type":"invalid_request_error","param":null,"code":"invalid_json"}`},
		"not an object": {`[]`, 400, `{"message":"We could not parse the JSON body of your request: it must be an object.","type":"invalid_request_error","param":null,"code":"invalid_json"}`},
		"duplicate key": {
			`{"input":"a","\u0069nput":"b"}`, 400,
			`{"message":"We could not parse the JSON body of your request: it contains a duplicate key.","type":"invalid_request_error","param":null,"code":"invalid_json"}`,
		},
		"not UTF-8": {"{\"input\":\"\xff\"}", 400, `{"message":"We could not parse the JSON body of your request: it must be UTF-8.","type":"invalid_request_error","param":null,"code":"invalid_json"}`},
		"too large": {`{"input":"` + strings.Repeat("a", 2000) + `"}`, 413, `{"message":"The request is too large.","type":"invalid_request_error","param":null,"code":"request_too_large"}`},
		"both parents": {
			`{"previous_response_id":"resp_none","conversation":"conv_1"}`, 400,
			`{"message":"Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.","type":"invalid_request_error","param":null,"code":"mutually_exclusive_parameters"}`,
		},
		"unknown conversation": {
			`{"conversation":{"id":"conv_1"}}`, 404,
			`{"message":"Conversation with id 'conv_1' not found.","type":"invalid_request_error","param":null,"code":null}`,
		},
		"unknown conversation, not stored": {
			`{"conversation":"conv_1","store":false}`, 404,
			`{"message":"Conversation with id 'conv_1' not found.","type":"invalid_request_error","param":null,"code":null}`,
		},
		"unknown conversation, with a reference": {
			`{"conversation":"conv_1","input":[{"type":"item_reference","id":"msg_done_0"}]}`, 404,
			`{"message":"Conversation with id 'conv_1' not found.","type":"invalid_request_error","param":null,"code":null}`,
		},
		"conversation without an ID": {
			`{"conversation":{"name":"conv_1"}}`, 400,
			`{"message":"Invalid type for 'conversation': expected an ID or an object with an ID.","type":"invalid_request_error","param":"conversation","code":"invalid_type"}`,
		},
		"conversation with an empty ID": {
			`{"conversation":""}`, 400,
			`{"message":"Invalid 'conversation': must have 1 to 512 characters.","type":"invalid_request_error","param":"conversation","code":"invalid_value"}`,
		},
		"background": {
			`{"input":"a","background":true}`, 400,
			`{"message":"Unsupported parameter: 'background'. Responses are created synchronously; use 'stream' to receive them incrementally.","type":"invalid_request_error","param":"background","code":"unsupported_parameter"}`,
		},
		"store not a boolean": {`{"store":1}`, 400, `{"message":"Invalid type for 'store': expected a boolean.","type":"invalid_request_error","param":"store","code":"invalid_type"}`},
		"parent not a string": {
			`{"previous_response_id":1}`, 400,
			`{"message":"Invalid type for 'previous_response_id': expected a string.","type":"invalid_request_error","param":"previous_response_id","code":"invalid_type"}`,
		},
		"parent too long": {
			`{"previous_response_id":"` + strings.Repeat("a", 513) + `"}`, 400,
			`{"message":"Invalid 'previous_response_id': string too long, at most 512 characters are allowed.","type":"invalid_request_error","param":"previous_response_id","code":"string_above_max_length"}`,
		},
		"input with a number": {
			`{"input":[1]}`, 400,
			"{\"message\":\"Invalid request: unable to read `input` of the request: must be a string or a list of objects: item 0 must be an object.\",\"type\":\"invalid_request_error\",\"param\":\"input\",\"code\":\"invalid_type\"}",
		},
		"unknown parent": {
			`{"previous_response_id":"resp_\"none"}`, 400,
			`{"message":"Previous response with id 'resp_\"none' not found.","type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}`,
		},
		"unknown ancestor": {
			`{"previous_response_id":"resp_orphan"}`, 400,
			`{"message":"The conversation cannot be continued: response \"resp_gone\", an ancestor of \"resp_orphan\", was not found.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.not_found"}`,
		},
		"too deep": {
			`{"previous_response_id":"resp_3"}`, 400,
			`{"message":"The conversation cannot be continued: the chain of response \"resp_3\" has more than 2 turns: \"resp_done\" is beyond the limit, which a request can raise with maxDepth. The gateway requests the maxDepth that its --max-depth flag sets.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.depth_exceeded"}`,
		},
		"failed parent": {
			`{"previous_response_id":"resp_failed"}`, 400,
			`{"message":"The conversation cannot be continued: response \"resp_failed\" is \"failed\", not completed, and cannot be used as context.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.unavailable"}`,
		},
		"failed ancestor": {
			`{"previous_response_id":"resp_after_failed"}`, 400,
			`{"message":"The conversation cannot be continued: response \"resp_failed\" is \"failed\", not completed, and cannot be used as context.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.unavailable"}`,
		},
		"cancelled parent": {
			`{"previous_response_id":"resp_cancelled"}`, 400,
			`{"message":"The conversation cannot be continued: response \"resp_cancelled\" is \"cancelled\", not completed, and cannot be used as context.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.unavailable"}`,
		},
		"pending parent": {
			`{"previous_response_id":"resp_pending"}`, 409,
			`{"message":"The conversation cannot be continued: response \"resp_pending\" is \"in_progress\" and cannot be used as context until it is completed.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.unavailable"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.do(http.MethodPost, "/v1/responses", tc.body)
			if diff := cmp.Diff(tc.wantError, r.get("error")); diff != "" || r.status != tc.wantCode {
				t.Errorf("status %d, want %d, error (-want +got):\n%s", r.status, tc.wantCode, diff)
			}
		})
	}
	if f.sent.count() != sent {
		t.Error("the engine received a request")
	}
}

func TestStoreErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err        error
		wantStatus int
		wantError  string
		wantHeader map[string]string
	}{
		"cycle": {
			&store.Error{Code: store.CodeCycleDetected, ResponseID: "resp_a", Message: "it leads back to resp_a"}, 400,
			`{"message":"The conversation cannot be continued: it leads back to resp_a.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.cycle_detected"}`, nil,
		},
		"code of a newer version": {
			&store.Error{Code: "session.chain.forked", ResponseID: "resp_a", Message: "it forks at resp_a"}, 400,
			`{"message":"The conversation cannot be continued: it forks at resp_a.","type":"invalid_request_error","param":"previous_response_id","code":"session.chain.forked"}`, nil,
		},
		"unreadable": {
			&store.Error{Code: store.CodeUnreadable, ResponseID: "resp_a", Message: "resp_a cannot be read"}, 500,
			`{"message":"The store cannot return the response: resp_a cannot be read.","type":"server_error","param":null,"code":"session.snapshot.unreadable"}`,
			map[string]string{"X-Should-Retry": "false"},
		},
		"unreachable": {
			&store.Error{Code: store.CodeUnreachable, Retryable: true}, 503,
			`{"message":"The store cannot be reached.","type":"server_error","param":null,"code":"session.store.unreachable"}`,
			map[string]string{"Retry-After": "1", "X-Should-Retry": ""},
		},
		"too large": {
			&store.Error{Code: store.CodeTooLarge}, 400,
			`{"message":"The conversation is too large to be continued.","type":"invalid_request_error","param":"previous_response_id","code":"session.snapshot.too_large"}`, nil,
		},
		"other error": {
			errors.New("boom"), 500, `{"message":"The store returned an unexpected error.","type":"server_error","param":null,"code":"internal_error"}`,
			map[string]string{"X-Should-Retry": "false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			f.store.onResolve = func(context.Context) error { return tc.err }
			r := f.do(http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_a"}`)
			if diff := cmp.Diff(tc.wantError, r.get("error")); diff != "" || r.status != tc.wantStatus {
				t.Errorf("status %d, want %d, error (-want +got):\n%s", r.status, tc.wantStatus, diff)
			}
			for name, want := range tc.wantHeader {
				if got := r.header.Get(name); got != want {
					t.Errorf("header %s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestSaveFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		err        error
		wantStatus int
		wantCode   string
		// wantCounted is the code in the metrics of the store.
		wantCounted string
	}{
		"unreachable":      {&store.Error{Code: store.CodeUnreachable, Retryable: true}, 503, "session.store.unreachable", "session.store.unreachable"},
		"conflict":         {&store.Error{Code: store.CodeConflict}, 500, "session.store.conflict", "session.store.conflict"},
		"quota":            {&store.Error{Code: store.CodeQuotaExceeded}, 429, "session.store.quota_exceeded", "session.store.quota_exceeded"},
		"too large":        {&store.Error{Code: store.CodeTooLarge}, 500, "session.snapshot.too_large", "session.snapshot.too_large"},
		"invalid response": {&store.Error{Code: store.CodeInvalid}, 502, "upstream_invalid_response", "session.store.invalid"},
		"other error":      {errors.New("boom"), 500, "internal_error", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			attempts := 0
			f.store.onSave = func(context.Context, *store.Session, func() error) error {
				attempts++
				return tc.err
			}
			r := f.do(http.MethodPost, "/v1/responses", `{"input":"secret text"}`)
			if r.status != tc.wantStatus || r.get("error.code") != tc.wantCode {
				t.Errorf("got %d %s, want %d %s", r.status, r.body, tc.wantStatus, tc.wantCode)
			}
			if attempts != 1 {
				t.Errorf("%d attempts, want 1: only the store retries", attempts)
			}
			if r.header.Get("X-Should-Retry") != "false" || r.header.Get("Retry-After") != "" {
				t.Errorf("headers %v, want X-Should-Retry: false, because the engine has run", r.header)
			}
			if diff := cmp.Diff([]string{tc.wantCounted}, f.savesByCode()); diff != "" {
				t.Errorf("saves by code (-want +got):\n%s", diff)
			}
			if strings.Contains(r.body+f.log.String(), "secret text") {
				t.Error("the response or the log contains text of the request")
			}
		})
	}
}

// TestSaveTimeout checks that a store that does not respond is treated as unreachable.
func TestSaveTimeout(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.SaveTimeout = time.Nanosecond })
	f.store.onSave = func(ctx context.Context, _ *store.Session, _ func() error) error {
		if _, ok := ctx.Deadline(); !ok {
			return errors.New("the save has no deadline")
		}
		<-ctx.Done()
		return fmt.Errorf("unable to save: %w", ctx.Err())
	}
	r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`)
	if r.code() != "Service Unavailable session.store.unreachable" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if diff := cmp.Diff([]string{"deadline_exceeded"}, f.savesByCode()); diff != "" {
		t.Errorf("saves by code (-want +got):\n%s", diff)
	}
}

func TestUnknownURL(t *testing.T) {
	f := start(t, nil)
	for path, method := range map[string]string{"/v1/responses": "PUT", "/": "GET", "/v1/responses/a/cancel": "GET"} {
		if r := f.do(method, path, ""); r.code() != "Not Found unknown_url" {
			t.Errorf("%s %s: got %d %s", method, path, r.status, r.body)
		}
	}
}

// TestOnlySentBytesCount checks that only the bytes that a client has sent count as in flight, regardless of the
// Content-Length.
func TestOnlySentBytesCount(t *testing.T) {
	for name, length := range map[string]int64{"unknown length": -1, "maximum length": 32 << 20} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, enginetest.Handler())
			var clients []*io.PipeWriter
			replies := make(chan *httptest.ResponseRecorder)
			for range 20 {
				body, client := io.Pipe()
				clients = append(clients, client)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", body)
				r.ContentLength = length
				go func() {
					w := httptest.NewRecorder()
					f.gateway.Handler().ServeHTTP(w, r)
					_ = body.Close()
					replies <- w
				}()
				_, _ = io.WriteString(client, `{"input":`) // returns when the gateway has read it
			}
			for _, client := range clients {
				_, _ = io.WriteString(client, `"a"}`)
				_ = client.Close()
				if w := <-replies; w.Code != http.StatusOK {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			}
		})
	}
}

// TestRequestAboveTheLimit checks that the error for a request that exceeds the limit by itself does not ask for a retry.
func TestRequestAboveTheLimit(t *testing.T) {
	f := start(t, jsonHandler(200, `{"status":"completed","output":[]}`), func(o *Options) {
		o.MaxRequestBytes, o.ResponseReserveBytes, o.MaxInFlightBytes = 300<<10, 0, 8<<20
	})
	save := func(id, previous, input string) {
		session := &store.Session{
			ResponseID: id, PreviousResponseID: previous, Status: store.StatusCompleted,
			Request: []byte(`{"input":"` + input + `"}`), Response: []byte(`{"output":[]}`),
		}
		if err := f.store.next.InNamespace("default").Save(t.Context(), session, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	save("resp_large", "", strings.Repeat("x", 5<<20))
	save("resp_after", "resp_large", "x")
	save("resp_half", "", strings.Repeat("x", 3<<19))
	for name, tc := range map[string]struct{ method, path, body, want string }{
		"continue":                  {http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_large"}`, "Bad Request session.snapshot.too_large"},
		"continue with large input": {http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_half","input":"` + strings.Repeat("x", 300<<10-100) + `"}`, "Bad Request session.snapshot.too_large"},
		"continue with no input":    {http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_half"}`, "OK"},
		"retrieve":                  {http.MethodGet, "/v1/responses/resp_large", "", "Bad Request session.snapshot.too_large"},
		"input items of a child":    {http.MethodGet, "/v1/responses/resp_after/input_items", "", "Bad Request session.snapshot.too_large"},
		"retrieve a child":          {http.MethodGet, "/v1/responses/resp_after", "", "OK"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := f.do(tc.method, tc.path, tc.body); r.code() != tc.want {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			}
		})
	}
}
