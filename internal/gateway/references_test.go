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
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/store"
)

// itemEngine answers with an output item that has the ID msg_1, as one that begins to count again after each restart. It streams, too.
func itemEngine(outputs ...string) http.Handler {
	if len(outputs) == 0 {
		outputs = []string{`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"yes","annotations":[]}]}`}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		response := `{"status":"completed","output":[` + strings.Join(outputs, ",") + `]}`
		if !gjson.GetBytes(body, "stream").Bool() {
			_, _ = io.WriteString(w, response)
			return
		}
		events := []string{created}
		for i, output := range outputs {
			id := gjson.Get(output, "id").Raw
			events = append(events,
				fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, output),
				fmt.Sprintf(`{"type":"response.output_text.delta","output_index":%d,"item_id":%s,"content_index":0,"delta":"y"}`, i, id),
				fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, output))
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse(append(events, `{"type":"response.completed","response":`+response+`}`)...))
	})
}

const (
	userA, userB = `{"role":"user","content":"a"}`, `{"role":"user","content":[{"type":"input_text","text":"b"}]}`
	engineItem   = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"yes","annotations":[]}]}`
)

func reference(id string) string { return `{"type":"item_reference","id":"` + id + `"}` }

// ask sends an input without a previous response, and returns the response and the input that the engine got.
func (f *fixture) ask(items ...string) (response reply, engine string) {
	f.t.Helper()
	r := f.create(`{"input":[` + strings.Join(items, ",") + `]}`)
	sent, _ := f.sent.last()
	return r, gjson.Get(sent, "input").Raw
}

// TestArgumentsInOtherForm: a client that has parsed the arguments of a function sends them back in another form.
func TestArgumentsInOtherForm(t *testing.T) {
	const arguments, large = `"{\"city\": \"Bonn \\u00fc\", \"days\": 1.0}"`, `"{\"n\": 12345678901234567890}"`
	for name, tc := range map[string]struct {
		stored, sent string
		want         bool
	}{
		"same":                 {arguments, arguments, true},
		"another form":         {arguments, `"{\"city\":\"Bonn ü\",\"days\":1}"`, true},
		"another value":        {arguments, `"{\"city\":\"Bonn\",\"days\":1}"`, false},
		"not JSON":             {arguments, `"{\"city\":\"Bonn ü\",\"days\":1"`, false},
		"large number":         {large, large, true}, // as it is not compared as JSON
		"another large number": {large, `"{\"n\":12345678901234567891}"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, itemEngine(`{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":`+tc.stored+`}`))
			first, _ := f.ask(userA)
			callID := first.get("output.0.call_id")
			second, _ := f.ask(userA, `{"arguments":`+tc.sent+`,"name":"f","call_id":"`+callID+`","type":"function_call"}`,
				`{"type":"function_call_output","call_id":"`+callID+`","output":"rain"}`)
			saved := f.saved(second.get("id"))
			if got := saved.PreviousResponseID == first.get("id"); got != tc.want {
				t.Errorf("saved after %q: %s", saved.PreviousResponseID, saved.Request)
			}
		})
	}
}

