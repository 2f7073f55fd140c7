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

package chain

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// graph is the reference implementation: it stores only the turns.
type graph map[string]Turn

// valueOf returns a value of these tests, the number-th of a turn.
func valueOf(turn Turn, number int) string {
	return fmt.Sprintf("%s/%d/%s", turn.Previous, number, turn.ID)
}

// numberOf returns the number of a value, and namesOf the IDs.
func numberOf(value string) int {
	number, _ := strconv.Atoi(strings.Split(value, "/")[1])
	return number
}

func namesOf(value string) (id, previous string) {
	parts := strings.Split(value, "/")
	return parts[2], parts[0]
}

// identityOf is the identity of a value: another number is another turn.
func identityOf(value string) uint64 {
	_, identifying, _ := strings.Cut(value, "/")
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(identifying))
	return sum.Sum64()
}

func (g graph) get(_ context.Context, id string) (Turn, bool, error) {
	turn, found := g[id]
	return turn, found, nil
}

// verdict computes the expected verdict on a turn with the walk alone.
func (g graph) verdict(t interface{ Fatalf(string, ...any) }, id string, maxDepth int, values map[string]string) Verdict {
	_, err := Walk(context.Background(), id, g.get, WalkOptions{MaxDepth: maxDepth}) //nolint:forbidigo // rapid has no context
	v := Verdict{Rule: Resolved}
	if err != nil {
		chainErr, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("Walk(%q): %v", id, err)
		}
		v.Rule, v.BrokenAt = chainErr.Rule, chainErr.ResponseID
	}
	turns, err := Walk(context.Background(), id, ignoringStatus(g), WalkOptions{MaxDepth: len(g) + 1}) //nolint:forbidigo // as above
	if err == nil {
		v.Depth, v.Root = len(turns), turns[0].ID
	}
	chainErr, _ := errors.AsType[*Error](err)
	v.OnCycle = chainErr != nil && chainErr.Rule == CycleDetected && chainErr.ResponseID == id
	readable := WalkOptions{MaxDepth: len(g) + 1, ContinueIncomplete: true}
	turns, err = Walk(context.Background(), id, g.get, readable) //nolint:forbidigo // as above
	if err == nil {
		for _, turn := range turns {
			v.Lineage = Lineage(v.Lineage, identityOf(values[turn.ID]))
		}
	}
	return v
}

// onCycle returns a function that reports whether a turn is on a cycle.
func (g graph) onCycle(t interface{ Fatalf(string, ...any) }) func(Turn) bool {
	return func(turn Turn) bool { return g.verdict(t, turn.ID, len(g)+1, nil).OnCycle }
}

func ignoringStatus(g graph) Getter {
	return func(_ context.Context, id string) (Turn, bool, error) {
		turn, found := g[id]
		return Turn{ID: turn.ID, Previous: turn.Previous, Status: completed}, found, nil
	}
}

func (g graph) verdicts(t interface{ Fatalf(string, ...any) }, maxDepth int, values map[string]string) map[string]Verdict {
	verdicts := map[string]Verdict{}
	for id := range g {
		verdicts[id] = g.verdict(t, id, maxDepth, values)
	}
	return verdicts
}

// TestIndexEqualsWalk drives random graphs through the index: forks, cycles, self-parents, parents that are missing,
// come, go and return with another parent, other turns with the same ID, and changes of status. After each change, every verdict must equal that of
// the walk, and the turns reported as changed must be exactly those whose verdict differs from before.
func TestIndexEqualsWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxDepth := rapid.IntRange(0, 8).Draw(t, "maxDepth")
		ids := rapid.IntRange(1, 14).Draw(t, "ids")
		id := rapid.Map(rapid.IntRange(1, ids), func(i int) string { return fmt.Sprintf("t%d", i) })
		previous := rapid.OneOf(rapid.Just(""), id, id, id)
		status := rapid.SampledFrom([]string{
			"completed", "completed", "completed", "completed", "queued", "in_progress", "failed", "cancelled", "strange", "incomplete",
		})

		g, values := graph{}, map[string]string{}
		x := NewIndex(maxDepth, identityOf, namesOf)
		before := map[string]Verdict{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var changed []string
			turn := Turn{ID: id.Draw(t, "id")}
			old, exists := g[turn.ID]
			switch rapid.IntRange(0, 9).Draw(t, "action") {
			case 0, 1:
				delete(g, turn.ID)
				changed = x.Delete(turn.ID)
			case 2, 3:
				turn.Previous = old.Previous
				fallthrough
			default:
				if !exists || turn.Previous == "" {
					turn.Previous = previous.Draw(t, "previous")
				}
				turn.Status = status.Draw(t, "status")
				turn.Unreadable = rapid.IntRange(0, 9).Draw(t, "unreadable") == 0
				number := 0
				if exists {
					number = numberOf(values[turn.ID])
				}
				if !exists || rapid.IntRange(0, 4).Draw(t, "replaced") == 0 {
					number = rapid.IntRange(0, 2).Draw(t, "number")
				}
				g[turn.ID], values[turn.ID] = turn, valueOf(turn, number)
				changed = x.Set(turn, values[turn.ID])
			}
			before = checkIndex(t, g, values, x, maxDepth, before, changed)
		}
	})
}

