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
	"testing"

	"github.com/google/go-cmp/cmp"
)

const completed = StatusCompleted

// row returns a chain of turns t1 (the root) to tn.
func row(n int) graph {
	g := graph{}
	for i := 1; i <= n; i++ {
		g.add(fmt.Sprintf("t%d", i), fmt.Sprintf("t%d", i-1), completed)
	}
	g.add("t1", "", completed)
	return g
}

func (g graph) add(id, previous, status string) graph {
	g[id] = Turn{ID: id, Previous: previous, Status: status}
	return g
}

// The names of the cases begin with the statement about GodeX's chain walk that they test: G1 to G12.
func TestWalk(t *testing.T) {
	cycle := graph{}.add("a", "b", completed).add("b", "a", completed)
	self := graph{}.add("a", "a", completed)
	cutAt65 := row(64).add("t1", "t0", completed)

	tests := map[string]struct {
		graph                                                    graph
		id                                                       string
		maxDepth, last                                           int
		continueIncomplete, includeIncomplete, includeUnreadable bool
		want                                                     []string
		wantErr                                                  *Error
	}{
		"G1 oldest first":           {graph: row(3), id: "t3", maxDepth: 64, want: []string{"t1", "t2", "t3"}},
		"G1 from the middle":        {graph: row(3), id: "t2", maxDepth: 64, want: []string{"t1", "t2"}},
		"G3 64 turns":               {graph: row(64), id: "t64", maxDepth: 64, want: ids(64)},
		"G3 65 turns":               {graph: row(65), id: "t65", maxDepth: 64, wantErr: &Error{Rule: DepthExceeded, ResponseID: "t1", PreviousResponseID: "t65", MaxDepth: 64}},
		"G4 depth 0":                {graph: row(1), id: "t1", wantErr: &Error{Rule: DepthExceeded, ResponseID: "t1", PreviousResponseID: "t1"}},
		"G4 depth 0, missing turn":  {graph: row(1), id: "nope", wantErr: &Error{Rule: DepthExceeded, ResponseID: "nope", PreviousResponseID: "nope"}},
		"G5 2-cycle, depth 2":       {graph: cycle, id: "a", maxDepth: 2, wantErr: &Error{Rule: DepthExceeded, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 2}},
		"G5 2-cycle, depth 3":       {graph: cycle, id: "a", maxDepth: 3, wantErr: &Error{Rule: CycleDetected, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 3}},
		"G5 2-cycle, default depth": {graph: cycle, id: "b", maxDepth: DefaultMaxDepth, wantErr: &Error{Rule: CycleDetected, ResponseID: "b", PreviousResponseID: "b", MaxDepth: DefaultMaxDepth}},
		"G5 self-cycle, depth 1":    {graph: self, id: "a", maxDepth: 1, wantErr: &Error{Rule: DepthExceeded, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 1}},
		"G5 self-cycle, depth 2":    {graph: self, id: "a", maxDepth: 2, wantErr: &Error{Rule: CycleDetected, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 2}},
		"G5 tail of a cycle":        {graph: row(0).add("c", "a", completed).add("a", "b", completed).add("b", "a", completed), id: "c", maxDepth: 64, wantErr: &Error{Rule: CycleDetected, ResponseID: "a", PreviousResponseID: "c", MaxDepth: 64}},
		"G6 depth before missing":   {graph: cutAt65, id: "t64", maxDepth: 64, wantErr: &Error{Rule: DepthExceeded, ResponseID: "t0", PreviousResponseID: "t64", MaxDepth: 64}},
		"G6 missing within depth":   {graph: cutAt65, id: "t64", maxDepth: 65, wantErr: &Error{Rule: ParentNotFound, ResponseID: "t0", PreviousResponseID: "t64", MaxDepth: 65}},
		"G7 cycle before status":    {graph: graph{}.add("a", "a", "failed"), id: "a", maxDepth: 64, includeIncomplete: true, wantErr: &Error{Rule: CycleDetected, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64}},
		"G8 missing turn":           {graph: row(1), id: "nope", maxDepth: 64, wantErr: &Error{Rule: NotFound, ResponseID: "nope", PreviousResponseID: "nope", MaxDepth: 64}},
		"G8 missing ancestor":       {graph: row(2).add("t1", "t0", completed), id: "t2", maxDepth: 64, wantErr: &Error{Rule: ParentNotFound, ResponseID: "t0", PreviousResponseID: "t2", MaxDepth: 64}},
		"G9 incomplete ancestor":    {graph: row(3).add("t1", "", "incomplete"), id: "t3", maxDepth: 64, wantErr: &Error{Rule: TurnIncomplete, ResponseID: "t1", PreviousResponseID: "t3", MaxDepth: 64, Status: "incomplete"}},
		"incomplete continued":      {graph: row(3).add("t1", "", "incomplete"), id: "t3", maxDepth: 64, continueIncomplete: true, want: []string{"t1", "t2", "t3"}},
		"failed, continued":         {graph: row(3).add("t2", "t1", "failed"), id: "t3", maxDepth: 64, continueIncomplete: true, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "t2", PreviousResponseID: "t3", MaxDepth: 64, Status: "failed"}},
		"pending, continued":        {graph: row(3).add("t2", "t1", "in_progress"), id: "t3", maxDepth: 64, continueIncomplete: true, wantErr: &Error{Rule: TurnPending, ResponseID: "t2", PreviousResponseID: "t3", MaxDepth: 64, Status: "in_progress"}},
		"unreadable, continued":     {graph: graph{"a": {ID: "a", Status: "incomplete", Unreadable: true}}, id: "a", maxDepth: 64, continueIncomplete: true, wantErr: &Error{Rule: SnapshotUnreadable, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: "incomplete"}},
		"G9 queued turn":            {graph: row(1).add("t1", "", "queued"), id: "t1", maxDepth: 64, wantErr: &Error{Rule: TurnPending, ResponseID: "t1", PreviousResponseID: "t1", MaxDepth: 64, Status: "queued"}},
		"G9 unknown status":         {graph: row(1).add("t1", "", "Completed"), id: "t1", maxDepth: 64, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "t1", PreviousResponseID: "t1", MaxDepth: 64, Status: "Completed"}},
		"G9 status before missing":  {graph: graph{}.add("a", "gone", "failed"), id: "a", maxDepth: 64, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: "failed"}},
		"G10 incomplete included":   {graph: row(2).add("t1", "", "failed").add("t2", "t1", "in_progress"), id: "t2", maxDepth: 64, includeIncomplete: true, want: []string{"t1", "t2"}},
		"G10 depth still guarded":   {graph: row(3).add("t3", "t2", "failed"), id: "t3", maxDepth: 2, includeIncomplete: true, wantErr: &Error{Rule: DepthExceeded, ResponseID: "t1", PreviousResponseID: "t3", MaxDepth: 2}},
		"G10 missing still guarded": {graph: graph{}.add("a", "gone", "failed"), id: "a", maxDepth: 64, includeIncomplete: true, wantErr: &Error{Rule: ParentNotFound, ResponseID: "gone", PreviousResponseID: "a", MaxDepth: 64}},
		"G11 empty ID":              {graph: row(1), maxDepth: 64},
		"G11 empty ID, depth 0":     {graph: row(1)},
		"unreadable":                {graph: graph{"a": {ID: "a", Status: completed, Unreadable: true}}, id: "a", maxDepth: 64, wantErr: &Error{Rule: SnapshotUnreadable, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: completed}},
		"unreadable, included":      {graph: graph{"a": {ID: "a", Status: "failed", Unreadable: true}}, id: "a", maxDepth: 64, includeIncomplete: true, wantErr: &Error{Rule: SnapshotUnreadable, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: "failed"}},
		"unreadable, accepted":      {graph: graph{"a": {ID: "a", Status: completed, Unreadable: true}}, id: "a", maxDepth: 64, includeUnreadable: true, want: []string{"a"}},
		"failed, unreadable":        {graph: graph{"a": {ID: "a", Status: "failed", Unreadable: true}}, id: "a", maxDepth: 64, includeUnreadable: true, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: "failed"}},
		"status before unreadable":  {graph: graph{"a": {ID: "a", Status: "failed", Unreadable: true}}, id: "a", maxDepth: 64, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64, Status: "failed"}},
		"last":                      {graph: row(100), id: "t100", maxDepth: 2, last: 2, want: []string{"t99", "t100"}},
		"last, more than all":       {graph: row(3), id: "t3", maxDepth: 64, last: 4, want: []string{"t1", "t2", "t3"}},
		"last, more than the depth": {graph: row(4), id: "t4", maxDepth: 2, last: 3, wantErr: &Error{Rule: DepthExceeded, ResponseID: "t2", PreviousResponseID: "t4", MaxDepth: 2}},
		"last, before a missing":    {graph: row(3).add("t2", "t0", completed), id: "t3", maxDepth: 64, last: 2, want: []string{"t2", "t3"}},
		"last, before a failed":     {graph: row(3).add("t1", "", "failed"), id: "t3", maxDepth: 64, last: 2, want: []string{"t2", "t3"}},
		"last, with a failed":       {graph: row(3).add("t2", "t1", "failed"), id: "t3", maxDepth: 64, last: 2, wantErr: &Error{Rule: TurnNotCompleted, ResponseID: "t2", PreviousResponseID: "t3", MaxDepth: 64, Status: "failed"}},
		"last, round a cycle":       {graph: cycle, id: "a", maxDepth: 64, last: 3, wantErr: &Error{Rule: CycleDetected, ResponseID: "a", PreviousResponseID: "a", MaxDepth: 64}},
		"last, part of a cycle":     {graph: cycle, id: "a", maxDepth: 64, last: 2, want: []string{"b", "a"}},
		"G30 fork":                  {graph: row(2).add("fork", "t1", completed), id: "fork", maxDepth: 64, want: []string{"t1", "fork"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			turns, err := Walk(t.Context(), tc.id, tc.graph.get, WalkOptions{
				MaxDepth: tc.maxDepth, Last: tc.last, ContinueIncomplete: tc.continueIncomplete, IncludeIncomplete: tc.includeIncomplete,
				IncludeUnreadable: tc.includeUnreadable,
			})
			var got []string
			for _, turn := range turns {
				got = append(got, turn.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			gotErr, _ := errors.AsType[*Error](err)
			if diff := cmp.Diff(tc.wantErr, gotErr); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func ids(n int) []string {
	var ids []string
	for i := 1; i <= n; i++ {
		ids = append(ids, fmt.Sprintf("t%d", i))
	}
	return ids
}

// TestWalkFetches checks the order of the rules (G2) by the turns fetched: none beyond the depth, none twice.
func TestWalkFetches(t *testing.T) {
	tests := map[string]struct {
		graph    graph
		maxDepth int
		want     []string
	}{
		"within depth":  {graph: row(3), maxDepth: 3, want: []string{"t3", "t2", "t1"}},
		"beyond depth":  {graph: row(3), maxDepth: 2, want: []string{"t3", "t2"}},
		"cycle":         {graph: row(3).add("t1", "t3", completed), maxDepth: 64, want: []string{"t3", "t2", "t1"}},
		"not completed": {graph: row(3).add("t2", "t1", "failed"), maxDepth: 64, want: []string{"t3", "t2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			get := func(ctx context.Context, id string) (Turn, bool, error) {
				got = append(got, id)
				return tc.graph.get(ctx, id)
			}
			if _, err := Walk(t.Context(), "t3", get, WalkOptions{MaxDepth: tc.maxDepth}); err != nil {
				t.Log(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fetched (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWalkStops(t *testing.T) {
	errBackend := errors.New("the backend is unavailable")
	failing := func(context.Context, string) (Turn, bool, error) { return Turn{}, false, errBackend }
	if _, err := Walk(t.Context(), "t1", failing, WalkOptions{MaxDepth: 1}); !errors.Is(err, errBackend) {
		t.Errorf("error is %v, want the error of the getter", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	canceling := func(ctx context.Context, id string) (Turn, bool, error) {
		cancel()
		return row(3).get(ctx, id)
	}
	if _, err := Walk(ctx, "t3", canceling, WalkOptions{MaxDepth: 64}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the error of the context", err)
	}
}
