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
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// itemName names an item by its turn, and by its number in the turn as store.Origin defines it. It is what the IDs of items that clients
// see are made of, whatever ID the engine uses: engines count their items, begin again after a restart, and are not asked for items. So an
// item is found without an index, on any replica, and its ID never changes. Stored items keep the engine's IDs, and the engine gets them
// back.
type itemName struct {
	responseID string
	number     int
}

const (
	responsePrefix = "resp_"
	// otherPrefix marks the response IDs that do not begin with responsePrefix.
	otherPrefix = "~"
	// maxItemNumber is larger than the number of any item: a turn has fewer bytes.
	maxItemNumber = 1 << 30
)

// itemPrefixes are the prefixes of OpenAI's IDs by the type of the item. They tell a person what an item is, and some clients rely on them;
// the gateway ignores them.
var itemPrefixes = map[string]string{
	"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco", "custom_tool_call": "ctc",
	"custom_tool_call_output": "ctco", "web_search_call": "ws", "file_search_call": "fs", "code_interpreter_call": "ci",
	"image_generation_call": "ig", "computer_call": "cu", "computer_call_output": "cuo", "local_shell_call": "lsh", "mcp_call": "mcp",
	"mcp_list_tools": "mcpl", "mcp_approval_request": "mcpr", "compaction": "cmp",
}

// id returns the ID of an item of the given type, such as msg_0123456789abcdef_2.
func (n itemName) id(itemType string) string {
	prefix := itemPrefixes[itemType]
	if prefix == "" {
		prefix = "item"
	}
	stem, ok := strings.CutPrefix(n.responseID, responsePrefix)
	if !ok || strings.HasPrefix(stem, otherPrefix) {
		stem = otherPrefix + n.responseID
	}
	return prefix + "_" + stem + "_" + strconv.Itoa(n.number)
}

// parseItemID returns the name in an ID, and false if it is not an ID of the gateway.
func parseItemID(id string) (itemName, bool) {
	_, rest, _ := strings.Cut(id, "_")
	i := strings.LastIndexByte(rest, '_')
	if i <= 0 {
		return itemName{}, false
	}
	number, err := strconv.Atoi(rest[i+1:])
	if err != nil || number < 0 || number >= maxItemNumber || strconv.Itoa(number) != rest[i+1:] {
		return itemName{}, false
	}
	responseID := responsePrefix + rest[:i]
	if other, ok := strings.CutPrefix(rest[:i], otherPrefix); ok {
		responseID = other
	}
	return itemName{responseID, number}, responseID != ""
}

// itemType returns the type of an item. A message may have none.
func itemType(item string) string {
	if kind := gjson.Get(item, "type"); kind.Type != gjson.Null || !gjson.Get(item, "role").Exists() {
		return kind.Str
	}
	return "message"
}

// callID matches the call IDs of the gateway's turns.
var callID = regexp.MustCompile(`^(.*)_(resp_[0-9a-f]{32})_([0-9]{1,9})$`)

// callID returns the ID of a call as clients and the store have it, such as call_abc_resp_0123456789abcdef0123456789abcdef_2: the engine's, followed
// by the name of the item. Some clients send calls back without their IDs, and outputs never have one, so this is what shows to which
// conversation they belong. The engine gets its own ID back, which needs no lookup.
func (n itemName) callID(engine string) string {
	return engine + "_" + n.responseID + "_" + strconv.Itoa(n.number)
}

// parseCallID returns the engine's part of a call ID and the name of the call, and false if it is not from the gateway.
func parseCallID(id string) (engine string, call itemName, ok bool) {
	if !strings.Contains(id, callMark) {
		return "", itemName{}, false
	}
	parts := callID.FindStringSubmatch(id)
	if parts == nil {
		return "", itemName{}, false
	}
	number, _ := strconv.Atoi(parts[3]) // it has few digits
	return parts[1], itemName{parts[2], number}, true
}

// callMark is a part of every call ID from the gateway.
const callMark = "_" + responsePrefix

// withEngineCall returns an item as the engine gets it, with its own call ID.
func withEngineCall(item string) string {
	if !strings.Contains(item, callMark) {
		return item
	}
	engine, _, ok := parseCallID(gjson.Get(item, "call_id").Str)
	if !ok {
		return item
	}
	return withMember(item, "call_id", quote(engine))
}

// withID returns an item with another ID, which is removed if it is empty.
func withID(item, id string) string {
	if id == "" {
		return withMember(item, "id", "")
	}
	return withMember(item, "id", quote(id))
}

// withMember returns an item with another value of a member, and otherwise byte for byte as it is, including duplicate keys. The member is
// removed if the value is empty. The name must not need escapes.
func withMember(item, name, replacement string) string {
	var b strings.Builder
	b.Grow(len(item) + len(name) + len(replacement) + len(`"":,`))
	separator, missing := "{", replacement != ""
	add := func(key, value string) {
		b.WriteString(separator + key + ":")
		b.WriteString(value)
		separator = ","
	}
	for key, value := range jsonvalue.Elements(item) {
		switch {
		case jsonvalue.Unquote(key) != name:
			add(key, value)
		case missing:
			add(key, replacement)
			missing = false
		}
	}
	if missing {
		add(`"`+name+`"`, replacement)
	}
	if separator == "{" {
		b.WriteString("{")
	}
	b.WriteString("}")
	return b.String()
}

// listed returns an item as OpenAI lists it: with a type, an ID, and the text of a message as a part of its content. An item that is not
// unambiguous JSON only gets the ID.
func listed(item string, name itemName) string {
	kind := itemType(item)
	id := name.id(kind)
	o, err := objectOf(item)
	if err != nil {
		return withID(item, id)
	}
	o.set("id", quote(id))
	if kind != "" {
		o.set("type", quote(kind))
	}
	switch kind {
	case "message":
		switch content := o.raw("content"); {
		case jsonvalue.IsString(content):
			o.set("content", "["+textPart(o.get("role").Str, content)+"]")
		case jsonvalue.IsList(content) && strings.Contains(content, `"input_image"`):
			o.set("content", withDetail(content))
		}
		o.setMissing("status", `"completed"`)
	case "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output":
		o.setMissing("status", `"completed"`)
	}
	return o.String()
}

// withDetail returns the parts of a message, whose images have a detail.
func withDetail(content string) string {
	var parts []string
	for _, part := range jsonvalue.Elements(content) {
		if o, err := objectOf(part); err == nil && o.get("type").Str == "input_image" {
			o.setMissing("detail", `"auto"`)
			part = o.String()
		}
		parts = append(parts, part)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// textPart returns the part of a message that is equivalent to a text, which is raw JSON.
func textPart(role, text string) string {
	if role == "assistant" {
		return `{"type":"output_text","annotations":[],"logprobs":[],"text":` + text + "}"
	}
	return `{"type":"input_text","text":` + text + "}"
}
