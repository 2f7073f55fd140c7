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
	"cmp"
	"context"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// requestMembers are the members of a request that a response repeats, with the defaults of OpenAI's API. A member without a default is left out unless
// the request has it.
var requestMembers = []memberDefault{
	{"instructions", "null"},
	{"max_output_tokens", "null"},
	{"max_tool_calls", "null"},
	{"metadata", "{}"},
	{"model", `""`},
	{"parallel_tool_calls", "true"},
	{"prompt", ""},
	{"prompt_cache_key", ""},
	{"prompt_cache_retention", ""},
	{"reasoning", `{"effort":null,"summary":null}`},
	{"safety_identifier", ""},
	{"service_tier", ""},
	{"temperature", "1.0"},
	{"text", `{"format":{"type":"text"}}`},
	{"tool_choice", `"auto"`},
	{"tools", "[]"},
	{"top_logprobs", "0"},
	{"top_p", "1.0"},
	{"truncation", `"disabled"`},
	{"user", "null"},
}

// show returns a response of the turn as its client sees it: with all members of OpenAI's API, which typed clients rely on, and with the
// IDs of its items that itemID returns, which is usually turn.itemID. The response itself, which the store saves, is not changed.
func (t *turn) show(response *object, itemID func(i int, item string) string) *object {
	shown := &object{members: append(make([]member, 0, len(response.members)+len(requestMembers)+8), response.members...)}
	t.complete(shown)
	shown.set("output", t.showOutput(shown.raw("output"), itemID))
	return shown
}

// complete adds the members that an engine has left out.
func (t *turn) complete(response *object) {
	response.setMissing("object", `"response"`)
	response.setMissing("created_at", strconv.FormatInt(max(t.created.Unix(), 0), 10))
	response.setMissing("output", "[]")
	for _, name := range []string{"access_programs", "error", "incomplete_details"} {
		response.setMissing(name, "null")
	}
	failure := response.raw("error")
	if jsonvalue.IsString(failure) {
		failure = `{"message":` + failure + "}"
	}
	if jsonvalue.IsObject(failure) {
		response.set("error", withDefaults(failure, []memberDefault{{"code", quote(typeServer)}, {"message", `""`}}))
	}
	response.setMissing("background", "false")
	for _, m := range requestMembers {
		value := t.request.object.raw(m.name)
		if jsonvalue.IsNull(value) {
			value = m.missing
		}
		if value != "" {
			response.setMissing(m.name, value)
		}
	}
	if tools := response.raw("tools"); jsonvalue.IsList(tools) {
		response.set("tools", completeList(tools, completeTool))
	}
	switch response.get("status").Str {
	case store.StatusCompleted, store.StatusIncomplete:
		completeUsage(response)
	default:
		response.setMissing("usage", "null")
	}
}

// toolMembers are the members that OpenAI's function tools always have.
var toolMembers = []memberDefault{{"parameters", "null"}, {"strict", "null"}}

// completeTool returns a tool with the members that it lacks, or the tool itself if it lacks none.
func completeTool(tool string) string {
	if !jsonvalue.IsObject(tool) || gjson.Get(tool, "type").Str != "function" {
		return tool
	}
	return withDefaults(tool, toolMembers)
}

// completeUsage adds the usage of a response that has ended. An engine that does not count has used no tokens.
func completeUsage(response *object) {
	usage, err := objectOf(response.raw("usage"))
	if err != nil {
		return
	}
	input, output := usage.get("input_tokens").Int(), usage.get("output_tokens").Int()
	usage.setMissing("input_tokens", "0")
	usage.set("input_tokens_details", withMissing(usage.raw("input_tokens_details"), "cached_tokens", "cache_write_tokens"))
	usage.setMissing("output_tokens", "0")
	usage.set("output_tokens_details", withMissing(usage.raw("output_tokens_details"), "reasoning_tokens"))
	usage.setMissing("total_tokens", strconv.FormatInt(input+output, 10))
	response.set("usage", usage.String())
}

// withMissing returns an object, or a missing one, with numbers that are 0 unless they are there.
func withMissing(object string, numbers ...string) string {
	o, err := objectOf(object)
	if err != nil {
		return object
	}
	for _, name := range numbers {
		o.setMissing(name, "0")
	}
	return o.String()
}

