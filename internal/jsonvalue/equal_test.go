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
	"runtime"
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
	for i := range rapid.SampledFrom([]int{0, 1, 2, 20}).Draw(t, "members") {
		nested := 0
		if i < 2 {
			nested = depth - 1
		}
		object[rapid.StringMatching(`[a-dé"]{0,2}`).Draw(t, "key")] = drawValue(t, nested)
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

// TestSameHash checks that keys whose names have the same hash are distinguished.
func TestSameHash(t *testing.T) {
	const raw = `{"a":1,"b":2,"a":3}`
	hash := newKey(`"b"`, 0)
	for name, tc := range map[string]struct {
		keys []key
		want bool
	}{
		"different names":          {[]key{hash + 1, hash + 7}, true},
		"same name, not adjoining": {[]key{hash + 1, hash + 7, hash + 13}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keysDiffer(raw, tc.keys); got != tc.want {
				t.Errorf("the keys differ: %t, want %t", got, tc.want)
			}
		})
	}
	x := index{raw: raw}
	if got, want := x.valueOf(`"\u0062"`, []key{hash + 1, hash + 7}), strings.Index(raw, "2"); got != want {
		t.Errorf("got the value at %d, want the one at %d", got, want)
	}
}

// TestEqualAllocates checks that bodies with many tiny values are not decoded into trees.
func TestEqualAllocates(t *testing.T) {
	for name, body := range map[string]string{
		"members": manyMembers(1<<18, `"%x":{},`), "escapes": manyMembers(1<<18, `"\t%x":0,`),
		"objects": "[" + strings.Repeat(`{"b":0,"a":0},`, 1<<14) + "0]", "objects of one member": "[" + strings.Repeat(`{"":{"a":{}}},`, 1<<14) + "0]",
		"lists": "[" + strings.Repeat(`[],`, 1<<16) + "0]", "text": `{"a":"` + strings.Repeat(`\n`, 1<<16) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			other := []byte(" " + body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if !Equal(Bytes(body), other) {
				t.Error("got different values, want equal ones")
			}
			runtime.ReadMemStats(&after)
			const small = 32 << 10 // such as the rounding up of sizes
			if got, most := after.TotalAlloc-before.TotalAlloc, EqualMemory(other)+small; int64(got) > most {
				t.Errorf("allocated %d bytes, want at most %d", got, most)
			}
			if got := after.Mallocs - before.Mallocs; got > 64 {
				t.Errorf("got %d allocations, want at most 64", got)
			}
		})
	}
}
