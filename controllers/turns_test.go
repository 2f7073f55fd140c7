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

package controllers_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/controllers"
)

// TestInTurns: each namespace has one turn in each round until it has none left, in its own order, and nothing is lost.
func TestInTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.StringMatching(`[a-e][0-9]{3}`)).Draw(t, "elements")
		byNamespace := func(elements []string) map[string][]string {
			m := map[string][]string{}
			for _, element := range elements {
				m[element[:1]] = append(m[element[:1]], element)
			}
			return m
		}
		want := byNamespace(all)
		got := slices.Collect(controllers.InTurns(all))
		if diff := cmp.Diff(want, byNamespace(got), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("elements of each namespace (-want +got):\n%s", diff)
		}
		for begin, round := 0, 0; begin < len(got); round++ {
			waiting := maps.Clone(want)
			maps.DeleteFunc(waiting, func(_ string, own []string) bool { return len(own) <= round })
			if turns := byNamespace(got[begin : begin+len(waiting)]); len(turns) != len(waiting) {
				t.Fatalf("round %d is %v", round, got[begin:begin+len(waiting)])
			}
			begin += len(waiting)
		}
		if len(all) > 0 {
			for range controllers.InTurns(all) { // which can end early
				break
			}
		}
	})
}
