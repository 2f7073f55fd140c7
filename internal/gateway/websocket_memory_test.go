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
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// TestWebSocketRemembers checks that turns that are not stored can be continued on their connection, and only there.
func TestWebSocketRemembers(t *testing.T) {
	f := start(t, nil)
	c := f.dial()
	stored := c.say("one", "", "")
	first := c.say("two", stored, notStored)
	second := c.say("three", first, notStored)
	branch := c.say("other", first, notStored)
	answer := func(said int, first, last string) string {
		return fmt.Sprintf("You said %d things, from '%s' to '%s'.", said, first, last)
	}
	want := []string{"one", answer(1, "one", "one"), "two", answer(2, "one", "two"), "other"}
	if diff := cmp.Diff(want, f.inputs()); diff != "" {
		t.Errorf("the engine's input (-want +got):\n%s", diff)
	}
	f.dial().wantError(f.dial().ask(`"input":"x","previous_response_id":"`+second+`"`), "Bad Request previous_response_not_found")
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":"x","previous_response_id":"`+second+`"}`); r.code() != "Bad Request previous_response_not_found" {
		t.Errorf("over HTTP, got %d %s", r.status, r.body)
	}

	// A stored turn has the items of the turns that are not stored.
	saved := c.say("four", second, "")
	session := f.saved(saved)
	if session.PreviousResponseID != stored || gjson.GetBytes(session.Request, "input.#").Int() != 5 {
		t.Errorf("saved %s after %q, want 5 items after %q", session.Request, session.PreviousResponseID, stored)
	}
	last := f.create(`{"input":"five","previous_response_id":"` + saved + `"}`)
	if got, want := last.get("output.0.content.0.text"), answer(5, "one", "five"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.say("more", branch, notStored)
	_ = c.conn.CloseNow()
}

