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
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestShares: no sequence of acquires and releases breaks the rule, and some units are always left for a tenant that holds none.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1000).Draw(t, "capacity")
		tenants, most := rapid.IntRange(1, 5).Draw(t, "tenants"), rapid.Int64Range(1, capacity).Draw(t, "most")
		budget, held := NewCappedBudget(capacity, most), map[string][]int64{}
		sum := func(tenant string) (total int64) {
			for _, units := range held[tenant] {
				total += units
			}
			return total
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			tenant := fmt.Sprint(rapid.IntRange(1, tenants).Draw(t, "tenant"))
			if taken := held[tenant]; len(taken) > 0 && rapid.Bool().Draw(t, "release") {
				budget.Release(tenant, taken[0])
				held[tenant] = taken[1:]
				continue
			}
			units := rapid.Int64Range(1, capacity).Draw(t, "units")
			free := capacity
			for other := range held {
				free -= sum(other)
			}
			own := sum(tenant)
			want := units <= free && own+units <= most && (own == 0 || own+units <= free-units)
			if got := budget.TryAcquire(tenant, units); got != want {
				t.Fatalf("tenant holds %d of %d, %d are free: got %t for %d more", own, capacity, free, got, units)
			}
			if want {
				held[tenant] = append(held[tenant], units)
			}
		}
	})
}

// TestGreedyTenants: tenants that take units one by one until they are refused leave a share for the next tenant.
func TestGreedyTenants(t *testing.T) {
	for greedy := int64(1); greedy <= 8; greedy++ {
		const capacity = 1000
		budget := NewBudget(capacity)
		for more := true; more; {
			more = false
			for tenant := range greedy {
				more = budget.TryAcquire(fmt.Sprint("greedy", tenant), 1) || more
			}
		}
		if share := capacity/(greedy+1) - 1; !budget.TryAcquire("next", share) {
			t.Errorf("%d greedy tenants: the next one cannot take %d of %d units", greedy, share, capacity)
		}
	}
}

// TestCappedBudget: two tenants can hold as much, whichever comes first, and a call for more than one can hold fails at once.
func TestCappedBudget(t *testing.T) {
	budget := NewCappedBudget(300, 100)
	for _, tenant := range []string{"first", "second"} {
		if budget.TryAcquire(tenant, 101) || !budget.TryAcquire(tenant, 40) || !budget.TryAcquire(tenant, 60) || budget.TryAcquire(tenant, 1) {
			t.Errorf("the %s tenant holds %d of 300 units, want 100", tenant, budget.held[tenant])
		}
	}
	if err := budget.Acquire(t.Context(), "third", 101); err == nil {
		t.Error("Acquire of more than a tenant can hold: want an error")
	}
}

// TestAcquireIsFair: every call gets its units eventually, never more than there are, and a tenant with one call does not wait
// for the thousand calls of another.
func TestAcquireIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity, calls, duration = 10, 1000, time.Second
		budget := NewBudget(capacity)
		var wg sync.WaitGroup
		var mu sync.Mutex
		used := int64(0)
		use := func(tenant string, units int64) {
			if err := budget.Acquire(t.Context(), tenant, units); err != nil {
				t.Error(err)
			}
			mu.Lock()
			if used += units; used > capacity {
				t.Errorf("%d of %d units are in use", used, capacity)
			}
			mu.Unlock()
			time.Sleep(duration) //nolint:forbidigo // on the bubble's clock
			mu.Lock()
			used -= units
			mu.Unlock()
			budget.Release(tenant, units)
		}
		for i := range calls {
			wg.Go(func() { use("greedy", int64(i%5+1)) })
		}
		synctest.Wait()
		for i := range 20 {
			start := time.Now()
			use("modest", 2)
			if took := time.Since(start); took > 2*duration {
				t.Errorf("call %d of the modest tenant took %s", i, took)
			}
		}
		wg.Wait()
		if used != 0 || budget.free != capacity || len(budget.held) != 0 || len(budget.queues) != 0 {
			t.Errorf("units were not released: %d in use, %+v", used, budget.held)
		}
	})
}

// TestLargeCall: a call that needs all units is not starved by a tenant that keeps acquiring a few more.
func TestLargeCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(4)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for budget.Acquire(ctx, "busy", 1) == nil {
					time.Sleep(time.Second) //nolint:forbidigo // on the bubble's clock
					budget.Release("busy", 1)
				}
			})
		}
		synctest.Wait()
		if err := budget.Acquire(t.Context(), "large", 4); err != nil {
			t.Fatal(err)
		}
		cancel()
		budget.Release("large", 4)
		wg.Wait()
	})
}

// TestAcquireCanceled: a canceled call takes no units, and the calls queued behind it proceed.
func TestAcquireCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(4)
		budget.TryAcquire("first", 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		behind := make(chan error)
		go func() {
			synctest.Wait()
			behind <- budget.Acquire(t.Context(), "first", 1)
		}()
		if err := budget.Acquire(ctx, "large", 4); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		budget.Release("first", 3)
		if err := <-behind; err != nil {
			t.Error(err)
		}
		budget.Release("first", 1)
		if err := budget.Acquire(t.Context(), "large", 5); err == nil {
			t.Error("acquired 5 of 4 units")
		}
	})
}

// TestWaitingForMoreThanAShare: a tenant that waits for more than its share does not block the shares of others.
func TestWaitingForMoreThanAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := NewBudget(12)
		for range 6 {
			if !budget.TryAcquire("greedy", 1) {
				t.Fatal("a tenant alone got less than half")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() { waiting <- budget.Acquire(ctx, "greedy", 1) }()
		synctest.Wait()
		for i := range 3 {
			if !budget.TryAcquire("modest", 1) {
				t.Errorf("another tenant got only %d of 6 that are free", i)
			}
		}
		if budget.TryAcquire("greedy", 1) {
			t.Error("a tenant got more than its share")
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestRoomToGrow: when tenants have begun as many requests as they can, one of them can take half as much again.
func TestRoomToGrow(t *testing.T) {
	for tenants := range 6 {
		const capacity, size, own = 10_000, 10, 1
		budget, held := NewBudget(capacity), map[string]int64{}
		for more := true; more; {
			more = false
			for i := range tenants + 1 {
				tenant := fmt.Sprint(i)
				if !budget.TryAcquire(tenant, own) {
					continue
				}
				if !budget.TryBegin(tenant, own, size-own) {
					budget.Release(tenant, own)
					continue
				}
				held[tenant] += size
				more = true
			}
		}
		for tenant, begun := range held {
			grown := int64(0)
			for budget.TryAcquire(tenant, 1) {
				grown++
			}
			if want := begun / 2; grown < want-2*size {
				t.Errorf("one of %d tenants that has begun %d of %d could take only %d more, want %d", len(held), begun, capacity, grown, want)
			}
			budget.Release(tenant, grown)
		}
	}
}

// TestBeginAlone: the only request of a tenant gets as much as TryAcquire gives.
func TestBeginAlone(t *testing.T) {
	budget := NewBudget(12)
	if !budget.TryAcquire("a", 2) || !budget.TryBegin("a", 2, 4) || budget.TryBegin("a", 6, 1) {
		t.Errorf("holds %d of 12, want half", budget.held["a"])
	}
	budget.Release("a", 4)
	if budget.TryBegin("a", 1, 3) || !budget.TryBegin("a", 1, 2) {
		t.Errorf("with another request, holds %d of 12, want a third", budget.held["a"])
	}
}
