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
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/store"
)

// OpenAI's limits for a page of input items.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// pageOptions select a page of input items.
type pageOptions struct {
	// cursor is the ID of the item next to the page, or empty. The page is before it if before is set, and otherwise after it.
	cursor     string
	before     bool
	limit      int
	descending bool
}

// listInputItems returns a page of the items that a response was created from, as OpenAI does: the items of the conversation
// before it and the input of its request. A broken conversation is an error here too.
func (g *Gateway) listInputItems(w http.ResponseWriter, r *http.Request, c *call) error {
	options, err := parsePageOptions(r.URL.Query())
	if err != nil {
		return err
	}
	session, err := g.get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	p := &page{options: options, session: session, descending: options.descending != options.before}
	if err := g.readPage(r.Context(), c, p); err != nil {
		return err
	}
	body, err := g.body(r.Context(), c, p)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// parsePageOptions ignores `include`: a page has all that is stored.
func parsePageOptions(query url.Values) (*pageOptions, error) {
	o := &pageOptions{cursor: query.Get("after"), limit: defaultLimit, descending: true}
	if before := query.Get("before"); before != "" {
		if o.cursor != "" {
			return nil, invalidRequest("before", "mutually_exclusive_parameters", "Mutually exclusive parameters: 'after' and 'before'.")
		}
		o.cursor, o.before = before, true
	}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxLimit {
			return nil, invalidRequest("limit", "invalid_value", "Invalid 'limit': must be an integer from 1 to %d.", maxLimit)
		}
		o.limit = limit
	}
	switch order := query.Get("order"); order {
	case "", store.OrderDescending:
	case store.OrderAscending:
		o.descending = false
	default:
		return nil, invalidRequest("order", "invalid_value", "Invalid 'order': must be 'asc' or 'desc'.")
	}
	return o, nil
}

// page is a page of the items that a response was created from: first those of its own input and then those of the conversation before it,
// or the other way round.
type page struct {
	options *pageOptions
	session *store.Session
	// descending is the order in which the items are read. A page before an item is read backwards.
	descending bool
	items      []pageItem
	// more is set if further items follow in the order in which the items are read.
	more bool
}

// pageItem is an item as it is stored.
type pageItem struct {
	name itemName
	raw  string
}

// readPage reads the items of a page.
func (g *Gateway) readPage(ctx context.Context, c *call, p *page) error {
	own, err := inTurn(ctx, g, c, len(p.session.Request), func() ([]pageItem, error) { return p.ownItems(c) })
	if err != nil {
		return err
	}
	after, named := parseItemID(p.options.cursor)
	inOwn := named && after.responseID == p.session.ResponseID
	if p.options.cursor != "" && !named || inOwn && after.number >= len(own) {
		return p.unknownCursor()
	}
	if p.descending {
		slices.Reverse(own)
	}
	switch {
	case inOwn:
		own = own[slices.IndexFunc(own, func(i pageItem) bool { return i.name == after })+1:]
	case named && p.descending:
		own = nil
	}
	if p.descending {
		p.add(own)
	}
	if p.descending || !inOwn {
		if err := g.readConversation(ctx, c, p, after, named && !inOwn); err != nil {
			return err
		}
	}
	if !p.descending && !p.more {
		p.add(own)
	}
	return nil
}

// unknownCursor returns the error for an ID that is not that of an input item of the response.
func (p *page) unknownCursor() error {
	param := "after"
	if p.options.before {
		param = "before"
	}
	return invalidRequest(param, "invalid_value", "Invalid '%s': item with id '%s' not found.", param, p.options.cursor)
}

// pageItemBytes is the memory of a pageItem, which shares that of the body that contains it.
const pageItemBytes = 48

// ownItems returns the items of the response's own input.
func (p *page) ownItems(c *call) ([]pageItem, error) {
	request, err := jsonvalue.ParseObject(p.session.Request)
	if err == nil {
		err = chain.CheckObjects(request, jsonvalue.Object{})
	}
	if err != nil {
		return nil, storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: p.session.ResponseID, Err: err})
	}
	input := request.RawMembers("input")[0]
	count := countInput(input)
	if err := c.hold(pageItemBytes * int64(count)); err != nil {
		return nil, err
	}
	items := make([]pageItem, 0, count)
	_ = chain.EachInput(input, func(item string) { // checked above
		items = append(items, pageItem{itemName{p.session.ResponseID, len(items)}, item})
	})
	return items, nil
}

