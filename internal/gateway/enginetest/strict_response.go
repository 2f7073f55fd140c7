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
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// echoed are the members of a Response that repeat a parameter of the request, with their values if it has none.
var echoed = map[string]string{
	"background":             `false`,
	"instructions":           `null`,
	"max_output_tokens":      `null`,
	"max_tool_calls":         `null`,
	"metadata":               `{}`,
	"model":                  `null`,
	"parallel_tool_calls":    `true`,
	"previous_response_id":   `null`,
	"prompt":                 `null`,
	"prompt_cache_key":       `null`,
	"prompt_cache_retention": `null`,
	"reasoning":              `{"effort":null,"summary":null}`,
	"safety_identifier":      `null`,
	"service_tier":           `"default"`,
	"store":                  `false`,
	"temperature":            `1.0`,
	"text":                   `{"format":{"type":"text"},"verbosity":"medium"}`,
	"tool_choice":            `"auto"`,
	"tools":                  `[]`,
	"top_logprobs":           `0`,
	"top_p":                  `1.0`,
	"truncation":             `"disabled"`,
}

// thinMembers are the members that ModelThin has.
var thinMembers = []string{"id", "object", "created_at", "status", "model", "output"}

// lackedByThin are the members that the events of ModelThin do not have.
var lackedByThin = []string{"sequence_number", "output_index", "content_index", "summary_index", "item_id", "logprobs"}

// lackedByThinItems are the members that the items of ModelThin and their parts do not have.
var lackedByThinItems = []string{"id", "status", "annotations", "logprobs"}

func createdAt() int64 { return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Unix() }

// response returns the Response with a status and the items that it has by then.
func (a *answer) response(status string, items []object) object {
	created := createdAt()
	r := object{
		"id": a.id, "object": "response", "created_at": created, "completed_at": nil, "status": status,
		"error": nil, "incomplete_details": nil, "output": items, "usage": nil,
		"access_programs": nil, "conversation": nil, "moderation": nil,
		"prompt_cache_options": object{"mode": "implicit", "ttl": "30m"},
		"tool_usage":           toolUsage(),
	}
	for name, value := range echoed {
		if sent := a.request.Get(name); sent.Type != gjson.Null {
			value = sent.Raw
		}
		r[name] = json.RawMessage(value)
	}
	if user := a.request.Get("user"); user.Exists() {
		r["user"] = user.Value()
	}
	switch status {
	case completes:
		r["completed_at"], r["usage"] = created, usageOf(a.request, items)
	case incomplete:
		r["incomplete_details"], r["usage"] = object{"reason": "max_output_tokens"}, usageOf(a.request, items)
	case fails:
		failure := object{"message": failureMessage}
		if !a.variant.thin {
			failure["code"] = "server_error"
		}
		r["error"] = failure
	}
	if a.variant.thin {
		return thin(r)
	}
	return r
}

func thin(r object) object {
	t := object{}
	for _, name := range thinMembers {
		t[name] = r[name]
	}
	t["output"] = thinList(r["output"].([]object))
	return t
}

func thinList(list []object) []object {
	thin := []object{}
	for _, o := range list {
		thin = append(thin, thinItem(o))
	}
	return thin
}

// thinItem returns an item, or a part of one, with the members that ModelThin has.
func thinItem(item object) object {
	t := maps.Clone(item)
	for name, value := range item {
		if value == nil || slices.Contains(lackedByThinItems, name) {
			delete(t, name)
		}
	}
	if parts, ok := t["content"].([]object); ok {
		t["content"] = thinList(parts)
	}
	return t
}

func usageOf(request gjson.Result, items []object) object {
	input, output := len(strings.Fields(request.Get("input").Raw)), len(strings.Fields(encode(items)))
	return object{
		"input_tokens": input, "input_tokens_details": object{"cached_tokens": 0, "cache_write_tokens": 0},
		"output_tokens": output, "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": input + output,
	}
}

func toolUsage() object {
	none := object{"image_tokens": 0, "text_tokens": 0}
	return object{
		"image_gen": object{
			"input_tokens": 0, "input_tokens_details": none, "output_tokens": 0, "output_tokens_details": none, "total_tokens": 0,
		},
		"web_search": object{"num_requests": 0},
	}
}

