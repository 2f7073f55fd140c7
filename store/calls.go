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

package store

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
)

// unanswered returns the ID of a call in a turn for which neither it nor the next turn has an output, or the empty string. Hidden items are
// not there. Calls without a call ID, such as a web search, were made by the engine and need no output.
func unanswered(turn *Session, hidden []HiddenItem, next *Session) string {
	calls, answered := callsOf(turn, hidden, turn.Response)
	_, inNext := callsOf(next, nil, nil)
	for _, c := range calls {
		if !answered.has(c) && !inNext.has(c) {
			return c.callID
		}
	}
	return ""
}

// toolCall is a call that needs an output.
type toolCall struct{ callID, itemID string }

// outputs are the IDs that the outputs of calls have: the call ID, or the ID of the item in a local_shell_call_output.
type outputs map[string]bool

func (o outputs) has(c toolCall) bool { return o[c.callID] || o[c.itemID] && c.itemID != "" }

// callsOf returns the calls in the input of a turn and in the output of a response, and the outputs of calls.
func callsOf(turn *Session, hidden []HiddenItem, response []byte) (calls []toolCall, answered outputs) {
	answered = outputs{}
	number := 0 // as in Origin
	look := func(raw string) {
		item := HiddenItem{ResponseID: turn.ResponseID, Number: number}
		if number++; slices.Contains(hidden, item) {
			return
		}
		members := jsonvalue.Members(gjson.Parse(raw), "type", "call_id", "id")
		switch kind, c := members[0].String(), (toolCall{members[1].String(), members[2].String()}); {
		case kind == "local_shell_call_output" && c.callID == "":
			answered[c.itemID] = true
		case c.callID == "":
		case strings.HasSuffix(kind, "_call"):
			calls = append(calls, c)
		case strings.HasSuffix(kind, "_call_output"), kind == "tool_search_output":
			answered[c.callID] = true
		}
	}
	_ = chain.EachInput(jsonvalue.Text(turn.Input()), look) // has been validated
	if output := jsonvalue.ValidObject(response).RawMembers("output")[0]; jsonvalue.IsList(output) {
		for _, raw := range jsonvalue.Elements(output) {
			look(raw)
		}
	}
	return calls, answered
}
