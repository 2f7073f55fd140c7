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
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/catena-dev/catena/store"
)

// create creates a response: it sends the request to the engine with the conversation before it, and saves the turn
// before the client sees how it ends.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request, c *call) error {
	request, err := g.readRequest(w, r, c)
	if err != nil {
		return err
	}
	if err := c.readKey(r, request); err != nil {
		return err
	}
	t := &turn{id: g.newResponseID(r, c), request: request, created: g.now()}
	if answered, err := g.repeat(w, r, c, t); answered || err != nil {
		return err
	}
	history, err := g.history(r.Context(), c, request.previous)
	if err != nil {
		return err
	}
	response, err := g.send(r.Context(), r, c, request.forEngine(history))
	c.engineCalled = !errors.Is(err, errNotConnected)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch encoding := response.Header.Get("Content-Encoding"); {
	case response.StatusCode != http.StatusOK:
		return g.passThrough(w, response)
	case encoding != "" && encoding != "identity":
		return upstreamInvalid(fmt.Errorf("unrequested content encoding %q", encoding))
	case request.stream:
		return g.stream(w, r, c, t, response)
	default:
		return g.respond(w, r, c, t, response)
	}
}

// history returns the items of the conversation up to a response.
func (g *Gateway) history(ctx context.Context, c *call, previous string) ([]json.RawMessage, error) {
	if previous == "" {
		return nil, nil
	}
	history, err := c.store.Resolve(ctx, previous, g.options.resolveOptions())
	if err != nil {
		return nil, resolveError(previous, err)
	}
	return history.Items, g.hold(c, size(history.Items))
}

// size returns the total size of items.
func size(items []json.RawMessage) (bytes int64) {
	for _, item := range items {
		bytes += int64(len(item))
	}
	return bytes
}

// respond answers with a response that is not a stream.
func (g *Gateway) respond(w http.ResponseWriter, r *http.Request, c *call, t *turn, upstream *http.Response) error {
	body, err := g.readBody(upstream)
	if err != nil {
		return err
	}
	response, err := parseObject(body)
	if err != nil {
		return upstreamInvalid(fmt.Errorf("the body %w", err))
	}
	response.setMissing("status", quote(store.StatusCompleted))
	if err := checkResponse(response); err != nil {
		return upstreamInvalid(err)
	}
	t.claim(response)
	stored, failure := g.saveOrFind(r.Context(), c, t, response)
	if failure != nil {
		return failure
	}
	g.copyHeaders(w.Header(), upstream.Header)
	if stored != nil {
		writeJSON(w, http.StatusOK, responseOf(stored))
		return nil
	}
	writeJSON(w, http.StatusOK, response.String())
	return nil
}

// checkResponse returns an error if an object is not a finished response.
func checkResponse(response *object) error {
	if !response.get("output").IsArray() {
		return errors.New("`output` is not a list")
	}
	switch response.get("status").Str {
	case store.StatusCompleted, store.StatusIncomplete, store.StatusFailed, store.StatusCancelled:
		return nil
	}
	return errors.New("`status` is not final: completed, incomplete, failed or cancelled")
}
