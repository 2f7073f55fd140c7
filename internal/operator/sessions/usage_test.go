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

package sessions

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
)

// TestUsage feeds the view possible events of the watch, and compares its sums, and the sessions with outdated owners, with the
// objects stored then.
func TestUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(chain.DefaultMaxDepth, time.Hour)
		s := (*store)(v)
		stored := map[string]*v1alpha1.ResponseSession{}
		version := 0
		draw := func(t *rapid.T) *v1alpha1.ResponseSession {
			version++
			o := object(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "previous"), version)
			o.Spec.ResponseStatus = rapid.SampledFrom([]string{"completed", "failed", "x"}).Draw(t, "status")
			o.Generation = int64(version)
			if rapid.Bool().Draw(t, "misnamed") {
				o.Spec.ResponseID += "x"
			}
			if rapid.Bool().Draw(t, "deleting") {
				deleting(o)
			}
			if rapid.Bool().Draw(t, "outdated") {
				o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "sessions.catena.dev/v1beta1", Kind: v1alpha1.ResponseSessionKind, Name: "a"}}
			}
			if rapid.Bool().Draw(t, "external") {
				o.Spec.Snapshot = &v1alpha1.SnapshotReference{
					Store:       rapid.SampledFrom([]string{v1alpha1.SnapshotStoreChunks, v1alpha1.SnapshotStoreBlob}).Draw(t, "store"),
					StoredBytes: rapid.Int64Range(1, 1<<30).Draw(t, "storedBytes"),
				}
			}
			return o
		}
		events := eventsOf(s, stored, draw)
		events["list"] = func(t *rapid.T) {
			o := draw(t)
			clear(stored)
			stored[o.Name] = o
			replace(s, version, o)
		}
		events[""] = func(t *rapid.T) {
			want := Usage{Sessions: len(stored)}
			wantOutdated := map[types.NamespacedName]string{}
			for _, o := range stored {
				if len(o.OwnerReferences) > 0 {
					wantOutdated[types.NamespacedName{Namespace: "ns", Name: o.Name}] = o.ResourceVersion
				}
				want.Bytes += int64(len(encoded(o).Raw))
				if o.Spec.Snapshot != nil && o.Spec.Snapshot.Store == v1alpha1.SnapshotStoreBlob {
					want.Bytes += o.Spec.Snapshot.StoredBytes
				}
			}
			all := map[string]Usage{"ns": want}
			if len(stored) == 0 {
				delete(all, "ns")
			}
			if diff := cmp.Diff(want, v.Usage("ns")) + cmp.Diff(all, v.Usages()); diff != "" {
				t.Fatalf("usage (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantOutdated, v.Outdated(10)) + cmp.Diff(len(wantOutdated), v.CountOutdated()); diff != "" {
				t.Fatalf("outdated (-want +got):\n%s", diff)
			}
		}
		t.Repeat(events)
	})
}

// TestUsageIncludesWaitingChanges: what the API server has sent counts, although it waits until the namespace may go on. Objects that were created
// and deleted meanwhile are forgotten.
func TestUsageIncludesWaitingChanges(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	kept, changed, removed := object("kept", "", 1), object("changed", "", 2), object("removed", "", 3)
	for _, o := range []*v1alpha1.ResponseSession{kept, changed, removed} {
		add(s, o)
	}
	applying, proceed := make(chan struct{}), make(chan struct{})
	apply := v.feeds.apply
	v.feeds.apply = func(namespace string, e event) time.Duration {
		if e.version == 4 {
			applying <- struct{}{}
			<-proceed
		}
		return apply(namespace, e)
	}
	blocking := object("blocking", "", 4)
	must(s.Add(watched(s, blocking)))
	<-applying
	changed.Spec.ConversationID, changed.ResourceVersion, changed.Generation = "conv_with_a_long_id", "5", 2
	must(s.Update(watched(s, changed)))
	must(s.Delete(watched(s, removed)))
	created := object("created", "", 7)
	must(s.Add(watched(s, created)))
	must(s.Add(watched(s, in("other", object("elsewhere", "", 8)))))
	for i := range 1000 {
		brief := object(fmt.Sprint("brief", i), "", 9+2*i)
		must(s.Add(watched(s, brief)))
		must(s.Delete(watched(s, brief)))
	}
	want := Usage{Sessions: 3, Bytes: int64(len(encoded(kept).Raw) + len(encoded(changed).Raw) + len(encoded(created).Raw))}
	if diff := cmp.Diff(want, v.Usage("ns")) + cmp.Diff(want, v.Usages()["ns"]); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	overlapping := func(i int) *v1alpha1.ResponseSession { return object(fmt.Sprint("overlapping", i%2), "", 3000+i) }
	must(s.Add(watched(s, overlapping(0))))
	for i := range 1000 {
		must(s.Add(watched(s, overlapping(i+1))))
		must(s.Delete(watched(s, overlapping(i))))
	}
	must(s.Delete(watched(s, overlapping(1000))))
	if waiting := v.feeds.waiting["ns"]; len(waiting.queue) > 2*3+minTrimmed || len(waiting.latest) != 3 {
		t.Errorf("%d objects wait for %d events, want 3", len(waiting.queue), len(waiting.latest))
	}
	close(proceed)
	v.feeds.wait()
	want.Sessions++
	want.Bytes += int64(len(encoded(blocking).Raw))
	if diff := cmp.Diff(want, v.Usage("ns")); diff != "" {
		t.Errorf("usage in the end (-want +got):\n%s", diff)
	}
}

// TestUsageOfFalseSizes: whatever size a session claims for its snapshot, the sum is positive.
func TestUsageOfFalseSizes(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	for i, size := range []int64{math.MaxInt64, math.MaxInt64, math.MinInt64, -1, 0} {
		o := object(fmt.Sprint("false", i), "", i+1)
		o.Spec.Snapshot = &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreBlob, StoredBytes: size}
		add(s, o)
	}
	got := v.Usage("ns").Bytes
	if got < 2*maxBucketBytes || got > 2*maxBucketBytes+10_000 {
		t.Errorf("got %d bytes, want the sum of two snapshots of %d bytes and a little more", got, int64(maxBucketBytes))
	}
}
