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

package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/catena-dev/catena/internal/recorded"
	"github.com/catena-dev/catena/store"
)

// words are texts that compress to about a third, as conversations do.
type words struct {
	random *rand.Rand
	words  []string
}

func newWords(seed uint64) *words { return newWordsOf(seed, 4000) }

// newWordsOf has a number of different words. The fewer, the better the texts compress.
func newWordsOf(seed uint64, vocabulary int) *words {
	w := &words{random: rand.New(rand.NewPCG(1, seed)), words: make([]string, vocabulary)}
	for i := range w.words {
		word := make([]byte, 2+w.random.IntN(8))
		for j := range word {
			word[j] = 'a' + byte(w.random.IntN(26))
		}
		w.words[i] = string(word)
	}
	return w
}

// text returns a text of size bytes.
func (w *words) text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		// Lower numbers are more frequent, as some words are.
		b.WriteString(w.words[min(w.random.IntN(len(w.words)), w.random.IntN(len(w.words)))])
		b.WriteByte(' ')
	}
	return b.String()[:size]
}

// agentTurns returns n different turns of an agent without IDs: those that were recorded, as far as there are enough, or synthetic ones
// of about size bytes.
func (b *bench) agentTurns(n, size int) ([]store.Session, error) {
	if b.recorded == "" {
		return syntheticTurns(newWords(uint64(size)), n, size), nil
	}
	file, err := recorded.Open(b.recorded)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var turns []store.Session
	for len(turns) < n {
		turn, err := file.Next()
		if errors.Is(err, io.EOF) && len(turns) > 0 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("unable to read %s: %w", b.recorded, err)
		}
		turns = append(turns, store.Session{Status: store.StatusCompleted, Request: turn.Request, Response: turn.Response})
	}
	return turns, nil
}

// syntheticTurns returns n different turns of an agent, of about size bytes.
func syntheticTurns(w *words, n, size int) []store.Session {
	turns := make([]store.Session, n)
	for i := range turns {
		turns[i] = agentTurn(w, size, 0)
	}
	return turns
}

// imagesTurn returns a turn whose bodies have almost a number of MiB: images.
func imagesTurn(mib int) store.Session { return agentTurn(newWords(uint64(mib)), 16<<10, mib) }

// imageBytes is the size of an image, a little less than a MiB in base64.
const imageBytes = 760 << 10

// image returns an image, as a data URL. Its base64 compresses to about the size of the bytes.
func (w *words) image() string {
	image := make([]byte, imageBytes)
	for i := range image {
		image[i] = byte(w.random.Uint32())
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(image)
}

// agentTurn returns a turn of an agent as OpenAI's SDKs send and receive it, with tools, reasoning, a function call, and a number of images. Apart
// from these, its bodies have about size bytes, at least 4,000.
func agentTurn(w *words, size, images int) store.Session {
	type object = map[string]any
	tool := func(name string) object {
		return object{"type": "function", "name": name, "description": w.text(120), "strict": true, "parameters": object{
			"type": "object", "required": []string{"path", "range"}, "additionalProperties": false, "properties": object{
				"path":  object{"type": "string", "description": w.text(40)},
				"range": object{"type": "array", "items": object{"type": "integer"}, "description": w.text(40)},
				"mode":  object{"type": "string", "enum": []string{"read", "write", "append"}},
			},
		}}
	}
	tools := []object{tool("read_file"), tool("edit_file"), tool("search")}
	text := max(0, (size-3600)/3)
	content := []object{{"type": "input_text", "text": w.text(200)}}
	for range images {
		content = append(content, object{"type": "input_image", "detail": "auto", "image_url": w.image()})
	}
	request := object{
		"model": "gpt-5", "instructions": w.text(200), "tools": tools, "tool_choice": "auto", "parallel_tool_calls": true, "store": true,
		"stream": true, "reasoning": object{"effort": "medium", "summary": "auto"}, "include": []string{"reasoning.encrypted_content"},
		"input": []object{
			{"type": "function_call_output", "call_id": "call_1", "output": w.text(text)},
			{"type": "message", "role": "user", "content": content},
		},
	}
	response := object{
		"id": "resp_1", "object": "response", "created_at": 1790000000, "status": "completed", "background": false, "error": nil,
		"incomplete_details": nil, "max_output_tokens": nil, "model": "gpt-5-2026-01-01", "parallel_tool_calls": true, "temperature": 1.0,
		"top_p": 1.0, "truncation": "disabled", "text": object{"format": object{"type": "text"}, "verbosity": "medium"},
		"reasoning": object{"effort": "medium", "summary": "detailed"},
		"output": []object{
			{"id": "rs_1", "type": "reasoning", "summary": []object{{"type": "summary_text", "text": w.text(text / 2)}}, "encrypted_content": w.text(text / 2)},
			{"id": "fc_1", "type": "function_call", "call_id": "call_2", "name": "read_file", "status": "completed", "arguments": `{"path":"a.go","range":[1,200]}`},
			{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []object{
				{"type": "output_text", "text": w.text(text), "annotations": []any{}, "logprobs": []any{}},
			}},
		},
		"usage": object{
			"input_tokens": 4096, "input_tokens_details": object{"cached_tokens": 2048}, "output_tokens": 512,
			"output_tokens_details": object{"reasoning_tokens": 128}, "total_tokens": 4608,
		},
	}
	return store.Session{Status: store.StatusCompleted, Request: mustMarshal(request), Response: mustMarshal(response)}
}

func mustMarshal(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("unable to marshal a turn: %v", err)) // never: it has only strings, numbers, lists and maps
	}
	return raw
}
