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

// Package fair shares out a limited resource among tenants that do not trust each other.
package fair

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Budget is a number of units, such as bytes or requests, that tenants acquire and release. It is safe for concurrent use.
//
// A tenant may take units if it then holds at most as many as remain free. So one tenant alone can hold half of all units,
// two can hold a third each, and n can hold 1/(n+1) each: however much they request, some units stay free for a tenant that
// holds none. Such a tenant may take all free units, because one request may need more than a share. While tenants still
// hold units that they took when there were fewer tenants, a new tenant can hold half of the rest. (Choudhury and Hahne,
// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998, with α = 1.)
type Budget struct {
	mu    sync.Mutex
	units int64
	most  int64 // of one tenant
	free  int64 // less than 0 after Resize, until enough is returned
	held  map[string]int64
	// queues are the tenants with waiting calls, the least recently served first.
	queues []*queue
}

// queue holds the waiters of one tenant, oldest first.
type queue struct {
	tenant  string
	waiters []*waiter
}

// waiter is a call of Acquire that waits.
type waiter struct {
	units   int64
	granted chan struct{}
}

// NewBudget returns a budget of a number of units.
func NewBudget(units int64) *Budget { return NewCappedBudget(units, math.MaxInt64) }

// NewCappedBudget returns a budget of a number of units of which one tenant may hold at most a number, even if it is alone. If
// that is a third, two tenants can hold as much, whichever comes first.
func NewCappedBudget(units, most int64) *Budget {
	return &Budget{units: units, most: most, free: units, held: map[string]int64{}}
}

// TryAcquire takes units for a tenant and returns true, or returns false without taking any. It overtakes waiting calls of
// Acquire, so that a tenant waiting for more than its share does not block the shares of others.
func (b *Budget) TryAcquire(tenant string, units int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryAcquire(tenant, units)
}

// TryBegin is TryAcquire for a request that may need more units later, when refusing it would waste the work done. The
// request already holds own units. If its tenant also holds others, it gets units only if it then holds at most half as
// many as remain free, so that part of its share is left for the requests that have begun.
func (b *Budget) TryBegin(tenant string, own, units int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.held[tenant]; held > own && 2*(held+units) > b.free-units {
		return false
	}
	return b.tryAcquire(tenant, units)
}

func (b *Budget) tryAcquire(tenant string, units int64) bool {
	if !b.permits(tenant, units) {
		return false
	}
	b.take(tenant, units)
	return true
}

// Acquire takes units for a tenant. If calls have to wait, their tenants take turns, each with its oldest call. Tenants
// that hold no units come first; while one of them waits for more units than are free, no other tenant gets additional
// units. Acquire returns an error, and takes nothing, if ctx is done first, or if no tenant can have that many units.
func (b *Budget) Acquire(ctx context.Context, tenant string, units int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	if most := min(b.units, b.most); units > most {
		defer b.mu.Unlock()
		return fmt.Errorf("%d units were requested, but a tenant can have %d", units, most)
	}
	waiting := b.enqueue(tenant, units)
	b.grant()
	b.mu.Unlock()
	select {
	case <-waiting.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-waiting.granted: // at the same moment
		b.release(tenant, units)
	default:
		b.dequeue(tenant, waiting)
	}
	b.grant()
	return ctx.Err()
}

// Release returns units that a tenant has acquired.
func (b *Budget) Release(tenant string, units int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(tenant, units)
	b.grant()
}

// Resize changes the number of units, which is at least 1. If more are held, no units are granted until enough are
// released. A call of Acquire that needs more units than the new total waits until the budget is large enough again.
func (b *Budget) Resize(units int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += units - b.units
	b.units = units
	b.grant()
}

// Used returns the number of units that all tenants hold together.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.units - b.free
}

// permits reports whether a tenant may take units now.
func (b *Budget) permits(tenant string, units int64) bool {
	held := b.held[tenant]
	return units <= b.free && held+units <= b.most && (held == 0 || held+units <= b.free-units)
}

func (b *Budget) take(tenant string, units int64) {
	b.free -= units
	b.held[tenant] += units
}

func (b *Budget) release(tenant string, units int64) {
	b.free += units
	b.held[tenant] -= units
	switch held := b.held[tenant]; {
	case held < 0:
		panic("fair: tenant released more than it holds")
	case held == 0:
		delete(b.held, tenant)
	}
}

func (b *Budget) enqueue(tenant string, units int64) *waiter {
	waiting := &waiter{units: units, granted: make(chan struct{})}
	i := b.queueOf(tenant)
	if i < 0 {
		b.queues = append(b.queues, &queue{tenant: tenant})
		i = len(b.queues) - 1
	}
	b.queues[i].waiters = append(b.queues[i].waiters, waiting)
	return waiting
}

func (b *Budget) dequeue(tenant string, waiting *waiter) {
	i := b.queueOf(tenant)
	q := b.queues[i]
	q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool { return w == waiting })
	if len(q.waiters) == 0 {
		b.queues = slices.Delete(b.queues, i, i+1)
	}
}

func (b *Budget) queueOf(tenant string) int {
	return slices.IndexFunc(b.queues, func(q *queue) bool { return q.tenant == tenant })
}

// grant grants the units of waiters until none of them is permitted any.
func (b *Budget) grant() {
	for {
		i := b.next()
		if i < 0 {
			return
		}
		q := b.queues[i]
		first := q.waiters[0]
		b.take(q.tenant, first.units)
		close(first.granted)
		q.waiters = q.waiters[1:]
		b.queues = slices.Delete(b.queues, i, i+1)
		if len(q.waiters) > 0 {
			b.queues = append(b.queues, q)
		}
	}
}

// next returns the index of the queue whose first waiter may proceed, or -1.
func (b *Budget) next() int {
	blocked, holding := false, -1
	for i, q := range b.queues {
		permitted, newcomer := b.permits(q.tenant, q.waiters[0].units), b.held[q.tenant] == 0
		switch {
		case permitted && newcomer:
			return i
		case newcomer:
			blocked = true
		case permitted && holding < 0:
			holding = i
		}
	}
	if blocked {
		return -1
	}
	return holding
}
