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
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

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
	// isStored is set by knownItems.look if the item that the name names is stored. storedID is the ID in that item, and approvedID the ID in the
	// item that this one approves. Both are raw JSON, or empty.
	isStored             bool
	storedID, approvedID string
}

// inputItemBytes is the memory of an inputItem besides its JSON, and of its ID in knownItems.
const inputItemBytes = 152 + 96

// expand replaces what the input says about items that this tenant was given. A reference becomes the item, and an item with the gateway's
// ID gets the engine's. If there is no previous response, and the input begins with exactly the items of a stored conversation, the request
// continues that, and only the rest remains: some clients always send everything that they have seen. So neither the engine nor the store
// gets references, and nothing is stored twice.
func (g *Gateway) expand(ctx context.Context, c *call, q *createRequest) error {
	input := q.object.raw("input")
	count, err := inTurn(ctx, g, c, len(input), func() (int, error) {
		if !jsonvalue.IsList(input) || !mayName(input) {
			return 0, nil
		}
		return jsonvalue.Count(input), nil
	})
	if count == 0 {
		return err
	}
	costs := inputItemBytes * int64(count)
	if err := c.hold(costs); err != nil {
		return err
	}
	defer c.memory.give(costs)
	items, err := inTurn(ctx, g, c, len(input), func() ([]inputItem, error) { return parseInput(input, q.remembered), nil })
	if err != nil {
		return err
	}
	own := items[q.remembered:]
	named := false
	for i, item := range own {
		if item.reference && !item.named {
			return unknownItem(i, item.raw)
		}
		named = named || item.named || item.approval
	}
	candidates, err := inTurn(ctx, g, c, len(input), func() ([]string, error) { return candidatesOf(own), nil })
	if err != nil {
		return err
	}
	if len(candidates) == 0 || q.continues() && !named {
		return nil
	}
	known := newKnownItems(g, c, q.repeats)
	defer known.release()
	if q.continues() {
		err = g.readContinued(ctx, c, q, known)
	} else {
		items, err = g.findBeginning(ctx, c, q, known, items, candidates)
	}
	if err != nil {
		return err
	}
	return g.replaceItems(ctx, c, q, items, known)
}

// mayName reports whether an input can have items that the client was given: with an ID, or with the ID of a call. Names may be escaped.
func mayName(input string) bool {
	return isMarked(input) || slices.ContainsFunc([]string{`"id"`, `"approval_request_id"`, `"item_reference"`, `\u00`}, func(part string) bool {
		return strings.Contains(input, part)
	})
}

// maxCandidates is the number of turns that a request without a previous response may continue, as far as its input says.
const maxCandidates = 3

// candidatesOf returns the response IDs of the last turns that items, their calls or what they approve belong to, the last one first.
func candidatesOf(items []inputItem) (turns []string) {
	for _, item := range slices.Backward(items) {
		if turn := item.turn(); turn != "" && !slices.Contains(turns, turn) {
			if turns = append(turns, turn); len(turns) == maxCandidates {
				break
			}
		}
	}
	return turns
}

// turn returns the response ID of the turn that the item, its call or what it approves belongs to. It is empty if the item does not say.
func (i inputItem) turn() string {
	switch {
	case i.named:
		return i.name.responseID
	case i.approval:
		return i.request.responseID
	}
	_, call, _ := parseSuffix(gjson.Get(i.raw, "call_id").Str)
	return call.responseID
}

