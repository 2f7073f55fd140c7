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
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/catena-dev/catena/store"
)

// TestWebSocketDisconnect checks that a client that closes the connection during a response is treated like one that leaves a stream.
func TestWebSocketDisconnect(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  string
		leave func(*websocket.Conn)
		want  string
		// mayRun indicates that the response may have ended before the gateway notices that the client has left, so that it runs the next one.
		mayRun bool
	}{
		"close frame":    {OnDisconnectCancel, func(c *websocket.Conn) { go func() { _ = c.Close(websocket.StatusNormalClosure, "") }() }, "cancelled", false},
		"no close frame": {OnDisconnectCancel, func(c *websocket.Conn) { _ = c.CloseNow() }, "cancelled", false},
		"waiting message": {OnDisconnectCancel, func(c *websocket.Conn) {
			_ = c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"response.create","input":"b"}`))
			_ = c.CloseNow()
		}, "cancelled", false},
		"waiting message, finish nevertheless": {OnDisconnectFinish, func(c *websocket.Conn) {
			_ = c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"response.create","input":"b"}`))
			_ = c.CloseNow()
		}, "completed", true},
		"huge message": {OnDisconnectCancel, func(c *websocket.Conn) {
			_ = c.Write(t.Context(), websocket.MessageText, make([]byte, 64<<10))
			_ = c.CloseNow()
		}, "cancelled", false},
		"finish nevertheless": {OnDisconnectFinish, func(c *websocket.Conn) { _ = c.CloseNow() }, "completed", false},
	} {
		t.Run(name, func(t *testing.T) {
			steps, gone := make(chan string), make(chan struct{})
			f := start(t, stepHandler(steps, gone), func(o *Options) { o.OnDisconnect, o.MaxRequestBytes = tc.mode, 1024 })
			saved := make(chan *store.Session, 2)
			f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
				saved <- session
				return next()
			}
			c := f.dial()
			c.send(`{"type":"response.create","input":"a"}`)
			steps <- sse(created, itemDone)
			c.next()
			c.next()
			tc.leave(c.conn)
			if tc.want == "cancelled" {
				<-gone // the engine is stopped
			} else {
				steps <- sse(unknown, completed)
				close(steps)
			}
			session := <-saved
			if got := (reply{body: string(session.Response)}); session.Status != tc.want || got.get("output.0.id") != "msg_1" {
				t.Errorf("saved as %s: %s, want it %s with the finished item", session.Status, session.Response, tc.want)
			}
			f.awaitConnections(0)
			f.awaitMemory(0)
			if runs := f.sent.count(); runs != 1 && (!tc.mayRun || runs != 2) {
				t.Errorf("the engine was called %d times, want 1", runs)
			}
		})
	}
}

// TestWebSocketShutdown checks that idle connections are closed when the gateway stops, and others after their response.
func TestWebSocketShutdown(t *testing.T) {
	steps := make(chan string)
	f := newFixture(t, stepHandler(steps, make(chan struct{})))
	_, health, stop, done := serveFixture(t, f)
	idle, busy := f.dial(), f.dial()
	busy.send(`{"type":"response.create","input":"a"}`)
	steps <- sse(created)
	id := busy.next().get("response.id")
	stop()
	f.await(health+"/readyz", http.StatusServiceUnavailable)
	idle.wantClose(websocket.StatusGoingAway)
	steps <- sse(completed)
	close(steps)
	if got := busy.next().get("type"); got != "response.completed" {
		t.Errorf("got %q", got)
	}
	busy.wantClose(websocket.StatusGoingAway)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if session := f.saved(id); session == nil || session.Status != "completed" {
		t.Errorf("got the saved turn %v, want it completed", session)
	}
}

// TestWebSocketShutdownDuringMessage checks that the gateway does not wait for the rest of a message when it stops.
func TestWebSocketShutdownDuringMessage(t *testing.T) {
	f := newFixture(t, nil)
	_, _, stop, done := serveFixture(t, f)
	c := f.dial()
	w, err := c.conn.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 256<<10)); err != nil { // less would remain in the client's buffer
		t.Fatal(err)
	}
	f.eventually("the message is not being read", func() bool { return f.gateway.memory.budget.Used() > 2*socketBytes })
	stop()
	c.wantClose(websocket.StatusGoingAway)
	if err := <-done; err != nil {
		t.Error(err)
	}
	f.awaitMemory(0)
}

// TestWebSocketShutdownEndsResponses checks that a response that outlasts the shutdown timeout is saved as failed.
func TestWebSocketShutdownEndsResponses(t *testing.T) {
	steps, gone := make(chan string), make(chan struct{})
	f := newFixture(t, stepHandler(steps, gone), func(o *Options) { o.ShutdownTimeout = time.Nanosecond })
	_, _, stop, done := serveFixture(t, f)
	c := f.dial()
	c.send(`{"type":"response.create","input":"a"}`)
	steps <- sse(created)
	id := c.next().get("response.id")
	stop()
	last := c.next()
	if got, want := last.get("response.error.message"), "The gateway is shutting down. (shutting_down)"; last.get("type") != "response.failed" || got != want {
		t.Errorf("got %s", last.body)
	}
	c.wantClose(websocket.StatusGoingAway)
	<-gone
	if err := <-done; err != nil {
		t.Error(err)
	}
	if session := f.saved(id); session == nil || session.Status != "failed" {
		t.Errorf("got the saved turn %v, want it failed", session)
	}
}

// TestWebSocketLifetime checks that a connection that has reached its maximum age is closed, with OpenAI's error.
func TestWebSocketLifetime(t *testing.T) {
	c := start(t, nil, func(o *Options) { o.WebSocketLifetime = time.Nanosecond }).dial()
	c.wantError(c.next(), "Bad Request websocket_connection_limit_reached")
	c.wantClose(websocket.StatusNormalClosure)
}

// TestWebSocketPings checks that a client that does not answer pings is noticed.
func TestWebSocketPings(t *testing.T) {
	f := start(t, nil)
	f.gateway.pingInterval = time.Millisecond
	f.dial() // does not read, and so does not answer
	f.awaitConnections(0)
}

// TestFrames: a pong passes only while no frame is written.
func TestFrames(t *testing.T) {
	f := make(frames, 1)
	err := f.write(func() error {
		if f.pass(time.Nanosecond) {
			t.Error("passed while a frame was written")
		}
		return io.EOF
	})
	if !errors.Is(err, io.EOF) || !f.pass(time.Hour) {
		t.Errorf("got %v, or did not pass after that", err)
	}
}

// TestWebSocketPongs checks that a client that answers pings is not disturbed.
func TestWebSocketPongs(t *testing.T) {
	f := newFixture(t, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		s := &socket{g: f.gateway, conn: conn, lasting: t.Context(), disconnect: func() {}, received: make(chan *message, 1)}
		go s.read()
		for range 3 {
			if !s.ping() {
				t.Error("the client has answered, but is treated as if it had not")
			}
			f.eventually("the client has not answered", func() bool { return !s.unanswered.Load() })
		}
		_ = conn.CloseNow()
	}))
	defer server.Close()
	f.url = server.URL
	_, _, _ = f.dial().conn.Read(t.Context()) // until the server is done
}
