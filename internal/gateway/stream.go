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
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

const (
	// writeTimeout is the time in which a client must read a piece of an event, of at most pieceBytes.
	writeTimeout = 30 * time.Second
	pieceBytes   = 64 << 10
	// endTimeout is the time in which an engine must close a stream after the terminal event.
	endTimeout = time.Second
)

// terminalEvents maps the events that end a response to its status.
var terminalEvents = map[string]string{
	eventCompleted:  store.StatusCompleted,
	eventIncomplete: store.StatusIncomplete,
	eventFailed:     store.StatusFailed,
}

const (
	eventItemAdded  = "response.output_item.added"
	eventItemDone   = "response.output_item.done"
	eventCompleted  = "response.completed"
	eventIncomplete = "response.incomplete"
	eventFailed     = "response.failed"
	eventError      = "error"
)

var (
	errClientDisconnected = errors.New("the client disconnected")
	errNoTerminalEvent    = errors.New("the stream ended without a terminal event")
)

// relay forwards a stream to the client.
type relay struct {
	g       *Gateway
	call    *call
	turn    *turn
	writer  http.ResponseWriter
	control *http.ResponseController
	// finishes is set if the turn is finished even if the client goes away, and gone once it has.
	finishes, gone bool
	// http2 is set if the client uses HTTP/2.
	http2 bool
	// unflushed is set while events are written that the client may not have received.
	unflushed bool
	partial   partial
	// calls are the IDs of the calls of the output.
	calls calls
	// slots are the positions in the events of the items of the last response's output, nil if they are the same: see slotAt.
	slots []int
	// ended is set once the outcome of the turn is known, immediately before it is saved. Later outcomes are ignored.
	ended bool
	// failing is set if the outcome was an error event. The corresponding response.failed may follow.
	failing bool
	// outcome is the final status of the turn.
	outcome string
}

// stream forwards a stream to the client, event by event. The turn is saved once: before the client receives the terminal
// event, or as failed or cancelled if it sends no such event.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, c *call, t *turn, upstream *http.Response) error {
	if contentType, _, _ := mime.ParseMediaType(upstream.Header.Get("Content-Type")); contentType != "text/event-stream" {
		return upstreamInvalid(fmt.Errorf("content type %q, want text/event-stream", contentType))
	}
	g.metrics.streams.Inc()
	defer g.metrics.streams.Dec()
	g.copyHeaders(w.Header(), upstream.Header)
	writeStreamHeader(w)
	s := &relay{g: g, call: c, turn: t, writer: w, control: http.NewResponseController(w), finishes: g.finishes(t.request), http2: r.ProtoMajor == 2}
	err := s.run(r.Context(), upstream.Body)
	if !s.ended {
		_ = upstream.Body.Close() // the engine can stop
		s.abort(r.Context(), err)
	}
	g.metrics.streamsEnded.WithLabelValues(endOf(s.outcome)).Inc()
	return nil
}

// writeStreamHeader writes the header of a streamed response.
func writeStreamHeader(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer events
	w.WriteHeader(http.StatusOK)
}

// run forwards events until the stream ends, and returns the reason.
func (s *relay) run(ctx context.Context, upstream io.ReadCloser) error {
	s.unflushed = true // the header
	if err := s.flush(); err != nil {
		return err
	}
	events := newEventReader(flushingReader{upstream, s.flush}, s.g.options.MaxResponseBytes, s.call.hold, s.call.memory.give)
	defer events.release()
	var end *time.Timer
	for {
		if s.ended && end == nil {
			end = time.AfterFunc(endTimeout, func() { _ = upstream.Close() })
			defer end.Stop()
		}
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return errNoTerminalEvent
		}
		if err != nil {
			return err
		}
		s.call.hideKeyIn(e, isFailure(e.name))
		if err := s.forward(ctx, e); err != nil {
			return err
		}
	}
}

// flushingReader flushes the events that have been forwarded before it waits for more: an event is never delayed, and events that
// arrive together are sent together.
type flushingReader struct {
	io.Reader
	flush func() error
}

