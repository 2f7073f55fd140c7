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
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// itemEvents are the prefixes of the events that are about an item, whether or not an engine says which, with the members that OpenAI's
// have besides output_index and item_id. Engines send few parts of an item besides the first.
var itemEvents = []struct {
	prefix  string
	members []memberDefault
}{
	{"response.output_item.", nil},
	{"response.content_part.", []memberDefault{{"content_index", "0"}}},
	{"response.output_text.annotation.", []memberDefault{{"content_index", "0"}, {"annotation_index", counted}}},
	{"response.output_text.", []memberDefault{{"content_index", "0"}, {"logprobs", "[]"}}},
	{"response.refusal.", []memberDefault{{"content_index", "0"}}},
	{"response.reasoning_text.", []memberDefault{{"content_index", "0"}}},
	{"response.reasoning_summary_part.", []memberDefault{{"summary_index", "0"}}},
	{"response.reasoning_summary_text.", []memberDefault{{"summary_index", "0"}}},
	{"response.function_call_arguments.", nil},
	{"response.custom_tool_call_input.", nil},
	{"response.mcp_call", nil}, // and those of its arguments
	{"response.mcp_list_tools.", nil},
	{"response.code_interpreter_call", nil}, // and those of its code
	{"response.file_search_call.", nil},
	{"response.web_search_call.", nil},
	{"response.image_generation_call.partial_image", []memberDefault{{"partial_image_index", counted}}},
	{"response.image_generation_call.", nil},
	{"response.compaction.", nil},
	{"response.shell_call_command.", []memberDefault{{"command_index", "0"}}},
	{"response.shell_call_output_content.", []memberDefault{{"command_index", "0"}}},
}

// memberDefault is a member with the value, as JSON, that it has if an engine leaves it out.
type memberDefault struct{ name, missing string }

// counted is the default of a member that numbers the events of its kind about a part of an item.
const counted = ""

// counter counts the events about the current part of an item. No item has members that are counted in two kinds of events.
type counter struct{ part, next int64 }

// complete gives an event the next number, if the engine has left it out. It reports whether it has.
func (c *counter) complete(name string, data *object) bool {
	if part := data.get("content_index").Int(); part != c.part {
		*c = counter{part: part}
	}
	given := data.get(name)
	if given.Type == gjson.Number && given.Num >= 0 && given.Num < maxSequence {
		c.next = given.Int()
	}
	missing := given.Type == gjson.Null
	if missing {
		data.set(name, strconv.FormatInt(c.next, 10))
	}
	c.next++
	return missing
}

// itemEventOf returns the index of an event in itemEvents, or -1 if it is not about an item.
func itemEventOf(kind string) int {
	for i := range itemEvents {
		if strings.HasPrefix(kind, itemEvents[i].prefix) {
			return i
		}
	}
	return -1
}

// maxSequence is the first sequence number that not all clients can represent.
const maxSequence = 1 << 53

// label gives an event its type, the next sequence number, and the members of an error, if the engine has left them out. It reports whether
// it has. Events that OpenAI's API does not have are left alone.
func (p *partial) label(kind string, data *object) (changed bool) {
	response, failure := strings.HasPrefix(kind, "response."), kind == eventError
	if (failure || response) && data.get("type").Str == "" {
		data.set("type", quote(kind))
		changed = true
	}
	if sequence := data.get("sequence_number"); sequence.Type == gjson.Number && sequence.Num >= 0 && sequence.Num < maxSequence {
		p.sequence, p.numbered = sequence.Int(), true
	} else if failure || response {
		data.set("sequence_number", strconv.FormatInt(p.nextSequence(), 10))
		changed = true
	}
	return failure && completeFailure(data) || changed
}

// completeFailure adds the members that an error event lacks, and reports whether it lacks any. Many engines have them in an object of their
// own, as in the body of an error, which remains: some clients read it there.
func completeFailure(data *object) (changed bool) {
	cause := data.get("error")
	for _, m := range []memberDefault{{"code", "null"}, {"message", `""`}, {"param", "null"}} {
		if data.has(m.name) {
			continue
		}
		value := m.missing
		switch given := cause.Get(m.name); given.Type {
		case gjson.String:
			value = given.Raw
		case gjson.Number: // a status as the code
			value = quote(given.Raw)
		}
		data.set(m.name, value)
		changed = true
	}
	return changed
}

// nextSequence returns the sequence number of the next event.
func (p *partial) nextSequence() int64 {
	if p.numbered {
		p.sequence++
	}
	p.numbered = true
	return p.sequence
}

// completeEvent adds what an engine has left out of an event about an item, except the ID that the client sees. It reports whether there was
// anything.
func (p *partial) completeEvent(kind string, data *object, slot int) (changed bool) {
	complete := func(name, missing string) {
		if data.isNull(name) {
			data.set(name, missing)
			changed = true
		}
	}
	i := itemEventOf(kind)
	if i < 0 {
		return false
	}
	complete("output_index", strconv.Itoa(slot))
	for _, m := range itemEvents[i].members {
		if m.missing != counted {
			complete(m.name, m.missing)
		} else if p.counterOf(slot).complete(m.name, data) {
			changed = true
		}
	}
	if part := data.raw("part"); jsonvalue.IsObject(part) {
		if completed := completePart(part); completed != part {
			data.set("part", completed)
			changed = true
		}
	}
	return changed
}
