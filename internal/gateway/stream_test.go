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
	"io"
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
	id, at := events(r.body)[0].get("response.id"), events(r.body)[0].get("response.created_at")
	want := ": ping\n\n" + sse(
		shownEvent(at, fmt.Sprintf(`{"type":"response.created","sequence_number":0,"response":{"id":%q,"status":"in_progress","output":[],"previous_response_id":null,"store":true}}`, id)),
		unknown,
		shownEvent(at, fmt.Sprintf(`{"type":"response.completed","sequence_number":9,"response":{"id":%q,"store":true,"status":"completed","output":[{"type":"message","id":"msg_1"}],"previous_response_id":null}}`, id)),
	) + "data: [DONE]\n\n"
	if diff := cmp.Diff(want, r.body); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if got := f.do(http.MethodGet, "/v1/responses/"+id, ""); got.body != gjson.Get(events(want)[2].body, "response").Raw {
		t.Errorf("retrieved %s, want the response of the terminal event", got.body)
	}
}

// shownEvent returns an event with the response to a request that began at a Unix time as the client sees it, given what is saved.
func shownEvent(at, event string) string {
	data, err := objectOf(event)
	if err != nil {
		panic(err)
	}
	response, err := objectOf(data.raw("response"))
	if err != nil {
		panic(err)
	}
	request, err := parseRequest([]byte(`{"input":"a"}`))
	if err != nil {
		panic(err)
	}
	begun := time.Unix(gjson.Parse(at).Int(), 0)
	turn := &turn{id: response.get("id").Str, request: request, created: begun}
	data.set("response", turn.show(response, turn.itemID).String())
	return data.String()
}

func TestTurnIsSavedBeforeTerminalEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		upstream http.Handler
		wantSeen []string // before the turn is saved
		want     []string // at the end
	}{
		"JSON":          {jsonHandler(200, `{"type":"whole","status":"completed","output":[]}`), nil, []string{"whole"}},
		"stream":        {streamHandler(sse(created, itemDone, completed)), []string{"response.created", "response.output_item.done"}, []string{"response.created", "response.output_item.done", "response.completed"}},
		"broken stream": {streamHandler(sse(created)), []string{"response.created"}, []string{"response.created", "response.failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.upstream)
			// The handler writes to the recorder and saves in the same goroutine.
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

func TestEventsAreNotDelayed(t *testing.T) {
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})))
	stream := f.open(t.Context(), `{"input":"a","stream":true}`)
	for _, step := range []string{created, unknown, completed} {
		steps <- sse(step) // the next step is sent only after the client has read this one
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
		t.Errorf("got the last event %s, want response.failed with sequence number 9", last.body)
	}
	if got, want := last.get("response.error.message"), "The response could not be stored. (session.store.conflict)"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

// TestLargeEventsTakeTurns: a large event waits until its tenant may process it, as does a small one that the client sees with much more, but no
// other one. The end of a turn that is saved is sent in any case.
func TestLargeEventsTakeTurns(t *testing.T) {
	text := strings.Repeat("x", largeBody)
	stepped := func(events ...string) http.Handler { // each event comes after the one before it was read
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range events {
				_, _ = io.WriteString(w, sse(e))
				_ = http.NewResponseController(w).Flush()
			}
		})
	}
	all := []string{"response.created", "engine.note", "response.completed"}
	for name, tc := range map[string]struct {
		events []string
		// instructions are those of the request, which the client sees in responses.
		instructions string
		want         []string
		// waited are the events while a turn of the tenant lasts, from the request to the engine on or, if saved is set, from the save on.
		waited []string
		saved  bool
	}{
		"small": {events: []string{created, `{"type":"engine.note"}`, completed}, want: all, waited: all},
		"large": {
			events: []string{created, `{"type":"engine.note","x":"` + text + `"}`, completed}, want: all, waited: []string{"response.created", "response.failed"},
		},
		"large response": {
			events: []string{created, `{"type":"response.in_progress","response":{"id":"resp_1","x":"` + text + `"}}`, completed},
			want:   []string{"response.created", "response.in_progress", "response.completed"}, waited: []string{"response.created", "response.failed"},
		},
		"large as shown": {events: []string{created, completed}, instructions: text, want: []string{"response.created", "response.completed"}, waited: []string{"response.failed"}},
		"end":            {events: []string{completed}, instructions: text, want: []string{"response.completed"}, waited: []string{"response.completed"}, saved: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, stepped(tc.events...), func(o *Options) {
				if o.MaxParses = 2; tc.saved || slices.Contains(tc.waited, "response.failed") { // it waits until the request's time is over
					o.RequestTimeout, o.SaveTimeout = time.Second, time.Second
				}
			})
			create := func() []string {
				body := `{"input":"a","stream":true}`
				if tc.instructions != "" {
					body = `{"input":"a","stream":true,"instructions":"` + tc.instructions + `"}`
				}
				return kinds(f.create(body).body)
			}
			take := func() {
				if err := f.gateway.parses.Acquire(t.Context(), "default", 1); err != nil {
					t.Error(err)
				}
			}
			if tc.saved {
				f.store.onSave = func(_ context.Context, _ *store.Session, save func() error) error {
					defer take()
					return save()
				}
			} else {
				f.sent.onRequest = take // the request itself takes a turn if it is large
			}
			if diff := cmp.Diff(tc.waited, create()); diff != "" {
				t.Errorf("events while a turn of the tenant lasts (-want +got):\n%s", diff)
			}
			f.sent.onRequest, f.store.onSave = nil, nil
			f.gateway.options.RequestTimeout = time.Minute
			f.gateway.parses.Release("default", 1)
			if diff := cmp.Diff(tc.want, create()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if used := f.gateway.parses.Used(); used != 0 {
				t.Errorf("%d turns are still taken", used)
			}
		})
	}
}

