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
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/requestid"
)

// unreadAnswerBytes is how much of an answer of the engine may arrive with HTTP/2 that the gateway has not read yet, and so how much of it arrives in
// each round trip.
const unreadAnswerBytes = 64 << 10

// upstream sends requests to the engine. Each tenant has connections of its own: a server ends one with HTTP/2 on which many requests are
// canceled, with all others on it.
type upstream struct {
	base   string // without the /v1
	scheme string

	mu      sync.Mutex
	clients map[string]*http.Client // by tenant, as many as the tenants file has had
}

func newUpstream(base *url.URL) *upstream {
	return &upstream{scheme: base.Scheme, base: strings.TrimSuffix(strings.TrimRight(base.String(), "/"), "/v1"), clients: map[string]*http.Client{}}
}

// of returns the client of a tenant.
func (u *upstream) of(tenant string) *http.Client {
	u.mu.Lock()
	defer u.mu.Unlock()
	client := u.clients[tenant]
	if client == nil {
		client = &http.Client{
			Transport: newTransport(u.scheme),
			// A redirect would send the key and the conversation to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		u.clients[tenant] = client
	}
	return client
}

const (
	// engineHeaderBytes is the size of an engine's header. Go's default is 10 MiB, of which values take 30 times as much.
	engineHeaderBytes = 64 << 10
	// engineIdleTimeout is shorter than the 5 s for which uvicorn, the server of most engines, keeps a connection: a request that meets its end
	// fails, and cannot be repeated.
	engineIdleTimeout = 4 * time.Second
	// idleTimeout is that of HTTPS, whose connections take longer to make, and whose servers usually keep them for minutes.
	idleTimeout = 90 * time.Second
)

func newTransport(scheme string) *http.Transport {
	idle := idleTimeout
	if scheme == "http" {
		idle = engineIdleTimeout
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64, // for each tenant
		IdleConnTimeout:     idle,
		// All headers of an answer together.
		MaxResponseHeaderBytes: engineHeaderBytes,
		// A compressed stream is held back until a block is full.
		DisableCompression: true,
		// What arrives while a slow client does not read is part of callBytes. Go's default is 4 MiB.
		// Pings notice a lost connection, which all requests of a tenant would otherwise use for a quarter of an hour.
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: unreadAnswerBytes,
			SendPingTimeout:           15 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
	}
}

// The headers that pass through. Account headers pass only together with the client's own key: clients must not choose the
// account to which the gateway's key is billed.
var (
	requestHeaders  = []string{"Accept", "Openai-Beta", "Traceparent", "Tracestate"}
	accountHeaders  = []string{"Authorization", "Openai-Organization", "Openai-Project"}
	responseHeaders = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry", "Openai-Processing-Ms"}
)

// send sends a request to the engine; body may be nil. The status of the returned response is 200 or an HTTP error.
func (g *Gateway) send(ctx context.Context, r *http.Request, c *call, body *payload) (*http.Response, error) {
	target := g.upstream.base + r.URL.Path
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, target, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("unable to build the request to the engine: %w", err)
	}
	setHeaders(request.Header, r.Header, requestHeaders)
	g.authorize(request, r, c)
	if body != nil {
		defer body.drop()
		request.Header.Set("Content-Type", "application/json")
		request.ContentLength, request.GetBody = int64(len(body.text)), body.open
		if request.Body, err = body.open(); err != nil {
			return nil, err
		}
	}
	request.Header.Set(requestid.Header, c.requestID)
	start := g.now()
	response, err := g.upstream.of(c.store.Namespace()).Do(request)
	if err != nil {
		return nil, upstreamError(err)
	}
	g.metrics.upstreamSeconds.Observe(g.now().Sub(start).Seconds())
	status := response.StatusCode
	switch {
	case status != http.StatusOK && status < http.StatusBadRequest || status > maxStatus:
		err = upstreamInvalid(fmt.Errorf("unexpected status %d", status))
	case g.ownsAccount() && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		err = upstreamRefused(fmt.Errorf("status %d", status))
	default:
		return response, nil
	}
	_ = response.Body.Close() // nothing was written
	return nil, err
}