// TestInputIsConversation: an input that begins with a stored conversation continues it, and only the rest is stored.
func TestInputIsConversation(t *testing.T) {
	for name, tc := range map[string]struct {
		// input is sent after the first turn, whose output has the ID that replaces OUT. Its input was userA.
		input        []string
		wantPrevious bool
		wantEngine   []string
		wantSaved    []string
	}{
		"by reference": {
			input: []string{userA, `{"type":"item_reference","id":"OUT"}`, userB}, wantPrevious: true,
			wantEngine: []string{userA, engineItem, userB}, wantSaved: []string{userB},
		},
		"by reference without a type": {
			input: []string{userA, `{"id":"OUT"}`, userB}, wantPrevious: true,
			wantEngine: []string{userA, engineItem, userB}, wantSaved: []string{userB},
		},
		"by value": {
			input: []string{`{"content":"a","role":"user"}`, strings.Replace(engineItem, "msg_1", "OUT", 1), userB}, wantPrevious: true,
			wantEngine: []string{userA, engineItem, userB}, wantSaved: []string{userB},
		},
		"by value, in another form": {
			input: []string{
				`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}`,
				`{"id":"OUT","role":"assistant","content":[{"type":"output_text","text":"yes","logprobs":null}]}`, userB,
			},
			wantPrevious: true, wantEngine: []string{userA, engineItem, userB}, wantSaved: []string{userB},
		},
		"nothing else": {
			input: []string{userA, `{"type":"item_reference","id":"OUT"}`}, wantPrevious: true,
			wantEngine: []string{userA, engineItem}, wantSaved: []string{},
		},
		"changed": {
			input:      []string{userA, strings.NewReplacer("msg_1", "OUT", "yes", "no").Replace(engineItem), userB},
			wantEngine: []string{userA, strings.Replace(engineItem, "yes", "no", 1), userB},
		},
		"other beginning": {
			input: []string{userB, `{"type":"item_reference","id":"OUT"}`, userB}, wantEngine: []string{userB, engineItem, userB},
		},
		"without the beginning": {
			input: []string{`{"type":"item_reference","id":"OUT"}`, userB}, wantEngine: []string{engineItem, userB},
		},
		"in another order": {
			input: []string{`{"type":"item_reference","id":"OUT"}`, userA}, wantEngine: []string{engineItem, userA},
		},
		"input item by reference": {
			input: []string{`{"type":"item_reference","id":"IN"}`, `{"type":"item_reference","id":"OUT"}`, userB}, wantPrevious: true,
			wantEngine: []string{userA, engineItem, userB}, wantSaved: []string{userB},
		},
		"by value without an ID": {
			input:      []string{userA, strings.Replace(engineItem, `"id":"msg_1",`, "", 1), userB},
			wantEngine: []string{userA, strings.Replace(engineItem, `"id":"msg_1",`, "", 1), userB},
		},
		"ID of the engine": {input: []string{userA, engineItem, userB}, wantEngine: []string{userA, engineItem, userB}},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, itemEngine())
			first, _ := f.ask(userA)
			replacer := strings.NewReplacer("OUT", first.get("output.0.id"), "IN", itemName{first.get("id"), 0}.id("message"))
			second, engine := f.ask(strings.Split(replacer.Replace(strings.Join(tc.input, "\n")), "\n")...)
			if diff := cmp.Diff("["+strings.Join(tc.wantEngine, ",")+"]", engine); diff != "" {
				t.Errorf("input of the engine (-want +got):\n%s", diff)
			}
			saved, wantPrevious, wantSaved := f.saved(second.get("id")), "", tc.wantSaved
			if tc.wantPrevious {
				wantPrevious = first.get("id")
			} else {
				wantSaved = tc.wantEngine
			}
			if saved.PreviousResponseID != wantPrevious {
				t.Errorf("saved after %q, want %q", saved.PreviousResponseID, wantPrevious)
			}
			var savedItems []string
			for _, item := range gjson.GetBytes(saved.Request, "input").Array() {
				savedItems = append(savedItems, forEngine(item.Raw))
			}
			if diff := cmp.Diff(strings.Join(wantSaved, ","), strings.Join(savedItems, ",")); diff != "" {
				t.Errorf("saved input (-want +got):\n%s", diff)
			}
			retrieved := f.do(http.MethodGet, "/v1/responses/"+second.get("id"), "")
			if retrieved.body != second.body || gjson.Get(second.body, "previous_response_id").Raw != "null" {
				t.Errorf("got %s, retrieved %s, want the same without a previous response", second.body, retrieved.body)
			}
		})
	}
}

