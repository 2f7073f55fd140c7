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

// hostedPrefixes are the prefixes of the IDs of the items of tools that are not functions, by their types.
var hostedPrefixes = map[string]string{
	"web_search_call": "ws", "file_search_call": "fs", "code_interpreter_call": "ci", "image_generation_call": "ig", "mcp_list_tools": "mcpl",
	"mcp_call": "mcp", "custom_tool_call": "ctc",
}

// hosted returns an item of each of these types, and a message with an annotation and a refusal. The last one is a call.
func hosted(newID func(prefix string) string, callID string) []object {
	items := []object{
		{"type": "web_search_call", "status": completes, "action": object{"type": "search", "query": "weather"}},
		{"type": "file_search_call", "status": completes, "queries": []string{"weather"}, "results": nil},
		{
			"type": "code_interpreter_call", "status": completes, "container_id": "cntr_1", "code": "1 + 1",
			"outputs": []object{{"type": "logs", "logs": "2"}},
		},
		{"type": "image_generation_call", "status": completes, "result": "aW1hZ2U="},
		{"type": "mcp_list_tools", "server_label": "maps", "tools": []object{{"name": "route", "input_schema": object{}}}},
		{
			"type": "mcp_call", "status": completes, "server_label": "maps", "name": "route", "arguments": "{}", "output": "north", "error": nil,
			"approval_request_id": nil,
		},
	}
	for _, item := range items {
		item["id"] = newID(hostedPrefixes[item["type"].(string)])
	}
	cited := textPart("It rains.")
	cited["annotations"] = []object{{"type": "url_citation", "start_index": 0, "end_index": 2, "title": "Rain", "url": "https://example.com/"}}
	message := object{
		"type": "message", "id": newID("msg"), "status": completes, "role": "assistant",
		"content": []object{cited, {"type": "refusal", "refusal": "No."}},
	}
	call := object{"type": "custom_tool_call", "id": newID("ctc"), "call_id": callID, "name": "patch", "input": "a"}
	return append(items, message, call)
}

// hostedEvents returns an item of a tool that is not a function as it is at first, and its own events.
func hostedEvents(item, added object) []object {
	kind := item["type"].(string)
	if _, has := item["status"]; has {
		added["status"] = "in_progress"
	}
	state := func(name string) object { return object{"type": "response." + kind + "." + name} }
	switch kind {
	case "web_search_call", "file_search_call":
		return []object{state("in_progress"), state("searching"), state(completes)}
	case "code_interpreter_call":
		added["code"], added["outputs"] = nil, nil
		return []object{
			state("in_progress"), {"type": "response.code_interpreter_call_code.delta", "delta": item["code"]},
			{"type": "response.code_interpreter_call_code.done", "code": item["code"]}, state("interpreting"), state(completes),
		}
	case "image_generation_call":
		added["result"] = nil
		return []object{
			state("in_progress"), state("generating"),
			{"type": "response.image_generation_call.partial_image", "partial_image_b64": item["result"], "partial_image_index": 0}, state(completes),
		}
	case "mcp_call":
		added["arguments"], added["output"] = "", nil
		return []object{
			state("in_progress"), {"type": "response.mcp_call_arguments.delta", "delta": item["arguments"]},
			{"type": "response.mcp_call_arguments.done", "arguments": item["arguments"]}, state(completes),
		}
	case "custom_tool_call":
		added["input"] = ""
		return []object{
			{"type": "response.custom_tool_call_input.delta", "delta": item["input"]},
			{"type": "response.custom_tool_call_input.done", "input": item["input"]},
		}
	}
	return []object{state("in_progress"), state(completes)}
}

// refusalEvents returns the events of a part of a message that is a refusal.
func refusalEvents(part object) []object {
	return []object{
		{"type": "response.content_part.added", "part": object{"type": "refusal", "refusal": ""}},
		{"type": "response.refusal.delta", "delta": part["refusal"]},
		{"type": "response.refusal.done", "refusal": part["refusal"]},
		{"type": "response.content_part.done", "part": part},
	}
}
