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

package enginetest

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// askStrict sends a request to a strict engine. Members replace those of a valid request.
func askStrict(ctx context.Context, engine http.Handler, members string) *httptest.ResponseRecorder {
	body := map[string]json.RawMessage{"model": json.RawMessage(`"strict"`), "store": json.RawMessage("false"), "input": json.RawMessage(`"hello"`)}
	if err := json.Unmarshal([]byte(members), &body); err != nil {
		panic(err)
	}
	return post(ctx, engine, encode(body))
}

func post(ctx context.Context, engine http.Handler, body string) *httptest.ResponseRecorder {
	return postTo(ctx, engine, "/v1/responses", body)
}

func postTo(ctx context.Context, engine http.Handler, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body)))
	return w
}

// output returns the output items of a response, which must be successful, as a list without brackets.
func output(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	items := gjson.Get(w.Body.String(), "output").Raw
	return items[1 : len(items)-1]
}

func TestStrictScript(t *testing.T) {
	for name, tc := range map[string]struct {
		input, path, want string
	}{
		"message":        {`"hello"`, "output.0.content.0.text", "You said 1 things, from 'hello' to 'hello', in 1 items."},
		"nothing":        {`[]`, "output.0.content.0.text", "You said nothing."},
		"call":           {`"call weather {\"city\":\"Bonn\"}"`, "output.0.arguments", `{"city":"Bonn"}`},
		"parallel calls": {`"call weather\ncall time"`, "output.#.name", `["weather","time"]`},
		"reason":         {`"reason"`, "output.#.type", `["reasoning","message"]`},
		"reason, call":   {`"reason\ncall weather"`, "output.#.type", `["reasoning","function_call"]`},
		"cut off":        {`"cut off"`, "incomplete_details.reason", "max_output_tokens"},
		"outputs": {
			`[{"role":"user","content":"call a\ncall b"},{"type":"function_call","call_id":"1","name":"a","arguments":""},{"type":"function_call","call_id":"2","name":"b","arguments":""},` +
				`{"type":"function_call_output","call_id":"1","output":"rain"},{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"noon"}]}]`,
			"output.0.content.0.text", "The functions answered: rain, noon",
		},
		"call after an output": {
			`[{"type":"function_call","call_id":"1","name":"a","arguments":""},{"type":"function_call_output","call_id":"1","output":"call b"}]`,
			"output.0.name", "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := askStrict(t.Context(), Strict(), `{"input":`+tc.input+`}`)
			if got := gjson.Get(w.Body.String(), tc.path).String(); w.Code != http.StatusOK || got != tc.want {
				t.Errorf("got %d %s, want %q", w.Code, w.Body, tc.want)
			}
		})
	}
}

// TestStrictAsks: the other endpoints check the input, and need no store.
func TestStrictAsks(t *testing.T) {
	const input = `"input":[{"role":"user","content":"one"},{"role":"assistant","content":"two"}]`
	engine := Strict()
	for path, want := range map[string]string{"input_tokens": `["response.input_tokens"]`, "compact": `["response.compaction",["message","compaction"]]`} {
		w := postTo(t.Context(), engine, "/v1/responses/"+path, `{"model":"strict",`+input+`}`)
		if got := gjson.Get(w.Body.String(), `[object,output.#.type]`).Raw; w.Code != http.StatusOK || got != want {
			t.Errorf("%s: got %d %s, want %s", path, w.Code, w.Body, want)
		}
		for _, body := range []string{`{}`, `{"model":"strict","previous_response_id":"resp_1",` + input + `}`} {
			if w := postTo(t.Context(), engine, "/v1/responses/"+path, body); w.Code != http.StatusBadRequest {
				t.Errorf("%s: got %d %s for %s", path, w.Code, w.Body, body)
			}
		}
	}
}