// TestReferences: an item is found whichever turn it belongs to, unless this tenant was not given it.
func TestReferences(t *testing.T) {
	f := start(t, itemEngine(`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}`, engineItem), twoTenants(t))
	as := func(tenant, body string) reply {
		return f.do(http.MethodPost, "/v1/responses", body, "Authorization", "Bearer "+tenant)
	}
	first := as("a", `{"input":"a"}`)
	fork := as("a", fmt.Sprintf(`{"input":"b","previous_response_id":%q}`, first.get("id")))
	unstored := as("a", `{"input":"a","store":false}`)
	foreign := as("b", `{"input":"a"}`)
	deleted := as("a", `{"input":"a"}`)
	f.do(http.MethodDelete, "/v1/responses/"+deleted.get("id"), "", "Authorization", "Bearer a")
	if got := unstored.get("output.1.id"); got != "msg_1" {
		t.Errorf("an item that is not stored has the ID %q, want the engine's", got)
	}
	reasoning := `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}`
	for name, tc := range map[string]struct {
		previous string
		items    []string
		want     string
		wantCode int
	}{
		"item of another conversation": {items: []string{reference(fork.get("output.1.id")), reference(first.get("output.1.id"))}, want: engineItem + "," + engineItem},
		"reasoning":                    {items: []string{reference(first.get("output.0.id")), reference(first.get("output.1.id"))}, want: reasoning + "," + engineItem},
		"reasoning by value":           {items: []string{strings.Replace(reasoning, "rs_1", first.get("output.0.id"), 1), userB}, want: reasoning + "," + userB},
		"after a previous response": {
			previous: first.get("id"), items: []string{reference(fork.get("output.1.id")), reference(first.get("output.1.id"))},
			want: `{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},` + reasoning + "," + engineItem + "," + engineItem + "," + engineItem,
		},
		"not stored":        {items: []string{reference("msg_1")}, wantCode: 404},
		"of another tenant": {items: []string{reference(foreign.get("output.1.id"))}, wantCode: 404},
		"of a deleted turn": {items: []string{reference(deleted.get("output.1.id"))}, wantCode: 404},
		"of no turn":        {items: []string{reference("msg_0123_0")}, wantCode: 404},
		"invalid turn":      {items: []string{reference("msg_" + strings.Repeat("x", 600) + "_0")}, wantCode: 404},
		"beyond the turn":   {items: []string{reference(itemName{first.get("id"), 3}.id("message"))}, wantCode: 404},
		"one of two":        {items: []string{reference(first.get("output.1.id")), reference("msg_x_0")}, wantCode: 404},
		"by value, unknown": {items: []string{`{"type":"message","id":"msg_x_0","role":"user","content":"a"}`}, want: `{"type":"message","id":"msg_x_0","role":"user","content":"a"}`},
		"by value, of a deleted turn": {
			items: []string{strings.Replace(reasoning, "rs_1", deleted.get("output.0.id"), 1), userB}, want: strings.Replace(reasoning, `"id":"rs_1",`, "", 1) + "," + userB,
		},
		"by value, a number": {items: []string{`{"type":"message","id":7,"role":"user","content":"a"}`}, want: `{"type":"message","id":7,"role":"user","content":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := f.sent.count()
			r := as("a", fmt.Sprintf(`{"previous_response_id":%s,"input":[%s]}`, quoteOrNull(tc.previous), strings.Join(tc.items, ",")))
			if tc.wantCode != 0 {
				if r.status != tc.wantCode || !strings.Contains(r.get("error.message"), "not found") || r.get("error.param") != "input" || f.sent.count() != before {
					t.Errorf("got %d %s, want %d before the engine is asked", r.status, r.body, tc.wantCode)
				}
				return
			}
			sent, _ := f.sent.last()
			if diff := cmp.Diff("["+tc.want+"]", gjson.Get(sent, "input").Raw); diff != "" || r.status != http.StatusOK {
				t.Errorf("status %d, input of the engine (-want +got):\n%s", r.status, diff)
			}
		})
	}
}

// TestInputIsListedConversation: an input that begins with a conversation as the gateway lists it continues that.
func TestInputIsListedConversation(t *testing.T) {
	f := start(t, itemEngine())
	first, _ := f.ask(`{"role":"user","content":[{"type":"input_image","image_url":"https://example.com/a.png"}]}`)
	listed := f.do(http.MethodGet, "/v1/responses/"+first.get("id")+"/input_items", "").get("data.0")
	if gjson.Get(listed, "content.0.detail").Str != "auto" {
		t.Errorf("listed %s", listed)
	}
	second, _ := f.ask(listed, first.get("output.0"), userB)
	if saved := f.saved(second.get("id")); saved.PreviousResponseID != first.get("id") {
		t.Errorf("saved after %q with %s", saved.PreviousResponseID, saved.Request)
	}
}

func TestReferenceWithoutID(t *testing.T) {
	f := start(t, itemEngine())
	for _, item := range []string{`{"type":"item_reference"}`, `{"type":"item_reference","id":null}`, `{"id":1}`} {
		r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+userA+","+item+`]}`)
		if r.code() != "Bad Request missing_required_parameter" || r.get("error.param") != "input[1].id" {
			t.Errorf("%s: got %d %s", item, r.status, r.body)
		}
	}
}

// TestCalls: the IDs of calls show to which conversation a call and its output belong, and the engine gets its own.
func TestCalls(t *testing.T) {
	const call, output = `{"type":"function_call","call_id":"call_7","name":"f","arguments":"{}"}`, `{"type":"function_call_output","call_id":"call_7","output":"o"}`
	const approval = `{"type":"mcp_approval_request","id":"mcpr_1","server_label":"s","name":"n","arguments":"{}"}`
	hosted := []string{`{"type":"shell_call","id":"sh_1","call_id":"call_8"}`, `{"type":"shell_call_output","id":"sho_1","call_id":"call_8"}`}
	for _, stream := range []string{"false", "true"} {
		t.Run("stream="+stream, func(t *testing.T) {
			f := start(t, itemEngine(append(hosted, withMember(call, "id", `"fc_1"`), approval)...))
			first := f.create(`{"input":[` + userA + `],"stream":` + stream + `}`)
			if stream == "true" {
				all := events(first.body)
				if strings.Contains(strings.ReplaceAll(first.body, "call_7_-", ""), "call_7") {
					t.Errorf("the client received the engine's ID of the call: %s", first.body)
				}
				first = reply{body: gjson.Get(all[len(all)-1].body, "response").Raw}
			}
			id := first.get("output.2.call_id")
			if want := (itemName{first.get("id"), 3}).callID("call_7"); id != want {
				t.Fatalf("got the call ID %q, want %q", id, want)
			}
			if a, b := first.get("output.0.call_id"), first.get("output.1.call_id"); a != b || a != (itemName{first.get("id"), 1}).callID("call_8") {
				t.Errorf("the IDs of a call and its output in one response are %q and %q, want the same", a, b)
			}
			sent := []string{userA}
			for _, item := range gjson.Get(first.body, "output").Array() {
				sent = append(sent, withID(item.Raw, ""))
			}
			client := strings.NewReplacer(`"call_7"`, `"`+id+`"`)
			approved := `{"type":"mcp_approval_response","approve":true,"approval_request_id":"` + first.get("output.3.id") + `"}`
			second, engine := f.ask(append(sent, client.Replace(output), approved)...)
			want := strings.Join(slices.Concat([]string{userA}, hosted, []string{withMember(call, "id", `"fc_1"`), approval, output,
				`{"type":"mcp_approval_response","approve":true,"approval_request_id":"mcpr_1"}`}), ",")
			if diff := cmp.Diff("["+want+"]", engine); diff != "" {
				t.Errorf("input of the engine (-want +got):\n%s", diff)
			}
			if saved := f.saved(second.get("id")); saved.PreviousResponseID != first.get("id") {
				t.Errorf("saved after %q, want %q", saved.PreviousResponseID, first.get("id"))
			}
			listed := f.do(http.MethodGet, "/v1/responses/"+second.get("id")+"/input_items", "").body
			if strings.Count(listed, `"`+id+`"`) != 2 {
				t.Errorf("got %s, want the call and its output with the ID %s", listed, id)
			}
			// With a previous response, and without a conversation that the gateway knows.
			f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":[%s]}`, first.get("id"), client.Replace(output)))
			if body, _ := f.sent.last(); !strings.HasSuffix(gjson.Get(body, "input").Raw, output+"]") {
				t.Errorf("the engine received %s, want its own ID of the call", body)
			}
			if _, engine := f.ask(client.Replace(call), client.Replace(output)); engine != "["+call+","+output+"]" {
				t.Errorf("the engine received %s, want its own IDs of the call", engine)
			}
			unstored := f.create(`{"input":"a","store":false}`)
			if got := unstored.get("output.2.call_id"); got != "call_7" {
				t.Errorf("a call that is not stored has the ID %q, want the engine's", got)
			}
		})
	}
}

