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
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/store"
)

const (
	// writeTimeout is how long a client may take to take a piece of an event, which has at most pieceBytes.
	writeTimeout = 30 * time.Second
	pieceBytes   = 64 << 10
	// endTimeout is how long an upstream may take to end a stream whose response has ended.
	endTimeout = time.Second
)

// terminalEvents are the events that end a response, and the status that each of them says.
var terminalEvents = map[string]string{
	"response.completed":  store.StatusCompleted,
	"response.incomplete": store.StatusIncomplete,
	eventFailed:           store.StatusFailed,
}

const (
	eventFailed = "response.failed"
	eventError  = "error"
)

var (
	errClientGone = errors.New("the client has gone away")
	errNoEnd      = errors.New("the stream ended before the response did")
)

// relay is a stream on its way to the client.
type relay struct {
	g       *Gateway
	call    *call
	turn    *turn
	writer  http.ResponseWriter
	control *http.ResponseController
	partial partial
	// ended says that the turn has its outcome, and is saved with it: a stream has one.
	ended bool
	// failing says that an error event was the outcome. The response.failed that goes with it may follow.
	failing bool
	// outcome is the status that the turn has ended with.
	outcome string
}

// stream relays a stream to the client, each event as it comes. The turn is saved once: before the client sees how it
// ends, or as failed or cancelled where it does not end by itself.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, c *call, t *turn, upstream *http.Response) error {
	if kind, _, _ := mime.ParseMediaType(upstream.Header.Get("Content-Type")); kind != "text/event-stream" {
		return upstreamInvalid(fmt.Errorf("the content type is %q, not that of a stream", kind))
	}
	g.metrics.streams.Inc()
	defer g.metrics.streams.Dec()
	copyHeaders(w.Header(), upstream.Header)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold events back
	w.WriteHeader(http.StatusOK)

	s := &relay{g: g, call: c, turn: t, writer: w, control: http.NewResponseController(w)}
	err := s.run(r.Context(), upstream.Body)
	if !s.ended {
		_ = upstream.Body.Close() // the upstream need not go on
		s.abort(r.Context(), err)
	}
	g.metrics.streamsEnded.WithLabelValues(s.outcome).Inc()
	return nil
}

// run relays events until there are no more, and returns why.
func (s *relay) run(ctx context.Context, upstream io.ReadCloser) error {
	if err := s.control.Flush(); err != nil {
		return errClientGone
	}
	events := newEventReader(upstream, s.g.options.MaxResponseBytes)
	var end *time.Timer
	for {
		if s.ended && end == nil {
			end = time.AfterFunc(endTimeout, func() { _ = upstream.Close() })
			defer end.Stop()
		}
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return errNoEnd
		}
		if err != nil {
			return err
		}
		if err := s.forward(ctx, e); err != nil {
			return err
		}
	}
}

// forward sends an event on. Whatever is not a JSON object, as comments, goes through. Of what comes after the end, only
// that does which says so once more. The [DONE] of some engines does not before: OpenAI's clients read no further, and
// would take the turn for finished.
func (s *relay) forward(ctx context.Context, e *event) error {
	if !strings.HasPrefix(strings.TrimLeft(e.data, " \t\n"), "{") {
		if _, terminal := terminalEvents[e.name]; terminal {
			return errors.New("the data of the last event is not an object")
		}
		done := strings.HasPrefix(e.data, "[DONE]") // as OpenAI's clients look for it
		switch {
		case done && !s.ended:
			return errNoEnd
		case s.ended && !done:
			return nil
		}
		return s.send(ctx, e)
	}
	data, err := parseObject([]byte(e.data))
	if err != nil {
		return fmt.Errorf("the data of an event %w", err)
	}
	kind := kindOf(e, data)
	if s.ended {
		if !s.failing || kind != eventFailed {
			return nil
		}
		s.failing = false
	}
	if err := s.partial.note(kind, data, s.g.options.MaxResponseBytes); err != nil {
		return err
	}
	if kind == eventError {
		s.fail(ctx, data)
		return s.send(ctx, e)
	}
	status, terminal := terminalEvents[kind]
	raw := data.get("response")
	if !raw.IsObject() {
		if terminal {
			return errors.New("the last event has no response")
		}
		return s.send(ctx, e)
	}
	response, err := parseObject([]byte(raw.Raw))
	if err != nil {
		return fmt.Errorf("the response of an event %w", err)
	}
	s.turn.claim(response)
	s.partial.response = response
	if terminal {
		kind = s.finish(ctx, kind, status, response)
		data.set("type", quote(kind))
	}
	data.set("response", response.String())
	e.replace(kind, data.String())
	return s.send(ctx, e)
}

