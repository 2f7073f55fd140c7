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

// The maximum memory of all indexes of input items, and of one. It is not part of the memory of requests in flight.
const (
	maxIndexesBytes = 16 << 20
	maxIndexBytes   = maxIndexesBytes / 4
)

// itemIndex has the positions of the input items of a response that have been read so far, starting with the oldest. It is
// immutable.
type itemIndex struct {
	// positions maps the hash of an item's ID to its position.
	positions map[uint64]int
	// cursors has one cursor for every readItems items, with which reading the conversation continues.
	cursors []string
	count   int
	// complete is set if the index has all items.
	complete bool
}

// bytes returns the memory that the index takes.
func (x *itemIndex) bytes() (bytes int) {
	for _, cursor := range x.cursors {
		bytes += len(cursor) + 16
	}
	return bytes + seenBytes*len(x.positions)
}

// extended returns a copy of the index with more items.
func (x *itemIndex) extended(positions map[uint64]int, cursors []string, count int, complete bool) *itemIndex {
	all := maps.Clone(x.positions)
	if all == nil {
		all = map[uint64]int{}
	}
	maps.Copy(all, positions)
	return &itemIndex{positions: all, cursors: slices.Concat(x.cursors, cursors), count: count, complete: complete}
}

// itemIndexes is a cache of the most recently used indexes, so that a page in the middle of a conversation is found without
// reading everything before it. It is safe for concurrent use.
type itemIndexes struct {
	seed maphash.Seed

	mu     sync.Mutex
	bytes  int
	recent *list.List // of indexEntry, the one used last in front
	byKey  map[indexKey]*list.Element
}

// indexKey identifies a version of a response: another version may have other items.
type indexKey struct{ namespace, responseID, version string }

type indexEntry struct {
	key   indexKey
	index *itemIndex
}

func newItemIndexes() *itemIndexes {
	return &itemIndexes{seed: maphash.MakeSeed(), recent: list.New(), byKey: map[indexKey]*list.Element{}}
}

// keyOf returns the key of the index of a session.
func keyOf(c *call, session *store.Session) indexKey {
	return indexKey{c.store.Namespace(), session.ResponseID, session.Version}
}

// get returns the cached index, or an empty one.
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

// put caches an index of at most maxIndexBytes, unless a longer one is cached already.
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

// drop removes an index.
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
