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
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/store"
)

// handler answers a request, or returns an error before it has answered anything.
type handler func(http.ResponseWriter, *http.Request, *call) error

// call is what is known of a request besides itself.
type call struct {
	// requestID is the client's x-request-id, or one of the gateway's.
	requestID string
	// store is that of the client's namespace.
	store store.Store
	log   *slog.Logger
	// held is how many of the bytes in flight are the call's.
	held int64
}

// hold counts bytes to those in flight until the call ends, and returns an error where that is too many. Where they are
// too many for one call, it is of no use to try again.
func (g *Gateway) hold(c *call, bytes int64) error {
	if c.held+bytes > g.options.MaxInFlightBytes {
		return invalidRequest("", string(store.CodeTooLarge), "The request or its conversation is too large for the gateway.")
	}
	if !g.inFlight.TryAcquire(bytes) {
		e := serverError(http.StatusServiceUnavailable, "overloaded", "The gateway has too much to do.", nil)
		e.retry = retryLater
		return e
	}
	c.held += bytes
	return nil
}

// handle makes a handler complete: it knows who calls, answers with its errors, logs and counts.
func (g *Gateway) handle(next handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := g.now()
		ctx, cancel := context.WithTimeoutCause(r.Context(), g.options.RequestTimeout, errTimeout)
		defer cancel()
		c := &call{requestID: requestID(r)}
		c.log = g.log.With("requestID", c.requestID)
		defer func() { g.inFlight.Release(c.held) }()
		w.Header().Set("X-Request-Id", c.requestID)
		if g.stopping.Load() {
			w.Header().Set("Connection", "close") // the next request is to find a replica that stays
		}
		answer := &answer{ResponseWriter: w}
		if r.ContentLength != 0 {
			// Until the body is read, also where nobody wants it: the server reads on before it answers. A writer without
			// deadlines is that of a test.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(g.options.ReadTimeout))
		}

		err := g.checkOrigin(r)
		if err == nil {
			err = g.identify(r, c)
		}
		if err == nil {
			err = next(answer, r.WithContext(ctx), c)
		}
		if err != nil {
			answer.fail(ctx, c.log, err)
		}
		g.metrics.requests.WithLabelValues(route(r), strconv.Itoa(answer.status)).Inc()
		c.log.Info("request", "method", r.Method, "route", route(r), "status", answer.status, "seconds", g.now().Sub(start).Seconds())
	})
}

// checkOrigin returns an error for a request that Options.LoopbackOnly refuses. That the host is this machine's matters
// because the name of a web site can lead here too, and its pages are then of the same origin.
func (g *Gateway) checkOrigin(r *http.Request) error {
	if !g.options.LoopbackOnly || sameOrigin(r) && IsLoopback(r.Host) {
		return nil
	}
	return &apiError{
		status: http.StatusForbidden, kind: typeInvalidRequest, code: "forbidden_origin",
		message: "Without API keys, only programs of this machine may use the gateway, at a loopback address.",
	}
}

// sameOrigin reports whether a request is not one that a browser sends for the page of another site, whatever its method:
// http.CrossOriginProtection lets GET pass.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin":
		return true
	case "":
		origin := r.Header.Get("Origin")
		from, err := url.Parse(origin)
		return origin == "" || err == nil && from.Host == r.Host
	}
	return false
}

// IsLoopback reports whether a host, with or without a port, is localhost or a loopback address. Another name may be
// anything.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// identify gives a call the store of the namespace that its client may use.
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

var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID returns the ID that the client has given the request, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); requestIDs.MatchString(id) {
		return id
	}
	return "req_" + randomHex()
}

func randomHex() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// route returns the pattern that a request matched, which has no ID in it.
func route(r *http.Request) string {
	if r.Pattern == "/" || r.Pattern == "" {
		return "other"
	}
	return r.Pattern
}

// answer is a ResponseWriter that knows what was answered.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// fail answers with an error, unless an answer has begun or there is nobody to answer.
func (a *answer) fail(ctx context.Context, log *slog.Logger, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		e = serverError(http.StatusInternalServerError, "internal_error", "The gateway failed.", err)
	}
	// Whatever failed, it did so because the request's time was over or its client gone.
	if reason := interrupted(ctx); reason != nil && e.status >= http.StatusInternalServerError {
		e = reason
	}
	if e.status >= http.StatusInternalServerError {
		log.Error("request failed", "code", e.code, "error", e.err)
	}
	switch {
	case a.status != 0:
	case e.status == statusClientClosedRequest:
		a.status = e.status
	default:
		e.write(a)
	}
}
