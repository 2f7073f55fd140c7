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

package sessions

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/catena-dev/catena/internal/chain"
)

func TestMetrics(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	add(s, object("a", "", 1))
	add(s, object("b", "gone", 2))
	add(s, object("c", "b", 3))
	problems, err := testutil.CollectAndLint(v)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	want := `
# HELP catena_sessions Number of ResponseSessions by the reason of their ChainValid condition. Every replica reports all of them.
# TYPE catena_sessions gauge
catena_sessions{reason="CycleDetected"} 0
catena_sessions{reason="DepthExceeded"} 0
catena_sessions{reason="NameMismatch"} 0
catena_sessions{reason="ParentNotFound"} 2
catena_sessions{reason="Resolved"} 1
catena_sessions{reason="SnapshotUnreadable"} 0
catena_sessions{reason="TurnIncomplete"} 0
catena_sessions{reason="TurnNotCompleted"} 0
catena_sessions{reason="TurnPending"} 0
`
	if err := testutil.CollectAndCompare(v, strings.NewReader(want), "catena_sessions"); err != nil {
		t.Error(err)
	}
}
