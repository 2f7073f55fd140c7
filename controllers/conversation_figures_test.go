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
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil"
)

// figures are those in the status of a conversation.
type figures struct {
	Items                int64
	Input, Output, Total int64
	Model, Preview       string
}

// used returns a turn of two items that has used 10 input tokens and a number of output tokens.
func used(namespace, id, previous, model string, output int) *v1alpha1.ResponseSession {
	s := turn(namespace, id, previous)
	s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"model":"any","input":"question of ` + id + `"}`)}
	s.Spec.Response = &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"model":%q,"output":[{"type":"message","role":"assistant","content":[]}],"usage":{"input_tokens":10,"output_tokens":%d,"total_tokens":%d}}`,
		model, output, 10+output)}
	return s
}

// wantFigures waits until the status of a conversation has figures, and returns it.
func wantFigures(t *testing.T, namespace, id string, want figures) v1alpha1.ConversationStatus {
	t.Helper()
	c := &v1alpha1.Conversation{}
	testutil.Eventually(t, func(ctx context.Context) error {
		if err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, c); err != nil {
			return err
		}
		s := c.Status
		got := figures{Items: s.Items, Model: s.Model, Preview: s.Preview}
		if s.Usage != nil {
			got.Input, got.Output, got.Total = s.Usage.InputTokens, s.Usage.OutputTokens, s.Usage.TotalTokens
		}
		if diff := cmp.Diff(want, got); diff != "" || s.ObservedGeneration != c.Generation {
			return fmt.Errorf("figures of %s at generation %d of %d (-want +got):\n%s", id, s.ObservedGeneration, c.Generation, diff)
		}
		return nil
	})
	return c.Status
}

// TestFigures follows the figures of a conversation through its turns, a rollback, a fork, an overwritten turn, and a history that breaks.
func TestFigures(t *testing.T) {
	ns := env.NewNamespace(t)
	two := figures{Items: 4, Input: 20, Output: 3, Total: 23, Model: "m2", Preview: "question of a"}
	three := figures{Items: 6, Input: 30, Output: 6, Total: 36, Model: "m3", Preview: "question of a"}
	create(t, used(ns, "a", "", "m1", 1), used(ns, "b", "a", "m2", 2))
	converse(t, ns, "conv", endsAt("b"))
	revision := wantFigures(t, ns, "conv", two).HistoryRevision

	setHead(t, ns, "conv", reserve("c", "b"))
	if got := wantFigures(t, ns, "conv", two).HistoryRevision; got != revision {
		t.Errorf("a reservation changes the revision from %q to %q", revision, got)
	}
	create(t, used(ns, "c", "b", "m3", 3))
	wantFigures(t, ns, "conv", three)
	converse(t, ns, "fork", endsAt("c"))
	wantFigures(t, ns, "fork", three)

	setHead(t, ns, "conv", endsAt("b"))
	if got := wantFigures(t, ns, "conv", two).HistoryRevision; got != revision {
		t.Errorf("the revision is %q after a rollback, and was %q before the turn", got, revision)
	}
	setHead(t, ns, "conv", endsAt("c"))
	wantFigures(t, ns, "conv", three)

	overwrite(t, ns, "b", `{"response":{"output":[],"usage":{"output_tokens":100}}}`)
	changed := figures{Items: 5, Input: 30, Output: 104, Total: 36, Model: "m3", Preview: "question of a"}
	for _, id := range []string{"conv", "fork"} { // a turn counts as it was when it was added
		setHead(t, ns, id, endsAt("a"))
		wantFigures(t, ns, id, figures{Items: 2, Input: 10, Output: 1, Total: 11, Model: "m1", Preview: "question of a"})
		setHead(t, ns, id, endsAt("c"))
		wantFigures(t, ns, id, changed)
	}

	hide(t, ns, "fork", v1alpha1.HiddenItem{ResponseID: "a", Number: 0})
	hidden := changed
	hidden.Preview = "question of b"
	wantFigures(t, ns, "fork", hidden)
	overwrite(t, ns, "c", `{"responseStatus":"in_progress"}`)
	wantHistories(t, ns, map[string]history{"conv": pendingHistory(3), "fork": pendingHistory(3)})
	wantFigures(t, ns, "fork", hidden)
	hide(t, ns, "fork", v1alpha1.HiddenItem{ResponseID: "a", Number: 0}, v1alpha1.HiddenItem{ResponseID: "b", Number: 0})
	without := changed
	without.Preview = "" // another item is hidden than in the figures
	wantFigures(t, ns, "fork", without)
	overwrite(t, ns, "c", `{"responseStatus":"completed"}`)
	hidden.Preview = "question of c"
	wantFigures(t, ns, "fork", hidden)
	hide(t, ns, "fork")
	wantFigures(t, ns, "fork", changed)

	overwrite(t, ns, "a", `{"responseStatus":"failed"}`)
	wantHistories(t, ns, map[string]history{
		"conv": brokenHistory(v1alpha1.ReasonTurnNotCompleted, 3), "fork": brokenHistory(v1alpha1.ReasonTurnNotCompleted, 3),
	})
	wantFigures(t, ns, "conv", changed)
	setHead(t, ns, "conv", `{"headResponseID":null}`)
	wantFigures(t, ns, "conv", figures{})
	overwrite(t, ns, "a", `{"responseStatus":"completed"}`)
	wantHistories(t, ns, map[string]history{"conv": noTurns, "fork": historyOf(3)})
	wantFigures(t, ns, "fork", changed)

	remove(t, ns, "a")
	changed.Preview = ""
	wantFigures(t, ns, "fork", changed)

	// The preview returns when the history resolves again.
	create(t, used(ns, "d", "", "m1", 1), used(ns, "e", "d", "m2", 2))
	converse(t, ns, "other", endsAt("e"))
	other := figures{Items: 4, Input: 20, Output: 3, Total: 23, Model: "m2", Preview: "question of d"}
	wantFigures(t, ns, "other", other)
	setHead(t, ns, "other", endsAt("gone"))
	removed := other
	removed.Preview = ""
	wantFigures(t, ns, "other", removed)
	setHead(t, ns, "other", endsAt("e"))
	wantFigures(t, ns, "other", other)

	// A turn that was cut off can be continued, and counts.
	create(t, used(ns, "f", "", "m1", 1), used(ns, "g", "f", "m2", 2))
	overwrite(t, ns, "g", `{"responseStatus":"incomplete"}`)
	converse(t, ns, "cut", endsAt("g"))
	wantFigures(t, ns, "cut", figures{Items: 4, Input: 20, Output: 3, Total: 23, Model: "m2", Preview: "question of f"})
	remove(t, ns, "f")
	wantFigures(t, ns, "cut", figures{Items: 4, Input: 20, Output: 3, Total: 23, Model: "m2"})
}

