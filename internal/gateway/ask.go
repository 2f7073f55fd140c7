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
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// The endpoints that say something about a conversation and create no response.
const (
	inputTokensPath = "/v1/responses/input_tokens"
	compactPath     = "/v1/responses/compact"
)

// askPaths are the endpoints that Gateway.ask serves.
var askPaths = []string{inputTokensPath, compactPath}

// served says whether the engine has an endpoint. It is decided by a request of the gateway: clients must not be able to decide it
// for each other. That an endpoint is missing is asked again after missingFor: the answer may be that of a proxy, while the engine starts.
type served struct {
	present atomic.Bool
	// missing is the Unix time, in nanoseconds, until which the endpoint is missing.
	missing atomic.Int64
}

const missingFor = time.Minute

// ask counts the input tokens of a conversation, or compacts it. The engine's own endpoint answers, with the conversation before the input
// of the request. Nothing is saved.
func (g *Gateway) ask(w http.ResponseWriter, r *http.Request, c *call) error {
	request, err := g.readRequest(w, r, c)
	if err != nil {
		return err
	}
	request.store, request.stateless = false, true
	if err := g.checkServed(r, c); err != nil {
		return err
	}
	if err := g.expand(r.Context(), c, request); err != nil {
		return err
	}
	if err := g.loadConversation(r.Context(), c, request); err != nil {
		return err
	}
	body, err := g.engineBody(r.Context(), c, request)
	if err != nil {
		return err
	}
	if err := g.reserveResponse(c, request); err != nil {
		return err
	}
	response, err := g.send(r.Context(), r, c, body)
	c.engineCalled = r.URL.Path == compactPath && !errors.Is(err, errNotConnected) // another count of tokens does no harm
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return g.passThrough(w, c, response, func(answer *object) error { return g.completeAnswer(r, c, answer) })
}

// completeAnswer adds the members that an engine has left out of its answer to a question about a conversation, unless that has no result.
func (g *Gateway) completeAnswer(r *http.Request, c *call, answer *object) error {
	switch {
	case r.URL.Path == inputTokensPath:
		answer.setMissing("object", `"response.input_tokens"`)
		return nil
	case !jsonvalue.IsList(answer.raw("output")):
		return nil
	}
	id := g.newResponseID(r, c)
	answer.setMissing("id", quote(id))
	t := &turn{id: id, request: &createRequest{object: &object{}}} // it is not stored
	if err := c.hold(t.shownBytes(answer)); err != nil {
		return err
	}
	answer.set("output", t.showOutput(answer.raw("output"), t.itemID))
	answer.setMissing("object", `"response.compaction"`)
	answer.setMissing("created_at", strconv.FormatInt(g.now().Unix(), 10))
	completeUsage(answer)
	return nil
}

// checkServed returns an error if the engine does not have the endpoint of a request. A request finds out, by one without a model
// and an input, which any engine that has the endpoint refuses in another way.
func (g *Gateway) checkServed(r *http.Request, c *call) error {
	endpoint := g.asked[r.URL.Path]
	isMissing := func() bool { return g.now().UnixNano() < endpoint.missing.Load() }
	if !endpoint.present.Load() && !isMissing() {
		probe := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: r.URL.Path}, Header: http.Header{}}
		setHeaders(probe.Header, r.Header, accountHeaders) // used if the account is the client's
		response, err := g.send(r.Context(), probe, c, &payload{text: "{}"})
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		switch response.StatusCode {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			endpoint.missing.Store(g.now().Add(missingFor).UnixNano())
		case http.StatusOK, http.StatusBadRequest, http.StatusUnprocessableEntity:
			endpoint.present.Store(true)
		}
	}
	if !endpoint.present.Load() && isMissing() {
		return invalidRequest("", "unsupported_endpoint", "The upstream does not serve %s.", r.URL.Path)
	}
	return nil
}

// context returns the items of a conversation that the engine gets. A compaction item replaces what came before it: if the engine has made
// it, as a part of a response, the context starts with it; if the client has sent it, with the input that contains it, which is what
// an engine has returned to be used as it is.
func (g *Gateway) context(ctx context.Context, c *call, q *createRequest, h *store.History) ([]json.RawMessage, error) {
	input := q.object.raw("input")
	last := len(h.Items) - 1
	replaced, err := inTurn(ctx, g, c, len(input)+int(historyBytes(h)), func() (bool, error) {
		if compacts(input) {
			return true, nil
		}
		for last >= 0 && !isCompaction(jsonvalue.Text(h.Items[last])) {
			last--
		}
		return false, nil
	})
	switch {
	case err != nil || replaced:
		return nil, err
	case last < 0:
		return h.Items, nil
	}
	start, err := g.startOfInput(ctx, c, h.Origins, last)
	return h.Items[min(start, last):], err
}

// startOfInput returns the position of the first item of the input that contains an item of the conversation, or that item's own position if
// it is part of a response.
func (g *Gateway) startOfInput(ctx context.Context, c *call, origins []store.Origin, item int) (int, error) {
	start := 0
	i := slices.IndexFunc(origins, func(o store.Origin) bool {
		start += o.Count
		return item < start
	})
	if i < 0 {
		return item, nil // the store does not say
	}
	origin := origins[i]
	start -= origin.Count
	number := origin.First + item - start
	for ; i > 0 && origins[i-1].ResponseID == origin.ResponseID; i-- { // hidden items are between them
		start -= origins[i-1].Count
	}
	start -= min(origins[i].First, 0) // instructions are not part of the input
	session, err := g.get(ctx, c, origin.ResponseID)
	if err != nil {
		return 0, err
	}
	defer c.memory.give(sessionBytes(session))
	inputs, err := inTurn(ctx, g, c, len(session.Request), func() (int, error) { return turnOf(session).request.inputs, nil })
	if err != nil || number >= inputs {
		return item, err
	}
	return start, nil
}

// compacts reports whether an input has a compaction item.
func compacts(input string) (found bool) {
	if strings.Contains(input, `"compaction"`) {
		_ = chain.EachInput(input, func(item string) { found = found || isCompaction(item) }) // checked when it was parsed
	}
	return found
}

func isCompaction(item string) bool {
	return strings.Contains(item, `"compaction"`) && gjson.Get(item, "type").Str == "compaction"
}
