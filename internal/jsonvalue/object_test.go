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
	"strings"
	"testing"
)

func TestParseObject(t *testing.T) {
	for name, tc := range map[string]struct {
		raw, wantErr string
		want         bool // whether the object exists
	}{
		"object":            {` {"a":1,"b":{}} `, "", true},
		"empty":             {`{}`, "", true},
		"nothing":           {"", "", false},
		"null":              {" null ", "", false},
		"list":              {`[]`, "must be an object", false},
		"string":            {`"a"`, "must be an object", false},
		"not JSON":          {`{"a":`, "must be JSON", false},
		"nested too deeply": {`{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`, "must not be nested more than 1000 levels deep", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseObject([]byte(tc.raw))
			if message := errorText(err); message != tc.wantErr || got.Exists() != tc.want {
				t.Errorf("exists: %t, error %q; want %t, %q", got.Exists(), message, tc.want, tc.wantErr)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestObjectMembers(t *testing.T) {
	o, err := ParseObject([]byte(`{"a":1,"b":"x","a":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Members("a", "b", "c"); got[0].Raw != "2" || got[1].Str != "x" || got[2].Exists() {
		t.Errorf("got %v, want 2, x and no value", got)
	}
	if got := (Object{}).Members("a"); got[0].Exists() {
		t.Errorf("members of an absent object: got %v, want no value", got)
	}
}
