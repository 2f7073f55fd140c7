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

// UnansweredCall returns the call ID of the first call in a history that has no output in the history or in the input, or the empty string if every
// call has one. OpenAI refuses such an input. If the input has a compaction item, which replaces the history, the result is empty. The history
// must have all its items, in ascending order. The input is the `input` of a request, as JSON.
func UnansweredCall(h *History, input string) string {
	var all calls
	for _, item := range h.Items {
		all.add(jsonvalue.Text(item))
	}
	return all.unanswered(input)
}

// unanswered is UnansweredCall for the last turn of a history alone, which was read with its bodies. Hidden items are not there.
func unanswered(turn *Session, hidden []HiddenItem, next *Session) string {
	var last calls
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

// calls are calls that need an output.
type calls struct {
	count       int
	open        map[string]int  // the call IDs, with the number of the call
	localShells map[string]bool // those whose outputs need not have their call IDs
}

// add looks at an item. Calls without a call ID, such as a web search, were made by the engine and need no output. One that was cut off cannot
// be answered.
func (c *calls) add(raw string) {
	members := jsonvalue.Members(gjson.Parse(raw), "type", "call_id", "status")
	switch kind, id := members[0].String(), members[1].String(); {
	case id == "" || members[2].String() == StatusIncomplete || !strings.HasSuffix(kind, "_call"):
		c.answer(kind, id)
	default:
		if c.open == nil {
			c.open, c.localShells = map[string]int{}, map[string]bool{}
		}
		c.count++
		c.open[id] = c.count
		if kind == "local_shell_call" {
			c.localShells[id] = true
		}
	}
}

// answer looks at an item that may be the output of a call, or replace all items before it. The output of a local shell call may have the ID of the
// item instead of a call ID. It counts for all such calls, because a gateway can have changed that ID.
func (c *calls) answer(kind, callID string) {
	switch {
	case kind == "compaction":
		*c = calls{}
	case kind == "local_shell_call_output" && callID == "":
		for id := range c.localShells {
			delete(c.open, id)
		}
		c.localShells = map[string]bool{} // ranging over a cleared map takes as long as when it was full
	case strings.HasSuffix(kind, "_call_output"), kind == "tool_search_output":
		delete(c.open, callID)
		delete(c.localShells, callID)
	}
}

// unanswered returns the ID of a call for which an input has no output either, or the empty string.
func (c *calls) unanswered(input string) string {
	if len(c.open) == 0 {
		return ""
	}
	_ = chain.EachInput(input, func(raw string) { // has been validated
		members := jsonvalue.Members(gjson.Parse(raw), "type", "call_id")
		c.answer(members[0].String(), members[1].String())
	})
	first := ""
	for id, number := range c.open {
		if first == "" || number < c.open[first] {
			first = id
		}
	}
	return first
}
