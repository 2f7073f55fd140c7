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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// inputItem is an item of a request's input, as the client sent it.
type inputItem struct {
	raw string
	// name is the item that its ID names, if named is set. reference is set if it has nothing but the ID.
	name             itemName
	named, reference bool
	// request is the item that it approves, if approval is set.
	request  itemName
	approval bool
}

// inputItemBytes is the memory of an inputItem besides its JSON.
const inputItemBytes = 112

// maxReferencedTurns is the number of turns outside the conversation whose items a request can have. Each of them is read by itself.
const maxReferencedTurns = 128

// expand replaces what the input says about items that this tenant was given. A reference becomes the item, and an item with the gateway's
// ID gets the engine's. If there is no previous response, and the input begins with exactly the items of a stored conversation, the request
// continues that, and only the rest remains: some clients always send everything that they have seen. So neither the engine nor the store
// gets references, and nothing is stored twice.
func (g *Gateway) expand(ctx context.Context, c *call, q *createRequest) error {
	input := q.object.raw("input")
	if !jsonvalue.IsList(input) || !mayName(input) {
		return nil
	}
	costs := inputItemBytes * int64(jsonvalue.Count(input))
	if err := c.hold(costs); err != nil {
		return err
	}
	defer c.memory.give(costs)
	items := parseInput(input)
	last, named := "", false
	for i, item := range items {
		if item.reference && !item.named {
			return unknownItem(i, item.raw)
		}
		last, named = cmp.Or(item.turn(), last), named || item.named || item.approval
	}
	if last == "" || q.previous != "" && !named {
		return nil
	}
	history, err := g.conversation(ctx, c, q, last)
	if err != nil {
		return err
	}
	if history != nil {
		begins, err := inTurn(ctx, g, c, len(input), func() (bool, error) { return c.beginsWith(items, history) })
		switch {
		case err != nil:
			return err
		case q.previous != "":
			q.history = history
		case begins:
			q.history, q.previous, items = history, history.Parent.ResponseID, items[itemsOf(history):]
		default:
			defer c.memory.give(historyBytes(history))
		}
	}
	return g.replaceItems(ctx, c, q, items, turnsOf(history))
}

// mayName reports whether an input can have items that the client was given: with an ID, or with the ID of a call.
func mayName(input string) bool {
	return strings.Contains(input, `"id"`) || strings.Contains(input, `"approval_request_id"`) || strings.Contains(input, `"item_reference"`) || strings.Contains(input, callMark)
}

// turn returns the response ID of the turn that the item, its call or what it approves belongs to. It is empty if the item does not say.
func (i inputItem) turn() string {
	switch {
	case i.named:
		return i.name.responseID
	case i.approval:
		return i.request.responseID
	}
	_, call, _ := parseCallID(gjson.Get(i.raw, "call_id").Str)
	return call.responseID
}

// parseInput parses a list of items.
func parseInput(input string) []inputItem {
	items := make([]inputItem, 0, jsonvalue.Count(input))
	for _, raw := range jsonvalue.Elements(input) {
		item := inputItem{raw: raw}
		item.name, item.named = parseItemID(gjson.Get(raw, "id").Str)
		item.request, item.approval = parseItemID(gjson.Get(raw, "approval_request_id").Str)
		kind := gjson.Get(raw, "type")
		item.reference = kind.Str == "item_reference" || kind.Type == gjson.Null && jsonvalue.Count(raw) == 1 && gjson.Get(raw, "id").Exists()
		items = append(items, item)
	}
	return items
}

// unknownItem returns the error for a reference with an ID that is not one of the gateway's, or with none.
func unknownItem(index int, item string) error {
	if gjson.Get(item, "id").Type != gjson.String {
		return invalidRequest(fmt.Sprintf("input[%d].id", index), "missing_required_parameter", "Missing required parameter: 'input[%d].id'.", index)
	}
	return itemNotFound(item)
}

// itemNotFound returns OpenAI's error for a reference to an item that does not exist.
func itemNotFound(item string) error {
	e := invalidRequest("input", "", "Item with id '%s' not found. Items are not persisted when `store` is set to false. "+
		"Try again with `store` set to true, or remove this item from your input.", gjson.Get(item, "id").String())
	e.status = http.StatusNotFound
	return e
}

