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
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store"
)

// request is a client's request for a response.
type request struct {
	// body is what the client sent, and what is saved.
	body   []byte
	object *object
	// input has the client's own input items.
	input *chain.Items
	// previous is the ID of the previous response, or empty.
	previous      string
	store, stream bool
}

// readRequest reads a request and checks what the gateway reads of it. The rest is for the upstream to judge.
func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, c *call) (*request, error) {
	body, err := io.ReadAll(&holdingReader{g: g, call: c, body: http.MaxBytesReader(w, r.Body, g.options.MaxRequestBytes)})
	if err != nil {
		return nil, readError(err)
	}
	// It must not end an answer that takes longer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return parseRequest(body)
}

// holdingReader holds what is read of a body, so that a client has of the bytes in flight only what it has sent, however
// much it has announced.
type holdingReader struct {
	g    *Gateway
	call *call
	body io.Reader
}

// Read is part of io.Reader.
func (r *holdingReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err := r.g.hold(r.call, int64(n)); err != nil {
		return 0, err
	}
	return n, err
}

func readError(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e // it was not the client
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

// parseRequest checks in a fixed order: the JSON, the members that need state which is not there, then those that the
// gateway reads itself.
func parseRequest(body []byte) (*request, error) {
	o, err := parseObject(body)
	if err != nil {
		return nil, invalidRequest("", "invalid_json", "We could not parse the JSON body of your request: it %v.", err)
	}
	q := &request{body: body, object: o}
	if o.get("conversation").Type != gjson.Null {
		if o.get("previous_response_id").Type != gjson.Null {
			return nil, invalidRequest("previous_response_id", "mutually_exclusive_parameters",
				"Mutually exclusive parameters: 'previous_response_id' and 'conversation'.")
		}
		return nil, invalidRequest("conversation", "unsupported_parameter",
			"Unsupported parameter: 'conversation'. Use 'previous_response_id' to continue a conversation.")
	}
	var background bool
	for _, member := range []struct {
		name  string
		value *bool
		unset bool
	}{{"background", &background, false}, {"store", &q.store, true}, {"stream", &q.stream, false}} {
		if err := readBool(o, member.name, member.value, member.unset); err != nil {
			return nil, err
		}
	}
	if background {
		return nil, invalidRequest("background", "unsupported_parameter",
			"Unsupported parameter: 'background'. A response is made while the request lasts; use 'stream' to see it grow.")
	}
	if q.previous, err = readPrevious(o); err != nil {
		return nil, err
	}
	if q.input, err = chain.Flatten(body, nil); err != nil {
		param := "input"
		if instructions := o.get("instructions").Type; instructions != gjson.Null && instructions != gjson.String {
			param = "instructions"
		}
		return nil, invalidRequest(param, "invalid_type", "Invalid request: %v.", err)
	}
	return q, nil
}

func readBool(o *object, name string, value *bool, unset bool) error {
	switch result := o.get(name); result.Type {
	case gjson.Null:
		*value = unset
	case gjson.True, gjson.False:
		*value = result.Bool()
	default:
		return invalidRequest(name, "invalid_type", "Invalid type for '%s': expected a boolean.", name)
	}
	return nil
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

// forUpstream returns the body for the upstream: that of the client, with the history before its own input, and without
// anything that asks the upstream to keep or find state.
func (q *request) forUpstream(history []json.RawMessage) string {
	if q.previous != "" {
		q.object.set("input", inputList(history, q.input))
	}
	q.object.remove("previous_response_id")
	q.object.set("store", "false")
	return q.object.String()
}

func inputList(history []json.RawMessage, own *chain.Items) string {
	var b strings.Builder
	b.Grow(int(size(history)) + len(history) + len(own.List) + 2)
	separator := "["
	for _, item := range history {
		b.WriteString(separator)
		b.Write(item)
		separator = ","
	}
	if own.Len() > 0 {
		b.WriteString(separator)
		b.Write(own.List)
		separator = ","
	}
	if separator == "[" {
		return "[]"
	}
	b.WriteByte(']')
	return b.String()
}
