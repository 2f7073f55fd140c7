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
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

const conv = "conv_1"

// startConversation starts two gateways with one store, which has a conversation, and one engine.
func startConversation(t *testing.T, upstream http.Handler, changes ...func(*Options)) (f, replica *fixture) {
	t.Helper()
	f = start(t, upstream, changes...)
	replica = start(t, f.sent, append(changes, func(o *Options) { o.Store = f.store.open() })...)
	if _, err := f.conversations().Create(t.Context(), &store.Conversation{ConversationID: conv}); err != nil {
		t.Fatal(err)
	}
	return f, replica
}

func (f *fixture) conversations() *store.Conversations {
	return f.store.next.InNamespace("default").Conversations()
}

// TestMetadataOfOthers: metadata that others than gateways have written has only strings, as with OpenAI.
func TestMetadataOfOthers(t *testing.T) {
	f := start(t, nil)
	metadata := json.RawMessage(`{"paid":true,"topic":"a \"b\"","more":{"c":"d"}}`)
	if _, err := f.conversations().Create(t.Context(), &store.Conversation{ConversationID: "conv_others", Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	want := `{"paid":"true","topic":"a \"b\"","more":"{\"c\":\"d\"}"}`
	if diff := cmp.Diff(want, f.do(http.MethodGet, "/v1/conversations/conv_others", "").get("metadata")); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// turns returns the response IDs of a conversation.
func (f *fixture) turns(conversation string) []string {
	f.t.Helper()
	h, err := f.conversations().Load(f.t.Context(), conversation, store.ResolveOptions{IncludeIncomplete: true})
	if err != nil {
		f.t.Fatal(err)
	}
	return append([]string{}, h.Turns...)
}

// last returns the response of a reply, which may be a stream.
func (r reply) last() reply {
	if all := events(r.body); len(all) > 0 {
		return reply{r.status, r.header, all[len(all)-1].get("response")}
	}
	return r
}

// TestConversationTurns holds a conversation by its name over two gateways.
func TestConversationTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		member string
		stream bool
	}{
		"ID":         {`"conv_1"`, false},
		"object":     {`{"id":"conv_1"}`, false},
		"as streams": {`"conv_1"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, replica := startConversation(t, nil)
			var ids []string
			for i, g := range []*fixture{f, replica, f} {
				created := g.create(fmt.Sprintf(`{"conversation":%s,"input":"input %d","stream":%t}`, tc.member, i, tc.stream))
				for _, e := range events(created.body) {
					if response := gjson.Get(e.body, "response"); response.Exists() && response.Get("conversation").Raw != `{"id":"conv_1"}` {
						t.Errorf("got %s, want the conversation in each response", e.body)
					}
				}
				r := created.last()
				if want := fmt.Sprintf("You said %d things, from 'input 0' to 'input %d'.", i+1, i); r.get("output.0.content.0.text") != want {
					t.Errorf("got %s, want %q", r.body, want)
				}
				if r.get("conversation") != `{"id":"conv_1"}` || gjson.Get(r.body, "previous_response_id").Raw != "null" {
					t.Errorf("got %s, want the conversation, and no previous response", r.body)
				}
				if sent, _ := f.sent.last(); gjson.Get(sent, "conversation").Exists() {
					t.Errorf("the engine got %s", sent)
				}
				ids = append(ids, r.get("id"))
				if got := g.do(http.MethodGet, "/v1/responses/"+ids[i], ""); got.body != r.body {
					t.Errorf("retrieved %s, created %s", got.body, r.body)
				}
				saved, wantPrevious := f.saved(ids[i]), ""
				if i > 0 {
					wantPrevious = ids[i-1]
				}
				if saved.PreviousResponseID != wantPrevious || saved.ConversationID != conv {
					t.Errorf("saved after %q in %q", saved.PreviousResponseID, saved.ConversationID)
				}
			}
			if diff := cmp.Diff(ids, f.turns(conv)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			// The conversation can also be continued by its last turn, which leaves it as it is.
			f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":"branch"}`, ids[2]))
			if diff := cmp.Diff(ids, f.turns(conv)); diff != "" {
				t.Errorf("turns after a branch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConversationLocked: while a turn is created, another one is refused at once, on every gateway.
func TestConversationLocked(t *testing.T) {
	finish := make(chan struct{})
	f, replica := startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streamHandler(sse(created)).ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
		<-finish
		_, _ = io.WriteString(w, sse(completed))
	}))
	const body = `{"conversation":"conv_1","input":"a","stream":true}`
	const want = `{"message":"Another process is currently operating on this conversation. Please retry in a few seconds.",` +
		`"type":"invalid_request_error","param":"conversation","code":"conversation_locked"}`
	for range 2 {
		running := f.open(t.Context(), body)
		nextData(running)
		for _, g := range []*fixture{f, replica} {
			if r := g.do(http.MethodPost, "/v1/responses", body); r.status != 400 || r.get("error") != want {
				t.Errorf("got %d %s", r.status, r.body)
			}
		}
		finish <- struct{}{}
		if got := nextData(running); got.get("type") != "response.completed" {
			t.Fatalf("got %s", got.body)
		}
	}
	if got := f.turns(conv); len(got) != 2 || f.sent.count() != 2 {
		t.Errorf("got the turns %v and %d runs of the engine, want 2", got, f.sent.count())
	}
}

// TestConversationReleased: a turn that fails is not part of the conversation, which can be continued as soon as the client knows.
func TestConversationReleased(t *testing.T) {
	save := func(err error) func(*fixture) {
		return func(f *fixture) {
			f.store.onSave = func(context.Context, *store.Session, func() error) error { return err }
		}
	}
	const stream = `,"stream":true`
	for name, tc := range map[string]struct {
		engine  http.Handler
		prepare func(*fixture)
		members string
		want    string // the code of the error, or the status of the response
	}{
		"the engine refuses":            {engine: jsonHandler(http.StatusBadRequest, `{"error":{"code":"context_length_exceeded"}}`), want: "Bad Request context_length_exceeded"},
		"the engine fails":              {engine: jsonHandler(http.StatusInternalServerError, `{"error":{}}`), want: "Internal Server Error"},
		"not a response":                {engine: jsonHandler(http.StatusOK, `{}`), want: "Bad Gateway upstream_invalid_response"},
		"failed":                        {engine: jsonHandler(http.StatusOK, `{"status":"failed","output":[]}`), want: "failed"},
		"cancelled":                     {engine: jsonHandler(http.StatusOK, `{"status":"cancelled","output":[]}`), want: "cancelled"},
		"stream, failed":                {engine: streamHandler(sse(created, `{"type":"response.failed","response":{"output":[]}}`)), members: stream, want: "failed"},
		"stream, error":                 {engine: streamHandler(sse(created, `{"type":"error"}`, `{"type":"response.failed","response":{"status":"failed","output":[]}}`)), members: stream, want: "failed"},
		"stream, broken":                {engine: streamHandler(sse(created, itemDone)), members: stream, want: "failed"},
		"the store does not accept it":  {engine: jsonHandler(http.StatusOK, `{"status":"completed","output":[]}`), prepare: save(&store.Error{Code: store.CodeTooLarge}), want: "Internal Server Error session.snapshot.too_large"},
		"stream, quota":                 {engine: streamHandler(sse(created, completed)), prepare: save(&store.Error{Code: store.CodeQuotaExceeded}), members: stream, want: "failed"},
		"the input has an unknown item": {members: `,"input":[{"type":"item_reference","id":"msg_0"}]`, want: "Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			f, replica := startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				engine := enginetest.Handler()
				if requests.Add(1) == 2 {
					engine = tc.engine
				}
				engine.ServeHTTP(w, r)
			}))
			first := f.create(`{"conversation":"conv_1","input":"a"}`).get("id")
			if tc.prepare != nil {
				tc.prepare(f)
			}
			if !strings.Contains(tc.members, "input") {
				tc.members += `,"input":"b"`
			}
			r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1"`+tc.members+`}`)
			if got := r.last(); r.code() != tc.want && got.get("status") != tc.want {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			} else if id := got.get("id"); id != "" && f.saved(id) != nil {
				t.Error("the turn is stored")
			}
			if tc.engine == nil {
				requests.Add(1)
			}
			f.store.onSave = nil
			next := replica.create(`{"conversation":"conv_1","input":"c"}`)
			if got, want := next.get("output.0.content.0.text"), "You said 2 things, from 'a' to 'c'."; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if diff := cmp.Diff([]string{first, next.get("id")}, f.turns(conv)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConversationReleasedFirst: when the client receives the end of a stream that failed, the conversation can be continued.
func TestConversationReleasedFirst(t *testing.T) {
	steps := make(chan string)
	f, _ := startConversation(t, stepHandler(steps, make(chan struct{})))
	replica := start(t, nil, func(o *Options) { o.Store = f.store.open() })
	stream := f.open(t.Context(), `{"conversation":"conv_1","input":"a","stream":true}`)
	steps <- sse(created, `{"type":"response.failed","response":{"output":[]}}`)
	nextData(stream)
	if got := nextData(stream); got.get("type") != "response.failed" {
		t.Errorf("got %s", got.body)
	}
	replica.create(`{"conversation":"conv_1","input":"b"}`) // the engine has not closed its stream yet
}

// TestConversationContinuesReserved: a turn that is appended while a request is read is part of what the request continues.
func TestConversationContinuesReserved(t *testing.T) {
	f, _ := startConversation(t, nil)
	item := f.create(`{"conversation":"conv_1","input":"a"}`).get("output.0.id")
	f.store.onResolve = func(ctx context.Context) error {
		f.store.onResolve = nil
		_, err := f.conversations().Append(ctx, conv, testturn.Make("resp_between", ""), store.AppendOptions{})
		return err
	}
	r := f.create(`{"conversation":"conv_1","input":[{"type":"item_reference","id":"` + item + `"}]}`)
	if got := f.saved(r.get("id")).PreviousResponseID; got != "resp_between" {
		t.Errorf("saved after %q", got)
	}
	if sent, _ := f.sent.last(); gjson.Get(sent, "input.#").Int() != 5 {
		t.Errorf("the engine got %s, want two turns and the item", sent)
	}
}

// TestConversationIncomplete: a turn that was cut off is part of the conversation.
func TestConversationIncomplete(t *testing.T) {
	f, _ := startConversation(t, jsonHandler(http.StatusOK, `{"status":"incomplete","output":[{"type":"message","role":"assistant","content":"b"}]}`))
	first := f.create(`{"conversation":"conv_1","input":"a"}`)
	second := f.create(`{"conversation":"conv_1","input":"c"}`)
	if diff := cmp.Diff([]string{first.get("id"), second.get("id")}, f.turns(conv)); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if sent, _ := f.sent.last(); gjson.Get(sent, "input.#").Int() != 3 {
		t.Errorf("the engine got %s, want three items", sent)
	}
}

// TestConversationCalls: a turn that leaves calls of the last one without an output does not reach the engine, nor the conversation.
func TestConversationCalls(t *testing.T) {
	const asked = `{"items":[{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}]}`
	f, replica := startConversation(t, nil)
	f.create(`{"conversation":"conv_1","input":"before"}`)
	if r := f.do(http.MethodPost, "/v1/conversations/conv_1/items", asked); r.status != http.StatusOK {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	before := len(f.sent.bodies)
	for _, members := range []string{
		`"input":"hi"`, `"input":[{"type":"function_call_output","call_id":"call_2","output":"1"}]`, `"input":"hi","store":false`, `"input":"hi","stream":true`,
	} {
		r := replica.do(http.MethodPost, "/v1/responses", `{"model":"m","conversation":"conv_1",`+members+`}`)
		if want := "No tool output found for function call call_1."; r.status != http.StatusBadRequest || r.get("error.message") != want {
			t.Errorf("got %d %s, want %q", r.status, r.body, want)
		}
	}
	if sent := f.sent.bodies[before:]; len(sent) > 0 {
		t.Errorf("the engine got %s", sent)
	}
	f.create(`{"conversation":"conv_1","input":[{"type":"function_call_output","call_id":"call_1","output":"1"}]}`)
	f.create(`{"conversation":"conv_1","input":"next"}`)
	if got := len(f.turns(conv)); got != 4 {
		t.Errorf("the conversation has %d turns, want 4", got)
	}
}

// TestEarlierConversationCalls: a call without an output remains one, however many items follow it, or if its output was removed.
func TestEarlierConversationCalls(t *testing.T) {
	const path, asked = "/v1/conversations/conv_1/items", `{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}`
	const answered = `{"type":"function_call_output","call_id":"call_1","output":"1"}`
	f, replica := startConversation(t, nil)
	for _, item := range []string{asked, userMessage("a"), userMessage("b")} {
		f.do(http.MethodPost, path, `{"items":[`+item+`]}`)
	}
	wantRefused := func() {
		t.Helper()
		for _, g := range []*fixture{f, replica} {
			r := g.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"hi"}`)
			if want := "No tool output found for function call call_1."; r.status != http.StatusBadRequest || r.get("error.message") != want {
				t.Errorf("got %d %s, want %q", r.status, r.body, want)
			}
		}
	}
	wantRefused()
	output := f.do(http.MethodPost, path, `{"items":[`+answered+`]}`).itemIDs()[0]
	f.create(`{"conversation":"conv_1","input":"hi"}`)
	f.do(http.MethodDelete, path+"/"+output, "")
	wantRefused()
	f.create(`{"conversation":"conv_1","input":[` + answered + `]}`)
}

// TestConversationClientGone: if the client goes away, the conversation can be continued; if the engine is to finish nevertheless, it is part
// of the conversation.
func TestConversationClientGone(t *testing.T) {
	for name, want := range map[string]int{OnDisconnectCancel: 1, OnDisconnectFinish: 2} {
		t.Run(name, func(t *testing.T) {
			steps, saved := make(chan string), make(chan struct{}, 1)
			f := newFixture(t, stepHandler(steps, make(chan struct{})), func(o *Options) { o.OnDisconnect = name })
			replica := start(t, nil, func(o *Options) { o.Store = f.store.open() })
			if _, err := f.conversations().Create(t.Context(), &store.Conversation{ConversationID: conv}); err != nil {
				t.Fatal(err)
			}
			left := f.serveNoticing()
			ctx, leave := context.WithCancel(t.Context())
			stream := f.open(ctx, `{"conversation":"conv_1","input":"a","stream":true}`)
			steps <- sse(created)
			nextData(stream)
			f.store.onSave = func(_ context.Context, _ *store.Session, next func() error) error {
				defer func() { saved <- struct{}{} }()
				return next()
			}
			leave()
			<-left
			if name == OnDisconnectFinish {
				steps <- sse(completed)
				<-saved
			}
			f.eventually("the request has not ended", func() bool { return strings.Contains(f.log.String(), "msg=request ") })
			replica.create(`{"conversation":"conv_1","input":"b"}`)
			if got := f.turns(conv); len(got) != want {
				t.Errorf("got the turns %v, want %d", got, want)
			}
		})
	}
}

// TestConversationStoreFalse: a response that is not stored has the conversation before it, adds nothing to it, and does not lock it.
func TestConversationStoreFalse(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			f, _ := startConversation(t, nil)
			first := f.create(`{"conversation":"conv_1","input":"a"}`).get("id")
			reservation, err := f.conversations().Reserve(t.Context(), conv, "resp_running", store.ReserveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer reservation.Release(t.Context())
			r := f.create(fmt.Sprintf(`{"conversation":"conv_1","input":"b","store":false,"stream":%t}`, stream)).last()
			if got, want := r.get("output.0.content.0.text"), "You said 2 things, from 'a' to 'b'."; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if r.get("conversation.id") != conv || r.get("store") != "false" || gjson.Get(r.body, "previous_response_id").Raw != "null" || f.saved(r.get("id")) != nil {
				t.Errorf("got %s, want a response in the conversation that is not stored", r.body)
			}
			if diff := cmp.Diff([]string{first}, f.turns(conv)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConversationReferences: in a conversation, items are referred to as with a previous response, by value too.
func TestConversationReferences(t *testing.T) {
	f, _ := startConversation(t, nil)
	other := f.create(`{"input":"elsewhere"}`).get("output.0.id")
	asked := f.create(`{"conversation":"conv_1","input":"call weather {}"}`)
	call := asked.get("output.0")
	f.create(`{"conversation":"conv_1","input":[` + call + `,{"type":"function_call_output","call_id":"` + gjson.Get(call, "call_id").Str + `","output":"rain"},` +
		`{"type":"item_reference","id":"` + other + `"}]}`)
	sent, _ := f.sent.last()
	engineCall := "call_" // the scripted engine's ID has no name of an item behind it
	for _, id := range []string{"input.1.call_id", "input.2.call_id", "input.3.call_id"} {
		if got := gjson.Get(sent, id).Str; !strings.HasPrefix(got, engineCall) || isMarked(got) {
			t.Errorf("%s is %q in %s, want the engine's", id, got, sent)
		}
	}
	if got := gjson.Get(sent, "input.4.content.0.text").Str; got != "You said 1 things, from 'elsewhere' to 'elsewhere'." {
		t.Errorf("the engine got %s, want the other item at the end", sent)
	}
}

// TestConversationIsNotReplaced: input that begins with a stored conversation, be it this one, stays input.
func TestConversationIsNotReplaced(t *testing.T) {
	f, _ := startConversation(t, nil)
	for _, member := range []string{"", `"conversation":"conv_1",`} {
		before := f.create(`{` + member + `"input":"a"}`)
		items := f.do(http.MethodGet, "/v1/responses/"+before.get("id")+"/input_items", "").get("data.0") + "," + before.get("output.0")
		r := f.create(`{"conversation":"conv_1","input":[` + items + `,{"role":"user","content":"b"}]}`)
		if got := f.saved(r.get("id")); gjson.GetBytes(got.Request, "input.#").Int() != 3 {
			t.Errorf("saved %s, want three items", got.Request)
		}
		if _, err := f.conversations().Rollback(t.Context(), conv, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// TestConversationChanged: a turn that loses its place is not part of the conversation. Its client gets to know at once, and the engine stops,
// whether it is still running or the turn is being saved.
func TestConversationChanged(t *testing.T) {
	rollback := func(t *testing.T, f *fixture) {
		if _, err := f.conversations().Rollback(context.WithoutCancel(t.Context()), conv, ""); err != nil {
			t.Error(err)
		}
	}
	for name, tc := range map[string]struct {
		stream, running, finish bool
	}{
		"JSON, saving":                  {},
		"JSON, running":                 {running: true},
		"JSON, running and to finish":   {running: true, finish: true},
		"stream, saving":                {stream: true},
		"stream, running":               {stream: true, running: true},
		"stream, running and to finish": {stream: true, running: true, finish: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			f, _ = startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.running && tc.stream {
					streamHandler(sse(created)).ServeHTTP(w, r)
					_ = http.NewResponseController(w).Flush()
				}
				// The gateway learns of the new head when it renews the reservation.
				rollback(t, f)
				if tc.running {
					<-r.Context().Done()
					return
				}
				enginetest.Handler().ServeHTTP(w, r)
			}), func(o *Options) {
				if tc.finish {
					o.OnDisconnect = OnDisconnectFinish
				}
			})
			f.gateway.options.Reservation = time.Second
			f.store.onSave = func(ctx context.Context, _ *store.Session, _ func() error) error {
				<-ctx.Done() // the renewal ends the save
				return ctx.Err()
			}
			r := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"conversation":"conv_1","input":"a","stream":%t}`, tc.stream))
			if want := "Conflict session.store.conflict"; !tc.stream && (r.code() != want || r.get("error.param") != "conversation" || r.header.Get("X-Should-Retry") != "false") {
				t.Errorf("got %d %s %v, want %s", r.status, r.body, r.header, want)
			}
			if tc.stream && (r.last().get("status") != "failed" || !strings.Contains(r.last().get("error.message"), "session.store.conflict")) {
				t.Errorf("got %s", r.body)
			}
		})
	}
}

