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

package outdated

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestSet compares a set with two plain maps.
func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		all, settled := map[string]string{}, map[string]bool{}
		name, version := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"1", "2"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n, v := name.Draw(t, "name"), version.Draw(t, "version")
				s.Put(n, v)
				all[n] = v
				delete(settled, n)
			},
			"delete": func(t *rapid.T) {
				n := name.Draw(t, "name")
				s.Delete(n)
				delete(all, n)
				delete(settled, n)
			},
			"settle": func(t *rapid.T) {
				n, v := name.Draw(t, "name"), version.Draw(t, "version")
				s.Settle(n, v)
				if all[n] == v {
					settled[n] = true
				}
			},
			"list": func(t *rapid.T) {
				var next Set
				for n, v := range all {
					if rapid.Bool().Draw(t, "changed") {
						v += "x"
						all[n] = v
						delete(settled, n)
					}
					next.Put(n, v)
				}
				next.SettleAs(&s)
				s = next
			},
			"": func(t *rapid.T) {
				want := maps.Clone(all)
				maps.DeleteFunc(want, func(n, _ string) bool { return settled[n] })
				limit := rapid.IntRange(0, 4).Draw(t, "limit")
				got, count := map[string]string{}, 0
				s.Open(limit, func(n, v string) { got[n] = v; count++ })
				for n, v := range got {
					if want[n] != v {
						t.Fatalf("%s has the version %q, want %q", n, v, want[n])
					}
				}
				if count != min(limit, len(want)) || len(got) != count || s.Len() != len(all) {
					t.Fatalf("got %d of %d objects, and %d calls: %s", len(got), s.Len(), count, cmp.Diff(all, got))
				}
			},
		})
	})
}
