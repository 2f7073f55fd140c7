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
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// idPrefix returns the prefix of the IDs of items of the given type.
func idPrefix(itemType string) string {
	if prefix := itemPrefixes[itemType]; prefix != "" {
		return prefix
	}
	return "item"
}

// id returns the ID of an item of the given type, such as msg_0123456789abcdef_2.
func (n itemName) id(itemType string) string {
	stem, ok := strings.CutPrefix(n.responseID, responsePrefix)
	if !ok || strings.HasPrefix(stem, otherPrefix) {
		stem = otherPrefix + n.responseID
	}
	return idPrefix(itemType) + "_" + stem + "_" + strconv.Itoa(n.number)
}

// unstoredID returns the ID of an item of a turn that is not stored, to which the engine has given none, such as
// msg_resp_0123456789abcdef0123456789abcdef.2. It names nothing: parseItemID rejects it, and writeForEngine removes it.
func (n itemName) unstoredID(itemType string) string {
	return idPrefix(itemType) + "_" + n.responseID + "." + strconv.Itoa(n.number)
}

// unstoredIDs matches the results of unstoredID.
var unstoredIDs = regexp.MustCompile(`^[a-z]+_resp_[0-9a-f]{32}\.[0-9]{1,9}$`)

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

// suffix matches the name of an item of the gateway's turns behind an ID of an engine, of at most maxSuffix bytes. The name has the 16 bytes of the
// response ID as base64, so that the IDs of calls fit into maxCallID. Earlier builds appended the response ID itself.
var suffix = regexp.MustCompile(`_(?:-([0-9A-Za-z_-]{21}[AQgw])|(resp_[0-9a-f]{32}))_([0-9]{1,9})$`)

const (
	maxSuffix = len("_resp_") + 32 + len("_") + 9
	// maxCallID is the number of characters of the longest ID of a call that OpenAI's API accepts. Some clients cut longer ones.
	maxCallID = 64
)

// approvalMember is the member that has the ID of a request for approval.
const approvalMember = "approval_request_id"

// itemMarks: every suffix, and every ID that unstoredIDs matches, contains one of them.
var itemMarks = []string{"_-", "_" + responsePrefix}

// isMarked reports whether a text can have an ID to which the gateway has added something.
func isMarked(text string) bool {
	return slices.ContainsFunc(itemMarks, func(mark string) bool { return strings.Contains(text, mark) })
}

// generated returns the bytes of a response ID, and whether it has the form of those that gateways generate.
func generated(responseID string) ([]byte, bool) {
	stem, ok := strings.CutPrefix(responseID, responsePrefix)
	bytes, err := hex.DecodeString(stem)
	return bytes, ok && err == nil && len(bytes) == 16 && hex.EncodeToString(bytes) == stem
}

// behind appends the name to an engine's ID, as in call_abc_-ASNFZ4mrze8BI0VniavN7w_2. writeForEngine strips it without a
// lookup. The store keeps such IDs in three places:
//
//   - call_id of calls and their outputs: see callID. Clients see it, too. It identifies the conversation of a call that a client returns without
//     its item ID.
//   - id of an item that a client has copied from another turn into its input, so that the gateway recognizes the item when the client names
//     the original again.
//   - approval_request_id of what answers or follows a request for approval. Clients see the ID of that item.
//
// It returns the engine's ID unchanged if the response ID does not have the form of those that gateways generate, or the number has too many digits.
func (n itemName) behind(engine string) string {
	bytes, ok := generated(n.responseID)
	if !ok {
		return engine
	}
	id := engine + "_-" + base64.RawURLEncoding.EncodeToString(bytes) + "_" + strconv.Itoa(n.number)
	if _, name, ok := parseSuffix(id); !ok || name != n {
		return engine
	}
	return id
}

// callID is behind for the ID of a call. It returns the engine's ID unchanged if the result would be too long.
func (n itemName) callID(engine string) string {
	if id := n.behind(engine); utf8.RuneCountInString(id) <= maxCallID {
		return id
	}
	return engine
}