// TestConversationUnreachable: a response whose place could not be kept is not created in vain.
func TestConversationUnreachable(t *testing.T) {
	var f *fixture
	f, _ = startConversation(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		f.store.cutOff.Store(true)
		<-r.Context().Done()
	}))
	f.gateway.options.Reservation = time.Second
	r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"a"}`)
	if want := "Service Unavailable session.store.unreachable"; r.code() != want || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %s %v, want %s", r.status, r.body, r.header, want)
	}
}

// TestConversationArchived: an archived conversation is read, but not continued.
func TestConversationArchived(t *testing.T) {
	f, _ := startConversation(t, nil)
	if _, err := f.conversations().Archive(t.Context(), conv); err != nil {
		t.Fatal(err)
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"a"}`); r.code() != "Bad Request session.conversation.archived" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	f.create(`{"conversation":"conv_1","input":"a","store":false}`)
}

// TestConversationHeadDeleted: a conversation whose last turn is deleted goes on from the turn before it, at once and on every gateway.
func TestConversationHeadDeleted(t *testing.T) {
	f, replica := startConversation(t, nil)
	first := f.create(`{"conversation":"conv_1","input":"a"}`).get("id")
	second := f.create(`{"conversation":"conv_1","input":"b"}`).get("id")
	f.do(http.MethodDelete, "/v1/responses/"+second, "")
	if got := replica.create(`{"conversation":"conv_1","input":"c"}`).get("output.0.content.0.text"); got != "You said 2 things, from 'a' to 'c'." {
		t.Errorf("got %q", got)
	}
	third := f.turns(conv)[1]
	for _, id := range []string{third, first} {
		f.do(http.MethodDelete, "/v1/responses/"+id, "")
	}
	if got := replica.create(`{"conversation":"conv_1","input":"d"}`).get("output.0.content.0.text"); got != "You said 1 things, from 'd' to 'd'." {
		t.Errorf("without turns: got %q", got)
	}
	if _, err := f.conversations().Archive(t.Context(), conv); err != nil {
		t.Fatal(err)
	}
	if r := f.do(http.MethodDelete, "/v1/responses/"+f.turns(conv)[0], ""); r.status != http.StatusOK {
		t.Errorf("in an archived conversation: got %d %s", r.status, r.body)
	}
}

