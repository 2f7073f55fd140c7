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
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// largeTurn is a turn of 1.8 MB, more than etcd accepts, with a number that no custom resource keeps. Compressed it takes
// three chunks: a first, a middle and a last one.
func largeTurn(id, previous string) *store.Session {
	image := make([]byte, 900_000)
	_, _ = rand.NewChaCha8([32]byte{byte(len(id))}).Read(image) // never fails
	return &store.Session{
		ResponseID: id, PreviousResponseID: previous, Status: store.StatusCompleted,
		Request:  fmt.Appendf(nil, `{ "model":"m", "input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%x"}],"n":12345678901234567890}] }`, image),
		Response: []byte(`{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a cat"}],"f":1.0}]}`),
	}
}

// sameSession ignores the version, which changes when the controller writes a status, and compares bodies in one step: cmp
// compares byte by byte, which takes half a minute with the race detector.
var sameSession = cmp.Options{cmpopts.IgnoreFields(store.Session{}, "Version"), cmp.Comparer(bytes.Equal)}

func smallTurn(id, previous string) *store.Session {
	return &store.Session{ResponseID: id, PreviousResponseID: previous, Status: store.StatusCompleted, Request: []byte(`{"input":"Hi"}`)}
}

func save(t *testing.T, s *store.Store, session *store.Session) {
	t.Helper()
	if err := s.Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
}

func object(t *testing.T, namespace, id string) *v1alpha1.ResponseSession {
	t.Helper()
	object := &v1alpha1.ResponseSession{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// edit changes a session as a person does, whatever the controller writes meanwhile.
func edit(t *testing.T, namespace, id, conversationID string) error {
	t.Helper()
	session := &v1alpha1.ResponseSession{}
	session.Namespace, session.Name = namespace, v1alpha1.ObjectName(id)
	patch := fmt.Appendf(nil, `{"spec":{"conversationID":%q}}`, conversationID)
	return env.Client.Patch(t.Context(), session, client.RawPatch(types.MergePatchType, patch))
}

// chunks returns the metadata of the chunks in a namespace.
func chunks(t *testing.T, namespace string) []metav1.PartialObjectMetadata {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SnapshotChunkList"))
	if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// wantReason waits until a session has a reason, and returns it then.
func wantReason(t *testing.T, namespace, id, reason string) *v1alpha1.ResponseSession {
	t.Helper()
	var session *v1alpha1.ResponseSession
	testutil.Eventually(t, func(context.Context) error {
		session = object(t, namespace, id)
		condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
		if condition == nil || condition.Reason != reason {
			return fmt.Errorf("%s has %+v, want %s", id, condition, reason)
		}
		return nil
	})
	return session
}

func TestLargeTurn(t *testing.T) {
	for name, options := range map[string]kube.Options{
		v1alpha1.SnapshotStoreChunks: {},
		v1alpha1.SnapshotStoreBlob:   {SnapshotStore: bucketURL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			s := open(t, options)
			want := largeTurn("resp_large", "resp_small")
			save(t, s, smallTurn("resp_small", ""))
			save(t, s, want)
			save(t, s, smallTurn("resp_last", "resp_large"))

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
			if !bytes.HasSuffix(item, history.Items[1]) || len(history.Items) != 4 {
				t.Errorf("%d items, and the large one differs in the history", len(history.Items))
			}

			stored := wantReason(t, s.Namespace(), "resp_large", v1alpha1.ReasonResolved)
			if stored.Status.SnapshotStore != name || stored.Status.SnapshotBytes < int64(len(want.Request)) || string(stored.Spec.Request.Raw) != `{"model":"m"}` {
				t.Errorf("got status %+v and request %s", stored.Status, stored.Spec.Request.Raw)
			}
			small := wantReason(t, stored.Namespace, "resp_small", v1alpha1.ReasonResolved)
			if small.Status.SnapshotStore != v1alpha1.SnapshotStoreInline || small.Status.SnapshotBytes != int64(len(`{"input":"Hi"}`)) {
				t.Errorf("got status %+v", small.Status)
			}

			// The snapshot is deleted with the session.
			if err := s.Delete(t.Context(), "resp_large", store.DeleteOptions{Cascade: true}); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, stored.Namespace) })

			// Also if the descendants stay, although the snapshot is one of the session's dependents, and then immediately.
			save(t, s, largeTurn("resp_other", ""))
			key := object(t, stored.Namespace, "resp_other").Spec.Snapshot.Key
			if err := s.Delete(t.Context(), "resp_other", store.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := firstPart(t, stored.Namespace, "resp_other", key); !errors.Is(err, fs.ErrNotExist) && !apierrors.IsNotFound(err) {
				t.Errorf("the snapshot is still there: %v", err)
			}
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, stored.Namespace) })
		})
	}
}

