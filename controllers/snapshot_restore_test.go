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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// backup contains the sessions of a namespace, by response ID, and its chunks.
type backup struct {
	sessions map[string]*v1alpha1.ResponseSession
	chunks   []v1alpha1.SnapshotChunk
}

// backUp copies a namespace without the metadata that the API server assigns.
func backUp(t *testing.T, namespace string) backup {
	t.Helper()
	b := backup{sessions: map[string]*v1alpha1.ResponseSession{}}
	var chunks v1alpha1.SnapshotChunkList
	if err := env.Client.List(t.Context(), &chunks, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	plain := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Annotations: m.Annotations}
	}
	for _, session := range list(t, client.InNamespace(namespace)) {
		session.ObjectMeta = plain(session.ObjectMeta)
		b.sessions[session.Spec.ResponseID] = &session
	}
	for _, chunk := range chunks.Items {
		chunk.ObjectMeta = plain(chunk.ObjectMeta)
		b.chunks = append(b.chunks, chunk)
	}
	return b
}

func (b backup) restoreChunks(t *testing.T) {
	t.Helper()
	for _, chunk := range b.chunks {
		if err := env.Client.Create(t.Context(), chunk.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
}

// restore creates a session of the backup again, and waits until the operator has it.
func (s *sweeping) restore(t *testing.T, b backup, id string) {
	t.Helper()
	create(t, b.sessions[id].DeepCopy())
	s.waitFor(t, id, true)
}

// wantReadable checks that the snapshot of a session is whole.
func (s *sweeping) wantReadable(t *testing.T, b backup, ids ...string) {
	t.Helper()
	for _, id := range ids {
		session := b.sessions[id]
		if _, err := (snapshot.Stores{s.store}).Read(t.Context(), client.ObjectKeyFromObject(session), session.Spec.Snapshot); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestRestoreOfNamespace: sessions that are restored into a namespace within the grace period keep their snapshots.
func TestRestoreOfNamespace(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) snapshot.Store{"chunks": chunkStore, "bucket": bucketStore} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, newStore(t))
			ids := []string{"a", "b", "c"}
			for _, id := range append(ids, "never") {
				s.refer(t, id, s.write(t, id))
			}
			b := backUp(t, s.namespace)
			recreateNamespace(t, s.namespace)
			for id := range b.sessions {
				s.waitFor(t, id, false)
			}
			b.restoreChunks(t)
			for _, id := range ids { // the last one after an hour less a minute
				s.mustSweep(t, 59*time.Minute/3)
				s.restore(t, b, id)
			}
			for range 6 {
				s.mustSweep(t, time.Hour/2)
			}
			s.wantReadable(t, b, ids...)
			s.want(t, true)
			s.want(t, false, b.sessions["a"].Spec.Snapshot, b.sessions["b"].Spec.Snapshot, b.sessions["c"].Spec.Snapshot)
		})
	}
}

func recreateNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := env.Client.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		return env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
}

// TestDeleteAndReapply: a session that is deleted and applied again within the grace period keeps its snapshot in the bucket. Its
// chunks, which are deleted with it, can be applied again in any order.
func TestDeleteAndReapply(t *testing.T) {
	tests := map[string]struct {
		newStore func(*testing.T) snapshot.Store
		reapply  func(t *testing.T, s *sweeping, b backup)
	}{
		"bucket": {bucketStore, func(t *testing.T, s *sweeping, b backup) { s.restore(t, b, "a") }},
		"chunks, the session first": {chunkStore, func(t *testing.T, s *sweeping, b backup) {
			s.restore(t, b, "a")
			s.mustSweep(t, 20*time.Minute)
			b.restoreChunks(t)
		}},
		"chunks, the session last": {chunkStore, func(t *testing.T, s *sweeping, b backup) {
			b.restoreChunks(t)
			s.mustSweep(t, 20*time.Minute)
			s.restore(t, b, "a")
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, tc.newStore(t))
			s.refer(t, "a", s.write(t, "a"))
			settle(t, s.namespace)
			b := backUp(t, s.namespace)
			deleteWith(t, s.namespace, "a", metav1.DeletePropagationBackground)
			s.waitFor(t, "a", false)
			if len(b.chunks) > 0 {
				testutil.Eventually(t, func(context.Context) error {
					if left := backUp(t, s.namespace).chunks; len(left) > 0 {
						return fmt.Errorf("%d chunks remain", len(left))
					}
					return nil
				})
			}
			for range 2 {
				s.mustSweep(t, 20*time.Minute)
			}
			tc.reapply(t, s, b)
			for range 6 {
				s.mustSweep(t, time.Hour/2)
			}
			s.wantReadable(t, b, "a")
			s.want(t, true)
			if name != "bucket" { // which the operator of these tests does not read
				wantVerdicts(t, s.namespace, map[string]verdict{"a": resolved(1, "a")})
			}
		})
	}
}

