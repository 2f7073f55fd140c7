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

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// createItems appends items to a conversation, as a turn of their own.
func (g *Gateway) createItems(w http.ResponseWriter, r *http.Request, c *call) error {
	o, err := g.readObject(w, r, c)
	if err != nil {
		return err
	}
	items := o.raw("items")
	if jsonvalue.IsNull(items) {
		return missingParameter("items")
	}
	q, err := g.parseItems(r.Context(), c, r.PathValue("id"), items)
	if err != nil {
		return err
	}
	if err := c.readKey(r, true); err != nil {
		return err
	}
	t := &turn{id: g.newResponseID(r, c), request: q, created: g.now()}
	if err := g.appendItems(r.Context(), c, t); err != nil {
		return err
	}
	p := &page{options: &pageOptions{}}
	input := q.object.raw("input")
	_, err = inTurn(r.Context(), g, c, len(input), func() (struct{}, error) {
		return struct{}{}, chain.EachInput(input, func(item string) { p.items = append(p.items, pageItem{itemName{t.id, len(p.items)}, item}) })
	})
	if err != nil {
		return err
	}
	body, err := g.body(r.Context(), c, p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// appendItems saves a turn that has nothing but items, in its place in the conversation, unless an earlier request with the same
// Idempotency-Key has.
func (g *Gateway) appendItems(ctx context.Context, c *call, t *turn) error {
	if c.idempotencyKey != "" {
		t.request.repeats = t.id
	}
	if err := g.prepareItems(ctx, c, t.request); err != nil {
		return err
	}
	if stored, err := g.isStored(ctx, c, t); stored || err != nil {
		return err
	}
	if err := g.checkQuota(ctx, c, t.request); err != nil {
		return err
	}
	defer t.leave(ctx)
	err := g.reserve(ctx, c, t)
	if errors.Is(err, store.ErrConflict) { // perhaps a request with the same Idempotency-Key has just saved the turn
		if stored, failure := g.isStored(ctx, c, t); stored || failure != nil {
			return failure
		}
	}
	if err != nil {
		return err
	}
	if err := g.checkDepth(ctx, c, t.request.conversation); err != nil {
		return err
	}
	c.repeats = true // even after an error, the turn may be stored
	return g.saveItems(ctx, c, t)
}

// checkDepth returns an error if the history of a conversation is so long that no response could follow one more turn. If that cannot be found
// out now, as without an operator, it is not.
func (g *Gateway) checkDepth(ctx context.Context, c *call, conversation string) error {
	turns, err := readOne(ctx, c, func(ctx context.Context) (int, error) {
		return c.store.Conversations().Count(ctx, conversation)
	}, func(int) int64 { return 0 })
	if err == nil && turns >= g.options.MaxDepth {
		err = &store.Error{
			Code: store.CodeDepthExceeded, ConversationID: conversation,
			Message: fmt.Sprintf("conversation %.100q has %d turns, the maximum", conversation, turns),
		}
	}
	if err != nil && !store.IsRetryable(err) {
		return conversationFailed(conversation, err)
	}
	return nil
}

// isStored reports whether an earlier request with the same Idempotency-Key has saved the turn.
func (g *Gateway) isStored(ctx context.Context, c *call, t *turn) (bool, error) {
	if c.idempotencyKey == "" {
		return false, nil
	}
	session, failure := g.find(ctx, c, t)
	if failure != nil {
		return false, failure
	}
	return session != nil, nil
}

// parseItems returns a list of items as the input of a request in a conversation.
func (g *Gateway) parseItems(ctx context.Context, c *call, conversation, items string) (*createRequest, error) {
	if _, err := inTurn(ctx, g, c, len(items), func() (struct{}, error) { return struct{}{}, checkItems(items) }); err != nil {
		return nil, err
	}
	if err := c.hold(2 * int64(len(items))); err != nil { // as in readRequestBody
		return nil, err
	}
	q, err := inTurn(ctx, g, c, len(items), func() (*createRequest, error) { return parseRequest([]byte(`{"input":` + items + `}`)) })
	if err != nil {
		return nil, aboutItems(err)
	}
	q.conversation = conversation
	return q, nil
}

// checkKinds returns an error for an item that says neither its type nor, as a message may, only its role. No model sees the items before they
// are part of the conversation, where one that no model accepts would remain.
func checkKinds(items string) error {
	n := 0
	for _, item := range jsonvalue.Elements(items) {
		if !slices.ContainsFunc(jsonvalue.RawMembers(item, "type", "role"), jsonvalue.IsString) {
			return missingParameter(fmt.Sprintf("items[%d].type", n))
		}
		n++
	}
	return nil
}

// prepareItems replaces references in items that are to be saved, and checks what they then are.
func (g *Gateway) prepareItems(ctx context.Context, c *call, q *createRequest) error {
	if err := g.expand(ctx, c, q); err != nil {
		return aboutItems(err)
	}
	input := q.object.raw("input")
	_, err := inTurn(ctx, g, c, len(input), func() (struct{}, error) { return struct{}{}, checkKinds(input) })
	return err
}

// checkItems checks a list of items, as raw JSON.
func checkItems(items string) error {
	if !jsonvalue.IsList(items) {
		return invalidRequest("items", "invalid_type", "Invalid type for 'items': expected an array of objects.")
	}
	switch n := jsonvalue.Count(items); {
	case n == 0:
		return invalidRequest("items", "empty_array", "Invalid 'items': empty array. Expected an array with minimum length 1, but got an empty array instead.")
	case n > maxItems:
		return invalidRequest("items", "array_above_max_length",
			"Invalid 'items': array too long. Expected an array with maximum length %d, but got an array with length %d instead.", maxItems, n)
	}
	return nil
}

// aboutItems returns an error about the input of a request as one about items.
func aboutItems(err error) error {
	if e, ok := errors.AsType[*apiError](err); ok {
		if rest, ok := strings.CutPrefix(e.param, "input"); ok {
			e.param = "items" + rest
		}
	}
	return err
}

// saveItems saves a turn that has nothing but items.
func (g *Gateway) saveItems(ctx context.Context, c *call, t *turn) error {
	response := t.empty()
	response.set("status", quote(store.StatusCompleted))
	if _, failure := g.saveOrFind(ctx, c, t, response, response.String()); failure != nil {
		return failure
	}
	return nil
}

// listItems returns a page of the items of a conversation.
func (g *Gateway) listItems(w http.ResponseWriter, r *http.Request, c *call) error {
	options, err := parsePageOptions(r.URL.Query())
	if err != nil {
		return err
	}
	p := &page{options: options, descending: options.descending != options.before}
	if err := g.readItems(r.Context(), c, p, r.PathValue("id")); err != nil {
		return err
	}
	body, err := g.body(r.Context(), c, p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// readItems reads the items of a page of a conversation, and looks for one more.
func (g *Gateway) readItems(ctx context.Context, c *call, p *page, conversation string) error {
	options := g.itemOptions(p)
	options.Limit = p.options.limit + 1
	if p.options.cursor != "" {
		after, named := parseItemID(p.options.cursor)
		if !named {
			return p.unknownCursor()
		}
		options.After = history.CursorAfter(after.responseID, after.number, options)
	}
	for first := true; ; first = false {
		h, err := g.load(ctx, c, conversation, options)
		switch {
		case errors.Is(err, store.ErrInvalid) && !first: // the cursor is that of the store
			return conversationFailed(conversation, store.ErrConflict)
		case errors.Is(err, store.ErrInvalid) && p.options.cursor != "":
			return p.unknownCursor()
		case err != nil:
			return conversationFailed(conversation, err)
		}
		if len(h.Items) > 0 && itemsOf(h) == 0 {
			return finalError("internal_error", "The store does not say which responses the items belong to.", errNoOrigins)
		}
		p.add(p.named(h))
		if p.more || h.Next == "" {
			return nil
		}
		options.After, options.Limit = h.Next, min(2*options.Limit, store.MaxLimit) // some are hidden
	}
}

// itemOptions returns the options for resolving a page of the items of a conversation, which may be too long to be continued.
func (g *Gateway) itemOptions(p *page) store.ResolveOptions {
	options := g.pageOptions(p)
	options.MaxDepth = new(store.MaxDepthLimit)
	return options
}

// retrieveItem returns an item of a conversation.
func (g *Gateway) retrieveItem(w http.ResponseWriter, r *http.Request, c *call) error {
	name, err := g.findItem(r.Context(), c, r.PathValue("id"), r.PathValue("item"))
	if err != nil {
		return err
	}
	known := newKnownItems(g, c, "")
	defer known.release()
	item, err := known.find(r.Context(), name)
	if err != nil {
		return err
	}
	if item == "" {
		return notInConversation(r.PathValue("item"))
	}
	text, err := inTurn(r.Context(), g, c, len(item), func() (string, error) {
		if err := c.hold(listedSize(item)); err != nil {
			return "", err
		}
		return listed(item, name), nil
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, text)
	return nil
}

// deleteItem removes an item from a conversation. The turn keeps it.
func (g *Gateway) deleteItem(w http.ResponseWriter, r *http.Request, c *call) error {
	id, item := r.PathValue("id"), r.PathValue("item")
	name, err := g.findItem(r.Context(), c, id, item)
	if err != nil {
		return err
	}
	conversation, err := readObjects(r.Context(), c, func(ctx context.Context) (*store.Conversation, error) {
		return c.store.Conversations().HideItem(ctx, id, name.responseID, name.number)
	}, func(*store.Conversation) int64 { return 0 }) // the item is hidden even if there is no memory for the answer
	if errors.Is(err, store.ErrNotFound) { // its turn was deleted meanwhile
		return notInConversation(item)
	}
	if err != nil {
		return conversationFailed(id, err)
	}
	writeConversation(w, conversation)
	return nil
}

// findItem returns the name of an item of a conversation. It returns an error unless the conversation has the item.
func (g *Gateway) findItem(ctx context.Context, c *call, id, item string) (itemName, error) {
	conversation, err := getConversation(ctx, c, id)
	if err != nil {
		return itemName{}, conversationFailed(id, err)
	}
	name, named := parseItemID(item)
	if !named || slices.Contains(conversation.HiddenItems, store.HiddenItem{ResponseID: name.responseID, Number: name.number}) {
		return name, notInConversation(item)
	}
	options := g.itemOptions(&page{})
	options.Limit, options.After = 1, history.CursorAfter(name.responseID, name.number, options) // which must exist
	h, err := g.load(ctx, c, id, options)
	if errors.Is(err, store.ErrInvalid) {
		return name, notInConversation(item)
	}
	if err != nil {
		return name, conversationFailed(id, err)
	}
	c.memory.give(historyBytes(h))
	return name, nil
}

func notInConversation(item string) *apiError {
	e := invalidRequest("", "", "Item with id '%s' not found in conversation.", firstBytes(item))
	e.status = http.StatusNotFound
	return e
}
