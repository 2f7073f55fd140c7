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
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// unanswered returns the ID of a call in a turn for which neither it nor the next turn has an output, or the empty string. Calls without
// a call ID, such as a web search, were made by the engine and need no output.
func unanswered(turn, next *Session) string {
	calls, answered := callsOf(turn.Input(), turn.Response)
	_, inNext := callsOf(next.Input(), nil)
	for _, id := range calls {
		if !answered[id] && !inNext[id] {
			return id
		}
	}
	return ""
}

// callsOf returns the IDs of the calls in an input and in the output of a response, and of those that have an output.
func callsOf(input, response []byte) (calls []string, answered map[string]bool) {
	answered = map[string]bool{}
	output := jsonvalue.ValidObject(response).RawMembers("output")[0]
	for _, list := range []string{jsonvalue.Text(input), output} {
		if !jsonvalue.IsList(list) {
			continue
		}
		for _, raw := range jsonvalue.Elements(list) {
			item := jsonvalue.Members(gjson.Parse(raw), "type", "call_id")
			switch kind, id := item[0].String(), item[1].String(); {
			case id == "":
			case strings.HasSuffix(kind, "_call"):
				calls = append(calls, id)
			case strings.HasSuffix(kind, "_call_output"):
				answered[id] = true
			}
		}
	}
	return calls, answered
}
