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

package backup

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/snapshot"
)

// TestBrokenHistories: a history that was broken when it was exported is never verified. It is no error unless it is another one now. A dry
// run finds the same.
func TestBrokenHistories(t *testing.T) {
	misnamed := newTurn("other", "")
	misnamed.Name = v1alpha1.ObjectName("gone")
	cycle := []*Object{newTurn("a", "c"), newTurn("b", "a"), newTurn("c", "b"), newTurn("after", "b")}
	tests := map[string]struct {
		exported   []*Object
		unreadable []*Object // exported too, without their bodies
		existing   []*Object
		want       Imported
		wantNames  []string // of sessions with problems
	}{
		"whole":           {exported: []*Object{newTurn("a", ""), newTurn("b", "a")}, want: Imported{Sessions: Counts{Created: 2, Verified: 2}}},
		"an orphan":       {exported: []*Object{newTurn("a", "gone"), newTurn("b", "a"), newTurn("c", "")}, want: Imported{Sessions: Counts{Created: 3, Broken: 2, Verified: 1}}},
		"a cycle":         {exported: cycle, want: Imported{Sessions: Counts{Created: 4, Broken: 4}}},
		"its own parent":  {exported: []*Object{newTurn("a", "a"), newTurn("b", "")}, want: Imported{Sessions: Counts{Created: 2, Broken: 1, Verified: 1}}},
		"a wrong name":    {exported: []*Object{misnamed, newTurn("a", "gone")}, want: Imported{Sessions: Counts{Created: 2, Broken: 2}}},
		"unreadable root": {exported: []*Object{newTurn("b", "a")}, unreadable: []*Object{newTurn("a", "")}, want: Imported{Sessions: Counts{Created: 2, Broken: 2}, WithoutBodies: 1}},
		"unreadable child": {
			exported: []*Object{newTurn("a", "")}, unreadable: []*Object{newTurn("b", "a")},
			want: Imported{Sessions: Counts{Created: 2, Broken: 1, Verified: 1}, WithoutBodies: 1},
		},
		"an orphan whose parent exists": {
			exported: []*Object{newTurn("a", "gone"), newTurn("b", "a"), newTurn("c", "")}, existing: []*Object{newTurn("gone", "")},
			want: Imported{Sessions: Counts{Created: 3, Wrong: 2, Verified: 1}}, wantNames: []string{"a"},
		},
		"an orphan that exists with its parent": {
			exported: []*Object{newTurn("a", "gone")}, existing: []*Object{newTurn("gone", ""), newTurn("a", "gone")},
			want: Imported{Sessions: Counts{Equal: 1, Wrong: 1}}, wantNames: []string{"a"},
		},
		"an orphan, and another turn with the name of its parent": {
			exported: []*Object{newTurn("a", "gone")}, existing: []*Object{misnamed},
			want: Imported{Sessions: Counts{Created: 1, Broken: 1}},
		},
		"a cycle that was broken up": {
			exported: append([]*Object{newTurn("x", "y"), newTurn("y", "x")}, cycle...), existing: []*Object{newTurn("c", "")},
			want: Imported{Sessions: Counts{Created: 5, Different: 1, Wrong: 3, Broken: 2}}, wantNames: []string{"c"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api, config := newFake()
			c := openFake(t, config)
			for _, s := range tc.exported {
				api.put("from", s)
			}
			for _, s := range tc.unreadable {
				if err := withSnapshot(t.Context(), c, "from", s, snapshot.Bodies{Request: []byte("{}")}); err != nil {
					t.Fatal(err)
				}
				api.put("from", s)
			}
			maps.DeleteFunc(api.objects, func(key string, _ map[string]any) bool { return strings.HasPrefix(key, "snapshotchunks/") })
			file := export(t.Context(), t, c, "from")
			for _, s := range tc.existing {
				api.put("to", s)
			}
			for _, dryRun := range []bool{true, false} {
				found := problems(c)
				imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to", DryRun: dryRun})
				if err != nil {
					t.Fatal(err)
				}
				want := tc.want
				want.Header, want.Namespace = imported.Header, "to"
				if dryRun {
					want.Sessions.Verified = 0
				}
				if diff := cmp.Diff(&want, imported); diff != "" {
					t.Errorf("dry run %t (-want +got):\n%s", dryRun, diff)
				}
				if diff := cmp.Diff(tc.wantNames, slices.Sorted(maps.Keys(found))); diff != "" {
					t.Errorf("dry run %t: sessions with problems (-want +got):\n%s", dryRun, diff)
				}
			}
		})
	}
}