// conversation returns the conversation that the request continues, or the one that ends with the turn that the input names last. It
// returns nil if that turn is not the end of a conversation.
func (g *Gateway) conversation(ctx context.Context, c *call, q *createRequest, last string) (*store.History, error) {
	options := g.options.resolveOptions()
	options.Origins = true
	resolve := func(responseID string) (*store.History, error) {
		return read(ctx, c, func(ctx context.Context) (*store.History, error) { return c.store.Resolve(ctx, responseID, options) }, historyBytes)
	}
	if q.previous != "" {
		history, err := resolve(q.previous)
		if err != nil {
			return nil, resolveError(q.previous, err)
		}
		return history, nil
	}
	history, err := resolve(last)
	if e, ok := errors.AsType[*store.Error](err); ok && (e.Code == store.CodeInvalid || !e.Retryable && strings.HasPrefix(string(e.Code), chainCodes)) {
		return nil, nil
	}
	if err != nil {
		return nil, storeError(err)
	}
	return history, nil
}

// itemsOf returns the number of items of a history without instructions.
func itemsOf(h *store.History) (items int) {
	for _, o := range h.Origins {
		items += o.Count + min(o.First, 0)
	}
	return items
}

// turnsOf returns the items of each turn of a history. Those of a turn have the numbers of their positions.
func turnsOf(h *store.History) map[string][]json.RawMessage {
	turns := map[string][]json.RawMessage{}
	if h == nil {
		return turns
	}
	next := 0
	for _, o := range h.Origins {
		turns[o.ResponseID] = h.Items[next-min(o.First, 0) : next+o.Count]
		next += o.Count
	}
	return turns
}

// beginsWith reports whether an input begins with exactly the items of a history, of which there is at least one.
func (c *call) beginsWith(items []inputItem, h *store.History) (bool, error) {
	if n := itemsOf(h); n == 0 || len(items) < n {
		return false, nil
	}
	next, given := 0, 0
	for _, o := range h.Origins {
		for i := range o.Count {
			name, stored := itemName{o.ResponseID, o.First + i}, jsonvalue.Text(h.Items[next])
			next++
			if name.number < 0 {
				continue
			}
			item := items[given]
			given++
			if item.named && item.name != name {
				return false, nil
			}
			if item.reference {
				continue
			}
			if same, err := c.sameItem(item.raw, stored); !same {
				return false, err
			}
		}
	}
	return true, nil
}

// sameItem reports whether a client has sent back a stored item. It may have left out members without a value, or written a message in
// its short form.
func (c *call) sameItem(sent, stored string) (bool, error) {
	if sent == stored {
		return true, nil
	}
	const copies = 4
	costs := copies*int64(len(sent)+len(stored)) + jsonvalue.EqualMemory(jsonvalue.Bytes(sent))
	if err := c.hold(costs); err != nil {
		return false, err
	}
	defer c.memory.give(costs)
	return jsonvalue.Equal(jsonvalue.Bytes(canonical(sent)), jsonvalue.Bytes(canonical(stored))), nil
}

// canonical returns an item without its ID, in its long form, and without members that are empty.
func canonical(item string) string {
	o, err := objectOf(item)
	if err != nil {
		return item
	}
	kind := itemType(item)
	o.remove("id")
	o.remove("status")
	o.set("type", quote(kind))
	if kind != "message" {
		return withoutEmpty(o).String()
	}
	content := o.raw("content")
	if jsonvalue.IsString(content) {
		content = "[" + textPart(o.get("role").Str, content) + "]"
	}
	if jsonvalue.IsList(content) {
		var parts []string
		for _, part := range jsonvalue.Elements(content) {
			if p, err := objectOf(part); err == nil && jsonvalue.IsObject(part) {
				part = withoutEmpty(p).String()
			}
			parts = append(parts, part)
		}
		o.set("content", "["+strings.Join(parts, ",")+"]")
	}
	return withoutEmpty(o).String()
}

