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
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRules pins the whole table: how each broken rule appears on every surface. G17 to G20 are the wire codes of GodeX.
func TestRules(t *testing.T) {
	type row struct {
		Reason, Status string
		Code           Code
		HTTP           int
		Retryable      bool
		Sentence       string
	}
	e := Error{ResponseID: "a", PreviousResponseID: "b", MaxDepth: 64, Status: "failed", ObjectName: "a.b"}
	want := map[Rule]row{
		Resolved: {Reason: "Resolved", Status: "True", Sentence: `every turn up to the root is stored and completed`},
		DepthExceeded: {
			"DepthExceeded", "False", "session.chain.depth_exceeded", 422, false,
			`the chain of response "b" has more than 64 turns: "a" is beyond the limit, which a request can raise with maxDepth`,
		},
		CycleDetected: {
			"CycleDetected", "False", "session.chain.cycle_detected", 422, false,
			`the chain of response "b" contains a cycle: it leads back to "a"`,
		},
		NotFound:       {Code: "session.chain.not_found", HTTP: 404, Sentence: `response "a" was not found`},
		ParentNotFound: {"ParentNotFound", "False", "session.chain.not_found", 422, false, `response "a", an ancestor of "b", was not found`},
		TurnPending: {
			"TurnPending", "Unknown", "session.chain.unavailable", 409, true,
			`response "a" is "failed" and cannot be used as context until it is completed`,
		},
		TurnIncomplete: {
			"TurnIncomplete", "False", "session.chain.unavailable", 409, false,
			`response "a" is incomplete, and can be used as context only by a request with continueIncomplete`,
		},
		TurnNotCompleted: {
			"TurnNotCompleted", "False", "session.chain.unavailable", 409, false,
			`response "a" is "failed", not completed, and cannot be used as context`,
		},
		SnapshotUnreadable: {
			"SnapshotUnreadable", "False", "session.snapshot.unreadable", 422, false,
			`the snapshot of response "a" cannot be read or turned into input items`,
		},
		NameMismatch: {
			Reason: "NameMismatch", Status: "False",
			Sentence: `the object of response "a" must be named "a.b": an object with another name is not part of any chain`,
		},
	}
	got := map[Rule]row{}
	for r := range numRules {
		e.Rule = r
		got[r] = row{r.Reason(), r.ConditionStatus(), r.Code(), r.HTTPStatus(), r.Retryable(), e.Error()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}

	// Every rule except NotFound can be the verdict on a stored turn.
	delete(want, NotFound)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Collect(Reasons())); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}
