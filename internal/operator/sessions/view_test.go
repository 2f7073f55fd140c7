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
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
)

// TestReport checks that a report by another replica triggers one more read of the snapshot.
func TestReport(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	external := func(resourceVersion int, reported bool) *v1alpha1.ResponseSession {
		o := object("a", "", resourceVersion)
		o.Spec.Snapshot = &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreChunks, SizeBytes: 9}
		o.Status = v1alpha1.ResponseSessionStatus{ObservedGeneration: 1, SnapshotBytes: 9, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved},
		}}
		if reported {
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionSnapshotReadable, Status: metav1.ConditionFalse, ObservedGeneration: 1,
			})
		}
		return o
	}
	check := func(step string, verified bool) {
		t.Helper()
		if got, _ := v.Get("ns", "a"); got.Verified != verified {
			t.Errorf("%s: verified is %t", step, got.Verified)
		}
	}
	add(s, external(1, false))
	check("before the report", true)
	add(s, external(2, true))
	check("after the report", false)
	reported, _ := v.Get("ns", "a")
	v.SetReadable(reported, true)
	check("after it was read", true)
	add(s, external(3, true))
	check("before the report is cleared", true)
	add(s, external(4, false))
	check("after the report is cleared", true)

	// A report that arrives while the snapshot is being read triggers another read.
	before, _ := v.Get("ns", "a")
	add(s, external(5, true))
	v.SetReadable(before, true)
	check("reported while it was read", false)
}

// TestSnapshotOfChangedSpec: a change of the rest of the spec does not make a snapshot one that must be read again.
func TestSnapshotOfChangedSpec(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	version := 0
	change := func(key, conversation string) *Record {
		version++
		o := object("a", "", version)
		o.Generation, o.Spec.ConversationID = int64(version), conversation
		o.Spec.Snapshot = &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreChunks, Key: key, SizeBytes: 9}
		add(s, o)
		r, _ := v.Get("ns", "a")
		return r
	}
	for _, readable := range []bool{true, false} {
		v.SetReadable(change(fmt.Sprint("key", readable), ""), readable)
		if got := change(fmt.Sprint("key", readable), "conv_1"); got.Verified != readable || got.Turn.Unreadable == readable {
			t.Errorf("after a change of the conversation: verified %t, unreadable %t", got.Verified, got.Turn.Unreadable)
		}
		if got := change("another", "conv_1"); got.Verified || got.Turn.Unreadable {
			t.Errorf("another snapshot: verified %t, unreadable %t", got.Verified, got.Turn.Unreadable)
		}
	}
}