// parseInput parses a list of items, except the first ones, as many as are remembered.
func parseInput(input string, remembered int) []inputItem {
	items := make([]inputItem, 0, jsonvalue.Count(input))
	for _, raw := range jsonvalue.Elements(input) {
		if len(items) < remembered {
			items = append(items, inputItem{raw: raw})
			continue
		}
		item, members := inputItem{raw: raw}, jsonvalue.RawMembers(raw, "id", "type", approvalMember)
		id, kind := members[0], jsonvalue.Unquote(members[1])
		item.name, item.named = parseItemID(jsonvalue.Unquote(id))
		item.request, item.approval = parseItemID(jsonvalue.Unquote(members[2]))
		// OpenAI's reference needs no type, and some items can be sent with their type and ID alone.
		bare := id != "" && jsonvalue.Count(raw) == 1 || item.named && members[1] != "" && jsonvalue.Count(raw) == 2
		item.reference = kind == "item_reference" || bare
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

// firstBytes returns a text for an error, of which it cuts what is too long for an ID.
func firstBytes(text string) string {
	const most = 600
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// itemNotFound returns OpenAI's error for a reference to an item that does not exist.
func itemNotFound(item string) error {
	e := invalidRequest("input", "", "Item with id '%s' not found. Items are not persisted when `store` is set to false. "+
		"Try again with `store` set to true, or remove this item from your input.", firstBytes(gjson.Get(item, "id").String()))
	e.status = http.StatusNotFound
	return e
}

// readContinued resolves the conversation that the request says it continues, and adds its items to the known ones. Turns that are not stored
// have none.
func (g *Gateway) readContinued(ctx context.Context, c *call, q *createRequest, known *knownItems) error {
	history, err := g.conversation(ctx, c, q)
	if err != nil || history == nil {
		return err
	}
	q.history = history
	_, err = inTurn(ctx, g, c, int(historyBytes(history)), func() (struct{}, error) {
		return struct{}{}, known.add(history, q.conversation != "")
	})
	return err
}

// conversation resolves the conversation that the request says it continues. The result is nil if that is not stored, or if the previous response
// of a request that may be a repeated one cannot be resolved: that is an error only if the engine is to be called.
func (g *Gateway) conversation(ctx context.Context, c *call, q *createRequest) (*store.History, error) {
	switch {
	case q.history != nil:
		return q.history, nil
	case q.previous != "":
		history, err := g.resolve(ctx, c, q.previous, g.options.resolveOptions())
		if err != nil && (q.repeats == "" || isTemporary(err)) { // otherwise, the response may be stored already
			return nil, resolveError(q.previous, err)
		}
		return history, nil
	case q.conversation != "":
		history, err := g.load(ctx, c, q.conversation, g.options.resolveOptions())
		if err != nil && (q.repeats == "" || isTemporary(err)) {
			return nil, conversationFailed(q.conversation, err)
		}
		return history, nil
	}
	return nil, nil
}

// findBeginning looks for a stored conversation whose items the input begins with, for a request that does not name what it continues. It resolves
// the conversations that end at the candidates, in order. The request then continues the first one that matches, and findBeginning returns the
// remaining items. If no conversation matches, it returns all items. The items of the conversations that it has resolved become known.
func (g *Gateway) findBeginning(
	ctx context.Context, c *call, q *createRequest, known *knownItems, items []inputItem, candidates []string,
) ([]inputItem, error) {
	options := g.options.resolveOptions()
	// Only a conversation with no more items than the input can be its beginning.
	if q.inputs <= store.MaxLimit && options.Instructions == store.InstructionsOmit {
		options.Limit = q.inputs
	}
	for _, candidate := range candidates {
		history, err := g.resolve(ctx, c, candidate, options)
		if err != nil && isTemporary(err) {
			return nil, storeError(err)
		}
		if err != nil {
			continue
		}
		if history.Next != "" {
			c.memory.give(historyBytes(history))
			continue
		}
		known.held += historyBytes(history)
		begins, err := inTurn(ctx, g, c, len(q.body)+int(historyBytes(history)), func() (bool, error) {
			if err := known.add(history, false); err != nil {
				return false, err
			}
			return known.beginsWith(items, history)
		})
		if err != nil {
			return nil, err
		}
		if begins {
			known.held -= historyBytes(history) // it is the request's
			q.history, q.previous = history, history.Parent.ResponseID
			return items[itemsOf(history):], nil
		}
	}
	return items, nil
}

// resolve resolves a conversation, and holds its memory. It returns the store's error unchanged.
func (g *Gateway) resolve(ctx context.Context, c *call, responseID string, options store.ResolveOptions) (*store.History, error) {
	return readOne(ctx, c, func(ctx context.Context) (*store.History, error) { return c.store.Resolve(ctx, responseID, options) }, historyBytes)
}

// isTemporary reports whether a request that names an item should be repeated. That a conversation is broken, unfinished or too large for the
// gateway says nothing about one of its items.
func isTemporary(err error) bool {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.status != http.StatusBadRequest // from call.hold
	}
	return !errors.Is(err, store.ErrUnavailable) && store.IsRetryable(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// itemsOf returns the number of items of a history without instructions, 0 if the store does not say which turns they belong to.
func itemsOf(h *store.History) (items int) {
	all := 0
	for _, o := range h.Origins {
		items += o.Count + min(o.First, 0)
		all += o.Count
	}
	if all != len(h.Items) {
		return 0
	}
	return items
}

// beginsWith reports whether an input begins with exactly the items of a history that was added, of which there is at least one.
func (k *knownItems) beginsWith(items []inputItem, h *store.History) (bool, error) {
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
			if item.named && item.name != name && item.name != copiedFrom(stored) {
				return false, nil
			}
			if item.reference {
				continue
			}
			sent := item.raw
			if item.approval {
				sent = withApproved(sent, k.idOf(item.request, k.item(item.request)), item.request)
			}
			if same, err := k.c.sameItem(sent, stored); !same {
				return false, err
			}
		}
	}
	return true, nil
}

// sameItem reports whether a client has sent back a stored item. It may have left out members without a value or with a default, written a
// message in its short form, or the arguments of a function in another form of JSON, as the AI SDK does.
func (c *call) sameItem(sent, stored string) (bool, error) {
	if sent == stored {
		return true, nil
	}
	const copies = 5 // including one of the arguments
	costs := copies*(int64(len(sent)+len(stored))+partsGrowth(sent)+partsGrowth(stored)) + jsonvalue.EqualMemory(jsonvalue.Bytes(sent))
	if itemType(sent) == functionCall {
		costs += 4 * int64(len(sent)) // EqualMemory of the arguments, at most
	}
	if err := c.hold(costs); err != nil {
		return false, err
	}
	defer c.memory.give(costs)
	return jsonvalue.Equal(jsonvalue.Bytes(canonical(sent)), jsonvalue.Bytes(canonical(stored))), nil
}

const functionCall = "function_call"

// canonical returns an item without its ID, with all that it has when it is listed, and without members that are empty. The arguments of a
// function are JSON in it, not a string, unless they would lose something: see jsonvalue.Survives.
func canonical(item string) string {
	o, err := objectOf(item)
	if err != nil {
		return item
	}
	completeItem(o, itemType(item), store.StatusCompleted)
	o.remove("id")
	o.remove("status")
	if itemType(item) == functionCall {
		if arguments := o.get("arguments").Str; jsonvalue.IsObject(arguments) && jsonvalue.Survives(jsonvalue.Bytes(arguments)) {
			o.set("arguments", arguments)
		}
	}
	for _, name := range []string{"content", "output"} {
		if parts := o.raw(name); jsonvalue.IsList(parts) {
			o.set(name, completeList(parts, func(part string) string {
				p, err := objectOf(part)
				if err != nil || !jsonvalue.IsObject(part) {
					return part
				}
				return withoutEmpty(p).String()
			}))
		}
	}
	return withoutEmpty(o).String()
}

func withoutEmpty(o *object) *object {
	o.members = slices.DeleteFunc(o.members, func(m member) bool { return jsonvalue.IsNull(m.value) || m.value == "[]" })
	return o
}

// replaceItems makes the items the input of the request, with those that they name in place of references and IDs.
func (g *Gateway) replaceItems(ctx context.Context, c *call, q *createRequest, items []inputItem, known *knownItems) error {
	var bytes, copies, limited int64
	// look looks at items up to the first one whose turn must be read, and returns that. A later turn's conversation has the turns before it.
	i := len(items) - 1
	look := func() (unread string, err error) {
		for ; i >= 0 && err == nil; i-- {
			item := &items[i]
			if unread, err = known.look(item); unread != "" || err != nil {
				return unread, err
			}
			size := int64(len(item.raw)) + 1 + item.growth()
			bytes += size
			if item.isStored || item.approvedID != "" {
				copies += size
			}
			if q.counts(i) {
				limited += size
			}
			if limited > g.options.MaxRequestBytes+shrinkBytes*int64(len(items)) {
				err = requestTooLarge(g.options.MaxRequestBytes)
			}
		}
		return "", err
	}
	for i >= 0 {
		unread, err := inTurn(ctx, g, c, len(q.body), look)
		if err == nil && unread != "" {
			err = known.read(ctx, unread)
		}
		if err != nil {
			return err
		}
	}
	before := int64(len(q.body))
	rest := before - int64(len(q.object.raw("input")))
	copies += bytes                                         // the list
	if err := c.hold(copies + 2*(rest+bytes)); err != nil { // and like the body as it was received
		return err
	}
	defer c.memory.give(copies)
	_, err := inTurn(ctx, g, c, int(bytes), func() (struct{}, error) {
		return struct{}{}, q.setInput(items, g.options.MaxRequestBytes)
	})
	if err == nil {
		c.memory.give(2 * before)
	}
	return err
}

// counts reports whether an item counts towards the limit: what a connection remembers is part of the turn only if that is stored.
func (q *createRequest) counts(item int) bool { return item >= q.remembered || q.store }

func requestTooLarge(limit int64) error { return readError(&http.MaxBytesError{Limit: limit}) }

// setInput makes a list of items that have been looked up the input of the request, unless those that count have more than limit bytes.
func (q *createRequest) setInput(items []inputItem, limit int64) error {
	var bytes, limited int64
	for i := range items {
		items[i].raw = items[i].replaced()
		size := int64(len(items[i].raw)) + 1
		bytes += size
		if q.counts(i) {
			limited += size
		}
	}
	if limited > limit {
		return requestTooLarge(limit)
	}
	var b strings.Builder
	b.Grow(int(bytes) + 2)
	separator := "["
	for _, item := range items {
		b.WriteString(separator)
		b.WriteString(item.raw)
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
