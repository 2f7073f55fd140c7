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

func TestValidate(t *testing.T) {
	nested := func(depth int) string {
		return strings.Repeat(`[{"a":`, depth/2) + strings.Repeat("[", depth%2) + "1" + strings.Repeat("]", depth%2) + strings.Repeat("}]", depth/2)
	}
	for name, tc := range map[string]struct{ raw, want string }{
		"deepest":                {nested(MaxDepth), ""},
		"too deep":               {nested(MaxDepth + 1), "must not be nested more than 1000 levels deep"},
		"wide":                   {"[" + strings.Repeat("[],", 2*MaxDepth) + "[]]", ""},
		"brackets in a string":   {`"` + strings.Repeat("[", 2*MaxDepth) + `"`, ""},
		"escapes before a quote": {`["\\","\\\"","[\"[",` + nested(MaxDepth-1) + `]`, ""},
		"unclosed lists":         {strings.Repeat("[", 16<<20), "must not be nested more than 1000 levels deep"},
		"unclosed string":        {`["a\"]`, "must be JSON"},
		"empty":                  {"", "must be JSON"},
		"closing brackets only":  {"]]]", "must be JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := Validate([]byte(tc.raw)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// FuzzValidate: a value that is not nested too deeply is valid if encoding/json accepts it.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"\\\"[",null]}`, `"\`, `[[`, `{"a":1}}`, "\"\x80\""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, want := Validate(raw) == nil, json.Valid(raw); got != want && strings.Count(string(raw), "[")+strings.Count(string(raw), "{") <= MaxDepth {
			t.Errorf("valid: %t, want %t", got, want)
		}
	})
}

func TestMembers(t *testing.T) {
	var got []string
	for _, value := range Members(gjson.Parse(`{"a":1,"b":{"a":2},"a":3,"\u0063":4}`), "a", "c", "d") {
		got = append(got, value.Raw)
	}
	if diff := cmp.Diff([]string{"3", "4", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEqual(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"empty":                        {"", "", true},
		"empty and object":             {"", "{}", false},
		"order and spaces":             {`{"a":1,"b":[2.0]}`, `{ "b":[2], "a":1 }`, true},
		"different values":             {`{"a":1}`, `{"a":2}`, false},
		"order of a list":              {`[1,2]`, `[2,1]`, false},
		"more digits than survive":     {`{"a":12345678901234567890}`, `{ "a":12345678901234567890}`, false},
		"same bytes":                   {`{"a":12345678901234567890}`, `{"a":12345678901234567890}`, true},
		"duplicate key and single key": {`{"a":1,"a":2}`, `{"a":2}`, false},
		"duplicate key, same bytes":    {`{"a":1,"a":2}`, `{"a":1,"a":2}`, true},
		"escapes":                      {`{"a":"\u00e9"}`, `{"a":"é"}`, true},
		"string and number":            {`{"a":"1"}`, `{"a":1}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Equal([]byte(tc.a), []byte(tc.b)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if got := Equal([]byte(tc.b), []byte(tc.a)); got != tc.want {
				t.Errorf("with the arguments swapped: got %t, want %t", got, tc.want)
			}
		})
	}
}
