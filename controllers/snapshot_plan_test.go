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
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// modelSnapshot is a snapshot in the model of TestPlan. All times are according to the true clock.
type modelSnapshot struct {
	part snapshot.Part
	// referenced is whether its session exists, and seen whether a sweep has found that.
	referenced, seen bool
	// since is when its session was deleted, or when it was written.
	since time.Time
	gone  bool
}

// TestPlan: a snapshot is deleted only if no session has referred to it for the grace period, however wrong the operator's clock
// is, and still exists if its session returns within that time.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := controllers.SweepLimits{Grace: minutes(t, 30, 180, "grace"), MaxShare: 1}
		wrong, inBucket := minutes(t, -12*60, 12*60, "error of the operator's clock"), rapid.Bool().Draw(t, "in a bucket")
		now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
		var all []*modelSnapshot
		existing := func() []*modelSnapshot {
			return slices.DeleteFunc(slices.Clone(all), func(m *modelSnapshot) bool { return m.gone })
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now = now.Add(minutes(t, 1, 40, "pause")) },
			"write": func(t *rapid.T) {
				session := types.NamespacedName{Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), Name: fmt.Sprint(len(all))}
				all = append(all, &modelSnapshot{part: snapshot.Part{Session: session, Key: session.Name, Written: now}, since: now})
			},
			"restore or save": func(t *rapid.T) {
				var missing []*modelSnapshot
				for _, m := range all {
					if !m.referenced && (!m.gone || now.Sub(m.since) < limits.Grace) {
						missing = append(missing, m)
					}
				}
				if len(missing) == 0 {
					t.Skip()
				}
				m := rapid.SampledFrom(missing).Draw(t, "session")
				if m.gone {
					t.Fatalf("snapshot %s was deleted %s after its session", m.part.Key, now.Sub(m.since))
				}
				m.referenced, m.seen = true, false
			},
			"delete": func(t *rapid.T) {
				seen := slices.DeleteFunc(existing(), func(m *modelSnapshot) bool { return !m.referenced || !m.seen })
				if len(seen) == 0 {
					t.Skip()
				}
				m := rapid.SampledFrom(seen).Draw(t, "session")
				m.referenced, m.since = false, now
			},
			"sweep": func(t *rapid.T) {
				sweepModel(t, limits, inBucket, existing(), now, now.Add(wrong))
			},
		})
	})
}

func minutes(t *rapid.T, least, most int, label string) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Minute
}

// sweepModel runs a sweep of snapshots at the time now, while the operator's clock shows another time.
func sweepModel(t *rapid.T, limits controllers.SweepLimits, inBucket bool, existing []*modelSnapshot, now, operator time.Time) {
	byKey := map[string]*modelSnapshot{}
	var parts []snapshot.Part
	var referenced []snapshot.Part
	for _, m := range existing {
		byKey[m.part.Key] = m
		parts = append(parts, m.part)
		if m.seen = m.referenced; m.seen {
			referenced = append(referenced, m.part)
		}
	}
	mark, unmark, due := controllers.Plan(limits, inBucket, parts, referenced, operator)
	for _, part := range mark {
		byKey[part.Key].part.Unreferenced = operator
	}
	for _, part := range unmark {
		byKey[part.Key].part.Unreferenced = time.Time{}
	}
	for _, parts := range due {
		m := byKey[parts[0].Key]
		if absent := now.Sub(m.since); m.referenced || absent < limits.Grace {
			t.Fatalf("snapshot %s is deleted, referenced: %t, without a session for %s", m.part.Key, m.referenced, absent)
		}
		m.gone = true
	}
}

// counts are numbers of snapshots by namespace.
type counts map[string]int

// storedParts are snapshots of one part each.
type storedParts []snapshot.Part

func (p *storedParts) add(namespace string, n int, written, mark time.Time) {
	for range n {
		name := fmt.Sprint(len(*p))
		session := types.NamespacedName{Namespace: namespace, Name: name}
		*p = append(*p, snapshot.Part{Session: session, Key: name, Written: written, Unreferenced: mark})
	}
}