// TestApprovedConversation: a client that sends everything continues its conversation after it has approved a request.
func TestApprovedConversation(t *testing.T) {
	f := start(t, itemEngine(`{"type":"mcp_approval_request","id":"mcpr_1","server_label":"s","name":"n","arguments":"{}"}`))
	first, _ := f.ask(userA)
	request := first.get("output.0")
	approved := `{"type":"mcp_approval_response","approve":true,"approval_request_id":"` + gjson.Get(request, "id").Str + `"}`
	second, _ := f.ask(userA, request, approved)
	third, _ := f.ask(userA, request, approved, second.get("output.0"), userB)
	if saved := f.saved(third.get("id")); saved.PreviousResponseID != second.get("id") {
		t.Errorf("saved after %q, want %q", saved.PreviousResponseID, second.get("id"))
	}
}

// TestApprovalID: clients see one ID of a request for approval, in what answers it and in the call that follows, and the engine gets its own.
func TestApprovalID(t *testing.T) {
	const request, call = `{"type":"mcp_approval_request","id":"mcpr_1","server_label":"s","name":"n","arguments":"{}"}`,
		`{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"n","arguments":"{}","approval_request_id":"mcpr_1"}`
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%t", stream), func(t *testing.T) {
			outputs := []string{request}
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { itemEngine(outputs...).ServeHTTP(w, r) }))
			ask := func(previous, input string) (reply, string) {
				created := f.create(fmt.Sprintf(`{"previous_response_id":%s,"input":[%s],"stream":%t}`, quoteOrNull(previous), input, stream))
				for _, id := range idsIn(created.body, approvalMember) {
					if !strings.HasPrefix(id, "mcpr_") || id == "mcpr_1" || isMarked(id) {
						t.Errorf("got the ID %q in %s", id, created.body)
					}
				}
				sent, _ := f.sent.last()
				return created.last(), sent
			}
			first, _ := ask("", userA)
			id := first.get("output.0.id")
			outputs = []string{call}
			second, sent := ask(first.get("id"), `{"type":"mcp_approval_response","approve":true,"approval_request_id":"`+id+`"}`)
			if got := second.get("output.0." + approvalMember); got != id {
				t.Errorf("the call has the request %q, want %q", got, id)
			}
			outputs = nil
			third, again := ask(second.get("id"), userB)
			if want := strings.TrimSuffix(gjson.Get(sent, "input").Raw, "]") + "," + call + "," + userB + "]"; gjson.Get(again, "input").Raw != want {
				t.Errorf("the engine got %s, want %s", again, want)
			}
			if got := idsIn(sent, approvalMember); len(got) != 1 || got[0] != "mcpr_1" {
				t.Errorf("the engine got %s, want its own ID", sent)
			}
			listed := f.do(http.MethodGet, "/v1/responses/"+third.get("id")+"/input_items", "").body
			if diff := cmp.Diff([]string{id, id}, idsIn(listed, approvalMember)); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
			if got := f.do(http.MethodGet, "/v1/responses/"+second.get("id"), ""); got.get("output.0."+approvalMember) != id {
				t.Errorf("retrieved %s", got.body)
			}
		})
	}
}

