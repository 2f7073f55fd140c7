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
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// outputNumbers are the numbers of the output items of a stream. In a response, an item's position determines its number. In a stream that is
// its output index, except that some engines assign the same index to all items: then it is the order in which the items appear.
type outputNumbers struct {
	numbers map[outputKey]int
	taken   map[int64]bool
}

// outputKey is what an engine calls an item: its ID and its output index, -1 if it has none.
type outputKey struct {
	id    string
	index int64
}

// outputNumberBytes is the memory of what is remembered of an item besides its ID.
const outputNumberBytes = 256

// number returns the number of the item of an event. It calls hold before it remembers a new item.
func (n *outputNumbers) number(t *turn, id string, outputIndex gjson.Result, hold func(int64) error) (int, error) {
	key := outputKey{id, -1}
	if outputIndex.Type == gjson.Number && outputIndex.Num >= 0 && outputIndex.Num < maxItemNumber {
		key.index = outputIndex.Int()
	}
	if number, known := n.numbers[key]; known {
		return number, nil
	}
	if err := hold(outputNumberBytes + int64(len(id))); err != nil {
		return 0, err
	}
	if n.numbers == nil {
		n.numbers, n.taken = map[outputKey]int{}, map[int64]bool{}
	}
	index := key.index
	if index < 0 || n.taken[index] {
		for index = int64(len(n.taken)); n.taken[index]; index++ {
		}
	}
	n.taken[index] = true
	number := t.request.inputs + int(index)
	id = strings.Clone(id) // the event may be larger
	n.numbers[outputKey{id, key.index}], n.numbers[outputKey{id, -1}] = number, number
	return number, nil
}

// nameItem gives the call in the data of an event the ID that clients and the store see, and returns the ID of the event's item that the
// client sees. It is empty if the event is not about an item, and for items that are not stored: they cannot be referred to.
func (s *relay) nameItem(data *object) (string, error) {
	itemID, item := data.get("item_id"), data.raw("item")
	if !s.turn.request.store || itemID.Type != gjson.String && !jsonvalue.IsObject(item) {
		return "", nil
	}
	id, kind := itemID.Str, "message"
	if jsonvalue.IsObject(item) {
		id, kind = gjson.Get(item, "id").Str, itemType(item)
	}
	number, err := s.numbers.number(s.turn, id, data.get("output_index"), s.call.hold)
	if err != nil {
		return "", err
	}
	name := itemName{s.turn.id, number}
	if known := s.prefixes[number]; known != "" {
		kind = known
	} else if s.prefixes == nil {
		s.prefixes = map[int]string{}
	}
	s.prefixes[number] = strings.Clone(kind)
	if strings.Contains(item, `"call_id"`) {
		if s.calls == nil {
			s.calls = calls{}
		}
		data.set("item", s.calls.name(s.turn, item, number))
	}
	return name.id(kind), nil
}

// showItem gives the item of an event the ID that the client sees, unless that is empty.
func showItem(e *event, data *object, id string) {
	if id == "" {
		return
	}
	if item := data.raw("item"); jsonvalue.IsObject(item) {
		data.set("item", withID(item, id))
	}
	if data.get("item_id").Type == gjson.String {
		data.set("item_id", quote(id))
	}
	e.replace(e.name, data.String())
}
