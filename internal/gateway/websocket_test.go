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
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/tidwall/gjson"
)

// wsClient is a client's WebSocket connection.
type wsClient struct {
	*fixture
	conn *websocket.Conn
}

// dial opens a WebSocket connection. Headers are pairs of names and values.
func (f *fixture) dial(headers ...string) *wsClient {
	f.t.Helper()
	c, response := f.tryDial(headers...)
	if c == nil {
		f.t.Fatalf("got %d %s", response.status, response.body)
	}
	return c
}

// tryDial returns the gateway's response if it rejects the connection.
func (f *fixture) tryDial(headers ...string) (*wsClient, reply) {
	f.t.Helper()
	options := &websocket.DialOptions{HTTPHeader: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		options.HTTPHeader.Set(headers[i], headers[i+1])
	}
	conn, response, err := websocket.Dial(f.t.Context(), f.url+"/v1/responses", options)
	if response == nil {
		f.t.Fatal(err)
	}
	if err != nil {
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body) // the client keeps the beginning of the body
		return nil, reply{status: response.StatusCode, header: response.Header, body: string(body)}
	}
	conn.SetReadLimit(-1)
	f.t.Cleanup(func() { _ = conn.CloseNow() })
	return &wsClient{fixture: f, conn: conn}, reply{}
}

func (c *wsClient) send(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next message.
func (c *wsClient) next() reply {
	c.t.Helper()
	kind, data, err := c.conn.Read(c.t.Context())
	if err != nil || kind != websocket.MessageText {
		c.t.Fatalf("got %s, %v", kind, err)
	}
	return reply{body: string(data), status: int(gjson.GetBytes(data, "status").Int())}
}

// rest returns the messages up to the end of a response or an error.
func (c *wsClient) rest() (all []reply) {
	c.t.Helper()
	for {
		m := c.next()
		all = append(all, m)
		if kind := m.get("type"); terminalEvents[kind] != "" || kind == eventError {
			return all
		}
	}
}

// ask requests a response with the given members of its body, and returns the last event.
func (c *wsClient) ask(members string) reply {
	c.t.Helper()
	c.send(`{"type":"response.create",` + members + `}`)
	all := c.rest()
	return all[len(all)-1]
}

// say is ask for an input that continues a response, or begins a conversation if previous is empty. It returns the ID of the response.
func (c *wsClient) say(input, previous, members string) string {
	c.t.Helper()
	last := c.ask(fmt.Sprintf(`"input":%q,"previous_response_id":%s%s`, input, quoteOrNull(previous), members))
	if last.get("type") != "response.completed" || last.get("response.previous_response_id") != previous {
		c.t.Fatalf("got %s", last.body)
	}
	return last.get("response.id")
}

// wantError checks that a message is an error in OpenAI's format.
func (c *wsClient) wantError(m reply, want string) {
	c.t.Helper()
	if got := m.code(); m.get("type") != "error" || got != want || m.get("error.message") == "" || m.get("error.type") == "" {
		c.t.Errorf("got %s, want %s", m.body, want)
	}
}

// wantClose checks that the gateway closes the connection after the messages that it has sent.
func (c *wsClient) wantClose(want websocket.StatusCode) {
	c.t.Helper()
	if _, data, err := c.conn.Read(c.t.Context()); websocket.CloseStatus(err) != want {
		c.t.Errorf("got %s, %v, want %s", data, err, want)
	}
}

// awaitConnections waits until the gateway has a number of WebSocket connections.
func (f *fixture) awaitConnections(want float64) {
	f.t.Helper()
	f.eventually(fmt.Sprintf("there are not %g connections", want), func() bool { return testutil.ToFloat64(f.gateway.metrics.sockets) == want })
}

// inputs returns the texts of the messages of the last request to the engine.
func (f *fixture) inputs() []string {
	body, _ := f.sent.last()
	var all []string
	for _, text := range gjson.Get(body, `input.#.content.0.text`).Array() {
		all = append(all, text.Str)
	}
	return all
}

const notStored = `,"store":false`

// TestWebSocketConversation checks that a connection, other connections and HTTP continue each other's turns.
func TestWebSocketConversation(t *testing.T) {
	f := start(t, nil)
	c := f.dial()
	first := c.say("one", "", "")
	second := c.say("two", first, "")
	third := c.say("three", second, "")
	other := f.dial().say("four", third, "")
	last := f.create(`{"input":"five","previous_response_id":"` + other + `"}`)
	if got, want := last.get("output.0.content.0.text"), "You said 5 things, from 'one' to 'five'."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	session := f.saved(second)
	if got, want := string(session.Request), `{"input":"two","previous_response_id":"`+first+`","stream":true}`; got != want {
		t.Errorf("saved the request %s, want %s", got, want)
	}
	_ = c.conn.Close(websocket.StatusNormalClosure, "")
	for _, want := range []string{`route="POST /v1/responses" status=200`, `route="GET /v1/responses" status=101`} {
		f.eventually("the log lacks "+want, func() bool { return strings.Contains(f.log.String(), want) })
	}
}

// TestWebSocketEvents checks that a connection gets the events of a stream, with the client's stream_id, and nothing else.
func TestWebSocketEvents(t *testing.T) {
	big := `{"type":"response.output_item.done","sequence_number":6,"item":{"type":"message","text":"` + strings.Repeat("x", 3*pieceBytes) + `"}}`
	f := start(t, streamHandler(": comment\n\n"+sse(created, itemDone, unknown, big, completed)+"data: [DONE]\n\n"))
	for _, id := range []string{"", "agent_1.a-b"} {
		c := f.dial()
		member, prefix := "", "{"
		if id != "" {
			member, prefix = `,"stream_id":"`+id+`"`, `{"stream_id":"`+id+`",`
		}
		c.send(`{"type":"response.create","input":"a"` + member + `}`)
		var got []string
		for _, m := range c.rest() {
			got = append(got, m.body)
		}
		var want []string
		for _, e := range events(f.create(`{"input":"a","stream":true}`).body) {
			if strings.HasPrefix(e.body, "{") {
				want = append(want, prefix+e.body[1:])
			}
		}
		// The two responses have IDs and times of their own.
		varying := regexp.MustCompile(`_[0-9a-f]{32}|"created_at":[0-9]+`)
		same := cmp.Transformer("same", func(event string) string { return varying.ReplaceAllString(event, "") })
		if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return len(p) == 2 }, same)); diff != "" {
			t.Errorf("(-stream +messages):\n%.1000s", diff)
		}
		if body, _ := f.sent.last(); strings.Contains(body, "response.create") || strings.Contains(body, "stream_id") {
			t.Errorf("the engine got %s", body)
		}
	}
}

