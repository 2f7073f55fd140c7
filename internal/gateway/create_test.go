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
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
)

func TestFirstTurn(t *testing.T) {
	f := start(t, nil)
	body := `{"model":"scripted", "input":"hello","n":12345678901234567890,"z":1.0,"a":{"b":[1,2]},"store":true}`
	r := f.create(body, "Authorization", "Bearer secret-key", "X-Request-Id", "mine")

	sent, header := f.sent.last()
	want := `{"model":"scripted","input":"hello","n":12345678901234567890,"z":1.0,"a":{"b":[1,2]},"store":false}`
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent to the engine (-want +got):\n%s", diff)
	}
	if got := header.Get("Authorization"); got != "Bearer secret-key" {
		t.Errorf("the engine got the Authorization %q", got)
	}
	if got := r.header.Get("X-Request-Id"); got != "mine" {
		t.Errorf("x-request-id %q", got)
	}
	id := r.get("id")
	if !strings.HasPrefix(id, "resp_") || id != strings.ToLower(id) || id == "resp_scripted" {
		t.Errorf("id %q: want one of the gateway's own", id)
	}
	if gjson.Get(r.body, "previous_response_id").Raw != "null" || !gjson.Get(r.body, "store").Bool() {
		t.Errorf("previous_response_id or store is wrong: %s", r.body)
	}
	got := f.saved(id)
	wantSession := &store.Session{
		ResponseID: id, Status: "completed", Request: []byte(body), Response: []byte(r.body),
		CreatedAt: got.CreatedAt, CompletedAt: got.CompletedAt, Version: got.Version,
	}
	if diff := cmp.Diff(wantSession, got); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}
	if got.CreatedAt.Unix() != gjson.Get(r.body, "created_at").Int() || got.CompletedAt.IsZero() {
		t.Errorf("created at %v, completed at %v", got.CreatedAt, got.CompletedAt)
	}
	for _, secret := range []string{"hello", "secret-key", "You said"} {
		if strings.Contains(f.log.String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}

func TestFollowUpAndFork(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":"My name is Ada.","instructions":"Be kind."}`)
	follow := func(input string) reply {
		return f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":%s}`, first.get("id"), input))
	}
	for name, tc := range map[string]struct{ input, wantOwn, want string }{
		"string": {
			`"What is my \u00fcname?"`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"What is my \u00fcname?"}]}`,
			"You said 2 things, from 'My name is Ada.' to 'What is my üname?'.",
		},
		"list": {
			`[ {"role":"user","content":"Hi","x":1.0} ]`, `{"role":"user","content":"Hi","x":1.0}`,
			"You said 2 things, from 'My name is Ada.' to 'Hi'.",
		},
		"empty string": {`""`, "", "You said 1 things, from 'My name is Ada.' to 'My name is Ada.'."},
		"empty list":   {`[]`, "", "You said 1 things, from 'My name is Ada.' to 'My name is Ada.'."},
		"null":         {`null`, "", "You said 1 things, from 'My name is Ada.' to 'My name is Ada.'."},
	} {
		t.Run(name, func(t *testing.T) {
			r := follow(tc.input)
			sent, _ := f.sent.last()
			user := `{"type":"message","role":"user","content":[{"type":"input_text","text":"My name is Ada."}]}`
			want := "[" + user + "," + gjson.Get(first.body, "output.0").Raw
			if tc.wantOwn != "" {
				want += "," + tc.wantOwn
			}
			if diff := cmp.Diff(want+"]", gjson.Get(sent, "input").Raw); diff != "" {
				t.Errorf("input (-want +got):\n%s", diff)
			}
			if gjson.Get(sent, "previous_response_id").Exists() || gjson.Get(sent, "store").Raw != "false" {
				t.Errorf("the engine is asked for state: %s", sent)
			}
			if got := r.get("previous_response_id"); got != first.get("id") {
				t.Errorf("previous_response_id %q", got)
			}
			if got := r.get("output.0.content.0.text"); got != tc.want {
				t.Errorf("text %q, want %q", got, tc.want)
			}
			if got := f.saved(r.get("id")); got == nil || got.PreviousResponseID != first.get("id") || gjson.GetBytes(got.Request, "input").Raw != tc.input {
				t.Errorf("saved %v", got)
			}
		})
	}
}

func TestStoreFalse(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		t.Run("stream="+stream, func(t *testing.T) {
			f := start(t, nil)
			first := f.create(`{"input":"My name is Ada."}`)
			r := f.create(fmt.Sprintf(`{"input":"Who am I?","store":false,"previous_response_id":%q,"stream":%s}`, first.get("id"), stream))
			if !strings.Contains(r.body, "You said 2 things") {
				t.Errorf("the conversation was not read: %s", r.body)
			}
			if strings.Contains(r.body, `"store":true`) || !strings.Contains(r.body, `"store":false`) {
				t.Errorf("the response says that it is stored: %s", r.body)
			}
			id := r.get("id")
			if stream == "true" {
				id = events(r.body)[0].get("response.id")
			}
			if f.saved(id) != nil {
				t.Error("the turn was saved")
			}
			after := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"input":"x","previous_response_id":%q}`, id))
			if got, want := after.code(), "Bad Request previous_response_not_found"; got != want {
				t.Errorf("a later request got %q, want %q", got, want)
			}
		})
	}
}

