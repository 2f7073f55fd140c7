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
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestEqualValues compares Equal with Difference, which compares decoded trees, for random values that are written with
// spaces and shuffled keys.
func TestEqualValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawValue(t, 3)
		y := x
		if rapid.Bool().Draw(t, "another") {
			y = drawValue(t, 3)
		}
		a, b := write(t, x), write(t, y)
		want := Difference("", mustDecode(t, a), mustDecode(t, b)) == ""
		if got := Equal([]byte(a), []byte(b)); got != want {
			t.Errorf("Equal(%s, %s) = %t, want %t", a, b, got, want)
		}
	})
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "1.0", "1e0", "-2.50", "-25e-1"}).Draw(t, "number"))
	case 1:
		return rapid.SampledFrom([]string{"", "a", "é", "\"", "]"}).Draw(t, "string")
	case 2:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "literal")
	case 3:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.SampledFrom([]int{0, 1, 2, 20}).Draw(t, "members") {
		object[rapid.StringMatching(`[a-dé"]{0,2}`).Draw(t, "key")] = drawValue(t, 0)
	}
	return object
}

// write returns a value as JSON, with its keys in any order.
func write(t *rapid.T, value any) string {
	space := rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
	var parts []string
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			parts = append(parts, write(t, element))
		}
		return space + "[" + strings.Join(parts, space+",") + space + "]"
	case map[string]any:
		for _, key := range rapid.Permutation(slices.Sorted(maps.Keys(value))).Draw(t, "keys") {
			parts = append(parts, fmt.Sprintf("%s%s:%s", write(t, key), space, write(t, value[key])))
		}
		return space + "{" + strings.Join(parts, ",") + space + "}"
	case string:
		if rapid.Bool().Draw(t, "escaped") {
			return strings.ReplaceAll(space+mustEncode(value), "é", `\u00e9`)
		}
	}
	return space + mustEncode(value) + space
}

func mustEncode(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // unreachable: all values can be encoded
	}
	return string(raw)
}

// TestEqualAllocates checks that bodies with many tiny members are not decoded into trees.
func TestEqualAllocates(t *testing.T) {
	object := func(count int) []byte {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, `,"%x":{}`, i)
		}
		return []byte("{" + b.String()[1:] + "}")
	}
	a := object(1 << 14)
	b := append([]byte(" "), a...)
	allocations := testing.AllocsPerRun(1, func() {
		if !Equal(a, b) {
			t.Error("got different values, want equal ones")
		}
	})
	if allocations > 64 {
		t.Errorf("got %g allocations, want at most 64", allocations)
	}
}