// firstPart returns the error of reading the first chunk of a snapshot or, for a bucket, its object.
func firstPart(t *testing.T, namespace, id, key string) error {
	t.Helper()
	chunk := client.ObjectKey{Namespace: namespace, Name: v1alpha1.SnapshotChunkName(key, 0)}
	if err := env.Client.Get(t.Context(), chunk, &v1alpha1.SnapshotChunk{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	_, err := os.Stat(filepath.Join(bucketDir, namespace, v1alpha1.ObjectName(id), key))
	return err
}

// nothingStored returns an error if there are chunks in a namespace, or objects of it in the bucket.
func nothingStored(t *testing.T, namespace string) error {
	t.Helper()
	if left := chunks(t, namespace); len(left) > 0 {
		return fmt.Errorf("%d chunks are left", len(left))
	}
	return filepath.WalkDir(filepath.Join(bucketDir, namespace), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			return fmt.Errorf("%s is left in the bucket", path)
		}
		return nil
	})
}

// TestChunksAreOwned: the session owns the first chunk, which owns the others, and only the first is written twice.
func TestChunksAreOwned(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", ""))
	session := wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	all := chunks(t, s.Namespace())
	if len(all) != int(session.Spec.Snapshot.Parts) || len(all) < 3 {
		t.Fatalf("%d chunks for %+v", len(all), session.Spec.Snapshot)
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
			t.Errorf("%s was written by %+v", chunk.Name, chunk.ManagedFields)
		}
	}
}

// TestLostPart: a missing or damaged part makes the session unreadable, and breaks the chains of its descendants.
func TestLostPart(t *testing.T) {
	s := open(t, kube.Options{})
	namespace := s.Namespace()
	save(t, s, largeTurn("resp_1", ""))
	save(t, s, smallTurn("resp_2", "resp_1"))
	intact := wantReason(t, namespace, "resp_2", v1alpha1.ReasonResolved)
	ref := object(t, namespace, "resp_1").Spec.Snapshot

	last := &v1alpha1.SnapshotChunk{}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.SnapshotChunkName(ref.Key, int(ref.Parts)-1)}
	if err := env.Client.Get(t.Context(), key, last); err != nil {
		t.Fatal(err)
	}
	replace := func(data []byte) {
		t.Helper()
		if err := env.Client.Delete(t.Context(), last.DeepCopy()); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if data == nil {
			return
		}
		chunk := last.DeepCopy()
		chunk.ResourceVersion, chunk.UID, chunk.Spec.Data = "", "", data
		if err := env.Client.Create(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
	wantUnreadable := func() {
		t.Helper()
		for _, id := range []string{"resp_1", "resp_2"} {
			testutil.Eventually(t, func(context.Context) error { // the operator may notice the overwrite a moment later
				_, err := s.Resolve(t.Context(), id, store.ResolveOptions{})
				if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeUnreadable || e.ResponseID != "resp_1" {
					return fmt.Errorf("%s resolves with the error %w", id, err)
				}
				return nil
			})
			if session := wantReason(t, namespace, id, v1alpha1.ReasonSnapshotUnreadable); session.Status.BrokenAt != "resp_1" {
				t.Errorf("%s is broken at %s", id, session.Status.BrokenAt)
			}
		}
		if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrUnreadable) {
			t.Errorf("Get: %v", err)
		}
	}
	// The operator may have cached a history that was read before: this session was not read.
	edits := 0
	evict := func() {
		t.Helper()
		edits++
		if err := edit(t, namespace, "resp_1", fmt.Sprint(edits)); err != nil {
			t.Fatal(err)
		}
	}

	replace(nil)
	evict()
	wantUnreadable()

	replace(last.Spec.Data)
	healed := wantReason(t, namespace, "resp_2", v1alpha1.ReasonResolved)
	if !cmp.Equal(intact.Status.RootResponseID, healed.Status.RootResponseID) {
		t.Errorf("healed to %+v, was %+v", healed.Status, intact.Status)
	}
	if _, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{}); err != nil {
		t.Error(err)
	}

	flipped := bytes.Clone(last.Spec.Data)
	flipped[len(flipped)/2] ^= 1
	replace(flipped)
	evict()
	wantUnreadable()
}

