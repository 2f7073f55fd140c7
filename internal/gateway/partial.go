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
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// partial is the part of a response that a stream has delivered so far.
type partial struct {
	// response is the response of the last event that contained one, or nil.
	response *object
	// responseBytes is the memory held for the response.
	responseBytes int
	// output has the items in the order in which they appeared, which is that of OpenAI's output indexes. Some engines assign the same index
	// to all items.
	output []outputItem
	// unseen counts the events of the next item, if it has not been added, and unseenID is the ID that the client sees in them.
	unseen   counter
	unseenID string
	// bytes is the memory of the items.
	bytes int64
	// sequence is the sequence number of the last event. numbered is set once an event has had a number.
	sequence int64
	numbered bool
}

// outputItem is an item of a stream, with what the engine has called it first.
type outputItem struct {
	id string
	// index is the output index.
	index int64
	raw   string
	// kind is the type of the item, and call the engine's first ID of the call that it is, or is the output of.
	kind, call string
	// later is the ID that the engine has given the call since, if it is another one.
	later string
	// shownID is the ID that the client sees, once it is known.
	shownID string
	// done is set once the item is finished. Until then, it is as it was added, without its content.
	done bool
	// counter counts its events.
	counter counter
}

// maxOutputItems is the number of items of a stream, each of which is searched with every event.
const maxOutputItems = 10_000

var errTooManyItems = fmt.Errorf("more than %d output items", maxOutputItems)

// outputItemBytes is the memory overhead of an item, including the IDs of a call.
const outputItemBytes = 512

// slotOf returns the position in the output of the item that an event is about, which is that of the next item if it is a new one. The
// second result is false if the event is not about an item.
//
// An item is recognized by its ID and index, if the event does not name another call; then, in an event that finishes it, by its type and call;
// then by its ID; and then by its index: some engines give all items the same index, and some a new ID in each event. An event that adds or
// finishes an item is not about one that is finished. Other events belong to the last item if they do not say which they are about.
func (p *partial) slotOf(kind string, data *object) (slot int, ok bool) {
	id, index, ok := nameOf(data)
	switch {
	case !ok && itemEventOf(kind) < 0:
		return 0, false
	case id == "" && index < 0:
		return p.unnamedSlot(kind, data), true
	}
	find := func(matches func(i outputItem) bool) int {
		for slot, i := range slices.Backward(p.output) {
			if matches(i) && (!i.done || !addsItem(kind)) {
				return slot
			}
		}
		return -1
	}
	call := ""
	if addsItem(kind) {
		call = callOf(data.raw("item"))
	}
	slot = find(func(i outputItem) bool { // several calls can be added before one is done
		return i.id == id && i.index == index && (call == "" || i.call == "" || i.call == call)
	})
	if slot < 0 && kind == eventItemDone {
		slot = p.callSlot(data.raw("item"))
	}
	if slot < 0 && kind != eventItemAdded && id != "" {
		slot = find(func(i outputItem) bool { return i.id == id })
	}
	if slot < 0 && kind != eventItemAdded && index >= 0 {
		slot = find(func(i outputItem) bool { return i.index == index })
	}
	if last := len(p.output) - 1; slot < 0 && kind != eventItemAdded && index < 0 && last >= 0 && !p.output[last].done {
		slot = last
	}
	if slot < 0 {
		slot = len(p.output)
	}
	return slot, true
}

// addsItem reports whether events of a kind add or finish an item.
func addsItem(kind string) bool { return kind == eventItemAdded || kind == eventItemDone }

// callSlot returns the position of the item that is not finished and is the same call, or output of a call, as an item, or -1.
func (p *partial) callSlot(item string) int {
	kind, call := itemType(item), callOf(item)
	return slices.IndexFunc(p.output, func(o outputItem) bool { return !o.done && call != "" && o.call == call && o.kind == kind })
}

// unnamedSlot is slotOf for an event that has neither an ID nor an index. Of the items that are not finished, one is the item that an event
// finishes if it has the same call or, failing that, the same type.
func (p *partial) unnamedSlot(kind string, data *object) int {
	switch kind {
	case eventItemAdded:
		return len(p.output)
	case eventItemDone:
		item := data.raw("item")
		if slot := p.callSlot(item); slot >= 0 {
			return slot
		}
		kind := itemType(item)
		if slot := slices.IndexFunc(p.output, func(i outputItem) bool { return !i.done && i.kind == kind }); slot >= 0 {
			return slot
		}
		return len(p.output)
	}
	return max(len(p.output)-1, 0)
}

