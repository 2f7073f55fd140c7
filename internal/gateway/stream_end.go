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
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/catena-dev/catena/store"
)

// finish saves the turn with the response of the terminal event, and returns the kind of the event to send to the client. It
// changes the response to the stored one.
func (s *relay) finish(ctx context.Context, kind, status string, response *object) string {
	if s.ended {
		return kind
	}
	s.end(status)
	response.set("status", quote(status))
	stored, failure := s.save(ctx, response)
	if failure == nil && stored == nil {
		return kind
	}
	var other *object
	if failure == nil {
		other, failure = s.stored(ctx, stored)
	}
	if failure != nil {
		s.notSaved(cmp.Or[error](failure.err, failure))
		setFailed(response, failure)
		return eventFailed
	}
	s.outcome, *response, s.turn.created = stored.Status, *other, stored.CreatedAt
	return "response." + stored.Status
}

// stored returns the response of a turn that another request has saved, even if the client has disconnected.
func (s *relay) stored(ctx context.Context, session *store.Session) (*object, *apiError) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.g.options.SaveTimeout)
	defer cancel()
	response, err := inTurn(ctx, s.g, s.call, len(session.Response), func() (*object, error) { return storedResponse(session) })
	if err != nil {
		return nil, saveError(err)
	}
	return response, nil
}

// end is called before the turn is saved, which takes a while: the client gets what precedes the terminal event. If it has disconnected,
// the turn is saved nevertheless.
func (s *relay) end(status string) {
	s.ended, s.outcome = true, status
	_ = s.flush()
}

// save completes the response and saves the turn, or returns the turn that another request has saved.
func (s *relay) save(ctx context.Context, response *object) (*store.Session, *apiError) {
	costs, failure := s.holdEnd(response)
	if failure != nil {
		return nil, failure
	}
	defer s.call.memory.give(costs)
	s.partial.complete(response)
	return s.g.saveOrFind(ctx, s.call, s.turn, response, response.String())
}

// holdEnd holds the memory for the response as JSON, and for the list of finished items that completes it.
func (s *relay) holdEnd(response *object) (int64, *apiError) {
	costs := int64(s.partial.responseBytes)
	if s.partial.completes(response) {
		costs += 2 * s.partial.bytes
	}
	if err := s.call.hold(costs); err != nil {
		return 0, saveError(err)
	}
	return costs, nil
}

// fail saves the turn as failed because of an error event.
func (s *relay) fail(ctx context.Context, data *object) {
	if s.ended {
		return
	}
	s.failing = true
	code, message := data.get("code"), data.get("message")
	if cause := data.get("error"); cause.IsObject() {
		code, message = cause.Get("code"), cause.Get("message")
	}
	s.saveUnended(ctx, store.StatusFailed, &apiError{ // the key may have been escaped in the data
		code: s.call.hideKey(code.String(), true), message: s.call.hideKey(message.String(), true),
	})
}

// abort ends a stream that has no terminal event.
func (s *relay) abort(ctx context.Context, err error) {
	reason := interrupted(ctx)
	switch {
	case errors.Is(err, errClientDisconnected) || reason != nil && reason.status == statusClientClosedRequest:
		s.saveUnended(ctx, store.StatusCancelled, nil)
		return
	case reason == nil:
		reason = streamError(err)
	}
	s.call.log.Error("stream failed", "code", reason.code, "error", err)
	response := s.saveUnended(ctx, store.StatusFailed, reason)
	data := &object{}
	data.set("type", quote(eventFailed))
	data.set("sequence_number", strconv.FormatInt(s.partial.nextSequence(), 10))
	data.set("response", s.turn.show(response, s.itemID).String())
	e := &event{}
	e.replace(eventFailed, data.String())
	_ = s.send(ctx, e) // fails only if the client has disconnected
}

// streamError returns the error for a stream that the engine ended early, or for which there was not enough memory.
func streamError(err error) *apiError {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	return upstreamBroken(err)
}

// saveUnended saves a turn whose response was not finished. It can be retrieved, but not continued.
func (s *relay) saveUnended(ctx context.Context, status string, reason *apiError) *object {
	s.end(status)
	response := s.partial.response
	if response == nil {
		response = s.turn.empty()
	}
	response.set("status", quote(status))
	if reason != nil {
		setFailed(response, reason)
	}
	costs, failure := s.holdEnd(response)
	if failure != nil {
		s.notSaved(failure)
		return response
	}
	defer s.call.memory.give(costs)
	s.partial.complete(response)
	if err := s.g.save(ctx, s.call, s.turn, response, response.String()); err != nil {
		s.notSaved(err) // a client that is still connected gets the first failure
	}
	return response
}

// notSaved logs that a turn was lost. The HTTP status was sent long before.
func (s *relay) notSaved(err error) {
	s.outcome = store.StatusFailed
	s.call.log.Error("unable to save the turn", "responseID", s.turn.id, "error", err)
}

// setFailed changes a response to a failed one. Its error code is one of OpenAI's; the message includes the gateway's own
// code.
func setFailed(response *object, e *apiError) {
	message := e.message
	if e.code != "" {
		message += " (" + e.code + ")"
	}
	response.set("status", quote(store.StatusFailed))
	response.set("error", fmt.Sprintf(`{"code":%s,"message":%s}`, quote(typeServer), quote(message)))
}
