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
	"testing"

	"pgregory.net/rapid"
)

func mustDecode(t rapid.TB, raw string) any {
	t.Helper()
	value, err := Decode([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestDifference(t *testing.T) {
	cases := map[string]struct{ want, got, difference string }{
		"equal":                        {want: `{"a":[1,"b",null,true]}`, got: `{"a": [1, "b", null, true]}`},
		"order of keys":                {want: `{"a":1,"b":2}`, got: `{"b":2,"a":1}`},
		"escapes":                      {want: `"<\u0041\/"`, got: `"\u003cA/"`},
		"whole number with a fraction": {want: `1.0`, got: `1`},
		"negative zero":                {want: `-0.0`, got: `0`},
		"exponent":                     {want: `1e3`, got: `1000`},
		"more digits than a float64":   {want: `-0.00012345678901234567890`, got: `-0.00012345678901234568`, difference: "x is -0.00012345678901234568, not -0.00012345678901234567890"},
		"int64 and fraction":           {want: `9007199254740993`, got: `9007199254740992.0`, difference: "x is 9007199254740992.0, not 9007199254740993"},
		"number":                       {want: `1`, got: `2`, difference: "x is 2, not 1"},
		"int64":                        {want: `9007199254740993`, got: `9007199254740992`, difference: "x is 9007199254740992, not 9007199254740993"},
		"integer beyond int64":         {want: `12345678901234567890`, got: `12345678901234567000`, difference: "x is 12345678901234567000, not 12345678901234567890"},
		"beyond float64":               {want: `1e400`, got: `1e401`, difference: "x is 1e401, not 1e400"},
		"number and string":            {want: `1`, got: `"1"`, difference: `x is "1", not 1`},
		"string":                       {want: `"a"`, got: `"b"`, difference: `x is "b", not "a"`},
		"null and absent":              {want: `{"a":null}`, got: `{}`, difference: "x.a is missing"},
		"additional member":            {want: `{}`, got: `{"a":{}}`, difference: "x.a is unexpected"},
		"null and false":               {want: `null`, got: `false`, difference: "x is false, not null"},
		"object and list":              {want: `{}`, got: `[]`, difference: "x is [], not {}"},
		"list and null":                {want: `[]`, got: `null`, difference: "x is null, not []"},
		"longer list":                  {want: `[1]`, got: `[1,2]`, difference: "x has 2 elements, not 1"},
		"shorter list":                 {want: `[1,2]`, got: `[1]`, difference: "x has 1 elements, not 2"},
		"deep":                         {want: `{"a":[{"b":[1,2]}]}`, got: `{"a":[{"b":[1,3]}]}`, difference: "x.a[0].b[1] is 3, not 2"},
		"order of a list":              {want: `[1,2]`, got: `[2,1]`, difference: "x[0] is 2, not 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Difference("x", mustDecode(t, tc.want), mustDecode(t, tc.got)); got != tc.difference {
				t.Errorf("got %q, want %q", got, tc.difference)
			}
		})
	}
	if _, err := Decode([]byte(`{} {}`)); err == nil {
		t.Error("two values were accepted as one")
	}
}