func (p *storedParts) addAll(all counts, written, mark time.Time) {
	for namespace, n := range all {
		p.add(namespace, n, written, mark)
	}
}

// dueOf returns how many snapshots of each namespace a sweep deletes, given those that have sessions, and those to which no
// session has referred for long.
func dueOf(limits controllers.SweepLimits, used, unused counts) counts {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	long := now.Add(-48 * time.Hour)
	var parts storedParts
	parts.addAll(used, long, time.Time{})
	referenced := slices.Clone(parts)
	parts.addAll(unused, long, long)
	_, _, due := controllers.Plan(limits, false, parts, referenced, now)
	got := counts{}
	for _, parts := range due {
		got[parts[0].Session.Namespace]++
	}
	return got
}

// TestPlanShare: namespaces with too many unreferenced snapshots keep theirs, and do not affect others. If all namespaces have lost
// their sessions, nothing is deleted.
func TestPlanShare(t *testing.T) {
	tests := map[string]struct {
		used, unused, want counts
	}{
		"few":                             {unused: counts{"a": 60, "b": 40}, want: counts{"a": 60, "b": 40}},
		"within the share":                {used: counts{"a": 100, "b": 100}, unused: counts{"b": 200}, want: counts{"b": 200}},
		"too many of the only namespace":  {unused: counts{"a": 101}},
		"too many of one namespace":       {used: counts{"b": 5}, unused: counts{"a": 101, "b": 1, "c": 2}, want: counts{"b": 1, "c": 2}},
		"others are within the share":     {used: counts{"b": 200}, unused: counts{"a": 1000, "b": 200}, want: counts{"b": 200}},
		"too many of two namespaces":      {used: counts{"c": 5}, unused: counts{"a": 101, "b": 101, "c": 1}, want: counts{"c": 1}},
		"fewer than a namespace in use":   {used: counts{"a": 300}, unused: counts{"a": 300, "b": 290}, want: counts{"a": 300}},
		"more than a sweep keeps":         {used: counts{"a": 4_000}, unused: counts{"a": 3_000}, want: counts{"a": controllers.MaxPlanned}},
		"too many, most are not kept":     {used: counts{"a": 2_400}, unused: counts{"a": 3_000}},
		"all lost, a few each":            {unused: counts{"a": 40, "b": 40, "c": 40, "d": 40}},
		"all lost, one has most":          {unused: counts{"a": 1000, "b": 100}},
		"all lost, then some turns saved": {used: counts{"a": 20, "b": 20}, unused: counts{"a": 1000, "b": 40}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := dueOf(controllers.DefaultSweepLimits(), tc.used, tc.unused)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanLoss: old snapshots that lose their sessions at once are not marked if they are too many, however many sweeps it would take to mark them.
// Those of short-lived sessions are.
func TestPlanLoss(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	const old, young = 48 * time.Hour, time.Hour
	for name, tc := range map[string]struct {
		used, lost counts
		age        time.Duration
		marked     int // of b, by earlier sweeps
		want       counts
	}{
		"few":                       {lost: counts{"a": 100}, age: old, want: counts{"a": 100}},
		"all":                       {lost: counts{"a": 101}, age: old},
		"all that are left":         {used: counts{"a": 1}, lost: counts{"a": 1, "b": 150}, age: old, marked: 900, want: counts{"a": 1, "b": 150}},
		"half":                      {used: counts{"a": 101}, lost: counts{"a": 101}, age: old, want: counts{"a": 101}},
		"all of one namespace":      {used: counts{"a": 5}, lost: counts{"a": 1, "b": 101}, age: old, want: counts{"a": 1}},
		"all of a small namespace":  {used: counts{"a": 500}, lost: counts{"b": 101}, age: old, want: counts{"b": 101}},
		"more than a sweep keeps":   {lost: counts{"a": 3_000}, age: old},
		"many, of a large number":   {used: counts{"a": 5_000}, lost: counts{"a": 3_000}, age: old, want: counts{"a": controllers.MaxPlanned}},
		"of sessions that end soon": {lost: counts{"a": 1_000}, age: young, want: counts{"a": 1_000}},
	} {
		t.Run(name, func(t *testing.T) {
			var parts storedParts
			parts.addAll(tc.used, now.Add(-tc.age), time.Time{})
			referenced := slices.Clone(parts)
			parts.add("b", tc.marked, now.Add(-tc.age), now.Add(-time.Minute))
			parts.addAll(tc.lost, now.Add(-tc.age), time.Time{})
			mark, _, _ := controllers.Plan(controllers.DefaultSweepLimits(), false, parts, referenced, now)
			got := counts{}
			for _, part := range mark {
				got[part.Session.Namespace]++
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("marked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanForgedParts: what a tenant writes into its chunks neither keeps them for ever nor has the sweeper delete them again and again.
func TestPlanForgedParts(t *testing.T) {
	now := time.Now()
	long := now.Add(-48 * time.Hour)
	const none, marked, deleted = "none", "marked", "deleted"
	for name, tc := range map[string]struct {
		mark     time.Time
		deleting [2]bool
		want     string
	}{
		"not marked":                    {time.Time{}, [2]bool{}, marked},
		"marked":                        {long, [2]bool{}, deleted},
		"marked by a clock that is off": {now.Add(time.Minute), [2]bool{}, none},
		"marked in the far future":      {now.Add(24 * time.Hour), [2]bool{}, marked},
		"deleted, with finalizers":      {long, [2]bool{true, true}, none},
		"partly deleted":                {long, [2]bool{true, false}, deleted},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []snapshot.Part
			for i, deleting := range tc.deleting {
				parts = append(parts, snapshot.Part{
					Session: types.NamespacedName{Namespace: "a", Name: "s"}, Key: "k", Index: i, Written: long, Unreferenced: tc.mark, Deleting: deleting,
				})
			}
			limits := controllers.DefaultSweepLimits()
			limits.MaxShare = 1
			mark, _, due := controllers.Plan(limits, false, parts, nil, now)
			got := none
			switch {
			case len(mark) > 0:
				got = marked
			case len(due) > 0:
				got = deleted
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestPlanShareOfAny: whatever namespaces store, one that is within the share is swept, what is deleted is within the share, and
// nothing is if each namespace is above it.
func TestPlanShareOfAny(t *testing.T) {
	number := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), rapid.IntRange(0, 150), 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		limits := controllers.DefaultSweepLimits()
		limits.MaxShare = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "share")
		used, unused := counts(number.Draw(t, "used")), counts(number.Draw(t, "unused"))
		got := dueOf(limits, used, unused)
		allUnused, deleted, remaining, anyWithin := 0, 0, 0, false
		for namespace, n := range unused {
			allUnused += n
			within := float64(n) <= limits.MaxShare*float64(n+used[namespace])
			anyWithin = anyWithin || within
			switch {
			case got[namespace] != 0 && got[namespace] != n:
				t.Fatalf("%d of %d snapshots of namespace %s are deleted", got[namespace], n, namespace)
			case within && got[namespace] != n:
				t.Fatalf("the snapshots of namespace %s are kept because of others", namespace)
			}
			deleted += got[namespace]
			if got[namespace] > 0 {
				remaining += n
			}
			remaining += used[namespace]
		}
		for namespace, n := range used {
			if _, counted := unused[namespace]; !counted {
				remaining, anyWithin = remaining+n, anyWithin || n > 0
			}
		}
		switch {
		case allUnused <= 100 && deleted != allUnused:
			t.Fatalf("%d of %d are deleted", deleted, allUnused)
		case allUnused > 100 && float64(deleted) > limits.MaxShare*float64(remaining):
			t.Fatalf("%d of %d are deleted", deleted, remaining)
		case allUnused > 100 && !anyWithin && deleted > 0:
			t.Fatalf("%d are deleted although each namespace is above the share", deleted)
		}
	})
}

// TestPlanManyChunks: of the chunks to delete or to mark, and of those to unmark, a sweep takes a limited number, but neither number depends
// on the other: a chunk that keeps its mark is deleted together with its session. Marked objects of a bucket that wait for the grace period take no
// place.
func TestPlanManyChunks(t *testing.T) {
	type planned struct{ mark, unmark, due int }
	const limit = controllers.MaxPlanned
	tests := map[string]struct {
		stored, want planned
		waiting      int
	}{
		"all":                               {stored: planned{mark: 1, unmark: 3, due: 2}, want: planned{mark: 1, unmark: 3, due: 2}},
		"more to delete than a sweep keeps": {stored: planned{unmark: 3, due: limit + 50}, want: planned{unmark: 3, due: limit}},
		"more to mark than a sweep keeps":   {stored: planned{mark: limit + 50, unmark: 3}, want: planned{mark: limit, unmark: 3}},
		"more that wait in a bucket than a sweep keeps": {planned{mark: 1, unmark: 3, due: 2}, planned{mark: 1, unmark: 3, due: 2}, limit + 50},
		"more to unmark than a sweep keeps": {
			stored: planned{mark: 1, unmark: limit + 50, due: 2}, want: planned{mark: 1, unmark: limit, due: 2},
		},
	}
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	long := now.Add(-48 * time.Hour)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var parts storedParts
			parts.add("a", tc.waiting, long, now.Add(-time.Minute))
			parts.add("a", tc.stored.mark, long, time.Time{})
			parts.add("a", tc.stored.due, long, long)
			parts.add("a", tc.stored.unmark, long, long)
			returned := parts[len(parts)-tc.stored.unmark:]
			limits := controllers.DefaultSweepLimits()
			limits.MaxShare = 1
			mark, unmark, due := controllers.Plan(limits, tc.waiting > 0, parts, returned, now)
			if got := (planned{len(mark), len(unmark), len(due)}); got != tc.want {
				t.Errorf("planned %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestPlanDroppedSnapshot: a snapshot that a sweep has dropped for lack of memory is not kept again from its middle on.
func TestPlanDroppedSnapshot(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	long := now.Add(-48 * time.Hour)
	var parts []snapshot.Part
	for _, namespace := range []string{"a", "b", "c", "d"} {
		for i := range controllers.MaxPlanned * 4 / 5 {
			key := "the only one" // of d
			if namespace != "d" {
				key = fmt.Sprint(i)
			}
			session := types.NamespacedName{Namespace: namespace, Name: "s"}
			parts = append(parts, snapshot.Part{Session: session, Key: key, Written: long, Unreferenced: long})
		}
	}
	limits := controllers.DefaultSweepLimits()
	limits.MaxShare = 1
	_, _, due := controllers.Plan(limits, false, parts, nil, now)
	for _, snapshot := range due {
		if snapshot[0].Session.Namespace == "d" {
			t.Errorf("%d parts of the dropped snapshot are due", len(snapshot))
		}
	}
	if len(due) < controllers.MaxPlanned {
		t.Errorf("%d snapshots are due", len(due))
	}
}

// TestPlanManyNamespacesWithinShare: that other namespaces have many chunks does not make the due ones of a namespace look like more than they are.
func TestPlanManyNamespacesWithinShare(t *testing.T) {
	const stored, unreferenced, expired = controllers.MaxPlanned, controllers.MaxPlanned * 9 / 10, controllers.MaxPlanned * 3 / 10
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	long := now.Add(-48 * time.Hour)
	var parts, referenced []snapshot.Part
	add := func(namespace, key string, since time.Time) snapshot.Part {
		parts = append(parts, snapshot.Part{Session: types.NamespacedName{Namespace: namespace, Name: "s"}, Key: key, Written: long, Unreferenced: since})
		return parts[len(parts)-1]
	}
	for i := range stored {
		key, since := fmt.Sprint(i), time.Time{}
		if i < expired {
			since = long
		} else if i < unreferenced {
			since = now
		}
		if part := add("a", key, since); i >= unreferenced {
			referenced = append(referenced, part)
		}
	}
	for i := range controllers.MaxPlanned {
		for _, namespace := range []string{"b", "c", "d", "e", "f"} {
			add(namespace, fmt.Sprint(i), now)
		}
	}
	_, _, due := controllers.Plan(controllers.DefaultSweepLimits(), false, parts, referenced, now)
	if len(due) == 0 || len(due) > expired {
		t.Errorf("%d snapshots are to be deleted, want some of %d", len(due), expired)
	}
}

// TestPlanManyNamespaces: of the chunks of many namespaces, a sweep keeps a limited number in total, and all of a namespace with few.
func TestPlanManyNamespaces(t *testing.T) {
	const limit, perSnapshot, few = controllers.MaxPlanned, 3, 10
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	long := now.Add(-48 * time.Hour)
	for name, returned := range map[string]bool{"to delete": false, "to unmark": true} {
		t.Run(name, func(t *testing.T) {
			var parts, referenced []snapshot.Part
			add := func(namespace string, snapshots int) {
				for i := range snapshots {
					part := snapshot.Part{Session: types.NamespacedName{Namespace: namespace, Name: "s"}, Key: fmt.Sprint(i), Written: long, Unreferenced: long}
					parts = append(parts, slices.Repeat([]snapshot.Part{part}, perSnapshot)...)
					referenced = append(referenced, part)
				}
			}
			for _, namespace := range []string{"a", "b", "c", "d"} {
				add(namespace, limit/perSnapshot+50)
			}
			add("z", few)
			if !returned {
				referenced = nil
			}
			limits := controllers.DefaultSweepLimits()
			limits.MaxShare = 1
			_, unmark, due := controllers.Plan(limits, false, parts, referenced, now)
			total, kept := 0, map[string]int{}
			for _, snapshot := range append(due, unmark) {
				total += len(snapshot)
				for _, part := range snapshot {
					kept[part.Session.Namespace]++
				}
			}
			partial := map[string]int{} // the last one of a namespace before its limit
			for _, snapshot := range due {
				if ns := snapshot[0].Session.Namespace; len(snapshot) != perSnapshot {
					partial[ns]++
				}
			}
			for ns, snapshots := range partial {
				if snapshots > 1 {
					t.Errorf("%d snapshots of %s lack parts", snapshots, ns)
				}
			}
			if total > 3*limit || total < limit || kept["z"] != few*perSnapshot {
				t.Errorf("kept %d parts: %v", total, kept)
			}
		})
	}
}

// TestKnownSnapshots: verified snapshots identify a bucket. A restore leaves none verified, so what the sessions of all namespaces refer to is used
// instead.
func TestKnownSnapshots(t *testing.T) {
	in := func(store, namespace, name string, verified bool) *sessions.Record {
		return &sessions.Record{
			Object: sessions.Object{Namespace: namespace, Name: name}, Verified: verified,
			Extra: &sessions.Extra{Snapshot: &v1alpha1.SnapshotReference{Store: store, Key: name}},
		}
	}
	const bucket, chunks = v1alpha1.SnapshotStoreBlob, v1alpha1.SnapshotStoreChunks
	restored := []*sessions.Record{in(bucket, "a", "1", false), in(bucket, "a", "2", false), in(bucket, "b", "3", false), in(chunks, "c", "4", true)}
	for name, tc := range map[string]struct {
		external []*sessions.Record
		want     int
		first    []string // namespaces
	}{
		"none":            {},
		"another store":   {external: restored[3:]},
		"after a restore": {external: restored, want: 3, first: []string{"a", "b"}},
		"read before":     {external: append(restored, in(bucket, "d", "5", true)), want: 1, first: []string{"d"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := controllers.KnownSnapshots(tc.external, bucket)
			if len(got) != tc.want {
				t.Fatalf("got %v, want %d", got, tc.want)
			}
			var first []string
			for _, part := range got[:len(tc.first)] {
				first = append(first, part.Session.Namespace)
			}
			slices.Sort(first)
			if diff := cmp.Diff(tc.first, first); diff != "" {
				t.Errorf("the first namespaces (-want +got):\n%s", diff)
			}
		})
	}
}