// parseSuffix returns the engine's part of an ID and the name behind it, and false if there is no name.
func parseSuffix(id string) (engine string, name itemName, ok bool) {
	if !isMarked(id) {
		return id, itemName{}, false
	}
	parts := suffix.FindStringSubmatch(id[max(0, len(id)-maxSuffix):]) // an ID of a client can have many megabytes
	if parts == nil {
		return id, itemName{}, false
	}
	responseID := parts[2]
	if responseID == "" {
		bytes, _ := base64.RawURLEncoding.DecodeString(parts[1]) // suffix matches nothing else
		responseID = responsePrefix + hex.EncodeToString(bytes)
	}
	number, _ := strconv.Atoi(parts[3]) // it has few digits
	return strings.TrimSuffix(id, parts[0]), itemName{responseID, number}, true
}

// copiedFrom returns the item that a stored item is a copy of, or no name.
func copiedFrom(item string) itemName {
	if !isMarked(item) {
		return itemName{}
	}
	_, name, _ := parseSuffix(gjson.Get(item, "id").Str)
	return name
}

// writeForEngine writes an item as the engine gets it: without what the gateway has added to its IDs, and otherwise byte for byte as it is. It
// copies no ID, because one of a client can have many megabytes. What is added has no escapes.
func writeForEngine(b *strings.Builder, item string) {
	if !isMarked(item) || !jsonvalue.IsObject(item) || !hasAddedIDs(item) {
		b.WriteString(item)
		return
	}
	separator := "{"
	for key, value := range jsonvalue.Elements(item) {
		engine, added := rawEngineID(key, value)
		if added && engine == "" {
			continue
		}
		b.WriteString(separator)
		b.WriteString(key)
		b.WriteString(":")
		separator = ","
		if added {
			b.WriteString(`"`)
			b.WriteString(engine)
			b.WriteString(`"`)
		} else {
			b.WriteString(value)
		}
	}
	if separator == "{" {
		b.WriteString("{")
	}
	b.WriteString("}")
}

// hasAddedIDs reports whether the gateway has added something to an ID of an item.
func hasAddedIDs(item string) bool {
	for key, value := range jsonvalue.Elements(item) {
		if _, added := rawEngineID(key, value); added {
			return true
		}
	}
	return false
}

// rawEngineID is engineID for a member of an item, as raw JSON without quotes. It reports whether the gateway has added something to the ID.
func rawEngineID(key, value string) (engine string, added bool) {
	switch key {
	case `"id"`, `"call_id"`, `"` + approvalMember + `"`:
	default:
		return "", false
	}
	if !jsonvalue.IsString(value) {
		return "", false
	}
	id := value[1 : len(value)-1]
	engine = engineID(id)
	return engine, engine != id
}

