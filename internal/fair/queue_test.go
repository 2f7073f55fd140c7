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
	cases := map[string]struct{ add, want string }{ // an item in upper case is marked with Later
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
					order.Later(item, true)
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
			if len(order.now.items)+len(order.later.items)+len(order.marked) > 0 {
				t.Errorf("items are left: %v, %v, %v", order.now, order.later, order.marked)
			}
		})
	}
}

// TestQueueLimit: items marked with Later wait for each other, but not other items for them, and a worker that is done with one
// gets the next.
func TestQueueLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := NewQueue(tenantOf, 16, 2)
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
		end, begun := make(chan struct{}), make(chan string, 10)
		for _, item := range []string{"a1", "a2", "a3", "b4"} {
			order.Later(item, true)
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

// TestQueueIsFair: every item comes out once, and if its tenant may use another worker, before a second item of each other tenant
// of the same kind. Items marked with Later get each fourth place while others wait.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers, maxLater := rapid.IntRange(1, 12).Draw(t, "workers"), rapid.IntRange(1, 3).Draw(t, "later")
		queue, waiting, processed, next := NewQueue(tenantOf, workers, maxLater), map[string]bool{}, map[string]bool{}, 0
		kind := func(item string) byte { return item[1] } // N, or L if it is marked
		turn := func(item string) string { return item[:2] }
		count := func(items map[string]bool, matches func(item string) bool) (n int) {
			for item := range items {
				if matches(item) {
					n++
				}
			}
			return n
		}
		eligible := func(item string) bool {
			own := count(processed, func(other string) bool { return tenantOf(other) == tenantOf(item) })
			marked := count(processed, func(other string) bool { return kind(other) == 'L' })
			return (own == 0 || own+1 <= workers-len(processed)-1) && (kind(item) == 'N' || marked < maxLater)
		}
		canCome := func(of byte) bool {
			return count(waiting, func(item string) bool { return kind(item) == of && eligible(item) }) > 0
		}
		// passed counts the items of other tenants since a waiting tenant's last turn.
		passed, streak := map[string]map[string]int{}, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch step := rapid.SampledFrom([]string{"push", "push", "pop", "done"}).Draw(t, "step"); {
			case step == "push":
				next++
				item := fmt.Sprint(rapid.SampledFrom([]string{"aN", "bN", "cN", "aL", "bL", "cL"}).Draw(t, "item"), next)
				queue.Later(item, kind(item) == 'L')
				queue.Push(item)
				waiting[item] = true
				if passed[turn(item)] == nil {
					passed[turn(item)] = map[string]int{}
				}
			case step == "done" && len(processed) > 0:
				item := rapid.SampledFrom(slices.Sorted(maps.Keys(processed))).Draw(t, "done")
				queue.Done(item)
				delete(processed, item)
			case step == "pop" && len(processed) < workers && queue.Len() > 0:
				now, later := canCome('N'), canCome('L')
				wantLater := later && (!now || streak == maxStreak)
				couldCome := map[string]bool{} // by turn
				for item := range waiting {
					couldCome[turn(item)] = eligible(item)
				}
				item := queue.Pop()
				if gotLater := kind(item) == 'L'; !waiting[item] || !couldCome[turn(item)] || gotLater != wantLater {
					t.Fatalf("got %s after %d others, %v are waiting, %v are processed", item, streak, waiting, processed)
				}
				switch {
				case wantLater:
					streak = 0
				case later:
					streak++
				}
				delete(waiting, item)
				processed[item] = true
				delete(passed, turn(item))
				for other := range waiting {
					if turn(other) == turn(item) {
						passed[turn(item)] = map[string]int{}
					}
				}
				for other, counts := range passed {
					if !couldCome[other] || other == turn(item) || kind(other[:2]) != kind(item) {
						continue
					}
					if counts[turn(item)]++; counts[turn(item)] > 1 {
						t.Fatalf("%s waits for %d items of %s", other, counts[turn(item)], turn(item))
					}
				}
			}
			if want := canCome('N') || canCome('L'); (queue.Len() > 0) != want {
				t.Fatalf("%d items can come out of %v, %v are processed", queue.Len(), waiting, processed)
			}
		}
	})
}
