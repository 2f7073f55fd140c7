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
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// sweeping is a store of snapshots, and sweepers with a clock of their own.
type sweeping struct {
	namespace string
	store     snapshot.Store
	clock     *clocktesting.FakePassiveClock
	releases  *controllers.Releases
	maxShare  float64
	holdOff   time.Duration
	config    *rest.Config
}

func newSweeping(t *testing.T, store snapshot.Store) *sweeping {
	t.Helper()
	waitForView(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	return &sweeping{
		namespace: env.NewNamespace(t), store: store, maxShare: 1, config: env.Config, clock: clock, releases: observeReleases(t, clock),
	}
}

// waitForView waits until the operator's view can be swept with.
func waitForView(t *testing.T) {
	t.Helper()
	if err := op.view.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func sessionClient(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	c, err := kubeclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func chunkStore(t *testing.T) snapshot.Store {
	return snapshot.NewChunkStore(sessionClient(t, env.Config))
}

func bucketStore(t *testing.T) snapshot.Store {
	store := storeIn(newBucket(t), "this")
	if err := store.Claim(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return store
}

func newBucket(t *testing.T) *blob.Bucket {
	bucket := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = bucket.Close() })
	return bucket
}

// storeIn is a bucket, as a cluster uses it.
func storeIn(bucket *blob.Bucket, cluster string) snapshot.Store {
	return snapshot.NewBlobStore(bucket, func(context.Context) (string, error) { return cluster, nil })
}

// sweep runs two concurrent sweeps, by leaders that have both just started.
func (s *sweeping) sweep(t *testing.T, after time.Duration) error {
	t.Helper()
	s.clock.SetTime(s.clock.Now().Add(after))
	var group errgroup.Group
	for range 2 {
		sweeper := s.sweeper(t)
		group.Go(func() error { return controllers.Sweep(t.Context(), sweeper, s.store) })
	}
	return group.Wait()
}

// mustSweep sweeps, and fails the test if that returns an error.
func (s *sweeping) mustSweep(t *testing.T, after time.Duration) {
	t.Helper()
	if err := s.sweep(t, after); err != nil {
		t.Fatal(err)
	}
}

func (s *sweeping) sweeper(t *testing.T) *controllers.SnapshotSweeper {
	return &controllers.SnapshotSweeper{
		View: op.view, Client: sessionClient(t, s.config), Now: timeOf(s.clock),
		Interval: time.Hour, Clock: clocktesting.NewFakeClock(s.clock.Now()), // which no request advances
		Limits: controllers.SweepLimits{Grace: time.Hour, HoldOff: s.holdOff, MaxShare: s.maxShare}, Releases: s.releases,
	}
}

// timeOf returns the clock of an API server.
func timeOf(clock clock.PassiveClock) func(context.Context) (time.Time, error) {
	return func(context.Context) (time.Time, error) { return clock.Now(), nil }
}

// write stores a snapshot of a session that need not exist.
func (s *sweeping) write(t *testing.T, id string) *v1alpha1.SnapshotReference {
	t.Helper()
	name := types.NamespacedName{Namespace: s.namespace, Name: v1alpha1.ObjectName(id)}
	ref, err := snapshot.Write(t.Context(), s.store, name, snapshot.Bodies{Request: []byte(`{"input":"` + id + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// refer creates the session of a snapshot, and waits until the operator has it and, if it can read the snapshot, has made it
// the owner, and the garbage collector has seen that: a deletion with orphans would otherwise have the chunk deleted.
func (s *sweeping) refer(t *testing.T, id string, ref *v1alpha1.SnapshotReference) {
	t.Helper()
	session := turn(s.namespace, id)
	session.Spec.Request, session.Spec.Response, session.Spec.Snapshot = nil, nil, ref
	create(t, session)
	s.waitFor(t, id, true)
	if ref.Store != v1alpha1.SnapshotStoreChunks {
		return
	}
	testutil.Eventually(t, func(context.Context) error {
		if record, found := op.view.Get(s.namespace, session.Name); !found || !record.Verified {
			return fmt.Errorf("the operator has not verified the snapshot of %s", id)
		}
		return nil
	})
	canary := &v1alpha1.SnapshotChunk{}
	canary.Namespace, canary.Name = s.namespace, v1alpha1.SnapshotChunkName(s.write(t, "canary").Key, 0)
	testsession.WaitForGarbageCollection(t, env.Client, canary)
}

func (s *sweeping) waitFor(t *testing.T, id string, want bool) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		if _, found := op.view.Get(s.namespace, v1alpha1.ObjectName(id)); found != want {
			return fmt.Errorf("the operator has %s: %t", id, found)
		}
		return nil
	})
}

// want checks which parts the store has, and for which of them there is a mark.
func (s *sweeping) want(t *testing.T, marked bool, refs ...*v1alpha1.SnapshotReference) {
	t.Helper()
	got, want := []string{}, []string{}
	for part, err := range s.store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if part.Session.Namespace == s.namespace && !part.Unreferenced.IsZero() == marked {
			got = append(got, part.Key)
		}
	}
	for _, ref := range refs {
		want = append(want, ref.Key)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored parts, marked: %t (-want +got):\n%s", marked, diff)
	}
}

// TestSweep: an unreferenced snapshot is deleted a grace period after a leader first saw it, even if another leader did. If its
// session returns in the meantime, the snapshot is kept.
func TestSweep(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) snapshot.Store{"chunks": chunkStore, "bucket": bucketStore} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, newStore(t))
			sweep := func(after time.Duration) { t.Helper(); s.mustSweep(t, after) }
			left, used, restored := s.write(t, "left"), s.write(t, "used"), s.write(t, "restored")
			s.refer(t, "used", used)

			sweep(0) // the others may be parts of running saves
			s.want(t, false, left, used, restored)
			s.want(t, true)
			sweep(24 * time.Hour) // the operator was down: it sees them for the first time
			s.want(t, false, used)
			s.want(t, true, left, restored)
			s.refer(t, "restored", restored)
			sweep(35 * time.Minute)
			s.want(t, false, used, restored)
			s.want(t, true, left)
			sweep(30 * time.Minute)
			s.want(t, false, used, restored)
			s.want(t, true)

			deleteWith(t, s.namespace, "restored", metav1.DeletePropagationOrphan)
			s.waitFor(t, "restored", false)
			sweep(time.Minute)
			s.want(t, false, used)
			s.want(t, true, restored)
		})
	}
}

