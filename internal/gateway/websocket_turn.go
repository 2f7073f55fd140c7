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
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/requestid"
	"github.com/catena-dev/catena/store"
)

// socketTurn creates the response that a message of a WebSocket connection requests. It is the ResponseWriter of the request, and sends
// the events of the response as messages.
type socketTurn struct {
	socket  *socket
	message *message
	call    *call
	header  http.Header
	status  int // 0 until it is written
	// streamID is the message's stream_id, and previous its previous_response_id. They are empty if it has none.
	streamID, previous string
	// parent is the remembered turn that the message continues, or nil.
	parent *rememberedTurn
	// visible are the items of the conversation with a name that the turn continues, if hides is set because others are hidden.
	visible []json.RawMessage
	hides   bool
	// request is the request for the response, nil until the message has been read.
	request *createRequest
	// failed is set once the client has got an error or a failed response.
	failed bool
}

// post returns the request for the response, like that of a client that sends each response in a request of its own. An Idempotency-Key
// of the handshake is not the key of every response.
func (t *socketTurn) post(ctx context.Context) *http.Request {
	r := t.socket.handshake.Clone(ctx)
	r.Method, r.Pattern, r.Body, r.ContentLength = http.MethodPost, "POST /v1/responses", http.NoBody, 0
	r.Header.Del("Idempotency-Key")
	id, number := t.socket.call.requestID, "-"+strconv.Itoa(t.socket.created)
	r.Header.Set(requestid.Header, id[:min(len(id), requestid.MaxLength-len(number))]+number)
	return r
}

// create creates the response. It is the handler of the request.
func (t *socketTurn) create(w http.ResponseWriter, r *http.Request, c *call) error {
	if c.store.Namespace() != t.socket.call.store.Namespace() {
		return invalidKey("The API key now belongs to another namespace. Create a new websocket connection to continue.")
	}
	t.call, c.socket = c, t
	body, err := t.takeMessage()
	if err != nil {
		return err
	}
	g := t.socket.g
	o, err := inTurn(r.Context(), g, c, len(body), func() (*object, error) { return t.parse(body) })
	if err != nil {
		return err
	}
	if o.get("type").Str == steerType {
		return t.rejectSteering(w, r, o)
	}
	size := len(body)
	if t.parent != nil {
		size += int(t.parent.total)
	}
	var generate bool
	t.request, err = inTurn(r.Context(), g, c, size, func() (request *createRequest, err error) {
		request, generate, err = t.newRequest(o, len(body))
		return request, err
	})
	if err != nil {
		return err
	}
	if !generate {
		return t.warmUp(w, r)
	}
	return g.createFrom(w, r, c, t.request)
}

// takeMessage returns the body of the message, whose memory is the call's from then on.
func (t *socketTurn) takeMessage() ([]byte, error) {
	m := t.message
	switch {
	case m.err != nil:
		return nil, readError(m.err)
	case m.kind != websocket.MessageText:
		return nil, invalidRequest("", "invalid_message", "Binary messages are not supported: send a JSON object as a text message.")
	}
	m.memory.moveTo(t.call.memory)
	body := m.body
	m.body = nil
	return body, nil
}

// streamIDs matches valid stream IDs.
var streamIDs = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)

// parse parses the message, and reads what the connection needs of it.
func (t *socketTurn) parse(body []byte) (*object, error) {
	o, err := parseObject(body)
	if err != nil {
		return nil, invalidRequest("", "invalid_json", "We could not parse the JSON of your message: it %v.", err)
	}
	return o, t.readMembers(o)
}

