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

package backup

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParentsFirst(t *testing.T) {
	tests := map[string]struct {
		parents   []int
		wantOrder []int
		wantCycle []int
	}{
		"nothing":                   {wantOrder: []int{}},
		"roots":                     {parents: []int{-1, -1}, wantOrder: []int{0, 1}},
		"a chain, backwards":        {parents: []int{1, 2, -1}, wantOrder: []int{2, 1, 0}},
		"forks, by depth":           {parents: []int{-1, 0, 1, 0, -1}, wantOrder: []int{0, 4, 1, 3, 2}},
		"a turn that is its parent": {parents: []int{0}, wantOrder: []int{0}, wantCycle: []int{0}},
		"a cycle":                   {parents: []int{2, 0, 1}, wantOrder: []int{0, 1, 2}, wantCycle: []int{0, 1, 2}},
		"turns after a cycle":       {parents: []int{1, 2, 3, 2, 0}, wantOrder: []int{2, 3, 1, 0, 4}, wantCycle: []int{2, 3}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			order, onCycle := parentsFirst(tc.parents)
			if diff := cmp.Diff(tc.wantOrder, order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			for node, got := range onCycle {
				if want := slices.Contains(tc.wantCycle, node); got != want {
					t.Errorf("node %d is on a cycle: got %t, want %t", node, got, want)
				}
			}
		})
	}
}

// TestParentsFirstProperty: of any graph, all nodes are in the order, after their parents unless both are on a cycle.
func TestParentsFirstProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(t, "size")
		parents := rapid.SliceOfN(rapid.IntRange(-1, size-1), size, size).Draw(t, "parents")
		order, onCycle := parentsFirst(parents)
		at := make([]int, size)
		for i, node := range order {
			at[node] = i + 1
		}
		for node, parent := range parents {
			if at[node] == 0 {
				t.Fatalf("node %d is missing", node)
			}
			if got, want := onCycle[node], returns(parents, node); got != want {
				t.Fatalf("node %d is on a cycle: got %t, want %t", node, got, want)
			}
			if parent >= 0 && !onCycle[node] && at[parent] > at[node] {
				t.Fatalf("node %d comes before its parent %d", node, parent)
			}
		}
	})
}

// returns reports whether following the parents leads back to a node.
func returns(parents []int, node int) bool {
	next := parents[node]
	for range parents {
		if next < 0 || next == node {
			break
		}
		next = parents[next]
	}
	return next == node
}