// TestReturnBetweenSweeps: the grace period begins again if a session has referred to a snapshot, even if no sweep has seen the session.
func TestReturnBetweenSweeps(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) snapshot.Store{"chunks": chunkStore, "bucket": bucketStore} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, newStore(t))
			other, returned := s.write(t, "other"), s.write(t, "returned")
			s.mustSweep(t, 24*time.Hour)
			s.want(t, true, other, returned)

			s.clock.SetTime(s.clock.Now().Add(50 * time.Minute))
			s.refer(t, "returned", returned)
			deleteWith(t, s.namespace, "returned", metav1.DeletePropagationOrphan)
			s.waitFor(t, "returned", false)
			s.mustSweep(t, 20*time.Minute) // unmarks it, and the second leader may mark it again
			s.mustSweep(t, time.Minute)
			s.want(t, true, returned)
			s.mustSweep(t, 58*time.Minute)
			s.want(t, true, returned)
			s.mustSweep(t, 3*time.Minute)
			s.want(t, true)
			s.want(t, false)
		})
	}
}

// TestSweepAfterInterruption: a leader deletes nothing until it has received all releases of a grace period, because sessions may have
// referred to what is marked before it was started, or while its watch was interrupted.
func TestSweepAfterInterruption(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, s *sweeping){
		"another process": func(t *testing.T, s *sweeping) { s.releases = observeReleases(t, s.clock) },
		"another list":    func(_ *testing.T, s *sweeping) { s.releases.Interrupt() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, bucketStore(t))
			left := s.write(t, "left")
			s.mustSweep(t, 24*time.Hour)
			s.clock.SetTime(s.clock.Now().Add(50 * time.Minute))
			interrupt(t, s)
			s.mustSweep(t, 59*time.Minute)
			s.want(t, true, left)
			s.mustSweep(t, time.Minute)
			s.want(t, true)
			s.want(t, false)
		})
	}
}

