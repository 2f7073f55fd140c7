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

// UnansweredCall returns the ID of a call in the last turn of a history for which neither that turn nor an input has an output, or the empty
// string: Conversations.Append refuses such a turn, as OpenAI does. The history needs ResolveOptions.Origins. The input is the `input` of a
// request, as JSON.
func UnansweredCall(h *History, input string) string {
	var last items
	rest := h.Items
	for _, origin := range slices.Backward(h.Origins) {
		if origin.ResponseID != h.Parent.ResponseID {
			break
		}
		at := len(rest) - origin.Count
		for _, item := range rest[at:] {
			last.add(jsonvalue.Text(item))
		}
		rest = rest[:at]
	}
	return last.unanswered(input)
}

// unanswered is UnansweredCall for a turn that was read with its bodies. Hidden items are not there.
func unanswered(turn *Session, hidden []HiddenItem, next *Session) string {
	var last items
	number := 0 // as in Origin
	add := func(raw string) {
		item := HiddenItem{ResponseID: turn.ResponseID, Number: number}
		if number++; !slices.Contains(hidden, item) {
			last.add(raw)
		}
	}
	_ = chain.EachInput(jsonvalue.Text(turn.Input()), add) // has been validated
	if output := jsonvalue.ValidObject(turn.Response).RawMembers("output")[0]; jsonvalue.IsList(output) {
		for _, raw := range jsonvalue.Elements(output) {
			add(raw)
		}
	}
	return last.unanswered(jsonvalue.Text(next.Input()))
}

// items are the calls among some items, and the IDs that the outputs of calls among them have: the call ID, or the ID of the item in a
// local_shell_call_output.
type items struct {
	calls    []toolCall
	answered map[string]bool
}

// toolCall is a call that needs an output.
type toolCall struct{ callID, itemID string }

// add looks at an item. Calls without a call ID, such as a web search, were made by the engine and need no output.
func (i *items) add(raw string) {
	members := jsonvalue.Members(gjson.Parse(raw), "type", "call_id", "id")
	switch kind, c := members[0].String(), (toolCall{members[1].String(), members[2].String()}); {
	case kind == "local_shell_call_output" && c.callID == "":
		i.answer(c.itemID)
	case c.callID == "":
	case strings.HasSuffix(kind, "_call"):
		i.calls = append(i.calls, c)
	case strings.HasSuffix(kind, "_call_output"), kind == "tool_search_output":
		i.answer(c.callID)
	}
}

func (i *items) answer(id string) {
	if i.answered == nil {
		i.answered = map[string]bool{}
	}
	i.answered[id] = true
}

func (i *items) answers(c toolCall) bool {
	return i.answered[c.callID] || i.answered[c.itemID] && c.itemID != ""
}

// unanswered returns the ID of a call for which neither the items nor those of an input have an output, or the empty string.
func (i *items) unanswered(input string) string {
	if len(i.calls) == 0 {
		return ""
	}
	var next items
	_ = chain.EachInput(input, next.add) // has been validated
	for _, c := range i.calls {
		if !i.answers(c) && !next.answers(c) {
			return c.callID
		}
	}
	return ""
}
