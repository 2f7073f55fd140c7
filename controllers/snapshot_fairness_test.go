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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// slowStore is a store in which each mark and each deletion takes a second, of which only some namespaces are seen.
type slowStore struct {
	snapshot.Store
	clock      *clocktesting.FakeClock
	namespaces []string
	// listed is called before each list.
	listed func()
}

func (s slowStore) List(ctx context.Context) iter.Seq2[snapshot.Part, error] {
	s.listed()
	return func(yield func(snapshot.Part, error) bool) {
		for part, err := range s.Store.List(ctx) {
			if (err != nil || slices.Contains(s.namespaces, part.Session.Namespace)) && !yield(part, err) {
				return
			}
		}
	}
}

func (s slowStore) Mark(ctx context.Context, part snapshot.Part, since time.Time) error {
	s.clock.Step(time.Second)
	return s.Store.Mark(ctx, part, since)
}

func (s slowStore) Delete(ctx context.Context, part snapshot.Part) error {
	s.clock.Step(time.Second)
	return s.Store.Delete(ctx, part)
}

// contest is a namespace with little in a slow store, beside one with much. In a phase of a sweep there is time for ten requests.
type contest struct {
	small, large *sweeping
	store        slowStore
	sweeper      *controllers.SnapshotSweeper
}

func newContest(t *testing.T, store snapshot.Store) *contest {
	t.Helper()
	small := newSweeping(t, store)
	large := *small
	large.namespace = env.NewNamespace(t)
	clock := clocktesting.NewFakeClock(small.clock.Now())
	c := &contest{small: small, large: &large, sweeper: small.sweeper(t)}
	c.store = slowStore{Store: store, clock: clock, namespaces: []string{small.namespace, large.namespace}, listed: func() {}}
	c.sweeper.Clock, c.sweeper.Interval, c.sweeper.Stores = clock, 30*time.Second, []snapshot.Store{c.store}
	return c
}

// sweep sweeps once, at a later time of the API server.
func (c *contest) sweep(t *testing.T, after time.Duration) {
	t.Helper()
	c.small.clock.SetTime(c.small.clock.Now().Add(after))
	if err := controllers.Sweep(t.Context(), c.sweeper, c.store); err != nil {
		t.Fatal(err)
	}
}

// writeMany stores snapshots without sessions.
func (s *sweeping) writeMany(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		s.write(t, fmt.Sprint("leftover", i))
	}
}

// wantCount checks how many parts of a namespace the store has, and how many of them have marks.
func (s *sweeping) wantCount(t *testing.T, wantStored, wantMarked int) {
	t.Helper()
	stored, marked := 0, 0
	for part, err := range s.store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if part.Session.Namespace == s.namespace {
			stored++
			if !part.Unreferenced.IsZero() {
				marked++
			}
		}
	}
	if stored != wantStored || marked != wantMarked {
		t.Errorf("%d parts are stored and %d of them have marks, want %d and %d", stored, marked, wantStored, wantMarked)
	}
}

// TestSweepsAreFair: the few snapshots of a namespace are marked, unmarked and deleted by the next sweep, although there is no time for all
// those of another namespace.
func TestSweepsAreFair(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) snapshot.Store{"chunks": chunkStore, "bucket": bucketStore} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, newStore(t))
			c.large.writeMany(t, 30)
			left, restored := c.small.write(t, "left"), c.small.write(t, "restored")
			c.sweep(t, 20*time.Minute)
			c.small.want(t, true, left, restored)
			c.large.wantCount(t, 30, 8)

			for range 3 {
				c.sweep(t, 0)
			}
			c.large.wantCount(t, 30, 30)
			c.small.refer(t, "restored", restored)
			c.sweep(t, time.Hour)
			c.small.want(t, true)
			c.small.want(t, false, restored)
			c.large.wantCount(t, 21, 21)
		})
	}
}

// TestUnmarksAreFair: the snapshot of a restored session is unmarked by the next sweep, although another namespace has restored more
// than a sweep unmarks.
func TestUnmarksAreFair(t *testing.T) {
	c := newContest(t, bucketStore(t))
	refs := map[string]*v1alpha1.SnapshotReference{}
	for i := range 12 {
		id := fmt.Sprint("restored", i)
		refs[id] = c.large.write(t, id)
	}
	restored := c.small.write(t, "restored")
	for range 2 {
		c.sweep(t, 20*time.Minute)
	}
	c.small.wantCount(t, 1, 1)
	c.large.wantCount(t, 12, 12)
	c.small.refer(t, "restored", restored)
	for id, ref := range refs {
		c.large.refer(t, id, ref)
	}
	c.sweep(t, 0)
	c.small.wantCount(t, 1, 0)
	c.large.wantCount(t, 12, 3)
	c.sweep(t, 0)
	c.large.wantCount(t, 12, 0)
}

// TestLargeSnapshotsAreFair: a snapshot with more parts than a sweep deletes, whose parts name as many sessions, does not keep others from
// being deleted.
func TestLargeSnapshotsAreFair(t *testing.T) {
	c := newContest(t, chunkStore(t))
	c.large.writeChunks(t, 30)
	var left []*v1alpha1.SnapshotReference
	for i := range 3 {
		left = append(left, c.small.write(t, fmt.Sprint(i)))
	}
	c.sweep(t, 20*time.Minute)
	c.small.want(t, true, left...)
	c.large.wantCount(t, 30, 1)
	c.sweep(t, time.Hour)
	c.small.wantCount(t, 0, 0)
	c.large.wantCount(t, 23, 0) // the first part had the mark of the snapshot
}

