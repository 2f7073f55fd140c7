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
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// How an answer ends.
const (
	completes  = "completed"
	incomplete = "incomplete"
	fails      = "failed"
	stalls     = "stalled"
	breaks     = "broken"
)

const failureMessage = "The engine was told to fail."

// answer is what the engine does with a request.
type answer struct {
	request gjson.Result
	variant variant
	id      string
	items   []object
	end     string
}

func (e *strict) answer(request gjson.Result) *answer {
	a := &answer{request: request, variant: variants[request.Get("model").Str], end: completes}
	a.id = e.issue(a.variant, "resp", 1)
	newID := func(prefix string) string { return e.issue(a.variant, prefix, len(a.items)+1) }
	prompt, text := instructions(request.Get("input"))
	lines := strings.Split(prompt, "\n")
	if slices.Contains(lines, "reason") {
		a.items = append(a.items, reasoning(newID("rs"), prompt))
	}
	called := slices.Contains(lines, "hosted")
	if called {
		a.items = append(a.items, hosted(newID, e.issue(variant{}, "call", 0))...)
	}
	for _, line := range lines {
		if call, ok := strings.CutPrefix(line, "call "); ok {
			called = true
			callID := e.issue(variant{}, "call", 0) // engines do not number these, and clients reject one that is repeated
			a.items = append(a.items, functionCall(newID("fc"), callID, call))
		}
		if end, ok := ends[line]; ok {
			a.end = end
		}
	}
	if !called {
		a.items = append(a.items, a.message(newID("msg"), text))
	}
	if !a.variant.restarted {
		e.remember(a.items)
	}
	return a
}

var ends = map[string]string{"cut off": incomplete, "fail": fails, "stall": stalls, "break off": breaks}

// instructions returns the text whose lines instruct the engine, and the text of its message.
func instructions(input gjson.Result) (prompt, text string) {
	items := input.Array()
	var outputs []string
	for i := len(items) - 1; i >= 0 && strings.HasSuffix(items[i].Get("type").Str, "_call_output"); i-- {
		outputs = append([]string{textOf(items[i].Get("output"))}, outputs...)
	}
	if len(outputs) > 0 {
		return strings.Join(outputs, "\n"), "The functions answered: " + strings.Join(outputs, ", ")
	}
	said := said(input)
	if len(said) == 0 {
		return "", "You said nothing."
	}
	last := said[len(said)-1]
	return last, fmt.Sprintf("You said %d things, from '%s' to '%s', in %d items.", len(said), said[0], last, len(items))
}

// textOf returns the text of a string or of a list of parts.
func textOf(content gjson.Result) string {
	if content.Type == gjson.String {
		return content.Str
	}
	var b strings.Builder
	for _, part := range content.Array() {
		b.WriteString(part.Get("text").Str)
	}
	return b.String()
}

func (a *answer) message(id, text string) object {
	status := completes
	if a.end == incomplete {
		status, text = incomplete, text[:len(text)/2]
	}
	return object{"type": "message", "id": id, "status": status, "role": "assistant", "content": []object{textPart(text)}}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

func functionCall(id, callID, call string) object {
	name, arguments, _ := strings.Cut(call, " ")
	if arguments == "" {
		arguments = "{}"
	}
	return object{"type": "function_call", "id": id, "status": completes, "call_id": callID, "name": name, "arguments": arguments}
}

func reasoning(id, prompt string) object {
	thought := fmt.Sprintf("The user said '%s'.", prompt)
	return object{
		"type": "reasoning", "id": id, "summary": []object{{"type": "summary_text", "text": thought}},
		"encrypted_content": seal(id, thought),
	}
}

// fingerprint returns what must not change in an item that the engine has issued.
func fingerprint(item gjson.Result) string {
	members := []string{textOf(item.Get("content")), summary(item)}
	for _, name := range []string{
		"call_id", "name", "arguments", "encrypted_content", "action", "queries", "code", "outputs", "result", "tools", "output", "input",
	} {
		members = append(members, item.Get(name).String())
	}
	return strings.Join(members, "\x00")
}

func summary(item gjson.Result) string { return textOf(item.Get("summary")) }

// seal returns the encrypted content of a reasoning item.
func seal(id, summary string) string {
	mac := hmac.New(sha256.New, []byte("enginetest"))
	mac.Write([]byte(id + "\x00" + summary))
	return base64.StdEncoding.EncodeToString([]byte(id + " " + hex.EncodeToString(mac.Sum(nil))))
}

// unseal returns the ID of the reasoning item that some encrypted content was issued with. It is not valid if the content or the
// summary has changed.
func unseal(content, summary string) (id string, valid bool) {
	decoded, err := base64.StdEncoding.DecodeString(content)
	id, _, _ = strings.Cut(string(decoded), " ")
	return id, err == nil && content == seal(id, summary)
}

func encode(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // never: all values can be encoded
	}
	return string(encoded)
}
