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
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

// TestFinish: with --on-disconnect=finish, the engine goes on when the client has gone away, and the turn is saved as if it had not.
func TestFinish(t *testing.T) {
	finish := func(o *Options) { o.OnDisconnect = OnDisconnectFinish }
	for name, tc := range map[string]struct {
		body, first, last string
		// inStream is set if the client leaves when it has received the first part.
		inStream           bool
		wantStatus, wantID string
	}{
		"stream": {
			body: `{"input":"a","stream":true}`, first: sse(created, itemDone), last: sse(unknown, completed), inStream: true,
			wantStatus: "completed", wantID: "msg_1",
		},
		"stream, before its first event": {
			body: `{"input":"a","stream":true}`, last: sse(created, completed), wantStatus: "completed", wantID: "msg_1",
		},
		"stream that fails": {
			body: `{"input":"a","stream":true}`, first: sse(created, itemDone), last: sse(`{"type":"error","message":"broken"}`), inStream: true,
			wantStatus: "failed", wantID: "msg_1",
		},
		"JSON": {
			body: `{"input":"a"}`, first: `{"status":"completed",`, last: `"output":[{"type":"message","id":"msg_2"}]}`,
			wantStatus: "completed", wantID: "msg_2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, begun := make(chan string), make(chan struct{})
			f := newFixture(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				stepHandler(steps, make(chan struct{})).ServeHTTP(w, r)
			}), finish)
			saved := make(chan *store.Session, 1)
			f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
				saved <- session
				return next()
			}
			left := f.serveNoticing()
			ctx, leave := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/responses", strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					return
				}
				defer func() { _ = response.Body.Close() }()
				events := bufio.NewReader(response.Body)
				for range 2 {
					nextData(events)
				}
				leave()
				_, _ = io.Copy(io.Discard, response.Body)
			}()
			<-begun
			if tc.first != "" {
				steps <- tc.first
			}
			if !tc.inStream {
				leave()
			}
			<-left
			steps <- tc.last
			close(steps)
			session := <-saved
			if got := (reply{body: string(session.Response)}); session.Status != tc.wantStatus || got.get("status") != tc.wantStatus || got.get("output.0.id") != tc.wantID {
				t.Errorf("saved as %s: %s, want it %s with the item %s", session.Status, session.Response, tc.wantStatus, tc.wantID)
			}
		})
	}
}

// TestFinishEnds: a response whose client has gone away ends with the request timeout and when the remaining requests are aborted, and at
// once if nobody could read it.
func TestFinishEnds(t *testing.T) {
	finish := func(o *Options) { o.OnDisconnect = OnDisconnectFinish }
	t.Run("not stored", func(t *testing.T) {
		steps, gone := make(chan string), make(chan struct{})
		f := start(t, stepHandler(steps, gone), finish)
		ctx, leave := context.WithCancel(t.Context())
		f.open(ctx, `{"input":"a","stream":true,"store":false}`)
		leave()
		<-gone
	})
	t.Run("shutting down", func(t *testing.T) {
		f := newFixture(t, stepHandler(make(chan string), make(chan struct{})), finish)
		saved := make(chan *store.Session, 1)
		f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
			saved <- session
			return next()
		}
		base, abort := context.WithCancelCause(t.Context())
		left := f.serveNoticing(base)
		ctx, leave := context.WithCancel(t.Context())
		f.open(ctx, `{"input":"a","stream":true}`)
		leave()
		<-left
		abort(errShuttingDown)
		if session := <-saved; session.Status != store.StatusFailed || !strings.Contains(string(session.Response), "shutting_down") {
			t.Errorf("saved as %s: %s, want it failed", session.Status, session.Response)
		}
	})
}

// serveNoticing serves the gateway, and returns a channel that is closed when the client of the first request has gone away.
func (f *fixture) serveNoticing(base ...context.Context) (left <-chan struct{}) {
	f.t.Helper()
	noticed := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { close(noticed) })
		f.gateway.Handler().ServeHTTP(w, r)
	}))
	base = append(base, f.t.Context())
	server.Config.BaseContext = func(net.Listener) context.Context { return withBase(base[0]) }
	server.Start()
	f.t.Cleanup(server.Close)
	f.url = server.URL
	return noticed
}

// TestContinueIncomplete: a response that was cut off can be continued, as a JSON response and as a stream, and later turns too.
func TestContinueIncomplete(t *testing.T) {
	const cutOff = `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Once upon"}]}]}`
	for name, tc := range map[string]struct {
		engine http.Handler
		stream bool
	}{
		"JSON":   {engine: jsonHandler(http.StatusOK, cutOff)},
		"filter": {engine: jsonHandler(http.StatusOK, strings.Replace(cutOff, "max_output_tokens", "content_filter", 1))},
		"stream": {engine: streamHandler(sse(created, `{"type":"response.incomplete","response":`+cutOff+`}`)), stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, tc.engine)
			first := f.create(fmt.Sprintf(`{"input":"Tell me a story.","stream":%t}`, tc.stream))
			id := first.get("id")
			if tc.stream {
				all := events(first.body)
				id = all[len(all)-1].get("response.id")
			}
			for range 2 { // the second continues an incomplete turn whose parent is incomplete, too
				next := f.create(fmt.Sprintf(`{"input":"continue","previous_response_id":%q,"stream":%t}`, id, tc.stream))
				sent, _ := f.sent.last()
				if got := (reply{body: sent}).get("input.1.content.0.text"); got != "Once upon" {
					t.Errorf("the engine received %s, want what it said before", sent)
				}
				id = next.get("id")
				if tc.stream {
					all := events(next.body)
					id = all[len(all)-1].get("response.id")
				}
			}
			sent, _ := f.sent.last()
			if diff := cmp.Diff("5", (reply{body: sent}).get("input.#")); diff != "" {
				t.Errorf("items sent to the engine (-want +got):\n%s", diff)
			}
			if got := f.saved(id).Status; got != store.StatusIncomplete {
				t.Errorf("the last turn is %q", got)
			}
		})
	}
}
