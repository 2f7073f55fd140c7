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

package jsonvalue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// benchmarkBytes is about the size of each body of the benchmarks.
const benchmarkBytes = 4 << 20

// manyMembers returns an object of about a size whose members have a format, with their numbers in random order.
func manyMembers(bytes int, format string) string {
	var b strings.Builder
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(bytes / len(fmt.Sprintf(format, bytes/16))) {
		fmt.Fprintf(&b, format, i)
	}
	return "{" + strings.TrimSuffix(b.String(), ",") + "}"
}

// benchmarkBodies are bodies that take long to compare, each also in many lists or objects, one in the next, which must not
// take longer.
func benchmarkBodies() map[string]string {
	list := "[" + strings.Repeat(`0,`, benchmarkBytes/2) + "0]"
	objects := "[" + strings.Repeat(`{"b":0,"a":0},`, benchmarkBytes/14) + "0]"
	var keys strings.Builder
	for i := range 20 {
		fmt.Fprintf(&keys, `"%d":0,`, i)
	}
	deepIn := func(outer, body string, depth int) string {
		return strings.Repeat(outer, depth) + body + strings.Repeat(map[byte]string{'[': "]", '{': "}"}[outer[0]], depth)
	}
	const levels = survivableDepth - 2
	return map[string]string{
		"list":                   list,
		"list/deep":              deepIn("[", list, levels),
		"list/deep in objects":   deepIn("{"+keys.String()+`"":`, list, levels),
		"members":                manyMembers(benchmarkBytes, `"%x":0,`),
		"members/deep":           deepIn("[", manyMembers(benchmarkBytes, `"%x":0,`), levels),
		"members/escapes":        manyMembers(benchmarkBytes, `"\t%x":0,`),
		"objects":                objects,
		"objects/deep":           deepIn("[", objects, levels),
		"objects/deep in itself": "[" + strings.Repeat(deepIn(`{"b":0,"a":`, "0", levels)+",", benchmarkBytes/levels/12) + "0]",
		"numbers":                "[" + strings.Repeat(`1e5,`, benchmarkBytes/4) + "0]",
		"text":                   `"` + strings.Repeat(`some text\n`, benchmarkBytes/11) + `"`,
	}
}

func BenchmarkSurvives(b *testing.B) {
	for name, body := range benchmarkBodies() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if !Survives(Bytes(body)) {
					b.Fatal("the body does not survive")
				}
			}
		})
	}
}

func BenchmarkEqual(b *testing.B) {
	for name, body := range benchmarkBodies() {
		b.Run(name, func(b *testing.B) {
			other := []byte(" " + body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if !Equal(Bytes(body), other) {
					b.Fatal("the bodies differ")
				}
			}
		})
	}
}
