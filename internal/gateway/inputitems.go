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
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/store"
)

// OpenAI's limits for a page of input items.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// inputItem is an item with the ID that clients page by.
type inputItem struct{ id, raw string }

// pageOptions select a page of input items.
type pageOptions struct {
	after      string
	limit      int
	descending bool
}

// listInputItems answers with a page of the items that a response was created from, as OpenAI does: those of the
// conversation before it, and the input of its request. A broken conversation is an error here too.
func (g *Gateway) listInputItems(w http.ResponseWriter, r *http.Request, c *call) error {
	options, err := parsePageOptions(r.URL.Query())
	if err != nil {
		return err
	}
	items, err := g.inputItems(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	body, err := options.pageOf(items)
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

// inputItems returns all items that a response was created from, oldest first. OpenAI's pages start after an item's ID,
// which can be anywhere in the conversation, so all of it is read for every page.
func (g *Gateway) inputItems(ctx context.Context, c *call, id string) ([]inputItem, error) {
	session, err := g.get(ctx, c, id)
	if err != nil {
		return nil, err
	}
	options := g.options.resolveOptions()
	options.IncludeIncomplete = true // a turn that is not completed has input items too
	history, err := c.store.Resolve(ctx, session.PreviousResponseID, options)
	if err != nil {
		return nil, storeError(err)
	}
	if err := g.hold(c, size(history.Items)); err != nil {
		return nil, err
	}
	own, err := chain.Flatten(session.Request, nil)
	if err != nil {
		return nil, storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: id, Err: err})
	}
	raw := make([]string, 0, len(history.Items)+own.Len())
	for _, item := range history.Items {
		raw = append(raw, string(item))
	}
	for i := range own.Len() {
		raw = append(raw, string(own.Slice(i, i+1)))
	}
	return withIDs(id, raw), nil
}

// withIDs gives every item a unique ID: an item without one, or with that of an earlier item, gets one made of the
// response's ID and the item's index. Neither the items of a response nor their order change, and so the IDs do not.
func withIDs(responseID string, raw []string) []inputItem {
	items := make([]inputItem, len(raw))
	seen := map[string]bool{}
	for i, text := range raw {
		id := gjson.Get(text, "id").Str
		if id == "" || seen[id] {
			id = fmt.Sprintf("item_%s_%d", strings.TrimPrefix(responseID, "resp_"), i)
			text = withID(text, id)
		}
		seen[id] = true
		items[i] = inputItem{id: id, raw: text}
	}
	return items
}

// withID returns an item with another ID. Everything else stays as it is, even a key that is given twice.
func withID(item, id string) string {
	o := &object{}
	gjson.Parse(item).ForEach(func(key, value gjson.Result) bool {
		if key.Str != "id" {
			o.members = append(o.members, member{name: key.Str, key: key.Raw, value: value.Raw})
		}
		return true
	})
	o.set("id", quote(id))
	return o.String()
}

// pageOf returns a page of items, which are oldest first, as OpenAI's list.
func (o *pageOptions) pageOf(items []inputItem) (string, error) {
	after := -1
	if o.after != "" {
		after = slices.IndexFunc(items, func(item inputItem) bool { return item.id == o.after })
		if after < 0 {
			return "", invalidRequest("after", "invalid_value", "Invalid 'after': item with id '%s' not found.", o.after)
		}
	}
	window := history.NewWindow(len(items), o.limit, after, o.descending)
	items = items[window.From:window.To]
	if o.descending {
		slices.Reverse(items)
	}
	first, last := "", ""
	if len(items) > 0 {
		first, last = items[0].id, items[len(items)-1].id
	}
	data := make([]string, len(items))
	for i, item := range items {
		data[i] = item.raw
	}
	return fmt.Sprintf(`{"object":"list","data":[%s],"first_id":%s,"last_id":%s,"has_more":%t}`,
		strings.Join(data, ","), quoteOrNull(first), quoteOrNull(last), window.More), nil
}
