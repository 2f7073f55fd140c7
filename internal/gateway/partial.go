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
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// partial is the part of a response that a stream has delivered so far. It has only finished output items: half an item
// is useless to readers of the turn.
type partial struct {
	// response is the response of the last event that had one, or nil.
	response *object
	// output has the finished items in the order of their arrival.
	output []outputItem
	bytes  int64
	// sequence is the sequence number of the last event.
	sequence int64
}

// add records an event.
func (p *partial) add(kind string, data *object, maxBytes int64) error {
	if sequence := data.get("sequence_number"); sequence.Type == gjson.Number {
		p.sequence = sequence.Int()
	}
	item := data.get("item")
	if kind != eventItemDone || !item.IsObject() {
		return nil
	}
	p.bytes += int64(len(item.Raw))
	if p.bytes > maxBytes {
		return errTooLarge
	}
	p.output = append(p.output, outputItem{index: p.index(data), raw: item.Raw})
	return nil
}

// outputItem is an item and the index that the engine gave it. Some engines give all items the same.
type outputItem struct {
	index int64
	raw   string
}

// index returns the index of an event's item. An item without one stands after the item before it.
func (p *partial) index(data *object) int64 {
	given := data.get("output_index")
	switch {
	case given.Type == gjson.Number:
		return given.Int()
	case len(p.output) == 0:
		return 0
	}
	return p.output[len(p.output)-1].index
}

// outputList returns the finished items as a JSON list, ordered by their index, and by their arrival if it is the same.
func (p *partial) outputList() string {
	sorted := slices.Clone(p.output)
	slices.SortStableFunc(sorted, func(a, b outputItem) int { return cmp.Compare(a.index, b.index) })
	items := make([]string, 0, len(sorted))
	for _, item := range sorted {
		items = append(items, item.raw)
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
