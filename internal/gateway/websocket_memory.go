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
	"slices"
	"strings"
)

// maxRemembered is the number of turns that a connection remembers so that they can be continued. OpenAI remembers the last one of each
// of up to 33 streams.
const maxRemembered = 33

// turnMemory has the last turns of a WebSocket connection that are not stored.
type turnMemory struct {
	share *share
	turns []*rememberedTurn // oldest first
}

// rememberedTurn is a turn of a connection that is not stored.
type rememberedTurn struct {
	id string
	// parent is the turn that it continues, if that is not stored either, and stored the nearest stored one, or empty.
	parent *rememberedTurn
	stored string
	// own has the items of the request's input and of the output, as a list without its brackets.
	own string
	// count is the number of items of the whole conversation after the stored turn.
	count int
	// size is the memory of the turn, and total that of that conversation.
	size, total int64
	// users is the number of turns that continue it, plus 1 while it can be continued.
	users int
}

// rememberedBytes is the memory of a remembered turn besides its items.
const rememberedBytes = 512

// items returns the items of the conversation after the stored turn, as lists without their brackets.
func (t *rememberedTurn) items() []string {
	var all []string
	for ; t != nil; t = t.parent {
		all = append(all, t.own)
	}
	slices.Reverse(all)
	return all
}

// joinItems returns one list of items, and of lists without their brackets, which may be empty. It does not share their memory.
func joinItems(lists []string) string {
	size := 0
	for _, list := range lists {
		size += len(list) + 1
	}
	var b strings.Builder
	b.Grow(size)
	for _, list := range lists {
		if b.Len() > 0 && list != "" {
			b.WriteByte(',')
		}
		b.WriteString(list)
	}
	return b.String()
}

// find returns a turn that can be continued, or nil.
func (m *turnMemory) find(id string) *rememberedTurn {
	if i := m.index(id); i >= 0 {
		return m.turns[i]
	}
	return nil
}

func (m *turnMemory) index(id string) int {
	return slices.IndexFunc(m.turns, func(t *rememberedTurn) bool { return t.id == id })
}

// add remembers a turn, and forgets the oldest if there are too many. It returns an error if the tenant has no memory left.
func (m *turnMemory) add(id string, parent *rememberedTurn, stored string, items []string) error {
	size := int64(rememberedBytes + len(id) + len(stored))
	for _, item := range items {
		size += int64(len(item)) + 1
	}
	if err := m.share.begin(size); err != nil {
		return err
	}
	id, stored = strings.Clone(id), strings.Clone(stored) // they are parts of messages
	t := &rememberedTurn{id: id, parent: parent, stored: stored, own: joinItems(items), count: len(items), size: size, total: size, users: 1}
	if parent != nil {
		parent.users++
		t.count += parent.count
		t.total += parent.total
	}
	m.turns = append(m.turns, t)
	if len(m.turns) > maxRemembered {
		m.forget(m.turns[0].id)
	}
	return nil
}

// forget makes it impossible to continue a turn, if there is one with the ID. Its items are kept while turns that continue it need them.
func (m *turnMemory) forget(id string) {
	i := m.index(id)
	if i < 0 {
		return
	}
	t := m.turns[i]
	m.turns = slices.Delete(m.turns, i, i+1)
	for ; t != nil; t = t.parent {
		if t.users--; t.users > 0 {
			return
		}
		m.share.give(t.size)
	}
}
