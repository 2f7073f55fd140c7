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
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// createRequest is a client's request to create a response.
type createRequest struct {
	// body is the request as the client sent it, but decompressed, which is what the store saves. object is the parsed body.
	body   []byte
	object *object
	// previous is the ID of the previous response, or empty, and named is what the client has called it. They differ if the client has
	// sent a stored conversation instead of its ID, named a turn that only its WebSocket connection remembers, or named a conversation.
	previous, named string
	// conversation is the ID of the conversation that the client has named, or empty.
	conversation string
	// inputs is the number of items of the input. The first of them, remembered in number, come from turns that only the client's WebSocket
	// connection remembers; they are sent again as they were.
	inputs, remembered int
	// repeats is the ID of the turn that an earlier request with the same Idempotency-Key has saved, if there was one. It is empty without a key.
	repeats string
	// history is the conversation that the request continues, if it has been resolved already.
	history *store.History
	// parent is the previous response as it was when it was resolved.
	parent        store.Handle
	store, stream bool
	// stateless is set if the endpoint has no `store`: it never stores anything.
	stateless bool
}

// readRequest reads a request and checks the members that the gateway uses. The engine checks the others.
func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, c *call) (*createRequest, error) {
	body, err := g.readRequestBody(w, r, c)
	if err != nil {
		return nil, err
	}
	return inTurn(r.Context(), g, c, len(body), func() (*createRequest, error) { return parseRequest(body) })
}

// readRequestBody reads the body of a request, decompressed.
func (g *Gateway) readRequestBody(w http.ResponseWriter, r *http.Request, c *call) ([]byte, error) {
	decoder, err := decoderOf(r)
	if err != nil {
		w.Header().Set("Accept-Encoding", "gzip, zstd")
		return nil, err
	}
	// The bytes received are held twice, whatever the Content-Length is: for the body, and for its share of the engine's body.
	body, err := c.readAll(http.MaxBytesReader(w, r.Body, g.options.MaxRequestBytes))
	if err != nil {
		return nil, readError(err)
	}
	// The deadline must not apply to the response, which may take longer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if decoder != nil {
		return g.decompress(r.Context(), c, decoder, body)
	}
	return body, nil
}

// largeBody is the size from which bodies are parsed and compared in turns. A smaller one takes a few milliseconds at most.
const largeBody = 64 << 10

// inTurn does work that parses a body with a number of bytes. If the body is large, it waits until its tenant may do so, so that
// tenants share the CPUs: while all of them are busy, even a request that needs little of them waits at each of its steps.
func inTurn[T any](ctx context.Context, g *Gateway, c *call, bytes int, work func() (T, error)) (T, error) {
	if bytes >= largeBody {
		tenant := c.store.Namespace()
		if err := g.parses.Acquire(ctx, tenant, 1); err != nil {
			var none T
			return none, err
		}
		defer g.parses.Release(tenant, 1)
	}
	return work()
}

func readError(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e // from hold
	}
	e := &apiError{status: http.StatusBadRequest, kind: typeInvalidRequest, message: "The request could not be read.", err: err}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		e.status, e.code, e.message = http.StatusRequestEntityTooLarge, "request_too_large", "The request is too large."
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.status, e.code, e.message = http.StatusRequestTimeout, "request_timeout", "The request took too long to arrive."
	}
	return e
}

// parseRequest checks a request in a fixed order: the JSON, the members that need state that the gateway does not keep, and
// the members that it uses.
func parseRequest(body []byte) (*createRequest, error) {
	parsed, o, err := parseBody(body)
	if err != nil {
		return nil, invalidJSON(err)
	}
	q := &createRequest{body: body, object: o}
	if q.conversation, err = readConversation(o); err != nil {
		return nil, err
	}
	if err := q.readBooleans(); err != nil {
		return nil, err
	}
	if q.previous, err = readPrevious(o); err != nil {
		return nil, err
	}
	q.named = q.previous
	if err := chain.CheckObjects(parsed, jsonvalue.Object{}); err != nil {
		param := "input"
		if instructions := o.raw("instructions"); !jsonvalue.IsNull(instructions) && !jsonvalue.IsString(instructions) {
			param = "instructions"
		}
		return nil, invalidRequest(param, "invalid_type", "Invalid request: %v.", err)
	}
	q.inputs = countInput(o.raw("input"))
	return q, nil
}

func invalidJSON(err error) *apiError {
	return invalidRequest("", "invalid_json", "We could not parse the JSON body of your request: it %v.", err)
}

// readBooleans reads the boolean members, and rejects background responses.
func (q *createRequest) readBooleans() error {
	var background bool
	for _, member := range []struct {
		name         string
		value        *bool
		defaultValue bool
	}{{"background", &background, false}, {"store", &q.store, true}, {"stream", &q.stream, false}} {
		switch result := q.object.get(member.name); result.Type {
		case gjson.Null:
			*member.value = member.defaultValue
		case gjson.True, gjson.False:
			*member.value = result.Bool()
		default:
			return invalidRequest(member.name, "invalid_type", "Invalid type for '%s': expected a boolean.", member.name)
		}
	}
	if background {
		return invalidRequest("background", "unsupported_parameter",
			"Unsupported parameter: 'background'. Responses are created synchronously; use 'stream' to receive them incrementally.")
	}
	return nil
}

// continues reports whether the request says what it continues.
func (q *createRequest) continues() bool {
	return q.previous != "" || q.conversation != "" || q.remembered > 0
}

func readPrevious(o *object) (string, error) {
	previous := o.get("previous_response_id")
	switch {
	case previous.Type != gjson.Null && previous.Type != gjson.String:
		return "", invalidRequest("previous_response_id", "invalid_type", "Invalid type for 'previous_response_id': expected a string.")
	case utf8.RuneCountInString(previous.Str) > store.MaxIDLength:
		return "", invalidRequest("previous_response_id", "string_above_max_length",
			"Invalid 'previous_response_id': string too long, at most %d characters are allowed.", store.MaxIDLength)
	}
	return previous.Str, nil
}

// forEngine returns the body for the engine: the client's body with the history before its input, and without the members that
// request state.
//
// The input is a list from the first turn on, of the items that chain.Flatten makes of the stored request, in the same bytes. So what the
// engine gets for a turn begins with what it got for the turns before it, byte for byte, and it finds their prefix in its cache.
func (q *createRequest) forEngine(history []json.RawMessage) string {
	o := &object{members: slices.Clone(q.object.members)}
	o.remove("previous_response_id")
	o.remove("conversation")
	if !q.stateless {
		o.set("store", "false")
	}
	if q.previous == "" && q.inputs == 0 {
		return o.String()
	}
	own := o.raw("input")
	o.remove("input")
	rest := strings.TrimSuffix(o.String(), "}")
	var b strings.Builder
	b.Grow(int(engineBytes(history)) + len(q.body))
	b.WriteString(rest)
	if rest != "{" {
		b.WriteString(",")
	}
	b.WriteString(`"input":[`)
	separator := ""
	for _, item := range history {
		b.WriteString(separator)
		writeForEngine(&b, jsonvalue.Text(item))
		separator = ","
	}
	_ = chain.EachInput(own, func(item string) {
		b.WriteString(separator)
		writeForEngine(&b, item)
		separator = ","
	}) // checked when the request was parsed
	b.WriteString("]}")
	return b.String()
}

// engineBytes returns the memory of a history in the body for the engine, including the members that the gateway adds.
func engineBytes(history []json.RawMessage) (bytes int64) {
	const added = 256
	for _, item := range history {
		bytes += int64(len(item)) + 1
	}
	return bytes + added
}