func TestStrictRejectsState(t *testing.T) {
	engine := Strict()
	text := output(t, askStrict(t.Context(), engine, `{}`))
	reasoned := output(t, askStrict(t.Context(), engine, `{"input":"reason"}`))
	called := output(t, askStrict(t.Context(), engine, `{"input":"call weather"}`))
	callID := gjson.Get(called, "call_id").Str
	answered := `{"type":"function_call_output","call_id":"` + callID + `","output":"rain"}`
	edit := func(items, old, edited string) string { return strings.ReplaceAll(items, old, edited) }
	for name, tc := range map[string]struct {
		members string
		// want is a part of the error's message, or empty if the request is accepted.
		want string
	}{
		"model":                    {`{"model":"gpt-1"}`, "does not exist"},
		"previous response":        {`{"previous_response_id":"resp_1"}`, "Previous response"},
		"conversation":             {`{"conversation":"conv_1"}`, "'conversation'"},
		"background":               {`{"background":true}`, "'background'"},
		"store":                    {`{"store":true}`, "'store'"},
		"store null":               {`{"store":null}`, "'store'"},
		"input":                    {`{"input":1}`, "'input'"},
		"own items":                {`{"input":[` + text + `,` + reasoned + `,` + called + `,` + answered + `]}`, ""},
		"items without ID":         {`{"input":[` + edit(text, `"id":"msg_engine_2"`, `"id":null`) + `]}`, ""},
		"reference":                {`{"input":[{"type":"item_reference","id":"msg_engine_2"}]}`, "'msg_engine_2' not found"},
		"other ID":                 {`{"input":[` + edit(text, "msg_engine_2", "msg_0a1b_0") + `]}`, "has not issued"},
		"ID that was never issued": {`{"input":[` + edit(text, "msg_engine_2", "msg_engine_99") + `]}`, "has not issued"},
		"ID of a user's message":   {`{"input":[{"role":"user","id":"msg_engine_2","content":"a"}]}`, "had another content"},
		"ID of an output":          {`{"input":[` + called + `,` + edit(answered, `{`, `{"id":"fc_engine_1",`) + `]}`, "has not issued"},
		"other text":               {`{"input":[` + edit(text, "You said", "I said") + `]}`, "had another content"},
		"twice":                    {`{"input":[` + text + `,` + text + `]}`, "Duplicate item"},
		"call without output":      {`{"input":[` + called + `]}`, "No tool output found for function call " + callID},
		"output without call":      {`{"input":[` + answered + `]}`, "No tool call found for function call output with call_id " + callID},
		"second output":            {`{"input":[` + called + `,` + answered + `,` + answered + `]}`, "No tool call found"},
		"reasoning, no ID":         {`{"input":[` + edit(reasoned, `"id":"rs_`, `"_":"rs_`) + `]}`, ""},
		"reasoning, other ID":      {`{"input":[` + edit(reasoned, `"id":"rs_`, `"id":"rs_0a1b_`) + `]}`, "did not match the target item id"},
		"reasoning, other summary": {`{"input":[` + edit(reasoned, "The user said", "I said") + `]}`, "could not be verified"},
		"reasoning, no content":    {`{"input":[` + edit(reasoned, `"encrypted_content"`, `"_"`) + `]}`, "not found"},
		"unknown item":             {`{"input":[{"type":"note"}]}`, "'note'"},
		"unknown role":             {`{"input":[{"role":"tool","content":"a"}]}`, "'tool'"},
		"content":                  {`{"input":[{"role":"user","content":1}]}`, "content"},
		"input of the assistant":   {`{"input":[{"role":"assistant","content":[{"type":"input_text","text":"a"}]}]}`, "'output_text'"},
		"call without name":        {`{"input":[{"type":"function_call","call_id":"1","arguments":""}]}`, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			w := askStrict(t.Context(), engine, tc.members)
			if tc.want == "" {
				output(t, w)
				return
			}
			message := gjson.Get(w.Body.String(), "error.message").Str
			if w.Code != http.StatusBadRequest || !strings.Contains(message, tc.want) {
				t.Errorf("got %d %s, want 400 %q", w.Code, w.Body, tc.want)
			}
		})
	}
}

