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

// create makes a response: it sends the request on with the conversation before it, saves the turn, and then lets the
// client see its end.
func (g *Gateway) create(w http.ResponseWriter, r *http.Request, c *call) error {
	request, err := g.readRequest(w, r, c)
	if err != nil {
		return err
	}
	history, err := g.history(r.Context(), c, request.previous)
	if err != nil {
		return err
	}
	t := &turn{id: "resp_" + randomHex(), request: request, created: g.now()}
	response, err := g.do(r.Context(), r, c, request.forUpstream(history))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch encoding := response.Header.Get("Content-Encoding"); {
	case response.StatusCode != http.StatusOK:
		return g.passThrough(w, response)
	case encoding != "" && encoding != "identity":
		return upstreamInvalid(fmt.Errorf("it is compressed with %q, which it was not asked for", encoding))
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
	if err == nil {
		return history.Items, g.hold(c, size(history.Items))
	}
	if e, ok := errors.AsType[*store.Error](err); ok && e.Code == store.CodeNotFound && e.ResponseID == previous {
		return nil, invalidRequest("previous_response_id", "previous_response_not_found",
			"Previous response with id '%s' not found.", previous)
	}
	return nil, storeError(err)
}

// size returns the bytes of all items.
func size(items []json.RawMessage) (bytes int64) {
	for _, item := range items {
		bytes += int64(len(item))
	}
	return bytes
}

// respond answers with a response that the upstream has sent as a whole.
func (g *Gateway) respond(w http.ResponseWriter, r *http.Request, c *call, t *turn, upstream *http.Response) error {
	body, err := g.readUpstream(upstream)
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
	if err := g.save(r.Context(), c, t, response); err != nil {
		return saveError(err)
	}
	copyHeaders(w.Header(), upstream.Header)
	writeJSON(w, http.StatusOK, response.String())
	return nil
}

// checkResponse returns an error where an upstream's answer is not a response that has come to its end.
func checkResponse(response *object) error {
	if !response.get("output").IsArray() {
		return errors.New("it has no `output`")
	}
	switch response.get("status").Str {
	case store.StatusCompleted, store.StatusIncomplete, store.StatusFailed, store.StatusCancelled:
		return nil
	}
	return errors.New("its `status` is none at which a response ends")
}
