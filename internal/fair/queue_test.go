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
	cases := map[string]struct{ add, want string }{ // an item in upper case is not urgent
		"tenants take turns":                  {"a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"},
		"later items after all others":        {"a1 A2 A3 a4 b1", "a1 b1 a4 a2 a3"},
		"after those of other tenants":        {"A1 A2 b1 b2", "b1 b2 a1 a2"},
		"tenants take turns later":            {"A1 A2 B1 C1", "a1 b1 c1 a2"},
		"at least each fourth is a later one": {"A1 A2 B1 c1 c2 c3 c4 c5 c6 c7", "c1 c2 c3 a1 c4 c5 c6 b1 c7 a2"},
		"a waiting item keeps its place":      {"A1 a1 a2", "a2 a1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			order := NewQueue(tenantOf, 4, 1)
			queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
			defer queue.ShutDown()
			for item := range strings.FieldsSeq(tc.add) {
				lower := strings.ToLower(item)
				order.Mark(lower, Mark{Urgent: lower == item})
				queue.Add(lower)
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
			if len(order.urgent.items)+len(order.later.items)+len(order.marks) > 0 {
				t.Errorf("items are left: %v, %v, %v", order.urgent, order.later, order.marks)
			}
		})
	}
}

// TestQueueLimit: items that are not urgent wait for each other, but urgent ones do not wait for them, and a worker that is done
// with one gets the next.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := NewQueue(tenantOf, 16, 3)
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
		end, begun := make(chan struct{}), make(chan string, 10)
		for _, item := range []string{"a1", "a2", "a3", "b4", "d6"} {
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
		want("a1", "b4", "d6")
		order.Mark("c5", Mark{Urgent: true})
		queue.Add("c5")
		want("c5")
		for range 4 {
			end <- struct{}{}
		}
		want("a2")
		end <- struct{}{}
		want("a3")
		close(end)
		queue.ShutDownWithDrain()
		workers.Wait()
	})
}

// TestQueueSharesWorkers: a tenant alone can use half of the workers for each kind of items, and the others are free for the next
// tenants.
func TestQueueSharesWorkers(t *testing.T) {
	for urgent, wants := range map[bool][]int{true: {8, 4, 2, 1, 1}, false: {2, 1, 1, 0}} {
		queue := NewQueue(tenantOf, 16, 4)
		pop := func(tenant string) (n int) {
			for i := range 20 {
				item := fmt.Sprint(tenant, i)
				queue.Mark(item, Mark{Urgent: urgent})
				queue.Push(item)
			}
			for queue.Len() > 0 {
				if item := queue.Pop(); tenantOf(item) != tenant {
					t.Fatalf("got %s", item)
				}
				n++
			}
			return n
		}
		for i, want := range wants {
			if got := pop(string(rune('a' + i))); got != want {
				t.Errorf("urgent=%t: tenant %d can use %d workers, want %d", urgent, i+1, got, want)
			}
		}
		for i := range wants[1] {
			queue.Done(fmt.Sprint("b", i))
		}
		if queue.Len() == 0 || tenantOf(queue.Pop()) != "b" {
			t.Errorf("urgent=%t: a tenant that uses no worker does not get a free one", urgent)
		}
	}
}

// TestQueueKindsAreIndependent: a tenant that always has items of one kind, with many units, also gets those of the other, whatever
// other tenants do.
func TestQueueKindsAreIndependent(t *testing.T) {
	const workers, maxLater = 16, 4
	for _, urgent := range []bool{true, false} {
		queue, number := NewQueue(tenantOf, workers, maxLater), 0
		push := func(tenant string, mark Mark) {
			number++
			item := fmt.Sprintf("%s%d", tenant, number)
			queue.Mark(item, mark)
			queue.Push(item)
		}
		busy, others := &queue.urgent, &queue.later
		if !urgent {
			busy, others = others, busy
		}
		var processed []string
		got := 0
		for range 1000 {
			for len(busy.items["a"]) < 2 {
				push("a", Mark{Urgent: urgent, Units: 100})
			}
			for _, tenant := range []string{"a", "b"} {
				for len(others.items[tenant]) < 2 {
					push(tenant, Mark{Urgent: !urgent})
				}
			}
			for len(processed) < workers && queue.Len() > 0 {
				item := queue.Pop()
				if processed = append(processed, item); tenantOf(item) == "a" && queue.processed[item].Urgent != urgent {
					got++
				}
			}
			queue.Done(processed[0])
			processed = processed[1:]
		}
		if got < 100 {
			t.Errorf("beside items with urgent=%t, %d others of the tenant came out of 1000", urgent, got)
		}
	}
}

// TestQueueTouch: an item that becomes costly while it waits uses the units of its last mark.
func TestQueueTouch(t *testing.T) {
	order := NewQueue(tenantOf, 16, 4)
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
	for _, units := range []int{1, 45} {
		for i := range 20 {
			order.Mark(fmt.Sprint("a", i), Mark{Urgent: true, Units: units})
			queue.Add(fmt.Sprint("a", i))
		}
	}
	if _, _ = queue.Get(); queue.Len() > 0 {
		t.Error("a second costly item is processed beside the first")
	}
	order.Done("a0")
	queue.Done("a0")
	if len(order.marks) != 19 {
		t.Errorf("%d marks are kept, want 19", len(order.marks))
	}
}

// TestQueueUnits: while the items of a tenant that are processed have half as many units as there are workers, its others wait.
func TestQueueUnits(t *testing.T) {
	queue := NewQueue(tenantOf, 8, 2)
	push := func(item string, units int) {
		queue.Mark(item, Mark{Urgent: true, Units: units})
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
// use another worker for this kind, it comes out before a second item of each other tenant of the same kind. Items that are not
// urgent get each fourth place while urgent ones wait.
func TestQueueIsFair(t *testing.T) {
	type item struct {
		turn   string // the tenant and the kind: U, or L if it is not urgent
		number int
		units  int
	}
	tenantOf := func(i item) string { return i.turn[:1] }
	kindOf := func(turn string) byte { return turn[1] }
	rapid.Check(t, func(t *rapid.T) {
		workers, maxLater := rapid.IntRange(1, 12).Draw(t, "workers"), rapid.IntRange(1, 4).Draw(t, "later")
		queue, waiting, processed, next := NewQueue(tenantOf, workers, maxLater), map[string][]item{}, []item{}, 0
		eligible := func(turn string) bool { // its next item
			if len(waiting[turn]) == 0 || len(processed) == workers {
				return false
			}
			own, units, free := 0, 0, workers-len(processed)
			if kindOf(turn) == 'L' {
				later := 0
				for _, other := range processed {
					if kindOf(other.turn) == 'L' {
						later++
					}
				}
				free = min(free, maxLater-later)
			}
			for _, other := range processed {
				if other.turn == turn {
					own, units = own+1, units+other.units
				}
			}
			return free > 0 && (own == 0 || own+1 <= free-1 && 2*units < workers)
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
				turn := rapid.SampledFrom([]string{"aU", "bU", "cU", "aL", "bL", "cL"}).Draw(t, "turn")
				i := item{turn, next, rapid.SampledFrom([]int{1, 1, 1, 2, 3, 20}).Draw(t, "units")}
				queue.Mark(i, Mark{Urgent: kindOf(turn) == 'U', Units: i.units})
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
				urgent, later := canCome('U'), canCome('L')
				wantLater := later && (!urgent || streak == maxStreak)
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
			if want := canCome('U') || canCome('L'); (queue.Len() > 0) != want {
				t.Fatalf("%d items can come out of %v, %v are processed", queue.Len(), waiting, processed)
			}
		}
	})
}