// TestWebSocketUntypedEvents: some engines send errors without a type, which clients of a stream recognize nevertheless.
func TestWebSocketUntypedEvents(t *testing.T) {
	f := start(t, streamHandler(sse(created)+"data: {\"error\":{\"message\":\"broken\"}}\n\n"))
	last := f.dial().ask(`"input":"a"`)
	if last.get("type") != "error" || last.get("error.message") != "broken" {
		t.Errorf("got %s", last.body)
	}
}

// TestWebSocketQueue checks that messages that arrive during a response are answered after it.
func TestWebSocketQueue(t *testing.T) {
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})))
	c := f.dial()
	c.send(`{"type":"response.create","input":"a"}`)
	c.send(`{"type":"response.create","input":"b","stream_id":"b"}`)
	c.send(`{"type":"response.dance"}`)
	steps <- sse(created)
	c.next()
	if f.sent.count() != 1 {
		t.Errorf("the engine got %d requests during the first response", f.sent.count())
	}
	steps <- sse(completed)
	steps <- "" // the first response has ended
	close(steps)
	if got := c.next(); got.get("type") != "response.completed" {
		t.Errorf("got %s", got.body)
	}
	if got := c.next(); got.get("type") != "response.failed" || got.get("stream_id") != "b" { // the engine has no more steps
		t.Errorf("got %s", got.body)
	}
	c.wantError(c.next(), "Bad Request invalid_value")
}

// TestWebSocketSteering checks that a message that is to steer a response is rejected after it, in OpenAI's words, and changes nothing.
func TestWebSocketSteering(t *testing.T) {
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})))
	c := f.dial()
	c.send(`{"type":"response.create","input":"a"}`)
	steps <- sse(created)
	id := c.next().get("response.id")
	steer := func(input string) reply {
		c.send(`{"type":"response.steer","previous_response_id":"` + id + `","input":` + input + `}`)
		return c.next()
	}
	c.send(`{"type":"response.steer","previous_response_id":"` + id + `","input":"b"}`)
	steps <- sse(completed)
	close(steps)
	if got := c.next(); got.get("type") != "response.completed" || f.sent.count() != 1 {
		t.Errorf("got %s after %d requests to the engine", got.body, f.sent.count())
	}
	if got := c.next(); got.get("type") != "response.steer.failed" || got.get("steer.input") != "b" {
		t.Errorf("after the response: %s", got.body)
	}
	for _, input := range []string{`"\u00e9"`, `[{"role":"user","content":"b"}]`, `"` + strings.Repeat("b", 2*pieceBytes) + `"`} {
		rejected := steer(input)
		got := []string{rejected.get("type"), rejected.get("error.code"), rejected.get("steer.previous_response_id"), gjson.Get(rejected.body, "steer.input").Raw}
		if diff := cmp.Diff([]string{"response.steer.failed", "steering_not_supported", id, input}, got); diff != "" {
			t.Errorf("%.100s (-want +got):\n%s", input, diff)
		}
	}
	for _, input := range []string{`null`, `{}`, `1`} {
		c.wantError(steer(input), "Bad Request invalid_input")
	}
	id = strings.Repeat("a", 600)
	if got := steer(`"b"`); got.get("type") != "error" {
		t.Errorf("with a long ID: %s", got.body)
	}
	_ = c.conn.CloseNow()
	f.awaitConnections(0)
	f.awaitMemory(0)
}

