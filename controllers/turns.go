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

package controllers

import (
	"iter"
	"maps"
	"slices"
)

// inTurns yields all elements in an order in which their namespaces take turns, so that a namespace with few is done early. The elements of
// one namespace keep their order. Which namespace begins is random: if not all elements are used each time, none is always the last.
func inTurns[T any](all iter.Seq[T], namespaceOf func(T) string) iter.Seq[T] {
	return func(yield func(T) bool) {
		byNamespace := map[string][]T{}
		for one := range all {
			namespace := namespaceOf(one)
			byNamespace[namespace] = append(byNamespace[namespace], one)
		}
		for queues := slices.Collect(maps.Values(byNamespace)); len(queues) > 0; {
			remaining := queues[:0]
			for _, queue := range queues {
				if !yield(queue[0]) {
					return
				}
				if len(queue) > 1 {
					remaining = append(remaining, queue[1:])
				}
			}
			queues = remaining
		}
	}
}