func TestToolOverThreeTurns(t *testing.T) {
	f := start(t, nil)
	previous := ""
	turn := func(input string) reply {
		r := f.create(fmt.Sprintf(`{"previous_response_id":%s,"input":%s,"tools":[{"type":"function","name":"weather"}]}`, quoteOrNull(previous), input))
		previous = r.get("id")
		return r
	}
	call := turn(`"call weather {\"city\":\"Bonn\"}"`)
	if got := call.get("output.0.arguments"); got != `{"city":"Bonn"}` {
		t.Fatalf("no call: %s", call.body)
	}
	answer := turn(fmt.Sprintf(`[{"type":"function_call_output","call_id":%q,"output":"rain"}]`, call.get("output.0.call_id")))
	if got := answer.get("output.0.content.0.text"); got != "The function answered: rain" {
		t.Errorf("got %q", got)
	}
	turn(`"Thanks"`)
	sent, _ := f.sent.last()
	var kinds []string
	for _, item := range gjson.Get(sent, "input").Array() {
		kinds = append(kinds, item.Get("type").Str)
	}
	if diff := cmp.Diff([]string{"message", "function_call", "function_call_output", "message", "message"}, kinds); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

func TestLargeInput(t *testing.T) {
	f := start(t, nil)
	image := strings.Repeat("QUJD", 1<<20)
	first := f.create(`{"input":[{"role":"user","content":[{"type":"input_text","text":"😀"},{"type":"input_image","image_url":"data:image/png;base64,` + image + `"}]}]}`)
	second := f.create(fmt.Sprintf(`{"previous_response_id":%q,"input":"again"}`, first.get("id")))
	if sent, _ := f.sent.last(); gjson.Get(sent, "input.0.content.1.image_url").Str != "data:image/png;base64,"+image {
		t.Error("the image did not reach the engine")
	}
	if !strings.Contains(second.get("output.0.content.0.text"), "from '😀'") {
		t.Errorf("got %s", second.get("output"))
	}
}

func TestConcurrentFollowUps(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":"root"}`).get("id")
	var group sync.WaitGroup
	for client := range 8 {
		group.Go(func() {
			previous := first
			for n := range 5 {
				input := fmt.Sprintf("%d.%d", client, n)
				r := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q,"input":%q}`, previous, input))
				want := fmt.Sprintf("You said %d things, from 'root' to '%s'.", n+2, input)
				if got := r.get("output.0.content.0.text"); got != want {
					t.Errorf("got %d %q, want %q", r.status, got, want)
				}
				previous = r.get("id")
			}
		})
	}
	group.Wait()
}

func TestModels(t *testing.T) {
	f := start(t, nil)
	if r := f.do(http.MethodGet, "/v1/models", ""); r.get("data.0.id") != "scripted" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestDefaultDepth covers conversations of agents, which have hundreds of turns.
func TestDefaultDepth(t *testing.T) {
	f := start(t, nil)
	previous := ""
	for i := range 1001 {
		id := fmt.Sprintf("resp_%d", i)
		f.seed(id, previous, "completed")
		previous = id
	}
	f.create(`{"previous_response_id":"resp_999","input":"x"}`)
	if r := f.do(http.MethodPost, "/v1/responses", `{"previous_response_id":"resp_1000","input":"x"}`); r.code() != "Bad Request session.chain.depth_exceeded" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestCreatesOnly checks that a save neither overwrites a turn nor changes the parent that the request specified.
func TestCreatesOnly(t *testing.T) {
	f := start(t, nil)
	f.seed("resp_a", "", "completed")
	var got store.SaveOptions
	f.store.onOptions = func(options store.SaveOptions) { got = options }
	f.create(`{"previous_response_id":"resp_a","input":"x"}`)
	parent := "resp_a"
	if diff := cmp.Diff(store.SaveOptions{ExpectedPreviousResponseID: &parent}, got); diff != "" {
		t.Errorf("saved with (-want +got):\n%s", diff)
	}
}

// TestInstructions checks the option that selects the instructions for the engine.
func TestInstructions(t *testing.T) {
	for option, want := range map[string]string{
		store.InstructionsOmit: `["one","two","three"]`,
		store.InstructionsLast: `["one","B","two","three"]`,
		store.InstructionsAll:  `["A","one","B","two","three"]`,
	} {
		t.Run(option, func(t *testing.T) {
			f := start(t, jsonHandler(200, `{"status":"completed","output":[]}`), func(o *Options) { o.Instructions = option })
			first := f.create(`{"instructions":"A","input":"one"}`)
			second := f.create(fmt.Sprintf(`{"instructions":"B","input":"two","previous_response_id":%q}`, first.get("id")))
			f.create(fmt.Sprintf(`{"instructions":"C","input":"three","previous_response_id":%q}`, second.get("id")))
			body, _ := f.sent.last()
			if got := gjson.Get(body, "input.#.content.0.text").Raw; got != want || gjson.Get(body, "instructions").Str != "C" {
				t.Errorf("got %s and %s, want %s", got, gjson.Get(body, "instructions"), want)
			}
		})
	}
}
