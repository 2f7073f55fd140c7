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
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/recorded"
)

// expectedItems returns the input items that a turn adds to a history, as documented: instructions as a system message, an
// input string as a user message or an input list unchanged, and the output.
func expectedItems(t *recorded.Turn) ([]any, error) {
	request, err := jsonvalue.Decode(t.Request)
	if err != nil {
		return nil, err
	}
	response, err := jsonvalue.Decode(t.Response)
	if err != nil {
		return nil, err
	}
	var items []any
	requestBody, responseBody := request.(map[string]any), response.(map[string]any)
	if text, ok := requestBody["instructions"].(string); ok && text != "" {
		items = append(items, message("system", text))
	}
	switch input := requestBody["input"].(type) {
	case string:
		if input != "" {
			items = append(items, message("user", input))
		}
	case []any:
		items = append(items, input...)
	}
	if output, ok := responseBody["output"].([]any); ok {
		items = append(items, output...)
	}
	return items, nil
}

func message(role, text string) any {
	return map[string]any{
		"type": "message", "role": role,
		"content": []any{map[string]any{"type": "input_text", "text": text}},
	}
}
