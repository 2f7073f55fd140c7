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

// eventItem is the item that an event is about: its position in the output, or -1, and the ID that the client sees. changed is set if the IDs
// in its item were replaced.
type eventItem struct {
	slot    int
	id      string
	changed bool
}

// receiveItem records the item that an event is about, if there is one. A call gets the ID that clients and the store see.
func (s *relay) receiveItem(kind string, data *object) (eventItem, error) {
	slot, about := s.partial.slotOf(kind, data)
	number := s.turn.request.inputs + slot
	changed := false
	if addsItem(kind) && nameable(data.raw("item")) > 0 {
		item, err := s.partial.keepCall(slot, data.raw("item"), s.call.hold)
		if err != nil {
			return eventItem{}, err
		}
		if s.calls == nil {
			s.calls = calls{}
		}
		item = s.calls.name(s.turn, item, number)
		changed = item != data.raw("item")
		data.set("item", item)
	}
	if err := s.partial.add(kind, data, slot, s.g.options.MaxResponseBytes, s.call.hold); err != nil {
		return eventItem{}, err
	}
	if !about {
		return eventItem{slot: -1}, nil
	}
	if slot == len(s.partial.output) { // it has not appeared
		return eventItem{slot, s.unseenID(slot, data), changed}, nil
	}
	item := &s.partial.output[slot]
	if item.shownID == "" {
		item.shownID = strings.Clone(s.turn.itemID(slot, item.raw)) // the item may be replaced
	}
	return eventItem{slot, item.shownID, changed}, nil
}

// unseenID returns the ID of an item that has not been added. If it is not stored, the client sees that ID to the end.
func (s *relay) unseenID(slot int, data *object) string {
	if s.partial.unseenID != "" {
		return s.partial.unseenID
	}
	id := s.turn.itemID(slot, `{"type":"message","id":`+quote(data.get("item_id").Str)+"}")
	if !s.turn.request.store {
		s.partial.unseenID = strings.Clone(id)
	}
	return id
}

// readOutput finds the items of a response in the events: see slots. If the response is the final one, stored items are put in the order of the
// events, because clients refer to them by position, and calls and their outputs get back the IDs that they had first. It holds the memory for that.
// A final output of more than maxOutputItems is errTooManyItems.
func (s *relay) readOutput(response *object, final bool) error {
	s.slots = nil
	output, stored := response.raw("output"), s.turn.request.store
	if !jsonvalue.IsList(output) {
		return nil
	}
	count := jsonvalue.Count(output)
	switch {
	case final && count > maxOutputItems:
		return errTooManyItems
	case count == 0, !final && (stored || count > maxOutputItems):
		return nil // it gets the items of the events, or nothing needs the slots
	}
	const itemBytes = 512 // while it is found; its slot takes 8
	bytes := itemBytes * int64(count+len(s.partial.output))
	if err := s.call.hold(bytes); err != nil {
		return err
	}
	s.slots = s.partial.slots(output)
	s.call.memory.give(bytes)
	if !final {
		return nil
	}
	if stored && !s.partial.isAligned(s.slots) {
		if err := s.align(response); err != nil {
			return err
		}
	}
	return s.keepCalls(response)
}

// align puts the items of a final output at their positions in the events, unless one of those that it lacks has not been finished.
func (s *relay) align(response *object) error {
	output := response.raw("output")
	if err := s.call.hold(int64(len(output)) + s.partial.bytes); err != nil {
		return err
	}
	if aligned, ok := s.partial.align(output, s.slots); ok {
		response.set("output", aligned)
		s.slots = nil
	}
	return nil
}

// slotAt returns the position in the events of the item at a position of the output, or -1. Without slots, it is the same position.
func (s *relay) slotAt(i int) int {
	if i < len(s.slots) {
		i = s.slots[i]
	}
	if i >= len(s.partial.output) {
		return -1
	}
	return i
}

// firstCall returns the first ID in the events of the call that an item of the output is, or is the output of. It returns "" if the item has that ID.
func (s *relay) firstCall(i int, item string) string {
	call, slot := callOf(item), s.slotAt(i)
	if call == "" || slot < 0 {
		return ""
	}
	if first := s.partial.output[slot].call; first != call && isKept(first) {
		return first
	}
	return ""
}

// keepCalls gives the calls of a final response, and the outputs of calls, the IDs that they had first in the events.
func (s *relay) keepCalls(response *object) error {
	output, growth, i := response.raw("output"), 0, 0
	for _, item := range jsonvalue.Elements(output) {
		growth += len(s.firstCall(i, item))
		i++
	}
	if growth == 0 {
		return nil
	}
	if err := s.call.hold(int64(len(output) + growth)); err != nil {
		return err
	}
	response.set("output", mapList(output, len(output)+growth, func(i int, item string) string {
		if first := s.firstCall(i, item); first != "" {
			return withMember(item, "call_id", quote(first))
		}
		return item
	}))
	return nil
}

// itemID returns the ID of an output item that its client sees. An item that is not stored keeps the ID that it had in the events, even if the
// engine has given it one since, or another.
func (s *relay) itemID(i int, item string) string {
	if at := s.slotAt(i); !s.turn.request.store && at >= 0 {
		return s.partial.output[at].shownID
	}
	return s.turn.itemID(i, item)
}

// showEvent completes an event, and gives its item the ID that the client sees. changed is set if the data has been changed already.
func (s *relay) showEvent(e *event, kind string, data *object, item eventItem, changed bool) {
	if item.slot >= 0 && s.partial.completeEvent(kind, data, item.slot) {
		changed = true
	}
	if item.slot >= 0 {
		changed = showItem(e, kind, data, item.id, changed)
	}
	if changed {
		e.replace(e.name, data.String())
	}
}

// showItem gives the item of an event the ID that the client sees. It reports whether the data is then to replace that of the event: the
// event itself is changed if that is all there is to change.
func showItem(e *event, kind string, data *object, id string, changed bool) bool {
	status := store.StatusCompleted
	if kind == eventItemAdded {
		status = store.StatusInProgress
	}
	itemID := data.get("item_id")
	if item := data.raw("item"); jsonvalue.IsObject(item) {
		if shown := shown(item, id, status); shown != item {
			data.set("item", shown)
			changed = true
		}
		if itemID.Type != gjson.String {
			return changed
		}
	}
	switch {
	case itemID.Str == id:
		return changed
	case !changed && itemID.Type == gjson.String && e.replaceOnce(`"item_id":`+itemID.Raw, `"item_id":`+quote(id)):
		return false // as nearly all events of a stream
	}
	data.set("item_id", quote(id))
	return true
}
