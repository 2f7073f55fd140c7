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
// only by one of its own. Items marked with Later, of which one change can cause many, have turns of their own. Only a number
// of them are processed at once, and while other items wait, only each fourth item is one of them. The items of one tenant come
// out in the order in which they were added.
//
// It is safe for concurrent use: a workqueue calls it under its own lock, but Later and Done are called without that lock.
type Queue[T comparable] struct {
	tenant   func(item T) string
	maxLater int

	mu         sync.Mutex
	now, later turns[T]
	marked     map[T]bool // items that are to be added to later
	processed  map[T]bool // items of later that have come out and are not done
	// streak counts the other items that came out while items of later could have.
	streak int
}

// maxStreak is how many items come out before one that was marked with Later.
const maxStreak = 3

// NewQueue returns an empty queue of items, each of which belongs to a tenant. At most maxLater items that were marked with
// Later, at least one, are processed at once.
func NewQueue[T comparable](tenant func(item T) string, maxLater int) *Queue[T] {
	return &Queue[T]{
		tenant: tenant, maxLater: maxLater, now: newTurns[T](), later: newTurns[T](), marked: map[T]bool{}, processed: map[T]bool{},
	}
}

// Later marks an item for its next Push, or removes the mark.
func (q *Queue[T]) Later(item T, later bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if later {
		q.marked[item] = true
	} else {
		delete(q.marked, item)
	}
}

// Touch implements client-go's workqueue.Queue: the item is in the queue already and keeps its place.
func (q *Queue[T]) Touch(item T) { q.Later(item, false) }

// Push implements client-go's workqueue.Queue.
func (q *Queue[T]) Push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.marked[item] {
		delete(q.marked, item)
		q.later.push(q.tenant(item), item)
	} else {
		q.now.push(q.tenant(item), item)
	}
}

// Done must be called when an item that has come out has been processed, before its worker asks for the next one. A workqueue
// wakes no other worker then.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.processed, item)
}

// Len implements client-go's workqueue.Queue. It returns the number of items that can come out now.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.now.size + q.free()
}

// free returns how many items of later can come out now.
func (q *Queue[T]) free() int { return min(q.later.size, q.maxLater-len(q.processed)) }

// Pop implements client-go's workqueue.Queue. It must not be called if Len is 0.
func (q *Queue[T]) Pop() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free() == 0 {
		return q.now.pop()
	}
	if q.now.size > 0 && q.streak < maxStreak {
		q.streak++
		return q.now.pop()
	}
	q.streak = 0
	item := q.later.pop()
	q.processed[item] = true
	return item
}

// turns are the items of tenants that take turns.
type turns[T any] struct {
	items map[string][]T // by tenant
	order []string       // the tenants with items, the next one first
	size  int
}

func newTurns[T any]() turns[T] { return turns[T]{items: map[string][]T{}} }

func (t *turns[T]) push(tenant string, item T) {
	if len(t.items[tenant]) == 0 {
		t.order = append(t.order, tenant)
	}
	t.items[tenant] = append(t.items[tenant], item)
	t.size++
}

func (t *turns[T]) pop() T {
	tenant := t.order[0]
	t.order = t.order[1:]
	items := t.items[tenant]
	if len(items) > 1 {
		t.items[tenant] = items[1:]
		t.order = append(t.order, tenant)
	} else {
		delete(t.items, tenant)
	}
	t.size--
	return items[0]
}