// nameOf returns what an engine calls the item of an event: its ID, and its output index or -1. The last result is false if the event has
// neither an item nor its ID.
func nameOf(data *object) (id string, index int64, ok bool) {
	index = -1
	if given := data.get("output_index"); given.Type == gjson.Number && given.Num >= 0 && given.Num < maxItemNumber {
		index = given.Int()
	}
	itemID, item := data.get("item_id"), data.raw("item")
	switch {
	case jsonvalue.IsObject(item):
		return gjson.Get(item, "id").Str, index, true
	case itemID.Type == gjson.String:
		return itemID.Str, index, true
	}
	return "", index, false
}

// add records an event, whose item has a position in the output. It calls hold before it allocates memory for an item.
func (p *partial) add(kind string, data *object, slot int, maxBytes int64, hold func(bytes int64) error) error {
	item := data.raw("item")
	if !addsItem(kind) || !jsonvalue.IsObject(item) {
		return nil
	}
	id, index, _ := nameOf(data)
	bytes := int64(len(item))
	if slot == len(p.output) {
		bytes += int64(len(id)) + outputItemBytes
	} else {
		bytes -= int64(len(p.output[slot].raw))
	}
	if p.bytes+bytes > maxBytes {
		return errTooLarge
	}
	if slot == maxOutputItems {
		return errTooManyItems
	}
	if bytes > 0 {
		if err := hold(bytes); err != nil {
			return err
		}
		p.bytes += bytes
	}
	if slot == len(p.output) {
		if index < 0 {
			index = int64(slot) // as OpenAI numbers them
		}
		p.output = append(p.output, outputItem{id: strings.Clone(id), index: index, shownID: p.unseenID}) // the event may be larger
		p.unseen, p.unseenID = counter{}, ""
	}
	added := &p.output[slot]
	added.raw, added.done = strings.Clone(item), kind == eventItemDone
	added.kind, added.call = itemType(added.raw), callOf(added.raw)
	return nil
}

// isCall reports whether the items of a type are calls.
func isCall(kind string) bool { return strings.HasSuffix(kind, "_call") }

// callOf returns the engine's ID of the call that an item is, or is the output of, or "".
func callOf(item string) string {
	call, _, _ := parseSuffix(gjson.Get(item, "call_id").Str)
	return call
}

// isKept reports whether a call ID replaces those that the engine gives the call later. A long one does not, because many items could repeat it.
func isKept(call string) bool {
	const maxKept = 1 << 10
	return call != "" && len(call) <= maxKept
}

// keepCall returns the item of an event, whose position is slot, with the first ID of the call that it is, or is the output of. Some engines, such
// as vLLM, give a call several IDs, and clients use the first one that they receive. It calls hold before it allocates memory that is kept.
func (p *partial) keepCall(slot int, item string, hold func(bytes int64) error) (string, error) {
	kind, call := itemType(item), callOf(item)
	hasCall := func(o outputItem) bool { return isCall(o.kind) && o.call == call }
	if call == "" || slices.ContainsFunc(p.output, hasCall) {
		return item, nil
	}
	if !isCall(kind) {
		if of := slices.IndexFunc(p.output, func(o outputItem) bool { return o.later == call }); of >= 0 {
			return withMember(item, "call_id", quote(p.output[of].call)), nil
		}
		return item, nil
	}
	if slot == len(p.output) || p.output[slot].kind != kind || !isKept(p.output[slot].call) {
		return item, nil
	}
	if err := hold(int64(len(call))); err != nil {
		return "", err
	}
	p.bytes += int64(len(call))
	p.output[slot].later = strings.Clone(call)
	return withMember(item, "call_id", quote(p.output[slot].call)), nil
}

// names is what the events, or the final output, call an item. later is the ID that its call got after the first one. A key has only some of them.
type names struct{ kind, id, call, later string }