// idsIn returns the values of a member in a text.
func idsIn(text, member string) (ids []string) {
	for _, match := range regexp.MustCompile(`"`+member+`":"([^"]*)"`).FindAllStringSubmatch(text, -1) {
		ids = append(ids, match[1])
	}
	return ids
}

// TestReferenceToLongConversation: a reference to an item costs the same, however long the conversation is to which the item belongs.
func TestReferenceToLongConversation(t *testing.T) {
	f := start(t, nil)
	var last reply
	for range 5 {
		last = f.create(fmt.Sprintf(`{"input":"a","previous_response_id":%s}`, quoteOrNull(last.get("id"))))
	}
	before := f.store.resolved.Load()
	f.create(`{"input":[` + reference(last.get("output.0.id")) + "," + userB + `]}`)
	if got := f.store.resolved.Load() - before; got > 2 {
		t.Errorf("resolved %d items for an input of 2", got)
	}
}

// TestReferencesAreRepeated: a request with an Idempotency-Key may be repeated although its input is not stored as it was sent.
func TestReferencesAreRepeated(t *testing.T) {
	f := start(t, itemEngine())
	first, _ := f.ask(userA)
	body := `{"input":[` + userA + "," + reference(first.get("output.0.id")) + "," + userB + `]}`
	second := f.create(body, "Idempotency-Key", "k")
	again := f.create(body, "Idempotency-Key", "k")
	if second.body != again.body || f.sent.count() != 2 {
		t.Errorf("got %s and %s from %d runs of the engine, want the same from 2", second.body, again.body, f.sent.count())
	}
	stream := f.create(strings.Replace(body, "{", `{"stream":true,`, 1), "Idempotency-Key", "s")
	replay := f.create(strings.Replace(body, "{", `{"stream":true,`, 1), "Idempotency-Key", "s")
	last := func(r reply) string { all := events(r.body); return all[len(all)-1].body }
	if gjson.Get(last(stream), "response").Raw != gjson.Get(last(replay), "response").Raw {
		t.Errorf("streamed %s, and again %s", last(stream), last(replay))
	}
}

// TestRepeatAfterReferencesAreDeleted: a repeated request gets its response although turns that it names are gone.
func TestRepeatAfterReferencesAreDeleted(t *testing.T) {
	f := start(t, itemEngine())
	named, _ := f.ask(userA)
	previous, _ := f.ask(userB)
	reference, value := reference(named.get("output.0.id")), strings.Replace(named.get("output.0"), "{", `{"x":1,`, 1)
	for name, tc := range map[string]struct{ body, want string }{
		"reference":              {`{"input":[` + userB + "," + reference + `]}`, "OK"},
		"value":                  {`{"input":[` + userB + "," + value + `]}`, "OK"},
		"after a previous":       {`{"input":[` + reference + `],"previous_response_id":"` + previous.get("id") + `"}`, "OK"},
		"other item":             {`{"input":[` + userB + "," + reference + `]}`, "Not Found"},
		"conversation continued": {`{"input":[` + userA + "," + reference + `]}`, "Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			first := f.create(tc.body, "Idempotency-Key", name)
			for _, r := range []reply{named, previous} {
				turn := f.saved(r.get("id"))
				f.do(http.MethodDelete, "/v1/responses/"+r.get("id"), "")
				defer func() {
					turn.Version = ""
					if err := f.store.next.InNamespace("default").Save(t.Context(), turn, store.SaveOptions{}); err != nil {
						t.Error(err)
					}
				}()
			}
			body := tc.body
			if name == "other item" {
				body = strings.Replace(body, "_1\"", "_7\"", 1)
			}
			again := f.do(http.MethodPost, "/v1/responses", body, "Idempotency-Key", name)
			if got := again.code(); got != tc.want || got == "OK" && again.body != first.body {
				t.Errorf("got %s %s, want %s %s", got, again.body, tc.want, first.body)
			}
			if r := f.do(http.MethodPost, "/v1/responses", tc.body); name == "reference" && r.code() != "Not Found" {
				t.Errorf("without a key: got %s", r.code())
			}
		})
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+reference+`],"previous_response_id":"resp_none"}`, "Idempotency-Key", "new"); r.code() != "Bad Request previous_response_not_found" {
		t.Errorf("got %s for a request that was not sent before", r.body)
	}
}

