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
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// readConversation reads `conversation`, which is an ID or an object with an ID. It returns the empty string if the request has none.
func readConversation(o *object) (string, error) {
	value := o.raw("conversation")
	if jsonvalue.IsNull(value) {
		return "", nil
	}
	if !o.isNull("previous_response_id") {
		return "", invalidRequest("", "mutually_exclusive_parameters",
			"Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.")
	}
	if jsonvalue.IsObject(value) {
		value = jsonvalue.RawMembers(value, "id")[0]
	}
	if !jsonvalue.IsString(value) {
		return "", invalidRequest("conversation", "invalid_type", "Invalid type for 'conversation': expected an ID or an object with an ID.")
	}
	id := jsonvalue.Unquote(value)
	if n := utf8.RuneCountInString(id); n == 0 || n > store.MaxIDLength {
		return "", invalidRequest("conversation", "invalid_value", "Invalid 'conversation': must have 1 to %d characters.", store.MaxIDLength)
	}
	return id, nil
}

// enterConversation makes the request continue the conversation that it names, if any. If the turn is to be stored, its place in the
// conversation is reserved.
func (g *Gateway) enterConversation(ctx context.Context, c *call, t *turn) error {
	q := t.request
	if q.conversation == "" {
		return nil
	}
	if !q.store {
		if err := g.loadConversation(ctx, c, q); err != nil {
			return err
		}
		return g.checkCalls(ctx, c, q)
	}
	if err := g.reserve(ctx, c, t); err != nil {
		return err
	}
	if q.history != nil && q.history.Parent.ResponseID == q.previous {
		return g.checkCalls(ctx, c, q)
	}
	if q.history != nil { // another turn was saved since
		c.memory.give(historyBytes(q.history))
	}
	var err error
	q.history, err = readOne(ctx, c, func(ctx context.Context) (*store.History, error) {
		return t.reservation.Load(ctx, g.options.resolveOptions())
	}, historyBytes)
	if err != nil {
		return conversationFailed(q.conversation, err)
	}
	return g.checkCalls(ctx, c, q)
}

// checkCalls returns an error if the conversation has calls without an output, unless the request has their outputs. OpenAI refuses that. An engine
// that accepts it would leave a conversation that strict ones refuse to continue.
func (g *Gateway) checkCalls(ctx context.Context, c *call, q *createRequest) error {
	input := q.object.raw("input")
	bytes := int(historyBytes(q.history)) + len(input)
	call, err := inTurn(ctx, g, c, bytes, func() (string, error) {
		const callBytes = 128
		calls := int64(0)
		for _, item := range q.history.Items {
			if strings.Contains(jsonvalue.Text(item), "_call") {
				calls += callBytes
			}
		}
		if err := c.hold(calls); err != nil {
			return "", err
		}
		defer c.memory.give(calls)
		return store.UnansweredCall(q.history, input), nil
	})
	if err == nil && call != "" {
		err = invalidRequest("input", "", "No tool output found for function call %s.", firstBytes(call))
	}
	return err
}

// reserve reserves the place of the turn in the conversation that the request names. turn.leave gives it up.
func (g *Gateway) reserve(ctx context.Context, c *call, t *turn) error {
	// A reservation ends with its context. Once it is made, it stays although the client disconnects, because the turn is saved even so.
	kept, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	reservation, err := readObjects(kept, c, func(ctx context.Context) (*store.Reservation, error) {
		return c.store.Conversations().Reserve(ctx, t.request.conversation, t.id, store.ReserveOptions{Duration: g.options.Reservation})
	}, func(*store.Reservation) int64 { return 0 })
	if err != nil {
		return conversationFailed(t.request.conversation, err)
	}
	t.reservation, t.request.previous = reservation, reservation.PreviousResponseID()
	if !stop() {
		return ctx.Err() // turn.leave gives it up
	}
	return nil
}

// whileReserved returns a request whose context is also done when the turn loses its place in the conversation that the request names.
func (t *turn) whileReserved(r *http.Request) (*http.Request, context.CancelFunc) {
	if t.reservation == nil {
		return r, func() {}
	}
	ctx, cancel := t.reservation.Context(r.Context())
	return r.WithContext(ctx), cancel
}

