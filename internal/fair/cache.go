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
)

// Cache holds values up to a total weight, which tenants share. It is safe for concurrent use.
//
// A tenant may use all that the others leave. If a new value exceeds the total, the tenant whose values weigh most loses the
// ones that it has not used for longest, until the others fit. So n tenants can have 1/n of the total each (max-min fairness):
// a tenant whose values weigh no more than that never loses one because of another tenant, however long it does not use them.
type Cache[K comparable, V any] struct {
	total int64

	mu       sync.Mutex
	weight   int64
	elements map[K]*list.Element     // of *cacheEntry[K, V], in the list of its tenant
	tenants  map[string]*cacheTenant // those with values
	heaviest cacheHeap               // the same
}

type cacheEntry[K comparable, V any] struct {
	key    K
	value  V
	weight int64
	tenant *cacheTenant
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
	return &Cache[K, V]{total: total, elements: map[K]*list.Element{}, tenants: map[string]*cacheTenant{}}
}

// Get returns the value of a key, and whether there is one.
func (c *Cache[K, V]) Get(key K) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.elements[key]
	if element == nil {
		return value, false
	}
	entry := element.Value.(*cacheEntry[K, V])
	entry.tenant.recent.MoveToFront(element)
	return entry.value, true
}

// Set replaces the value of a key with one that belongs to a tenant and has a weight of at least 0. The new value is not kept
// if it is heavier than the total, or than what its tenant can have.
func (c *Cache[K, V]) Set(tenant string, key K, value V, weight int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	if weight > c.total {
		return
	}
	c.add(tenant, &cacheEntry[K, V]{key: key, value: value, weight: weight})
	for c.weight > c.total {
		oldest := c.heaviest[0].recent.Back()
		c.remove(oldest.Value.(*cacheEntry[K, V]).key)
	}
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
	c.elements[entry.key] = tenant.recent.PushFront(entry)
	c.addWeight(tenant, entry.weight)
}

func (c *Cache[K, V]) remove(key K) {
	element := c.elements[key]
	if element == nil {
		return
	}
	delete(c.elements, key)
	entry := element.Value.(*cacheEntry[K, V])
	tenant := entry.tenant
	tenant.recent.Remove(element)
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