// TestReferencesAreLimited: what a request refers to counts as a part of it, and other turns are read only up to a limit.
func TestReferencesAreLimited(t *testing.T) {
	f := start(t, itemEngine(), func(o *Options) { o.MaxRequestBytes = 100 << 10 })
	f.seedLarge("resp_large", 60<<10)
	large := reference(itemName{"resp_large", 0}.id("message"))
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+userB+","+large+`]}`); r.status != http.StatusOK {
		t.Errorf("got %d %s for one large item", r.status, r.body)
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+userB+","+large+","+large+`]}`); r.code() != "Request Entity Too Large request_too_large" {
		t.Errorf("got %d %s for two large items", r.status, r.body)
	}
	var references []string
	for i := range maxReads + maxCandidates + 1 {
		f.seed(fmt.Sprintf("resp_%d", i), "", "completed")
		references = append(references, reference(itemName{fmt.Sprintf("resp_%d", i), 0}.id("message")))
	}
	// The last ones name the conversations that the request may continue, which are read anyway.
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+strings.Join(references[1:], ",")+`]}`); r.status != http.StatusOK {
		t.Errorf("got %d %s for %d turns", r.status, r.body, len(references)-1)
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+strings.Join(references, ",")+`]}`); r.code() != "Bad Request too_many_references" {
		t.Errorf("got %d %s for %d turns", r.status, r.body, len(references))
	}
	if held := f.gateway.memory.budget.Used(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// TestStreamItemIDs: the events of a stream, its response and later requests all have the same IDs, whatever the engine numbers.
func TestStreamItemIDs(t *testing.T) {
	other := strings.Replace(engineItem, "msg_1", "msg_2", 1)
	for name, change := range map[string]func(stream string) string{
		"as documented":           func(stream string) string { return stream },
		"one index for all items": func(stream string) string { return strings.ReplaceAll(stream, `"output_index":1`, `"output_index":0`) },
		"no indexes": func(stream string) string {
			return strings.NewReplacer(`"output_index":0,`, "", `"output_index":1,`, "").Replace(stream)
		},
		"index that is no position": func(stream string) string {
			return strings.ReplaceAll(stream, `"output_index":1`, `"output_index":1e99`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stream strings.Builder
			engine := itemEngine(engineItem, other)
			f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				stream.Reset()
				engine.ServeHTTP(&textWriter{w, &stream}, r)
				_, _ = io.WriteString(w, change(stream.String()))
			}))
			r := f.create(`{"input":[` + userA + "," + userB + `],"stream":true}`)
			all := events(r.body)
			last := all[len(all)-1]
			want := []string{itemName{last.get("response.id"), 2}.id("message"), itemName{last.get("response.id"), 3}.id("message")}
			for i, wantID := range want {
				if got := last.get(fmt.Sprintf("response.output.%d.id", i)); got != wantID {
					t.Errorf("item %d of the response has the ID %q, want %q", i, got, wantID)
				}
			}
			var got []string
			for _, e := range all {
				if id := e.get("item_id") + e.get("item.id"); id != "" {
					got = append(got, id)
				}
			}
			if diff := cmp.Diff(slices.Concat(slices.Repeat(want[:1], 3), slices.Repeat(want[1:], 3)), got); diff != "" {
				t.Errorf("IDs in the events (-want +got):\n%s", diff)
			}
			if stored := string(f.saved(last.get("response.id")).Response); !strings.Contains(stored, `"msg_2"`) || strings.Contains(stored, want[0]) {
				t.Errorf("saved %s, want the engine's IDs", stored)
			}
		})
	}
}

// textWriter collects what is written.
type textWriter struct {
	http.ResponseWriter
	text *strings.Builder
}

func (w *textWriter) Write(p []byte) (int, error) { return w.text.Write(p) }

func (w *textWriter) WriteString(s string) (int, error) { return w.text.WriteString(s) }