// TestViewFollowsTheWatch feeds the view possible events of the watch.
func TestViewFollowsTheWatch(t *testing.T) {
	tests := map[string]struct {
		feed func(s *store)
		want map[string]string // object name to reason
	}{
		"child before parent": {
			feed: func(s *store) { add(s, object("b", "a", 1)); add(s, object("a", "", 2)) },
			want: map[string]string{"a": "Resolved", "b": "Resolved"},
		},
		"parent is deleted": {
			feed: func(s *store) { add(s, object("a", "", 1)); add(s, object("b", "a", 2)); remove(s, object("a", "", 3)) },
			want: map[string]string{"b": "ParentNotFound"},
		},
		"outdated event": {
			feed: func(s *store) {
				add(s, object("a", "", 5))
				old := object("a", "", 4)
				old.Spec.ResponseStatus = "failed"
				add(s, old)
			},
			want: map[string]string{"a": "Resolved"},
		},
		"relist without a session": {
			feed: func(s *store) {
				add(s, object("a", "", 1))
				add(s, object("b", "a", 2))
				replace(s, 9, object("b", "a", 2), object("c", "b", 7))
			},
			want: map[string]string{"b": "ParentNotFound", "c": "ParentNotFound"},
		},
		"empty relist": {
			feed: func(s *store) { add(s, object("a", "", 1)); replace(s, 2) },
			want: map[string]string{},
		},
		"misnamed session": {
			feed: func(s *store) {
				odd := object("A", "", 1)
				odd.Name = "sha256.aaaa"
				add(s, odd)
				add(s, object("b", "A", 2))
			},
			want: map[string]string{"sha256.aaaa": "NameMismatch", "b": "ParentNotFound"},
		},
		"session being deleted": {
			feed: func(s *store) {
				add(s, object("a", "", 1))
				add(s, object("b", "a", 2))
				add(s, deleting(object("a", "", 3)))
			},
			want: map[string]string{"b": "ParentNotFound"},
		},
		"session being deleted, then recreated": {
			feed: func(s *store) {
				add(s, deleting(object("a", "", 1)))
				add(s, object("b", "a", 2))
				remove(s, deleting(object("a", "", 3)))
				add(s, object("a", "", 4))
			},
			want: map[string]string{"a": "Resolved", "b": "Resolved"},
		},
		"misnamed session being deleted": {
			feed: func(s *store) {
				odd := object("A", "", 1)
				odd.Name = "sha256.aaaa"
				add(s, odd)
				again := deleting(object("A", "", 2))
				again.Name = odd.Name
				add(s, again)
				remove(s, again)
			},
			want: map[string]string{},
		},
		"misnamed session deleted": {
			feed: func(s *store) {
				odd := object("A", "", 1)
				odd.Name = "sha256.aaaa"
				add(s, odd)
				remove(s, odd)
			},
			want: map[string]string{},
		},
		"name is reused for another ID": {
			feed: func(s *store) {
				first := object("A", "", 1)
				first.Name = "sha256.aaaa"
				add(s, first)
				second := object("B", "", 2)
				second.Name = "sha256.aaaa"
				replace(s, 3, second)
			},
			want: map[string]string{"sha256.aaaa": "NameMismatch"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := NewView(chain.DefaultMaxDepth, time.Hour)
			tc.feed((*store)(v))
			got := map[string]string{}
			if ns := v.namespaces["ns"]; ns != nil {
				for name := range ns.names() {
					if verdict, found := v.Verdict("ns", name); found {
						got[name] = verdict.Rule.Reason()
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			wantCounts := map[string]int{}
			for _, reason := range tc.want {
				wantCounts[reason]++
			}
			for reason, count := range v.Counts() {
				if count != wantCounts[reason] {
					t.Errorf("%d sessions have reason %s, want %d", count, reason, wantCounts[reason])
				}
			}
		})
	}
}

func TestSubscribe(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	add(s, object("b", "a", 1))
	var got []Change
	v.Subscribe(func(change Change) {
		slices.Sort(change.Others)
		got = append(got, change)
	})
	add(s, object("c", "b", 2))
	add(s, object("c", "b", 2)) // nothing new
	add(s, object("a", "", 3))
	remove(s, object("b", "a", 4))
	want := []Change{
		{Namespace: "ns", Others: []string{"b"}},
		{Namespace: "ns", Name: "c"},
		{Namespace: "ns", Name: "a", Others: []string{"b", "c"}},
		{Namespace: "ns", Name: "b", Others: []string{"c"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestSubscribeInTurns: at first, a subscriber gets a part of each namespace after the other.
func TestSubscribeInTurns(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	const sessions = 2*subscriptionTurn + 1
	for i := range sessions {
		add(s, in("large", object(fmt.Sprint("t", i), "", i+1)))
	}
	for i := range 3 {
		add(s, in(fmt.Sprint("small-", i), object("a", "", i+1)))
	}
	var got []int
	names := map[string]bool{}
	v.Subscribe(func(change Change) {
		if change.Namespace == "large" {
			got = append(got, len(names))
		}
		for _, name := range change.Others {
			names[change.Namespace+"/"+name] = true
		}
	})
	if len(names) != sessions+3 || len(got) != 3 || got[1] != subscriptionTurn+3 || got[2] != 2*subscriptionTurn+3 {
		t.Errorf("got %d sessions, and before those of the large namespace %v", len(names), got)
	}
}

// TestRestoredCluster: a list that is older than what was received before is not applied, and ends the operator if lists stay so.
func TestRestoredCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView(chain.DefaultMaxDepth, time.Hour)
		s := (*store)(v)
		old := func(ends bool) {
			t.Helper()
			if err := s.Replace(nil, "6"); err == nil {
				t.Error("the older list was applied")
			}
			select {
			case <-v.restored:
				if !ends {
					t.Error("the operator ends")
				}
			default:
				if ends {
					t.Error("the operator goes on")
				}
			}
			time.Sleep(restoredDelay / 2) //nolint:forbidigo // in a bubble, it takes no time
		}
		replace(s, 7, object("a", "", 5))
		old(false)
		old(false)
		replace(s, 7, object("a", "", 5)) // the version was too low for a moment
		old(false)
		old(false)
		old(true)
		if err := v.EndIfRestored(t.Context()); err == nil {
			t.Error("no error")
		}
		if _, found := v.Get("ns", "a"); !found {
			t.Error("the view has changed")
		}
	})
}

// TestRestoredClusterIsNoticed: the current resource version shows that the cluster has been restored, if it is too low twice.
func TestRestoredClusterIsNoticed(t *testing.T) {
	for name, tc := range map[string]struct {
		versions []uint64
		restored bool
	}{
		"as received":    {versions: []uint64{7}},
		"too low once":   {versions: []uint64{6, 8}},
		"too low twice":  {versions: []uint64{6, 6}, restored: true},
		"still too low":  {versions: []uint64{5, 6}, restored: true},
		"newer versions": {versions: []uint64{9}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := NewView(chain.DefaultMaxDepth, time.Hour)
				replace((*store)(v), 7, object("a", "", 5))
				_, err := v.notBefore(t.Context(), func() (uint64, error) {
					version := tc.versions[0]
					tc.versions = tc.versions[1:]
					return version, nil
				})
				restored := false
				select {
				case <-v.restored:
					restored = true
				default:
				}
				if restored != tc.restored || (err != nil) != tc.restored || len(tc.versions) > 0 {
					t.Errorf("got %v, restored: %t, and %d versions were not asked for", err, restored, len(tc.versions))
				}
			})
		})
	}
}

// TestObserve checks that the response to a write takes effect ahead of the watch, but never brings back a deleted session.
func TestObserve(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	add(s, object("a", "", 1))

	written := object("a", "", 5)
	status := &v1alpha1.ResponseSessionStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved,
	}}}
	partial := func(o *v1alpha1.ResponseSession) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: o.ObjectMeta}
	}
	v.Observe("ns", "a", func(known *Record) *Record { return known.WithMetadata(partial(written)).WithStatus(status) })
	if got, _ := v.Get("ns", "a"); got.Written != NewFingerprint(status) || got.ResourceVersion != 5 {
		t.Errorf("the write was not observed: %+v", got)
	}

	// The response to the write has no status, so the view assumes the applied one until the watch delivers the stored one.
	foreign := object("a", "", 5)
	foreign.Status = *status
	foreign.Status.BrokenAt = "elsewhere"
	add(s, foreign)
	if got, _ := v.Get("ns", "a"); got.Written != NewFingerprint(&foreign.Status) {
		t.Errorf("the watch's record of the same version is ignored: %+v", got)
	}
	v.Observe("ns", "a", func(known *Record) *Record { return known.WithMetadata(partial(written)).WithStatus(status) })
	if got, _ := v.Get("ns", "a"); got.Written != NewFingerprint(&foreign.Status) {
		t.Errorf("the response to the write replaces the watch's record of the same version: %+v", got)
	}

	overwritten := object("a", "", 7)
	overwritten.Generation = 2
	v.Observe("ns", "a", func(known *Record) *Record { return known.WithMetadata(partial(overwritten)) })
	if got, _ := v.Get("ns", "a"); got.ResourceVersion != 5 {
		t.Error("the response to the write hides a spec that the view has not seen")
	}

	remove(s, object("a", "", 9))
	v.Observe("ns", "a", func(known *Record) *Record { return known })
	if _, found := v.Get("ns", "a"); found {
		t.Error("the response to the write restores a deleted session")
	}
}

