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

package gateway

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestObject(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want, wantErr string
		edit              func(*object)
	}{
		"unchanged":         {in: ` { "b" : 1.0 , "a":[ 1,{"x":12345678901234567890}] } `, want: `{"b":1.0,"a":[ 1,{"x":12345678901234567890}]}`},
		"empty":             {in: `{}`, want: `{}`},
		"replaced":          {in: `{"a":1,"b":2,"c":3}`, want: `{"a":1,"b":"x","c":3}`, edit: func(o *object) { o.set("b", `"x"`) }},
		"escaped key":       {in: `{"\u0061":1}`, want: `{"\u0061":2}`, edit: func(o *object) { o.set("a", "2") }},
		"added":             {in: `{"a":1}`, want: `{"a":1,"b":2}`, edit: func(o *object) { o.set("b", "2") }},
		"removed":           {in: `{"a":1,"b":2,"c":3}`, want: `{"a":1,"c":3}`, edit: func(o *object) { o.remove("b") }},
		"missing":           {in: `{"a":null,"b":2}`, want: `{"a":1,"b":2}`, edit: func(o *object) { o.setMissing("a", "1"); o.setMissing("b", "1") }},
		"duplicate key":     {in: `{"a":1,"\u0061":2}`, wantErr: "contains a duplicate key"},
		"long name":         {in: `{"` + strings.Repeat("a", 1022) + `":1}`, want: `{"` + strings.Repeat("a", 1022) + `":1}`},
		"too long a name":   {in: `{"\u0061` + strings.Repeat("a", 1017) + `":1}`, wantErr: "has a member whose name is longer than 1024 bytes"},
		"not an object":     {in: `"a"`, wantErr: "must be an object"},
		"truncated":         {in: `{"a":1`, wantErr: "must be JSON"},
		"two values":        {in: `{} {}`, wantErr: "must be JSON"},
		"not UTF-8":         {in: "{\"a\":\"\xff\"}", wantErr: "must be UTF-8"},
		"nested too deeply": {in: `{"a":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}`, wantErr: "must not be nested more than 1000 levels deep"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseObject([]byte(tc.in))
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.edit != nil {
				tc.edit(o)
			}
			if diff := cmp.Diff(tc.want, o.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"": `""`, `a"<é`: `"a\"<é"`, "\n": `"\n"`} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}
