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
	"github.com/catena-dev/catena/store"
)

// receiveItem records the item that an event is about, and returns the ID for it that the client sees. It is empty if the event is not about
// an item, and for items that are not stored: they cannot be referred to. A call gets the ID that clients and the store see.
func (s *relay) receiveItem(kind string, data *object) (id string, err error) {
	slot, about := s.partial.slotOf(kind, data)
	number := s.turn.request.inputs + slot
	adds := kind == eventItemAdded || kind == eventItemDone
	if adds && about && s.turn.request.store && strings.Contains(data.raw("item"), `"call_id"`) {
		if s.calls == nil {
			s.calls = calls{}
		}
		data.set("item", s.calls.name(s.turn, data.raw("item"), number))
	}
	if err := s.partial.add(kind, data, slot, s.g.options.MaxResponseBytes, s.call.hold); err != nil {
		return "", err
	}
	if !about || !s.turn.request.store {
		return "", nil
	}
	name := itemName{s.turn.id, number}
	if slot == len(s.partial.output) { // it has not appeared
		return name.id("message"), nil
	}
	item := &s.partial.output[slot]
	if item.shownID == "" {
		item.shownID = name.id(itemType(item.raw))
	}
	return item.shownID, nil
}

// showItem gives the item of an event the ID that the client sees, unless that is empty.
func showItem(e *event, kind string, data *object, id string) {
	if id == "" {
		return
	}
	status := store.StatusCompleted
	if kind == eventItemAdded {
		status = store.StatusInProgress
	}
	if item := data.raw("item"); jsonvalue.IsObject(item) {
		data.set("item", shown(item, id, status))
	}
	if itemID := data.get("item_id"); itemID.Type == gjson.String {
		if data.raw("item") == "" && e.replaceOnce(`"item_id":`+itemID.Raw, `"item_id":`+quote(id)) {
			return // as nearly all events of a stream
		}
		data.set("item_id", quote(id))
	}
	e.replace(e.name, data.String())
}
