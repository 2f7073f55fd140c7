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

package resolveapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseNoneMatch(t *testing.T) {
	type fields = []string
	tests := map[string]struct {
		fields  fields
		want    []string
		wantAll bool
	}{
		"nothing":                {},
		"empty":                  {fields: fields{""}},
		"one":                    {fields: fields{`"a"`}, want: []string{`"a"`}},
		"weak":                   {fields: fields{`W/"a"`}, want: []string{`"a"`}},
		"several":                {fields: fields{`"a", W/"b","c"`}, want: []string{`"a"`, `"b"`, `"c"`}},
		"several fields":         {fields: fields{`"a"`, `"b"`}, want: []string{`"a"`, `"b"`}},
		"empty elements":         {fields: fields{` , "a",, "b" ,`, ""}, want: []string{`"a"`, `"b"`}},
		"tabs":                   {fields: fields{"\t\"a\"\t,\t\"b\"\t"}, want: []string{`"a"`, `"b"`}},
		"comma in a tag":         {fields: fields{`"a,b"`}, want: []string{`"a,b"`}},
		"backslash in a tag":     {fields: fields{`"a\"`}, want: []string{`"a\"`}},
		"tag that is not ASCII":  {fields: fields{"\"\xff\""}, want: []string{"\"\xff\""}},
		"empty tag":              {fields: fields{`""`}, want: []string{`""`}},
		"any":                    {fields: fields{"*"}, wantAll: true},
		"any with spaces":        {fields: fields{" * "}, wantAll: true},
		"quoted asterisk":        {fields: fields{`"*"`}, want: []string{`"*"`}},
		"any and a tag":          {fields: fields{`*, "a"`}},
		"a tag and any":          {fields: fields{`"a"`, "*"}},
		"without quotes":         {fields: fields{"a"}},
		"without end":            {fields: fields{`"a`}},
		"one quote":              {fields: fields{`"`}},
		"tag and garbage":        {fields: fields{`"a" b`}},
		"garbage after a tag":    {fields: fields{`"a", b`}},
		"no comma":               {fields: fields{`"a""b"`}},
		"lower-case weak":        {fields: fields{`w/"a"`}},
		"weak only":              {fields: fields{"W/"}},
		"space in a tag":         {fields: fields{`"a b"`}},
		"control in a tag":       {fields: fields{"\"a\x7f\""}},
		"as long as possible":    {fields: fields{`"` + strings.Repeat("x", maxNoneMatchBytes-2) + `"`}, want: []string{`"` + strings.Repeat("x", maxNoneMatchBytes-2) + `"`}},
		"too long":               {fields: fields{`"` + strings.Repeat("x", maxNoneMatchBytes-1) + `"`}},
		"too long, in two parts": {fields: fields{`"a"`, strings.Repeat(",", maxNoneMatchBytes)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := parseNoneMatch(tc.fields)
			if diff := cmp.Diff(tc.want, got.tags); diff != "" || got.all != tc.wantAll {
				t.Errorf("all is %t, want %t; tags (-want +got):\n%s", got.all, tc.wantAll, diff)
			}
			for _, tag := range tc.want {
				if !got.has(tag) {
					t.Errorf("%s is not listed", tag)
				}
			}
		})
	}
}

// FuzzParseNoneMatch: every tag that is parsed is in the header, and is parsed again from a list of the tags.
func FuzzParseNoneMatch(f *testing.F) {
	for _, seed := range []string{`"a"`, `W/"a", "b"`, "*", `,"a,",`, `"`, "W/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		got := parseNoneMatch([]string{field})
		if got.all && len(got.tags) > 0 {
			t.Errorf("%q is both any tag and a list", field)
		}
		for _, tag := range got.tags {
			if len(tag) < 2 || tag[0] != '"' || strings.Count(tag, `"`) != 2 || !strings.Contains(field, tag) {
				t.Errorf("%q has the tag %q", field, tag)
			}
		}
		if len(got.tags) > maxNoneMatchBytes/2 {
			t.Errorf("%d tags", len(got.tags))
		}
		again := parseNoneMatch([]string{strings.Join(got.tags, ",")})
		if !slices.Equal(again.tags, got.tags) {
			t.Errorf("got %q, want %q", again.tags, got.tags)
		}
	})
}