// TestWebSocketWaitingMessage checks that a message that arrives during a response is read and its memory counted, so that the client's pings
// are answered.
func TestWebSocketWaitingMessage(t *testing.T) {
	const size = 1 << 20
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})))
	c := f.dial()
	c.send(`{"type":"response.create","input":"a"}`)
	steps <- sse(created)
	c.next()
	c.send(`{"type":"response.create","input":"` + strings.Repeat("b", size) + `"}`)
	kinds := make(chan string, 2)
	go func() {
		defer close(kinds)
		for range 2 {
			_, data, err := c.conn.Read(t.Context()) // also reads the pong
			if err != nil {
				return
			}
			kinds <- gjson.GetBytes(data, "type").Str
		}
	}()
	if err := c.conn.Ping(t.Context()); err != nil {
		t.Errorf("the ping was not answered: %v", err)
	}
	f.eventually("the memory of the message is not counted", func() bool { return f.gateway.memory.budget.Used() > 2*size })
	steps <- sse(completed)
	close(steps)
	for _, want := range []string{"response.completed", "response.failed"} { // the engine has no more steps
		if got := <-kinds; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f.awaitMemory(socketBytes)
}

// TestWebSocketWaitsForMemory checks that a message whose memory the response before it holds is read after that.
func TestWebSocketWaitsForMemory(t *testing.T) {
	const size = 1 << 20
	steps := make(chan string)
	f := start(t, stepHandler(steps, make(chan struct{})), func(o *Options) { o.MaxInFlightBytes, o.MaxRequestBytes = 36*size, size*3/2 })
	c := f.dial()
	message := `{"type":"response.create","input":"` + strings.Repeat("a", size) + `"}`
	c.send(message)
	steps <- sse(created)
	c.next()
	f.eventually("the body is held although the engine has read it", func() bool { return f.gateway.memory.budget.Used() < 11*size })
	before := f.gateway.memory.budget.Used()
	c.send(message)
	f.eventually("the message is not being read", func() bool { return f.gateway.memory.budget.Used() > before+size/2 })
	steps <- sse(completed)
	steps <- "" // the first response has ended
	close(steps)
	if got := c.next(); got.get("type") != "response.completed" {
		t.Errorf("got %s", got.body)
	}
	if got := c.next(); got.get("type") != "response.failed" { // the engine has no more steps
		t.Errorf("got %s", got.body)
	}
}

// TestOpenAIWebSocket checks that OpenAI's own client can hold a conversation.
func TestOpenAIWebSocket(t *testing.T) {
	s := startSDK(t)
	conn, err := s.client.Connect(t.Context(), responses.ResponseConnectionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Abort()
	previous := ""
	for _, input := range []string{"one", "two"} {
		create := responses.ResponsesClientEventResponseCreateParam{
			Model: "scripted", Store: param.NewOpt(false), StreamID: param.NewOpt("main"),
			Input: responses.ResponsesClientEventResponseCreateInputUnionParam{OfString: param.NewOpt(input)},
		}
		if previous != "" {
			create.PreviousResponseID = param.NewOpt(previous)
		}
		if err := conn.Create(t.Context(), create); err != nil {
			t.Fatal(err)
		}
		response, err := conn.FinalResponse(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if response.PreviousResponseID != previous {
			t.Errorf("got the previous response %q, want %q", response.PreviousResponseID, previous)
		}
		previous = response.ID
	}
	if diff := cmp.Diff([]string{"one", "You said 1 things, from 'one' to 'one'.", "two"}, s.inputs()); diff != "" {
		t.Errorf("the engine's input (-want +got):\n%s", diff)
	}
}
