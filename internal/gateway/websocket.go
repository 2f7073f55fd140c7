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
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpguts"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

const (
	// socketBytes is the memory that an open WebSocket connection holds between its responses, besides the turns that it remembers: its
	// buffers, its goroutines and the headers of its request.
	socketBytes = 64 << 10
	// pingInterval is how often a client without a running response must answer a ping.
	pingInterval = 30 * time.Second
	// closeTimeout is the time in which a client must answer a close frame.
	closeTimeout = 5 * time.Second
)

// connect serves a WebSocket connection, OpenAI's WebSocket mode: every message of the client creates a response, like a POST, whose
// events are the messages to the client. Until the connection ends, the call holds a connection and a little memory, but no request.
func (g *Gateway) connect(w http.ResponseWriter, r *http.Request, c *call) error {
	if err := g.checkUpgrade(w, r); err != nil {
		return err
	}
	sockets := g.sockets.of(c.store.Namespace())
	if err := sockets.take(1); err != nil {
		return err
	}
	defer sockets.end()
	taken, written := &takenConn{ResponseWriter: w}, make(frames, 1)
	conn, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // checkOrigin and checkUpgrade have checked the origin
		CompressionMode:    websocket.CompressionDisabled,
		// The library ends the connection if a pong waits for 5 s behind a frame that a slow client does not read.
		OnPingReceived: func(context.Context, []byte) bool { return written.pass(time.Second) },
	})
	if err != nil {
		return nil // Accept has responded
	}
	c.requests.end()
	c.memory.give(callBytes - socketBytes)
	s := newSocket(g, r, c, conn, taken.conn)
	s.frames = written
	s.serve()
	return nil
}

// frames is full while a frame of a message is written.
type frames chan struct{}

// write calls a function that writes a frame.
func (f frames) write(frame func() error) error {
	f <- struct{}{}
	defer func() { <-f }()
	return frame()
}

// pass waits until no frame is written, and reports whether that was so in time.
func (f frames) pass(timeout time.Duration) bool {
	select {
	case f <- struct{}{}:
		<-f
		return true
	case <-time.After(timeout):
		return false
	}
}

// checkUpgrade returns an error unless a request is a WebSocket handshake and WebSocket mode is on.
func (g *Gateway) checkUpgrade(w http.ResponseWriter, r *http.Request) error {
	e := &apiError{status: http.StatusUpgradeRequired, kind: typeInvalidRequest}
	switch {
	case g.options.MaxWebSockets == 0:
		e.code, e.message = "websocket_disabled", "WebSocket mode is turned off (--max-websockets): use POST /v1/responses."
	case !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") ||
		!httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket"):
		if r.ProtoMajor == 1 { // in HTTP/2, these headers are an error
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
		}
		e.code, e.message = "upgrade_required", "GET /v1/responses serves only WebSocket connections: upgrade, or use POST /v1/responses."
	case g.tenants == nil && !sameOrigin(r) && !g.allowsOrigin(r):
		// CORS, which prevents other pages from reading responses if anonymous clients are allowed, does not apply to WebSocket connections.
		e.status, e.code = http.StatusForbidden, "forbidden_origin"
		e.message = "Without API keys, web pages of other origins may not open WebSocket connections (--cors-allowed-origins)."
	default:
		return nil
	}
	return e
}

// takenConn is a ResponseWriter that keeps the connection that is taken from the server.
type takenConn struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *takenConn) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.conn = conn
	return conn, buffers, err
}

// socket is a WebSocket connection. It creates one response at a time. Of the messages that arrive meanwhile, one waits in memory, and the
// others unread. Except read, its methods are called by one goroutine.
type socket struct {
	g *Gateway
	// call is the call of the handshake.
	call *call
	// handshake is the request that opened the connection. The requests for responses have its headers.
	handshake *http.Request
	conn      *websocket.Conn
	raw       net.Conn
	frames    frames
	// base is done when the remaining requests are aborted. lasting is never done.
	base, lasting context.Context
	// life is done when the connection has reached its maximum age.
	life    context.Context
	endLife context.CancelFunc
	// connected is done when the client has disconnected.
	connected  context.Context
	disconnect context.CancelFunc
	// received gets the messages, which are still being read. stop closes it when none follows.
	received chan *message
	stop     func()
	// answering is full while a response is being created, and unread is the message whose answer waits until it has been read, or nil.
	answering chan struct{}
	unread    *message
	// tooLarge is set, before received is closed, if the last message was too large even to be skipped.
	tooLarge bool
	// created is the number of messages so far.
	created int
	turns   turnMemory
	// unanswered is set while a ping is.
	unanswered atomic.Bool
}

