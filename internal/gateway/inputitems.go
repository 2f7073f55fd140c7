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
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store"
)

// The limits of a page of input items, as OpenAI has them.
const (
	defaultPage = 20
	maxPage     = 100
)

// inputItem is an item with the ID that a client pages by.
type inputItem struct {
	id, raw string
}

// page is which items a client asks for.
type page struct {
	after      string
	limit      int
	descending bool
}

// listInputItems answers with the items that a response was made from, as OpenAI does: those of the conversation before
// it, and those of the request's own input. A conversation that is broken is an error here too.
func (g *Gateway) listInputItems(w http.ResponseWriter, r *http.Request, c *call) error {
	page, err := parsePage(r.URL.Query())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	session, err := g.get(r.Context(), c, id)
	if err != nil {
		return err
	}
	options := g.options.resolveOptions()
	options.IncludeIncomplete = true // a turn that is not completed has items all the same
	history, err := c.store.Resolve(r.Context(), session.PreviousResponseID, options)
	if err != nil {
		return storeError(err)
	}
	if err := g.hold(c, size(history.Items)); err != nil {
		return err
	}
	own, err := chain.Flatten(session.Request, nil)
	if err != nil {
		return storeError(&store.Error{Code: store.CodeUnreadable, ResponseID: id, Err: err})
	}
	raw := make([]string, 0, len(history.Items)+own.Len())
	for _, item := range history.Items {
		raw = append(raw, string(item))
	}
	for i := range own.Len() {
		raw = append(raw, string(own.Slice(i, i+1)))
	}
	body, err := page.of(withIDs(id, raw))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

func parsePage(query url.Values) (*page, error) {
	p := &page{after: query.Get("after"), limit: defaultPage, descending: true}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxPage {
			return nil, invalidRequest("limit", "invalid_value", "Invalid 'limit': must be an integer from 1 to %d.", maxPage)
		}
		p.limit = limit
	}
	switch order := query.Get("order"); order {
	case "", store.OrderDescending:
	case store.OrderAscending:
		p.descending = false
	default:
		return nil, invalidRequest("order", "invalid_value", "Invalid 'order': must be 'asc' or 'desc'.")
	}
	return p, nil
}

// withIDs gives every item an ID of its own: one that has none, or that of an item before it, gets one made of the
// response's ID and its place. The items of a response and their places never change, and so neither does the ID.
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

// withID returns an item with another ID. What else it has stays as it is, even a key that is given twice.
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

// of returns the page of all items, oldest first, as OpenAI's list.
func (p *page) of(items []inputItem) (string, error) {
	if p.descending {
		slices.Reverse(items)
	}
	if p.after != "" {
		i := slices.IndexFunc(items, func(item inputItem) bool { return item.id == p.after })
		if i < 0 {
			return "", invalidRequest("after", "invalid_value", "Invalid 'after': item with id '%s' not found.", p.after)
		}
		items = items[i+1:]
	}
	more := len(items) > p.limit
	if more {
		items = items[:p.limit]
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
		strings.Join(data, ","), quoteOrNull(first), quoteOrNull(last), more), nil
}
