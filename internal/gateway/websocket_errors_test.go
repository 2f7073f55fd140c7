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
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// TestWebSocketErrors checks that the connection survives requests that are rejected.
func TestWebSocketErrors(t *testing.T) {
	huge := `{"type":"response.create","input":"` + strings.Repeat("x", 2000) + `"}`
	for name, tc := range map[string]struct {
		message, want string
		binary        bool
	}{
		"not JSON":           {message: `{`, want: "Bad Request invalid_json"},
		"not an object":      {message: `["response.create"]`, want: "Bad Request invalid_json"},
		"empty":              {message: ``, want: "Bad Request invalid_json"},
		"repeated member":    {message: `{"type":"response.create","type":"response.create"}`, want: "Bad Request invalid_json"},
		"binary":             {message: `{"type":"response.create","input":"a"}`, binary: true, want: "Bad Request invalid_message"},
		"too large":          {message: huge, want: "Request Entity Too Large request_too_large"},
		"no type":            {message: `{"input":"a"}`, want: "Bad Request invalid_value"},
		"unknown type":       {message: `{"type":"response.cancel"}`, want: "Bad Request invalid_value"},
		"stream_id":          {message: `{"type":"response.create","stream_id":""}`, want: "Bad Request invalid_stream_id"},
		"generate":           {message: `{"type":"response.create","generate":"no"}`, want: "Bad Request invalid_type"},
		"input":              {message: `{"type":"response.create","input":1}`, want: "Bad Request invalid_type"},
		"background":         {message: `{"type":"response.create","background":true}`, want: "Bad Request unsupported_parameter"},
		"conversation":       {message: `{"type":"response.create","conversation":"conv_1"}`, want: "Not Found"},
		"previous":           {message: `{"type":"response.create","previous_response_id":"resp_none"}`, want: "Bad Request previous_response_not_found"},
		"previous, no store": {message: `{"type":"response.create","previous_response_id":"resp_none","store":false}`, want: "Bad Request previous_response_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil, func(o *Options) { o.MaxRequestBytes = 1024 })
			c := f.dial()
			kind := websocket.MessageText
			if tc.binary {
				kind = websocket.MessageBinary
			}
			if err := c.conn.Write(t.Context(), kind, []byte(tc.message)); err != nil {
				t.Fatal(err)
			}
			c.wantError(c.next(), tc.want)
			c.say("still here", "", `,"stream":false`)
		})
	}
}

// TestWebSocketEngineErrors checks that the engine's errors have OpenAI's format, and over HTTP unless they are something else.
func TestWebSocketEngineErrors(t *testing.T) {
	const full = `{"message":"no","type":"invalid_request_error","param":"model","code":"model_not_found"}`
	for name, tc := range map[string]struct {
		engine http.Handler
		want   string
		error  string // if it is not empty, the error without its headers
	}{
		"OpenAI's format": {jsonHandler(400, `{"error":`+full+`}`), "Bad Request model_not_found", full},
		"only a message":  {jsonHandler(400, `{"error":{"message":"no"}}`), "Bad Request", `{"message":"no","type":"invalid_request_error","param":null,"code":null}`},
		"a status as the code": {
			jsonHandler(500, `{"error":{"message":"no","type":"x","param":null,"code":500}}`), "Internal Server Error 500",
			`{"message":"no","type":"x","param":null,"code":"500"}`,
		},
		"not in an object": {
			jsonHandler(400, `{"object":"error","message":"too long","type":"BadRequestError","param":{},"code":400}`), "Bad Request 400",
			`{"message":"too long","type":"BadRequestError","param":null,"code":"400"}`,
		},
		"a text": {
			jsonHandler(404, `{"error":"no such model"}`), "Not Found",
			`{"message":"no such model","type":"invalid_request_error","param":null,"code":null}`,
		},
		"a list": {jsonHandler(400, `{"error":["x"]}`), "Bad Request", ""},
		"another format": {
			jsonHandler(500, `broken`), "Internal Server Error", `{"message":"The upstream failed with status 500.","type":"server_error","param":null,"code":null}`,
		},
		"large":     {jsonHandler(400, `{"error":{"code":"`+strings.Repeat("x", maxErrorBytes)+`"}}`), "Bad Request", ""},
		"no stream": {jsonHandler(200, `{"status":"completed","output":[]}`), "Bad Gateway upstream_invalid_response", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, tc.engine)
			if r := f.do(http.MethodPost, "/v1/responses", `{"input":"a"}`); tc.error != "" && name != "another format" && r.get("error") != tc.error {
				t.Errorf("over HTTP: got %s, want the error %s", r.body, tc.error)
			}
			c := f.dial()
			c.send(`{"type":"response.create","input":"a","stream_id":"s"}`)
			m := c.next()
			if c.wantError(m, tc.want); m.get("stream_id") != "s" {
				t.Errorf("got %s", m.body)
			}
			if got := strings.Replace(m.get("error"), `,"headers":{"x-should-retry":"false"}`, "", 1); tc.error != "" && got != tc.error {
				t.Errorf("got %s, want the error %s", m.body, tc.error)
			}
		})
	}
}