// maxStatus is the largest status of HTTP.
const maxStatus = 599

// ownsAccount reports whether the account at the engine belongs to the gateway and not to the client. If it does, clients get
// neither the headers with the account's limits nor the engine's messages about the limits and the key.
func (g *Gateway) ownsAccount() bool { return g.upstreamKey != nil || g.tenants != nil }

// authorize adds the credentials for the engine to a request. Tenants' keys are never forwarded.
func (g *Gateway) authorize(request, r *http.Request, c *call) {
	switch {
	case g.upstreamKey != nil:
		c.upstreamKey = g.upstreamKey.get()
		request.Header.Set("Authorization", "Bearer "+c.upstreamKey)
	case !g.ownsAccount():
		setHeaders(request.Header, r.Header, accountHeaders)
	}
}

// setHeaders copies the named headers that are set.
func setHeaders(to, from http.Header, names []string) {
	for _, name := range names {
		if value := from.Get(name); value != "" {
			to.Set(name, value)
		}
	}
}

// minSecret and minErrorSecret are the minimum lengths of a key that is hidden, in successful responses and in errors. A shorter key is
// usually a placeholder such as EMPTY, as local engines get it, and replacing it would damage ordinary text.
const (
	minSecret      = 16
	minErrorSecret = 8
)

// hidden replaces the key.
const hidden = "***"

// hideKey removes the gateway's own key from what the engine has sent: an error may quote it.
func (c *call) hideKey(text string, isError bool) string {
	if len(c.upstreamKey) < minErrorSecret || len(c.upstreamKey) < minSecret && !isError {
		return text
	}
	text = strings.ReplaceAll(text, c.upstreamKey, hidden)
	if strings.Contains(c.upstreamKey, "/") { // which some encoders of JSON escape
		text = strings.ReplaceAll(text, strings.ReplaceAll(c.upstreamKey, "/", `\/`), hidden)
	}
	return text
}

// hideKeyIn removes the gateway's own key from an event, and reports whether the event had it.
func (c *call) hideKeyIn(e *event, isError bool) bool {
	name, data, others := c.hideKey(e.name, isError), c.hideKey(e.data, isError), c.hideKey(string(e.others), isError)
	if name == e.name && data == e.data && others == string(e.others) {
		return false
	}
	e.others = []byte(others)
	e.replace(name, data)
	return true
}

// passThrough returns the engine's response, whose errors may be about the gateway's own account and key. After an error, clients are
// told not to retry, as after other errors, unless the engine has not run. complete, if it is not nil, adds what is missing in a success;
// an error gets the members that it lacks.
func (g *Gateway) passThrough(w http.ResponseWriter, c *call, response *http.Response, complete func(*object) error) error {
	if response.StatusCode == http.StatusTooManyRequests && g.ownsAccount() {
		g.copyHeaders(w.Header(), response.Header)
		c.log.Warn("the engine has reached a limit", "code", codeOf(response))
		upstreamLimited().write(w)
		return nil
	}
	body, err := g.readBody(c, response)
	if err != nil {
		return err
	}
	if c.upstreamKey != "" {
		if err := checkEncoding(response); err != nil {
			return err // it might hide the key
		}
	}
	switch {
	case checkEncoding(response) != nil:
	case response.StatusCode >= http.StatusBadRequest:
		body = withCompleteError(body, response.StatusCode)
	case complete != nil:
		body, err = inTurn(response.Request.Context(), g, c, len(body), func() ([]byte, error) {
			if o, err := parseObject(body); err == nil { // another answer is the engine's matter
				if err := complete(o); err != nil {
					return nil, err
				}
				return jsonvalue.Bytes(o.String()), nil
			}
			return body, nil
		})
		if err != nil {
			return err
		}
	}
	g.copyHeaders(w.Header(), response.Header)
	setHeaders(w.Header(), response.Header, []string{"Content-Type", "Content-Encoding"})
	if c.retryRunsAgain() && !declined(response) {
		w.Header().Set("X-Should-Retry", "false")
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(body) // fails only if the client has disconnected
	return nil
}

// declined reports whether the engine has not accepted a request. A 503 without Retry-After does not mean that: a proxy in front of the
// engine may send it, such as Envoy if a connection ends while the engine runs.
func declined(response *http.Response) bool {
	return response.StatusCode == http.StatusTooManyRequests ||
		response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != ""
}

// errorCode matches the codes of OpenAI's errors. An engine's text must not be logged.
var errorCode = regexp.MustCompile(`^[a-z_]{1,64}$`)

// codeTimeout is the time that the gateway waits for the code of an error that it replaces, and codeBytes is how much of the body it
// reads for that.
const (
	codeTimeout = time.Second
	codeBytes   = 4 << 10
)

// codeOf returns the code of the engine's error, empty if it has none or does not arrive in time.
func codeOf(response *http.Response) string {
	timer := time.AfterFunc(codeTimeout, func() { _ = response.Body.Close() })
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(response.Body, codeBytes))
	return errorCode.FindString(gjson.GetBytes(body, "error.code").Str)
}