// message is a message of the client.
type message struct {
	kind websocket.MessageType
	// read is closed when the message has been read, or err says why not. Only then are body and err set.
	read chan struct{}
	body []byte
	err  error
	// memory holds what readAll does for the body.
	memory *share
}

func newSocket(g *Gateway, r *http.Request, c *call, conn *websocket.Conn, raw net.Conn) *socket {
	conn.SetReadLimit(-1) // content is counted and limited like a request's body
	base, ok := r.Context().Value(baseContext{}).(context.Context)
	if !ok {
		base = context.WithoutCancel(r.Context()) // another server has the handler
	}
	s := &socket{
		g: g, call: c, handshake: r, conn: conn, raw: raw, base: withBase(base), lasting: context.WithoutCancel(base),
		received: make(chan *message, 1), answering: make(chan struct{}, 1), turns: turnMemory{share: c.memory},
	}
	s.connected, s.disconnect = context.WithCancel(s.lasting)
	s.life, s.endLife = context.WithTimeout(s.lasting, g.options.WebSocketLifetime)
	return s
}

// serve creates the responses that the client requests, in order, until the connection ends.
func (s *socket) serve() {
	defer s.endLife()
	defer s.end()
	pings := time.NewTicker(s.g.pingInterval)
	defer pings.Stop()
	go s.read()
	for !s.ending() {
		select {
		case <-s.g.draining:
		case <-s.life.Done():
		case <-pings.C:
			if !s.ping() {
				return
			}
		case m, ok := <-s.received:
			if !ok {
				if s.tooLarge {
					s.close(websocket.StatusMessageTooBig, "the message is too large")
				}
				return
			}
			s.answer(m)
			s.unanswered.Store(false)
			pings.Reset(s.g.pingInterval)
		}
	}
}

// ending closes the connection if it must not create any more responses, and reports whether it did. A response that is being created
// is finished first.
func (s *socket) ending() bool {
	select {
	case <-s.g.draining:
		s.close(websocket.StatusGoingAway, "the gateway is shutting down")
		return true
	default:
	}
	if !s.isAllowed() {
		s.close(websocket.StatusPolicyViolation, "the API key is no longer that of the namespace")
		return true
	}
	if s.life.Err() == nil {
		return false
	}
	limit := invalidRequest("", "websocket_connection_limit_reached",
		"Responses websocket connection limit reached (%g minutes). Create a new websocket connection to continue.", s.g.options.WebSocketLifetime.Minutes())
	_ = s.send(s.lasting, "", errorEvent(limit.status, limit.object())) // fails only if the client has disconnected
	s.close(websocket.StatusNormalClosure, "the connection has reached its maximum age")
	return true
}

// isAllowed reports whether the client's key still belongs to the namespace whose shares the connection uses.
func (s *socket) isAllowed() bool {
	if s.g.tenants == nil {
		return true
	}
	namespace, err := s.g.tenants.namespaceOf(s.handshake.Header.Get("Authorization"))
	return err == nil && namespace == s.call.store.Namespace()
}

// close ends the connection with a close frame, which the client must answer in time.
func (s *socket) close(code websocket.StatusCode, reason string) {
	timer := time.AfterFunc(closeTimeout, func() { _ = s.raw.Close() })
	defer timer.Stop()
	_ = s.conn.Close(code, reason) // fails only if the client has disconnected or does not answer
}

// end ends the connection, and frees the messages that are not answered.
func (s *socket) end() {
	_ = s.conn.CloseNow()
	s.disconnect()
	if s.unread != nil {
		s.unread.free()
	}
	for m := range s.received {
		m.free()
	}
}

// free gives back the memory of a message that is not answered.
func (m *message) free() {
	<-m.read
	m.memory.end()
}

// read reads the messages, and answers the client's pings meanwhile, until the connection ends or a message is too large. While a message
// waits for its answer, the one after it is not read, and pings after its beginning are not answered.
func (s *socket) read() {
	s.stop = sync.OnceFunc(func() { close(s.received) })
	defer s.stop()
	for s.readNext() {
		continue
	}
}

