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
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"iter"
	"net/http"
	"strconv"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// maxKeyBytes is the maximum length of an Idempotency-Key.
const maxKeyBytes = 255

// readKey reads the client's Idempotency-Key. It ignores a valid key if what is created is not stored and so cannot be repeated.
func (c *call) readKey(r *http.Request, stored bool) error {
	key := r.Header.Get("Idempotency-Key")
	if len(key) > maxKeyBytes {
		return invalidRequest("", "invalid_idempotency_key", "The Idempotency-Key is too long: at most %d bytes are allowed.", maxKeyBytes)
	}
	if stored {
		c.idempotencyKey = key
	}
	return nil
}

// newResponseID returns the ID for the response to a request. With an Idempotency-Key, the ID is derived from the tenant and
// the key, so that a repeated request cannot create a second turn on any replica. If clients use their own accounts at the
// engine, the account is part of the tenant.
func (g *Gateway) newResponseID(r *http.Request, c *call) string {
	if c.idempotencyKey == "" {
		return "resp_" + randomHex()
	}
	account := ""
	if !g.ownsAccount() {
		account = r.Header.Get("Authorization")
	}
	sum := sha256.Sum256([]byte(c.store.Namespace() + "\x00" + account + "\x00" + c.idempotencyKey))
	return "resp_" + hex.EncodeToString(sum[:16])
}

// find returns the turn that an earlier request with the same Idempotency-Key has saved, or nil. If that turn failed or was
// cancelled, find returns nil and sets t.replaces: the new response replaces it.
func (g *Gateway) find(ctx context.Context, c *call, t *turn) (*store.Session, *apiError) {
	t.replaces = ""
	session, err := g.getSession(ctx, c, t.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case errors.Is(err, store.ErrTooLarge):
		return nil, finalError(string(store.CodeTooLarge), "The stored response is too large.", err)
	case err != nil:
		return nil, storeError(err)
	}
	same, err := g.sameRequest(ctx, c, t.request.body, session.Request)
	if e, ok := errors.AsType[*apiError](err); ok {
		return nil, e // from hold
	}
	switch {
	case err != nil:
		return nil, serverError(http.StatusGatewayTimeout, "timeout", "The request took too long.", err)
	case !same || !t.request.continuesAs(session):
		return nil, keyReused()
	case session.Status == store.StatusFailed, session.Status == store.StatusCancelled:
		t.replaces = session.Version
		return nil, nil
	case t.request.conversation != "":
		if err := g.confirm(ctx, c, session); err != nil {
			return nil, conversationFailed(t.request.conversation, err)
		}
	}
	return session, nil
}

// keyReused returns the error for a request whose Idempotency-Key an earlier one had, if that was another request.
func keyReused() *apiError {
	return &apiError{
		status: http.StatusConflict, kind: typeInvalidRequest, code: "idempotency_key_reused", retry: retryNever,
		message: "The Idempotency-Key was already used for a different request.",
	}
}

// continuesAs reports whether the request continues what a stored turn with the same request does. Within a conversation that the request
// names, that is decided when the turn gets its place.
func (q *createRequest) continuesAs(s *store.Session) bool {
	if q.conversation != "" {
		return s.ConversationID == q.conversation
	}
	return s.PreviousResponseID == q.previous
}

// sameRequest reports whether a request has the same JSON value as a stored one. It returns an error if there is no memory for the
// comparison, or if ctx is done before the tenant's turn to compare a large body.
func (g *Gateway) sameRequest(ctx context.Context, c *call, body, stored []byte) (bool, error) {
	if bytes.Equal(body, stored) {
		return true, nil
	}
	return inTurn(ctx, g, c, max(len(body), len(stored)), func() (bool, error) {
		costs := jsonvalue.EqualMemory(body)
		if err := c.hold(costs); err != nil {
			return false, err
		}
		defer c.memory.give(costs)
		return jsonvalue.Equal(body, stored), nil
	})
}

