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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// FuzzElements: Elements yields the same elements as gjson.
func FuzzElements(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ` [ ] `, `1`, `"[1]"`, `null`, ` { "a" : [1 , {"b":"]"}] , "\u0061\"":null,"":-1.5e3,"a":true} `,
		`["\\",",",[[],{}],{"a":{}}, 1 ,false]`, `{"a":"\\\""}`, `{"a"`, `{"a":}`, `[1`, `["`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var got, want [][2]string
		for key, value := range Elements(raw) {
			got = append(got, [2]string{key, value})
		}
		if !json.Valid([]byte(raw)) || Validate([]byte(raw)) != nil {
			return // it did not panic
		}
		if trimmed := strings.TrimLeft(raw, " \t\r\n"); IsObject(trimmed) || IsList(trimmed) {
			gjson.Parse(raw).ForEach(func(key, value gjson.Result) bool {
				want = append(want, [2]string{key.Raw, value.Raw})
				if key.Raw != "" && Unquote(key.Raw) != key.Str {
					t.Errorf("%s unquoted is %q, want %q", key.Raw, Unquote(key.Raw), key.Str)
				}
				return true
			})
		}
		if diff := cmp.Diff(want, got); diff != "" || Count(raw) != len(want) {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestNodes(t *testing.T) {
	cases := map[string]struct {
		raw  string
		want int
	}{
		"string":           {`"a, b: {[\\\"]}"`, 0},
		"empty list":       {`[]`, 1},
		"list":             {`[1, "a,", null]`, 3},
		"object":           {`{"a:": 1, "b": "{"}`, 4},
		"nested":           {`{"a":[{},[[]]]}`, 7},
		"deep":             {strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20), 1 << 20},
		"open string":      {`[1,"a`, 2},
		"many tiny values": {`[{}` + strings.Repeat(`,{}`, 999) + `]`, 2000},
		"empty":            {"", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Nodes(tc.raw); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestElementsAllocateNothing: iterating over a body with many tiny members allocates no memory.
func TestElementsAllocateNothing(t *testing.T) {
	raw := []byte(`{"a":[` + strings.Repeat(`{},`, 1<<16) + `{}],"b":"` + strings.Repeat(`\n`, 1<<16) + `"}`)
	allocations := testing.AllocsPerRun(1, func() {
		o, err := ParseObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		if n := Count(o.RawMembers("a", "b")[0]); n != 1<<16+1 {
			t.Errorf("got %d elements, want %d", n, 1<<16+1)
		}
	})
	if allocations > 8 {
		t.Errorf("got %g allocations, want at most 8", allocations)
	}
}

func TestUnquoteFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		raw   string
		bytes int
		want  string
	}{
		"all":                {`"abc"`, 5, "abc"},
		"cut":                {`"abc"`, 3, "ab"},
		"escape is cut":      {`"a\nb"`, 3, "a"},
		"escape is complete": {`"a\nb"`, 4, "a\n"},
		"unicode is cut":     {`"a\u00e9b"`, 7, "a"},
		"escaped backslash":  {`"\\\"b"`, 5, `\"`},
		"escaped quote":      {`"\"bcd"`, 4, `"b`},
		"nothing":            {`"abc"`, 1, ""},
		"number":             {`12`, 5, ""},
		"list":               {`["abc"]`, 5, ""},
		"absent":             {``, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := UnquoteFirst(tc.raw, tc.bytes); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
