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

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// restored creates a session as if restored from a backup: it never gets an ownerReference.
func restored(t *testing.T, namespace, id, previous string, finalizers ...string) *v1alpha1.ResponseSession {
	t.Helper()
	session := &v1alpha1.ResponseSession{Spec: v1alpha1.ResponseSessionSpec{
		ResponseID: id, PreviousResponseID: previous, ResponseStatus: store.StatusCompleted,
		Request: &runtime.RawExtension{Raw: []byte(`{"input":"hello"}`)}, Response: &runtime.RawExtension{Raw: []byte(`{"output":[]}`)},
	}}
	session.Namespace, session.Name, session.Finalizers = namespace, v1alpha1.ObjectName(id), finalizers
	session.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	if err := env.Client.Create(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	return session
}

// wantTurns waits until a namespace contains exactly the turns with these response IDs, in the order of their names.
func wantTurns(t *testing.T, namespace string, want ...string) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		var list v1alpha1.ResponseSessionList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var got []string
		for _, session := range list.Items {
			got = append(got, session.Spec.ResponseID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("turns (-want +got):\n%s", diff)
		}
		return nil
	})
}

var cascading = store.DeleteOptions{Cascade: true}

// TestCascadeWithoutReferences: descendants without ownerReferences are deleted too, regardless of their number and names.
func TestCascadeWithoutReferences(t *testing.T) {
	s := open(t, kube.Options{})
	ns := s.Namespace()
	restored(t, ns, "a", "")
	restored(t, ns, "other", "a")
	restored(t, ns, "x", "a")
	for i := range 130 { // more than a page
		restored(t, ns, fmt.Sprintf("leaf_%d", i), "x")
	}
	restored(t, ns, "Hashed,=1", "leaf_125")
	restored(t, ns, "last", "Hashed,=1")
	if err := s.Delete(t.Context(), "x", cascading); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, ns, "a", "other")
}

// TestCascadeOfHeldTurns: a finalizer holds some of the turns. All of their descendants are deleted.
func TestCascadeOfHeldTurns(t *testing.T) {
	s := open(t, kube.Options{})
	ns := s.Namespace()
	restored(t, ns, "x", "")
	held := []*v1alpha1.ResponseSession{restored(t, ns, "held_1", "x", "example.com/hold"), restored(t, ns, "held_2", "held_1", "example.com/hold")}
	restored(t, ns, "y", "held_2")
	restored(t, ns, "z", "y")
	for range 2 {
		if err := s.Delete(t.Context(), "x", cascading); err != nil {
			t.Fatal(err)
		}
		wantTurns(t, ns, "held_1", "held_2")
	}
	for _, session := range held {
		release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := env.Client.Patch(t.Context(), session, release); err != nil {
			t.Fatal(err)
		}
	}
	wantTurns(t, ns)
}

// TestCascadeAgain: wherever a cascade is interrupted, another one deletes the rest.
func TestCascadeAgain(t *testing.T) {
	for allowed := range int32(6) {
		ns := env.NewNamespace(t)
		for _, turn := range [][2]string{{"x"}, {"b", "x"}, {"c", "b"}, {"d", "c"}, {"e", "b"}, {"f", "x"}} {
			restored(t, ns, turn[0], turn[1])
		}
		var deleted atomic.Int32
		s := openThrough(t, ns, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodDelete && deleted.Add(1) > allowed {
				return answer(r, http.StatusForbidden), nil
			}
			return next.RoundTrip(r)
		})
		if err := s.Delete(t.Context(), "x", cascading); err == nil {
			t.Errorf("Delete returned no error although it was interrupted after %d turns", allowed)
		}
		deleted.Store(-100)
		if err := s.Delete(t.Context(), "x", cascading); err != nil {
			t.Error(err)
		}
		wantTurns(t, ns)
	}
}

// TestSaveBeforeRootIsGone: a child of the root that is saved while its descendants are being deleted is deleted before it, because another cascade
// would not find it.
func TestSaveBeforeRootIsGone(t *testing.T) {
	ns := env.NewNamespace(t)
	for _, turn := range [][2]string{{"x"}, {"b", "x"}} {
		restored(t, ns, turn[0], turn[1])
	}
	var gone, refused atomic.Bool
	s := openThrough(t, ns, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		switch name := path.Base(r.URL.Path); {
		case r.Method == http.MethodDelete && name == "x" && refused.CompareAndSwap(false, true):
			return answer(r, http.StatusForbidden), nil
		case r.Method == http.MethodDelete && name == "b":
			restored(t, ns, "late", "x")
		case r.Method == http.MethodDelete && name == "x":
			gone.Store(true)
		case name == "responsesessions" && gone.Load():
			return answer(r, http.StatusForbidden), nil
		}
		return next.RoundTrip(r)
	})
	for _, isGone := range []bool{false, true} {
		err := s.Delete(t.Context(), "x", cascading)
		if err == nil || strings.Contains(err.Error(), `response "x" is deleted`) != isGone {
			t.Errorf("got %v, want an error; the root is gone: %t", err, isGone)
		}
	}
	wantTurns(t, ns)
}

// TestSaveDuringCascade: children that are saved just before their parent is deleted, and have no ownerReference, are
// deleted too. A turn that was deleted and saved again under another parent stays.
func TestSaveDuringCascade(t *testing.T) {
	ns := env.NewNamespace(t)
	for _, turn := range [][2]string{{"x"}, {"b", "x"}, {"c", "b"}, {"moved", "x"}} {
		restored(t, ns, turn[0], turn[1])
	}
	s := openThrough(t, ns, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			switch name := path.Base(r.URL.Path); {
			case name == "moved":
				moved := &v1alpha1.ResponseSession{}
				moved.Namespace, moved.Name = ns, "moved"
				if err := env.Client.Delete(t.Context(), moved, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
					return nil, err
				}
				restored(t, ns, "moved", "elsewhere")
			case !strings.HasPrefix(name, "late"):
				restored(t, ns, "late_"+name, name)
			}
		}
		return next.RoundTrip(r)
	})
	if err := s.Delete(t.Context(), "x", cascading); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, ns, "moved")
}

// TestNotServed: a 404 that does not concern the turn is not treated as a missing turn. In particular, its deletion is not
// acknowledged.
func TestNotServed(t *testing.T) {
	ns := env.NewNamespace(t)
	restored(t, ns, "x", "")
	s := openThrough(t, ns, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		return answer(r, http.StatusNotFound), nil
	})
	for name, request := range map[string]func() error{
		"delete":              func() error { return s.Delete(t.Context(), "x", store.DeleteOptions{}) },
		"delete with cascade": func() error { return s.Delete(t.Context(), "x", cascading) },
		"get": func() error {
			_, err := s.Get(t.Context(), "x")
			return err
		},
		"save after it": func() error { return s.Save(t.Context(), testturn.Make("y", "x"), store.SaveOptions{}) },
		"overwrite":     func() error { return s.Save(t.Context(), testturn.Make("x", ""), store.SaveOptions{Overwrite: true}) },
	} {
		if err := request(); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
	if _, err := s.Resolve(t.Context(), "x", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
		t.Errorf("resolve: got %v, want a temporary error", err)
	}
	wantTurns(t, ns, "x")
}
