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

import "sync"

// Queue is the order of a workqueue in which tenants take turns, so that one with 100,000 items delays an item of another
// only by one of its own. The items of one tenant come out in the order in which they were added, except that items marked
// with Later come after all others.
//
// It is safe for concurrent use: a workqueue calls it under its own lock, but Later is called without that lock.
type Queue[T comparable] struct {
	tenant func(item T) string

	mu    sync.Mutex
	lanes map[string]*lane[T]
	order []*lane[T] // of tenants with items, the next one first
	later map[T]bool // items that are to be added later
	size  int
}

// lane holds the items of one tenant.
type lane[T comparable] struct {
	tenant          string
	now, afterwards []T
}

// NewQueue returns an empty queue of items, each of which belongs to a tenant.
func NewQueue[T comparable](tenant func(item T) string) *Queue[T] {
	return &Queue[T]{tenant: tenant, lanes: map[string]*lane[T]{}, later: map[T]bool{}}
}

// Later makes the next Push of an item add it behind the tenant's other items.
func (q *Queue[T]) Later(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.later[item] = true
}

// Touch implements client-go's workqueue.Queue: the item is in the queue already and keeps its place.
func (q *Queue[T]) Touch(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.later, item)
}

// Push implements client-go's workqueue.Queue.
func (q *Queue[T]) Push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tenant := q.tenant(item)
	l := q.lanes[tenant]
	if l == nil {
		l = &lane[T]{tenant: tenant}
		q.lanes[tenant], q.order = l, append(q.order, l)
	}
	if q.later[item] {
		delete(q.later, item)
		l.afterwards = append(l.afterwards, item)
	} else {
		l.now = append(l.now, item)
	}
	q.size++
}

// Len implements client-go's workqueue.Queue.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// Pop implements client-go's workqueue.Queue. It must not be called if the queue is empty.
func (q *Queue[T]) Pop() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.order[0]
	q.order = q.order[1:]
	items := &l.now
	if len(*items) == 0 {
		items = &l.afterwards
	}
	item := (*items)[0]
	*items = (*items)[1:]
	if len(l.now)+len(l.afterwards) > 0 {
		q.order = append(q.order, l)
	} else {
		delete(q.lanes, l.tenant)
	}
	q.size--
	return item
}
