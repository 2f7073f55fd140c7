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
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestFlappingRoot: a root that fails and completes again and again causes no more status writes than its namespace's limit
// permits, other namespaces do not wait for it, and in the end every verdict is right.
func TestFlappingRoot(t *testing.T) {
	// A status costs four seconds: if waiting sessions tried again much sooner, settle would see no pause.
	limitStatuses(t, controllers.StatusLimits{RewritesPerSecond: 0.25, RewriteBytesPerSecond: 1e12, ValuesPerSecond: 1e12})
	const children = 5
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	create(t, turn(ns, "root"))
	for i := range children {
		create(t, turn(ns, fmt.Sprintf("child-%d", i), "root"))
	}
	settle(t, ns)
	before := childWrites(ns)
	overwrite(t, ns, "root", `{"responseStatus":"failed"}`)
	for range 10 {
		overwrite(t, ns, "root", `{"responseStatus":"completed"}`)
		overwrite(t, ns, "root", `{"responseStatus":"failed"}`)
	}
	create(t, turn(other, "a"))
	settle(t, other)
	wantVerdicts(t, other, map[string]verdict{"a": resolved(1, "a")})
	if got := childWrites(ns) - before; got != 0 {
		t.Errorf("%d statuses were rewritten at once, want none", got)
	}

	want := map[string]verdict{"root": broken(v1alpha1.ReasonTurnNotCompleted, "root")}
	testutil.Eventually(t, func(context.Context) error {
		op.clock.SetTime(op.clock.Now().Add(4 * time.Second)) // for one status
		if got := childWrites(ns) - before; got != children {
			return fmt.Errorf("%d statuses were rewritten, want %d: once for each child", got, children)
		}
		return nil
	})
	for i := range children {
		want[fmt.Sprintf("child-%d", i)] = brokenIn(v1alpha1.ReasonTurnNotCompleted, "root", 2, "root")
	}
	want["root"] = brokenIn(v1alpha1.ReasonTurnNotCompleted, "root", 1, "root")
	settle(t, ns)
	wantVerdicts(t, ns, want)
}

// limitStatuses restarts the operator with limits for the rest of the test.
func limitStatuses(t *testing.T, limits controllers.StatusLimits) {
	t.Helper()
	usual := statuses
	statuses = limits
	restartOperator(t, func() {})
	t.Cleanup(func() {
		statuses = usual
		restartOperator(t, func() {})
	})
}

// childWrites returns how many statuses of children were written in a namespace.
func childWrites(namespace string) (statuses int) {
	for _, write := range op.writes.sessions(namespace) {
		if strings.HasPrefix(write, "child-") && strings.HasSuffix(write, "/status") {
			statuses++
		}
	}
	return statuses
}

// TestFlappingSettles: even without a rate limit, the statuses of the descendants of a root that fails and completes again and
// again are rewritten only when it has settled.
func TestFlappingSettles(t *testing.T) {
	limits := statuses
	limits.RewriteHold = 16 * time.Second // so that the root must not change for 0.25 to 2 seconds
	limitStatuses(t, limits)
	const children, flips = 20, 31
	ns := env.NewNamespace(t)
	create(t, turn(ns, "root"))
	want := map[string]verdict{"root": brokenIn(v1alpha1.ReasonTurnNotCompleted, "root", 1, "root")}
	for i := range children {
		name := fmt.Sprint("child-", i)
		create(t, turn(ns, name, "root"))
		want[name] = brokenIn(v1alpha1.ReasonTurnNotCompleted, "root", 2, "root")
	}
	settle(t, ns)
	before := childWrites(ns)
	for i := range flips {
		overwrite(t, ns, "root", fmt.Sprintf(`{"responseStatus":%q}`, []string{"failed", "completed"}[i%2]))
	}
	wantVerdicts(t, ns, want)
	// The children are rewritten at once, at the end, and whenever this test is interrupted for longer than the root must not change.
	if got := childWrites(ns) - before; got > 5*children {
		t.Errorf("%d statuses of %d children were rewritten", got, children)
	}
}