// newRequest returns the request for the response that a message of the given size describes: the message without the members that only
// messages have. It reports whether output is to be generated.
func (t *socketTurn) newRequest(o *object, bytes int) (request *createRequest, generate bool, err error) {
	generate = o.get("generate").Type != gjson.False
	for _, name := range []string{"type", "stream_id", "generate"} {
		o.remove(name)
	}
	o.set("stream", "true")
	if !generate {
		o.set("store", "false")
	}
	// As in readRequest, the body is held twice.
	size := 2 * int64(bytes)
	if t.parent != nil {
		size += 2 * t.parent.total
	}
	if err := t.call.hold(size); err != nil {
		return nil, false, err
	}
	defer t.call.memory.give(2 * int64(bytes)) // of the message
	parent := t.parent
	if err := t.prepend(o); err != nil {
		return nil, false, err
	}
	if parent != nil && t.parent == nil {
		t.call.memory.give(2 * parent.total)
	}
	request, err = parseRequest(jsonvalue.Bytes(o.String()))
	if err != nil {
		return nil, false, err
	}
	if parent != nil {
		request.named = t.previous
	}
	if t.parent == nil {
		return request, generate, nil
	}
	request.remembered = t.parent.count
	if limit := t.socket.g.options.MaxRequestBytes; request.store && int64(len(request.body)) > limit {
		return nil, false, invalidRequest("previous_response_id", string(store.CodeTooLarge),
			"The conversation is too large to be stored: it includes turns that only the connection remembers (--max-request-bytes).")
	}
	return request, generate, nil
}

// readMembers reads and checks the members of the message that the connection needs.
func (t *socketTurn) readMembers(o *object) error {
	if id := o.get("stream_id"); id.Type != gjson.Null {
		if id.Type != gjson.String || !streamIDs.MatchString(id.Str) {
			return invalidRequest("stream_id", "invalid_stream_id", "The 'stream_id' field must be a non-empty string with at most "+
				"256 characters and may only contain letters, numbers, underscores, hyphens, and periods.")
		}
		t.streamID = strings.Clone(id.Str)
	}
	switch kind := o.get("type"); kind.Str {
	case "response.create":
	case steerType:
		return nil
	default:
		return invalidRequest("type", "invalid_value", "Invalid value for 'type'. Supported values are: 'response.create'.")
	}
	if generate := o.get("generate"); generate.Type != gjson.Null && !generate.IsBool() {
		return invalidRequest("generate", "invalid_type", "Invalid type for 'generate': expected a boolean.")
	}
	t.previous = strings.Clone(o.get("previous_response_id").Str) // the message is not kept
	t.parent = t.socket.turns.find(t.previous)
	return nil
}

// steerType is the type of a message that is to steer a running response.
const steerType = "response.steer"

// rejectSteering answers a message that is to steer a running response, which has ended by now. OpenAI's answer repeats the input.
func (t *socketTurn) rejectSteering(w http.ResponseWriter, r *http.Request, o *object) error {
	previous, err := readPrevious(o)
	if err != nil {
		return err
	}
	input := o.raw("input")
	if previous == "" || !jsonvalue.IsString(input) && !strings.HasPrefix(input, "[") {
		return invalidRequest("input", "invalid_input", "Steering needs a 'previous_response_id', and an 'input' that is a string or an array.")
	}
	if err := t.call.hold(2 * int64(len(input))); err != nil { // for the event
		return err
	}
	w.WriteHeader(http.StatusBadRequest)
	_ = t.socket.send(r.Context(), t.streamID, fmt.Sprintf(`{"type":"response.steer.failed","sequence_number":0,`+
		`"steer":{"previous_response_id":%s,"input":%s},"error":{"type":%q,"code":"steering_not_supported","message":%q}}`,
		quote(previous), input, typeInvalidRequest,
		"This gateway does not support steering: send the input with the next response.create.")) // fails only if the client has disconnected
	return nil
}

// prepend puts the items of the remembered turns that the message continues before its input, so that it continues a stored turn, or none. It drops
// these turns if the input has a compaction item, which replaces them.
func (t *socketTurn) prepend(o *object) error {
	if t.parent == nil {
		return nil
	}
	if _, err := readConversation(o); err != nil {
		return err
	}
	items, err := inputItems(o.raw("input"))
	if err != nil {
		return err
	}
	o.set("previous_response_id", quoteOrNull(t.parent.stored))
	if compacts(o.raw("input")) {
		t.parent = nil
		return nil
	}
	o.set("input", "["+joinItems(append(t.parent.items(), items))+"]")
	return nil
}

// inputItems returns the items of a request's input as a list without its brackets. It makes no slice of them: with the smallest ones, that would
// take more than ten times as much memory as the input.
func inputItems(input string) (list string, err error) {
	single := ""
	if err := chain.EachInput(input, func(item string) { single = item }); err != nil {
		return "", invalidRequest("input", "invalid_type", "Invalid request: `input` %v.", err)
	}
	if !jsonvalue.IsList(input) {
		return single, nil
	}
	return strings.TrimSpace(input[1 : len(input)-1]), nil
}

