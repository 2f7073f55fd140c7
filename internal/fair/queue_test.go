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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
)

func tenantOf(item string) string { return item[:1] }

func TestQueueOrder(t *testing.T) {
	cases := map[string]struct{ add, want string }{ // an item in upper case is marked with Later
		"tenants take turns":             {"a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"},
		"later items after all others":   {"a1 A2 A3 a4 b1", "a1 b1 a4 a2 a3"},
		"a tenant with only later items": {"A1 A2 b1 b2", "a1 b1 a2 b2"},
		"a mark applies to one push":     {"A1 a1 a2", "a2 a1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			order := NewQueue(tenantOf)
			queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: order})
			defer queue.ShutDown()
			for item := range strings.FieldsSeq(tc.add) {
				if lower := strings.ToLower(item); lower != item {
					item = lower
					order.Later(item)
				}
				queue.Add(item)
			}
			var got []string
			for queue.Len() > 0 {
				item, _ := queue.Get()
				queue.Done(item)
				got = append(got, item)
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if len(order.lanes)+len(order.later) > 0 {
				t.Errorf("items are left: %v, %v", order.lanes, order.later)
			}
		})
	}
}

// TestQueueIsFair: every item comes out once, and a tenant with items waits for at most one item of each other.
func TestQueueIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue, waiting, next := NewQueue(tenantOf), map[string]bool{}, 0
		// passed counts the items of other tenants since a waiting tenant's last turn.
		passed := map[string]map[string]int{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(waiting) == 0 || rapid.Bool().Draw(t, "push") {
				next++
				item := fmt.Sprint(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), next)
				if rapid.Bool().Draw(t, "later") {
					queue.Later(item)
				}
				queue.Push(item)
				waiting[item] = true
				if passed[tenantOf(item)] == nil {
					passed[tenantOf(item)] = map[string]int{}
				}
				continue
			}
			item := queue.Pop()
			if !waiting[item] {
				t.Fatalf("%s was not waiting", item)
			}
			delete(waiting, item)
			delete(passed, tenantOf(item))
			for other := range waiting {
				if tenantOf(other) == tenantOf(item) {
					passed[tenantOf(item)] = map[string]int{}
				}
			}
			for other, counts := range passed {
				if other == tenantOf(item) {
					continue
				}
				if counts[tenantOf(item)]++; counts[tenantOf(item)] > 1 {
					t.Fatalf("%s waits for %d items of %s", other, counts[tenantOf(item)], tenantOf(item))
				}
			}
			if queue.Len() != len(waiting) {
				t.Fatalf("%d items, want %d", queue.Len(), len(waiting))
			}
		}
	})
}
