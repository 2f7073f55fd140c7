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

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// partial is the part of a response that a stream has delivered so far. It contains only finished output items: an unfinished
// item is useless to readers of the turn.
type partial struct {
	// response is the response of the last event that contained one, or nil.
	response *object
	// responseBytes is the memory held for the response.
	responseBytes int
	// output has the finished items in order of arrival.
	output []outputItem
	// bytes is the memory of the finished items.
	bytes int64
	// sequence is the sequence number of the last event.
	sequence int64
}

// add records an event. It calls hold before it allocates memory for an item.
func (p *partial) add(kind string, data *object, maxBytes int64, hold func(bytes int64) error) error {
	if sequence := data.get("sequence_number"); sequence.Type == gjson.Number {
		p.sequence = sequence.Int()
	}
	item := data.get("item")
	if kind != eventItemDone || !item.IsObject() {
		return nil
	}
	bytes := int64(len(item.Raw)) + outputItemBytes
	if p.bytes+bytes > maxBytes {
		return errTooLarge
	}
	if err := hold(bytes); err != nil {
		return err
	}
	p.bytes += bytes
	p.output = append(p.output, outputItem{index: p.index(data), raw: strings.Clone(item.Raw)}) // the event may be larger
	return nil
}

// outputItemBytes is the memory overhead of a finished item.
const outputItemBytes = 48

// outputItem is an item and the index that the engine assigned to it. Some engines assign the same index to all items.
type outputItem struct {
	index int64
	raw   string
}

// index returns the output index of an event's item. An item without an index follows the previous item.
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

// outputList returns the finished items as a JSON list, ordered by index and then by arrival.
func (p *partial) outputList() string {
	sorted := slices.Clone(p.output)
	slices.SortStableFunc(sorted, func(a, b outputItem) int { return cmp.Compare(a.index, b.index) })
	items := make([]string, 0, len(sorted))
	for _, item := range sorted {
		items = append(items, item.raw)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// completes reports whether complete adds the finished items to a response.
func (p *partial) completes(response *object) bool {
	output := response.raw("output")
	if jsonvalue.IsList(output) {
		for range jsonvalue.Elements(output) {
			return false
		}
		return true
	}
	return jsonvalue.IsNull(output)
}

// complete adds the finished items to a response without output: some engines send the output only as individual items, and
// the turn would otherwise lack output that the client has received.
func (p *partial) complete(response *object) {
	if p.completes(response) {
		response.set("output", p.outputList())
	}
}