// halfList is a store whose list expires halfway.
type halfList struct{ snapshot.Store }

func (h halfList) List(ctx context.Context) iter.Seq2[snapshot.Part, error] {
	return func(yield func(snapshot.Part, error) bool) {
		for part, err := range h.Store.List(ctx) {
			if !yield(part, err) {
				return
			}
			break
		}
		yield(snapshot.Part{}, errors.New("410: the continue token has expired"))
	}
}

// TestSweepWithIncompleteData: nothing is marked or deleted, and no session is read again, if the list of the snapshots ends
// early, or if the API server no longer serves the sessions.
func TestSweepWithIncompleteData(t *testing.T) {
	s := newSweeping(t, bucketStore(t))
	left, used := s.write(t, "left"), s.write(t, "used")
	s.refer(t, "used", used)
	whole := s.store
	s.store = halfList{whole}
	if err := s.sweep(t, 20*time.Minute); err == nil {
		t.Error("a sweep of an incomplete list returned no error")
	}
	s.store = whole
	s.want(t, true)
	if err := s.sweep(t, 0); err != nil {
		t.Fatal(err)
	}
	s.want(t, true, left)

	s.config = rest.CopyConfig(env.Config)
	s.config.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
		})
	})
	if err := s.sweep(t, 2*time.Hour); err == nil {
		t.Error("a sweep without the API of the sessions returned no error")
	}
	s.want(t, true, left)
	s.config = env.Config
	if err := s.sweep(t, 0); err != nil {
		t.Fatal(err)
	}
	s.want(t, true)
	s.want(t, false, used)
}

// TestSweepWithStaleView: nothing is marked or deleted while the view may lack sessions.
func TestSweepWithStaleView(t *testing.T) {
	s := newSweeping(t, bucketStore(t))
	used := s.write(t, "used")
	s.refer(t, "used", used)
	s.clock.SetTime(s.clock.Now().Add(24 * time.Hour))
	sweeper := s.sweeper(t)
	sweeper.View = sessions.NewView(chain.DefaultMaxDepth, time.Hour) // which is stale until it has synced
	if err := controllers.Sweep(t.Context(), sweeper, s.store); err == nil {
		t.Error("a sweep with a stale view returned no error")
	}
	s.want(t, true)
	s.want(t, false, used)
}

// TestSweepShare: a sweep deletes no more than its share of the snapshots, unless they are few.
func TestSweepShare(t *testing.T) {
	tests := map[string]struct {
		snapshots int
		share     float64
		want      int
	}{
		"few":                    {snapshots: 100, share: 0.5, want: 0},
		"many":                   {snapshots: 101, share: 0.5, want: 101},
		"many, within the share": {snapshots: 101, share: 1, want: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t, bucketStore(t))
			s.maxShare = tc.share
			for i := range tc.snapshots {
				s.write(t, fmt.Sprint(i))
			}
			if err := s.sweep(t, 20*time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := s.sweep(t, time.Hour); (err != nil) != (tc.want > 0) {
				t.Errorf("unexpected result of the sweep: %v", err)
			}
			left := 0
			for _, err := range s.store.List(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				left++
			}
			if left != tc.want {
				t.Errorf("%d snapshots are left, want %d", left, tc.want)
			}
		})
	}
}