// readNext reads the next message. It reports whether the connection can go on: not if the message takes too long to arrive, or is too large.
func (s *socket) readNext() bool {
	ctx, cancel := context.WithCancel(s.lasting)
	defer cancel()
	kind, content, err := s.conn.Reader(ctx)
	if err != nil {
		s.disconnect()
		return false
	}
	m := &message{kind: kind, read: make(chan struct{}), memory: s.g.memory.of(s.call.store.Namespace())}
	s.received <- m
	timer := time.AfterFunc(s.g.options.ReadTimeout, cancel)
	defer timer.Stop()
	limited := http.MaxBytesReader(nil, io.NopCloser(content), s.g.options.MaxRequestBytes)
	m.body, m.err = readAll(limited, m.memory, func(bytes int64) error { return s.hold(m, bytes, timer) })
	close(m.read)
	if m.err == nil {
		return true
	}
	timer.Reset(s.g.options.ReadTimeout)
	if s.skip(content) {
		return true
	}
	timer.Stop()
	s.ignore(ctx, content)
	return false
}

// hold holds memory for a message. If that is refused because the response before it holds what is left of the tenant's share, the rest of the
// message waits for the end of that response, unread.
func (s *socket) hold(m *message, bytes int64, timer *time.Timer) error {
	err := m.memory.begin(bytes)
	if e, ok := errors.AsType[*apiError](err); !ok || e.code != codeOverloaded {
		return err
	}
	timer.Stop()
	defer timer.Reset(s.g.options.ReadTimeout)
	select {
	case s.answering <- struct{}{}:
		<-s.answering
	case <-s.connected.Done():
	}
	return m.memory.begin(bytes)
}

// skip reads what is left of a message that is rejected. It reports whether the connection can go on.
func (s *socket) skip(content io.Reader) bool {
	skipped, err := io.Copy(io.Discard, io.LimitReader(content, s.g.options.MaxRequestBytes))
	s.tooLarge = err == nil && skipped == s.g.options.MaxRequestBytes
	return err == nil && !s.tooLarge
}

// ignore reads until the connection ends, so that a client that disconnects before the last response has ended is noticed.
func (s *socket) ignore(ctx context.Context, content io.Reader) {
	s.stop()
	var err error
	for err == nil {
		if _, err = io.Copy(io.Discard, content); err == nil {
			_, content, err = s.conn.Reader(ctx)
		}
	}
	s.disconnect()
}

// ping sends a ping. It reports false if the last one has not been answered.
func (s *socket) ping() bool {
	if s.unanswered.Swap(true) {
		return false
	}
	ctx, cancel := context.WithTimeout(s.lasting, s.g.pingInterval)
	go func() {
		defer cancel()
		if s.conn.Ping(ctx) == nil {
			s.unanswered.Store(false)
		}
	}()
	return true
}

// answer creates the response that a message requests. It does nothing if the connection is to end before the message has been read.
func (s *socket) answer(m *message) {
	s.unread = m
	select {
	case <-m.read:
	case <-s.g.draining:
		return
	case <-s.life.Done():
		return
	}
	s.unread = nil
	s.answering <- struct{}{}
	defer func() { <-s.answering }()
	defer m.memory.end()
	if s.connected.Err() != nil {
		return // nobody would learn the ID of the response
	}
	ctx, cancel := context.WithCancel(s.base)
	defer cancel()
	defer context.AfterFunc(s.connected, cancel)()
	s.created++
	t := &socketTurn{socket: s, message: m, header: http.Header{}}
	s.g.handle(t.create).ServeHTTP(t, t.post(ctx))
	if t.failed {
		s.turns.forget(t.previous)
	}
}

// send sends a JSON object as a message, with the stream ID that the client gave, if any. Slow clients are served like those of streams,
// see relay.send.
func (s *socket) send(ctx context.Context, streamID, text string) error {
	writing, cancel := context.WithCancel(s.lasting)
	defer cancel()
	timer := time.AfterFunc(writeTimeout, cancel)
	defer timer.Stop()
	first := ""
	if streamID != "" {
		first, text = `{"stream_id":`+quote(streamID)+",", strings.TrimPrefix(text, "{")
	}
	if len(first)+len(text) <= pieceBytes {
		return s.frames.write(func() error { return s.conn.Write(writing, websocket.MessageText, jsonvalue.Bytes(first+text)) })
	}
	w, err := s.conn.Writer(writing, websocket.MessageText)
	if err != nil {
		return err
	}
	for piece := first; text != ""; piece = "" {
		n := min(pieceBytes-len(piece), len(text))
		piece, text = piece+text[:n], text[n:]
		if ctx.Err() == nil {
			timer.Reset(writeTimeout)
		}
		err := s.frames.write(func() error {
			_, err := w.Write(jsonvalue.Bytes(piece))
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.frames.write(w.Close)
}

// errorEvent returns the event for an error that is not part of a response, in OpenAI's format.
func errorEvent(status int, object string) string {
	return fmt.Sprintf(`{"type":"error","status":%d,"error":%s}`, status, object)
}
