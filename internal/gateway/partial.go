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
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// partial is the part of a response that a stream has delivered so far. It has only finished output items: half an item
// is useless to readers of the turn.
type partial struct {
	// response is the response of the last event that had one, or nil.
	response *object
	// output has the finished items by index.
	output map[int64]string
	// next is the index after the last of them.
	next  int64
	bytes int64
	// sequence is the sequence number of the last event.
	sequence int64
}

// add records an event.
func (p *partial) add(kind string, data *object, maxBytes int64) error {
	if sequence := data.get("sequence_number"); sequence.Type == gjson.Number {
		p.sequence = sequence.Int()
	}
	item := data.get("item")
	if kind != "response.output_item.done" || !item.IsObject() {
		return nil
	}
	p.bytes += int64(len(item.Raw))
	if p.bytes > maxBytes {
		return errTooLarge
	}
	if p.output == nil {
		p.output = map[int64]string{}
	}
	index := p.next // some engines leave it out
	if given := data.get("output_index"); given.Type == gjson.Number {
		index = given.Int()
	}
	p.output[index] = item.Raw
	p.next = max(p.next, index+1)
	return nil
}

// outputList returns the finished items as a JSON list.
func (p *partial) outputList() string {
	items := make([]string, 0, len(p.output))
	for _, i := range slices.Sorted(maps.Keys(p.output)) {
		items = append(items, p.output[i])
	}
	return "[" + strings.Join(items, ",") + "]"
}

// complete adds the finished items to a response without output: some engines send the output only as single items, and
// the turn would lack what the client has seen.
func (p *partial) complete(response *object) {
	if output := response.get("output"); output.Type == gjson.Null || output.IsArray() && len(output.Array()) == 0 {
		response.set("output", p.outputList())
	}
}