func TestClientDisconnects(t *testing.T) {
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
	<-gone // the engine notices the disconnect
	if err := <-saved; err != nil {
		t.Fatalf("the turn was not saved: %v", err)
	}
	r := f.do(http.MethodGet, "/v1/responses/"+id, "")
	if r.get("status") != "cancelled" || r.get("output.0.id") != (itemName{id, 1}).id("message") {
		t.Errorf("got the saved turn %s, want it cancelled with one item", r.body)
	}
	after := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q}`, id))
	if got, want := after.code(), "Bad Request session.chain.unavailable"; got != want {
		t.Errorf("a follow-up got %q, want %q", got, want)
	}
}

// TestUpstreamKeepsStreamOpen checks that the client does not have to wait for an engine that does not close a finished stream.
func TestUpstreamKeepsStreamOpen(t *testing.T) {
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
	<-gone // the engine notices the disconnect
}

// TestBrokenStreamIsClosed checks that the request to an engine that sends invalid events ends immediately, however long the
// save takes, and that the gateway ends the client's stream with an event of its own.
func TestBrokenStreamIsClosed(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := start(t, stepHandler(steps, gone))
	f.store.onSave = func(ctx context.Context, _ *store.Session, next func() error) error {
		select {
		case <-gone:
		case <-ctx.Done():
			t.Error("the request to the engine did not end before the save")
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

// deadlines is a writer that records its deadlines.
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

// TestDeadlines checks that there is a deadline for reading the request and for writing each piece of an event, but none
// for the whole response.
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

// TestDeadlinesOfHTTP2: the write deadline is cleared between events, because with HTTP/2 an expired one resets the stream even when the
// gateway is only waiting for the engine.
func TestDeadlinesOfHTTP2(t *testing.T) {
	steps := make(chan string)
	f := newFixture(t, stepHandler(steps, make(chan struct{})))
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(`{"input":"a","stream":true}`))
	r.ProtoMajor = 2
	go func() {
		steps <- sse(created)
		steps <- sse(completed) // once the gateway waits for it
		close(steps)
	}()
	f.gateway.Handler().ServeHTTP(w, r)
	var cleared []bool
	for _, deadline := range w.writes {
		cleared = append(cleared, deadline.IsZero())
	}
	// After the header, around the first event, before the last one, and for the end of the response. Before that it is also cleared if the
	// gateway has to wait for the end of the engine's response.
	if n := len(cleared); n == 6 && cleared[4] {
		cleared = slices.Delete(cleared, 4, 5)
	}
	if diff := cmp.Diff([]bool{true, false, true, false, false}, cleared); diff != "" {
		t.Errorf("which deadlines are cleared (-want +got):\n%s", diff)
	}
}

// TestNoDeadlineAfterTimeout checks that the deadline of an event is not extended after the request has timed out.
func TestNoDeadlineAfterTimeout(t *testing.T) {
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