// checkEncoding returns an error if a response is encoded, which the gateway did not request.
func checkEncoding(response *http.Response) error {
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return upstreamInvalid(fmt.Errorf("unrequested content encoding %q", encoding))
	}
	return nil
}

// copyHeaders copies the headers of the engine's response that pass through.
func (g *Gateway) copyHeaders(to, from http.Header) {
	for name, values := range from {
		if strings.HasPrefix(name, "X-Ratelimit-") && !g.ownsAccount() {
			to[name] = values
		}
	}
	for _, name := range responseHeaders {
		if values := from.Values(name); len(values) > 0 {
			to[name] = values
		}
	}
}

// readBody reads the body of the engine's response, without the gateway's own key. Its memory is held twice: for the body as received,
// and as sent to the client.
func (g *Gateway) readBody(c *call, response *http.Response) ([]byte, error) {
	body, err := c.readAll(http.MaxBytesReader(nil, response.Body, g.options.MaxResponseBytes))
	if e, ok := errors.AsType[*apiError](err); ok {
		return nil, e // from hold
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, upstreamInvalid(errTooLarge)
	}
	if err != nil {
		return nil, upstreamBroken(err)
	}
	return jsonvalue.Bytes(c.hideKey(jsonvalue.Text(body), response.StatusCode != http.StatusOK)), nil
}

// listModels returns the engine's models.
func (g *Gateway) listModels(w http.ResponseWriter, r *http.Request, c *call) error {
	response, err := g.send(r.Context(), r, c, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return g.passThrough(w, c, response, nil)
}

var errTooLarge = errors.New("larger than --max-response-bytes")

// errNotConnected marks an error that occurred before anything was sent to the engine.
var errNotConnected = errors.New("not connected")

func upstreamError(err error) *apiError {
	if e, ok := errors.AsType[*url.Error](err); ok { // it quotes the client's query
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		err = fmt.Errorf("%w: %w", errNotConnected, err)
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return serverError(http.StatusGatewayTimeout, "upstream_timeout", "The upstream did not respond in time.", err)
	}
	return serverError(http.StatusBadGateway, "upstream_unreachable", "The upstream cannot be reached.", err)
}

// upstreamRefused returns the error for an engine that rejects the gateway's credentials. It omits the engine's message, which
// may quote the key.
func upstreamRefused(err error) *apiError {
	e := finalError("upstream_refused", "The upstream does not accept the gateway's credentials.", err)
	e.status = http.StatusBadGateway
	return e
}

// upstreamLimited returns the error for an engine that answers 429 while the account is the gateway's. It omits the engine's message,
// which may name the account, its limits and its usage. Its type and code are those of OpenAI.
func upstreamLimited() *apiError {
	return &apiError{
		status: http.StatusTooManyRequests, kind: typeRequests, code: "rate_limit_exceeded", message: "The upstream has reached a limit; retry later.",
	}
}

func upstreamBroken(err error) *apiError {
	return serverError(http.StatusBadGateway, "upstream_broken", "The upstream ended its response early.", err)
}

func upstreamInvalid(err error) *apiError {
	return serverError(http.StatusBadGateway, "upstream_invalid_response", "The upstream's response is invalid.", err)
}