// damage flips a bit of a snapshot in the bucket, and returns a function that repairs it.
func damage(t *testing.T, session *v1alpha1.ResponseSession) (repair func()) {
	t.Helper()
	path := filepath.Join(bucketDir, session.Namespace, session.Name, session.Spec.Snapshot.Key)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged := bytes.Clone(data)
	damaged[len(damaged)/2] ^= 1
	write(damaged)
	return func() { write(data) }
}

// TestDamageFoundByAFollower: a replica that is not the leader finds damage and reports it, and the leader marks the chain.
func TestDamageFoundByAFollower(t *testing.T) {
	// The lease belongs to nobody for ever, so that the second replica never leads. The first one does not ask for it.
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("nobody"), LeaseDurationSeconds: new(int32(1 << 20)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
	}}
	lease.Namespace, lease.Name = "catena-system", "catena.sessions.catena.dev"
	if err := env.Client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Client.Delete(context.WithoutCancel(t.Context()), lease); err != nil {
			t.Error(err)
		}
	})
	follower, err := env.StartOperator(t.Context(), catenatest.OperatorOptions{Args: []string{
		"--shutdown-delay-duration=0s", "--snapshot-store=" + bucketURL(), "--leader-elect=true",
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := follower.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s := open(t, kube.Options{
		SnapshotStore: bucketURL(), ResolveHost: fmt.Sprintf("https://localhost:%d", follower.Port), ResolveTLS: rest.TLSClientConfig{CAFile: env.ResolveCAFile},
	})
	save(t, s, largeTurn("resp_1", ""))
	repair := damage(t, wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonResolved))
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("it resolves to %v", err)
	}
	wantReport := func(want metav1.ConditionStatus) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			status := metav1.ConditionUnknown
			if report := meta.FindStatusCondition(object(t, s.Namespace(), "resp_1").Status.Conditions, v1alpha1.ConditionSnapshotReadable); report != nil {
				status = report.Status
			}
			if status != want {
				return fmt.Errorf("SnapshotReadable is %s, want %s", status, want)
			}
			return nil
		})
	}
	wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonSnapshotUnreadable)
	wantReport(metav1.ConditionFalse)
	repair()
	wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	wantReport(metav1.ConditionTrue)
}

// TestDamageFoundByAReader: nothing watches a bucket. A reader that finds damage there reports it, and the chain is marked.
func TestDamageFoundByAReader(t *testing.T) {
	s := open(t, kube.Options{SnapshotStore: bucketURL()})
	save(t, s, largeTurn("resp_1", ""))
	session := wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	repair := damage(t, session)
	if err := edit(t, s.Namespace(), "resp_1", "x"); err != nil { // the operator has cached the first version
		t.Fatal(err)
	}
	wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonSnapshotUnreadable)
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("it resolves to %v", err)
	}
	repair()
	wantReason(t, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
}

