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

// outputNames are the IDs that the client of a stream sees for the output items. In a response, an item's position determines its ID. In a
// stream that is its output index, except that some engines assign the same index to all items: then it is the order in which the items
// appear.
type outputNames struct {
	ids   map[outputKey]string
	taken map[int64]bool
}

// outputKey is what an engine calls an item: its ID and its output index, -1 if it has none.
type outputKey struct {
	id    string
	index int64
}

// outputNameBytes is the memory of an item of a stream besides its IDs.
const outputNameBytes = 256

// name returns the ID for the item of an event. It calls hold before it remembers a new item.
func (n *outputNames) name(t *turn, id string, outputIndex gjson.Result, kind string, hold func(int64) error) (string, error) {
	key := outputKey{id, -1}
	if outputIndex.Type == gjson.Number && outputIndex.Num >= 0 && outputIndex.Num < maxItemNumber {
		key.index = outputIndex.Int()
	}
	if name, known := n.ids[key]; known {
		return name, nil
	}
	if err := hold(outputNameBytes + int64(len(id))); err != nil {
		return "", err
	}
	if n.ids == nil {
		n.ids, n.taken = map[outputKey]string{}, map[int64]bool{}
	}
	index := key.index
	if index < 0 || n.taken[index] {
		for index = int64(len(n.taken)); n.taken[index]; index++ {
		}
	}
	n.taken[index] = true
	name := itemName{t.id, t.request.inputs + int(index)}.id(kind)
	id = strings.Clone(id) // the event may be larger
	n.ids[outputKey{id, key.index}], n.ids[outputKey{id, -1}] = name, name
	return name, nil
}

// nameItem changes the ID of the item in an event, if it is about one, to the one that the client sees. Items that are not stored keep
// theirs, because they cannot be referred to.
func (s *relay) nameItem(e *event, data *object) error {
	itemID, item := data.get("item_id"), data.raw("item")
	if !s.turn.request.store || itemID.Type != gjson.String && !jsonvalue.IsObject(item) {
		return nil
	}
	id, kind := itemID.Str, "message"
	if jsonvalue.IsObject(item) {
		id, kind = gjson.Get(item, "id").Str, itemType(item)
	}
	name, err := s.names.name(s.turn, id, data.get("output_index"), kind, s.call.hold)
	if err != nil {
		return err
	}
	if jsonvalue.IsObject(item) {
		data.set("item", withID(item, name))
	}
	if itemID.Type == gjson.String {
		data.set("item_id", quote(name))
	}
	e.replace(e.name, data.String())
	return nil
}