// stream sends the events of an answer.
func (a *answer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := &events{writer: w, control: http.NewResponseController(w)}
	if a.variant.thin {
		s.lacks = lackedByThin
	}
	for _, e := range a.events() {
		for _, name := range []string{"item", "part"} {
			if part, ok := e[name].(object); ok && a.variant.thin {
				e[name] = thinItem(part)
			}
		}
		s.send(e["type"].(string), e)
	}
	switch a.end {
	case stalls:
		<-r.Context().Done()
	case breaks:
		panic(http.ErrAbortHandler)
	}
}

// events returns the events of an answer. If it fails, stalls or breaks off, they stop after the first piece of the last item.
func (a *answer) events() []object {
	started := a.response("in_progress", []object{})
	all := []object{{"type": "response.created", "response": started}, {"type": "response.in_progress", "response": started}}
	for i, item := range a.items {
		pieces := itemEvents(item)
		if interrupted := a.end == fails || a.end == stalls || a.end == breaks; interrupted && i == len(a.items)-1 {
			pieces = untilDelta(pieces)
		}
		for _, e := range pieces {
			e["output_index"] = i
		}
		all = append(all, pieces...)
	}
	switch a.end {
	case stalls, breaks:
		return all
	case fails:
		return append(all, object{"type": "response.failed", "response": a.response(fails, a.items[:len(a.items)-1])})
	}
	return append(all, object{"type": "response." + a.end, "response": a.response(a.end, a.items)})
}

func untilDelta(events []object) []object {
	for i, e := range events {
		if strings.HasSuffix(e["type"].(string), ".delta") {
			return events[:i+1]
		}
	}
	return events
}

// itemEvents returns the events of an item, without its index.
func itemEvents(item object) []object {
	added := maps.Clone(item)
	var pieces []object
	switch item["type"] {
	case "message":
		added["content"], added["status"] = []any{}, "in_progress"
		for i, part := range item["content"].([]object) {
			for _, e := range partEvents(part) {
				e["content_index"] = i
				pieces = append(pieces, e)
			}
		}
	case "function_call":
		added["arguments"], added["status"] = "", "in_progress"
		pieces = []object{
			{"type": "response.function_call_arguments.delta", "delta": item["arguments"]},
			{"type": "response.function_call_arguments.done", "arguments": item["arguments"], "name": item["name"]},
		}
	case "reasoning":
		added["summary"] = []any{}
		pieces = summaryEvents(item["summary"].([]object)[0])
	default:
		pieces = hostedEvents(item, added)
	}
	for _, e := range pieces {
		e["item_id"] = item["id"]
	}
	all := append([]object{{"type": "response.output_item.added", "item": added}}, pieces...)
	return append(all, object{"type": "response.output_item.done", "item": item})
}

func partEvents(part object) []object {
	if part["type"] == "refusal" {
		return refusalEvents(part)
	}
	all := []object{{"type": "response.content_part.added", "part": textPart("")}}
	for word := range strings.SplitAfterSeq(part["text"].(string), " ") {
		all = append(all, object{"type": "response.output_text.delta", "delta": word, "logprobs": []any{}})
	}
	if annotations, ok := part["annotations"].([]object); ok {
		for i, annotation := range annotations {
			all = append(all, object{"type": "response.output_text.annotation.added", "annotation": annotation, "annotation_index": i})
		}
	}
	return append(all,
		object{"type": "response.output_text.done", "text": part["text"], "logprobs": []any{}},
		object{"type": "response.content_part.done", "part": part})
}

func summaryEvents(part object) []object {
	all := []object{
		{"type": "response.reasoning_summary_part.added", "part": object{"type": part["type"], "text": ""}},
		{"type": "response.reasoning_summary_text.delta", "delta": part["text"]},
		{"type": "response.reasoning_summary_text.done", "text": part["text"]},
		{"type": "response.reasoning_summary_part.done", "part": part},
	}
	for _, e := range all {
		e["summary_index"] = 0
	}
	return all
}
