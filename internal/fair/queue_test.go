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
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
)

func tenantOf(item string) string { return item[:1] }

func TestQueueOrder(t *testing.T) {
	cases := map[string]struct{ add, want string }{ // an item in upper case is less urgent
		"tenants take turns":                  {"a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"},
		"later items after all others":        {"a1 A2 A3 a4 b1", "a1 b1 a4 a2 a3"},
		"after those of other tenants":        {"A1 A2 b1 b2", "b1 b2 a1 a2"},
		"tenants take turns later":            {"A1 A2 B1 C1", "a1 b1 c1 a2"},
		"at least each fourth is a later one": {"A1 A2 B1 c1 c2 c3 c4 c5 c6 c7", "c1 c2 c3 a1 c4 c5 c6 b1 c7 a2"},
		"a mark applies to one push":          {"A1 a1 a2", "a2 a1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			order := NewQueue(tenantOf, 4, 1)
			queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
			defer queue.ShutDown()
			for item := range strings.FieldsSeq(tc.add) {
				if lower := strings.ToLower(item); lower != item {
					item = lower
					order.Mark(item, Mark{Later: true})
				}
				queue.Add(item)
			}
			var got []string
			for queue.Len() > 0 {
				item, _ := queue.Get()
				order.Done(item)
				queue.Done(item)
				got = append(got, item)
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if len(order.now.items)+len(order.later.items)+len(order.marks) > 0 {
				t.Errorf("items are left: %v, %v, %v", order.now, order.later, order.marks)
			}
		})
	}
}

// TestQueueLimit: less urgent items wait for each other, but not other items for them, and a worker that is done with one gets the
// next.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := NewQueue(tenantOf, 16, 2)
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
		end, begun := make(chan struct{}), make(chan string, 10)
		for _, item := range []string{"a1", "a2", "a3", "b4"} {
			order.Mark(item, Mark{Later: true})
			queue.Add(item)
		}
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for item, closed := queue.Get(); !closed; item, closed = queue.Get() {
					begun <- item
					<-end
					order.Done(item)
					queue.Done(item)
				}
			})
		}
		want := func(items ...string) {
			t.Helper()
			synctest.Wait()
			got := map[string]bool{}
			for range len(begun) {
				got[<-begun] = true
			}
			if diff := cmp.Diff(sets.New(items...), sets.KeySet(got)); diff != "" {
				t.Fatalf("items that workers have begun (-want +got):\n%s", diff)
			}
		}
		want("a1", "b4")
		queue.Add("c5")
		want("c5")
		for range 3 {
			end <- struct{}{}
		}
		want("a2", "a3")
		close(end)
		queue.ShutDownWithDrain()
		workers.Wait()
	})
}

// TestQueueSharesWorkers: a tenant alone can use half of the workers, and the others are free for the next tenants.
func TestQueueSharesWorkers(t *testing.T) {
	queue := NewQueue(tenantOf, 16, 4)
	pop := func(tenant string) (n int) {
		for i := range 20 {
			queue.Push(fmt.Sprint(tenant, i))
		}
		for queue.Len() > 0 {
			if item := queue.Pop(); tenantOf(item) != tenant {
				t.Fatalf("got %s", item)
			}
			n++
		}
		return n
	}
	for i, want := range []int{8, 4, 2, 1, 1} {
		if got := pop(string(rune('a' + i))); got != want {
			t.Errorf("tenant %d can use %d workers, want %d", i+1, got, want)
		}
	}
	for _, item := range []string{"b0", "b1", "b2", "b3"} {
		queue.Done(item)
	}
	if queue.Len() == 0 || queue.Pop() != "b4" {
		t.Error("a tenant that uses no worker does not get a free one")
	}
}

// TestQueueUnits: while the items of a tenant that are processed have half as many units as there are workers, its others wait.
func TestQueueUnits(t *testing.T) {
	queue := NewQueue(tenantOf, 8, 2)
	push := func(item string, units int) {
		queue.Mark(item, Mark{Units: units})
		queue.Push(item)
	}
	want := func(items ...string) {
		t.Helper()
		var got []string
		for queue.Len() > 0 {
			got = append(got, queue.Pop())
		}
		if diff := cmp.Diff(items, got); diff != "" {
			t.Fatalf("items that came out (-want +got):\n%s", diff)
		}
	}
	push("a1", 3)
	push("a2", 100)
	push("a3", -1)
	push("a4", 3)
	push("a5", 1)
	push("b1", 2)
	push("b2", 2)
	want("a1", "b1", "a2", "b2")
	queue.Done("a1")
	want()
	queue.Done("a2")
	want("a3", "a4")
	queue.Done("b1")
	want()
	queue.Done("a3")
	want("a5")
}