// TestLastTurnOfForkOfDeletedConversation: the last turn of a fork is not deleted while the turn before it may be deleted with the conversation
// that it was forked from: the fork could be left without a history.
func TestLastTurnOfForkOfDeletedConversation(t *testing.T) {
	f, _ := startConversation(t, nil)
	c := f.conversations()
	first := f.create(`{"conversation":"conv_1","input":"a"}`)
	if _, err := c.Fork(t.Context(), conv, "fork", store.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	second := f.create(`{"conversation":"fork","input":"b"}`)
	path := "/v1/responses/" + second.get("id")
	place, err := c.Reserve(t.Context(), conv, "resp_c", store.ReserveOptions{}) // so that the deletion waits
	if err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- c.Delete(t.Context(), conv, store.DeleteConversationOptions{Turns: true}) }()
	testutil.Eventually(t, func(ctx context.Context) error {
		current, err := c.Get(ctx, conv)
		if err == nil && current.State != store.ConversationDeleting {
			err = fmt.Errorf("the state is %s", current.State)
		}
		return err
	})
	if r := f.do(http.MethodDelete, path, ""); r.code() != "Conflict session.store.conflict" {
		t.Errorf("got %d %s, want a conflict", r.status, r.body)
	}
	place.Release(t.Context())
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{first.get("id"), second.get("id")}, f.turns("fork")); diff != "" {
		t.Errorf("turns of the fork (-want +got):\n%s", diff)
	}
	if r := f.do(http.MethodDelete, path, ""); r.status != http.StatusOK {
		t.Errorf("got %d %s after the deletion", r.status, r.body)
	}
	if diff := cmp.Diff([]string{first.get("id")}, f.turns("fork")); diff != "" {
		t.Errorf("turns of the fork (-want +got):\n%s", diff)
	}
}

