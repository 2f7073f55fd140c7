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

// Pace spaces out the items that each tenant has done, such as writes, so that no tenant uses more than its time. An item
// costs an amount of time, and a tenant's items may exceed the time that has passed by a burst. It is safe for concurrent use.
//
// (It is the generic cell rate algorithm, with a place for each item that has to wait.)
type Pace[T comparable] struct {
	burst time.Duration

	mu sync.Mutex
	// paid is when what a tenant was granted so far is paid for. A tenant for which that is past has no entry, or will lose
	// it when there are sweepAt entries.
	paid    map[string]time.Time
	sweepAt int
	places  map[T]place // of the items that wait
}

// place is when an item may be done, and what it costs its tenant.
type place struct {
	at     time.Time
	tenant string
	cost   time.Duration
}

// minSweep is the number of tenants that a Pace keeps at least.
const minSweep = 64

// NewPace returns a pace that permits a burst.
func NewPace[T comparable](burst time.Duration) *Pace[T] {
	return &Pace[T]{burst: burst, paid: map[string]time.Time{}, sweepAt: minSweep, places: map[T]place{}}
}

// Delay returns how long an item of a tenant has to wait at a time, zero if it may be done. An item that has to wait keeps its
// place and its cost, however often it asks, until it may be done or is forgotten.
func (p *Pace[T]) Delay(now time.Time, tenant string, item T, cost time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted, waiting := p.places[item]
	if !waiting {
		granted = place{at: p.grant(now, tenant, cost), tenant: tenant, cost: cost}
	}
	delay := max(granted.at.Sub(now), 0)
	if delay == 0 {
		delete(p.places, item)
	} else {
		p.places[item] = granted
	}
	return delay
}

// Forget gives up the place of an item that need not be done any more, if it waits, so that it costs its tenant nothing.
func (p *Pace[T]) Forget(item T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if given, waiting := p.places[item]; waiting {
		p.paid[given.tenant] = p.paid[given.tenant].Add(-given.cost)
		delete(p.places, item)
	}
}

// grant returns when a tenant may do another item.
func (p *Pace[T]) grant(now time.Time, tenant string, cost time.Duration) time.Time {
	paid := p.paid[tenant]
	if paid.Before(now) {
		paid = now
	}
	p.paid[tenant] = paid.Add(cost)
	if len(p.paid) >= p.sweepAt {
		p.sweep(now)
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