// hide sets the hidden items of a conversation.
func hide(t *testing.T, ns, id string, items ...v1alpha1.HiddenItem) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"hiddenItems": items})
	if err != nil {
		t.Fatal(err)
	}
	setHead(t, ns, id, string(raw))
}

// TestFiguresOfLargeTurns: turns that are too large to be read at once are read in smaller parts. A turn that is too large by itself has no
// figures, and what was added before one that cannot be read is stored.
func TestFiguresOfLargeTurns(t *testing.T) {
	direct, tooLarge := throughResolve, atomic.Int64{}
	throughResolve = func(next controllers.ResolveFunc) controllers.ResolveFunc {
		return func(ctx context.Context, namespace, id string, minVersion uint64, query resolve.Query) (*resolve.Result, error) {
			end := 0
			_, _ = fmt.Sscanf(id, "large_%d", &end)
			if deadline, _ := ctx.Deadline(); time.Until(deadline) > controllers.FiguresTimeout {
				t.Error("a read may last until the end of the reconcile")
			}
			switch {
			case end > 0 && (query.Last > 3 || end-query.Last < 7 && end >= 7):
				tooLarge.Add(1)
				return nil, resolve.ErrTooLarge
			case end == 20:
				return nil, context.DeadlineExceeded
			}
			return next(ctx, namespace, id, minVersion, query)
		}
	}
	restartOperator(t, func() {})
	defer func() {
		throughResolve = direct
		restartOperator(t, func() {})
	}()
	ns := env.NewNamespace(t)
	const turns = 20
	previous, verdicts := "", map[string]verdict{}
	for i := range turns {
		id := fmt.Sprint("large_", i+1)
		create(t, used(ns, id, previous, "m", 1))
		previous, verdicts[id] = id, resolved(int32(i+1), "large_1")
	}
	wantVerdicts(t, ns, verdicts)
	converse(t, ns, "conv", endsAt(previous))
	added := int64(turns - 2) // without the 7th and the last one
	wantFigures(t, ns, "conv", figures{Items: 2 * added, Input: 10 * added, Output: added, Total: 11 * added, Model: "m", Preview: "question of large_1"})
	if got := tooLarge.Load(); got > 5 {
		t.Errorf("%d reads were too large", got)
	}
}

// TestLongFigures: a history is read in steps, and a restart writes nothing.
func TestLongFigures(t *testing.T) {
	ns := env.NewNamespace(t)
	const turns = 150
	previous := ""
	for i := range turns {
		id := fmt.Sprint("t", i)
		create(t, used(ns, id, previous, "m", 1))
		previous = id
	}
	converse(t, ns, "conv", endsAt(previous))
	want := figures{Items: 2 * turns, Input: 10 * turns, Output: turns, Total: 11 * turns, Model: "m", Preview: "question of t0"}
	before := wantFigures(t, ns, "conv", want)
	restartOperator(t, func() {})
	create(t, used(ns, "marker", "", "m", 1))
	converse(t, ns, "marker", endsAt("marker"))
	wantFigures(t, ns, "marker", figures{Items: 2, Input: 10, Output: 1, Total: 11, Model: "m", Preview: "question of marker"})
	if diff := cmp.Diff(before, wantFigures(t, ns, "conv", want)); diff != "" || statusWrites(ns, "conv") != 0 {
		t.Errorf("the restart made %d writes (-before +after):\n%s", statusWrites(ns, "conv"), diff)
	}
}