// engineID returns an ID as the engine has given it, or "" if it has given none.
func engineID(id string) string {
	engine, _, _ := parseSuffix(id)
	if unstoredIDs.MatchString(engine) {
		return ""
	}
	return engine
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
		b.WriteString(separator)
		b.WriteString(key)
		b.WriteString(":")
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

// shown returns an output item as its client sees it: with an ID, and with the members that a thin engine leaves out. An item with that ID
// and all members is returned as it is.
func shown(item, id, status string) string {
	o, err := objectOf(item)
	if err != nil {
		return withID(item, id)
	}
	before := slices.Clone(o.members)
	kind := itemType(item)
	if o.get("id").Str != id {
		o.set("id", quote(id))
	}
	if kind == "message" {
		o.setMissing("role", `"assistant"`)
		o.setMissing("content", "[]")
	}
	completeItem(o, kind, status)
	if slices.Equal(o.members, before) {
		return item
	}
	return o.String()
}

// completeItem adds the members that OpenAI's items of a type always have.
func completeItem(o *object, kind, status string) {
	if kind != "" {
		o.set("type", quote(kind))
	}
	if _, request, ok := parseSuffix(o.get(approvalMember).Str); ok {
		o.set(approvalMember, quote(request.id("mcp_approval_request")))
	}
	content := "content"
	if strings.HasSuffix(kind, "_call_output") {
		content = "output"
	}
	switch value := o.raw(content); {
	case kind == "message" && jsonvalue.IsString(value):
		o.set(content, "["+textPart(o.get("role").Str, value)+"]")
	case (kind == "message" || content == "output") && jsonvalue.IsList(value):
		o.set(content, completeList(value, completePart))
	}
	if kind == "message" || kind == "tool_search_output" || content == "output" || isCall(kind) {
		o.setMissing("status", quote(status))
	}
	switch {
	case kind == "shell_call" && jsonvalue.IsObject(o.raw("action")):
		o.set("action", withDefaults(o.raw("action"), shellMembers))
	case kind == "tool_search_call" && o.get("call_id").Str != "":
		o.setMissing("execution", `"client"`) // the server's calls have no ID
	}
	for _, m := range itemMembers[kind] {
		o.setMissing(m.name, m.missing)
	}
}

// itemMembers are the members that OpenAI's items always have besides their status, by type.
var itemMembers = map[string][]memberDefault{
	"code_interpreter_call": {{"code", "null"}, {"outputs", "null"}},
	"computer_call":         {{"pending_safety_checks", "[]"}},
	"file_search_call":      {{"queries", "[]"}},
	"image_generation_call": {{"result", "null"}},
	"mcp_list_tools":        {{"tools", "[]"}},
	"reasoning":             {{"summary", "[]"}},
	"shell_call":            {{"environment", "null"}},
	"shell_call_output":     {{"max_output_length", "null"}},
	"tool_search_call":      {{"execution", `"server"`}, {"call_id", "null"}},
	"tool_search_output":    {{"execution", `"client"`}, {"call_id", "null"}},
}

// shellMembers are the members that the action of a shell_call always has.
var shellMembers = []memberDefault{{"max_output_length", "null"}, {"timeout_ms", "null"}}

// partMembers are the members that OpenAI's parts of a message, or of the output of a call, always have, by type.
var partMembers = map[string][]memberDefault{
	"input_image": {{"detail", `"auto"`}},
	"output_text": {{"annotations", "[]"}, {"logprobs", "[]"}},
}

// partBytes is more than a part gets longer by partMembers.
const partBytes = 64

// partsGrowth returns more than the parts of an item get longer when they are completed.
func partsGrowth(item string) int64 {
	parts := 0
	for _, list := range jsonvalue.RawMembers(item, "content", "output") {
		if jsonvalue.IsList(list) {
			parts += jsonvalue.Count(list)
		}
	}
	return partBytes * int64(parts)
}

// completeList returns a list whose elements are completed, or the list itself if none changes.
func completeList(list string, complete func(element string) string) string {
	changed := false
	completed := mapList(list, len(list), func(_ int, element string) string {
		complete := complete(element)
		changed = changed || complete != element
		return complete
	})
	if !changed {
		return list
	}
	return completed
}

// completePart returns a part with the members that it lacks, or the part itself if it lacks none.
func completePart(part string) string {
	return withDefaults(part, partMembers[gjson.Get(part, "type").Str])
}

// withDefaults returns an object with the members that it lacks, or the object itself if it lacks none or is ambiguous.
func withDefaults(object string, members []memberDefault) string {
	if members == nil {
		return object
	}
	o, err := objectOf(object)
	if err != nil {
		return object
	}
	before := slices.Clone(o.members)
	for _, m := range members {
		o.setMissing(m.name, m.missing)
	}
	if slices.Equal(o.members, before) {
		return object
	}
	return o.String()
}

// textPart returns the part of a message that is equivalent to a text, which is raw JSON.
func textPart(role, text string) string {
	if role == "assistant" {
		return `{"type":"output_text","annotations":[],"logprobs":[],"text":` + text + "}"
	}
	return `{"type":"input_text","text":` + text + "}"
}
