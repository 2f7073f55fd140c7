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

package chain

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// Figures are what a turn contributes to the figures of a conversation.
type Figures struct {
	// Model is the model that the response names or, without one, the request: at most MaxModelLength characters.
	Model string
	Usage Usage
}

// MaxModelLength is the number of characters after which a model is cut off.
const MaxModelLength = 256

// Usage is the number of tokens that turns have used.
type Usage struct{ InputTokens, OutputTokens, TotalTokens int64 }

// maxTokens limits the tokens of one turn. A larger number is not one of tokens, and sums stay far from the largest integer.
const maxTokens = 1 << 40

// Add returns the sum of two usages.
func (u Usage) Add(other Usage) Usage {
	return Usage{u.InputTokens + other.InputTokens, u.OutputTokens + other.OutputTokens, u.TotalTokens + other.TotalTokens}
}

// figures returns the figures of a turn. What is not as in the Responses API is left out.
func (p parts) figures() Figures {
	f := Figures{Model: modelOf(p.responseModel)}
	if f.Model == "" {
		f.Model = modelOf(p.requestModel)
	}
	if jsonvalue.IsObject(p.usage) {
		counts := jsonvalue.Members(gjson.Parse(p.usage), "input_tokens", "output_tokens", "total_tokens")
		f.Usage = Usage{tokens(counts[0]), tokens(counts[1]), tokens(counts[2])}
	}
	return f
}

func modelOf(raw string) string {
	const escaped = len(`\ud83d\ude00`)
	model := strings.ToValidUTF8(jsonvalue.UnquoteFirst(raw, len(`"`)+escaped*MaxModelLength), "\uFFFD")
	return strings.Clone(Shorten(model, MaxModelLength)) // it may share the memory of the bodies
}

func tokens(count gjson.Result) int64 {
	if n := count.Num; count.Type == gjson.Number && n >= 0 && n <= maxTokens {
		return int64(n)
	}
	return 0
}

// Shorten returns at most the first characters of a text.
func Shorten(text string, characters int) string {
	for i := range text {
		if characters == 0 {
			return text[:i]
		}
		characters--
	}
	return text
}

// UserText returns the text of the first user message with one, shortened to a number of characters, or the empty string. It is the content if
// that is a string, and otherwise the first of maxTextParts parts with text. Items that are skipped do not count.
func (t *Items) UserText(characters int, skip func(item int) bool) string {
	for i := range t.Len() {
		if skip(i) {
			continue
		}
		item := jsonvalue.RawMembers(jsonvalue.Text(t.Slice(i, i+1)), "type", "role", "content")
		if kind := item[0]; textOf(item[1]) != "user" || kind != "" && textOf(kind) != "message" {
			continue
		}
		if text := contentText(item[2]); text != "" {
			return strings.Clone(Shorten(strings.ToValidUTF8(text, "\uFFFD"), characters))
		}
	}
	return ""
}

// The text of a message can have many megabytes, and as many parts: maxTextBytes is how much of it is decoded, and maxTextParts in how many parts it
// is looked for.
const (
	maxTextBytes = 4 << 10
	maxTextParts = 100
)

// contentText returns the beginning of the text of a message's content, or of its first part with text.
func contentText(content string) string {
	if !jsonvalue.IsList(content) {
		return textOf(content)
	}
	parts := 0
	for _, part := range jsonvalue.Elements(content) {
		if parts++; parts > maxTextParts {
			break
		}
		if !jsonvalue.IsObject(part) {
			continue
		}
		if text := textOf(jsonvalue.RawMembers(part, "text")[0]); text != "" {
			return text
		}
	}
	return ""
}

func textOf(raw string) string { return jsonvalue.UnquoteFirst(raw, maxTextBytes) }
