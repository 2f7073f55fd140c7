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
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func TestOwnerReferenceIsAdded(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "early", "parent"), turn(ns, "parent"), turn(ns, "late", "parent"))
	wantVerdicts(t, ns, map[string]verdict{
		"parent": resolved(1, "parent"), "early": resolved(2, "parent"), "late": resolved(2, "parent"),
	})
	settle(t, ns)
	want := []metav1.OwnerReference{testsession.OwnerReference(get(t, ns, "parent"))}
	for _, id := range []string{"early", "late"} {
		if diff := cmp.Diff(want, get(t, ns, id).OwnerReferences); diff != "" {
			t.Errorf("ownerReferences of %s (-want +got):\n%s", id, diff)
		}
	}
	if owners := get(t, ns, "parent").OwnerReferences; len(owners) > 0 {
		t.Errorf("the root has owners: %+v", owners)
	}
}

func TestOwnerReferenceIsNotAdded(t *testing.T) {
	tests := map[string]func(ns string) []*v1alpha1.ResponseSession{
		"on a cycle": func(ns string) []*v1alpha1.ResponseSession {
			return []*v1alpha1.ResponseSession{turn(ns, "a", "b"), turn(ns, "b", "a")}
		},
		"with the annotation": func(ns string) []*v1alpha1.ResponseSession {
			restored := turn(ns, "b", "a")
			restored.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
			return []*v1alpha1.ResponseSession{turn(ns, "a"), restored}
		},
		"to a misnamed parent": func(ns string) []*v1alpha1.ResponseSession {
			misnamed := turn(ns, "A")
			misnamed.Name = v1alpha1.ObjectName("B")
			return []*v1alpha1.ResponseSession{misnamed, turn(ns, "b", "A")}
		},
		"of a misnamed session": func(ns string) []*v1alpha1.ResponseSession {
			misnamed := turn(ns, "A", "b")
			misnamed.Name = v1alpha1.ObjectName("B")
			return []*v1alpha1.ResponseSession{turn(ns, "b"), misnamed}
		},
		"to a missing parent": func(ns string) []*v1alpha1.ResponseSession {
			return []*v1alpha1.ResponseSession{turn(ns, "b", "a")}
		},
	}
	for name, turns := range tests {
		t.Run(name, func(t *testing.T) {
			ns := env.NewNamespace(t)
			create(t, turns(ns)...)
			settle(t, ns)
			wantOwned(t, ns, map[string]string{})
		})
	}
}

// TestOwnerReferencesFormNoCycle: turns whose reference was set before the cycle was closed keep it. The turn that closes the
// cycle gets none, nor does any turn that has none by then.
func TestOwnerReferencesFormNoCycle(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "c", "b"), turn(ns, "b", "a"))
	settle(t, ns)
	create(t, turn(ns, "a", "c"))
	settle(t, ns)
	wantOwned(t, ns, map[string]string{"c": "b"})
}

// TestOwnerReferenceOffCycle: descendants of a cycle that are not on it have owners.
func TestOwnerReferenceOffCycle(t *testing.T) {
	ns := env.NewNamespace(t)
	create(t, turn(ns, "off", "a"), turn(ns, "a", "b"), turn(ns, "b", "a"))
	settle(t, ns)
	want := []metav1.OwnerReference{testsession.OwnerReference(get(t, ns, "a"))}
	if diff := cmp.Diff(want, get(t, ns, "off").OwnerReferences); diff != "" {
		t.Errorf("ownerReferences (-want +got):\n%s", diff)
	}
}

// TestOwnerReferenceAfterAnnotationIsRemoved: only the annotation prevents the reference.
func TestOwnerReferenceAfterAnnotationIsRemoved(t *testing.T) {
	ns := env.NewNamespace(t)
	restored := turn(ns, "b", "a")
	restored.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	create(t, turn(ns, "a"), restored)
	settle(t, ns)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.OmitOwnerReferenceAnnotation)
	if err := env.Client.Patch(t.Context(), restored, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	settle(t, ns)
	want := []metav1.OwnerReference{testsession.OwnerReference(get(t, ns, "a"))}
	if diff := cmp.Diff(want, get(t, ns, "b").OwnerReferences); diff != "" {
		t.Errorf("ownerReferences (-want +got):\n%s", diff)
	}
}

