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
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// TestWaits: a session whose namespace uses its share of the workers waits twice as long each time, so that 100,000 of them do not
// occupy the workers with their retries.
func TestWaits(t *testing.T) {
	tests := map[string]struct {
		before int // how often it has waited already
		want   time.Duration
	}{
		"first":  {0, 50 * time.Millisecond},
		"second": {1, 100 * time.Millisecond},
		"third":  {2, 200 * time.Millisecond},
		"ninth":  {8, 12800 * time.Millisecond},
		"tenth":  {9, 15 * time.Second},
		"always": {math.MaxUint16, 15 * time.Second},
	}
	request := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			waits := controllers.NewWaits()
			for range tc.before {
				waits.When(request("a"))
			}
			if got := waits.When(request("a")); got != tc.want {
				t.Errorf("got a delay of %s, want %s", got, tc.want)
			}
			if got := waits.When(request("b")); got != tests["first"].want {
				t.Errorf("got a delay of %s for another session", got)
			}
			waits.Forget(request("a"))
			if got := waits.When(request("a")); got != tests["first"].want {
				t.Errorf("got a delay of %s after the snapshot was read", got)
			}
		})
	}
}

// patched returns a reconciler whose patches are not sent, but passed to a function.
func patched(t *testing.T, patch func(object client.Object, patch string) error) *controllers.ResponseSessionReconciler {
	t.Helper()
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	intercepted := interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, p client.Patch, _ ...client.PatchOption) error {
			data, err := p.Data(object)
			if err != nil {
				return err
			}
			return patch(object, string(data))
		},
	})
	return &controllers.ResponseSessionReconciler{Client: intercepted, Live: env.Client, View: op.view}
}

// TestAdopt: a chunk does not keep an owner that has been deleted while it was set, because garbage collection would delete the chunk,
// which a session that has been created again needs.
func TestAdopt(t *testing.T) {
	remove := func(t *testing.T, ns string) { deleteWith(t, ns, "a", metav1.DeletePropagationOrphan) }
	again := func(t *testing.T, ns string) {
		session := get(t, ns, "a").DeepCopy()
		remove(t, ns)
		session.ObjectMeta = metav1.ObjectMeta{Namespace: session.Namespace, Name: session.Name}
		create(t, session)
	}
	tests := map[string]struct {
		// before runs before the chunk is adopted, and during while its owner is set.
		before, during func(t *testing.T, ns string)
		// want are the patches: whether each sets the owner.
		want        []bool
		wantAdopted bool
	}{
		"unchanged":                   {want: []bool{true}, wantAdopted: true},
		"deleted before":              {before: remove},
		"created again before":        {before: again},
		"deleted in between":          {during: remove, want: []bool{true, false}},
		"created again in between":    {during: again, want: []bool{true, false}},
		"chunk is of another session": {before: disown},
		"chunk does not exist":        {before: deleteChunks},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, chunkStore(t))
			s.refer(t, "a", s.write(t, "a"))
			record, _ := op.view.Get(s.namespace, v1alpha1.ObjectName("a"))
			var got []bool
			r := patched(t, func(_ client.Object, patch string) error {
				if got = append(got, strings.Contains(patch, string(record.UID.Text()))); len(got) == 1 && tc.during != nil {
					tc.during(t, s.namespace)
				}
				return nil
			})
			if tc.before != nil {
				tc.before(t, s.namespace)
			}
			adopted, err := controllers.Adopt(t.Context(), r, record)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); adopted != tc.wantAdopted || diff != "" {
				t.Errorf("adopted: %t, want %t; patches that set the owner (-want +got):\n%s", adopted, tc.wantAdopted, diff)
			}
		})
	}
}

// disown changes the session that the chunks of a namespace belong to.
func disown(t *testing.T, ns string) {
	t.Helper()
	for _, chunk := range backUp(t, ns).chunks {
		chunk.Annotations[v1alpha1.SessionAnnotation] = "other"
		if err := env.Client.Patch(t.Context(), &chunk, client.Merge); err != nil {
			t.Fatal(err)
		}
	}
}

func deleteChunks(t *testing.T, ns string) {
	t.Helper()
	if err := env.Client.DeleteAllOf(t.Context(), &v1alpha1.SnapshotChunk{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
}

// TestFailedAdoption: if a snapshot cannot be adopted, the retries do not read it.
func TestFailedAdoption(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	ref := s.write(t, "a")
	defer op.writes.hold()() // so that the operator does not adopt it
	session := turn(s.namespace, "a")
	session.Spec.Request, session.Spec.Response, session.Spec.Snapshot = nil, nil, ref
	create(t, session)
	s.waitFor(t, "a", true)
	rejected := errors.New("rejected")
	r := patched(t, func(client.Object, string) error { return rejected })
	r.Readable = func(context.Context, *sessions.Record) (bool, error) {
		t.Error("the snapshot was read")
		return true, nil
	}
	if err := controllers.Verify(t.Context(), r, client.ObjectKeyFromObject(session)); !errors.Is(err, rejected) {
		t.Errorf("got %v, want the error of the patch", err)
	}
}
