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
	"sync"
	"time"
)

// Pace limits the rate of each tenant's items, such as writes. Each item costs an amount of time, and the total cost of a
// tenant's items may exceed the elapsed time by at most a burst and, unless they are prepaid, the cost of one item. It is safe for
// concurrent use.
//
// It implements the generic cell rate algorithm, with a reserved slot for each item that has to wait.
type Pace[T comparable] struct {
	burst   time.Duration
	prepaid bool

	mu sync.Mutex
	// paid is the time at which the items granted to a tenant are paid for. An entry whose time has passed is equivalent to
	// no entry, and is removed when there are sweepAt entries.
	paid     map[string]time.Time
	sweepAt  int
	reserved map[T]reservation // the reserved slots of waiting items
}

// reservation is the reserved slot of an item: the time from which it may run, and its cost.
type reservation struct {
	at     time.Time
	tenant string
	cost   time.Duration
}

// minSweep is the number of entries below which a Pace removes none.
const minSweep = 64

// NewPace returns a Pace with the given burst.
func NewPace[T comparable](burst time.Duration) *Pace[T] {
	return &Pace[T]{burst: burst, paid: map[string]time.Time{}, sweepAt: minSweep, reserved: map[T]reservation{}}
}

// NewPrepaidPace returns a Pace whose items also wait for their own cost, as far as it exceeds the burst. So an expensive item that
// turns out to be unnecessary while it waits is never run, even if it is the first one.
func NewPrepaidPace[T comparable](burst time.Duration) *Pace[T] {
	p := NewPace[T](burst)
	p.prepaid = true
	return p
}

// Delay returns how long a tenant's item has to wait from the given time, or zero if it may run. An item that has to wait
// keeps its slot and its cost, however often Delay is called, until it may run, is forgotten, or costs more than before.
func (p *Pace[T]) Delay(now time.Time, tenant string, item T, cost time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted, waiting := p.reserved[item]
	if waiting && granted.cost < cost {
		p.forget(item)
		waiting = false
	}
	if !waiting {
		granted = reservation{at: p.grant(now, tenant, cost), tenant: tenant, cost: cost}
	}
	delay := max(granted.at.Sub(now), 0)
	if delay == 0 {
		delete(p.reserved, item)
	} else {
		p.reserved[item] = granted
	}
	return delay
}

// Forget releases the slot of a waiting item that is no longer needed, so that it costs its tenant nothing.
func (p *Pace[T]) Forget(item T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(item)
}

func (p *Pace[T]) forget(item T) {
	if given, waiting := p.reserved[item]; waiting {
		p.refund(given.tenant, given.cost)
		delete(p.reserved, item)
	}
}

// Charge adds the cost of an item that has run without a slot, because its cost was not known before. The tenant's next items wait
// for it, but no longer than if the tenant had been within its burst: items that ran at the same time may exceed that together.
func (p *Pace[T]) Charge(now time.Time, tenant string, cost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := now.Add(p.burst + cost).Sub(p.paid[tenant])
	p.grant(now, tenant, max(0, min(cost, room)))
}

// Debit is Charge for an item that may have cost much more than the tenant had paid for it. The tenant's next items wait for all of that.
func (p *Pace[T]) Debit(now time.Time, tenant string, cost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant(now, tenant, cost)
}

// Refund returns the cost of an item that has run, or a part of it.
func (p *Pace[T]) Refund(tenant string, cost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refund(tenant, cost)
}

func (p *Pace[T]) refund(tenant string, cost time.Duration) {
	p.paid[tenant] = p.paid[tenant].Add(-cost)
}

// grant returns the time from which the tenant's next item may run.
func (p *Pace[T]) grant(now time.Time, tenant string, cost time.Duration) time.Time {
	paid := p.paid[tenant]
	if paid.Before(now) {
		paid = now
	}
	p.paid[tenant] = paid.Add(cost)
	if len(p.paid) >= p.sweepAt {
		p.sweep(now)
	}
	if p.prepaid {
		paid = paid.Add(cost)
	}
	return paid.Add(-p.burst)
}

func (p *Pace[T]) sweep(now time.Time) {
	for tenant, paid := range p.paid {
		if !paid.After(now) {
			delete(p.paid, tenant)
		}
	}
	p.sweepAt = max(minSweep, 2*len(p.paid))
}
