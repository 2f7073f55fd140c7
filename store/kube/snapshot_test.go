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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

func TestLargeTurn(t *testing.T) {
	for name, options := range map[string]kube.Options{
		v1alpha1.SnapshotStoreChunks: {},
		v1alpha1.SnapshotStoreBlob:   {SnapshotStore: bucketURL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits
			s := open(t, options)
			small, want := testturn.Make("resp_small", ""), largeTurn("resp_large", "resp_small")
			save(t, s, small)
			save(t, s, want)
			save(t, s, testturn.Make("resp_last", "resp_large"))

			got, err := s.Get(t.Context(), "resp_large")
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(want, got, sameSession) {
				t.Error("the bytes differ")
			}
			history, err := s.Resolve(t.Context(), "resp_last", store.ResolveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			item := bytes.TrimSuffix(bytes.TrimSuffix(want.Request, []byte(" }")), []byte("]"))
			if !bytes.HasSuffix(item, history.Items[2]) || len(history.Items) != 6 {
				t.Errorf("%d items, and the large one differs in the history", len(history.Items))
			}

			stored := testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_large", v1alpha1.ReasonResolved)
			if stored.Status.SnapshotStore != name || stored.Status.SnapshotBytes < int64(len(want.Request)) || string(stored.Spec.Request.Raw) != `{"model":"m"}` {
				t.Errorf("got status %+v and request %s", stored.Status, stored.Spec.Request.Raw)
			}
			inline := testsession.WaitForReason(t, env.Client, stored.Namespace, "resp_small", v1alpha1.ReasonResolved)
			if inline.Status.SnapshotStore != v1alpha1.SnapshotStoreInline || inline.Status.SnapshotBytes != int64(len(small.Request)+len(small.Response)) {
				t.Errorf("got status %+v", inline.Status)
			}

			// The snapshot is deleted with the session.
			if err := s.Delete(t.Context(), "resp_large", store.DeleteOptions{Cascade: true}); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, stored.Namespace) })

			// It is also deleted, and immediately, if the descendants stay, although it is one of the session's dependents.
			save(t, s, largeTurn("resp_other", ""))
			key := object(t, stored.Namespace, "resp_other").Spec.Snapshot.Key
			if err := s.Delete(t.Context(), "resp_other", store.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := firstPart(t, stored.Namespace, "resp_other", key); !errors.Is(err, fs.ErrNotExist) && !apierrors.IsNotFound(err) {
				t.Errorf("the snapshot still exists: %v", err)
			}
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, stored.Namespace) })
		})
	}
}

// TestChunksAreOwned: the session owns the first chunk, which owns the others, and only the first is written twice.
func TestChunksAreOwned(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", ""))
	session := testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	all := testsession.Chunks(t, env.Client, s.Namespace())
	if len(all) != int(session.Spec.Snapshot.Parts) || len(all) < 3 {
		t.Fatalf("got %d chunks for the snapshot %+v", len(all), session.Spec.Snapshot)
	}
	first := v1alpha1.SnapshotChunkName(session.Spec.Snapshot.Key, 0)
	for _, chunk := range all {
		want := first
		if chunk.Name == first {
			want = session.Name
		}
		if len(chunk.OwnerReferences) != 1 || chunk.OwnerReferences[0].Name != want {
			t.Errorf("%s has the owners %+v, want %s", chunk.Name, chunk.OwnerReferences, want)
		}
		if chunk.Name != first && len(chunk.ManagedFields) != 1 {
			t.Errorf("%s has the managers %+v, want one", chunk.Name, chunk.ManagedFields)
		}
	}
}

// TestDeleteStrayChunks: Delete removes all chunks, even if the first one no longer exists and the others have no owner.
func TestDeleteStrayChunks(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", ""))
	session := testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	first := &v1alpha1.SnapshotChunk{}
	first.Namespace, first.Name = s.Namespace(), v1alpha1.SnapshotChunkName(session.Spec.Snapshot.Key, 0)
	if err := env.Client.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error { return wantChunks(t, "the others", s, int(session.Spec.Snapshot.Parts)-1) })
	if err := s.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := testsession.Chunks(t, env.Client, s.Namespace()); len(left) > 0 {
		t.Errorf("%d chunks are left", len(left))
	}
}