func TestStrictIDs(t *testing.T) {
	for model, want := range map[string][]string{
		ModelStrict:    {"msg_engine_2", "msg_engine_4"},
		ModelRestarted: {"msg_engine_1", "msg_engine_1"},
	} {
		engine := Strict()
		var got []string
		for range 2 {
			got = append(got, gjson.Get(output(t, askStrict(t.Context(), engine, `{"model":"`+model+`"}`)), "id").Str)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", model, diff)
		}
	}
}

func TestThinMembers(t *testing.T) {
	w := askStrict(t.Context(), Strict(), `{"model":"thin","metadata":{"a":"b"}}`)
	got := slices.Sorted(maps.Keys(gjson.Parse(w.Body.String()).Map()))
	if diff := cmp.Diff([]string{"created_at", "id", "model", "object", "output", "status"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := `{"content":[{"text":"You said 1 things, from 'hello' to 'hello', in 1 items.","type":"output_text"}],"role":"assistant","type":"message"}`
	if diff := cmp.Diff(want, output(t, w)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestStrictStream checks that the events have the same content as the response without a stream.
func TestStrictStream(t *testing.T) {
	for name, tc := range map[string]struct{ model, input, wantEnd string }{
		"message":    {ModelRestarted, "hello", "response.completed"},
		"reasoning":  {ModelRestarted, "reason", "response.completed"},
		"calls":      {ModelStrict, `reason\ncall weather\ncall time`, "response.completed"},
		"incomplete": {ModelRestarted, "cut off", "response.incomplete"},
		"failed":     {ModelRestarted, "fail", "response.failed"},
		"thin":       {ModelThin, "hello", "response.completed"},
	} {
		t.Run(name, func(t *testing.T) {
			members := `{"model":"` + tc.model + `","input":"` + tc.input + `"`
			events := streamed(t, askStrict(t.Context(), Strict(), members+`,"stream":true}`))
			end := events[len(events)-1]
			if got := end.Get("type").Str; got != tc.wantEnd {
				t.Errorf("the stream ends with %s, want %s", got, tc.wantEnd)
			}
			whole := askStrict(t.Context(), Strict(), members+`}`)
			if whole.Code != http.StatusOK {
				return // it fails before the response begins
			}
			if diff := cmp.Diff(whole.Body.String(), end.Get("response").Raw); diff != "" {
				t.Errorf("(-whole +stream):\n%s", diff)
			}
		})
	}
}

// streamed returns the events of a stream, and checks their numbers.
func streamed(t *testing.T, w *httptest.ResponseRecorder) []gjson.Result {
	t.Helper()
	var events []gjson.Result
	for line := range strings.Lines(w.Body.String()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events = append(events, gjson.Parse(strings.TrimSpace(data)))
		}
	}
	for i, e := range events {
		if number := e.Get("sequence_number"); number.Exists() && number.Int() != int64(i) {
			t.Errorf("event %d has the number %s", i, e.Get("sequence_number").Raw)
		}
	}
	return events
}

func TestStall(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the client has disconnected
		w := askStrict(ctx, Strict(), `{"input":"stall","stream":`+stream+`}`)
		if strings.Contains(w.Body.String(), `"status":"completed"`) {
			t.Errorf("stream %s: got %s", stream, w.Body)
		}
	}
}

func TestStrictErrors(t *testing.T) {
	for body, want := range map[string]int{
		`{"input":tru}`: http.StatusBadRequest,
		`{"model":"strict","store":false,"input":"fail"}`: http.StatusInternalServerError,
	} {
		if w := post(t.Context(), Strict(), body); w.Code != want || !gjson.Get(w.Body.String(), "error.message").Exists() {
			t.Errorf("%s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
}