// TestQueueIsFair: every item comes out once, after those of the same tenant and kind that were added before it. If its tenant may
// use another worker, it comes out before a second item of each other tenant of the same kind. Less urgent items get each fourth
// place while others wait.
func TestQueueIsFair(t *testing.T) {
	type item struct {
		turn   string // the tenant and the kind: N, or L if it is less urgent
		number int
		units  int
	}
	tenantOf := func(i item) string { return i.turn[:1] }
	kindOf := func(turn string) byte { return turn[1] }
	rapid.Check(t, func(t *rapid.T) {
		workers, maxLater := rapid.IntRange(1, 12).Draw(t, "workers"), rapid.IntRange(1, 3).Draw(t, "later")
		queue, waiting, processed, next := NewQueue(tenantOf, workers, maxLater), map[string][]item{}, []item{}, 0
		eligible := func(turn string) bool { // its next item
			if len(waiting[turn]) == 0 || len(processed) == workers {
				return false
			}
			own, units, later := 0, 0, 0
			for _, other := range processed {
				if tenantOf(other) == turn[:1] {
					own, units = own+1, units+other.units
				}
				if kindOf(other.turn) == 'L' {
					later++
				}
			}
			permitted := own == 0 || own+1 <= workers-len(processed)-1 && 2*units < workers
			return permitted && (kindOf(turn) == 'N' || later < maxLater)
		}
		canCome := func(kind byte) bool {
			return slices.ContainsFunc(slices.Collect(maps.Keys(waiting)), func(turn string) bool {
				return kindOf(turn) == kind && eligible(turn)
			})
		}
		// passed counts the items of other tenants since a waiting tenant's last turn.
		passed, streak := map[string]map[string]int{}, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch step := rapid.SampledFrom([]string{"push", "push", "pop", "done"}).Draw(t, "step"); {
			case step == "push":
				next++
				turn := rapid.SampledFrom([]string{"aN", "bN", "cN", "aL", "bL", "cL"}).Draw(t, "turn")
				i := item{turn, next, rapid.SampledFrom([]int{1, 1, 1, 2, 3, 20}).Draw(t, "units")}
				queue.Mark(i, Mark{Later: kindOf(turn) == 'L', Units: i.units})
				queue.Push(i)
				waiting[turn] = append(waiting[turn], i)
				if passed[turn] == nil {
					passed[turn] = map[string]int{}
				}
			case step == "done" && len(processed) > 0:
				done := rapid.IntRange(0, len(processed)-1).Draw(t, "done")
				queue.Done(processed[done])
				processed = slices.Delete(processed, done, done+1)
			case step == "pop" && len(processed) < workers && queue.Len() > 0:
				now, later := canCome('N'), canCome('L')
				wantLater := later && (!now || streak == maxStreak)
				couldCome := map[string]bool{}
				for turn := range waiting {
					couldCome[turn] = eligible(turn)
				}
				got := queue.Pop()
				if gotLater := kindOf(got.turn) == 'L'; !couldCome[got.turn] || got != waiting[got.turn][0] || gotLater != wantLater {
					t.Fatalf("got %v after %d others, %v are waiting, %v are processed", got, streak, waiting, processed)
				}
				switch {
				case wantLater:
					streak = 0
				case later:
					streak++
				}
				waiting[got.turn] = waiting[got.turn][1:]
				processed = append(processed, got)
				delete(passed, got.turn)
				if len(waiting[got.turn]) > 0 {
					passed[got.turn] = map[string]int{}
				}
				for other, counts := range passed {
					if !couldCome[other] || other == got.turn || kindOf(other) != kindOf(got.turn) {
						continue
					}
					if counts[got.turn]++; counts[got.turn] > 1 {
						t.Fatalf("%s waits for %d items of %s", other, counts[got.turn], got.turn)
					}
				}
			}
			if want := canCome('N') || canCome('L'); (queue.Len() > 0) != want && len(processed) < workers {
				t.Fatalf("%d items can come out of %v, %v are processed", queue.Len(), waiting, processed)
			}
		}
	})
}
