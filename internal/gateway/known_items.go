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
	"context"
	"encoding/json"
	"errors"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

const (
	// maxReads is the number of turns outside the conversation of a request that it can refer to by themselves. singleReads is the number of
	// them that are read by themselves, too. From then on, each is read with the turns before it: there are probably more of them.
	maxReads    = 128
	singleReads = 4
	// copyBytes is the memory in which a copy is found.
	copyBytes = 192
)

// knownItems has the items of stored turns that have been read because a request names some of them.
type knownItems struct {
	g *Gateway
	c *call
	// turns has the items of turns by response ID, each at the position of its number. It has none for a turn that does not exist.
	turns map[string][]json.RawMessage
	// partial has the turns that may have more items.
	partial map[string]bool
	// copies has items of other turns that these turns have copies of.
	copies map[itemName]string
	// repeats is createRequest.repeats.
	repeats string
	reads   int
	held    int64
	// alone is set if the tenant has no memory for whole conversations, so that turns are read by themselves.
	alone bool
	// ids are those of the stored items that have been looked up: see idOf.
	ids map[itemName]string
}

func newKnownItems(g *Gateway, c *call, repeats string) *knownItems {
	return &knownItems{g: g, c: c, repeats: repeats, turns: map[string][]json.RawMessage{}, partial: map[string]bool{}, copies: map[itemName]string{}, ids: map[itemName]string{}}
}

// add adds the turns of a history, which must remain in memory. That of a conversation with a name may lack items, which are hidden.
func (k *knownItems) add(h *store.History, named bool) error {
	if itemsOf(h) == 0 {
		return nil
	}
	next := 0
	for _, o := range h.Origins {
		if _, known := k.turns[o.ResponseID]; !known && o.First <= 0 {
			if err := k.addTurn(o.ResponseID, h.Items[next-min(o.First, 0):next+o.Count]); err != nil {
				return err
			}
			k.partial[o.ResponseID] = named
		}
		next += o.Count
	}
	return nil
}

func (k *knownItems) addTurn(responseID string, items []json.RawMessage) error {
	k.turns[responseID] = items
	delete(k.partial, responseID)
	for _, item := range items {
		if name := copiedFrom(jsonvalue.Text(item)); name != (itemName{}) {
			if err := k.hold(copyBytes); err != nil {
				return err
			}
			k.copies[name] = jsonvalue.Text(item)
		}
	}
	return nil
}

func (k *knownItems) hold(bytes int64) error {
	if err := k.c.hold(bytes); err != nil {
		return err
	}
	k.held += bytes
	return nil
}

// release returns the memory of all that was read.
func (k *knownItems) release() { k.c.memory.give(k.held) }

// find returns an item, or "" if it is not stored or too many turns have been read.
func (k *knownItems) find(ctx context.Context, name itemName) (string, error) {
	for turn := k.unread(name); turn != ""; turn = k.unread(name) {
		if err := k.read(ctx, turn); err != nil {
			return "", err
		}
	}
	return k.item(name), nil
}

// unread returns the response ID of the next turn to read in order to find an item. It returns "" once the item is found, and when no turn is
// left or maxReads turns have been read. If the item's turn was deleted after an earlier request with the same Idempotency-Key, that
// request's turn has a copy.
func (k *knownItems) unread(name itemName) string {
	if k.item(name) != "" {
		return ""
	}
	if k.mayHave(name) && k.reads < maxReads {
		return name.responseID
	}
	if _, known := k.turns[k.repeats]; !known {
		return k.repeats
	}
	return ""
}

// mayHave reports whether the turn of an item that has not been read may have it.
func (k *knownItems) mayHave(name itemName) bool {
	_, known := k.turns[name.responseID]
	return !known || k.partial[name.responseID]
}

// item returns an item of what has been read, or "".
func (k *knownItems) item(name itemName) string {
	if items := k.turns[name.responseID]; name.number < len(items) {
		return jsonvalue.Text(items[name.number])
	}
	return k.copies[name]
}

// read reads a turn that unread has returned.
func (k *knownItems) read(ctx context.Context, responseID string) error {
	if responseID == k.repeats {
		return k.readTurn(ctx, responseID)
	}
	k.reads++
	if _, known := k.turns[responseID]; !known && k.reads > singleReads && !k.alone {
		options := k.g.options.resolveOptions()
		options.IncludeIncomplete, options.Instructions = true, store.InstructionsOmit
		history, err := k.g.resolve(ctx, k.c, responseID, options)
		_, noMemory := errors.AsType[*apiError](err) // from call.hold
		switch {
		case err == nil:
			bytes := historyBytes(history)
			k.held += bytes
			_, err := inTurn(ctx, k.g, k.c, int(bytes), func() (struct{}, error) { return struct{}{}, k.add(history, false) })
			if err != nil || k.turns[responseID] != nil {
				return err
			}
		case noMemory:
			k.alone = true
		case isTemporary(err):
			return storeError(err)
		}
	}
	return k.readTurn(ctx, responseID)
}

