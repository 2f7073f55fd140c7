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
	"fmt"
	"net/http"
	"strings"
)

// stream sends a response word by word.
func stream(w http.ResponseWriter, final *response) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	s := &events{writer: w, control: http.NewResponseController(w)}
	started := *final
	started.Status, started.Output, started.Usage = "in_progress", []item{}, nil
	s.send("response.created", map[string]any{"response": started})
	s.send("response.in_progress", map[string]any{"response": started})
	for i, item := range final.Output {
		s.sendItem(i, item)
	}
	s.send("response.completed", map[string]any{"response": final})
}

type events struct {
	writer   http.ResponseWriter
	control  *http.ResponseController
	sequence int
	// lacks are the members that no event has.
	lacks []string
}

func (s *events) sendItem(index int, done item) {
	added := done
	added.Status = "in_progress"
	if done.Content == nil {
		added.Arguments = new("")
		s.send("response.output_item.added", map[string]any{"output_index": index, "item": added})
		s.send("response.function_call_arguments.delta", map[string]any{"output_index": index, "item_id": done.ID, "delta": *done.Arguments})
		s.send("response.function_call_arguments.done", map[string]any{
			"output_index": index, "item_id": done.ID, "name": done.Name, "arguments": *done.Arguments,
		})
	} else {
		added.Content = &[]part{}
		s.send("response.output_item.added", map[string]any{"output_index": index, "item": added})
		s.sendText(index, done)
	}
	s.send("response.output_item.done", map[string]any{"output_index": index, "item": done})
}

func (s *events) sendText(index int, done item) {
	place := func(members map[string]any) map[string]any {
		members["output_index"], members["content_index"], members["item_id"] = index, 0, done.ID
		return members
	}
	whole := (*done.Content)[0]
	s.send("response.content_part.added", place(map[string]any{"part": part{Type: whole.Type, Annotations: []any{}}}))
	for word := range strings.SplitAfterSeq(whole.Text, " ") {
		s.send("response.output_text.delta", place(map[string]any{"delta": word, "logprobs": []any{}}))
	}
	s.send("response.output_text.done", place(map[string]any{"text": whole.Text, "logprobs": []any{}}))
	s.send("response.content_part.done", place(map[string]any{"part": whole}))
}

// send sends an event. If the client has disconnected, the request ends, and with it the stream.
func (s *events) send(kind string, data map[string]any) {
	data["type"], data["sequence_number"] = kind, s.sequence
	s.sequence++
	for _, name := range s.lacks {
		delete(data, name)
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		panic(err) // never: all values can be encoded
	}
	fmt.Fprintf(s.writer, "event: %s\ndata: %s\n\n", kind, encoded)
	_ = s.control.Flush()
}