// placeLost returns the client's error if the cause with which a context is done is that of turn.whileReserved, and nil otherwise.
func placeLost(cause error) *apiError {
	e, ok := errors.AsType[*store.Error](cause)
	if !ok {
		return nil
	}
	return conversationFailed(e.ConversationID, cause)
}

// confirm returns an error if a stored turn is not part of the conversation to which it was to be added, because it was saved too late. A
// conversation that was deleted since says nothing about that.
func (g *Gateway) confirm(ctx context.Context, c *call, session *store.Session) error {
	_, err := readObjects(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.store.Conversations().Confirm(ctx, session.ConversationID, session.ResponseID)
	}, func(struct{}) int64 { return 0 })
	if errors.Is(err, store.ErrConversationNotFound) {
		return nil
	}
	return err
}

// loadConversation resolves the conversation that a request names, if any, and to which it adds nothing.
func (g *Gateway) loadConversation(ctx context.Context, c *call, q *createRequest) error {
	if q.conversation == "" {
		return nil
	}
	if q.history == nil {
		history, err := g.load(ctx, c, q.conversation, g.options.resolveOptions())
		if err != nil {
			return conversationFailed(q.conversation, err)
		}
		q.history = history
	}
	q.previous = q.history.Parent.ResponseID
	return nil
}

// load returns the history of a conversation that has a name, and holds its memory. It returns the store's error unchanged.
func (g *Gateway) load(ctx context.Context, c *call, conversation string, options store.ResolveOptions) (*store.History, error) {
	return readObjects(ctx, c, func(ctx context.Context) (*store.History, error) {
		return c.store.Conversations().Load(ctx, conversation, options)
	}, historyBytes)
}

// belongs reports whether a turn with this status becomes part of its conversation. One with another status could not be continued.
func belongs(status string) bool {
	return status == store.StatusCompleted || status == store.StatusIncomplete
}

// leave gives up the place of the turn in its conversation, unless it has been saved: the next turn need not wait. It may be called again.
func (t *turn) leave(ctx context.Context) {
	if t.reservation != nil {
		t.reservation.Release(ctx)
	}
}

// lostPlace reports whether a turn could not be saved because it has lost its place in a conversation.
func lostPlace(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return ok && e.ConversationID != "" && (e.Code == store.CodeConflict || e.Code == store.CodeConversationNotFound)
}

// conversationFailed returns the client's error if an operation on a conversation fails.
func conversationFailed(id string, err error) *apiError {
	var result *apiError
	switch e, _ := errors.AsType[*store.Error](err); {
	case errors.Is(err, store.ErrConversationNotFound):
		result = conversationNotFound(id)
	case errors.Is(err, store.ErrConversationLocked):
		result = invalidRequest("conversation", "conversation_locked",
			"Another process is currently operating on this conversation. Please retry in a few seconds.")
	case errors.Is(err, store.ErrConversationArchived):
		result = invalidRequest("conversation", string(e.Code), "The conversation is archived and cannot be continued.")
	case errors.Is(err, store.ErrQuotaExceeded):
		return quotaError(err)
	case errors.Is(err, store.ErrConversationLimitExceeded):
		result = invalidRequest("conversation", string(e.Code), "The conversation cannot have more deleted items.")
	case errors.Is(err, store.ErrUnsupported):
		result = invalidRequest("conversation", string(e.Code), "The gateway's store does not support conversations.")
	case errors.Is(err, store.ErrConflict):
		result = invalidRequest("conversation", string(e.Code), "The conversation was changed at the same time.")
		result.status = http.StatusConflict
	case errors.Is(err, store.ErrInvalid) && (!utf8.ValidString(id) || utf8.RuneCountInString(id) > store.MaxIDLength):
		result = conversationNotFound(id)
	case errors.Is(err, store.ErrInvalid):
		result = invalidRequest("conversation", string(e.Code), "The conversation cannot be used.")
	default:
		result = storeError(err)
		if result.param == "previous_response_id" {
			result.param = "conversation"
		}
		return result
	}
	result.err = err
	return result
}

func conversationNotFound(id string) *apiError {
	e := invalidRequest("", "", "Conversation with id '%s' not found.", firstBytes(id))
	e.status = http.StatusNotFound
	return e
}
