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
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestClockSkew: if the clock of the API server differs by hours from that which has written the parts, as that of a bucket does, nothing
// is deleted too early. The operators' own clocks are not used.
func TestClockSkew(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) snapshot.Store{"chunks": chunkStore, "bucket": bucketStore} {
		for skew, wait := range map[time.Duration]time.Duration{5 * time.Hour: 0, -5 * time.Hour: 5*time.Hour + 20*time.Minute} {
			t.Run(fmt.Sprint(name, skew), func(t *testing.T) {
				s := newSweeping(t, newStore(t))
				s.clock.SetTime(s.clock.Now().Add(skew))
				left, restored := s.write(t, "left"), s.write(t, "restored")
				if s.mustSweep(t, 0); wait > 0 {
					s.want(t, false, left, restored)
					s.mustSweep(t, wait-20*time.Minute)
					s.want(t, false, left, restored)
					s.mustSweep(t, 20*time.Minute)
				}
				s.want(t, true, left, restored)
				s.mustSweep(t, 59*time.Minute)
				s.want(t, true, left, restored)
				s.refer(t, "restored", restored)
				s.mustSweep(t, time.Minute)
				s.want(t, true)
				s.want(t, false, restored)
			})
		}
	}
}

// TestListExpires: nothing is marked or deleted if the list of the chunks expires halfway: etcd is compacted, and an API server
// that has just been started does not have the first page's revision in its cache either.
func TestListExpires(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	var written []*v1alpha1.SnapshotReference
	for i := range 4 {
		written = append(written, s.write(t, fmt.Sprint(i)))
	}
	var once sync.Once
	expire := func() {
		env.NewNamespace(t) // a later revision
		err := errors.Join(env.RestartAPIServer(t.Context()), env.CompactEtcd(t.Context()))
		testutil.Eventually(t, func(ctx context.Context) error {
			return errors.Join(err, env.Client.List(ctx, &v1alpha1.SnapshotChunkList{}, client.Limit(1)))
		})
	}
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			query := r.URL.Query()
			if !strings.HasSuffix(r.URL.Path, "/snapshotchunks") || r.Method != http.MethodGet {
				return next.RoundTrip(r)
			}
			query.Set("limit", "2")
			r.URL.RawQuery = query.Encode()
			if query.Get("continue") != "" {
				once.Do(expire)
			}
			return next.RoundTrip(r)
		})
	})
	whole := s.store
	s.store = snapshot.NewChunkStore(sessionClient(t, config))
	if err := s.sweep(t, 20*time.Minute); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want an expired list", err)
	}
	s.store = whole
	s.want(t, false, written...)
	s.mustSweep(t, 0)
	s.want(t, true, written...)
}

// stalledLeader is a store whose leader stalls before it deletes or marks a part.
type stalledLeader struct {
	snapshot.Store
	stall func(part snapshot.Part)
}

func (l stalledLeader) Delete(ctx context.Context, part snapshot.Part) error {
	l.stall(part)
	return l.Store.Delete(ctx, part)
}

func (l stalledLeader) Mark(ctx context.Context, part snapshot.Part, since time.Time) error {
	l.stall(part)
	return l.Store.Mark(ctx, part, since)
}

// TestStalledLeader: a leader that stalls after it has found a chunk unreferenced does not delete it once the session has returned
// and another leader has seen that.
func TestStalledLeader(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	ref := s.write(t, "a")
	s.mustSweep(t, 20*time.Minute)
	s.want(t, true, ref)
	s.clock.SetTime(s.clock.Now().Add(time.Hour))
	stalled := stalledLeader{s.store, func(part snapshot.Part) {
		if part.Key == ref.Key {
			s.refer(t, "a", ref)
			s.mustSweep(t, 0)
		}
	}}
	if err := controllers.Sweep(t.Context(), s.sweeper(t), stalled); err != nil {
		t.Fatal(err)
	}
	s.want(t, true)
	s.want(t, false, ref)
}

// TestStalledMark: a leader that stalls before it marks a chunk does not mark it once the session has returned.
func TestStalledMark(t *testing.T) {
	s := newSweeping(t, chunkStore(t))
	ref := s.write(t, "a")
	s.clock.SetTime(s.clock.Now().Add(20 * time.Minute))
	stalled := stalledLeader{s.store, func(part snapshot.Part) {
		if part.Key == ref.Key {
			s.refer(t, "a", ref)
		}
	}}
	if err := controllers.Sweep(t.Context(), s.sweeper(t), stalled); err != nil {
		t.Fatal(err)
	}
	s.want(t, true)
	s.want(t, false, ref)
}

// TestBackdatedMark: a leader that stalls while it marks snapshots does not mark the others with the time of the beginning.
func TestBackdatedMark(t *testing.T) {
	s := newSweeping(t, bucketStore(t))
	for i := range 3 {
		s.write(t, fmt.Sprint(i))
	}
	s.clock.SetTime(s.clock.Now().Add(20 * time.Minute))
	stalled := stalledLeader{s.store, func(snapshot.Part) { s.clock.SetTime(s.clock.Now().Add(2 * time.Hour)) }}
	if err := controllers.Sweep(t.Context(), s.sweeper(t), stalled); err != nil {
		t.Fatal(err)
	}
	want := map[time.Duration]int{2 * time.Hour: 1, 4 * time.Hour: 1, 6 * time.Hour: 1}
	got := map[time.Duration]int{}
	for part, err := range s.store.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got[s.clock.Now().Truncate(time.Second).Sub(part.Unreferenced)]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ages of the marks (-want +got):\n%s", diff)
	}
}
