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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// maxKeyBytes is the maximum length of an Idempotency-Key.
const maxKeyBytes = 255

// readKey reads the client's Idempotency-Key. Nothing can be repeated if the response is not stored.
func (c *call) readKey(r *http.Request, request *createRequest) error {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxKeyBytes {
		return invalidRequest("", "invalid_idempotency_key", "The Idempotency-Key is too long: at most %d bytes are allowed.", maxKeyBytes)
	}
	if request.store {
		c.idempotencyKey = key
	}
	return nil
}

// newResponseID returns the ID for the response of a request. With an Idempotency-Key it follows from the tenant and the key, so
// that a repeated request cannot make a second turn, whichever replica it reaches.
func (c *call) newResponseID() string {
	if c.idempotencyKey == "" {
		return "resp_" + randomHex()
	}
	sum := sha256.Sum256([]byte(c.namespace + "\x00" + c.idempotencyKey))
	return "resp_" + hex.EncodeToString(sum[:16])
}

// repeat answers with the stored response of an earlier request with the same Idempotency-Key, and reports whether there is
// one. A turn that failed, or whose client went away, is run again: the new response will replace it.
func (g *Gateway) repeat(w http.ResponseWriter, r *http.Request, c *call, t *turn) (answered bool, err error) {
	if c.idempotencyKey == "" {
		return false, nil
	}
	session, err := c.store.Get(r.Context(), t.id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, storeError(err)
	}
	if err := g.hold(c, int64(len(session.Request)+len(session.Response))); err != nil {
		return false, err
	}
	if !jsonvalue.Equal(session.Request, t.request.body) {
		return false, &apiError{
			status: http.StatusConflict, kind: typeInvalidRequest, code: "idempotency_key_reused", retry: retryNever,
			message: "The Idempotency-Key belongs to another request.",
		}
	}
	switch session.Status {
	case store.StatusFailed, store.StatusCancelled:
		t.replaces = session.Version
		return false, nil
	}
	if !t.request.stream {
		writeJSON(w, http.StatusOK, responseOf(session))
		return true, nil
	}
	return true, g.streamAgain(w, r, c, session)
}

// streamAgain answers with a stored response as a stream: each item of its output as a whole, without the deltas.
func (g *Gateway) streamAgain(w http.ResponseWriter, r *http.Request, c *call, session *store.Session) error {
	response, err := parseObject([]byte(responseOf(session)))
	if err != nil {
		return storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: session.ResponseID, Err: err})
	}
	output, final := response.get("output").Array(), response.String()
	response.set("status", quote(store.StatusInProgress))
	response.set("output", "[]")

	writeStreamHeader(w)
	s := &relay{g: g, call: c, writer: w, control: http.NewResponseController(w)}
	sequence := 0
	send := func(kind string, members ...string) {
		data := &object{}
		data.set("type", quote(kind))
		data.set("sequence_number", strconv.Itoa(sequence))
		for i := 0; i < len(members); i += 2 {
			data.set(members[i], members[i+1])
		}
		sequence++
		if err == nil {
			e := &event{}
			e.replace(kind, data.String())
			err = s.send(r.Context(), e) // fails only if the client has gone away
		}
	}
	send("response.created", "response", response.String())
	for i, item := range output {
		send("response.output_item.added", "output_index", strconv.Itoa(i), "item", item.Raw)
		send(eventItemDone, "output_index", strconv.Itoa(i), "item", item.Raw)
	}
	send("response."+session.Status, "response", final)
	return nil
}
