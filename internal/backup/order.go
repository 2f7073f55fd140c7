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

import "slices"

// parentsFirst returns an order in which parents come before their children: by depth, and at the same depth in the given order. The
// parents are indexes, or -1 for none. Nodes on a cycle have depth 1, as roots have, and onCycle is set for them. The time is linear,
// and chains can have any length.
func parentsFirst(parents []int) (order []int, onCycle []bool) {
	const unknown, onPath = 0, -1
	depths, onCycle := make([]int, len(parents)), make([]bool, len(parents))
	deepest := 0
	for start := range parents {
		var path []int
		next := start
		for next >= 0 && depths[next] == unknown {
			depths[next] = onPath
			path = append(path, next)
			next = parents[next]
		}
		if next >= 0 && depths[next] == onPath {
			for end := next; depths[end] == onPath; {
				depths[end], onCycle[end] = 1, true
				end = parents[end]
			}
		}
		for _, node := range slices.Backward(path) {
			if depths[node] == onPath { // otherwise it is on the cycle
				depths[node] = 1
				if parent := parents[node]; parent >= 0 {
					depths[node] += depths[parent]
				}
			}
			deepest = max(deepest, depths[node])
		}
	}
	return byDepth(depths, deepest), onCycle
}

// byDepth returns the nodes sorted by depth, which is at least 1.
func byDepth(depths []int, deepest int) []int {
	starts := make([]int, deepest+2)
	for _, depth := range depths {
		starts[depth+1]++
	}
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	order := make([]int, len(depths))
	for node, depth := range depths {
		order[starts[depth]] = node
		starts[depth]++
	}
	return order
}
