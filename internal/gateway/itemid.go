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
	"github.com/catena-dev/catena/store"
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
	if i < 0 {
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

// suffix matches an ID of an engine with the name of an item of the gateway's turns behind it.
var suffix = regexp.MustCompile(`^(.*)_(resp_[0-9a-f]{32})_([0-9]{1,9})$`)

// itemMark is a part of every suffix.
const itemMark = "_" + responsePrefix

// behind returns an ID of an engine with the name behind it, such as call_abc_resp_0123456789abcdef0123456789abcdef_2. The store has such IDs where
// a name would be lost otherwise, and the engine gets its own one back, which needs no lookup:
//
// Calls have them, as clients see them: some clients send calls back without their IDs, and outputs never have one, so this is what shows to
// which conversation they belong.
//
// Copies of items have them, which a client has sent although they belong to another turn. Clients name them as before.
//
// Turns whose IDs other gateways have made have no suffixes.
func (n itemName) behind(engine string) string {
	id := engine + "_" + n.responseID + "_" + strconv.Itoa(n.number)
	if _, name, ok := parseSuffix(id); !ok || name != n {
		return engine
	}
	return id
}

// parseSuffix returns the engine's part of an ID and the name behind it, and false if there is no name.
func parseSuffix(id string) (engine string, name itemName, ok bool) {
	if !strings.Contains(id, itemMark) {
		return id, itemName{}, false
	}
	parts := suffix.FindStringSubmatch(id)
	if parts == nil {
		return id, itemName{}, false
	}
	number, _ := strconv.Atoi(parts[3]) // it has few digits
	return parts[1], itemName{parts[2], number}, true
}

// copiedFrom returns the item that a stored item is a copy of, or no name.
func copiedFrom(item string) itemName {
	if !strings.Contains(item, itemMark) {
		return itemName{}
	}
	_, name, _ := parseSuffix(gjson.Get(item, "id").Str)
	return name
}

// withEngineIDs returns an item as the engine gets it.
func withEngineIDs(item string) string {
	if !strings.Contains(item, itemMark) {
		return item
	}
	for _, member := range []string{"id", "call_id"} {
		if engine, _, ok := parseSuffix(gjson.Get(item, member).Str); ok && engine == "" {
			item = withMember(item, member, "")
		} else if ok {
			item = withMember(item, member, quote(engine))
		}
	}
	return item
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
	completeItem(o, kind, store.StatusCompleted)
	return o.String()
}

// shown returns an output item as its client sees it: with an ID, and with the members that a thin engine leaves out.
func shown(item, id, status string) string {
	o, err := objectOf(item)
	if err != nil {
		return withID(item, id)
	}
	kind := itemType(item)
	o.set("id", quote(id))
	if kind == "message" {
		o.setMissing("role", `"assistant"`)
		o.setMissing("content", "[]")
	}
	completeItem(o, kind, status)
	return o.String()
}

// completeItem adds the members that OpenAI's items of a type always have.
func completeItem(o *object, kind, status string) {
	if kind != "" {
		o.set("type", quote(kind))
	}
	switch kind {
	case "message":
		if content := o.raw("content"); jsonvalue.IsString(content) {
			o.set("content", "["+textPart(o.get("role").Str, content)+"]")
		} else if jsonvalue.IsList(content) {
			o.set("content", completeParts(content))
		}
		o.setMissing("status", quote(status))
	case "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output":
		o.setMissing("status", quote(status))
	}
}

// partMembers are the members that OpenAI's parts of a message always have, by type.
var partMembers = map[string][]struct{ name, missing string }{
	"input_image": {{"detail", `"auto"`}},
	"output_text": {{"annotations", "[]"}, {"logprobs", "[]"}},
}

// completeParts adds the members that the parts of a message lack.
func completeParts(content string) string {
	var b strings.Builder
	b.Grow(len(content))
	separator := "["
	for _, part := range jsonvalue.Elements(content) {
		if members := partMembers[gjson.Get(part, "type").Str]; members != nil {
			if o, err := objectOf(part); err == nil {
				for _, m := range members {
					o.setMissing(m.name, m.missing)
				}
				part = o.String()
			}
		}
		b.WriteString(separator)
		b.WriteString(part)
		separator = ","
	}
	if separator == "[" {
		b.WriteString("[")
	}
	b.WriteString("]")
	return b.String()
}

// textPart returns the part of a message that is equivalent to a text, which is raw JSON.
func textPart(role, text string) string {
	if role == "assistant" {
		return `{"type":"output_text","annotations":[],"logprobs":[],"text":` + text + "}"
	}
	return `{"type":"input_text","text":` + text + "}"
}