// TestRewriteBytes: each rewrite counts with the size of the whole object, whichever part of it is large.
func TestRewriteBytes(t *testing.T) {
	limitStatuses(t, controllers.StatusLimits{RewritesPerSecond: 1e6, RewriteBytesPerSecond: 25 << 10, ValuesPerSecond: 1e12})
	const children, bytes = 5, 100 << 10 // an object counts for a little more than four seconds
	ns := env.NewNamespace(t)
	create(t, turn(ns, "root"))
	for i := range children {
		child := turn(ns, fmt.Sprint("child-", i), "root")
		child.Annotations = map[string]string{"example.com/large": strings.Repeat("x", bytes)}
		create(t, child)
	}
	settle(t, ns)
	overwrite(t, ns, "root", `{"responseStatus":"failed"}`)
	for rewritten := range 3 { // none at once
		check := func(context.Context) error {
			broken := 0
			for _, s := range list(t, client.InNamespace(ns)) {
				if verdictOf(&s).Reason == v1alpha1.ReasonTurnNotCompleted {
					broken++
				}
			}
			if broken != rewritten+1 {
				return fmt.Errorf("%d verdicts are rewritten, want %d children and the root", broken, rewritten)
			}
			return nil
		}
		testutil.Eventually(t, check)
		settle(t, ns)
		if err := check(t.Context()); err != nil {
			t.Error(err)
		}
		op.clock.SetTime(op.clock.Now().Add(4400 * time.Millisecond))
	}
}

// TestLateParent: if a parent is created late, its children get their ownerReferences at the pace of rewrites, because each rewrites the
// whole object, and a new child gets its own at once.
func TestLateParent(t *testing.T) {
	usual := statuses
	limits := usual
	limits.RewriteBytesPerSecond = 1 // an object counts for many minutes
	limitStatuses(t, limits)
	const children = 5
	ns := env.NewNamespace(t)
	owned := func() (owned int) {
		for _, s := range list(t, client.InNamespace(ns)) {
			owned += len(s.OwnerReferences)
		}
		return owned
	}
	for i := range children {
		create(t, turn(ns, fmt.Sprint("child-", i), "root"))
	}
	settle(t, ns)
	create(t, turn(ns, "root"))
	settle(t, ns)
	create(t, turn(ns, "new", "root"))
	settle(t, ns)
	if got := owned(); got != 1 {
		t.Errorf("%d turns have owners, want only the new one", got)
	}
	limitStatuses(t, usual)
	settle(t, ns)
	if got := owned(); got != children+1 {
		t.Errorf("%d turns have owners, want all %d", got, children+1)
	}
}

// TestManyValues: new sessions with many JSON values wait for their writes, others of their namespace do not, and afterwards all have
// the right verdicts.
func TestManyValues(t *testing.T) {
	usual := statuses
	limits := usual
	limits.ValuesPerSecond = 1
	limitStatuses(t, limits)
	const sessions = 3
	ns := env.NewNamespace(t)
	want := map[string]verdict{"small": resolved(1, "small")}
	for i := range sessions {
		name := fmt.Sprint("many-", i)
		many := turn(ns, name)
		many.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":[{"content":[{}` + strings.Repeat(",{}", 2000) + `]}]}`)}
		create(t, many)
		want[name] = resolved(1, name)
	}
	create(t, turn(ns, "small"))
	settle(t, ns)
	judged := 0
	for _, s := range list(t, client.InNamespace(ns)) {
		if s.Status.RootResponseID != "" {
			judged++
		}
	}
	if judged != 1 {
		t.Errorf("%d sessions have verdicts, want only the small one", judged)
	}
	limitStatuses(t, usual)
	settle(t, ns)
	wantVerdicts(t, ns, want)
}
