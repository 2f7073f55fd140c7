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
	"hash/maphash"
	"maps"
	"slices"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/store"
)

// The maximum memory of all indexes of input items, and of one. It is not part of the memory of requests in flight.
const (
	maxIndexesBytes = 16 << 20
	maxIndexBytes   = maxIndexesBytes / 4
)

// indexOverhead is the approximate memory of an index besides its items and cursors: its key and what the cache needs for it.
const indexOverhead = 512

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

// bytes returns the memory that the index takes in the cache.
func (x *itemIndex) bytes() int {
	bytes := indexOverhead
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

// itemIndexes is a cache of the most recently used indexes, which namespaces share, so that a page in the middle of a conversation
// is found without reading everything before it. It is safe for concurrent use.
type itemIndexes struct {
	seed  maphash.Seed
	cache *fair.Cache[indexKey, *itemIndex]
}

// indexKey identifies a version of a response: another version may have other items.
type indexKey struct{ namespace, responseID, version string }

func newItemIndexes() *itemIndexes {
	return &itemIndexes{seed: maphash.MakeSeed(), cache: fair.NewCache[indexKey, *itemIndex](maxIndexesBytes)}
}

// keyOf returns the key of the index of a session.
func keyOf(c *call, session *store.Session) indexKey {
	return indexKey{c.store.Namespace(), session.ResponseID, session.Version}
}

// get returns the cached index, or an empty one.
func (x *itemIndexes) get(key indexKey) *itemIndex {
	if index, found := x.cache.Get(key); found {
		return index
	}
	return &itemIndex{}
}

// put caches an index of at most maxIndexBytes, unless a longer one is cached already. If two are put at once, either may be kept.
func (x *itemIndexes) put(key indexKey, index *itemIndex) {
	if kept := x.get(key); kept.count > index.count || kept.complete {
		return
	}
	x.cache.Set(key.namespace, key, index, int64(index.bytes()))
}

// drop removes an index.
func (x *itemIndexes) drop(key indexKey) { x.cache.Delete(key) }