// add adds items to the page until it is full.
func (p *page) add(items []pageItem) {
	n := min(len(items), p.options.limit-len(p.items))
	p.items = append(p.items, items[:n]...)
	p.more = p.more || n < len(items)
}

// readConversation adds the items of the conversation before the response, from the one that follows a cursor on. Even if the page is full
// already, it reads one item: there may be more, and a broken conversation is an error.
func (g *Gateway) readConversation(ctx context.Context, c *call, p *page, after itemName, cursor bool) error {
	if p.session.PreviousResponseID == "" {
		if cursor {
			return p.unknownCursor()
		}
		return nil
	}
	options := g.pageOptions(p)
	options.Limit = max(1, p.options.limit-len(p.items))
	if cursor {
		options.After = history.CursorAfter(after.responseID, after.number, options)
	}
	h, err := g.resolve(ctx, c, p.session.PreviousResponseID, options)
	if errors.Is(err, store.ErrInvalid) && cursor {
		return p.unknownCursor()
	}
	if err != nil {
		return storeError(err)
	}
	if len(h.Items) > 0 && itemsOf(h) == 0 {
		return finalError("internal_error", "The store does not say which responses the items belong to.", errNoOrigins)
	}
	p.more = p.more || h.Next != ""
	p.add(p.named(h))
	return nil
}

// pageOptions returns the options for resolving a page of items, without a limit.
func (g *Gateway) pageOptions(p *page) store.ResolveOptions {
	options := g.options.resolveOptions()
	options.IncludeIncomplete = true // a turn that is not completed has input items as well
	options.Instructions = store.InstructionsOmit
	if p.descending {
		options.Order = store.OrderDescending
	}
	return options
}

// errNoOrigins is the error for a store that ignores store.ResolveOptions.Origins, such as that of an operator of an earlier version.
var errNoOrigins = errors.New("the result has no origins: upgrade the operator")

// named returns the items of a history with their names.
func (p *page) named(h *store.History) []pageItem {
	items, step := make([]pageItem, 0, len(h.Items)), 1
	if p.descending {
		step = -1
	}
	for _, o := range h.Origins {
		for i := range o.Count {
			items = append(items, pageItem{itemName{o.ResponseID, o.First + i*step}, jsonvalue.Text(h.Items[len(items)])})
		}
	}
	return items
}

// listedBytes is more than an item gets longer when it is listed, besides partsGrowth.
const listedBytes = 256

// listedSize returns more than the size of an item as OpenAI lists it.
func listedSize(item string) int64 { return int64(len(item)) + listedBytes + partsGrowth(item) }

// body returns a page as OpenAI's list object.
func (g *Gateway) body(ctx context.Context, c *call, p *page) (string, error) {
	size, bytes := int64(completedBytes), 0
	for _, item := range p.items {
		bytes += len(item.raw)
	}
	if _, err := inTurn(ctx, g, c, bytes, func() (struct{}, error) {
		for _, item := range p.items {
			size += listedSize(item.raw)
		}
		return struct{}{}, nil
	}); err != nil {
		return "", err
	}
	if err := c.hold(2 * size); err != nil { // the items as they are listed, and the list
		return "", err
	}
	return inTurn(ctx, g, c, int(size), func() (string, error) { return p.list(int(size)), nil })
}

// list returns the page as a list object of about a size.
func (p *page) list(size int) string {
	if p.options.before {
		slices.Reverse(p.items)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(`{"object":"list","data":[`)
	for i, item := range p.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(listed(item.raw, item.name))
	}
	first, last := "", ""
	if n := len(p.items); n > 0 {
		first, last = p.items[0].id(), p.items[n-1].id()
	}
	fmt.Fprintf(&b, `],"first_id":%s,"last_id":%s,"has_more":%t}`, quote(first), quote(last), p.more)
	return b.String()
}

func (i pageItem) id() string { return i.name.id(itemType(i.raw)) }
