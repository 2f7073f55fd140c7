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

package fair

import (
	"container/heap"
	"container/list"
	"slices"
	"sync"
	"time"
)

// Cache holds values up to a total weight, which tenants share. It is safe for concurrent use.
//
// A tenant may use all that the others leave. If a new value exceeds the total, the values go first that no one has used for
// cacheIdle. Then the tenant whose values weigh most loses the ones that it has not used for longest, until the others fit. So n
// tenants can have 1/n of the total each (max-min fairness): one whose values weigh no more than that loses none because of another
// tenant that it has used within cacheIdle. A tenant that is gone does not keep its share.
type Cache[K comparable, V any] struct {
	total int64
	now   func() time.Time

	mu       sync.Mutex
	weight   int64
	entries  map[K]*cacheEntry[K, V]
	recent   list.List               // all entries, the one used last in front
	tenants  map[string]*cacheTenant // those with values
	heaviest cacheHeap               // the same
}

// cacheIdle is the time after which a value that has not been used makes room for others.
const cacheIdle = time.Hour

type cacheEntry[K comparable, V any] struct {
	key    K
	value  V
	weight int64
	used   time.Time
	tenant *cacheTenant
	// element is the entry's element in the list of all entries, and own that in the list of its tenant.
	element, own *list.Element
}

// cacheTenant is a tenant with at least one value.
type cacheTenant struct {
	name   string
	weight int64
	recent list.List // the entry used last in front
	index  int       // in the heap
}

// NewCache returns an empty cache for values of a total weight.
func NewCache[K comparable, V any](total int64) *Cache[K, V] {
	return &Cache[K, V]{total: total, now: time.Now, entries: map[K]*cacheEntry[K, V]{}, tenants: map[string]*cacheTenant{}}
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(key K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entries[key]
	if entry == nil {
		return value, false
	}
	entry.used = c.now()
	c.recent.MoveToFront(entry.element)
	entry.tenant.recent.MoveToFront(entry.own)
	return entry.value, true
}

// Set replaces the value of a key with one that belongs to a tenant and has a weight of at least 0. The new value is not kept
// if it is heavier than the total, or than what its tenant can have. The values exceed the total by at most those for which Set has not
// returned yet.
func (c *Cache[K, V]) Set(tenant string, key K, value V, weight int64) {
	c.replace(tenant, key, value, weight)
	for c.shrink() {
	}
}

func (c *Cache[K, V]) replace(tenant string, key K, value V, weight int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	if weight <= c.total {
		c.add(tenant, &cacheEntry[K, V]{key: key, value: value, weight: weight, used: c.now()})
	}
}

// cacheRemovals is how many values are removed while others wait: one heavy value can replace 100,000 light ones.
const cacheRemovals = 256

// shrink removes values beyond the total, and reports whether there may be more.
func (c *Cache[K, V]) shrink() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range cacheRemovals {
		if c.weight <= c.total {
			return false
		}
		c.remove(c.dispensable().key)
	}
	return true
}

// dispensable returns the entry that is removed next.
func (c *Cache[K, V]) dispensable() *cacheEntry[K, V] {
	if oldest := c.recent.Back().Value.(*cacheEntry[K, V]); c.now().Sub(oldest.used) > cacheIdle {
		return oldest
	}
	return c.heaviest[0].recent.Back().Value.(*cacheEntry[K, V])
}

// Delete removes the value of a key, if there is one.
func (c *Cache[K, V]) Delete(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
}

// Used returns the weight of all values together.
func (c *Cache[K, V]) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.weight
}

func (c *Cache[K, V]) add(name string, entry *cacheEntry[K, V]) {
	tenant := c.tenants[name]
	if tenant == nil {
		tenant = &cacheTenant{name: name}
		c.tenants[name] = tenant
		heap.Push(&c.heaviest, tenant)
	}
	entry.tenant = tenant
	entry.element, entry.own = c.recent.PushFront(entry), tenant.recent.PushFront(entry)
	c.entries[entry.key] = entry
	c.addWeight(tenant, entry.weight)
}

func (c *Cache[K, V]) remove(key K) {
	entry := c.entries[key]
	if entry == nil {
		return
	}
	delete(c.entries, key)
	tenant := entry.tenant
	c.recent.Remove(entry.element)
	tenant.recent.Remove(entry.own)
	c.addWeight(tenant, -entry.weight)
	if tenant.recent.Len() == 0 {
		heap.Remove(&c.heaviest, tenant.index)
		delete(c.tenants, tenant.name)
	}
}

func (c *Cache[K, V]) addWeight(tenant *cacheTenant, weight int64) {
	c.weight += weight
	tenant.weight += weight
	heap.Fix(&c.heaviest, tenant.index)
}

// cacheHeap implements heap.Interface. The tenant whose values weigh most comes first; of equal ones, the first by name.
type cacheHeap []*cacheTenant

func (h cacheHeap) Len() int { return len(h) }

func (h cacheHeap) Less(i, j int) bool {
	if h[i].weight != h[j].weight {
		return h[i].weight > h[j].weight
	}
	return h[i].name < h[j].name
}

func (h cacheHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *cacheHeap) Push(tenant any) {
	added := tenant.(*cacheTenant)
	added.index = len(*h)
	*h = append(*h, added)
}

func (h *cacheHeap) Pop() any {
	last := len(*h) - 1
	removed := (*h)[last]
	*h = slices.Delete(*h, last, last+1)
	return removed
}