// TestClientsSendEverything: clients that send all they have seen, by reference or by value, have the conversations of a reference that
// knows what was said. The engine numbers its items, and all have the same few IDs.
func TestClientsSendEverything(t *testing.T) {
	var answers atomic.Int64
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := answers.Add(1)
		_, _ = fmt.Fprintf(w, `{"status":"completed","output":[{"type":"function_call","id":"fc_%d","call_id":"call_%d","name":"f","arguments":"{}","status":"completed"},`+
			`{"type":"message","id":"msg_%d","role":"assistant","status":"completed","content":[{"type":"output_text","text":"answer %d","annotations":[],"logprobs":[]}]}]}`, n%2, n, n%3, n)
	}))
	// node is a turn: its items as the client has seen them, and as the engine has.
	type node struct {
		id             string
		client, engine []string
		lengths        map[string]int // how many of the items those of the turn and of each turn before it are
	}
	rapid.Check(t, func(t *rapid.T) {
		nodes := []node{{lengths: map[string]int{}}}
		for i := range rapid.IntRange(1, 8).Draw(t, "turns") {
			parent := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "parent")]
			input, wantEngine := slices.Clone(parent.client), slices.Clone(parent.engine)
			for j, item := range input {
				id := gjson.Get(item, "id").Str
				switch rapid.SampledFrom([]string{"by value", "by reference", "without its ID"}).Draw(t, "sent") {
				case "by reference":
					if id != "" {
						input[j] = reference(id)
					}
				case "without its ID":
					if gjson.Get(item, "type").Str == "function_call" {
						input[j] = withID(item, "")
					}
				}
			}
			wantPrevious, dropped := parent.id, math.MaxInt
			client := slices.Clone(parent.client)
			if len(input) > 0 && rapid.IntRange(0, 4).Draw(t, "drop") == 0 {
				j := rapid.IntRange(0, len(input)-1).Draw(t, "dropped")
				input, client, wantEngine, dropped = slices.Delete(input, j, j+1), slices.Delete(client, j, j+1), slices.Delete(wantEngine, j, j+1), j
			}
			own := fmt.Sprintf(`{"role":"user","content":"question %d"}`, i)
			input, wantEngine = append(input, own), append(wantEngine, own)
			r := f.create(`{"input":[` + strings.Join(input, ",") + `]}`)
			sent, _ := f.sent.last()
			saved := f.saved(r.get("id"))
			if dropped < math.MaxInt {
				// It continues the last turn that it names and that has only items before the one that was dropped, of three.
				wantPrevious = ""
				for _, id := range slices.Backward(candidatesOf(parseInput("["+strings.Join(input, ",")+"]", 0))) {
					if length, found := parent.lengths[id]; found && length <= dropped {
						wantPrevious = id
					}
				}
				continued := parent.lengths[wantPrevious]
				for j, item := range input[continued:] {
					if !gjson.Get(item, "id").Exists() && j+continued < len(client) {
						wantEngine[j+continued], client[j+continued] = withID(wantEngine[j+continued], ""), withID(client[j+continued], "")
					}
				}
			}
			if diff := cmp.Diff("["+strings.Join(wantEngine, ",")+"]", gjson.Get(sent, "input").Raw); diff != "" {
				t.Fatalf("input of the engine (-want +got):\n%s", diff)
			}
			if saved.PreviousResponseID != wantPrevious {
				t.Fatalf("saved after %q, want %q", saved.PreviousResponseID, wantPrevious)
			}
			next := node{id: r.get("id"), client: append(client, own), engine: wantEngine, lengths: maps.Clone(parent.lengths)}
			if wantPrevious != parent.id {
				maps.DeleteFunc(next.lengths, func(_ string, length int) bool { return length > parent.lengths[wantPrevious] })
			}
			for k := range 2 {
				next.client = append(next.client, gjson.Get(r.body, fmt.Sprintf("output.%d", k)).Raw)
				next.engine = append(next.engine, forEngine(gjson.GetBytes(saved.Response, fmt.Sprintf("output.%d", k)).Raw))
			}
			next.lengths[next.id] = len(next.client)
			nodes = append(nodes, next)
		}
	})
}

// TestKeysOfOtherConversations: a key is not repeated for the same rest of another conversation.
func TestKeysOfOtherConversations(t *testing.T) {
	f := start(t, itemEngine())
	first, _ := f.ask(userA)
	other, _ := f.ask(userB)
	rest := `{"role":"user","content":"go on"}`
	f.create(`{"input":[`+userA+","+reference(first.get("output.0.id"))+","+rest+`]}`, "Idempotency-Key", "k")
	for _, input := range []string{userB + "," + reference(other.get("output.0.id")) + "," + rest, rest} {
		r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+input+`]}`, "Idempotency-Key", "k")
		if r.code() != "Conflict idempotency_key_reused" {
			t.Errorf("%s: got %d %s", input, r.status, r.body)
		}
	}
}

// TestReferencesToUnfinishedStream: the items of a stream that broke keep their IDs, whether they were finished or not.
func TestReferencesToUnfinishedStream(t *testing.T) {
	item := func(kind, id, index string) string {
		return `{"type":"` + kind + `","output_index":` + index + `,"item":{"type":"function_call","id":"` + id + `","call_id":"call_` + id + `","name":"f","arguments":"{}"}}`
	}
	broken := true
	f := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken {
			streamHandler(sse(created, item(eventItemAdded, "a", "0"), item(eventItemAdded, "b", "1"), item(eventItemDone, "b", "1"))).ServeHTTP(w, r)
			return
		}
		itemEngine().ServeHTTP(w, r)
	}))
	var ids []string
	for _, e := range events(f.create(`{"input":"x","stream":true}`).body) {
		if id := e.get("item.id"); id != "" && e.get("type") == eventItemAdded {
			ids = append(ids, id)
		}
	}
	broken = false
	_, engine := f.ask(reference(ids[1]), reference(ids[0]))
	if got, want := gjson.Get(engine, "#.id").Raw, `["b","a"]`; got != want {
		t.Errorf("the engine received the items %s, want %s", got, want)
	}
	if got := gjson.Get(engine, "1.status").Str; got != "incomplete" {
		t.Errorf("the item that was not finished is %q: %s", got, engine)
	}
}

