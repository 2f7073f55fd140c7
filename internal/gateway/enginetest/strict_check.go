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

package enginetest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// check returns why the engine rejects a request, or nil.
func (e *strict) check(request gjson.Result) *refusal {
	model := request.Get("model").Str
	v, known := variants[model]
	if !known {
		return refuse("model", "model_not_found", "The requested model '%s' does not exist.", model)
	}
	if r := checkState(request); r != nil {
		return r
	}
	input := request.Get("input")
	switch {
	case input.Type == gjson.String:
		return nil
	case !input.IsArray():
		return refuse("input", "invalid_type", "Invalid type for 'input': expected one of an array of input items or a string.")
	}
	c := &inputCheck{engine: e, variant: v, seen: map[string]bool{}}
	for i, item := range input.Array() {
		if r := c.item(fmt.Sprintf("input[%d]", i), item); r != nil {
			return r
		}
	}
	for _, call := range c.open {
		return refuse("input", "", "No tool output found for function call %s.", call)
	}
	return nil
}

// checkState rejects the parameters that need state.
func checkState(request gjson.Result) *refusal {
	switch {
	case request.Get("previous_response_id").Type != gjson.Null:
		id := request.Get("previous_response_id").String()
		return refuse("previous_response_id", "previous_response_not_found", "Previous response with id '%s' not found.", id)
	case request.Get("conversation").Type != gjson.Null:
		return refuse("conversation", "unsupported_parameter", "Unsupported parameter: 'conversation'.")
	case request.Get("background").Bool():
		return refuse("background", "unsupported_parameter", "Unsupported parameter: 'background'.")
	}
	return nil
}

// checkStore rejects a request for a response that is to be stored.
func checkStore(request gjson.Result) *refusal {
	if request.Get("store").Type != gjson.False {
		return refuse("store", "unsupported_value", "Unsupported value: 'store' must be false, this engine keeps no responses.")
	}
	return nil
}

// inputCheck checks the items of an input one after the other.
type inputCheck struct {
	engine  *strict
	variant variant
	// seen has the IDs so far, and open the function calls so far that have no output yet.
	seen map[string]bool
	open []string
}

func (c *inputCheck) item(path string, item gjson.Result) *refusal {
	kind := item.Get("type").Str
	if kind == "" && item.Get("role").Exists() {
		kind = "message"
	}
	switch kind {
	case "message":
		return c.message(path, item)
	case "function_call":
		return c.call(path, item)
	case "function_call_output", "custom_tool_call_output":
		return c.output(path, item)
	case "reasoning":
		return c.reasoning(path, item)
	case "compaction":
		return c.id(path, item, "cmp")
	case "item_reference":
		return refuse(path, "", "Item with id '%s' not found. Items are not persisted when `store` is set to false.", item.Get("id").Str)
	}
	if prefix, known := hostedPrefixes[kind]; known {
		if kind == "custom_tool_call" {
			c.open = append(c.open, item.Get("call_id").Str)
		}
		return c.id(path, item, prefix)
	}
	return refuse(path+".type", "invalid_value", "Invalid value: '%s'. This engine does not know this type of item.", kind)
}

// contentTypes are the types of content parts by role.
var contentTypes = map[string][]string{
	"user":      {"input_text", "input_image", "input_file"},
	"system":    {"input_text", "input_image", "input_file"},
	"developer": {"input_text", "input_image", "input_file"},
	"assistant": {"output_text", "refusal"},
}

func (c *inputCheck) message(path string, item gjson.Result) *refusal {
	role, content := item.Get("role").Str, item.Get("content")
	types, known := contentTypes[role]
	switch {
	case !known:
		return refuse(path+".role", "invalid_value", "Invalid value: '%s'.", role)
	case !content.IsArray() && content.Type != gjson.String:
		return refuse(path+".content", "invalid_type", "Invalid type for '%s.content': expected an array or a string.", path)
	}
	for i, part := range content.Array() { // a string has one part, without a type
		if kind := part.Get("type").Str; content.IsArray() && !slices.Contains(types, kind) {
			return refuse(fmt.Sprintf("%s.content[%d]", path, i), "invalid_value", "Invalid value: '%s'. Supported values are: '%s'.", kind, strings.Join(types, "', '"))
		}
	}
	return c.id(path, item, "msg") // those of other roles are in compacted conversations
}

func (c *inputCheck) call(path string, item gjson.Result) *refusal {
	for _, member := range []string{"call_id", "name", "arguments"} {
		if item.Get(member).Type != gjson.String {
			return refuse(path+"."+member, "missing_required_parameter", "Missing required parameter: '%s.%s'.", path, member)
		}
	}
	c.open = append(c.open, item.Get("call_id").Str)
	return c.id(path, item, "fc")
}

func (c *inputCheck) output(path string, item gjson.Result) *refusal {
	call := item.Get("call_id").Str
	i := slices.Index(c.open, call)
	if i < 0 {
		return refuse("input", "", "No tool call found for function call output with call_id %s.", call)
	}
	c.open = slices.Delete(c.open, i, i+1)
	return c.id(path, item, "")
}

func (c *inputCheck) reasoning(path string, item gjson.Result) *refusal {
	id := item.Get("id").Str
	content := item.Get("encrypted_content")
	sealed, valid := unseal(content.Str, summary(item))
	switch {
	case content.Type == gjson.Null:
		return refuse(path, "", "Item with id '%s' not found. Items are not persisted when `store` is set to false.", id)
	case !valid:
		return refuse(path, "invalid_encrypted_content", "The encrypted content for item %s could not be verified.", id)
	case item.Get("id").Type != gjson.Null && id != sealed:
		return refuse(path, "invalid_encrypted_content",
			"The encrypted content for item %s could not be verified. Reason: Encrypted content item_id did not match the target item id.", id)
	}
	return c.id(path, item, "rs")
}

var engineID = regexp.MustCompile(`^([a-z]+)_engine_[1-9][0-9]*$`)

// id checks that the engine has issued an item with the ID of this one, whose IDs begin with prefix, and that it had the same
// content. An item needs no ID. If the prefix is empty, the engine issues no such items.
func (c *inputCheck) id(path string, item gjson.Result, prefix string) *refusal {
	if item.Get("id").Type == gjson.Null {
		return nil
	}
	id := item.Get("id").Str
	match := engineID.FindStringSubmatch(id)
	if match == nil || match[1] != prefix {
		return refuse(path+".id", "invalid_value", "Invalid '%s.id': this engine has not issued the ID '%s'.", path, id)
	}
	if c.variant.restarted {
		return nil // it has forgotten its IDs, and repeats them
	}
	want, issued := c.engine.fingerprint(id)
	switch {
	case !issued:
		return refuse(path+".id", "invalid_value", "Invalid '%s.id': this engine has not issued the ID '%s'.", path, id)
	case fingerprint(item) != want:
		return refuse(path, "invalid_value", "Invalid '%s': the item with the ID '%s' had another content.", path, id)
	case c.seen[id]:
		return refuse("input", "", "Duplicate item found with id %s. Remove duplicate items from your input and try again.", id)
	}
	c.seen[id] = true
	return nil
}