// warmUp answers a message that only prepares a later one: the connection remembers its input, and the engine is not called.
func (t *socketTurn) warmUp(w http.ResponseWriter, r *http.Request) error {
	g := t.socket.g
	if err := g.expand(r.Context(), t.call, t.request); err != nil {
		return err
	}
	if err := t.loadConversation(r.Context()); err != nil {
		return err
	}
	if err := t.checkPrevious(r.Context()); err != nil {
		return err
	}
	warm := &turn{id: g.newResponseID(r, t.call), request: t.request, created: g.now()}
	response := warm.empty()
	shown, err := inTurn(r.Context(), g, t.call, warm.scannedBytes(response), func() (int64, error) { return warm.shownBytes(response), nil })
	if err != nil {
		return err
	}
	if err := t.call.hold(4 * shown); err != nil { // as JSON and as a message
		return err
	}
	response.set("status", quote(store.StatusInProgress))
	response, err = inTurn(r.Context(), g, t.call, int(shown)+t.rememberedBytes(), func() (*object, error) {
		t.remember(response)
		return warm.show(response, warm.itemID), nil
	})
	if err != nil {
		return err
	}
	writeStreamHeader(w)
	for i, kind := range []string{"response.created", "response.in_progress", "response.completed"} {
		if status := terminalEvents[kind]; status != "" {
			response.set("status", quote(status))
			completeUsage(response)
		}
		e := &event{name: kind, data: fmt.Sprintf(`{"type":%s,"sequence_number":%d,"response":%s}`, quote(kind), i, response)}
		_ = t.sendEvent(r.Context(), e) // fails only if the client has disconnected
	}
	return nil
}

// checkPrevious returns an error if a warm-up continues a response that cannot be continued.
func (t *socketTurn) checkPrevious(ctx context.Context) error {
	q, g := t.request, t.socket.g
	if q.previous == "" || q.history != nil {
		return nil
	}
	options := g.options.resolveOptions()
	options.Limit, options.Instructions = 1, store.InstructionsOmit
	history, err := g.resolve(ctx, t.call, q.previous, options)
	if err != nil {
		return resolveError(q.previous, err)
	}
	t.call.memory.give(historyBytes(history))
	return nil
}

// loadConversation resolves the conversation with a name that a warm-up continues, if any.
func (t *socketTurn) loadConversation(ctx context.Context) error {
	g := t.socket.g
	if err := g.loadConversation(ctx, t.call, t.request); err != nil || t.request.history == nil {
		return err
	}
	items, err := g.context(ctx, t.call, t.request, t.request.history)
	if err != nil {
		return err
	}
	return t.keepVisible(ctx, items)
}

// keepVisible keeps the items of the conversation with a name that the engine gets, if others are hidden and the connection is to remember the
// turn: they are all that later turns may have of it, but the turns of the conversation have the hidden items, too.
func (t *socketTurn) keepVisible(ctx context.Context, items []json.RawMessage) error {
	id := t.request.conversation
	if id == "" || t.request.store {
		return nil
	}
	conversation, err := getConversation(ctx, t.call, id)
	if err != nil {
		return conversationFailed(id, err)
	}
	if len(conversation.HiddenItems) == 0 {
		return nil
	}
	t.visible, t.hides = items, true
	return t.call.hold(historyBytes(&store.History{Items: items}))
}

// sendEvent sends an event of the response. Other events of a stream, such as comments, have no meaning outside it.
func (t *socketTurn) sendEvent(ctx context.Context, e *event) error {
	data := strings.TrimLeft(e.data, " \t\n")
	if !strings.HasPrefix(data, "{") {
		return nil
	}
	kind := gjson.Get(data, "type").Str
	if kind == "" {
		// A client of a stream knows the kind from the name of the event, or from the error.
		o, err := parseObject(jsonvalue.Bytes(data))
		if err != nil {
			return err // never: the relay has parsed it
		}
		kind = kindOf(e, o)
		o.set("type", quote(kind))
		data = o.String()
	}
	if isFailure(kind) {
		t.failed = true
	}
	if kind == eventError {
		o, err := parseObject(jsonvalue.Bytes(data))
		if err != nil {
			return err // never: the relay has parsed it
		}
		completeEnvelope(o, data)
		data = o.String()
	}
	return t.socket.send(ctx, t.streamID, data)
}

