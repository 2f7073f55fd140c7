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
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// partial is what a stream has told of its response so far. It has whole output items only: half of one is of no use to
// anybody who reads the turn later.
type partial struct {
	// response is the last response object of an event, or nil.
	response *object
	// output has the finished items by their place.
	output map[int64]string
	// next is the place after the last of them.
	next  int64
	bytes int64
	// sequence is the number of the last event.
	sequence int64
}

// note takes in an event.
func (p *partial) note(kind string, data *object, maxBytes int64) error {
	if sequence := data.get("sequence_number"); sequence.Type == gjson.Number {
		p.sequence = sequence.Int()
	}
	item := data.get("item")
	if kind != "response.output_item.done" || !item.IsObject() {
		return nil
	}
	p.bytes += int64(len(item.Raw))
	if p.bytes > maxBytes {
		return errors.New("the output is larger than allowed")
	}
	if p.output == nil {
		p.output = map[int64]string{}
	}
	place := data.get("output_index").Int()
	if data.get("output_index").Type != gjson.Number {
		place = p.next // some engines leave it out
	}
	p.output[place] = item.Raw
	p.next = max(p.next, place+1)
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

// complete adds the output to the last response of a stream that lacks it: some engines send it in single items only,
// and without it the turn would lose what the client has seen.
func (p *partial) complete(response *object) {
	if output := response.get("output"); output.Type == gjson.Null || output.IsArray() && len(output.Array()) == 0 {
		response.set("output", p.outputList())
	}
}