// kindOf returns the kind of an event. What has an error and does not say what else it is, is the error event: so some
// engines send it, and so OpenAI's clients read it.
func kindOf(e *event, data *object) string {
	kind := data.get("type").Str
	switch {
	case kind != "":
		return kind
	case data.get("error").IsObject() && !data.get("response").IsObject():
		return eventError
	}
	return e.name
}

// finish saves the turn as the stream's last event has it, and returns which event the client is to see.
func (s *relay) finish(ctx context.Context, kind, status string, response *object) string {
	if s.ended {
		return kind
	}
	s.ended, s.outcome = true, status
	response.set("status", quote(status))
	s.partial.complete(response)
	err := s.g.save(ctx, s.call, s.turn, response)
	if err == nil {
		return kind
	}
	s.notSaved(err)
	setFailed(response, saveError(err))
	return eventFailed
}

// notSaved logs that a turn was lost: the client's status is long sent.
func (s *relay) notSaved(err error) {
	s.outcome = store.StatusFailed
	s.call.log.Error("a turn could not be saved", "responseID", s.turn.id, "error", err)
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
	s.saveUnended(ctx, store.StatusFailed, &apiError{code: code.String(), message: message.String()})
}

// abort ends a stream that did not end by itself.
func (s *relay) abort(ctx context.Context, err error) {
	reason := interrupted(ctx)
	switch {
	case errors.Is(err, errClientGone) || reason != nil && reason.status == statusClientClosedRequest:
		s.saveUnended(ctx, store.StatusCancelled, nil)
		return
	case reason == nil:
		reason = upstreamBroken(err)
	}
	s.call.log.Error("stream failed", "code", reason.code, "error", err)
	response := s.saveUnended(ctx, store.StatusFailed, reason)
	data := &object{}
	data.set("type", quote(eventFailed))
	data.set("sequence_number", strconv.FormatInt(s.partial.sequence+1, 10))
	data.set("response", response.String())
	e := &event{}
	e.replace(eventFailed, data.String())
	_ = s.send(ctx, e) // a client that has gone away meanwhile changes nothing
}

// saveUnended saves a turn of which the upstream has not told the end. It can be read, but never continued.
func (s *relay) saveUnended(ctx context.Context, status string, reason *apiError) *object {
	s.ended, s.outcome = true, status
	response := s.partial.response
	if response == nil {
		response = s.turn.empty()
	}
	response.set("status", quote(status))
	s.partial.complete(response)
	if reason != nil {
		setFailed(response, reason)
	}
	if err := s.g.save(ctx, s.call, s.turn, response); err != nil {
		s.notSaved(err) // the client, if there still is one, learns of the other failure anyway
	}
	return response
}

// setFailed makes a response a failed one. The code is one that OpenAI has; the gateway's own is in the message.
func setFailed(response *object, e *apiError) {
	message := e.message
	if e.code != "" {
		message += " (" + e.code + ")"
	}
	response.set("status", quote(store.StatusFailed))
	response.set("error", fmt.Sprintf(`{"code":%s,"message":%s}`, quote(typeServer), quote(message)))
}

// send writes an event and flushes it. A client that takes nothing must not keep the upstream and the turn waiting; a slow
// one may go on while there is time for the request.
func (s *relay) send(ctx context.Context, e *event) error {
	for i := 0; i < len(e.raw); i += pieceBytes {
		if i == 0 || ctx.Err() == nil {
			_ = s.control.SetWriteDeadline(s.g.now().Add(writeTimeout))
		}
		if _, err := s.writer.Write(e.raw[i:min(i+pieceBytes, len(e.raw))]); err != nil {
			return errClientGone
		}
	}
	if err := s.control.Flush(); err != nil {
		return errClientGone
	}
	return nil
}