func TestReflects(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	if v.HasSynced() {
		t.Error("synced before the first list")
	}
	replace(s, 10)
	if !v.HasSynced() || !v.Reflects("ns", 10) || v.Reflects("ns", 11) {
		t.Error("want the view to be synced and to reflect 10 and not 11")
	}
	s.UpdateResourceVersion("15")
	add(s, object("a", "", 12))
	if !v.Reflects("ns", 15) || v.Reflects("ns", 16) {
		t.Error("want the view to reflect 15 and not 16")
	}
}

// TestExplanation: the explanation of a verdict contains the status of the turn itself, but not that of an ancestor, which can
// change without a new verdict: the message of the descendant's condition would remain outdated forever.
func TestExplanation(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	for i, tc := range []struct{ status, own, descendant string }{
		{"queued", `response "a" is "queued" and cannot be used as context until it is completed`,
			`response "a" is pending and cannot be used as context until it is completed`},
		{"in_progress", `response "a" is "in_progress" and cannot be used as context until it is completed`,
			`response "a" is pending and cannot be used as context until it is completed`},
		{"failed", `response "a" is "failed", not completed, and cannot be used as context`,
			`response "a" is not completed and cannot be used as context`},
	} {
		a := object("a", "", 2*i+1)
		a.Spec.ResponseStatus, a.Generation = tc.status, int64(i+1)
		add((*store)(v), a)
		add((*store)(v), object("b", "a", 2*i+2))
		for name, want := range map[string]string{"a": tc.own, "b": tc.descendant} {
			if verdict, _ := v.Verdict("ns", name); verdict.Explanation.Error() != want {
				t.Errorf("%s while a is %s: got %q, want %q", name, tc.status, verdict.Explanation, want)
			}
		}
	}
}