// TestOverwrite: the old snapshot is removed, and the new one stays.
func TestOverwrite(t *testing.T) {
	t.Parallel() // most of it is waiting
	s := open(t, kube.Options{})
	first := largeTurn("resp_1", "")
	save(t, s, first)
	before := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Key
	second := largeTurn("resp_1", "")
	second.Response = []byte(`{"output":[]}`)
	if err := s.Save(t.Context(), second, store.SaveOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		for _, chunk := range chunks(t, s.Namespace()) {
			if strings.HasPrefix(chunk.Name, before) {
				return fmt.Errorf("%s is still there", chunk.Name)
			}
		}
		return nil
	})
	history, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
	if err != nil || len(history.Items) != 1 {
		t.Errorf("got %+v and %v", history, err)
	}
}

// TestStrangeChunks: chunks that no saver has written do not prevent the removal of leftovers.
func TestStrangeChunks(t *testing.T) {
	t.Parallel() // most of it is waiting
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
		if left := chunks(t, namespace); len(left) != 1 || left[0].Name != others.Name {
			return fmt.Errorf("%d chunks are left", len(left))
		}
		return nil
	})
}

// TestBucketOfAnotherCluster: the operator exits before two clusters mistake each other's snapshots for leftovers.
func TestBucketOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "catena-cluster"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := env.StartOperator(t.Context(), catenatest.OperatorOptions{Args: []string{"--snapshot-store=file://" + dir + "?no_tmp_dir=true"}})
	if err == nil { // it was ready before it exited
		select {
		case <-second.Done():
		case <-time.After(testutil.Patience):
			t.Fatal("the operator is still running")
		}
	}
	log, err := os.ReadFile(operator.LogFile) // of all operators
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "it belongs to another, and this is") {
		t.Errorf("the log does not contain the reason:\n%s", log)
	}
}

// TestTooLarge: a turn beyond the limit is refused before anything is written.
func TestTooLarge(t *testing.T) {
	s := open(t, kube.Options{MaxTurnBytes: 1 << 20})
	err := s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{})
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v, want it to be too large", err)
	}
	if err := nothingStored(t, s.Namespace()); err != nil {
		t.Error(err)
	}
}

// TestLargestTurn: a turn of exactly the limit can be read.
func TestLargestTurn(t *testing.T) {
	turn := smallTurn("resp_1", "")
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	turn.Request = fmt.Appendf(nil, `{"input":"%s"}`, base64.StdEncoding.EncodeToString(noise))
	s := open(t, kube.Options{MaxTurnBytes: len(turn.Request)})
	save(t, s, turn)
	if got, err := s.Get(t.Context(), "resp_1"); err != nil || !cmp.Equal(turn, got, sameSession) {
		t.Errorf("the turn differs: %v", err)
	}
}

// TestModelName: the model is repeated in an object without bodies if it has the length of a name.
func TestModelName(t *testing.T) {
	s := open(t, kube.Options{InlineBytes: -1})
	for model, want := range map[string]string{
		`"m"`:                                  `{"model":"m"}`,
		`"` + strings.Repeat("m", 2<<20) + `"`: ``,
	} {
		id := fmt.Sprintf("resp_%d", len(model))
		turn := smallTurn(id, "")
		turn.Request = fmt.Appendf(nil, `{"model":%s}`, model)
		save(t, s, turn)
		got := ""
		if request := object(t, s.Namespace(), id).Spec.Request; request != nil {
			got = string(request.Raw)
		}
		if got != want {
			t.Errorf("got %.100s, want %s", got, want)
		}
	}
}

// TestRefusedSave: a large turn that is refused or stored already leaves no snapshot behind.
func TestRefusedSave(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", ""))
	save(t, s, largeTurn("resp_1", ""))
	other := largeTurn("resp_1", "")
	other.Status = store.StatusFailed
	if err := s.Save(t.Context(), other, store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	key := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Key
	for _, chunk := range chunks(t, s.Namespace()) {
		if strings.HasSuffix(chunk.Name, "-0") && !strings.HasPrefix(chunk.Name, key) {
			t.Errorf("%s is left", chunk.Name)
		}
	}
	if _, err := s.Get(t.Context(), "resp_1"); err != nil {
		t.Error(err)
	}
}
