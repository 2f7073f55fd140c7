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
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
)

func TestStream(t *testing.T) {
	f := start(t, streamHandler(": ping\n\n"+sse(created, unknown, completed)+"data: [DONE]\n\n"))
	r := f.create(`{"input":"a","stream":true}`)
	id := events(r.body)[0].get("response.id")
	want := ": ping\n\n" + sse(
		fmt.Sprintf(`{"type":"response.created","sequence_number":0,"response":{"id":%q,"status":"in_progress","output":[],"previous_response_id":null,"store":true}}`, id),
		unknown,
		fmt.Sprintf(`{"type":"response.completed","sequence_number":9,"response":{"id":%q,"store":true,"status":"completed","output":[{"type":"message","id":"msg_1"}],"previous_response_id":null}}`, id),
	) + "data: [DONE]\n\n"
	if diff := cmp.Diff(want, r.body); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if got := f.do(http.MethodGet, "/v1/responses/"+id, ""); got.body != gjson.Get(events(want)[2].body, "response").Raw {
		t.Errorf("retrieved %s", got.body)
	}
}

func TestStreamOutcomes(t *testing.T) {
	largeItem := `{"type":"response.output_item.done","item":{"x":"` + strings.Repeat("x", 2500) + `"}}`
	for name, tc := range map[string]struct {
		stream     string
		wantKinds  []string
		wantStatus string
		wantOutput string
		wantError  string
	}{
		"completed": {
			sse(created, completed), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"incomplete": {
			sse(created, `{"type":"response.incomplete","response":{"status":"incomplete","output":[]}}`),
			[]string{"response.created", "response.incomplete"}, "incomplete", `[]`, "",
		},
		"failed": {
			sse(`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}`),
			[]string{"response.failed"}, "failed", `[]`, "no",
		},
		"error event": {
			sse(created, itemDone, `{"type":"error","code":"bad","message":"broken"}`),
			[]string{"response.created", "response.output_item.done", "error"}, "failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "broken (bad)",
		},
		"error event with an error": {
			sse(created, `{"type":"error","error":{"code":"bad","message":"broken"}}`),
			[]string{"response.created", "error"}, "failed", `[]`, "broken (bad)",
		},
		"an error without a type": {
			sse(created) + `data: {"error":{"code":400,"message":"broken"}}` + "\n\n",
			[]string{"response.created", ""}, "failed", `[]`, "broken (400)",
		},
		"an error under another name": {
			sse(created) + "event: message\n" + `data: {"error":{"code":null,"message":"broken"}}` + "\n\n",
			[]string{"response.created", ""}, "failed", `[]`, "broken",
		},
		"a response with an error": {
			sse(created) + "event: response.failed\n" + `data: {"error":{},"response":{"error":{"message":"no"}}}` + "\n\n",
			[]string{"response.created", "response.failed"}, "failed", `[]`, "no",
		},
		"another event with an error": {
			sse(created, `{"type":"engine.note","error":{"message":"not the end"}}`, completed),
			[]string{"response.created", "engine.note", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"error event and more": {
			sse(created, `{"type":"error","message":"broken"}`, completed, `{"type":"response.failed","response":{"status":"failed"}}`),
			[]string{"response.created", "error", "response.failed"}, "failed", `[]`, "broken",
		},
		"an error event and two ends": {
			sse(`{"type":"error","message":"broken"}`, `{"type":"response.failed","response":{}}`, `{"type":"response.failed","response":{}}`),
			[]string{"error", "response.failed"}, "failed", `[]`, "broken",
		},
		"output only in items": {
			sse(created, itemDone, `{"type":"response.completed","response":{"output":[]}}`),
			[]string{"response.created", "response.output_item.done", "response.completed"}, "completed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "",
		},
		"no last empty line": {
			strings.TrimRight(sse(created, completed), "\n"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"one line feed at the end": {
			strings.TrimSuffix(sse(created, completed), "\n"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"one line feed after an error event": {
			strings.TrimSuffix(sse(created, `{"type":"error","code":"bad","message":"broken"}`), "\n"),
			[]string{"response.created", "error"}, "failed", `[]`, "broken (bad)",
		},
		"one line feed after another event": {
			strings.TrimSuffix(sse(created, unknown), "\n"), []string{"response.created", "engine.note", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"one carriage return and line feed at the end": {
			strings.TrimSuffix(strings.ReplaceAll(sse(created, unknown), "\n", "\r\n"), "\r\n"), []string{"response.created", "engine.note", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"cut off in the name": {
			sse(created) + "event: resp", []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"no names": {
			"data: " + created + "\r\n\r\ndata: " + completed + "\r\n\r\n", []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"data in lines": {
			strings.ReplaceAll(sse(created, completed), `"response":{`, "\"response\":\ndata: {\ndata: "),
			nil, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"no end": {
			sse(created, itemDone), []string{"response.created", "response.output_item.done", "response.failed"},
			"failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "The upstream ended its response early. (upstream_broken)",
		},
		"done before the end": {
			sse(created, itemDone) + "data: [DONE]\n\n" + sse(completed), []string{"response.created", "response.output_item.done", "response.failed"},
			"failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "The upstream ended its response early. (upstream_broken)",
		},
		"nothing": {"", []string{"response.failed"}, "failed", `[]`, "The upstream ended its response early. (upstream_broken)"},
		"cut off": {sse(created) + `data: {"type":"response.completed","resp`, []string{"response.created", "response.failed"}, "failed", `[]`, "The upstream ended its response early. (upstream_broken)"},
		"too large": {
			sse(created, `{"type":"x","x":"`+strings.Repeat("x", 5000)+`"}`, completed), []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"too many items": {
			sse(largeItem, largeItem, completed), []string{"response.output_item.done", "response.failed"},
			"failed", "[" + gjson.Get(largeItem, "item").Raw + "]", "The upstream ended its response early. (upstream_broken)",
		},
		"spaces before the data": {
			strings.ReplaceAll(sse(created, completed), "data: ", "data:  \t"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"an empty line of data": {
			strings.ReplaceAll(sse(created, completed), "data: ", "data\ndata: "), nil, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"carriage returns": {
			strings.ReplaceAll(sse(created, completed), "\n", "\r"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"a byte order mark": {
			"\ufeff" + sse(created, completed), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"more after the end": {
			sse(created, completed, unknown, itemDone, completed, `{"type":"error","message":"late"}`, `{"type":"response.failed","response":{"status":"failed"}}`) + "event: x\ndata: 1\n\n",
			[]string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"not done at the end": {
			sse(created, `{"type":"response.completed","response":{"status":"in_progress","output":[]}}`),
			[]string{"response.created", "response.completed"}, "completed", `[]`, "",
		},
		"items without places": {
			sse(`{"type":"response.output_item.done","item":{"id":"a"}}`, `{"type":"response.output_item.done","item":{"id":"b"}}`, `{"type":"response.completed","response":{}}`),
			[]string{"response.output_item.done", "response.output_item.done", "response.completed"}, "completed", `[{"id":"a"},{"id":"b"}]`, "",
		},
		"no object at the end": {
			sse(created) + "event: response.completed\ndata: []\n\n", []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"no response at the end": {
			sse(created, `{"type":"response.completed"}`), []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, streamHandler(tc.stream), func(o *Options) { o.MaxResponseBytes = 4000 })
			var saved []*store.Session
			f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
				saved = append(saved, session)
				return next()
			}
			r := f.create(`{"input":"a","stream":true,"model":"m"}`)
			if diff := cmp.Diff(tc.wantKinds, kinds(r.body)); diff != "" && tc.wantKinds != nil {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if whole := strings.Count(r.body, "\n\n"); whole != len(tc.wantKinds) && tc.wantKinds != nil {
				t.Errorf("%d events, want %d:\n%s", whole, len(tc.wantKinds), r.body)
			}
			if len(saved) != 1 {
				t.Fatalf("%d turns saved, want one", len(saved))
			}
			session := saved[0]
			if session.Status != tc.wantStatus || gjson.GetBytes(session.Response, "status").Str != tc.wantStatus {
				t.Errorf("status %q, want %q: %s", session.Status, tc.wantStatus, session.Response)
			}
			if got := gjson.GetBytes(session.Response, "output").Raw; got != tc.wantOutput {
				t.Errorf("output %s, want %s", got, tc.wantOutput)
			}
			if got := gjson.GetBytes(session.Response, "error.message").Str; got != tc.wantError {
				t.Errorf("error %q, want %q", got, tc.wantError)
			}
			after := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q,"stream":true}`, session.ResponseID))
			if usable := after.status == http.StatusOK; usable != (tc.wantStatus == "completed") {
				t.Errorf("a follow-up got %d %s", after.status, after.body)
			}
		})
	}
}

func TestSavedBeforeSeen(t *testing.T) {
	for name, tc := range map[string]struct {
		upstream http.Handler
		wantSeen []string // when the turn is saved
		want     []string // in the end
	}{
		"JSON":          {jsonHandler(200, `{"type":"whole","status":"completed","output":[]}`), nil, []string{"whole"}},
		"stream":        {streamHandler(sse(created, itemDone, completed)), []string{"response.created", "response.output_item.done"}, []string{"response.created", "response.output_item.done", "response.completed"}},
		"broken stream": {streamHandler(sse(created)), []string{"response.created"}, []string{"response.created", "response.failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.upstream)
			// The handler writes into the recorder, and saves in the same goroutine.
			w := httptest.NewRecorder()
			seen := func() []string {
				if name == "JSON" && w.Body.Len() > 0 {
					return []string{gjson.Get(w.Body.String(), "type").Str}
				}
				return kinds(w.Body.String())
			}
			saves := 0
			f.store.onSave = func(_ context.Context, _ *store.Session, next func() error) error {
				saves++
				if diff := cmp.Diff(tc.wantSeen, seen()); diff != "" {
					t.Errorf("seen before the save (-want +got):\n%s", diff)
				}
				return next()
			}
			body := fmt.Sprintf(`{"input":"a","stream":%t}`, name != "JSON")
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(body))
			f.gateway.Handler().ServeHTTP(w, r)
			if diff := cmp.Diff(tc.want, seen()); diff != "" || saves != 1 {
				t.Errorf("%d saves, events (-want +got):\n%s", saves, diff)
			}
		})
	}
}

func TestEventsComeAtOnce(t *testing.T) {
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})))
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	for _, step := range []string{created, unknown, completed} {
		steps <- sse(step) // the next one exists only when this one was seen
		if got, want := nextData(stream).get("type"), gjson.Get(step, "type").Str; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	close(steps)
}

func TestStreamSaveFailure(t *testing.T) {
	f := start(t, streamHandler(sse(created, completed)))
	f.store.onSave = func(context.Context, *store.Session, func() error) error {
		return &store.Error{Code: store.CodeConflict}
	}
	r := f.create(`{"input":"a","stream":true}`)
	if diff := cmp.Diff([]string{"response.created", "response.failed"}, kinds(r.body)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	last := events(r.body)[1]
	if !strings.Contains(r.body, "event: response.failed\n") || last.get("sequence_number") != "9" || last.get("response.status") != "failed" {
		t.Errorf("last event %s", last.body)
	}
	if got, want := last.get("response.error.message"), "The response could not be stored. (session.store.conflict)"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestClientGoesAway(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := start(t, stepHandler(steps, gone))
	saved := make(chan error, 1)
	f.store.onSave = func(ctx context.Context, _ *store.Session, next func() error) error {
		err := next()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		saved <- err
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	stream := f.open(ctx, `{"input":"a","stream":true}`)
	steps <- sse(created, itemDone)
	id := nextData(stream).get("response.id")
	nextData(stream)
	leave()
	<-gone // the upstream is told
	if err := <-saved; err != nil {
		t.Fatalf("the turn was not saved: %v", err)
	}
	r := f.do(http.MethodGet, "/v1/responses/"+id, "")
	if r.get("status") != "cancelled" || r.get("output.0.id") != "msg_1" {
		t.Errorf("saved %s", r.body)
	}
	after := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q}`, id))
	if got, want := after.code(), "Bad Request session.chain.unavailable"; got != want {
		t.Errorf("a follow-up got %q, want %q", got, want)
	}
}

// TestUpstreamDoesNotEnd: the client is not kept waiting by an upstream that has said all.
func TestUpstreamDoesNotEnd(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := start(t, stepHandler(steps, gone))
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	steps <- sse(completed)
	if got := nextData(stream).get("type"); got != "response.completed" {
		t.Errorf("got %q", got)
	}
	if rest := nextData(stream); rest.body != "" {
		t.Errorf("got %s after the end", rest.body)
	}
	<-gone // the upstream is told
}

// TestBrokenStreamIsClosed: an upstream whose events are not understood need not go on, however long the save takes. The
// last event of the client is the gateway's own.
func TestBrokenStreamIsClosed(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := start(t, stepHandler(steps, gone))
	f.store.onSave = func(ctx context.Context, _ *store.Session, next func() error) error {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Error("the upstream was not told before the save")
		}
		return next()
	}
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	steps <- sse(created, itemDone) + "data: {\n\n"
	for _, want := range []string{"response.created 0", "response.output_item.done 4", "response.failed 5"} {
		e := nextData(stream)
		if got := e.get("type") + " " + e.get("sequence_number"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// deadlines is a writer that notes the deadlines it is given.
type deadlines struct {
	*httptest.ResponseRecorder
	reads, writes []time.Time
	onWrite       func(p []byte)
}

func (d *deadlines) Write(p []byte) (int, error) {
	if d.onWrite != nil {
		d.onWrite(p)
	}
	return d.ResponseRecorder.Write(p)
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.reads = append(d.reads, at)
	return nil
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.writes = append(d.writes, at)
	return nil
}

// TestDeadlines: reading a request is limited, but not the answer as a whole; each event of a stream is, and each piece
// of a large one.
func TestDeadlines(t *testing.T) {
	large := `{"type":"engine.note","x":"` + strings.Repeat("x", 2*pieceBytes) + `"}`
	f := newFixture(t, streamHandler(sse(created, large, completed)))
	now := time.Unix(1_700_000_000, 0)
	f.gateway.now = func() time.Time { return now }
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(`{"input":"a","stream":true}`))
	f.gateway.Handler().ServeHTTP(w, r)
	if diff := cmp.Diff([]time.Time{now.Add(time.Minute), {}}, w.reads); diff != "" {
		t.Errorf("for reading (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Repeat([]time.Time{now.Add(writeTimeout)}, 1+3+1), w.writes); diff != "" {
		t.Errorf("for writing (-want +got):\n%s", diff)
	}
}

// TestNoMoreDeadlines: once the time for a request is over, an event that has begun has no more time than it had.
func TestNoMoreDeadlines(t *testing.T) {
	large := `{"type":"engine.note","x":"` + strings.Repeat("x", 2*pieceBytes) + `"}`
	steps := make(chan string, 1)
	steps <- sse(created, large)
	f := newFixture(t, stepHandler(steps, make(chan struct{})))
	ctx, end := context.WithCancelCause(t.Context())
	w := &deadlines{ResponseRecorder: httptest.NewRecorder(), onWrite: func(p []byte) {
		if len(p) == pieceBytes {
			end(errTimeout)
		}
	}}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/responses", strings.NewReader(`{"input":"a","stream":true}`))
	f.gateway.Handler().ServeHTTP(w, r)
	if diff := cmp.Diff([]string{"response.created", "engine.note", "response.failed"}, kinds(w.Body.String())); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(w.writes) != 3 {
		t.Errorf("%d deadlines, want one for each event", len(w.writes))
	}
}
