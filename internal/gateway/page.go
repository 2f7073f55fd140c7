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
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// errPageComplete ends the reading of items: none after it changes the page.
var errPageComplete = errors.New("the page is complete")

// inputItem is an item with the ID that clients page by.
type inputItem struct {
	id, raw string
	// renamed is set if the item's ID is not its own.
	renamed bool
}

// page selects a page of items that are added one after the other, oldest first. It keeps only the items of the page.
//
// Every item has a unique ID: an item without one, or with that of an earlier item, gets one made of the response's ID and the
// item's index. Neither the items of a response nor their order change, and so the IDs do not.
type page struct {
	options    *pageOptions
	responseID string
	// hold is called before memory is taken, and give when it is free again.
	hold func(bytes int64) error
	give func(bytes int64)

	index int // of the next item
	seed  maphash.Seed
	// known has the items that were read before, for another page, and added those that were not, up to the last one that was.
	known *itemIndex
	added map[uint64]int
	// items has the items of the page so far, oldest first. Further pages follow if more is set.
	items []inputItem
	more  bool
	// found is set once the item was found that the page comes after.
	found bool
}

// The memory of an item on a page and of an ID, besides their own bytes.
const (
	pageItemBytes = 128
	seenBytes     = 48
)

func newPage(
	options *pageOptions, responseID string, seed maphash.Seed, known *itemIndex, hold func(int64) error, give func(int64),
) *page {
	return &page{
		options: options, responseID: responseID, hold: hold, give: give,
		seed: seed, known: known, added: map[uint64]int{}, found: options.after == "",
	}
}

// begin skips as many pieces of readItems items of the conversation as it can, because none of them is on the page, and returns
// their number. Call it first.
func (p *page) begin() int {
	from := p.known.count
	if position, ok := p.known.positions[p.hash(p.options.after)]; ok && p.options.after != "" {
		from = position
	}
	switch {
	case p.options.descending:
		from = max(0, from-p.options.limit)
	case p.options.after == "":
		from = 0
	}
	skipped := min(from/readItems, len(p.known.cursors))
	p.index = skipped * readItems
	p.more = p.options.descending && skipped > 0
	return skipped
}

// plausible reports whether the items are those of the index, as far as the page shows. They are not if an earlier turn has been
// overwritten.
func (p *page) plausible() bool {
	_, known := p.known.positions[p.hash(p.options.after)]
	return (p.found || !known) && (!p.known.complete || p.index <= p.known.count)
}

// add adds the next item. It returns errPageComplete if no further item is needed.
func (p *page) add(raw string) error {
	item := inputItem{id: gjson.Get(raw, "id").Str, raw: raw}
	if item.id == "" || p.isSeen(item.id) {
		item.id, item.renamed = fmt.Sprintf("item_%s_%d", strings.TrimPrefix(p.responseID, "resp_"), p.index), true
	}
	if p.index >= p.known.count && !p.isSeen(item.id) {
		if err := p.hold(seenBytes); err != nil {
			return err
		}
		p.added[p.hash(item.id)] = p.index
	}
	p.index++
	switch isAfter := !p.found && item.id == p.options.after; {
	case isAfter && p.options.descending:
		p.found = true
		return errPageComplete
	case isAfter:
		p.found = true
		return nil
	case !p.found && !p.options.descending:
		return nil
	}
	return p.keep(item)
}

// isSeen reports whether an item before the next one has an ID.
func (p *page) isSeen(id string) bool {
	hash := p.hash(id)
	if _, added := p.added[hash]; added {
		return true
	}
	position, known := p.known.positions[hash]
	return known && position < p.index
}

func (p *page) hash(id string) uint64 { return maphash.String(p.seed, id) }

// keep adds an item to the page. If the page is full, it drops the oldest item if the newest are wanted.
func (p *page) keep(item inputItem) error {
	if len(p.items) == p.options.limit {
		p.more = true
		if !p.options.descending {
			return errPageComplete
		}
		p.give(p.items[0].bytes())
		p.items = slices.Delete(p.items, 0, 1)
	}
	if err := p.hold(item.bytes()); err != nil {
		return err
	}
	item.id, item.raw = strings.Clone(item.id), strings.Clone(item.raw) // they share the memory of the history
	p.items = append(p.items, item)
	return nil
}

// bytes returns the memory of an item on a page.
func (i inputItem) bytes() int64 { return int64(len(i.id)+len(i.raw)) + pageItemBytes }

// body returns the page as OpenAI's list.
func (p *page) body() (string, error) {
	if !p.found {
		return "", invalidRequest("after", "invalid_value", "Invalid 'after': item with id '%s' not found.", p.options.after)
	}
	size := 0
	for _, item := range p.items {
		size += int(item.bytes())
	}
	if err := p.hold(int64(2*size + pageItemBytes)); err != nil { // with new IDs, and as a list
		return "", err
	}
	if p.options.descending {
		slices.Reverse(p.items)
	}
	first, last := "", ""
	if len(p.items) > 0 {
		first, last = p.items[0].id, p.items[len(p.items)-1].id
	}
	var b strings.Builder
	b.Grow(size + pageItemBytes)
	b.WriteString(`{"object":"list","data":[`)
	for i, item := range p.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item.withID())
	}
	fmt.Fprintf(&b, `],"first_id":%s,"last_id":%s,"has_more":%t}`, quoteOrNull(first), quoteOrNull(last), p.more)
	return b.String(), nil
}

// withID returns the item with its ID. Everything else stays as it is, even a key that is given twice.
func (i inputItem) withID() string {
	if !i.renamed {
		return i.raw
	}
	var b strings.Builder
	b.Grow(int(i.bytes()))
	b.WriteByte('{')
	for key, value := range jsonvalue.Elements(i.raw) {
		if jsonvalue.Name(key) != "id" {
			b.WriteString(key + ":" + value + ",")
		}
	}
	b.WriteString(`"id":` + quote(i.id) + "}")
	return b.String()
}
