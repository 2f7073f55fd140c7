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
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestPace: an item waits until the tenant's earlier items, and itself if it is prepaid, are paid for, except for a burst, however often Delay is called,
// and regardless of other tenants. A forgotten item costs nothing, and costs can be charged and returned afterwards.
func TestPace(t *testing.T) {
	const burst = 100 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		pace, now := NewPace[string](burst), time.Unix(0, 0)
		prepaid := rapid.Bool().Draw(t, "prepaid")
		if prepaid {
			pace = NewPrepaidPace[string](burst)
		}
		paid := map[string]time.Time{"a": now, "b": now} // the reference
		due, costs := map[string]time.Time{}, map[string]time.Duration{}
		check := func(item string) {
			got := pace.Delay(now, item[:1], item, costs[item])
			if want := max(due[item].Sub(now), 0); got != want {
				t.Fatalf("%s has to wait %s, want %s", item, got, want)
			}
			if got == 0 {
				delete(due, item) // it may run
			}
		}
		for i := range rapid.IntRange(1, 100).Draw(t, "items") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Millisecond)).Draw(t, "pause")))
			for _, item := range slices.Sorted(maps.Keys(due)) {
				switch rapid.SampledFrom([]string{"nothing", "check again", "forget"}).Draw(t, item) {
				case "check again":
					check(item)
				case "forget":
					pace.Forget(item)
					paid[item[:1]] = paid[item[:1]].Add(-costs[item])
					delete(due, item)
				}
			}
			switch rapid.SampledFrom([]string{"nothing", "charge", "refund"}).Draw(t, "a") {
			case "charge":
				cost := time.Duration(rapid.Int64Range(0, int64(50*time.Millisecond)).Draw(t, "charge"))
				pace.Charge(now, "a", cost)
				if most := now.Add(burst + cost); paid["a"].Before(most) {
					paid["a"] = earlier(later(paid["a"], now).Add(cost), most)
				}
			case "refund":
				cost := time.Duration(rapid.Int64Range(0, int64(50*time.Millisecond)).Draw(t, "refund"))
				pace.Refund("a", cost)
				paid["a"] = paid["a"].Add(-cost)
			}
			tenant := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			item := fmt.Sprint(tenant, i)
			costs[item] = time.Duration(rapid.Int64Range(0, int64(2*burst)).Draw(t, "cost"))
			paid[tenant] = later(paid[tenant], now)
			due[item] = paid[tenant].Add(-burst)
			if prepaid {
				due[item] = due[item].Add(costs[item])
			}
			paid[tenant] = paid[tenant].Add(costs[item])
			check(item)
		}
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestPaceForgets: items that have run use no memory.
func TestPaceForgets(t *testing.T) {
	pace, now := NewPace[string](0), time.Unix(0, 0)
	for i := range 10_000 {
		now = now.Add(time.Second)
		tenant := fmt.Sprint("tenant", i)
		pace.Delay(now, tenant, "first of "+tenant, time.Second/2)
		if delay := pace.Delay(now, tenant, "second of "+tenant, time.Second/2); delay != time.Second/2 {
			t.Fatalf("the second item has to wait %s", delay)
		}
		pace.Forget("second of " + tenant)
	}
	if len(pace.paid) > 2*minSweep || len(pace.reserved) > 0 {
		t.Errorf("%d tenants and %d items are kept", len(pace.paid), len(pace.reserved))
	}
}

// TestPaceOfGrowingItem: an item that costs more while it waits pays for that, and waits behind the others.
func TestPaceOfGrowingItem(t *testing.T) {
	pace, now := NewPace[string](time.Second), time.Now()
	delays := func(item string, cost time.Duration) time.Duration { return pace.Delay(now, "team-a", item, cost) }
	got := []time.Duration{
		delays("a", 2*time.Second), delays("b", time.Second), delays("c", time.Second),
		delays("b", 10*time.Second), delays("b", time.Second), delays("d", time.Second),
	}
	want := []time.Duration{0, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second, 12 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}

// TestPaceOfCharges: costs that were not known before count until the burst is exceeded by the largest of them, and debits without a limit.
func TestPaceOfCharges(t *testing.T) {
	pace, now := NewPace[string](time.Second), time.Now()
	charged := func(costs ...time.Duration) time.Duration {
		for _, cost := range costs {
			pace.Charge(now, "team-a", cost)
		}
		delay := pace.Delay(now, "team-a", "next", 0)
		pace.Forget("next")
		return delay
	}
	got := []time.Duration{charged(time.Second), charged(time.Second), charged(time.Second), charged(time.Minute, time.Minute), charged(time.Second)}
	pace.Refund("team-a", 2*time.Minute)
	got = append(got, charged())
	pace.Debit(now, "team-a", time.Minute)
	pace.Debit(now, "team-a", time.Minute)
	got = append(got, charged())
	want := []time.Duration{0, time.Second, time.Second, time.Minute, time.Minute, 0, 2*time.Minute - time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}