func checkIndex(
	t *rapid.T, g graph, values map[string]string, x *Index[string], maxDepth int, before map[string]Verdict, changed []string,
) map[string]Verdict {
	after := g.verdicts(t, maxDepth, values)
	var wantChanged, all []string
	wantCounts := map[Rule]int{}
	for id, want := range after {
		got, found := x.Verdict(id)
		if diff := cmp.Diff(want, got); !found || diff != "" {
			t.Fatalf("verdict of %s, found %t (-walk +index):\n%s", id, found, diff)
		}
		if old, existed := before[id]; !existed || old != want {
			wantChanged = append(wantChanged, values[id])
		}
		if value, _ := x.Get(id); value != values[id] {
			t.Fatalf("value of %s is %q, want %q", id, value, values[id])
		}
		wantCounts[want.Rule]++
		checkPath(t, g, values, x, id, maxDepth)
		checkSince(t, x, id, after, want)
		checkChildren(t, g, values, x, id)
		all = append(all, values[id])
	}
	slices.Sort(wantChanged)
	slices.Sort(changed)
	if diff := cmp.Diff(wantChanged, changed); diff != "" {
		t.Fatalf("changed turns (-want +got):\n%s", diff)
	}
	for broken, count := range x.Counts {
		if count != wantCounts[broken] {
			t.Fatalf("%d turns have reason %s, want %d", count, broken, wantCounts[broken])
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(all)), slices.Sorted(x.All)); diff != "" {
		t.Fatalf("all turns (-want +got):\n%s", diff)
	}
	if x.Len() != len(g) {
		t.Fatalf("%d turns in the index, want %d", x.Len(), len(g))
	}
	checkNodes(t, g, x)
	return after
}

// checkSince checks how many turns of a path follow each of its turns, and none.
func checkSince(t *rapid.T, x *Index[string], id string, verdicts map[string]Verdict, v Verdict) {
	if v.Lineage == 0 {
		return
	}
	for _, value := range x.Path(id, WalkOptions{MaxDepth: v.Depth}) {
		first := verdicts[value[strings.LastIndex(value, "/")+1:]]
		if got := x.Since(id, first.Lineage, v.Depth); got != v.Depth-first.Depth {
			t.Fatalf("%d turns follow the first %d of the %d of %s", got, first.Depth, v.Depth, id)
		}
	}
	if got := x.Since(id, 1, 1); got != v.Depth {
		t.Fatalf("%d turns follow none of the %d of %s", got, v.Depth, id)
	}
}

func checkPath(t *rapid.T, g graph, values map[string]string, x *Index[string], id string, maxDepth int) {
	for _, options := range []WalkOptions{
		{MaxDepth: maxDepth}, {MaxDepth: maxDepth, ContinueIncomplete: true},
		{MaxDepth: maxDepth, Last: 1}, {MaxDepth: maxDepth, Last: 3}, {MaxDepth: maxDepth, Last: 3, ContinueIncomplete: true},
	} {
		turns, err := Walk(context.Background(), id, g.get, options) //nolint:forbidigo // as above
		var want []string
		if err == nil {
			for _, turn := range turns {
				want = append(want, values[turn.ID])
			}
		}
		got := x.Path(id, options)
		if got == nil && options.Last > 0 && slices.ContainsFunc(turns, g.onCycle(t)) {
			continue // Walk has passed a part of a cycle
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("path of %s with %+v (-walk +index):\n%s", id, options, diff)
		}
	}
}

func checkChildren(t *rapid.T, g graph, values map[string]string, x *Index[string], id string) {
	var want []string
	for _, turn := range g {
		if turn.Previous == id {
			want = append(want, values[turn.ID])
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(x.Children(id))); diff != "" {
		t.Fatalf("children of %s (-want +got):\n%s", id, diff)
	}
}

// checkNodes checks that the index keeps no node that nothing refers to.
func checkNodes(t *rapid.T, g graph, x *Index[string]) {
	want := map[string]bool{}
	for _, turn := range g {
		want[turn.ID] = true
		if turn.Previous != "" {
			want[turn.Previous] = true
		}
	}
	for id := range x.nodes {
		if !want[id] {
			t.Fatalf("node %s is still in the index", id)
		}
	}
}

// newTurns returns an index whose values are the turns themselves.
func newTurns(maxDepth int) *Index[Turn] {
	return NewIndex(maxDepth, func(Turn) uint64 { return 0 }, func(turn Turn) (id, previous string) { return turn.ID, turn.Previous })
}

// TestIndexLongChains checks that nothing recurses: 100,000 turns in a row, and as one cycle, broken and repaired.
func TestIndexLongChains(t *testing.T) {
	const turns = 100_000
	id := func(i int) string { return fmt.Sprintf("t%d", i) }
	set := func(x *Index[Turn], i int, previous string) []Turn {
		turn := Turn{ID: id(i), Previous: previous, Status: "completed"}
		return x.Set(turn, turn)
	}
	build := func(root string) *Index[Turn] {
		x := newTurns(2 * turns)
		set(x, 0, root)
		for i := 1; i < turns; i++ {
			set(x, i, id(i-1))
		}
		return x
	}
	tests := map[string]struct {
		rootsParent string
		wantRule    Rule
		wantDepth   int
	}{
		"chain": {wantRule: Resolved, wantDepth: turns},
		"cycle": {rootsParent: id(turns - 1), wantRule: CycleDetected},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := build(tc.rootsParent)
			if changed := x.Delete(id(0)); len(changed) != turns-1 {
				t.Errorf("%d verdicts changed when the first turn was deleted, want %d", len(changed), turns-1)
			}
			if changed := set(x, 0, tc.rootsParent); len(changed) != turns {
				t.Errorf("%d verdicts changed when the first turn was added again, want %d", len(changed), turns)
			}
			got, _ := x.Verdict(id(turns - 1))
			if got.Rule != tc.wantRule || got.Depth != tc.wantDepth {
				t.Errorf("the last turn is %+v, want %s with depth %d", got, tc.wantRule, tc.wantDepth)
			}
		})
	}
}