// TestSweepOfOtherNamespaces: snapshots without sessions, however many two namespaces store, do not keep those of another one.
func TestSweepOfOtherNamespaces(t *testing.T) {
	s := newSweeping(t, bucketStore(t))
	s.maxShare = 0.5
	used := s.write(t, "used")
	s.refer(t, "used", used)
	s.write(t, "leftover")
	hostile := []*sweeping{}
	for range 2 {
		h := *s
		h.namespace = env.NewNamespace(t)
		hostile = append(hostile, &h)
	}
	var stored [2][]*v1alpha1.SnapshotReference
	for i, h := range hostile {
		for n := range 101 {
			stored[i] = append(stored[i], h.write(t, fmt.Sprint(n)))
		}
	}
	s.mustSweep(t, 20*time.Minute)
	if err := s.sweep(t, time.Hour); err == nil {
		t.Error("a sweep that kept snapshots returned no error")
	}
	s.want(t, true)
	s.want(t, false, used)
	for i, h := range hostile {
		h.want(t, true, stored[i]...)
	}
}

// TestSweepStrayChunks: chunks without their first piece are deleted. A chunk that has lost the annotation of its session is
// kept as long as a session refers to its snapshot.
func TestSweepStrayChunks(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	chunk := func(key string, part int, annotations map[string]string) *v1alpha1.SnapshotChunk {
		c := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
		c.Namespace, c.Name, c.Annotations = s.namespace, v1alpha1.SnapshotChunkName(key, part), annotations
		if err := env.Client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	used, stray := s.write(t, "used"), s.write(t, "stray")
	s.refer(t, "used", used)
	for part := 1; part <= 2; part++ {
		chunk(used.Key, part, nil)
		chunk(stray.Key, part, map[string]string{v1alpha1.SessionAnnotation: "stray"})
	}
	first := &v1alpha1.SnapshotChunk{}
	first.Namespace, first.Name = s.namespace, v1alpha1.SnapshotChunkName(stray.Key, 0)
	if err := env.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{20 * time.Minute, time.Hour} {
		if err := s.sweep(t, after); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, false, used, used, used)
	s.want(t, true)
}

// TestUnmarkableChunks: a chunk that cannot be marked because its annotations, which are older than the policy, use the whole limit
// neither fails a sweep nor is logged in full.
func TestUnmarkableChunks(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	left := s.write(t, "left")
	const limit = 256 << 10
	for _, key := range []string{strings.Repeat("a", 26), strings.Repeat("b", 26)} {
		full := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
		full.Namespace, full.Name = s.namespace, v1alpha1.SnapshotChunkName(key, 0)
		full.Annotations = map[string]string{v1alpha1.SessionAnnotation: strings.Repeat("x", limit-len(v1alpha1.SessionAnnotation))}
		withoutMetadataPolicy(t, func() { createAll(t, full) })
		defer func() { _ = env.Client.Delete(t.Context(), full) }()
	}
	s.clock.SetTime(s.clock.Now().Add(20 * time.Minute))
	var logged []string
	logger := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	if err := controllers.Sweep(log.IntoContext(t.Context(), logger), s.sweeper(t), s.store); err != nil {
		t.Error(err)
	}
	s.want(t, true, left)
	var got []string
	for _, line := range logged {
		if strings.Contains(line, s.namespace) {
			got = append(got, line[strings.Index(line, `"foremost"`):])
		}
	}
	want := []string{fmt.Sprintf(`"foremost"=%q "chunks"=2`, s.namespace)} // the sweep is also of what other tests have left
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}

// TestLoggedNames: a chunk whose annotation is not the name of a session is deleted, and the annotation is not logged.
func TestLoggedNames(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
	chunk.Namespace, chunk.Name = s.namespace, v1alpha1.SnapshotChunkName(strings.Repeat("a", 26), 0)
	chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: strings.Repeat("A secret. ", 90)}
	if err := env.Client.Create(t.Context(), chunk); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{}))
	for _, after := range []time.Duration{20 * time.Minute, time.Hour} {
		s.clock.SetTime(s.clock.Now().Add(after))
		if err := controllers.Sweep(ctx, s.sweeper(t), s.store); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, true)
	if got := logged.String(); !strings.Contains(got, chunk.Name[:26]) || strings.Contains(got, "secret") {
		t.Errorf("logged: %.1000s", got)
	}
}