func (r flushingReader) Read(p []byte) (int, error) {
	if err := r.flush(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// forward forwards an event. After the terminal event, only a redundant end marker is forwarded, and the response.failed that
// follows an error event. Over WebSocket, an error event ends the response, and clients would attribute a later response.failed to the next one, so
// it is not forwarded.
func (s *relay) forward(ctx context.Context, e *event) error {
	if !strings.HasPrefix(strings.TrimLeft(e.data, " \t\n"), "{") {
		return s.forwardOther(ctx, e)
	}
	data, kind, err := s.parse(ctx, e)
	if err != nil {
		return err
	}
	if isFailure(kind) && s.call.hideKeyIn(e, true) {
		if data, kind, err = s.parse(ctx, e); err != nil {
			return err
		}
	}
	if s.ended {
		if !s.failing || kind != eventFailed || s.call.socket != nil {
			return nil
		}
		s.failing = false
	}
	changed := s.partial.label(kind, data)
	item, err := inTurn(ctx, s.g, s.call, len(e.data), func() (eventItem, error) { return s.receiveItem(kind, data) })
	if err != nil {
		return err
	}
	changed = changed || item.changed
	switch {
	case kind == eventError:
		s.fail(ctx, data)
		if changed {
			e.replace(e.name, data.String())
		}
		return s.send(ctx, e)
	case jsonvalue.IsObject(data.raw("response")):
		return s.forwardResponse(ctx, e, kind, data)
	case terminalEvents[kind] != "":
		return errors.New("the terminal event contains no response")
	}
	if err := s.inTurn(ctx, len(e.data), func() { s.showEvent(e, kind, data, item, changed) }); err != nil {
		return err
	}
	return s.send(ctx, e)
}

// parse parses the data of an event, and returns its kind.
func (s *relay) parse(ctx context.Context, e *event) (data *object, kind string, err error) {
	data, err = inTurn(ctx, s.g, s.call, len(e.data), func() (*object, error) {
		data, err := parseObject(jsonvalue.Bytes(e.data))
		if err != nil {
			return nil, fmt.Errorf("the data of an event %w", err)
		}
		kind = kindOf(e, data)
		return data, nil
	})
	return data, kind, err
}

// forwardOther forwards an event without a JSON object, such as a comment. Some engines end a stream with [DONE]. Before the
// terminal event it is an error, because OpenAI's clients would stop there and treat the turn as finished.
func (s *relay) forwardOther(ctx context.Context, e *event) error {
	if terminalEvents[e.name] != "" {
		return errors.New("the data of the terminal event must be an object")
	}
	done := strings.HasPrefix(e.data, "[DONE]") // the same check as in OpenAI's clients
	switch {
	case done && !s.ended:
		return errNoTerminalEvent
	case s.ended && !done:
		return nil
	}
	return s.send(ctx, e)
}

// forwardResponse forwards an event that contains a response, which becomes the response of the turn.
func (s *relay) forwardResponse(ctx context.Context, e *event, kind string, data *object) error {
	var shown, naming int64
	response, err := inTurn(ctx, s.g, s.call, len(e.data)+len(s.turn.request.object.raw("tools")), func() (response *object, err error) {
		response, naming, err = s.readResponse(kind, data)
		if err == nil {
			shown = s.turn.shownBytes(response)
		}
		return response, err
	})
	if err != nil {
		return err
	}
	if err := s.keep(response, len(e.data), naming); err != nil {
		return err
	}
	if costs := 2 * shown; costs > smallEvent {
		if err := s.call.hold(costs); err != nil {
			return err
		}
		defer s.call.memory.give(costs)
	}
	if status := terminalEvents[kind]; status != "" {
		kind = s.finish(ctx, kind, status, response)
		data.set("type", quote(kind))
	}
	response.setMissing("status", quote(store.StatusInProgress))
	if err := s.replaceResponse(ctx, e, kind, data, response, shown); err != nil {
		return err
	}
	return s.send(ctx, e)
}

// readResponse returns the response in the data of an event, as the turn has it, and what it holds for naming its calls.
func (s *relay) readResponse(kind string, data *object) (response *object, naming int64, err error) {
	if response, err = objectOf(data.raw("response")); err != nil {
		return nil, 0, fmt.Errorf("the response of an event %w", err)
	}
	s.turn.claim(response)
	if err := s.readOutput(response, terminalEvents[kind] != ""); err != nil {
		return nil, 0, err
	}
	naming = s.turn.namingBytes(response)
	if err := s.call.hold(naming); err != nil {
		return nil, 0, err
	}
	s.turn.nameCalls(response)
	return response, naming, nil
}

// replaceResponse replaces the response in an event by what the client sees of it, which has about the given size.
func (s *relay) replaceResponse(ctx context.Context, e *event, kind string, data, response *object, shown int64) error {
	remembers := terminalEvents[kind] != "" && !isFailure(kind) && s.call.socket != nil && !s.turn.request.store
	bytes := max(int(shown), response.size()) // it may be that of another request now
	if remembers {
		bytes += s.call.socket.rememberedBytes()
	}
	replace := func() {
		if remembers {
			s.call.socket.remember(response)
		}
		data.set("response", s.turn.show(response, s.itemID).String())
		e.replace(kind, data.String())
	}
	err := s.inTurn(ctx, bytes, replace)
	if err != nil && s.ended {
		replace() // the turn is saved: its client gets the end, even after the request's time
		return nil
	}
	return err
}

// inTurn does work that processes a number of bytes: see the function inTurn.
func (s *relay) inTurn(ctx context.Context, bytes int, work func()) error {
	_, err := inTurn(ctx, s.g, s.call, bytes, func() (struct{}, error) {
		work()
		return struct{}{}, nil
	})
	return err
}

// keep makes a response the response of the turn. It shares the memory of its event, whose size is bytes, and held is held for it already.
func (s *relay) keep(response *object, bytes int, held int64) error {
	s.call.memory.give(int64(s.partial.responseBytes))
	s.partial.response, s.partial.responseBytes = nil, int(held)
	if bytes > smallEvent {
		if err := s.call.hold(int64(bytes)); err != nil {
			return err
		}
		s.partial.responseBytes += bytes
	}
	s.partial.response = response
	return nil
}

// isFailure reports whether events of a kind have an error.
func isFailure(kind string) bool { return kind == eventError || kind == eventFailed }

// kindOf returns the kind of an event. An event that has an error but no type is an error event: some engines send such events, and OpenAI's clients
// handle them in the same way. Other engines, such as vLLM, end every stream with response.completed, and only the status of the response shows that
// it was cut off or failed.
func kindOf(e *event, data *object) string {
	kind := data.get("type").Str
	if kind == "" && data.get("error").IsObject() && !data.get("response").IsObject() {
		return eventError
	}
	if kind = cmp.Or(kind, e.name); kind != eventCompleted {
		return kind
	}
	switch gjson.Get(data.raw("response"), "status").Str {
	case store.StatusIncomplete:
		return eventIncomplete
	case store.StatusFailed, store.StatusCancelled:
		return eventFailed
	}
	return kind
}

// send writes an event. A client that does not read must not block the engine and the turn; a slow client is served until the request
// times out.
func (s *relay) send(ctx context.Context, e *event) error {
	if s.call.socket != nil {
		if !s.gone && s.call.socket.sendEvent(ctx, e) != nil {
			return s.disconnected()
		}
		return nil
	}
	for i := 0; i < len(e.raw) && !s.gone; i += pieceBytes {
		if i == 0 || ctx.Err() == nil {
			_ = s.control.SetWriteDeadline(s.g.now().Add(writeTimeout))
		}
		if _, err := s.writer.Write(e.raw[i:min(i+pieceBytes, len(e.raw))]); err != nil {
			return s.disconnected()
		}
	}
	s.unflushed = true
	return nil
}

// disconnected is called when an event could not be sent. It returns an error if that ends the stream.
func (s *relay) disconnected() error {
	if s.gone = s.finishes; s.gone {
		return nil
	}
	return errClientDisconnected
}

// flush sends the events that have been written.
func (s *relay) flush() error {
	if !s.unflushed || s.gone {
		return nil
	}
	s.unflushed = false
	if err := s.control.Flush(); err != nil {
		return s.disconnected()
	}
	if s.http2 {
		// A deadline of HTTP/2 resets the stream when it has passed, even if nothing is being written.
		_ = s.control.SetWriteDeadline(time.Time{})
	}
	return nil
}