// slots returns the positions in the events of the items of the final output, or -1 for an item that has none. No two items have the same position.
// The output may lack items, have others, or have them in another order. An item is matched by its ID and call, then by its call, by its ID, and by
// the later ID of a call. The rest is matched by position and type, and then by type, in order; calls, and the outputs of calls, only by type, and
// only if the events have as many left.
func (p *partial) slots(output string) []int {
	var items []names
	for _, item := range jsonvalue.Elements(output) {
		call := callOf(item)
		items = append(items, names{itemType(item), gjson.Get(item, "id").Str, call, call})
	}
	m := &matching{of: p.output, slots: slices.Repeat([]int{-1}, len(items)), claimed: make([]bool, len(p.output))}
	for _, key := range []func(n names) names{
		func(n names) names { return names{kind: n.kind, id: n.id, call: n.call} },
		func(n names) names { return names{kind: n.kind, call: n.call} },
		func(n names) names { return names{kind: n.kind, id: n.id} },
		func(n names) names { return names{kind: n.kind, later: n.later} },
	} {
		m.match(items, key)
	}
	m.matchRest(items)
	return m.slots
}

// matching is the state of partial.slots.
type matching struct {
	of      []outputItem
	slots   []int
	claimed []bool
}

func (m *matching) claim(i, slot int) { m.slots[i], m.claimed[slot] = slot, true }

// match matches items by a key that has more than their type, in their order.
func (m *matching) match(items []names, key func(n names) names) {
	unclaimed := map[names][]int{}
	for slot, o := range m.of {
		if k := key(names{o.kind, o.id, o.call, o.later}); !m.claimed[slot] && k != (names{kind: o.kind}) {
			unclaimed[k] = append(unclaimed[k], slot)
		}
	}
	for i, item := range items {
		k := key(item)
		if same := unclaimed[k]; m.slots[i] < 0 && len(same) > 0 {
			m.claim(i, same[0])
			unclaimed[k] = same[1:]
		}
	}
}

// matchRest matches items that name no call by their position, and then all items of each group by their order.
func (m *matching) matchRest(items []names) {
	for i, item := range items {
		if m.slots[i] < 0 && item.call == "" && i < len(m.of) && !m.claimed[i] && m.of[i].call == "" && m.of[i].kind == item.kind {
			m.claim(i, i)
		}
	}
	type group struct {
		kind  string
		calls bool
	}
	left, unclaimed := map[group][]int{}, map[group][]int{}
	for i, item := range items {
		if of := (group{item.kind, item.call != ""}); m.slots[i] < 0 {
			left[of] = append(left[of], i)
		}
	}
	for slot, o := range m.of {
		if of := (group{o.kind, o.call != ""}); !m.claimed[slot] {
			unclaimed[of] = append(unclaimed[of], slot)
		}
	}
	for of, rest := range left {
		if of.calls && len(rest) != len(unclaimed[of]) {
			continue
		}
		for n := range min(len(rest), len(unclaimed[of])) {
			m.claim(rest[n], unclaimed[of][n])
		}
	}
}

// isAligned reports whether the final output has all items at the positions at which they appeared in the events, given its slots.
func (p *partial) isAligned(slots []int) bool {
	for i := range p.output {
		if i >= len(slots) || slots[i] != i {
			return false
		}
	}
	return true
}

// align returns the final output with its items at the positions at which they appeared in the events, and those that did not appear at the
// end, given its slots. Items that it lacks are added. ok is false if one of these has not been finished.
func (p *partial) align(output string, slots []int) (aligned string, ok bool) {
	items, i := make([]string, len(p.output)), 0
	var rest []string
	for _, item := range jsonvalue.Elements(output) {
		if slots[i] >= 0 {
			items[slots[i]] = item
		} else {
			rest = append(rest, item)
		}
		i++
	}
	for at, item := range p.output {
		if items[at] == "" && !item.done {
			return "", false
		}
		items[at] = cmp.Or(items[at], item.raw)
	}
	return "[" + strings.Join(slices.Concat(items, rest), ",") + "]", true
}

// counterOf returns the counter of the item at a position.
func (p *partial) counterOf(slot int) *counter {
	if slot < len(p.output) {
		return &p.output[slot].counter
	}
	return &p.unseen
}

// outputList returns the items as a JSON list. Those that are not finished are incomplete.
func (p *partial) outputList() string {
	items := make([]string, 0, len(p.output))
	for _, item := range p.output {
		if !item.done {
			item.raw = withMember(item.raw, "status", quote(store.StatusIncomplete))
		}
		items = append(items, item.raw)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// completes reports whether complete adds the items to a response.
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

// complete adds the items to a response without output: some engines send the output only as individual items, and the turn would
// otherwise lack output that the client has received, and to which it can refer.
func (p *partial) complete(response *object) {
	if p.completes(response) {
		response.set("output", p.outputList())
	}
}