// TestParentDeletedWhileOwnerWaits: if the parent is deleted alone while the write of its reference waits for its turn, the reference is not
// written, for which garbage collection would delete the turn.
func TestParentDeletedWhileOwnerWaits(t *testing.T) {
	ns := env.NewNamespace(t)
	parentRead := make(chan struct{}, 100)
	throughOperator(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+ns+"/responsesessions/"+v1alpha1.ObjectName("a")) {
			parentRead <- struct{}{}
		}
		return response, err
	})
	parent, restored := turn(ns, "a"), turn(ns, "b", "a")
	restored.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	create(t, parent, restored)
	settle(t, ns)
	statuses := op.writes.sessions(ns)
	release := takeWrites(t, ns)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.OmitOwnerReferenceAnnotation)
	if err := env.Client.Patch(t.Context(), restored, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	<-parentRead
	if err := env.Client.Delete(t.Context(), parent, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, parent)
	release()
	settle(t, ns)
	if owners := get(t, ns, "b").OwnerReferences; len(owners) != 0 {
		t.Errorf("ownerReferences: %v", owners)
	}
	// That of the verdict on b, and the removal of a reference that might have been written.
	if diff := cmp.Diff(slices.Sorted(slices.Values(append(statuses, "b", "b/status"))), op.writes.sessions(ns)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// takeWrites makes the operator's writes to a namespace wait until release is called.
func takeWrites(t *testing.T, namespace string) (release func()) {
	t.Helper()
	arrived, end := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-end
	}))
	client, err := rest.HTTPClientFor(op.limiter.Limit(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, server.URL+"/namespaces/"+namespace+"/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	var writes sync.WaitGroup
	for range workers { // a namespace may have half of 2*workers
		writes.Go(func() {
			response, err := client.Do(request.Clone(request.Context()))
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
		})
		<-arrived
	}
	release = sync.OnceFunc(func() {
		close(end)
		writes.Wait()
		server.Close()
	})
	t.Cleanup(release)
	return release
}

// TestOtherOwnersAreKept: the controller adds its reference to the references set by others.
func TestOtherOwnersAreKept(t *testing.T) {
	ns := env.NewNamespace(t)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "conversation"}}
	if err := env.Client.Create(t.Context(), configMap); err != nil {
		t.Fatal(err)
	}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: configMap.Name, UID: configMap.UID}
	child := turn(ns, "b", "a")
	child.OwnerReferences = []metav1.OwnerReference{other}
	create(t, turn(ns, "a"), child)
	settle(t, ns)
	want := []metav1.OwnerReference{other, testsession.OwnerReference(get(t, ns, "a"))}
	if diff := cmp.Diff(want, get(t, ns, "b").OwnerReferences); diff != "" {
		t.Errorf("ownerReferences (-want +got):\n%s", diff)
	}
}

// TestOwnerReferenceWithWrongUID pins the behavior of Kubernetes that the design depends on: garbage collection deletes an
// object whose owner's UID does not exist, even if an owner with that name does. So a saver that sets the reference must
// have read the parent's UID just before, and references must not be written by hand. The controller does not
// repair such a reference, as it cannot be faster than the garbage collector.
func TestOwnerReferenceWithWrongUID(t *testing.T) {
	ns := env.NewNamespace(t)
	parent, child := turn(ns, "a"), turn(ns, "b", "a")
	create(t, parent)
	child.OwnerReferences = []metav1.OwnerReference{testsession.OwnerReference(parent)}
	child.OwnerReferences[0].UID = "00000000-0000-0000-0000-000000000000"
	create(t, child)
	waitUntilGone(t, child)
	settle(t, ns)
	wantSessions(t, ns, "a")
}

// TestLateParentOfABrokenTurn: a turn that breaks a rule by itself has that verdict with and without its parent. The
// reference to the parent is set nevertheless.
func TestLateParentOfABrokenTurn(t *testing.T) {
	ns := env.NewNamespace(t)
	b := turn(ns, "b", "a")
	b.Spec.ResponseStatus = v1alpha1.ResponseStatusFailed
	create(t, b)
	settle(t, ns)
	create(t, turn(ns, "a", "gone"))
	settle(t, ns)
	wantOwned(t, ns, map[string]string{"b": "a"})
}
