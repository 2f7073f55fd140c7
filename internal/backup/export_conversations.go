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

package backup

import (
	"encoding/json"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// writeConversations writes the conversations and their summaries, after all sessions. positions are those of the sessions in their spool.
func (e *exporter) writeConversations(positions map[string]int) error {
	conversations := e.spools[conversationKind]
	for i := range conversations.index {
		c, err := conversations.read(i)
		if err != nil {
			return err
		}
		if err := e.endReservation(c, positions); err != nil {
			return c.named(err)
		}
		if err := e.writeObject(c, &e.result.Conversations); err != nil {
			return err
		}
	}
	return e.writeSummaries(conversations.positions())
}

// endReservation makes the history of a conversation end at the base if the place of its head is reserved for a turn that is not in the file.
// That is its history, and the turn will not be saved where the file is imported: writers would wait for it.
func (e *exporter) endReservation(c *Object, positions map[string]int) error {
	if err := c.parse(e.MaxTurnBytes); err != nil {
		return err
	}
	if !c.parsed.reserved || e.isNext(c.parsed, positions) {
		return nil
	}
	spec, err := c.editSpec(func(members map[string]json.RawMessage) {
		if base, found := members["baseResponseID"]; found {
			members["headResponseID"] = base
		} else {
			delete(members, "headResponseID")
		}
		delete(members, "baseResponseID")
		delete(members, "reservation")
	})
	c.Spec, c.parsed = spec, nil
	return err
}

// isNext reports whether the turn for which the place of the head was reserved is in the file, after the base. One that continues another
// turn is an earlier attempt that has lost its place.
func (e *exporter) isNext(c *parsed, positions map[string]int) bool {
	if e.writer.contents.find(sessionKind, c.parentID) < 0 {
		return false
	}
	base := ""
	if c.base != "" {
		base = v1alpha1.ObjectName(c.base)
	}
	return e.spools[sessionKind].index[positions[v1alpha1.ObjectName(c.parentID)]].link == base
}

// writeSummaries writes the summaries of the conversations that were written. A summary of an earlier conversation with the same ID, which
// garbage collection deletes, is none of them.
func (e *exporter) writeSummaries(positions map[string]int) error {
	conversations, summaries := e.spools[conversationKind].index, e.spools[summaryKind]
	for i := range summaries.index {
		s, err := summaries.read(i)
		if err != nil {
			return err
		}
		if err := s.parse(e.MaxTurnBytes); err != nil {
			return s.named(err)
		}
		owner := summaries.index[i].link
		position := e.writer.contents.find(conversationKind, s.parsed.id)
		if position < 0 || owner != "" && owner != conversations[positions[v1alpha1.ObjectName(s.parsed.id)]].link {
			e.step()
			continue
		}
		if err := e.writeObject(s, &e.result.Summaries); err != nil {
			return err
		}
	}
	return nil
}
