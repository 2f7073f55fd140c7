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
	"slices"
	"sync"
)

// Queue is the order of a workqueue in which tenants take turns, so that one with 100,000 items delays an item of another
// only by one of its own. They also share the workers as in Budget: one tenant alone can use half of them, however long its
// items take, and fewer if its items have more than one unit. Items that are less urgent have turns of their own. They can use
// only a number of workers, and while other items wait, only each fourth item is one of them. The items of one tenant come out
// in the order in which they were added.
//
// It is safe for concurrent use: a workqueue calls it under its own lock, but Mark and Done are called without that lock.
type Queue[T comparable] struct {
	tenant            func(item T) string
	workers, maxLater int

	mu         sync.Mutex
	now, later turns[T]
	marks      map[T]Mark // of items until their next Push
	// processed are the items that have come out and are not done. running adds them up by tenant, and laterRunning counts
	// those that are less urgent.
	processed    map[T]Mark
	running      map[string]share
	laterRunning int
	// streak counts the other items that came out while items of later could have.
	streak int
}

// Mark is how a Queue treats an item. The zero value is the mark of an ordinary one.
type Mark struct {
	// Later is set if the item is less urgent.
	Later bool
	// Units is how many ordinary items cost as much; less than 1 counts as 1. While the items of a tenant that are processed have
	// half as many units as there are workers, or more, its others wait. What the next one costs does not matter, because it could
	// otherwise wait for ever, while cheaper ones that are more or less urgent pass it.
	Units int
}

// share is the number of workers that a tenant uses, and for how many units.
type share struct{ workers, units int }

// maxStreak is how many items come out before one that is less urgent.
const maxStreak = 3

// NewQueue returns an empty queue of items, each of which belongs to a tenant, for a number of workers. Items that are less
// urgent can use maxLater of them, at least one.
func NewQueue[T comparable](tenant func(item T) string, workers, maxLater int) *Queue[T] {
	return &Queue[T]{
		tenant: tenant, workers: workers, maxLater: maxLater, now: newTurns[T](), later: newTurns[T](), marks: map[T]Mark{},
		processed: map[T]Mark{}, running: map[string]share{},
	}
}

// Mark marks an item for its next Push.
func (q *Queue[T]) Mark(item T, mark Mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.marks[item] = mark
}

// Touch implements client-go's workqueue.Queue: the item is in the queue already and keeps its place.
func (q *Queue[T]) Touch(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.marks, item)
}

// Push implements client-go's workqueue.Queue.
func (q *Queue[T]) Push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mark := q.marks[item]
	delete(q.marks, item)
	to := &q.now
	if mark.Later {
		to = &q.later
	}
	to.push(q.tenant(item), waiting[T]{item, Mark{mark.Later, max(mark.Units, 1)}})
}

// Done must be called when an item that has come out has been processed, before its worker asks for the next one. Several
// items may come out then, but a workqueue wakes no other worker: see HasSpare.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mark, processed := q.processed[item]
	if !processed {
		return
	}
	delete(q.processed, item)
	if mark.Later {
		q.laterRunning--
	}
	tenant := q.tenant(item)
	own := q.running[tenant]
	if own.workers == 1 {
		delete(q.running, tenant)
		return
	}
	q.running[tenant] = share{own.workers - 1, own.units - mark.Units}
}

// Len implements client-go's workqueue.Queue. It returns 0 if no item can come out now, and otherwise the number of items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next(&q.now) < 0 && q.nextLater() < 0 {
		return 0
	}
	return q.now.size + q.later.size
}

// HasSpare reports whether an item can come out now while a worker is free.
func (q *Queue[T]) HasSpare() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.processed) < q.workers && (q.next(&q.now) >= 0 || q.nextLater() >= 0)
}

// Pop implements client-go's workqueue.Queue. It must not be called if Len is 0.
func (q *Queue[T]) Pop() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, later := q.next(&q.now), q.nextLater()
	switch {
	case later < 0:
		return q.pop(&q.now, now)
	case now >= 0 && q.streak < maxStreak:
		q.streak++
		return q.pop(&q.now, now)
	}
	q.streak = 0
	q.laterRunning++
	return q.pop(&q.later, later)
}

func (q *Queue[T]) pop(from *turns[T], turn int) T {
	next := from.pop(turn)
	q.processed[next.item] = next.mark
	tenant := q.tenant(next.item)
	own := q.running[tenant]
	q.running[tenant] = share{own.workers + 1, own.units + next.mark.Units}
	return next.item
}

// next returns the next turn of a tenant that may use another worker, or -1. It passes over fewer turns than there are workers,
// because each of their tenants uses one.
func (q *Queue[T]) next(of *turns[T]) int {
	return slices.IndexFunc(of.order, q.permits)
}

func (q *Queue[T]) nextLater() int {
	if q.laterRunning >= q.maxLater {
		return -1
	}
	return q.next(&q.later)
}

// permits reports whether a tenant may use another worker.
func (q *Queue[T]) permits(tenant string) bool {
	own, free := q.running[tenant], q.workers-len(q.processed)
	return own.workers == 0 || own.workers+1 <= free-1 && 2*own.units < q.workers
}

// turns are the items of tenants that take turns.
type turns[T any] struct {
	items map[string][]waiting[T] // by tenant
	order []string                // the tenants with items, the next one first
	size  int
}

type waiting[T any] struct {
	item T
	mark Mark
}

func newTurns[T any]() turns[T] { return turns[T]{items: map[string][]waiting[T]{}} }

func (t *turns[T]) push(tenant string, item waiting[T]) {
	if len(t.items[tenant]) == 0 {
		t.order = append(t.order, tenant)
	}
	t.items[tenant] = append(t.items[tenant], item)
	t.size++
}

// pop removes and returns the next item of the tenant with a turn.
func (t *turns[T]) pop(turn int) waiting[T] {
	tenant := t.order[turn]
	copy(t.order[1:turn+1], t.order[:turn])
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
