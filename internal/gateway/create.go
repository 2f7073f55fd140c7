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
	"net/http"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// create creates a response: it sends the request to the engine, preceded by the conversation, and saves the turn before the
// client receives the end of the response.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request, c *call) error {
	request, err := g.readRequest(w, r, c)
	if err != nil {
		return err
	}
	return g.createFrom(w, r, c, request)
}

// createFrom creates the response to a request that has been read.
func (g *Gateway) createFrom(w http.ResponseWriter, r *http.Request, c *call, request *createRequest) error {
	if err := c.readKey(r, request.store); err != nil {
		return err
	}
	if request.stream {
		if err := c.streams.take(1); err != nil {
			return err
		}
	}
	t := &turn{id: g.newResponseID(r, c), request: request, created: g.now()}
	if c.idempotencyKey != "" {
		request.repeats = t.id
	}
	if err := g.expand(r.Context(), c, request); err != nil {
		return err
	}
	if answered, err := g.repeat(w, r, c, t); answered || err != nil {
		return err
	}
	if err := g.checkQuota(r.Context(), c, request); err != nil {
		return err
	}
	defer t.leave(r.Context())
	err := g.enterConversation(r.Context(), c, t)
	if errors.Is(err, store.ErrConflict) { // perhaps a request with the same Idempotency-Key has just saved the turn
		if answered, failure := g.repeat(w, r, c, t); answered || failure != nil {
			return failure
		}
	}
	if err != nil {
		return err
	}
	body, err := g.engineBody(r.Context(), c, request)
	if err != nil {
		return err
	}
	if err := g.reserveResponse(c, request); err != nil {
		return err
	}
	if g.finishes(request) {
		var cancel context.CancelFunc
		r, cancel = withoutClient(r)
		defer cancel()
	}
	r, cancel := t.whileReserved(r)
	defer cancel()
	err = g.generate(w, r, c, t, body)
	if lost := placeLost(context.Cause(r.Context())); err != nil && lost != nil {
		return lost
	}
	return err
}

// generate lets the engine create the response, and saves and sends it.
func (g *Gateway) generate(w http.ResponseWriter, r *http.Request, c *call, t *turn, body *payload) error {
	response, err := g.send(r.Context(), r, c, body)
	c.engineCalled = !errors.Is(err, errNotConnected)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.leave(r.Context())
		return g.passThrough(w, c, response, nil)
	}
	if err := checkEncoding(response); err != nil {
		return err
	}
	if t.request.stream {
		return g.stream(w, r, c, t, response)
	}
	return g.respond(w, r, c, t, response)
}

// finishes reports whether the response to a request is finished and saved even if the client goes away.
func (g *Gateway) finishes(request *createRequest) bool {
	return request.store && g.options.OnDisconnect == OnDisconnectFinish
}

// withoutClient returns the request with a context that is not done when the client disconnects, but otherwise like its own.
func withoutClient(r *http.Request) (*http.Request, context.CancelFunc) {
	deadline, _ := r.Context().Deadline() // every request has one
	ctx, cancel := context.WithDeadlineCause(context.WithoutCancel(r.Context()), deadline, errTimeout)
	base, ok := r.Context().Value(baseContext{}).(context.Context)
	if !ok {
		return r.WithContext(ctx), cancel // another server has the handler
	}
	ctx, abort := context.WithCancelCause(ctx)
	stop := context.AfterFunc(base, func() { abort(context.Cause(base)) })
	return r.WithContext(ctx), func() {
		stop()
		cancel()
	}
}

// engineBody returns the body for the engine. Its memory is held until the body has been sent; the memory of the conversation,
// which is part of the body, is held only while the body is built.
func (g *Gateway) engineBody(ctx context.Context, c *call, request *createRequest) (*payload, error) {
	history := request.history
	if history == nil {
		var err error
		if history, err = g.history(ctx, c, request.previous); err != nil {
			return nil, err
		}
	}
	request.parent, request.history = history.Parent, nil
	defer c.memory.give(historyBytes(history))
	items, err := g.context(ctx, c, request, history)
	if err != nil {
		return nil, err
	}
	if c.socket != nil {
		if err := c.socket.keepVisible(ctx, items); err != nil {
			return nil, err
		}
	}
	added := engineBytes(items)
	if err := c.hold(added); err != nil {
		return nil, err
	}
	// The request's share of the body has been held since the request was read.
	size := added + int64(len(request.body))
	text, err := inTurn(ctx, g, c, int(size), func() (string, error) { return request.forEngine(items), nil })
	if err != nil {
		return nil, err
	}
	return &payload{text: text, freed: func() { c.memory.give(size) }}, nil
}

// history returns the conversation up to a response.
func (g *Gateway) history(ctx context.Context, c *call, previous string) (*store.History, error) {
	if previous == "" {
		return &store.History{}, nil
	}
	history, err := g.resolve(ctx, c, previous, g.options.resolveOptions())
	if err != nil {
		return nil, resolveError(previous, err)
	}
	return history, nil
}

// respond writes a response that is not a stream.
func (g *Gateway) respond(w http.ResponseWriter, r *http.Request, c *call, t *turn, upstream *http.Response) error {
	body, err := g.readBody(c, upstream)
	if err != nil {
		return err
	}
	var final string
	response, err := inTurn(r.Context(), g, c, len(body), func() (response *object, err error) {
		response, final, err = t.receive(c, body)
		return response, err
	})
	if err != nil {
		return err
	}
	stored, failure := g.saveOrFind(r.Context(), c, t, response, final)
	if failure != nil {
		return failure
	}
	g.copyHeaders(w.Header(), upstream.Header)
	var shown *object
	if stored != nil {
		shown, err = g.showStored(r.Context(), c, stored)
	} else {
		shown, err = g.show(r.Context(), c, t, response)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, shown.String())
	return nil
}

// receive returns the response in the engine's answer as the turn has it, parsed and as JSON. It is called in a turn of the tenant.
func (t *turn) receive(c *call, body []byte) (response *object, final string, err error) {
	if response, err = parseObject(body); err != nil {
		return nil, "", upstreamInvalid(fmt.Errorf("the body %w", err))
	}
	response.setMissing("status", quote(store.StatusCompleted))
	if err := checkResponse(response); err != nil {
		return nil, "", upstreamInvalid(err)
	}
	if failure := response.raw("error"); jsonvalue.IsObject(failure) {
		response.set("error", c.hideKey(failure, true))
	}
	if err := c.hold(t.namingBytes(response)); err != nil {
		return nil, "", err
	}
	t.claim(response)
	t.nameCalls(response)
	return response, response.String(), nil
}

// checkResponse returns an error unless the object is a finished response.
func checkResponse(response *object) error {
	if !jsonvalue.IsList(response.raw("output")) {
		return errors.New("`output` must be a list")
	}
	switch response.get("status").Str {
	case store.StatusCompleted, store.StatusIncomplete, store.StatusFailed, store.StatusCancelled:
		return nil
	}
	return errors.New("`status` must be completed, incomplete, failed or cancelled")
}
