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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestLostPart: a missing or damaged part makes the session unreadable, and breaks the chains of its descendants.
func TestLostPart(t *testing.T) {
	s := open(t, kube.Options{})
	namespace := s.Namespace()
	save(t, s, largeTurn("resp_1", ""))
	save(t, s, testturn.Make("resp_2", "resp_1"))
	intact := testsession.WaitForReason(t, env.Client, namespace, "resp_2", v1alpha1.ReasonResolved)
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
		if data != nil {
			chunk := last.DeepCopy()
			chunk.ResourceVersion, chunk.UID, chunk.Spec.Data = "", "", data
			if err := env.Client.Create(t.Context(), chunk); err != nil {
				t.Fatal(err)
			}
		}
		testutil.Eventually(t, func(ctx context.Context) error { // chunks are read from the API server's watch cache first
			cached := &v1alpha1.SnapshotChunk{}
			err := env.Client.Get(ctx, key, cached, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: kubeclient.FromCache}})
			if client.IgnoreNotFound(err) == nil && bytes.Equal(cached.Spec.Data, data) {
				return nil
			}
			return fmt.Errorf("the watch cache has another chunk: %w", err)
		})
	}
	wantUnreadable := func() {
		t.Helper()
		for _, id := range []string{"resp_1", "resp_2"} {
			testutil.Eventually(t, func(context.Context) error { // the operator may notice the overwrite a moment later
				_, err := s.Resolve(t.Context(), id, store.ResolveOptions{})
				if e, ok := errors.AsType[*store.Error](err); !ok || e.Code != store.CodeUnreadable || e.ResponseID != "resp_1" {
					return fmt.Errorf("resolve %s: got error %w, want ErrUnreadable at resp_1", id, err)
				}
				return nil
			})
			if session := testsession.WaitForReason(t, env.Client, namespace, id, v1alpha1.ReasonSnapshotUnreadable); session.Status.BrokenAt != "resp_1" {
				t.Errorf("%s is broken at %s, want resp_1", id, session.Status.BrokenAt)
			}
		}
		if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrUnreadable) {
			t.Errorf("Get returned %v, want ErrUnreadable", err)
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
	wantRollback(t, s, "resp_2", "resp_1")

	replace(last.Spec.Data)
	repaired := testsession.WaitForReason(t, env.Client, namespace, "resp_2", v1alpha1.ReasonResolved)
	if !cmp.Equal(intact.Status.RootResponseID, repaired.Status.RootResponseID) {
		t.Errorf("the status is %+v after the repair, was %+v", repaired.Status, intact.Status)
	}
	if _, err := s.Resolve(t.Context(), "resp_2", store.ResolveOptions{}); err != nil {
		t.Error(err)
	}

	text := strings.Repeat("=", base64.StdEncoding.EncodedLen(len(last.Spec.Data)))
	noBase64 := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"data":%q}}`, text))
	if err := env.Client.Patch(t.Context(), partialChunk(key), noBase64); err != nil {
		t.Fatal(err)
	}
	evict()
	wantUnreadable()

	flipped := bytes.Clone(last.Spec.Data)
	flipped[len(flipped)/2] ^= 1
	replace(flipped)
	evict()
	wantUnreadable()
}

// partialChunk returns a chunk for a request whose answer has no data.
func partialChunk(key client.ObjectKey) *metav1.PartialObjectMetadata {
	chunk := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	chunk.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SnapshotChunk"))
	return chunk
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

// wantRollback checks what needs no bodies: a conversation that ends at a turn of an unreadable chain can be listed, forked and rolled back.
func wantRollback(t *testing.T, s *store.Store, head, to string) {
	t.Helper()
	c := s.Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1", Head: store.Head{ResponseID: head}}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Count(t.Context(), "conv_1"); err != nil || n != 2 {
		t.Errorf("Count returned %d, %v", n, err)
	}
	if _, err := c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{ResponseID: to}); err != nil {
		t.Errorf("Fork: %v", err)
	}
	if got, err := c.Rollback(t.Context(), "conv_1", to); err != nil || got.Head.ResponseID != to {
		t.Errorf("Rollback returned %+v, %v", got, err)
	}
}

// TestDamageFoundByFollower: a replica that is not the leader finds damage and reports it, and the leader marks the chain.
func TestDamageFoundByFollower(t *testing.T) {
	// Another holder keeps the lease, so that the second replica never leads. The first one does not need the lease.
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(1 << 20)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
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
	repair := damage(t, testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved))
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("got %v, want ErrUnreadable", err)
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
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonSnapshotUnreadable)
	wantReport(metav1.ConditionFalse)
	repair()
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	wantReport(metav1.ConditionTrue)
}

// TestDamageFoundByReader: nothing watches a bucket. A reader that finds damage there reports it, and the chain is marked.
func TestDamageFoundByReader(t *testing.T) {
	s := open(t, kube.Options{SnapshotStore: bucketURL()})
	save(t, s, largeTurn("resp_1", ""))
	session := testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
	repair := damage(t, session)
	if err := edit(t, s.Namespace(), "resp_1", "x"); err != nil { // the operator has cached the first version
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("got %v, want ErrUnreadable", err)
	}
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonSnapshotUnreadable)
	repair()
	testsession.WaitForReason(t, env.Client, s.Namespace(), "resp_1", v1alpha1.ReasonResolved)
}

// TestDeleteUndecodable: Delete removes a turn that cannot be decoded, and its bodies.
func TestDeleteUndecodable(t *testing.T) {
	const lowerCase = "2026-01-01t00:00:00z" // as it could be stored before the CRD had a pattern for times
	sessionKind.change(t, `[{"op":"remove","path":"`+schemas+`/spec/properties/createdAt/pattern"}]`, "createdAt", lowerCase, true)
	byLibrary := func(t *testing.T, s *store.Store) error {
		return s.Delete(t.Context(), "resp_1", store.DeleteOptions{})
	}
	for name, tc := range map[string]struct {
		bucket string
		remove func(t *testing.T, s *store.Store) error
	}{
		"chunks":            {"", byLibrary},
		"bucket":            {bucketURL(), byLibrary},
		"through a gateway": {"", deleteThroughGateway},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, kube.Options{SnapshotStore: tc.bucket})
			save(t, s, largeTurn("resp_1", ""))
			key := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Key
			patchSession(t, s.Namespace(), "resp_1", `{"spec":{"createdAt":"`+lowerCase+`"}}`)
			if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrUnreadable) {
				t.Errorf("Get returned %v, want ErrUnreadable", err)
			}
			if err := tc.remove(t, s); err != nil {
				t.Error(err)
			}
			if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("Get returned %v, want ErrNotFound", err)
			}
			if err := firstPart(t, s.Namespace(), "resp_1", key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the snapshot still exists: %v", err)
			}
		})
	}
}

// deleteThroughGateway deletes resp_1 with a request to a gateway.
func deleteThroughGateway(t *testing.T, s *store.Store) error {
	gateway, err := env.StartGateway(t.Context(), testenv.GatewayOptions{Namespace: s.Namespace(), Upstream: "http://127.0.0.1:1"})
	if err != nil {
		return err
	}
	defer func() { _ = gateway.Stop() }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, gateway.URL+"/v1/responses/resp_1", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("got the status %s", response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
