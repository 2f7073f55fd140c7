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
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// otherVersion is one that the API server does not serve. Garbage collection keeps an object with a reference to it.
const otherVersion = "sessions.catena.dev/v1beta1"

// ownerVersions returns OwnerVersions with the operator's rights. intercept may change its requests.
func ownerVersions(t *testing.T, intercept interceptor.Funcs) *controllers.OwnerVersions {
	t.Helper()
	config, err := env.ConfigFor(operatorUser, operatorGroups...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	c = interceptor.NewClient(c, intercept)
	return &controllers.OwnerVersions{Client: c, Live: c, Sessions: op.view, Chunks: op.usage.Chunks, Summaries: op.usage.Summaries, Interval: time.Minute, Clock: clock.RealClock{}}
}

// ownerIn returns the reference to a session or chunk in a version.
func ownerIn(apiVersion, kind string, owner client.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: new(true)}
}

// wantOutdated waits until the operator's views list exactly these objects as outdated.
func wantOutdated(t *testing.T, ns string, want ...string) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		var got []string
		for _, outdated := range []map[types.NamespacedName]string{op.view.Outdated(100), op.usage.Chunks.Outdated(100), op.usage.Summaries.Outdated(100)} {
			for key := range outdated {
				if key.Namespace == ns {
					got = append(got, key.Name)
				}
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("objects with outdated references (-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestOwnerVersions: references to another version of the API are rewritten if their owner exists, once, and nothing else is.
func TestOwnerVersions(t *testing.T) {
	ns := env.NewNamespace(t)
	a, chunk, conversation := turn(ns, "a"), newChunk(ns, "a", "data", ""), newConversation(ns, "a")
	createAll(t, a, chunk, conversation)
	in := func(version string) map[string][]metav1.OwnerReference {
		own, misspelt := ownerIn(version, v1alpha1.ResponseSessionKind, a), ownerIn(version, v1alpha1.ResponseSessionKind, a)
		misspelt.Name = "misspelt"
		foreign := ownerIn("example.com/v1beta1", "ResponseSession", a)
		foreign.UID = "foreign"
		foreign.BlockOwnerDeletion = nil
		return map[string][]metav1.OwnerReference{
			"child":    {own},
			"stranger": {own}, // not a's child
			"mixed":    {foreign, own},
			"piece":    {ownerIn(version, v1alpha1.SnapshotChunkKind, chunk)},
			"summary":  {ownerIn(version, v1alpha1.ConversationKind, conversation)},
			"misspelt": {misspelt},
		}
	}
	gone := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{ownerIn(otherVersion, kind, turn(ns, "gone"))}
	}
	before, want := in(otherVersion), in(v1alpha1.GroupVersion.String())
	before["orphan"], want["orphan"] = gone(v1alpha1.ResponseSessionKind), gone(v1alpha1.ResponseSessionKind)
	before["unknown"], want["unknown"] = gone("Unknown"), gone("Unknown")
	want["misspelt"] = before["misspelt"]
	before["nowhere"], want["nowhere"] = gone(v1alpha1.ResponseSessionKind), gone(v1alpha1.ResponseSessionKind)
	for _, owners := range []map[string][]metav1.OwnerReference{before, want} {
		owners["nowhere"][0].Name = "not/a name"
		for _, name := range []string{"nowhere", "orphan", "unknown"} {
			owners[name][0].UID = "gone"
		}
	}
	objects := map[string]client.Object{"piece": newChunk(ns, "b", "data", ""), "summary": newSummary(ns, "a")}
	for name := range before {
		if objects[name] == nil {
			objects[name] = turn(ns, name)
		}
		if name == "child" {
			objects[name] = turn(ns, name, "a")
		}
		objects[name].SetOwnerReferences(before[name])
		createAll(t, objects[name])
	}
	outdated := []string{"child", "misspelt", "mixed", "nowhere", "orphan", "stranger", "unknown", objects["piece"].GetName(), objects["summary"].GetName()}
	wantOutdated(t, ns, slices.Sorted(slices.Values(outdated))...)
	settle(t, ns)

	var requests atomic.Int32
	o := ownerVersions(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			requests.Add(1)
			return c.Get(ctx, key, into, options...)
		},
	})
	for range 2 {
		if failed, err := controllers.RewriteOwners(t.Context(), o); err != nil {
			t.Fatalf("%d rewrites failed: %v", failed, err)
		}
		for name, object := range objects {
			version := object.GetResourceVersion()
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[name], object.GetOwnerReferences()); diff != "" {
				t.Errorf("ownerReferences of %s (-want +got):\n%s", name, diff)
			}
			if cmp.Equal(before, want) && object.GetResourceVersion() != version {
				t.Errorf("%s was written again", name)
			}
		}
		before = want // the second pass finds nothing to do
	}
	left := []string{"misspelt", "nowhere", "orphan", "unknown"}
	wantOutdated(t, ns) // the others are settled
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	if got := sum(t, registry, "catena_outdated_owner_references", func(map[string]string) bool { return true }); int(got) != len(left) {
		t.Errorf("the metric is %g, want %d", got, len(left))
	}

	// An object whose reference cannot be rewritten is read again only if it has changed.
	requests.Store(0)
	rewrite := func(want int32) {
		t.Helper()
		if failed, err := controllers.RewriteOwners(t.Context(), o); err != nil {
			t.Fatalf("%d rewrites failed: %v", failed, err)
		}
		if got := requests.Swap(0); got != want {
			t.Errorf("%d requests, want %d", got, want)
		}
	}
	rewrite(0)
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	if err := env.Client.Patch(t.Context(), objects["orphan"], label); err != nil {
		t.Fatal(err)
	}
	settle(t, ns)
	rewrite(2) // the object and the owner
	rewrite(0)

	// The references work.
	if err := env.Client.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	wantSessions(t, ns, "misspelt", "mixed", "nowhere", "orphan", "unknown")
	for _, name := range left { // garbage collection would look for their owners forever
		if err := env.Client.Delete(t.Context(), objects[name]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnerVersionsWhileOrphaned: a reference that is removed while it is being rewritten, because the parent is deleted without its
// children, does not come back: garbage collection would delete the child.
func TestOwnerVersionsWhileOrphaned(t *testing.T) {
	ns := env.NewNamespace(t)
	parent, child := turn(ns, "a"), turn(ns, "b", "a")
	createAll(t, parent)
	child.OwnerReferences = []metav1.OwnerReference{ownerIn(otherVersion, v1alpha1.ResponseSessionKind, parent)}
	child.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"} // the operator must not add another
	createAll(t, child)
	wantOutdated(t, ns, "b")
	o := ownerVersions(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			orphan := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`))
			if err := env.Client.Patch(ctx, turn(ns, "b"), orphan); err != nil {
				return err
			}
			if err := env.Client.Delete(ctx, parent); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	if failed, err := controllers.RewriteOwners(t.Context(), o); err != nil {
		t.Fatalf("%d rewrites failed: %v", failed, err)
	}
	wantOwned(t, ns, map[string]string{})
	wantOutdated(t, ns)
	wantSessions(t, ns, "b")
}

// TestOwnerVersionsFail: a failed rewrite does not prevent the others, but a request that times out ends the pass.
func TestOwnerVersionsFail(t *testing.T) {
	ns := env.NewNamespace(t)
	parent := turn(ns, "a")
	createAll(t, parent)
	names := []string{"b", "c", "d", "e", "f", "g", "h", "i"}
	for _, name := range names {
		child := testsession.Make(ns, name).OwnedBy(parent).Obj()
		child.OwnerReferences[0].APIVersion = otherVersion
		createAll(t, child)
	}
	wantOutdated(t, ns, names...)
	refused := errors.New("refused")
	failures := func() float64 {
		return sum(t, metrics.Registry, "catena_owner_reference_failures_total", func(map[string]string) bool { return true })
	}
	for want, answer := range map[int]error{len(names): refused, 1: context.DeadlineExceeded} {
		var requests atomic.Int32
		o := ownerVersions(t, interceptor.Funcs{
			Patch: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
				if requests.Add(1) > 1 && errors.Is(answer, context.DeadlineExceeded) {
					<-ctx.Done() // it must be canceled
					return ctx.Err()
				}
				return answer
			},
		})
		before := failures()
		failed, err := controllers.RewriteOwners(t.Context(), o)
		if counted := failures() - before; counted != float64(failed) {
			t.Errorf("%v: %d rewrites failed, and %v are counted", answer, failed, counted)
		}
		if err == nil || !strings.Contains(err.Error(), "of ResponseSession "+ns) || failed < want {
			t.Errorf("%v: %d rewrites failed: %v", answer, failed, err)
		}
		if want == 1 && requests.Load() > 4 {
			t.Errorf("%d requests were sent", requests.Load())
		}
	}
	if failed, err := controllers.RewriteOwners(t.Context(), ownerVersions(t, interceptor.Funcs{})); err != nil {
		t.Errorf("%d rewrites failed: %v", failed, err)
	}
	wantOutdated(t, ns)
}

// TestOwnerVersionsAreFair: a pass ends after the interval. However many objects a namespace has, those of others are not left to a
// later pass.
func TestOwnerVersionsAreFair(t *testing.T) {
	greedy, modest := env.NewNamespace(t), env.NewNamespace(t)
	child := func(ns, id string, parent client.Object) *v1alpha1.ResponseSession {
		s := turn(ns, id)
		s.OwnerReferences = []metav1.OwnerReference{ownerIn(otherVersion, v1alpha1.ResponseSessionKind, parent)}
		s.OwnerReferences[0].BlockOwnerDeletion = nil
		createAll(t, s)
		return s
	}
	parent, other := turn(greedy, "a"), turn(modest, "a")
	createAll(t, parent, other)
	names := make([]string, 20)
	for i := range names {
		names[i] = fmt.Sprintf("b%02d", i)
		child(greedy, names[i], parent)
	}
	child(modest, "b", other)
	wantOutdated(t, greedy, names...)
	wantOutdated(t, modest, "b")

	now := clocktesting.NewFakeClock(startTime)
	o := ownerVersions(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			now.Step(time.Minute / 2)
			return c.Get(ctx, key, into, options...)
		},
	})
	o.Clock = now
	passes, before := 0, 0 // those after which the view shows something else
	testutil.Eventually(t, func(context.Context) error {
		if failed, err := controllers.RewriteOwners(t.Context(), o); err != nil {
			t.Fatalf("%d rewrites failed: %v", failed, err)
		}
		left := map[string]int{}
		for key := range op.view.Outdated(100) {
			left[key.Namespace]++
		}
		if all := left[modest] + left[greedy]; all != before {
			passes, before = passes+1, all
		}
		if left[modest] > 0 && left[greedy] < len(names)/2 {
			t.Errorf("the only object of a namespace is outdated when %d of %d of another one are", left[greedy], len(names))
		}
		if left[modest]+left[greedy] > 0 {
			return fmt.Errorf("%d objects are outdated", left[modest]+left[greedy])
		}
		return nil
	})
	if passes < 3 {
		t.Errorf("all was rewritten in %d passes", passes)
	}
}
