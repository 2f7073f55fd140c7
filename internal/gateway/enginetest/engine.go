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

// Package enginetest has engines for tests and demonstrations: they serve the Responses API without a model or state. The
// scripted engine always returns the same response to the same request; Strict is another one, which shows what a gateway
// gets wrong.
//
// A response of the scripted engine contains the number of user messages and the first and the last of them, which shows
// whether the request contained the conversation. If the last user message is "call NAME" or "call NAME ARGUMENTS", the engine
// calls that function. It repeats the output of a function.
package enginetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// ResponseID is the ID of every response: stateless engines do not need unique IDs.
const ResponseID = "resp_scripted"

// Model is the only model.
const Model = "scripted"

// Handler returns the handler of the engine.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", create)
	mux.HandleFunc("GET /v1/models", models)
	return mux
}

func models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data":   []any{map[string]any{"id": Model, "object": "model", "created": 0, "owned_by": "catena"}},
	})
}

func create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := gjson.ParseBytes(body)
	switch {
	case err != nil || jsonvalue.Validate(body) != nil:
		reject(w, "The body is not JSON.", "")
	case request.Get("previous_response_id").Type != gjson.Null:
		reject(w, "This engine is stateless.", "previous_response_id")
	case request.Get("store").Type != gjson.False:
		reject(w, "This engine does not store responses: set store to false.", "store")
	case request.Get("stream").Bool():
		stream(w, respond(request))
	default:
		writeJSON(w, http.StatusOK, respond(request))
	}
}

func reject(w http.ResponseWriter, message, param string) {
	writeJSON(w, http.StatusBadRequest, map[string]any{
		"error": map[string]any{"message": message, "type": "invalid_request_error", "param": param, "code": nil},
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err) // never: all values can be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encoded) // fails only if the client has disconnected
}

type response struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	CreatedAt          int64   `json:"created_at"`
	Status             string  `json:"status"`
	Error              any     `json:"error"`
	IncompleteDetails  any     `json:"incomplete_details"`
	Model              string  `json:"model"`
	PreviousResponseID *string `json:"previous_response_id"`
	Store              bool    `json:"store"`
	Output             []item  `json:"output"`
	Usage              *usage  `json:"usage"`
}

type usage struct {
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// item is a message or a function call.
type item struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Status    string  `json:"status"`
	Role      string  `json:"role,omitempty"`
	Content   *[]part `json:"content,omitempty"`
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

type part struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
}

// respond returns the response to a request. Its timestamps are fixed, so that responses differ only in the scripted output.
func respond(request gjson.Result) *response {
	output := script(request)
	inputTokens, outputTokens := len(strings.Fields(request.Get("input").Raw)), len(strings.Fields(text(output)))
	return &response{
		ID:        ResponseID,
		Object:    "response",
		CreatedAt: time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix(),
		Status:    "completed",
		Model:     Model,
		Output:    []item{output},
		Usage:     &usage{InputTokens: inputTokens, OutputTokens: outputTokens, TotalTokens: inputTokens + outputTokens},
	}
}

// script returns the output for the last item of the input.
func script(request gjson.Result) item {
	input := request.Get("input")
	sum := sha256.Sum256([]byte(input.Raw))
	id := hex.EncodeToString(sum[:8])
	said := said(input)
	last := ""
	if len(said) > 0 {
		last = said[len(said)-1]
	}
	items := input.Array()
	if len(items) > 0 && items[len(items)-1].Get("type").Str == "function_call_output" {
		return message(id, "The function answered: "+items[len(items)-1].Get("output").String())
	}
	if call, ok := strings.CutPrefix(last, "call "); ok {
		name, arguments, _ := strings.Cut(call, " ")
		if arguments == "" {
			arguments = "{}"
		}
		return item{Type: "function_call", ID: "fc_" + id, Status: "completed", CallID: "call_" + id, Name: name, Arguments: &arguments}
	}
	if len(said) == 0 {
		return message(id, "You said nothing.")
	}
	return message(id, fmt.Sprintf("You said %d things, from '%s' to '%s'.", len(said), said[0], last))
}

// said returns the texts of the user's messages.
func said(input gjson.Result) []string {
	if input.Type == gjson.String {
		return []string{input.Str}
	}
	var texts []string
	for _, item := range input.Array() {
		if item.Get("role").Str != "user" {
			continue
		}
		content := item.Get("content")
		if content.Type == gjson.String {
			texts = append(texts, content.Str)
			continue
		}
		for _, part := range content.Array() {
			if part.Get("type").Str == "input_text" {
				texts = append(texts, part.Get("text").Str)
			}
		}
	}
	return texts
}

func message(id, text string) item {
	return item{
		Type: "message", ID: "msg_" + id, Status: "completed", Role: "assistant",
		Content: &[]part{{Type: "output_text", Text: text, Annotations: []any{}}},
	}
}

// text returns the text of a message, empty for a function call.
func text(i item) string {
	if i.Content == nil {
		return ""
	}
	return (*i.Content)[0].Text
}