// TestConversationBaseDeleted: if the last turn of a conversation is deleted while a response continues it, the response fails, and the
// conversation goes on from the turn before.
func TestConversationBaseDeleted(t *testing.T) {
	var f *fixture
	base := ""
	f, replica := startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := base; id != "" {
			base = ""
			if deleted := f.do(http.MethodDelete, "/v1/responses/"+id, ""); deleted.status != http.StatusOK {
				t.Errorf("got %d %s", deleted.status, deleted.body)
			}
			<-r.Context().Done()
			return
		}
		enginetest.Handler().ServeHTTP(w, r)
	}))
	f.gateway.options.Reservation = time.Second
	f.create(`{"conversation":"conv_1","input":"a"}`)
	base = f.create(`{"conversation":"conv_1","input":"b"}`).get("id")
	if r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"c"}`); r.code() != "Conflict session.store.conflict" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if got := replica.create(`{"conversation":"conv_1","input":"d"}`).get("output.0.content.0.text"); got != "You said 2 things, from 'a' to 'd'." {
		t.Errorf("got %q", got)
	}
}

// TestConversationBroken: a conversation of which an earlier turn was deleted cannot be continued.
func TestConversationBroken(t *testing.T) {
	f, _ := startConversation(t, nil)
	first := f.create(`{"conversation":"conv_1","input":"a"}`).get("id")
	second := f.create(`{"conversation":"conv_1","input":"b"}`).get("id")
	for _, id := range []string{first, second} {
		f.do(http.MethodDelete, "/v1/responses/"+id, "")
		for _, members := range []string{"", `,"store":false`} {
			r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"c"`+members+`}`)
			if r.code() != "Bad Request session.chain.not_found" || r.get("error.param") != "conversation" {
				t.Errorf("got %d %s", r.status, r.body)
			}
		}
	}
}