// TestRestoreOfCluster: a cluster that takes over the bucket of a lost cluster deletes nothing until no session has returned for
// the hold-off, or an administrator confirms.
func TestRestoreOfCluster(t *testing.T) {
	const holdOff = 24 * time.Hour
	for name, confirmed := range map[string]bool{"slowly": false, "an administrator confirms": true} {
		t.Run(name, func(t *testing.T) {
			bucket := newBucket(t)
			s := newSweeping(t, storeIn(bucket, "old"))
			s.holdOff = holdOff
			write := func(object, text string) {
				t.Helper()
				if err := bucket.WriteAll(t.Context(), object, []byte(text), nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.store.Claim(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			write("catena-sweeper", "old")
			never := s.write(t, "never")
			refs := map[string]*v1alpha1.SnapshotReference{"a": s.write(t, "a"), "b": s.write(t, "b"), "c": s.write(t, "c")}
			// The sessions exist in the old cluster only. A restore hands the bucket over.
			s.store = storeIn(bucket, "new")
			if err := s.store.Claim(t.Context(), nil); !errors.Is(err, snapshot.ErrForeign) {
				t.Fatalf("claimed the bucket of another cluster: %v", err)
			}
			write("catena-cluster", "new\n")
			if err := s.store.Claim(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			var back []*v1alpha1.SnapshotReference
			for _, id := range []string{"a", "b", "c"} { // much more than the hold-off in total
				for range 20 {
					s.mustSweep(t, time.Hour)
				}
				s.want(t, true, append([]*v1alpha1.SnapshotReference{never}, missing(refs, back)...)...)
				s.refer(t, id, refs[id])
				back = append(back, refs[id])
			}
			s.mustSweep(t, time.Hour)
			if confirmed {
				write("catena-sweeper", "new")
			} else {
				s.mustSweep(t, holdOff-time.Minute)
				s.want(t, true, never)
			}
			s.mustSweep(t, time.Minute)
			s.mustSweep(t, time.Minute) // the sweep that ends the hold-off deletes nothing
			s.want(t, true)
			s.want(t, false, back...)

			// It is confirmed for the future too.
			deleteWith(t, s.namespace, "a", metav1.DeletePropagationBackground)
			s.waitFor(t, "a", false)
			s.mustSweep(t, time.Minute)
			s.mustSweep(t, time.Hour)
			s.want(t, false, refs["b"], refs["c"])
		})
	}
}

// TestHoldOffEnds: sessions that are deleted and created again after the beginning of a hold-off do not prolong it, however many there are.
func TestHoldOffEnds(t *testing.T) {
	const holdOff = 24 * time.Hour
	s := newSweeping(t, bucketStore(t))
	s.holdOff = holdOff
	restored, leftover := s.write(t, "restored"), s.write(t, "leftover")
	ids := []string{"a", "b", "c"}
	used := map[string]*v1alpha1.SnapshotReference{}
	for _, id := range ids {
		used[id] = s.write(t, id)
		s.refer(t, id, used[id])
	}
	sweeps := func(hours int) {
		t.Helper()
		for range hours {
			s.mustSweep(t, time.Hour)
		}
	}
	sweeps(2)
	for _, id := range ids {
		deleteWith(t, s.namespace, id, metav1.DeletePropagationBackground)
		s.waitFor(t, id, false)
	}
	sweeps(18)
	s.want(t, true, append(missing(used, nil), restored, leftover)...)
	s.refer(t, "restored", restored)
	var back []*v1alpha1.SnapshotReference
	for _, id := range ids {
		sweeps(7)
		s.refer(t, id, used[id])
		back = append(back, used[id])
	}
	sweeps(3)
	s.want(t, true, leftover)
	sweeps(2) // the first is 24 hours after the one in which the restored session was found, and the second deletes
	s.want(t, true)
	s.want(t, false, append(back, restored)...)
}

// missing returns the references that are not among those in back.
func missing(refs map[string]*v1alpha1.SnapshotReference, back []*v1alpha1.SnapshotReference) []*v1alpha1.SnapshotReference {
	left := map[*v1alpha1.SnapshotReference]bool{}
	for _, ref := range refs {
		left[ref] = true
	}
	for _, ref := range back {
		delete(left, ref)
	}
	var all []*v1alpha1.SnapshotReference
	for ref := range left {
		all = append(all, ref)
	}
	return all
}
