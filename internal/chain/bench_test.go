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

package chain

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

const benchTurns = 100_000

func benchIDs() []string {
	ids := make([]string, benchTurns)
	for i := range ids {
		ids[i] = fmt.Sprintf("resp_%048x", i)
	}
	return ids
}

// trees is an index of turns, whose values are their numbers.
type trees struct {
	*Index[int]
	ids    []string
	parent func(i int) int
}

// grow fills an index with trees whose shape parent defines.
func grow(ids []string, parent func(i int) int) *trees {
	t := &trees{ids: ids, parent: parent}
	t.Index = NewIndex(DefaultMaxDepth, func(int) uint64 { return 0 }, t.names)
	for i := range ids {
		t.add(i)
	}
	return t
}

func (t *trees) names(i int) (id, previous string) {
	if p := t.parent(i); p >= 0 {
		previous = t.ids[p]
	}
	return t.ids[i], previous
}

func (t *trees) add(i int) {
	id, previous := t.names(i)
	t.Set(Turn{ID: id, Previous: previous, Status: completed}, i)
}

// maxBytesPerTurn is the memory that a turn may take in the index besides its ID strings.
const maxBytesPerTurn = 150

// BenchmarkIndexMemory reports the bytes a turn takes beyond its ID strings, in conversations of 50 turns, and fails if
// there are too many.
func BenchmarkIndexMemory(b *testing.B) {
	ids := benchIDs()
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x := grow(ids, func(i int) int {
			if i%50 == 0 {
				return -1
			}
			return i - 1
		})
		runtime.GC()
		runtime.ReadMemStats(&after)
		perTurn := float64(after.HeapAlloc-before.HeapAlloc) / benchTurns
		b.ReportMetric(perTurn, "B/turn")
		if perTurn > maxBytesPerTurn {
			b.Errorf("a turn takes %.0f B, more than %d", perTurn, maxBytesPerTurn)
		}
		runtime.KeepAlive(x)
	}
}

// BenchmarkIndexAppend adds one turn to a chain that already has the depth in the name, and removes it again.
func BenchmarkIndexAppend(b *testing.B) {
	for _, depth := range []int{10, 60, 1_000, 100_000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			x := grow(append(benchIDs()[:depth:depth], "new"), func(i int) int { return i - 1 })
			b.ReportAllocs()
			for b.Loop() {
				x.Delete("new")
				x.add(depth)
			}
		})
	}
}

// BenchmarkIndexBreak removes the root of a tree and adds it again, and reports the time for each descendant.
func BenchmarkIndexBreak(b *testing.B) {
	shapes := map[string]func(i int) int{
		"chain":  func(i int) int { return i - 1 },
		"star":   func(i int) int { return min(i-1, 0) },
		"binary": func(i int) int { return (i+1)/2 - 1 },
	}
	for _, shape := range []string{"chain", "star", "binary"} {
		for _, turns := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/turns=%d", shape, turns), func(b *testing.B) {
				ids := benchIDs()[:turns]
				x := grow(ids, shapes[shape])
				for b.Loop() {
					x.Delete(ids[0])
					x.add(0)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(2*turns), "ns/descendant")
			})
		}
	}
}

func BenchmarkFlatten(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			text := strings.Repeat("x", size/2-200)
			request := fmt.Appendf(nil, `{"input":[{"role":"user","content":%q}],"model":"m"}`, text)
			response := fmt.Appendf(nil, `{"id":"resp_1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q}]}]}`, text)
			b.SetBytes(int64(len(request) + len(response)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Flatten(request, response); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