// writeChunks stores chunks of one snapshot, without owners, that name a session each.
func (s *sweeping) writeChunks(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
		chunk.ObjectMeta = metav1.ObjectMeta{
			Namespace: s.namespace, Name: v1alpha1.SnapshotChunkName(strings.Repeat("a", 26), i),
			Annotations: map[string]string{v1alpha1.SessionAnnotation: fmt.Sprint("session-", i)},
		}
		createAll(t, chunk)
	}
}

// TestSweepsContinue: marks and deletions for which there is no time in a sweep are made by the next ones, without a pause. Meanwhile
// the other store is swept as often.
func TestSweepsContinue(t *testing.T) {
	c := newContest(t, bucketStore(t))
	c.large.writeMany(t, 35)
	var lists []string
	clock := c.store.clock
	c.store.listed = func() { lists = append(lists, "large") }
	other := slowStore{Store: bucketStore(t), clock: clock, listed: func() { lists = append(lists, "other") }}
	c.sweeper.Stores = []snapshot.Store{c.store, other}
	c.small.clock.SetTime(c.small.clock.Now().Add(20 * time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.sweeper.Start(ctx) }()
	wait := func() {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			if !clock.HasWaiters() {
				return errors.New("the sweeper does not pause")
			}
			return nil
		})
	}
	wait()
	c.large.wantCount(t, 35, 35)
	c.small.clock.SetTime(c.small.clock.Now().Add(time.Hour))
	clock.Step(c.sweeper.Interval)
	wait()
	c.large.wantCount(t, 0, 0)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var want []string
	for range 8 { // four for the marks and four for the deletions
		want = append(want, "large", "other")
	}
	if diff := cmp.Diff(want, lists); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
}

// TestEachReturnsOneError: a phase of a sweep keeps one error of many, and ends when the server cannot be reached.
func TestEachReturnsOneError(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		wantMade int
		want     string
	}{
		"refused":       {err: errors.New("no"), wantMade: 1000, want: "no (and 999 more failures)"},
		"not reachable": {err: syscall.ECONNREFUSED, wantMade: 1, want: syscall.ECONNREFUSED.Error()},
		"deadline":      {err: context.DeadlineExceeded, wantMade: 1, want: context.DeadlineExceeded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			made := 0
			left, err := controllers.Each(slices.Repeat([]int{1}, 1000), func(int) error {
				made++
				return tc.err
			})
			if made != tc.wantMade || left != (made == 1) || err == nil || err.Error() != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%d requests, left: %t, error %v", made, left, err)
			}
		})
	}
}

// TestHoldOffDespiteReleases: a tenant whose sessions come and go all the time does not keep the hold-off of a bucket from ever beginning.
func TestHoldOffDespiteReleases(t *testing.T) {
	c := newContest(t, bucketStore(t))
	c.sweeper.Limits.HoldOff = 24 * time.Hour
	c.large.writeMany(t, 5)
	for part, err := range c.store.List(t.Context()) {
		if err == nil { // from before a restore of the cluster
			err = c.store.Mark(t.Context(), part, c.small.clock.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
		c.small.releases.Add(part.Session.Namespace, part.Key) // its session was restored and deleted again
	}
	c.sweep(t, time.Minute)
	c.large.wantCount(t, 5, 0)
	if _, begun, err := c.store.HeldOff(t.Context()); !begun || err != nil {
		t.Errorf("begun: %t, error %v", begun, err)
	}
}

// TestHoldOffDespiteSupply: nor does one that leaves new snapshots faster than sweeps mark them.
func TestHoldOffDespiteSupply(t *testing.T) {
	c := newContest(t, bucketStore(t))
	c.sweeper.Limits.HoldOff = 24 * time.Hour
	for hours := 0; hours <= 24; hours += 12 {
		c.large.writeMany(t, 25)
		c.sweep(t, 12*time.Hour)
		if _, begun, err := c.store.HeldOff(t.Context()); begun != (hours == 24) || err != nil {
			t.Errorf("begun after %d hours: %t, error %v", hours, begun, err)
		}
	}
}

// TestHoldOffAwaitsMarks: the hold-off of a bucket begins once every snapshot has a mark, however many sweeps that takes: otherwise, those
// marked more than a grace period later would not prolong it if their sessions returned.
func TestHoldOffAwaitsMarks(t *testing.T) {
	c := newContest(t, bucketStore(t))
	c.sweeper.Limits.HoldOff = 24 * time.Hour
	c.large.writeMany(t, 25)
	for _, marked := range []int{10, 20} {
		c.sweep(t, 2*time.Hour)
		c.large.wantCount(t, 25, marked)
		if _, begun, err := c.store.HeldOff(t.Context()); begun || err != nil {
			t.Errorf("begun with %d of 25 marks: %t, error %v", marked, begun, err)
		}
	}
	c.sweep(t, 2*time.Hour)
	c.large.wantCount(t, 25, 25)
	now := c.small.clock.Now().UTC().Truncate(time.Second)
	h, begun, err := c.store.HeldOff(t.Context())
	if err != nil || !begun {
		t.Fatalf("begun: %t, error %v", begun, err)
	}
	if diff := cmp.Diff(snapshot.HoldOff{Since: now, Begun: now}, h); diff != "" {
		t.Errorf("hold-off (-want +got):\n%s", diff)
	}
}