// TestWebSocketRemembersItems checks that items are passed on unchanged, whatever form the input has.
func TestWebSocketRemembersItems(t *testing.T) {
	item := `{ "type":"function_call_output", "call_id":"call_1", "output":"1.0", "big":12345678901234567890 }`
	for name, tc := range map[string]struct{ input, want string }{
		"list":   {`[` + item + `]`, item + `,{"type":"message","id":"msg_1"}`},
		"string": {`"hi"`, `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"message","id":"msg_1"}`},
		"empty":  {`""`, `{"type":"message","id":"msg_1"}`},
		"absent": {`null`, `{"type":"message","id":"msg_1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, streamHandler(sse(created, completed)))
			c := f.dial()
			id := c.ask(`"input":` + tc.input + notStored).get("response.id")
			if got := c.ask(`"input":[],"previous_response_id":"` + id + `"` + notStored); got.get("type") != "response.completed" {
				t.Fatalf("got %s", got.body)
			}
			body, _ := f.sent.last()
			if got, want := gjson.Get(body, "input").Raw, `[`+tc.want+`]`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			c.wantError(c.ask(`"input":[1],"previous_response_id":"`+id+`"`), "Bad Request invalid_type")
		})
	}
}

// TestWebSocketRemembersWhatEngineGot checks that the items of a turn that is not stored are the same for the engine each time: references
// are looked up once, also those of a warm-up, and what the client wrote is not replaced later by what is stored.
func TestWebSocketRemembersWhatEngineGot(t *testing.T) {
	for name, generate := range map[string]string{"turn": "", "warm-up": `,"generate":false`} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			c := f.dial()
			first := f.create(`{"input":"one"}`)
			item := first.get("output.0.id")
			rewritten := `{"role":"user","content":"one"},` + strings.Replace(first.get("output.0"), `"status"`, `"x":1,"status"`, 1)
			id := c.ask(`"input":[` + rewritten + `,{"type":"item_reference","id":"` + item + `"}]` + notStored + generate).get("response.id")
			if r := f.do(http.MethodDelete, "/v1/responses/"+first.get("id"), ""); r.status != http.StatusOK {
				t.Fatalf("got %d %s", r.status, r.body)
			}
			other := f.create(`{"input":"two"}`)
			reference := `{"type":"item_reference","id":"` + other.get("output.0.id") + `"}`
			if got := c.ask(`"input":[` + reference + `],"previous_response_id":"` + id + `"` + notStored); got.get("type") != "response.completed" {
				t.Fatalf("got %s", got.body)
			}
			body, _ := f.sent.last()
			items := gjson.Get(body, "input").Array()
			if len(items) < 4 || items[0].Raw != `{"role":"user","content":"one"}` || items[1].Get("x").Raw != "1" || items[1].Get("id").Str != items[2].Get("id").Str ||
				items[2].Get("content.0.text").Str != first.get("output.0.content.0.text") || items[len(items)-1].Get("content.0.text").Str != other.get("output.0.content.0.text") {
				t.Errorf("got %s", gjson.Get(body, "input").Raw)
			}
		})
	}
}

// TestWebSocketCompaction: what is remembered of a conversation begins with the newest compaction item, or with the input that has it.
func TestWebSocketCompaction(t *testing.T) {
	const compaction = `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`
	user := func(text string) string { return `{"role":"user","content":"` + text + `"}` }
	output := ""
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := `{"status":"completed","output":[` + output + `]}`
		streamHandler(sse(created, `{"type":"response.completed","response":`+response+`}`)).ServeHTTP(w, r)
	}))
	c := f.dial()
	ask := func(input, previous, rest string) (id string, engine []string) {
		id = c.ask(`"input":[` + input + `],"previous_response_id":` + quoteOrNull(previous) + rest).get("response.id")
		sent, _ := f.sent.last()
		for _, item := range gjson.Get(sent, "input").Array() {
			engine = append(engine, item.Raw)
		}
		return id, engine
	}
	output = user("out1")
	stored, _ := ask(user("1"), "", "")
	first, _ := ask(user("2"), stored, notStored)
	output = compaction + "," + user("out3")
	second, _ := ask(user("3"), first, notStored)
	output = user("out4")
	third, engine := ask(user("4"), second, notStored)
	if diff := cmp.Diff([]string{compaction, user("out3"), user("4")}, engine); diff != "" {
		t.Errorf("made by an engine (-want +got):\n%s", diff)
	}
	for _, rest := range []string{notStored, ""} {
		fourth, engine := ask(user("5")+","+compaction, third, rest)
		if !slices.Equal(engine, []string{user("5"), compaction}) {
			t.Errorf("sent by the client now: the engine got %q", engine)
		}
		if _, engine = ask(user("6"), fourth, ""); !slices.Equal(engine, []string{user("5"), compaction, user("out4"), user("6")}) {
			t.Errorf("sent by the client before: the engine got %q", engine)
		}
	}
}

// TestWebSocketRemembersLittle: a remembered turn does not keep the messages that it is from.
func TestWebSocketRemembersLittle(t *testing.T) {
	f := start(t, nil)
	c := f.dial()
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	const size, messages = 4 << 20, 10
	instructions := strings.Repeat("x", size)
	before := heap()
	for range messages {
		c.send(`{"type":"response.create","generate":false,"input":"a","instructions":"` + instructions + `"}`)
		c.rest()
	}
	if grown := heap() - before; grown > messages*size*6/10 {
		t.Errorf("the heap has grown by %d MiB after %d messages of %d MiB", grown>>20, messages, size>>20)
	}
	_ = c.conn.CloseNow()
}

// TestWebSocketEvicts checks that a turn cannot be continued again after its continuation has failed, but others can.
func TestWebSocketEvicts(t *testing.T) {
	failure := `{"type":"response.failed","response":{"id":"up","status":"failed","output":[]}}`
	for name, engine := range map[string]http.Handler{
		"400":          jsonHandler(400, `{"error":{"message":"no"}}`),
		"500":          jsonHandler(500, `{"error":{"message":"no"}}`),
		"failed":       streamHandler(sse(created, failure)),
		"error":        streamHandler(sse(created, `{"type":"error","message":"no"}`)),
		"ended early":  streamHandler(sse(created)),
		"not a stream": jsonHandler(200, `{}`),
	} {
		t.Run(name, func(t *testing.T) {
			next := streamHandler(sse(created, completed))
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) }))
			c := f.dial()
			first := c.say("one", "", notStored)
			second := c.say("two", first, notStored)
			good := next
			next = engine
			got := c.ask(`"input":"x","previous_response_id":"` + second + `"` + notStored)
			if got.get("type") != "error" && got.get("type") != "response.failed" {
				t.Errorf("got %s", got.body)
			}
			next = good
			if id := got.get("response.id"); id != "" {
				c.wantError(c.ask(`"input":"x","previous_response_id":"`+id+`"`), "Bad Request previous_response_not_found")
			}
			c.wantError(c.ask(`"input":"x","previous_response_id":"`+second+`"`), "Bad Request previous_response_not_found")
			c.say("three", first, notStored)
		})
	}
}

// TestWebSocketRemembersTheLast checks that the oldest turns are forgotten, and their memory freed with the connection.
func TestWebSocketRemembersTheLast(t *testing.T) {
	f := start(t, streamHandler(sse(created, completed)))
	c := f.dial()
	ids := []string{c.say("one", "", notStored)}
	for range maxRemembered {
		ids = append(ids, c.say("more", ids[len(ids)-1], notStored))
	}
	c.wantError(c.ask(`"input":"x","previous_response_id":"`+ids[0]+`"`), "Bad Request previous_response_not_found")
	c.say("last", ids[len(ids)-1], notStored)
	if body, _ := f.sent.last(); gjson.Get(body, "input.#").Int() != 2*(maxRemembered+1)+1 {
		t.Errorf("the engine got %d items, want those of all turns", gjson.Get(body, "input.#").Int())
	}
	c.say("branch", ids[2], notStored)
	_ = c.conn.CloseNow()
	f.awaitMemory(0)
}

// TestWebSocketRemembersWithinShare checks that a turn for which there is no memory is not remembered, but answered.
func TestWebSocketRemembersWithinShare(t *testing.T) {
	f := start(t, streamHandler(sse(created, completed)), func(o *Options) { o.MaxRequestBytes, o.MaxInFlightBytes = 1<<20, 32<<20 })
	c := f.dial()
	input := fmt.Sprintf(`"input":%q`, strings.Repeat("x", 1<<20-100)) + notStored
	first := c.say("one", "", notStored)
	for range 20 {
		last := c.ask(input)
		if last.get("type") != "response.completed" {
			c.wantError(last, "Too Many Requests overloaded")
			break
		}
	}
	if last := c.ask(`"input":"x","previous_response_id":"` + first + `"` + notStored); last.get("type") != "response.completed" {
		t.Errorf("got %s", last.body)
	}
	_ = c.conn.CloseNow()
	f.awaitMemory(0)
}

// TestWebSocketStoresLargeConversation: a stored turn includes the turns that are not stored, and must not be too large for the store.
func TestWebSocketStoresLargeConversation(t *testing.T) {
	f := start(t, streamHandler(sse(created, completed)), func(o *Options) { o.MaxRequestBytes = 1000 })
	c := f.dial()
	text := strings.Repeat("x", 800)
	id := c.say(text, "", notStored)
	c.wantError(c.ask(fmt.Sprintf(`"input":%q,"previous_response_id":%q`, text, id)), "Bad Request session.snapshot.too_large")
	id = c.say(text, "", notStored)
	c.say(text, id, notStored)
}

// TestWebSocketLimitsWhatIsSent: of a turn that is not stored, only the items that the client sends and refers to are limited, whatever the
// connection remembers.
func TestWebSocketLimitsWhatIsSent(t *testing.T) {
	f := start(t, nil, func(o *Options) { o.MaxRequestBytes = 1000 })
	medium, large := f.create(`{"input":"`+strings.Repeat("x", 100)+`"}`), f.create(`{"input":"`+strings.Repeat("x", 400)+`"}`)
	reference := func(r reply) string { return `{"type":"item_reference","id":"` + r.get("output.0.id") + `"}` }
	for name, tc := range map[string]struct{ input, rest, want string }{
		"medium":             {reference(medium), notStored, ""},
		"medium, but stored": {reference(medium), "", "Request Entity Too Large request_too_large"},
		"large":              {reference(large), notStored, "Request Entity Too Large request_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			c := f.dial()
			id := c.say(strings.Repeat("y", 150), "", notStored)
			last := c.ask(`"input":[` + tc.input + `],"previous_response_id":"` + id + `"` + tc.rest)
			if got := last.code(); got != tc.want || got == "" && last.get("type") != "response.completed" {
				t.Errorf("got %s, want %s", last.body, tc.want)
			}
		})
	}
}

// TestWebSocketWarmUp checks that a warm-up reaches neither the engine nor the store, and that its input precedes that of a later turn.
func TestWebSocketWarmUp(t *testing.T) {
	f := start(t, nil)
	c := f.dial()
	c.send(`{"type":"response.create","model":"scripted","input":"one","generate":false}`)
	var kinds []string
	var last reply
	for _, m := range c.rest() {
		kinds = append(kinds, m.get("type")+" "+m.get("response.status"))
		last = m
	}
	want := []string{"response.created in_progress", "response.in_progress in_progress", "response.completed completed"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	id := last.get("response.id")
	if last.get("response.output.#") != "0" || last.get("response.usage.total_tokens") != "0" || f.sent.count() != 0 || f.saved(id) != nil {
		t.Errorf("got %s after %d requests to the engine", last.body, f.sent.count())
	}
	second := c.say("two", id, `,"generate":true`)
	if diff := cmp.Diff([]string{"one", "two"}, f.inputs()); diff != "" {
		t.Errorf("the engine's input (-want +got):\n%s", diff)
	}
	if body, _ := f.sent.last(); gjson.Get(body, "generate").Exists() || f.saved(second) == nil {
		t.Errorf("the engine got %s", body)
	}
}

// TestWebSocketWarmUpOfUnknown: a warm-up that continues what cannot be continued is refused, and not only the response after it.
func TestWebSocketWarmUpOfUnknown(t *testing.T) {
	f := start(t, nil)
	f.seed("resp_failed", "", "failed")
	c := f.dial()
	for previous, want := range map[string]string{"resp_none": "Bad Request previous_response_not_found", "resp_failed": "Bad Request session.chain.unavailable"} {
		c.wantError(c.ask(`"input":"a","generate":false,"previous_response_id":"`+previous+`"`), want)
	}
}

// TestTurnMemory checks that a memory holds exactly the turns that can be continued and those that they need.
func TestTurnMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := newSharedLimit(1<<20, "--flag", "units")
		m := turnMemory{share: limit.of("a")}
		for i := range rapid.IntRange(1, 100).Draw(t, "turns") {
			if len(m.turns) > 0 && rapid.Bool().Draw(t, "forget") {
				m.forget(rapid.SampledFrom(m.turns).Draw(t, "turn").id)
				continue
			}
			var parent *rememberedTurn
			if len(m.turns) > 0 && rapid.Bool().Draw(t, "continue") {
				parent = rapid.SampledFrom(m.turns).Draw(t, "parent")
			}
			items := rapid.SliceOfN(rapid.StringMatching(`\{\}|\{"a":1\}`), 0, 3).Draw(t, "items")
			if err := m.add(fmt.Sprint(i), parent, "", items); err != nil {
				t.Fatal(err)
			}
			needed := map[*rememberedTurn]int64{}
			for _, turn := range m.turns {
				total := int64(0)
				for ; turn != nil; turn = turn.parent {
					needed[turn] = turn.size
					total += turn.size
				}
			}
			want := int64(0)
			for _, size := range needed {
				want += size
			}
			if got := limit.budget.Used(); got != want || len(m.turns) > maxRemembered {
				t.Fatalf("%d turns hold %d bytes, want %d", len(m.turns), got, want)
			}
		}
	})
}