// repeat sends the stored response if an earlier request had the same Idempotency-Key, and reports whether it did.
func (g *Gateway) repeat(w http.ResponseWriter, r *http.Request, c *call, t *turn) (answered bool, err error) {
	if c.idempotencyKey == "" {
		return false, nil
	}
	session, failure := g.find(r.Context(), c, t)
	if failure != nil {
		return false, failure
	}
	if session == nil {
		return false, nil
	}
	if t.request.stream {
		return true, g.streamAgain(w, r, c, session)
	}
	response, err := g.showStored(r.Context(), c, session)
	if err != nil {
		return true, err
	}
	writeJSON(w, http.StatusOK, response.String())
	return true, nil
}

// saveAttempts limits the attempts to save a turn while other requests with the same Idempotency-Key save theirs.
const saveAttempts = 3

// saveOrFind saves a turn and returns nil, or the stored turn if another request with the same Idempotency-Key saved it first.
func (g *Gateway) saveOrFind(ctx context.Context, c *call, t *turn, response *object, final string) (*store.Session, *apiError) {
	var err error
	for range saveAttempts {
		err = g.save(ctx, c, t, response, final)
		if err == nil {
			return nil, nil
		}
		if lostPlace(err) {
			return nil, conversationFailed(t.request.conversation, err)
		}
		if c.idempotencyKey == "" || !errors.Is(err, store.ErrConflict) {
			break
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.SaveTimeout)
		session, failure := g.find(ctx, c, t)
		cancel()
		if session != nil || failure != nil {
			return session, failure
		}
		if t.reservation != nil {
			break // it can be used once
		}
	}
	return nil, saveError(err)
}

// storedResponse returns the parsed response of a session. It is called in a turn, because the response can be large.
func storedResponse(session *store.Session) (*object, error) {
	response, err := parseObject(jsonvalue.Bytes(responseOf(session)))
	if err != nil {
		return nil, storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: session.ResponseID, Err: err})
	}
	return response, nil
}

// streamAgain sends a stored response as a stream: each output item as a whole, without the deltas.
func (g *Gateway) streamAgain(w http.ResponseWriter, r *http.Request, c *call, session *store.Session) error {
	response, err := g.showStored(r.Context(), c, session)
	if err != nil {
		return err
	}
	final := response.String()
	// Of the largest event, there are three copies besides.
	if err := c.hold(4 * int64(len(final))); err != nil {
		return err
	}
	next, stop := iter.Pull(wholeEvents(response, session.Status, final))
	defer stop()
	writeStreamHeader(w)
	s := &relay{g: g, call: c, writer: w, control: http.NewResponseController(w)}
	for more := true; more && err == nil; {
		some := &event{}
		_, err = inTurn(r.Context(), g, c, len(final), func() (struct{}, error) {
			for more && len(some.raw) < pieceBytes {
				var raw []byte
				raw, more = next()
				some.raw = append(some.raw, raw...)
			}
			return struct{}{}, nil
		})
		if err == nil {
			err = s.send(r.Context(), some)
		}
	}
	return nil // the client has disconnected, or the request's time is over
}

// wholeEvents returns the events of a stream with each item of a response as a whole, given the status at its end and the response as JSON. It
// changes the response.
func wholeEvents(response *object, status, final string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		sequence := 0
		send := func(kind string, members ...string) bool {
			data := &object{}
			data.set("type", quote(kind))
			data.set("sequence_number", strconv.Itoa(sequence))
			for i := 0; i < len(members); i += 2 {
				data.set(members[i], members[i+1])
			}
			sequence++
			e := &event{}
			e.replace(kind, data.String())
			return yield(e.raw)
		}
		output := response.raw("output")
		response.set("status", quote(store.StatusInProgress))
		response.set("output", "[]")
		if !send("response.created", "response", response.String()) {
			return
		}
		i := 0
		for _, item := range jsonvalue.Elements(output) {
			index := strconv.Itoa(i)
			if !send("response.output_item.added", "output_index", index, "item", item) || !send(eventItemDone, "output_index", index, "item", item) {
				return
			}
			i++
		}
		send("response."+status, "response", final)
	}
}
