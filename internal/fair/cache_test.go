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
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// plainCache is the reference for Cache: a list of entries, the one used last at the end.
type plainCache struct {
	total   int64
	now     time.Time
	entries []plainEntry
}

type plainEntry struct {
	tenant     string
	key, value int
	weight     int64
	used       time.Time
}

func (c *plainCache) get(key int) (int, bool) {
	i := slices.IndexFunc(c.entries, func(e plainEntry) bool { return e.key == key })
	if i < 0 {
		return 0, false
	}
	used := c.entries[i]
	used.used = c.now
	c.entries = append(slices.Delete(c.entries, i, i+1), used)
	return used.value, true
}

func (c *plainCache) delete(key int) {
	c.entries = slices.DeleteFunc(c.entries, func(e plainEntry) bool { return e.key == key })
}

func (c *plainCache) set(added plainEntry) {
	c.delete(added.key)
	if added.weight > c.total {
		return
	}
	added.used = c.now
	c.entries = append(c.entries, added)
	for c.used() > c.total {
		if c.now.Sub(c.entries[0].used) > cacheIdle {
			c.entries = c.entries[1:]
			continue
		}
		weights, heaviest := c.weights(), ""
		for _, tenant := range slices.Sorted(maps.Keys(weights)) {
			if heaviest == "" || weights[tenant] > weights[heaviest] {
				heaviest = tenant
			}
		}
		oldest := slices.IndexFunc(c.entries, func(e plainEntry) bool { return e.tenant == heaviest })
		c.entries = slices.Delete(c.entries, oldest, oldest+1)
	}
}

func (c *plainCache) weights() map[string]int64 {
	weights := map[string]int64{}
	for _, e := range c.entries {
		weights[e.tenant] += e.weight
	}
	return weights
}

func (c *plainCache) used() (total int64) {
	for _, weight := range c.weights() {
		total += weight
	}
	return total
}

// TestCache compares a cache with a plain one, and checks that it keeps nothing about tenants without values.
func TestCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 20
		total := rapid.Int64Range(0, 100).Draw(t, "total")
		cache, plain := NewCache[int, int](total), &plainCache{total: total}
		cache.now = func() time.Time { return plain.now }
		get := func(key int) {
			got, found := cache.Get(key)
			if want, wanted := plain.get(key); got != want || found != wanted {
				t.Fatalf("key %d has the value %d, %t, want %d, %t", key, got, found, want, wanted)
			}
		}
		for value := range rapid.IntRange(1, 100).Draw(t, "steps") {
			key := rapid.IntRange(1, keys).Draw(t, "key")
			switch rapid.SampledFrom([]string{"set", "set", "get", "delete", "wait"}).Draw(t, "step") {
			case "set":
				added := plainEntry{
					tenant: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "tenant"),
					key:    key, value: value, weight: rapid.Int64Range(0, 40).Draw(t, "weight"),
				}
				cache.Set(added.tenant, key, value, added.weight)
				plain.set(added)
			case "get":
				get(key)
			case "delete":
				cache.Delete(key)
				plain.delete(key)
			case "wait":
				plain.now = plain.now.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "quarters")) * cacheIdle / 4)
			}
			weights := map[string]int64{}
			for name, tenant := range cache.tenants {
				weights[name] = tenant.weight
			}
			if diff := cmp.Diff(plain.weights(), weights); diff != "" || len(cache.heaviest) != len(weights) || cache.Used() != plain.used() {
				t.Fatalf("%d tenants use %d of %d (-want +got):\n%s", len(cache.heaviest), cache.Used(), total, diff)
			}
		}
		for key := range keys + 1 {
			get(key)
		}
	})
}

// TestCacheOfGoneTenants: tenants that are gone do not leave less than everything to one that is not.
func TestCacheOfGoneTenants(t *testing.T) {
	const total = 1000
	now := time.Now()
	cache := NewCache[int, int](total)
	cache.now = func() time.Time { return now }
	for key := range total {
		cache.Set("gone "+strconv.Itoa(key), key, key, 1)
	}
	now = now.Add(cacheIdle + 1)
	for key := range total {
		cache.Set("here", total+key, key, 1)
	}
	for key := range total {
		if _, found := cache.Get(total + key); !found {
			t.Fatalf("value %d of the only tenant that is not gone is not cached", key)
		}
	}
}

// TestCacheIsFair: a tenant within its equal share loses nothing, whatever others add.
func TestCacheIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1000
		tenants := rapid.IntRange(1, 6).Draw(t, "tenants")
		cache := NewCache[string, int](total)
		left := int64(total / tenants)
		var modest []string
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			tenant, weight := rapid.IntRange(1, tenants).Draw(t, "tenant"), rapid.Int64Range(0, total+1).Draw(t, "weight")
			key := fmt.Sprint(tenant, "/", i)
			if tenant == 1 {
				weight = min(weight, left)
				left -= weight
				modest = append(modest, key)
			}
			cache.Set(strconv.Itoa(tenant), key, i, weight)
		}
		for _, key := range modest {
			if _, found := cache.Get(key); !found {
				t.Fatalf("the modest tenant, one of %d, has lost %s", tenants, key)
			}
		}
	})
}

// TestCacheIsSafe uses a cache from many goroutines.
func TestCacheIsSafe(t *testing.T) {
	const total, clients, steps = 100, 8, 2000
	cache := NewCache[int, int](total)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for i := range steps {
				key := i % 50
				cache.Set(strconv.Itoa((client+i)%5), key, key, int64(i%20))
				if value, found := cache.Get(i % 30); found && value != i%30 {
					t.Errorf("key %d has the value %d", i%30, value)
				}
				if i%7 == 0 {
					cache.Delete(key)
				}
			}
		})
	}
	running.Wait()
	if used := cache.Used(); used > total {
		t.Errorf("the values weigh %d, more than %d", used, total)
	}
	for key := range 50 {
		cache.Delete(key)
	}
	if used := cache.Used(); used != 0 || len(cache.tenants) != 0 {
		t.Errorf("an empty cache has a weight of %d and %d tenants", used, len(cache.tenants))
	}
}

// TestCacheGetAllocatesNothing: a resolve calls Get for each turn.
func TestCacheGetAllocatesNothing(t *testing.T) {
	cache := NewCache[string, int](10)
	cache.Set("a", "present", 1, 1)
	for _, key := range []string{"present", "missing"} {
		if allocations := testing.AllocsPerRun(100, func() { cache.Get(key) }); allocations != 0 {
			t.Errorf("getting a %s key makes %v allocations", key, allocations)
		}
	}
}

// BenchmarkCacheGet gets the turns of a history of 64, from as many goroutines as there are processors.
func BenchmarkCacheGet(b *testing.B) {
	cache := NewCache[int, int](1 << 20)
	for key := range 100_000 {
		cache.Set(strconv.Itoa(key%100), key, key, 1)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for turn := range 64 {
				cache.Get(turn * 1000)
			}
		}
	})
}