// TestWebSocketFailureIsOneEvent: a response that fails ends with one event, in the form of OpenAI's errors on such connections. What an engine sends
// after that is not a part of the next response.
func TestWebSocketFailureIsOneEvent(t *testing.T) {
	const failed = `{"type":"response.failed","response":{"id":"up","status":"failed","output":[]}}`
	for name, tc := range map[string]struct{ event, want string }{
		"flat": {
			`{"type":"error","code":"rate_limit","message":"slow down","param":null,"sequence_number":1}`,
			`{"message":"slow down","param":null,"code":"rate_limit","type":"server_error"}`,
		},
		"an object": {
			`{"type":"error","status":429,"error":{"message":"slow down"}}`,
			`{"message":"slow down","type":"requests","param":null,"code":null}`,
		},
		"a text": {`{"type":"error","error":"slow down"}`, `{"message":"slow down","type":"server_error","param":null,"code":null}`},
		"a list": {`{"type":"error","error":["x"],"message":"slow down"}`, `{"message":"slow down","param":null,"code":null,"type":"server_error"}`},
		"empty":  {`{"type":"error"}`, `{"message":"","param":null,"code":null,"type":"server_error"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				engine := streamHandler(sse(created, tc.event, failed))
				if requests.Add(1) > 1 {
					engine = streamHandler(sse(created, completed))
				}
				engine.ServeHTTP(w, r)
			}))
			c := f.dial()
			last := c.ask(`"input":"a"`)
			if diff := cmp.Diff(tc.want, last.get("error")); diff != "" || last.get("type") != "error" || last.status < 400 {
				t.Errorf("got %s (-want +got):\n%s", last.body, diff)
			}
			if next := c.ask(`"input":"b"`); next.get("type") != "response.completed" {
				t.Errorf("the next response ended with %s", next.body)
			}
		})
	}
}

// TestWebSocketErrorHeaders checks that an error has the headers of an HTTP response that say whether a retry helps.
func TestWebSocketErrorHeaders(t *testing.T) {
	failure := jsonHandler(429, `{"error":{"message":"no"}}`)
	for name, tc := range map[string]struct {
		engine http.Handler
		want   string
	}{
		"later":    {advise(advise(failure, "Retry-After", "8"), "Set-Cookie", "x"), `{"retry-after":"8"}`},
		"as usual": {failure, ""},
		"never":    {jsonHandler(500, `broken`), `{"x-should-retry":"false"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := start(t, tc.engine).dial().ask(`"input":"a"`); got.get("error.headers") != tc.want || got.get("error.message") == "" {
				t.Errorf("got %s, want the headers %s", got.body, tc.want)
			}
		})
	}
}

// TestWebSocketHugeMessage: what exceeds the limit by far is not even skipped.
func TestWebSocketHugeMessage(t *testing.T) {
	c := start(t, nil, func(o *Options) { o.MaxRequestBytes = 1024 }).dial()
	c.send(strings.Repeat("x", 64<<10))
	c.wantError(c.next(), "Request Entity Too Large request_too_large")
	c.wantClose(websocket.StatusMessageTooBig)
}

// TestWebSocketSlowMessage: a message must arrive within the read timeout, like a request.
func TestWebSocketSlowMessage(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.ReadTimeout = time.Millisecond })
	c := f.dial()
	w, err := c.conn.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 64<<10)) // less would remain in the client's buffer; the time may have passed before the end
	f.awaitConnections(0)
}
