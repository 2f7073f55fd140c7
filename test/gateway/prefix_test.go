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

package gateway_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	_ "gocloud.dev/blob/fileblob"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
	_ "github.com/catena-dev/catena/store/sqlite"
)

// TestPrefixStable checks that what an engine gets for a turn begins with what it got for the turns before it, byte for byte, and goes on
// with what it has returned. So the prefix caches of engines hit: whichever gateway asks, however the turns are stored, and in every fork.
func TestPrefixStable(t *testing.T) {
	kube := testenv.StoreURL("default", env.Kubeconfig)
	withBucket := kube + "&snapshot-store=" + url.QueryEscape(bucket)
	shared := memory.New(memory.Options{})
	t.Cleanup(func() { _ = shared.Close() })
	open := func(url string) func(*testing.T) *store.Store {
		return func(t *testing.T) *store.Store {
			s, err := store.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
	}
	for name, tc := range map[string]struct {
		checks int
		// Each gateway has a store of its own. They contain the same turns.
		stores []func(*testing.T) *store.Store
	}{
		"memory": {100, []func(*testing.T) *store.Store{func(*testing.T) *store.Store { return shared }}},
		"sqlite": {50, []func(*testing.T) *store.Store{open("sqlite:" + filepath.Join(t.TempDir(), "turns.db"))}},
		"kube":   {15, []func(*testing.T) *store.Store{open(kube), open(kube + "&inline-bytes=1")}},
		"bucket": {15, []func(*testing.T) *store.Store{open(withBucket), open(withBucket + "&inline-bytes=1")}},
	} {
		t.Run(name, func(t *testing.T) {
			setChecks(t, tc.checks)
			engine := &recordingEngine{}
			server := httptest.NewServer(engine)
			t.Cleanup(server.Close)
			var stores []*store.Store
			var gateways []*httptest.Server
			for range 2 { // as after a restart
				for _, open := range tc.stores {
					stores = append(stores, open(t))
					gateways = append(gateways, startGateway(t, server.URL, stores[len(stores)-1]))
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				c := &prefixCheck{T: t, engine: engine, store: stores[len(stores)-1], gateways: gateways}
				for range rapid.IntRange(1, 12).Draw(t, "turns") {
					c.turn()
				}
				c.connection()
			})
		})
	}
}

// setChecks sets the number of checks of rapid for a test.
func setChecks(t *testing.T, checks int) {
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	t.Cleanup(func() { _ = f.Value.Set(before) })
	if err := f.Value.Set(strconv.Itoa(checks)); err != nil {
		t.Fatal(err)
	}
}

func startGateway(t *testing.T, upstream string, s *store.Store) *httptest.Server {
	t.Helper()
	options := gateway.DefaultOptions()
	options.Store, options.InsecureAllowAnonymous, options.Logger = s, true, slog.New(slog.DiscardHandler)
	var err error
	if options.Upstream, err = url.Parse(upstream); err != nil {
		t.Fatal(err)
	}
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(options, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return server
}

// recordingEngine is an engine that returns what a test sets, and records what it gets. A test sends it one request at a time.
type recordingEngine struct {
	status string
	output []string
	// sent are the items of the last request's input.
	sent []string
}

func (e *recordingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e.sent = nil
	switch input := gjson.GetBytes(body, "input"); {
	case input.IsArray():
		for _, item := range input.Array() {
			e.sent = append(e.sent, item.Raw)
		}
	case input.Raw != `""`: // which has no items
		http.Error(w, `{"error":{"message":"the input is not a list"}}`, http.StatusBadRequest)
		return
	}
	response := fmt.Sprintf(`{"id": "resp_1", "object": "response", "status": %q, "output": [ %s ]}`, e.status, strings.Join(e.output, " , "))
	if !gjson.GetBytes(body, "stream").Bool() {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, response)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\"output\":[]}}\n\n"+
		"data: {\"type\":\"response.%s\",\"response\":%s}\n\n", e.status, response)
}

// prefixTurn is a turn of a prefixCheck.
type prefixTurn struct {
	id string
	// sent are the items that the engine got, and output those that it returned. resent is the output as the engine has got it since, nil
	// until a turn continues this one.
	sent, output, resent []string
	// shown is the output as the client got it, and seen are all items of the conversation as the client has them.
	shown, seen []string
	// calls are the calls of the output, as the client knows them.
	calls []string
}

// prefixCheck is one check of TestPrefixStable.
type prefixCheck struct {
	*rapid.T
	engine   *recordingEngine
	store    *store.Store
	gateways []*httptest.Server
	turns    []*prefixTurn
}

// turn creates a turn that begins a conversation, or continues or forks one in any of the ways in which clients do so.
func (c *prefixCheck) turn() {
	parent := c.drawParent()
	input, own := c.drawInput(parent)
	request := prefixRequest{stream: rapid.Bool().Draw(c.T, "stream"), stored: rapid.IntRange(0, 5).Draw(c.T, "store") > 0}
	request.input = input
	resend := parent != nil && rapid.Bool().Draw(c.T, "resend")
	switch {
	case resend:
		request.input = "[" + strings.Join(slices.Concat(parent.seen, own), ",") + "]"
	case parent != nil:
		request.previous = parent.id
	}
	url := c.gateways[rapid.IntRange(0, len(c.gateways)-1).Draw(c.T, "gateway")].URL
	var response gjson.Result
	if rapid.IntRange(0, 3).Draw(c.T, "socket") == 0 {
		conn := c.dial(url)
		response = c.ask(conn, request)
		_ = conn.CloseNow()
	} else {
		response = c.post(url, request)
	}
	next := c.record(parent, own, response)
	named := strings.Contains(strings.Join(own, ""), `"id"`) // and so perhaps another conversation
	if !request.stored && (!resend || len(parent.output) > 0 && !named) {
		c.check(parent, next, own)
	}
	if !request.stored {
		return
	}
	session, err := c.store.Get(c.Context(), next.id)
	if err != nil {
		c.Fatal(err)
	}
	switch {
	case parent == nil || session.PreviousResponseID == parent.id:
		c.check(parent, next, own)
	case !resend || len(parent.output) > 0 && !named:
		c.Fatalf("the turn continues %q, want %q", session.PreviousResponseID, parent.id)
	}
	c.turns = append(c.turns, next)
}

// connection continues a conversation on one WebSocket connection that remembers some of the turns and stores the others.
func (c *prefixCheck) connection() {
	conn := c.dial(c.gateways[0].URL)
	defer func() { _ = conn.CloseNow() }()
	parent := c.drawParent()
	for range rapid.IntRange(0, 3).Draw(c.T, "messages") {
		input, own := c.drawInput(parent)
		request := prefixRequest{input: input, stored: rapid.Bool().Draw(c.T, "store")}
		if parent != nil {
			request.previous = parent.id
		}
		next := c.record(parent, own, c.ask(conn, request))
		c.check(parent, next, own)
		parent = next
	}
}

// check checks what the engine got for a turn with a number of items of its own.
func (c *prefixCheck) check(parent, next *prefixTurn, own []string) {
	var before []string
	if parent != nil {
		before = slices.Concat(parent.sent, parent.output)
	}
	if len(next.sent) != len(before)+len(own) {
		c.Fatalf("the engine got %d items, want %d of the turns before and %d more:\n%s", len(next.sent), len(before), len(own), strings.Join(next.sent, "\n"))
	}
	if parent == nil {
		return
	}
	received := next.sent[len(parent.sent):len(before)]
	for i, item := range next.sent[:len(before)] {
		same := item == before[i]
		if output := i - len(parent.sent); output >= 0 {
			same = same || strings.Contains(item, `"call_id"`) && jsonvalue.Equal([]byte(item), []byte(before[i]))
			same = same && (parent.resent == nil || item == parent.resent[output])
		}
		if !same {
			c.Fatalf("item %d is %s, want %s", i, item, before[i])
		}
	}
	parent.resent = received
}

// record returns the turn of a response.
func (c *prefixCheck) record(parent *prefixTurn, own []string, response gjson.Result) *prefixTurn {
	next := &prefixTurn{id: response.Get("id").Str, sent: c.engine.sent, output: c.engine.output}
	if parent != nil {
		next.seen = slices.Clone(parent.seen)
	}
	next.seen = append(next.seen, own...)
	for _, item := range response.Get("output").Array() {
		next.shown = append(next.shown, item.Raw)
		if item.Get("type").Str == "function_call" {
			next.calls = append(next.calls, item.Get("call_id").Str)
		}
	}
	next.seen = append(next.seen, next.shown...)
	return next
}

// prefixRequest is a request for a response.
type prefixRequest struct {
	previous, input string
	stored, stream  bool
}

// members returns the members of the request's body.
func (r prefixRequest) members() string {
	previous := "null"
	if r.previous != "" {
		previous = strconv.Quote(r.previous)
	}
	return fmt.Sprintf(`"model":"m", "previous_response_id":%s, "store":%t, "input" : %s`, previous, r.stored, r.input)
}

// post sends a request and returns the response.
func (c *prefixCheck) post(url string, request prefixRequest) gjson.Result {
	c.drawOutput()
	body := fmt.Sprintf(`{%s, "stream":%t}`, request.members(), request.stream)
	r, err := http.Post(url+"/v1/responses", "application/json", strings.NewReader(body)) //nolint:noctx // the test's own server
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		c.Fatalf("got %s: %s (%v)", r.Status, text, err)
	}
	if !request.stream {
		return gjson.ParseBytes(text)
	}
	events := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	_, data, _ := strings.Cut(events[len(events)-1], "data: ")
	return gjson.Get(data, "response")
}

