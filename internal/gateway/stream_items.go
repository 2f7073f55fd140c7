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

// eventItem is the item that an event is about: its position in the output, or -1, and the ID that the client sees. changed is set if its call has
// another ID than the engine's.
type eventItem struct {
	slot    int
	id      string
	changed bool
}

// receiveItem records the item that an event is about, if there is one. A call gets the ID that clients and the store see.
func (s *relay) receiveItem(kind string, data *object) (eventItem, error) {
	slot, about := s.partial.slotOf(kind, data)
	number := s.turn.request.inputs + slot
	adds := kind == eventItemAdded || kind == eventItemDone
	changed := false
	if adds && about && nameable(data.raw("item")) > 0 {
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

// readOutput finds the items of a response in the events. Those of a final response are put in the order in which they appeared: clients refer to
// stored items by their positions. Its calls, and their outputs, get the IDs that they had first. It holds the memory for that. It returns
// errTooManyItems if the output of a final response has more items than those of the events may be.
func (s *relay) readOutput(response *object, final bool) error {
	s.slots = nil
	output := response.raw("output")
	if !jsonvalue.IsList(output) {
		return nil
	}
	count := jsonvalue.Count(output)
	if count > maxOutputItems {
		if final {
			return errTooManyItems
		}
		return nil
	}
	const itemBytes, mapBytes = 32, 512
	n := int64(count + len(s.partial.output))
	if err := s.call.hold((itemBytes + mapBytes) * n); err != nil {
		return err
	}
	s.slots = s.partial.slots(output)
	s.call.memory.give(mapBytes * n)
	if !final || s.partial.completes(response) {
		return nil
	}
	if s.turn.request.store && !s.partial.isAligned(s.slots) {
		if err := s.align(response); err != nil {
			return err
		}
	}
	return s.keepCalls(response)
}

func (s *relay) align(response *object) error {
	output := response.raw("output")
	if err := s.call.hold(int64(len(output)) + s.partial.bytes); err != nil {
		return err
	}
	aligned, ok := s.partial.align(output, s.slots)
	if !ok {
		return nil
	}
	response.set("output", aligned)
	s.slots = make([]int, jsonvalue.Count(aligned))
	for i := range s.slots {
		if s.slots[i] = i; i >= len(s.partial.output) {
			s.slots[i] = -1
		}
	}
	return nil
}

// keepCalls gives the calls of a final response, and the outputs of calls, the IDs that they had first in the events.
func (s *relay) keepCalls(response *object) error {
	output := response.raw("output")
	first := func(i int, item string) string {
		if call := callOf(item); call != "" && s.slots[i] >= 0 {
			if kept := s.partial.output[s.slots[i]].call; kept != call && isKept(kept) {
				return kept
			}
		}
		return ""
	}
	bytes, i, renamed := int64(len(output)), 0, false
	for _, item := range jsonvalue.Elements(output) {
		kept := first(i, item)
		bytes, renamed = bytes+int64(len(kept)), renamed || kept != ""
		i++
	}
	if !renamed {
		return nil
	}
	if err := s.call.hold(bytes); err != nil {
		return err
	}
	response.set("output", mapList(output, int(bytes), func(i int, item string) string {
		if kept := first(i, item); kept != "" {
			return withMember(item, "call_id", quote(kept))
		}
		return item
	}))
	return nil
}

// itemID returns the ID of an output item that its client sees. An item that is not stored keeps the ID that it had in the events, even if the
// engine has given it one since, or another.
func (s *relay) itemID(i int, item string) string {
	at := i // without an output of its own, the response has got that of the events
	if s.slots != nil && i < len(s.slots) {
		at = s.slots[i]
	}
	if !s.turn.request.store && at >= 0 && at < len(s.partial.output) {
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