// completeEnvelope converts an error event of a stream to the form that WebSocket connections have, with the error as an object of its own. data is
// the event as JSON. Other members that the engine has sent are kept.
func completeEnvelope(o *object, data string) {
	status := http.StatusInternalServerError
	if given := o.get("status"); given.Type == gjson.Number && given.Num >= http.StatusBadRequest && given.Num < 600 {
		status = int(given.Num)
	}
	_, failure := errorIn(jsonvalue.Bytes(data))
	if failure == nil {
		failure = &object{}
	}
	if !jsonvalue.IsObject(o.raw("error")) {
		failure.remove("type") // it is that of the event
	}
	completeError(failure, status)
	o.set("status", strconv.Itoa(status))
	o.set("error", failure.String())
}

// remember makes the connection remember the turn, which is not stored, if there is memory for it: what the engine got and returned, not
// what the client was shown, so that the engine gets that again.
func (t *socketTurn) remember(response *object) {
	output := response.raw("output")
	inputs, outputs := len(t.visible)+t.request.inputs-t.request.remembered, jsonvalue.Count(output)
	const itemBytes = 16
	if err := t.call.hold(itemBytes * int64(inputs+outputs)); err != nil {
		t.forgotten(err)
		return
	}
	defer t.call.memory.give(itemBytes * int64(inputs+outputs))
	items, skipped := make([]string, 0, inputs+outputs), 0
	for _, item := range t.visible {
		items = append(items, jsonvalue.Text(item))
	}
	_ = chain.EachInput(t.request.object.raw("input"), func(item string) {
		if skipped++; skipped > t.request.remembered {
			items = append(items, item)
		}
	}) // checked when the request was parsed
	for _, item := range jsonvalue.Elements(output) {
		items = append(items, item)
	}
	parent, stored := t.parent, t.request.previous
	if t.hides {
		stored = ""
	}
	items, compacted := sinceCompaction(items, inputs)
	if compacted {
		parent = nil
	}
	if err := t.socket.turns.add(response.get("id").Str, parent, stored, items); err != nil {
		t.forgotten(err)
	}
}

// rememberedBytes returns the size of what remember goes through besides the response.
func (t *socketTurn) rememberedBytes() int {
	return len(t.request.body) + int(historyBytes(&store.History{Items: t.visible}))
}

// forgotten logs that there is no memory for the turn.
func (t *socketTurn) forgotten(err error) {
	t.call.log.Info("the connection does not remember the turn: there is not enough memory", "error", err)
}

// sinceCompaction returns the items of a turn that later turns need, and reports whether a compaction item replaces the turns before it: see
// Gateway.context. The first items are those of the input.
func sinceCompaction(items []string, inputs int) ([]string, bool) {
	for i, item := range slices.Backward(items) {
		if isCompaction(item) && i >= inputs {
			return items[i:], true
		}
		if isCompaction(item) {
			return items, true
		}
	}
	return items, false
}

// Header implements http.ResponseWriter. No header is sent.
func (t *socketTurn) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter.
func (t *socketTurn) WriteHeader(status int) { t.status = status }

// Flush implements http.Flusher. Messages are sent at once.
func (t *socketTurn) Flush() {}

// Write implements http.ResponseWriter: it sends an error, whose body is written at once.
func (t *socketTurn) Write(body []byte) (int, error) {
	t.failed = true
	_, failure := errorIn(body)
	if failure == nil {
		failure = &object{}
	}
	completeError(failure, t.status)
	return len(body), t.socket.send(t.socket.lasting, t.streamID, errorEvent(t.status, withHeaders(failure, t.header)))
}

// withHeaders returns an error with the headers of its response that would pass through from an engine, such as Retry-After, as OpenAI's
// `headers`.
func withHeaders(o *object, header http.Header) string {
	headers := &object{}
	for _, name := range responseHeaders {
		if value := header.Get(name); value != "" {
			headers.set(strings.ToLower(name), quote(value))
		}
	}
	if len(headers.members) > 0 {
		o.set("headers", headers.String())
	}
	return o.String()
}
