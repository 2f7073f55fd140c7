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
	"container/list"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/catena-dev/catena/store"
)

// The memory of the indexes of input items, besides that of requests in flight: that of all of them, and of one.
const (
	maxIndexesBytes = 16 << 20
	maxIndexBytes   = maxIndexesBytes / 4
)

// itemIndex has the positions of the input items of a response, from the oldest one on, as far as they have been read. It never
// changes.
type itemIndex struct {
	// positions are those of the items by the hash of their IDs.
	positions map[uint64]int
	// cursors continue the conversation after each readItems items.
	cursors []string
	count   int
	// complete is set if there are no more items.
	complete bool
}

// bytes returns the memory of the index.
func (x *itemIndex) bytes() (bytes int) {
	for _, cursor := range x.cursors {
		bytes += len(cursor) + 16
	}
	return bytes + seenBytes*len(x.positions)
}

// extended returns the index with more items.
func (x *itemIndex) extended(positions map[uint64]int, cursors []string, count int, complete bool) *itemIndex {
	all := maps.Clone(x.positions)
	if all == nil {
		all = map[uint64]int{}
	}
	maps.Copy(all, positions)
	return &itemIndex{positions: all, cursors: slices.Concat(x.cursors, cursors), count: count, complete: complete}
}

// itemIndexes keeps the indexes that were used last, so that a page in the middle of a conversation is found without reading all
// that is before it. It is safe for concurrent use.
type itemIndexes struct {
	seed maphash.Seed

	mu     sync.Mutex
	bytes  int
	recent *list.List // of indexEntry, the one used last in front
	byKey  map[indexKey]*list.Element
}

// indexKey identifies a response with its content: another version may have other items.
type indexKey struct{ namespace, responseID, version string }

type indexEntry struct {
	key   indexKey
	index *itemIndex
}

func newItemIndexes() *itemIndexes {
	return &itemIndexes{seed: maphash.MakeSeed(), recent: list.New(), byKey: map[indexKey]*list.Element{}}
}

// keyOf returns the key of a session's index.
func keyOf(c *call, session *store.Session) indexKey {
	return indexKey{c.store.Namespace(), session.ResponseID, session.Version}
}

// get returns the index that is kept under a key, or an empty one.
func (x *itemIndexes) get(key indexKey) *itemIndex {
	x.mu.Lock()
	defer x.mu.Unlock()
	element := x.byKey[key]
	if element == nil {
		return &itemIndex{}
	}
	x.recent.MoveToFront(element)
	return element.Value.(indexEntry).index
}

// put keeps an index of at most maxIndexBytes, unless a longer one is kept.
func (x *itemIndexes) put(key indexKey, index *itemIndex) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if element := x.byKey[key]; element != nil {
		if kept := element.Value.(indexEntry).index; kept.count > index.count || kept.complete {
			return
		}
		x.remove(element)
	}
	x.byKey[key] = x.recent.PushFront(indexEntry{key, index})
	for x.bytes += index.bytes(); x.bytes > maxIndexesBytes; {
		x.remove(x.recent.Back())
	}
}

// drop forgets an index.
func (x *itemIndexes) drop(key indexKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if element := x.byKey[key]; element != nil {
		x.remove(element)
	}
}

func (x *itemIndexes) remove(element *list.Element) {
	entry := x.recent.Remove(element).(indexEntry)
	delete(x.byKey, entry.key)
	x.bytes -= entry.index.bytes()
}
