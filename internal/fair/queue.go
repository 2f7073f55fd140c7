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
// items take, and fewer if its items have more than one unit. The items of one tenant come out in the order in which they were
// added.
//
// Items that are not urgent have turns of their own, and share a number of workers of their own in the same way. Neither kind
// counts towards the share of the other, so that a tenant that always has items of one kind also gets those of the other.
// While urgent items wait, each fourth item is one that is not urgent.
//
// It is safe for concurrent use: a workqueue calls it under its own lock, but Mark and Done are called without that lock.
type Queue[T comparable] struct {
	tenant            func(item T) string
	workers, maxLater int

	mu            sync.Mutex
	urgent, later lane[T]
	marks         map[T]Mark // of items that were marked since their last Push
	processed     map[T]Mark // items that have come out and are not done
	// streak counts the urgent items that came out while others could have.
	streak int
}

// Mark is how a Queue treats an item. The zero value is the mark of one that is not urgent and has one unit.
type Mark struct {
	// Urgent items have most of the workers and of the turns: see Queue.
	Urgent bool
	// Units is how many ordinary items cost as much; less than 1 counts as 1. While the items of a tenant that are processed have
	// half as many units as there are workers, or more, its others wait. What the next one costs does not matter, because it could
	// otherwise wait for ever, while cheaper ones pass it.
	Units int
}

// maxStreak is how many urgent items come out before one that is not.
const maxStreak = 3

// NewQueue returns an empty queue of items, each of which belongs to a tenant, for a number of workers. Items that are not urgent
// can use maxLater of them, at least one.
func NewQueue[T comparable](tenant func(item T) string, workers, maxLater int) *Queue[T] {
	return &Queue[T]{
		tenant: tenant, workers: workers, maxLater: maxLater, urgent: newLane[T](), later: newLane[T](),
		marks: map[T]Mark{}, processed: map[T]Mark{},
	}
}

// Mark marks an item for its next Push. If the item waits already, only its units change.
func (q *Queue[T]) Mark(item T, mark Mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.marks[item] = mark
}

// Touch implements client-go's workqueue.Queue: the item is in the queue already and keeps its place.
func (q *Queue[T]) Touch(T) {}

// Push implements client-go's workqueue.Queue.
func (q *Queue[T]) Push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mark := q.marks[item]
	delete(q.marks, item)
	q.lane(mark).push(q.tenant(item), waiting[T]{item, mark})
}

func (q *Queue[T]) lane(mark Mark) *lane[T] {
	if mark.Urgent {
		return &q.urgent
	}
	return &q.later
}

// Done must be called when an item that has come out has been processed, before its worker asks for the next one. Several
// items may come out then, but a workqueue wakes no other worker: each worker that gets an item must do so if Len is not 0.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if mark, processed := q.processed[item]; processed {
		delete(q.processed, item)
		q.lane(mark).done(q.tenant(item), mark.Units)
	}
}

// Len implements client-go's workqueue.Queue. It returns 0 if no item can come out now, and otherwise the number of items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.nextUrgent() < 0 && q.nextLater() < 0 {
		return 0
	}
	return q.urgent.size + q.later.size
}

// Waiting returns the number of items in the queue, whether they can come out now or not.
func (q *Queue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.urgent.size + q.later.size
}

// Pop implements client-go's workqueue.Queue. It must not be called if Len is 0.
func (q *Queue[T]) Pop() T {
	q.mu.Lock()
	defer q.mu.Unlock()
	urgent, later := q.nextUrgent(), q.nextLater()
	switch {
	case later < 0:
		return q.pop(&q.urgent, urgent)
	case urgent >= 0 && q.streak < maxStreak:
		q.streak++
		return q.pop(&q.urgent, urgent)
	}
	q.streak = 0
	return q.pop(&q.later, later)
}

func (q *Queue[T]) pop(from *lane[T], turn int) T {
	next := from.pop(turn)
	mark := next.mark
	if newer, marked := q.marks[next.item]; marked {
		mark.Units = newer.Units
		delete(q.marks, next.item)
	}
	mark.Units = max(mark.Units, 1)
	q.processed[next.item] = mark
	from.begin(q.tenant(next.item), mark.Units)
	return next.item
}

func (q *Queue[T]) nextUrgent() int { return q.next(&q.urgent, q.workers) }

func (q *Queue[T]) nextLater() int { return q.next(&q.later, q.maxLater-q.later.processed) }

// next returns the next turn of a tenant that may use another of the free workers, or -1. It passes over fewer turns than there
// are workers, because each of their tenants uses one.
func (q *Queue[T]) next(of *lane[T], free int) int {
	free = min(free, q.workers-len(q.processed))
	if free < 1 {
		return -1
	}
	return slices.IndexFunc(of.order, func(tenant string) bool {
		own := of.running[tenant]
		return own.workers == 0 || own.workers+1 <= free-1 && 2*own.units < q.workers
	})
}

// lane holds the items of one kind.
type lane[T any] struct {
	turns[T]
	// running are the tenants whose items are processed, and processed is the number of these.
	running   map[string]share
	processed int
}

// share is the number of workers that a tenant uses, and for how many units.
type share struct{ workers, units int }

func newLane[T any]() lane[T] { return lane[T]{turns: newTurns[T](), running: map[string]share{}} }

func (l *lane[T]) begin(tenant string, units int) {
	own := l.running[tenant]
	l.running[tenant] = share{own.workers + 1, own.units + units}
	l.processed++
}

func (l *lane[T]) done(tenant string, units int) {
	l.processed--
	own := l.running[tenant]
	if own.workers == 1 {
		delete(l.running, tenant)
		return
	}
	l.running[tenant] = share{own.workers - 1, own.units - units}
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
