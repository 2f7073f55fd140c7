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

package testutil

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/chain"
)

// Quote returns text as a JSON string.
func Quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // never: every string can be marshalled
	}
	return string(quoted)
}

// UserMessage returns the item that a string in a request's input becomes.
func UserMessage(text string) string {
	return `{"type":"message","role":"user","content":[{"type":"input_text","text":` + Quote(text) + `}]}`
}

// SystemMessage returns the item that a request's instructions become.
func SystemMessage(text string) string {
	return `{"type":"message","role":"system","content":[{"type":"input_text","text":` + Quote(text) + `}]}`
}

// AssistantMessage returns an item of a response's output. Its keys are sorted, as they are when an object comes back from
// the API server.
func AssistantMessage(text string) string {
	return `{"content":[{"text":` + Quote(text) + `,"type":"output_text"}],"role":"assistant","type":"message"}`
}

// Request returns the request of a turn. Its question contains the response ID of the turn.
func Request(id string) string {
	return `{"model":"m","input":` + Quote("question of "+id) + `}`
}

// Response returns the response of a turn. Its answer contains the response ID of the turn.
func Response(id string) string {
	return `{"output":[` + AssistantMessage("answer of "+id) + `]}`
}

// Items returns the items of turns whose bodies are those of Request and Response.
func Items(ids ...string) []string {
	var items []string
	for _, id := range ids {
		items = append(items, UserMessage("question of "+id), AssistantMessage("answer of "+id))
	}
	return items
}

// FlattenTurn returns the items of a turn: those of its instructions, unless they are empty, and of its output.
func FlattenTurn(t testing.TB, instructions string, output ...string) *chain.Items {
	t.Helper()
	request := fmt.Sprintf(`{"instructions":%s}`, Quote(instructions))
	items, err := chain.Flatten([]byte(request), []byte(`{"output":[`+strings.Join(output, ",")+`]}`))
	if err != nil {
		t.Fatalf("unable to flatten a turn: %v", err)
	}
	return items
}