func (c *prefixCheck) dial(url string) *websocket.Conn {
	conn, _, err := websocket.Dial(c.Context(), url+"/v1/responses", nil) //nolint:bodyclose // callers of Dial never need to
	if err != nil {
		c.Fatal(err)
	}
	conn.SetReadLimit(-1)
	return conn
}

// ask is post on a WebSocket connection.
func (c *prefixCheck) ask(conn *websocket.Conn, request prefixRequest) gjson.Result {
	c.drawOutput()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"response.create", `+request.members()+"}")); err != nil {
		c.Fatal(err)
	}
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			c.Fatal(err)
		}
		switch e := gjson.ParseBytes(message); e.Get("type").Str {
		case "response.completed", "response.incomplete":
			return e.Get("response")
		case "error":
			c.Fatalf("got %s", message)
		}
	}
}

// texts are texts as JSON, of which some have other forms that parsers treat alike.
var texts = []string{
	`""`, `"hello"`, `"\u00fc \ud83d\ude00 \/ \u003cb\u003e"`, `"ü 😀 / <b>&"`, `"\u2028"`, `"\u0000\b"`, `"\ud800"`, `" ` + strings.Repeat("long ", 40_000) + `"`,
}

// userItems are items of users. %s is a text.
var userItems = []string{
	`{"role":"user","content":%s}`,
	`{ "type" : "message", "content":[ {"text":%s, "type":"input_text"} ], "role":"user" }`,
	`{"type":"message","role":"developer","content":%s,"number":1.0,"large":12345678901234567890,"a":{"z":[],"b":1e3}}`,
	`{"role":"user","content":%s,"twice":1,"twice":2}`,
}

// outputItems are items of engines. %s is a text. The IDs repeat, as those of engines that are restarted.
var outputItems = []string{
	`{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":%s,"annotations":[]}]}`,
	`{ "role":"assistant", "content" : [ {"type":"output_text", "text":%s} ], "type":"message" }`,
	`{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":%s}`,
	`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":%s}`,
	`{"type":"from_the_future","value":%s,"number":1.0}`,
}

// drawParent returns a stored turn, or nil.
func (c *prefixCheck) drawParent() *prefixTurn {
	if i := rapid.IntRange(0, len(c.turns)).Draw(c.T, "parent"); i > 0 {
		return c.turns[i-1]
	}
	return nil
}

func (c *prefixCheck) drawItem(forms []string, label string) string {
	return fmt.Sprintf(rapid.SampledFrom(forms).Draw(c.T, label), rapid.SampledFrom(texts).Draw(c.T, "text"))
}

// drawShown returns an item that the client was given, or a reference to it, or nothing.
func (c *prefixCheck) drawShown() string {
	turn := c.drawParent()
	if turn == nil || len(turn.shown) == 0 {
		return ""
	}
	item := rapid.SampledFrom(turn.shown).Draw(c.T, "shown item")
	if rapid.Bool().Draw(c.T, "copy") {
		return item
	}
	return fmt.Sprintf(`{"type":"item_reference","id":%q}`, gjson.Get(item, "id").Str)
}

func (c *prefixCheck) drawOutput() {
	c.engine.status, c.engine.output = rapid.SampledFrom([]string{"completed", "incomplete"}).Draw(c.T, "status"), nil
	for range rapid.IntRange(0, 3).Draw(c.T, "output items") {
		c.engine.output = append(c.engine.output, c.drawItem(outputItems, "output item"))
	}
}

// drawInput returns an input, and its items. Some of them refer to what the client was given, or copy it.
func (c *prefixCheck) drawInput(parent *prefixTurn) (input string, items []string) {
	if rapid.IntRange(0, 2).Draw(c.T, "string") == 0 {
		input = rapid.SampledFrom(texts).Draw(c.T, "text")
		if input != `""` {
			items = []string{fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`, input)}
		}
		return input, items
	}
	if parent != nil && len(parent.calls) > 0 {
		output, err := json.Marshal(map[string]string{"type": "function_call_output", "call_id": parent.calls[0], "output": "<done>"})
		if err != nil {
			c.Fatal(err)
		}
		items = append(items, string(output))
	}
	for range rapid.IntRange(0, 3).Draw(c.T, "input items") {
		if shown := c.drawShown(); shown != "" {
			items = append(items, shown)
		} else {
			items = append(items, c.drawItem(userItems, "input item"))
		}
	}
	return "[ " + strings.Join(items, " ,\n") + " ]", items
}