// TestOverwrite: an overwrite removes the old snapshot, also if its response is lost, and the new one stays.
func TestOverwrite(t *testing.T) {
	small, large := testturn.Make("resp_1", ""), largeTurn("resp_1", "")
	large.Response = []byte(`{"output":[]}`)
	for name, tc := range map[string]struct {
		bucket string
		turn   *store.Session
		lose   bool
	}{
		"chunks":                {turn: large},
		"chunks, response lost": {turn: large, lose: true},
		"bucket":                {bucket: bucketURL(), turn: large},
		"bucket, response lost": {bucket: bucketURL(), turn: large, lose: true},
		"to the object":         {turn: small},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, lost := env.NewNamespace(t), !tc.lose
			s := openWith(t, kube.Options{Namespace: namespace, SnapshotStore: tc.bucket}, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPatch || lost {
					return next.RoundTrip(r)
				}
				lost = true
				return loseResponse(next, r)
			})
			save(t, s, largeTurn("resp_1", ""))
			before := object(t, namespace, "resp_1").Spec.Snapshot.Key
			if err := s.Save(t.Context(), tc.turn.Clone(), store.SaveOptions{Overwrite: true}); err != nil {
				t.Fatal(err)
			}
			// The operator would keep it for the grace period.
			if err := firstPart(t, namespace, "resp_1", before); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the old snapshot still exists: %v", err)
			}
			for _, chunk := range testsession.Chunks(t, env.Client, namespace) {
				if strings.HasPrefix(chunk.Name, before) {
					t.Errorf("%s still exists", chunk.Name)
				}
			}
			if got, err := s.Get(t.Context(), "resp_1"); err != nil || !tc.turn.SameContent(got) {
				t.Errorf("the new turn cannot be read: %v", err)
			}
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOverwriteWhileRead: a turn whose snapshot is removed by an overwrite before it is read is returned as overwritten. Its chunks may
// also still be in the API server's cache.
func TestOverwriteWhileRead(t *testing.T) {
	for name, tc := range map[string]struct {
		bucket string
		mayOld bool
	}{
		"chunks": {mayOld: true},
		"bucket": {bucket: bucketURL()},
	} {
		t.Run(name, func(t *testing.T) {
			others := open(t, kube.Options{SnapshotStore: tc.bucket})
			before, after := largeTurn("resp_1", ""), largeTurn("resp_1", "")
			after.Response = []byte(`{"output":[]}`)
			save(t, others, before)
			var overwritten sync.Once
			s := openWith(t, kube.Options{Namespace: others.Namespace(), SnapshotStore: tc.bucket}, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				overwritten.Do(func() { err = errors.Join(err, others.Save(t.Context(), after, store.SaveOptions{Overwrite: true})) })
				return response, err
			})
			got, err := s.Get(t.Context(), "resp_1")
			whole := err == nil && (after.SameContent(got) || tc.mayOld && before.SameContent(got))
			if !whole {
				t.Errorf("the turn is incomplete or old: %v", err)
			}
		})
	}
}

// TestUnexpectedChunks: chunks that were not written by a save do not prevent the removal of leftovers.
func TestUnexpectedChunks(t *testing.T) {
	t.Parallel() // mostly waits
	namespace := open(t, kube.Options{}).Namespace()
	key := strings.Repeat("a", 26)
	for name, session := range map[string]string{key + "-0": "", strings.Repeat("b", 26) + "-0": "no/name", strings.Repeat("c", 26) + "-0": "resp.gone"} {
		chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
		chunk.Namespace, chunk.Name = namespace, name
		chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: session}
		if err := env.Client.Create(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	others := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
	others.Namespace, others.Name = namespace, "somebody-else"
	if err := env.Client.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		if left := testsession.Chunks(t, env.Client, namespace); len(left) != 1 || left[0].Name != others.Name {
			return fmt.Errorf("%d chunks are left", len(left))
		}
		return nil
	})
}

// TestChunksOfAnotherSession: a session that refers to the chunks of another one in its namespace is unreadable, and neither its deletion
// nor an overwrite deletes them.
func TestChunksOfAnotherSession(t *testing.T) {
	t.Parallel() // mostly waits
	s := open(t, kube.Options{})
	owned := largeTurn("resp_owner", "")
	save(t, s, owned)
	thief := testsession.Make(s.Namespace(), "resp_thief").Obj()
	thief.Spec.Request, thief.Spec.Response = nil, nil
	thief.Spec.Snapshot = object(t, s.Namespace(), "resp_owner").Spec.Snapshot
	if err := env.Client.Create(t.Context(), thief); err != nil {
		t.Fatal(err)
	}
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_thief", v1alpha1.ReasonSnapshotUnreadable)
	if _, err := s.Get(t.Context(), "resp_thief"); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("got %v, want it unreadable", err)
	}
	for _, cascade := range []bool{true, false} {
		if err := s.Delete(t.Context(), "resp_thief", store.DeleteOptions{Cascade: cascade}); err != nil {
			t.Fatal(err)
		}
		thief.ResourceVersion, thief.UID = "", ""
		if err := env.Client.Create(t.Context(), thief); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(t.Context(), testturn.Make("resp_thief", ""), store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "resp_owner")
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(owned, got, sameSession) {
		t.Error("the bytes differ")
	}
}

// TestRejectedSave: a large turn that is rejected or already stored does not leave a snapshot behind.
func TestRejectedSave(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", ""))
	save(t, s, largeTurn("resp_1", ""))
	other := largeTurn("resp_1", "")
	other.Status = store.StatusFailed
	if err := s.Save(t.Context(), other, store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	key := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Key
	for _, chunk := range testsession.Chunks(t, env.Client, s.Namespace()) {
		if strings.HasSuffix(chunk.Name, "-0") && !strings.HasPrefix(chunk.Name, key) {
			t.Errorf("%s is left", chunk.Name)
		}
	}
	if _, err := s.Get(t.Context(), "resp_1"); err != nil {
		t.Error(err)
	}
}