// showOutput returns a list of output items as its client sees them. One without a status is completed, as in the events of a stream, which come
// before it is known that the response is incomplete.
func (t *turn) showOutput(output string, itemID func(i int, item string) string) string {
	size := len(output) + t.idBytes()*jsonvalue.Count(output)
	return mapList(output, size, func(i int, item string) string {
		if !jsonvalue.IsObject(item) {
			return item
		}
		return shown(item, itemID(i, item), store.StatusCompleted)
	})
}

// itemID returns the ID of an output item that its client sees. An item that is not stored keeps the engine's ID: nothing can refer to it.
func (t *turn) itemID(i int, item string) string {
	name := itemName{t.id, t.request.inputs + i}
	if t.request.store {
		return name.id(itemType(item))
	}
	return cmp.Or(gjson.Get(item, "id").Str, name.unstoredID(itemType(item)))
}

// idBytes returns more than an item usually gets longer by its ID, of whose characters some are escaped if another gateway has made it, and by
// the members that it lacks.
func (t *turn) idBytes() int { return 192 + 6*len(t.id) }

// toolBytes is more than a tool gets longer by toolMembers.
const toolBytes = 64

// completedBytes is more than a response gets longer by members with default values.
const completedBytes = 1 << 10

// shownBytes returns the memory for a response as its client sees it.
func (t *turn) shownBytes(response *object) int64 {
	bytes := completedBytes + int64(t.idBytes()*jsonvalue.Count(response.raw("output")))
	for _, m := range response.members {
		bytes += int64(len(m.key) + len(m.value) + 2)
	}
	for _, item := range jsonvalue.Elements(response.raw("output")) {
		bytes += partsGrowth(item)
	}
	tools := response.raw("tools")
	for _, m := range requestMembers {
		if response.isNull(m.name) {
			bytes += int64(len(t.request.object.raw(m.name)))
		}
	}
	if jsonvalue.IsNull(tools) {
		tools = t.request.object.raw("tools")
	}
	return bytes + toolBytes*int64(jsonvalue.Count(tools))
}

// turnOf returns the turn of a stored session.
func turnOf(s *store.Session) *turn {
	q := &createRequest{body: s.Request, previous: s.PreviousResponseID, named: s.PreviousResponseID, store: true}
	var err error
	if q.object, err = parseObject(s.Request); err != nil {
		q.object = &object{} // another gateway saved it
	}
	if request, err := jsonvalue.ParseObject(s.Request); err == nil {
		q.inputs = countInput(request.RawMembers("input")[0])
	}
	return &turn{id: s.ResponseID, request: q, created: s.CreatedAt}
}

// countInput returns the number of items of a valid input, which is raw JSON.
func countInput(input string) int {
	switch {
	case jsonvalue.IsList(input):
		return jsonvalue.Count(input)
	case jsonvalue.IsString(input) && input != `""`: // as in chain.Flatten
		return 1
	}
	return 0
}

// show returns a response of a turn as its client sees it, and holds its memory.
func (g *Gateway) show(ctx context.Context, c *call, t *turn, response *object) (*object, error) {
	bytes, err := inTurn(ctx, g, c, t.scannedBytes(response), func() (int64, error) { return t.shownBytes(response), nil })
	if err == nil {
		err = c.hold(bytes)
	}
	if err != nil {
		return nil, err
	}
	return inTurn(ctx, g, c, int(bytes), func() (*object, error) { return t.show(response, t.itemID), nil })
}

// scannedBytes returns the size of what shownBytes scans.
func (t *turn) scannedBytes(response *object) int {
	return response.size() + len(t.request.object.raw("tools"))
}

// showStored is show for the response of a session.
func (g *Gateway) showStored(ctx context.Context, c *call, s *store.Session) (*object, error) {
	var t *turn
	response, err := inTurn(ctx, g, c, len(s.Request)+len(s.Response), func() (*object, error) {
		t = turnOf(s)
		return storedResponse(s)
	})
	if err != nil {
		return nil, err
	}
	return g.show(ctx, c, t, response)
}