// TestReleases: the view reports each snapshot to which a session has ceased to refer.
func TestReleases(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	s := (*store)(v)
	applying, proceed := make(chan bool), make(chan bool)
	v.Subscribe(func(change Change) {
		if change.Name == "busy" {
			applying <- true
			<-proceed
		}
	})
	var released []string
	v.OnRelease(func(namespace, key string) { released = append(released, namespace+"/"+key) })
	lists := 0
	v.OnList(func() { lists++ })
	external := func(key string, resourceVersion int) *v1alpha1.ResponseSession {
		o := object("a", "", resourceVersion)
		o.Generation = int64(resourceVersion)
		o.Spec.Snapshot = &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreBlob, Key: key}
		return o
	}
	inline := object("a", "", 6)
	inline.Generation = 6
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"saved", func() { add(s, external("k1", 1)) }, nil},
		{"the same again", func() { add(s, external("k1", 2)) }, nil},
		{"overwritten", func() { add(s, external("k2", 3)) }, []string{"ns/k1"}},
		{"overwritten with bodies inline", func() { add(s, inline) }, []string{"ns/k2"}},
		{"overwritten again", func() { add(s, external("k3", 7)) }, nil},
		{"gone from the list", func() { replace(s, 8) }, []string{"ns/k3"}},
		{"created, overwritten and deleted before the first is applied", func() {
			s.feeds.add("ns", event{name: "busy", record: record(object("busy", "", 9), nil)})
			<-applying
			for i, key := range []string{"k4", "k5"} {
				must(s.Add(watched(s, external(key, 10+i))))
			}
			must(s.Delete(watched(s, external("k5", 12))))
			proceed <- true
			s.feeds.wait()
		}, []string{"ns/k4", "ns/k5"}},
		{"in the list", func() { replace(s, 13, external("k5", 13)) }, nil},
		{"the same key in another store", func() {
			o := external("k5", 14)
			o.Spec.Snapshot.Store = v1alpha1.SnapshotStoreChunks
			add(s, o)
		}, []string{"ns/k5"}},
		{"deleted", func() { remove(s, external("k5", 15)) }, []string{"ns/k5"}},
	} {
		released = nil
		step.do()
		slices.Sort(released)
		if got := slices.Compact(released); !slices.Equal(got, step.want) {
			t.Errorf("%s: released %q, want %q", step.name, got, step.want)
		}
	}
	if lists != 2 {
		t.Errorf("the view reports %d lists, want 2", lists)
	}
}
