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
	"net/http"
	"net/url"
	"strconv"

	"github.com/catena-dev/catena/internal/chain"
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
	after      string
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
	p, err := g.readPage(r.Context(), c, session, options)
	if err != nil {
		return err
	}
	body, err := p.body()
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func parsePageOptions(query url.Values) (*pageOptions, error) {
	o := &pageOptions{after: query.Get("after"), limit: defaultLimit, descending: true}
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

// readItems is the number of items of a conversation that are read at a time. A page, the item before it and the one after it are in
// at most two such batches.
const readItems = maxLimit + 1

// readPage returns a page of the items that a response was created from.
func (g *Gateway) readPage(ctx context.Context, c *call, session *store.Session, options *pageOptions) (*page, error) {
	key := keyOf(c, session)
	for {
		p := newPage(options, session.ResponseID, g.items.seed, g.items.get(key), c.hold, c.memory.give)
		var cursors []string
		skipped := p.begin()
		err := g.eachInputItem(ctx, c, session, p, skipped, func(next string) { cursors = append(cursors, next) })
		ended := err == nil
		if errors.Is(err, errPageComplete) {
			err = nil
		}
		if skipped > 0 && (errors.Is(err, store.ErrInvalid) || err == nil && !p.plausible()) {
			g.items.drop(key) // the next attempt skips nothing
			continue
		}
		if err == nil && p.index >= p.known.count && p.known.bytes()+seenBytes*len(p.added) <= maxIndexBytes {
			g.items.put(key, p.known.extended(p.added, cursors, p.index, ended))
		}
		return p, err
	}
}

// eachInputItem adds the items that a response was created from to a page, oldest first, until the page returns an error. It
// first skips some batches of the conversation, and calls reached with each cursor that the page does not know.
//
// OpenAI's pages start after an item's ID, which can be anywhere in the conversation. A page may therefore require reading the
// whole conversation, but never all of it at once.
func (g *Gateway) eachInputItem(
	ctx context.Context, c *call, session *store.Session, p *page, skipped int, reached func(next string),
) error {
	options := g.options.resolveOptions()
	options.IncludeIncomplete = true // a turn that is not completed has input items as well
	if options.Limit = readItems; skipped > 0 {
		options.After = p.known.cursors[skipped-1]
	}
	for piece := skipped; ; piece++ {
		history, err := read(ctx, c, func(ctx context.Context) (*store.History, error) {
			return c.store.Resolve(ctx, session.PreviousResponseID, options)
		}, historyBytes)
		if err != nil {
			return storeError(err)
		}
		if history.Next != "" && piece >= len(p.known.cursors) {
			reached(history.Next)
		}
		for _, item := range history.Items {
			if err := p.add(jsonvalue.Text(item)); err != nil {
				return err
			}
		}
		c.memory.give(historyBytes(history))
		if options.After = history.Next; options.After == "" {
			break
		}
	}
	return eachOwnItem(session, p.add)
}

// eachOwnItem yields the items of a request's own input until yield returns an error.
func eachOwnItem(session *store.Session, yield func(item string) error) error {
	request, err := jsonvalue.ParseObject(session.Request)
	if err == nil {
		err = chain.CheckObjects(request, jsonvalue.Object{})
	}
	if err != nil {
		return storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: session.ResponseID, Err: err})
	}
	var failed error
	_ = chain.EachInput(request.RawMembers("input")[0], func(item string) { // checked above
		if failed == nil {
			failed = yield(item)
		}
	})
	return failed
}