// TestReferencesAfterBreak: a client that goes on after a turn that cannot be continued, or without an item, does not cause more reads
// with each turn, and stores only what is new.
func TestReferencesAfterBreak(t *testing.T) {
	f := start(t, itemEngine())
	var input []string
	turn := func() *store.Session {
		input = append(input, fmt.Sprintf(`{"role":"user","content":"%d"}`, len(input)))
		r, _ := f.ask(input...)
		input = append(input, reference(r.get("output.0.id")))
		return f.saved(r.get("id"))
	}
	for range 5 {
		turn()
	}
	cancelled := turn()
	cancelled.Status = store.StatusCancelled
	if err := f.store.next.InNamespace("default").Save(t.Context(), cancelled, store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	reads := 0
	f.store.onGet = func() error { reads++; return nil }
	f.store.onResolve = func(context.Context) error { reads++; return nil }
	next := turn()
	if next.PreviousResponseID != cancelled.PreviousResponseID || gjson.GetBytes(next.Request, "input.#").Int() != 3 || reads > 10 {
		t.Errorf("saved after %q, want %q, with %d reads: %s", next.PreviousResponseID, cancelled.PreviousResponseID, reads, next.Request)
	}
	previous := next.ResponseID
	for range 5 {
		reads = 0
		next := turn()
		if next.PreviousResponseID != previous || gjson.GetBytes(next.Request, "input.#").Int() != 1 || reads != 1 {
			t.Errorf("saved after %q, want %q, with %d reads: %s", next.PreviousResponseID, previous, reads, next.Request)
		}
		previous = next.ResponseID
	}
}

// TestReferencesInOtherForms: what parsers read in different ways is read as the engine's parser would, and is not stored as a reference.
func TestReferencesInOtherForms(t *testing.T) {
	f := start(t, itemEngine())
	first, _ := f.ask(userA)
	id := first.get("output.0.id")
	for name, tc := range map[string]struct{ item, want string }{
		"escaped":                {`{"\u0074ype":"item\u005freference","\u0069d":"` + id + `"}`, engineItem},
		"repeated type":          {`{"type":"message","type":"item_reference","id":"` + id + `"}`, engineItem},
		"only its type":          {`{"type":"message","id":"` + id + `"}`, engineItem},
		"escaped, unknown":       {`{"\u0074ype":"item\u005freference","\u0069d":"msg_none"}`, ""},
		"repeated type, unknown": {`{"type":"message","type":"item_reference","id":"msg_none"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+userB+","+tc.item+`]}`)
			if tc.want == "" {
				if r.status != http.StatusNotFound {
					t.Errorf("got %d %s, want 404", r.status, r.body)
				}
				return
			}
			sent, _ := f.sent.last()
			if got, want := gjson.Get(sent, "input").Raw, "["+userB+","+tc.want+"]"; got != want {
				t.Errorf("the engine received %s, want %s", got, want)
			}
		})
	}
}

// TestReferencesIntoBrokenConversations: an item is found although its conversation cannot be continued, and IDs that look like those of the
// gateway do no harm.
func TestReferencesIntoBrokenConversations(t *testing.T) {
	f := start(t, itemEngine())
	f.seed("resp_gone_parent", "resp_gone", "completed")
	f.seed("resp_pending", "", "in_progress")
	f.seed("resp_after_pending", "resp_pending", "completed")
	f.seed("resp_failed", "", "failed")
	for _, id := range []string{"resp_gone_parent", "resp_pending", "resp_after_pending", "resp_failed"} {
		if _, engine := f.ask(reference(itemName{id, 1}.id("message"))); !strings.Contains(engine, "answer of "+id) {
			t.Errorf("%s: the engine received %s", id, engine)
		}
	}
	first, _ := f.ask(userA)
	second, _ := f.ask(userA, reference(first.get("output.0.id")), `{"type":"message","id":"msg_mine_1","role":"user","content":"x"}`)
	if got := f.saved(second.get("id")).PreviousResponseID; got != first.get("id") {
		t.Errorf("saved after %q, want %q", got, first.get("id"))
	}
	var foreign []string
	for i := range maxReads + 10 {
		foreign = append(foreign, fmt.Sprintf(`{"type":"message","id":"msg_x%d_0","role":"user","content":"x"}`, i))
	}
	if _, engine := f.ask(foreign...); engine != "["+strings.Join(foreign, ",")+"]" {
		t.Errorf("the engine received %.200s", engine)
	}
}

// TestStoreWithoutOrigins: a store that does not say which turns items belong to loses nothing.
func TestStoreWithoutOrigins(t *testing.T) {
	f := start(t, itemEngine())
	f.store.withoutOrigins = true
	first, _ := f.ask(userA)
	id := first.get("output.0.id")
	if _, engine := f.ask(userA, reference(id), userB); engine != "["+userA+","+engineItem+","+userB+"]" {
		t.Errorf("the engine received %s", engine)
	}
	second := f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":[%s]}`, first.get("id"), reference(id)))
	if r := f.do(http.MethodGet, "/v1/responses/"+second.get("id")+"/input_items", ""); r.code() != "Internal Server Error internal_error" {
		t.Errorf("got %d %s for the input items, want an error", r.status, r.body)
	}
}
