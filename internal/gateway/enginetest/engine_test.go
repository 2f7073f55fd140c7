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
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

func ask(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", strings.NewReader(body)))
	return w
}

func TestScript(t *testing.T) {
	for name, tc := range map[string]struct{ input, path, want string }{
		"string":    {`"hello"`, "output.0.content.0.text", "You said 1 things, from 'hello' to 'hello'."},
		"messages":  {`[{"role":"user","content":"a"},{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"input_text","text":"b"}]}]`, "output.0.content.0.text", "You said 2 things, from 'a' to 'b'."},
		"nothing":   {`[]`, "output.0.content.0.text", "You said nothing."},
		"call":      {`"call weather"`, "output.0.name", "weather"},
		"arguments": {`"call weather {\"city\":\"Bonn\"}"`, "output.0.arguments", `{"city":"Bonn"}`},
		"output":    {`[{"role":"user","content":"call weather"},{"type":"function_call_output","output":"rain"}]`, "output.0.content.0.text", "The function answered: rain"},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"store":false,"input":` + tc.input + `}`
			first, second := ask(t, body), ask(t, body)
			if got := gjson.Get(first.Body.String(), tc.path).Str; first.Code != http.StatusOK || got != tc.want {
				t.Errorf("got %d %s, want %q", first.Code, first.Body, tc.want)
			}
			if diff := cmp.Diff(first.Body.String(), second.Body.String()); diff != "" {
				t.Errorf("the second response differs:\n%s", diff)
			}
		})
	}
}

func TestRejectedRequests(t *testing.T) {
	for name, body := range map[string]string{
		"not JSON":          `{`,
		"previous response": `{"store":false,"previous_response_id":"resp_1"}`,
		"store absent":      `{"input":"a"}`,
		"store":             `{"input":"a","store":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			if w := ask(t, body); w.Code != http.StatusBadRequest {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestStreamEndsWithTheSameResponse(t *testing.T) {
	for _, input := range []string{`"hello"`, `"call weather"`} {
		whole := ask(t, `{"store":false,"input":`+input+`}`).Body.String()
		stream := strings.TrimSpace(ask(t, `{"store":false,"stream":true,"input":`+input+`}`).Body.String())
		last := stream[strings.LastIndex(stream, "data: ")+len("data: "):]
		if diff := cmp.Diff(whole, gjson.Get(last, "response").Raw); diff != "" {
			t.Errorf("%s (-whole +stream):\n%s", input, diff)
		}
	}
}
