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
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/requestid"
	"github.com/catena-dev/catena/store"
)

// handler serves a request. If it returns an error, it has not written a response yet.
type handler func(http.ResponseWriter, *http.Request, *call) error

// call is the state of one HTTP request while it is served.
type call struct {
	// requestID is the client's X-Request-Id, or a generated one.
	requestID string
	// store is the store of the client's namespace.
	store *store.Store
	log   *slog.Logger
	// requests, streams and memory are the call's holdings of the limits that tenants share. They are nil until it is
	// admitted.
	requests, streams, memory *share
	// reads are those of the gateway.
	reads *reads
	// upstreamKey is the gateway's own key that was sent to the engine, or empty. The file may have a newer one.
	upstreamKey string
	// engineCalled is set once the engine may have started a response.
	engineCalled bool
	// repeats is set once a repeated request might have its effects again.
	repeats bool
	// socket is set if the response is sent to a WebSocket connection.
	socket *socketTurn
	// idempotencyKey is the client's Idempotency-Key, or empty.
	idempotencyKey string
}

// retryRunsAgain reports whether a retry of the request might run and bill the model again, or create a second turn.
func (c *call) retryRunsAgain() bool { return (c.engineCalled || c.repeats) && c.idempotencyKey == "" }

// handle wraps a handler: it identifies the client, limits the duration, writes errors, logs the request and records metrics.
func (g *Gateway) handle(next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.calls.Add(1)
		defer g.calls.Done()
		start := g.now()
		ctx, cancel := context.WithTimeoutCause(r.Context(), g.options.RequestTimeout, errTimeout)
		defer cancel()
		c := &call{requestID: requestID(r), reads: g.reads}
		ctx = store.WithRequestID(ctx, c.requestID)
		ctx = metered.WithTurns(ctx, func(ctx context.Context, bytes int, work func() error) error {
			_, err := inTurn(ctx, g, c, bytes, func() (struct{}, error) { return struct{}{}, work() })
			return err
		})
		c.log = g.log.With("requestID", c.requestID)
		defer c.release()
		w.Header().Set(requestid.Header, c.requestID)
		if r.ContentLength != 0 {
			// net/http reads the rest of the body before it responds, even if no handler reads it. The error is ignored: only
			// ResponseWriters of tests do not support deadlines.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(g.options.ReadTimeout))
		}

		writer := &statusWriter{ResponseWriter: w, stopping: &g.stopping}
		if err := g.serveCall(writer, r.WithContext(ctx), c, next); err != nil {
			writer.fail(ctx, c, err)
		}
		g.limitEnd(w, r)
		g.metrics.requests.WithLabelValues(route(r), strconv.Itoa(writer.status)).Inc()
		c.log.Info("request", "method", methodOf(r), "route", route(r), "status", writer.status, "seconds", g.now().Sub(start).Seconds())
	})
}

// serveCall calls the handler if the client is allowed to use the gateway. It answers preflight requests itself.
func (g *Gateway) serveCall(w http.ResponseWriter, r *http.Request, c *call, next handler) error {
	if err := checkHeader(r.Header); err != nil {
		return err
	}
	if g.answerPreflight(w, r) {
		return nil
	}
	if err := g.checkOrigin(r); err != nil {
		return err
	}
	if err := g.identify(r, c); err != nil {
		return err
	}
	if err := g.admit(c); err != nil {
		return err
	}
	ctx := metered.WithObjects(r.Context(), func(bytes int) { c.reads.note(c.store.Namespace(), int64(bytes)) })
	return next(w, r.WithContext(ctx), c)
}

// identify sets the store to the client's namespace.
func (g *Gateway) identify(r *http.Request, c *call) error {
	namespace := g.options.Namespace
	if g.tenants != nil {
		var err error
		if namespace, err = g.tenants.namespaceOf(r.Header.Get("Authorization")); err != nil {
			return err
		}
	}
	c.store = g.options.Store
	if namespace != "" {
		c.store = g.options.Store.InNamespace(namespace)
		c.log = c.log.With("namespace", namespace)
	}
	return nil
}

// requestID returns the request ID that the client sent, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get(requestid.Header); requestid.IsValid(id) {
		return id
	}
	return "req_" + randomHex()
}

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// route returns the route of a request.
func route(r *http.Request) string { return routeOf(r.Pattern) }

// routeOf returns the label of the requests that a pattern matches. It contains no ID.
func routeOf(pattern string) string {
	if pattern == "/" || pattern == "" {
		return "other"
	}
	return pattern
}

// methodOf returns the method of a request for the log. A client can send any text.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// statusWriter is a ResponseWriter that records the status and, once the gateway is stopping, ends the connection after the response.
type statusWriter struct {
	http.ResponseWriter
	status   int // 0 until it is written
	stopping *atomic.Bool
}

// WriteHeader records and writes the status.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		if w.stopping.Load() && w.Header().Get("Connection") == "" { // it is set for an upgrade to WebSocket
			// The next request should go to another replica. net/http sends GOAWAY instead with HTTP/2.
			w.Header().Set("Connection", "close")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// WriteString writes a body without a copy.
func (w *statusWriter) WriteString(s string) (int, error) { return io.WriteString(w.ResponseWriter, s) }

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// fail responds with an error, unless the response has started or the client has disconnected.
func (w *statusWriter) fail(ctx context.Context, c *call, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		e = serverError(http.StatusInternalServerError, "internal_error", "The gateway encountered an internal error.", err)
	}
	// If the context is done, report its cause instead of the error.
	if reason := interrupted(ctx); reason != nil && e.status >= http.StatusInternalServerError {
		e = reason
	}
	if e.status >= http.StatusInternalServerError {
		c.log.Error("request failed", "code", e.code, "error", e.err)
	}
	if c.retryRunsAgain() {
		e.retry = retryNever
	}
	switch {
	case w.status != 0:
	case e.status == statusClientClosedRequest:
		w.status = e.status
	default:
		e.write(w)
	}
}