func withoutEmpty(o *object) *object {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return jsonvalue.IsNull(m.value) || m.value == "[]" })
	return o
}

// replaceItems makes the items the input of the request, with those that they name in place of references and IDs. turns has the items of
// the turns that are known; others are read.
func (g *Gateway) replaceItems(ctx context.Context, c *call, q *createRequest, items []inputItem, turns map[string][]json.RawMessage) error {
	var bytes, held int64
	defer func() { c.memory.give(held) }()
	reads := 0
	read := func(needed bool, name itemName) error {
		if _, known := turns[name.responseID]; known || !needed {
			return nil
		}
		if reads++; reads > maxReferencedTurns {
			return invalidRequest("input", "too_many_references", "The input refers to items of more than %d responses outside the conversation.", maxReferencedTurns)
		}
		stored, err := g.itemsOfTurn(ctx, c, name.responseID)
		turns[name.responseID] = stored
		held += historyBytes(&store.History{Items: stored})
		return err
	}
	for i, item := range items {
		if err := cmp.Or(read(item.named, item.name), read(item.approval, item.request)); err != nil {
			return err
		}
		replaced, err := item.replaced(turns)
		if err != nil {
			return err
		}
		items[i].raw = replaced
		if bytes += int64(len(replaced)) + 1; bytes > g.options.MaxRequestBytes {
			return readError(&http.MaxBytesError{Limit: g.options.MaxRequestBytes})
		}
	}
	return q.setInput(c, items, bytes)
}

// replaced returns the item that a reference names, or an item with the engine's IDs instead of the gateway's. An item that is not stored is
// returned as it is, unless it is a reference.
func (i inputItem) replaced(turns map[string][]json.RawMessage) (string, error) {
	stored := func(name itemName) string {
		if items := turns[name.responseID]; name.number < len(items) {
			return jsonvalue.Text(items[name.number])
		}
		return ""
	}
	item, raw := stored(i.name), i.raw
	switch {
	case i.reference && item == "":
		return "", itemNotFound(raw)
	case i.reference:
		return item, nil
	case item != "":
		raw = withID(raw, gjson.Get(item, "id").Str)
	}
	if request := stored(i.request); request != "" {
		raw = withMember(raw, "approval_request_id", quote(gjson.Get(request, "id").Str))
	}
	return raw, nil
}

// itemsOfTurn returns the items of a turn, none if it does not exist.
func (g *Gateway) itemsOfTurn(ctx context.Context, c *call, responseID string) ([]json.RawMessage, error) {
	session, err := g.getSession(ctx, c, responseID)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return nil, nil
	case err != nil:
		return nil, storeError(err)
	}
	return inTurn(ctx, g, c, len(session.Request)+len(session.Response), func() ([]json.RawMessage, error) {
		items, err := chain.Flatten(session.Request, session.Response)
		if err != nil {
			return nil, storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: responseID, Err: err})
		}
		list := make([]json.RawMessage, items.Len())
		for i := range list {
			list[i] = items.Slice(i, i+1)
		}
		c.memory.give(sessionBytes(session))
		return list, c.hold(historyBytes(&store.History{Items: list}))
	})
}

// setInput makes a list of items, with a total size, the input of the request.
func (q *createRequest) setInput(c *call, items []inputItem, bytes int64) error {
	rest := int64(len(q.body)) - int64(len(q.object.raw("input")))
	if err := c.hold(bytes + 2*(rest+bytes)); err != nil { // as a list, and like the body as it was received
		return err
	}
	defer c.memory.give(bytes)
	var b strings.Builder
	b.Grow(int(bytes) + 2)
	separator := "["
	for _, item := range items {
		b.WriteString(separator + item.raw)
		separator = ","
	}
	if len(items) == 0 {
		b.WriteString("[")
	}
	b.WriteString("]")
	q.object.set("input", b.String())
	q.body, q.inputs = jsonvalue.Bytes(q.object.String()), len(items)
	object, err := parseObject(q.body) // which shares the memory of the body, instead of having another copy
	if err != nil {
		return fmt.Errorf("unable to replace the input: %w", err) // never
	}
	q.object = object
	return nil
}