// readTurn reads a turn by itself.
func (k *knownItems) readTurn(ctx context.Context, responseID string) error {
	session, err := k.g.getSession(ctx, k.c, responseID)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return k.addTurn(responseID, nil)
	case err != nil:
		return storeError(err)
	}
	k.held += sessionBytes(session)
	_, err = inTurn(ctx, k.g, k.c, int(sessionBytes(session)), func() (struct{}, error) { return struct{}{}, k.addSession(session) })
	return err
}

// addSession adds a turn that was read by itself. It is called in a turn of the tenant.
func (k *knownItems) addSession(session *store.Session) error {
	request, response := turnOf(session).request, gjson.GetBytes(session.Response, "output").Raw
	const itemBytes = 40 // an offset and a slice
	if err := k.hold(sessionBytes(session) + itemBytes*int64(request.inputs+jsonvalue.Count(response))); err != nil {
		return err
	}
	items, err := chain.Flatten(session.Request, session.Response)
	if err != nil {
		return storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: session.ResponseID, Err: err})
	}
	list := make([]json.RawMessage, items.Len())
	for i := range list {
		list[i] = items.Slice(i, i+1)
	}
	return k.addTurn(session.ResponseID, list)
}

// idOf returns the ID of a stored item, as raw JSON, or "" if it has none, or is not known. Many items can name one that is large.
func (k *knownItems) idOf(name itemName, stored string) string {
	if stored == "" {
		return ""
	}
	id, known := k.ids[name]
	if !known {
		id = gjson.Get(stored, "id").Raw
		k.ids[name] = id
	}
	return id
}

// look looks at what is stored of an item and of the one that it approves. A reference becomes the item that it names. If a turn must be read
// first, look only returns that.
func (k *knownItems) look(item *inputItem) (unread string, err error) {
	if item.named {
		unread = k.unread(item.name)
	}
	if item.approval && unread == "" {
		unread = k.unread(item.request)
	}
	if unread != "" {
		return unread, nil
	}
	if item.named {
		stored := k.item(item.name)
		switch {
		case stored == "" && item.reference && k.mayHave(item.name):
			return "", invalidRequest("input", "too_many_references", "The input refers to items of more than %d responses outside the conversation.", maxReads)
		case stored == "" && item.reference:
			return "", itemNotFound(item.raw)
		case item.reference:
			item.raw = stored
		}
		item.isStored, item.storedID = stored != "", k.idOf(item.name, stored)
	}
	if item.approval {
		item.approvedID = k.idOf(item.request, k.item(item.request))
	}
	return "", nil
}

// shrinkBytes is more than items usually get shorter when they are replaced.
const shrinkBytes = 4 << 10

// growth returns more than an item that has been looked up gets longer when it is replaced.
func (i *inputItem) growth() (bytes int64) {
	const mark = 64
	if i.isStored {
		bytes += int64(len(i.name.responseID)) + mark
		if !i.reference {
			bytes += int64(len(i.storedID))
		}
	}
	if i.approvedID != "" {
		bytes += int64(len(i.request.responseID)+len(i.approvedID)) + mark
	}
	return bytes
}

// replaced returns an item that has been looked up, with the engine's IDs instead of the gateway's. If it is not stored, or no longer, its ID is
// removed, because the engine would reject it. An ID that cannot be of a turn of a gateway remains.
func (i *inputItem) replaced() string {
	raw := i.raw
	if i.isStored {
		raw = withCopiedID(raw, i.storedID, i.name)
	} else if _, ok := generated(i.name.responseID); ok {
		raw = withID(raw, "")
	}
	if i.approval {
		raw = withApproved(raw, i.approvedID, i.request)
	}
	return raw
}

// withApproved returns an item with the ID of the request that it approves, as that is stored: the engine's with the name behind it. It returns
// the item itself if the request is not known.
func withApproved(item, id string, name itemName) string {
	if engine := engineID(gjson.Parse(id).Str); engine != "" {
		return withMember(item, approvalMember, quote(name.behind(engine)))
	}
	return item
}

// withCopiedID returns an item with the ID that a copy of a stored item has. storedID is the ID in the stored item.
func withCopiedID(item, storedID string, name itemName) string {
	id := gjson.Parse(storedID)
	if storedID != "" && id.Type != gjson.String {
		return withMember(item, "id", id.Raw)
	}
	return withID(item, name.behind(engineID(id.Str)))
}
