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
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
)

// object returns a completed session of the namespace "ns".
func object(id, previous string, resourceVersion int) *v1alpha1.ResponseSession {
	name := v1alpha1.ObjectName(id)
	return &v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1,
			ResourceVersion: fmt.Sprint(resourceVersion),
		},
		Spec: v1alpha1.ResponseSessionSpec{ResponseID: id, PreviousResponseID: previous, ResponseStatus: "completed"},
	}
}

// TestRecordKeeps lists what the view keeps of an object: another field takes memory for every turn.
func TestRecordKeeps(t *testing.T) {
	var got []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Record]()) {
		got = append(got, field.Name+" "+field.Type.String())
	}
	want := []string{
		"Namespace string", "Name string", "UID types.UID", "Generation int64", "ResourceVersion uint64",
		"Turn chain.Turn", "Misnamed bool", "Deleting bool", "OwnerUID types.UID", "OmitOwner bool",
		"Snapshot *v1alpha1.SnapshotReference", "SnapshotBytes int64", "Verified bool", "Reported int64",
		"ChainValid v1.ConditionStatus", "Since time.Time", "Written sessions.Fingerprint",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}

	const body = "a body that is not kept"
	raw := &runtime.RawExtension{Raw: []byte(`{"input":"` + body + `"}`)}
	o := object("resp_2", "resp_1", 7)
	o.Spec.Request, o.Spec.Response, o.Spec.Metadata = raw, raw, raw
	o.Spec.ConversationID = body
	o.Labels = map[string]string{"label": body}
	o.Annotations = map[string]string{"annotation": body, v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(body)}}
	o.OwnerReferences = []metav1.OwnerReference{
		{Kind: "Other", Name: "resp.1", UID: "other"}, {Kind: v1alpha1.ResponseSessionKind, Name: "resp.1", UID: "parent"},
	}
	since := time.Unix(1_800_000_000, 0)
	o.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since),
	}}
	record := NewRecord(o, nil)
	wantRecord := &Record{
		Namespace: "ns", Name: "resp.2", UID: "uid-of-resp.2", Generation: 1, ResourceVersion: 7,
		Turn:     chain.Turn{ID: "resp_2", Previous: "resp_1", Status: "completed"},
		OwnerUID: "parent", OmitOwner: true, SnapshotBytes: int64(3 * len(raw.Raw)),
		ChainValid: metav1.ConditionTrue, Since: since, Written: NewFingerprint(&o.Status),
	}
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if strings.Contains(fmt.Sprintf("%#v", record), body) {
		t.Error("the record keeps the body")
	}
}

func TestNewRecord(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.ResponseSession)
		want   func(*Record)
	}{
		"plain":         {func(*v1alpha1.ResponseSession) {}, func(*Record) {}},
		"misnamed":      {func(o *v1alpha1.ResponseSession) { o.Name = "other" }, func(s *Record) { s.Name, s.Misnamed = "other", true }},
		"other status":  {func(o *v1alpha1.ResponseSession) { o.Spec.ResponseStatus = "odd" }, func(s *Record) { s.Turn.Status = "odd" }},
		"numeric input": {func(o *v1alpha1.ResponseSession) { o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":5}`)} }, func(s *Record) { s.Turn.Unreadable, s.SnapshotBytes = true, 11 }},
		"no version":    {func(o *v1alpha1.ResponseSession) { o.ResourceVersion = "" }, func(s *Record) { s.ResourceVersion = 0 }},
	}
	ref := &v1alpha1.SnapshotReference{Store: v1alpha1.SnapshotStoreChunks, SizeBytes: 9}
	external := func(reason, brokenAt string, observed, bytes, reported int64) func(*v1alpha1.ResponseSession) {
		return func(o *v1alpha1.ResponseSession) {
			o.Spec.Snapshot = ref
			o.Status = v1alpha1.ResponseSessionStatus{ObservedGeneration: observed, BrokenAt: brokenAt, SnapshotBytes: bytes}
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionChainValid, Reason: reason}}
			if reported > 0 {
				o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionSnapshotReadable, Status: metav1.ConditionFalse, ObservedGeneration: reported,
				})
			}
		}
	}
	wantExternal := func(verified, unreadable bool) func(*Record) {
		return func(s *Record) {
			s.Snapshot, s.SnapshotBytes, s.Verified, s.Turn.Unreadable = ref, 9, verified, unreadable
		}
	}
	const resolved, unreadable = v1alpha1.ReasonResolved, v1alpha1.ReasonSnapshotUnreadable
	for name, tc := range map[string]struct {
		reason, brokenAt     string
		observed, bytes      int64
		reported             int64
		verified, unreadable bool
	}{
		"external, read":              {reason: resolved, observed: 1, bytes: 9, verified: true},
		"external, not read":          {reason: resolved, observed: 1},
		"external, read before":       {reason: resolved, observed: 0, bytes: 9},
		"external, unreadable":        {reason: unreadable, brokenAt: "resp_1", observed: 1, unreadable: true},
		"external, unreadable before": {reason: unreadable, brokenAt: "resp_1", observed: 0},
		"external, of an unreadable":  {reason: unreadable, brokenAt: "resp_0", observed: 1, bytes: 9, verified: true},
		"external, reported":          {reason: resolved, observed: 1, bytes: 9, reported: 1},
		"external, reported before":   {reason: resolved, observed: 1, bytes: 9, reported: 7, verified: true},
	} {
		tests[name] = struct {
			change func(*v1alpha1.ResponseSession)
			want   func(*Record)
		}{external(tc.reason, tc.brokenAt, tc.observed, tc.bytes, tc.reported), wantExternal(tc.verified, tc.unreadable)}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object("resp_1", "", 3)
			tc.change(o)
			want := &Record{Namespace: "ns", Name: "resp.1", UID: "uid-of-resp.1", Generation: 1, ResourceVersion: 3, Turn: chain.Turn{ID: "resp_1", Status: "completed"}}
			want.setStatus(&o.Status)
			tc.want(want)
			if diff := cmp.Diff(want, NewRecord(o, nil)); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewRecordOfKnownSpec checks that the bodies of a spec are parsed once: an event that changes only the status or the
// metadata takes what is known about them.
func TestNewRecordOfKnownSpec(t *testing.T) {
	o := object("resp_1", "", 3)
	o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":5}`)}
	known := NewRecord(o, nil)
	if !known.Turn.Unreadable || known.SnapshotBytes != 11 {
		t.Fatalf("got %+v, want an unreadable turn of 11 bytes", known)
	}
	o.ResourceVersion, o.Spec.Request = "4", nil // cannot happen, but shows what is read
	if got := NewRecord(o, known); !got.Turn.Unreadable || got.SnapshotBytes != 11 || got.ResourceVersion != 4 {
		t.Errorf("same generation: got %+v", got)
	}
	o.Generation = 2
	if got := NewRecord(o, known); got.Turn.Unreadable || got.SnapshotBytes != 0 {
		t.Errorf("next generation: got %+v", got)
	}
}

// TestReport checks that a report by another replica has the snapshot read again, once.
func TestReport(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
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
	check("before the report is answered", true)
	add(s, external(4, false))
	check("after the report is answered", true)

	// A report that arrives while the snapshot is read has it read again.
	before, _ := v.Get("ns", "a")
	add(s, external(5, true))
	v.SetReadable(before, true)
	check("reported while it was read", false)
}

// TestFingerprint checks that it covers every part of a status that the leader writes, and nothing that others write.
func TestFingerprint(t *testing.T) {
	status := func() *v1alpha1.ResponseSessionStatus {
		return &v1alpha1.ResponseSessionStatus{
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: "r", Message: "m", ObservedGeneration: 1,
			}},
			ObservedGeneration: 1, Depth: 2, RootResponseID: "root", BrokenAt: "at",
		}
	}
	tests := map[string]struct {
		change func(*v1alpha1.ResponseSessionStatus)
		same   bool
	}{
		"nothing":         {func(*v1alpha1.ResponseSessionStatus) {}, true},
		"transition time": {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"another condition": {func(s *v1alpha1.ResponseSessionStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Other"})
		}, true},
		"no condition":         {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions = nil }, false},
		"status":               {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Status = metav1.ConditionFalse }, false},
		"reason":               {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Reason = "x" }, false},
		"message":              {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].Message = "x" }, true},
		"condition generation": {func(s *v1alpha1.ResponseSessionStatus) { s.Conditions[0].ObservedGeneration = 2 }, false},
		"generation":           {func(s *v1alpha1.ResponseSessionStatus) { s.ObservedGeneration = 2 }, false},
		"depth":                {func(s *v1alpha1.ResponseSessionStatus) { s.Depth = 3 }, false},
		"root":                 {func(s *v1alpha1.ResponseSessionStatus) { s.RootResponseID = "x" }, false},
		"broken at":            {func(s *v1alpha1.ResponseSessionStatus) { s.BrokenAt = "x" }, false},
		"snapshot store":       {func(s *v1alpha1.ResponseSessionStatus) { s.SnapshotStore = "Chunks" }, false},
		"snapshot bytes":       {func(s *v1alpha1.ResponseSessionStatus) { s.SnapshotBytes = 1 }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := status()
			tc.change(changed)
			if same := NewFingerprint(status()) == NewFingerprint(changed); same != tc.same {
				t.Errorf("same fingerprint is %t, want %t", same, tc.same)
			}
		})
	}
}

// TestViewFollowsTheWatch feeds the view what the watch may bring.
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
		"old news": {
			feed: func(s *store) {
				add(s, object("a", "", 5))
				old := object("a", "", 4)
				old.Spec.ResponseStatus = "failed"
				add(s, old)
			},
			want: map[string]string{"a": "Resolved"},
		},
		"relist drops what is gone": {
			feed: func(s *store) {
				add(s, object("a", "", 1))
				add(s, object("b", "a", 2))
				replace(s, 9, object("b", "a", 2), object("c", "b", 7))
			},
			want: map[string]string{"b": "ParentNotFound", "c": "ParentNotFound"},
		},
		"relist of nothing": {
			feed: func(s *store) { add(s, object("a", "", 1)); replace(s, 2) },
			want: map[string]string{},
		},
		"misnamed is in no chain": {
			feed: func(s *store) {
				odd := object("A", "", 1)
				odd.Name = "sha256.aaaa"
				add(s, odd)
				add(s, object("b", "A", 2))
			},
			want: map[string]string{"sha256.aaaa": "NameMismatch", "b": "ParentNotFound"},
		},
		"being deleted is missing": {
			feed: func(s *store) {
				add(s, object("a", "", 1))
				add(s, object("b", "a", 2))
				add(s, deleting(object("a", "", 3)))
			},
			want: map[string]string{"b": "ParentNotFound"},
		},
		"being deleted and gone": {
			feed: func(s *store) {
				add(s, deleting(object("a", "", 1)))
				add(s, object("b", "a", 2))
				remove(s, deleting(object("a", "", 3)))
				add(s, object("a", "", 4))
			},
			want: map[string]string{"a": "Resolved", "b": "Resolved"},
		},
		"misnamed and being deleted": {
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
		"misnamed is deleted": {
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
			v := NewView(chain.DefaultMaxDepth)
			tc.feed((*store)(v))
			got := map[string]string{}
			if ns := v.namespaces["ns"]; ns != nil {
				for name := range ns.byName {
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

func deleting(o *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
	o.DeletionTimestamp = new(metav1.Unix(1_800_000_000, 0))
	return o
}

func add(s *store, o *v1alpha1.ResponseSession)    { must(s.Add(o)) }
func remove(s *store, o *v1alpha1.ResponseSession) { must(s.Delete(o)) }

func replace(s *store, resourceVersion int, objects ...*v1alpha1.ResponseSession) {
	var list []any
	for i, o := range objects {
		if i%2 == 0 {
			list = append(list, o) // as a list brings it
		} else {
			list = append(list, NewRecord(o, nil)) // as a streamed list brings it
		}
	}
	must(s.Replace(list, fmt.Sprint(resourceVersion)))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestSubscribe(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
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

// TestObserve checks that the answer to a write takes effect ahead of the watch, but never brings back a deleted session.
func TestObserve(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
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
		t.Errorf("the write is not observed: %+v", got)
	}

	// The write's answer has no status, so it is taken to be what was asked for until the watch brings what is there.
	foreign := object("a", "", 5)
	foreign.Status = *status
	foreign.Status.BrokenAt = "elsewhere"
	add(s, foreign)
	if got, _ := v.Get("ns", "a"); got.Written != NewFingerprint(&foreign.Status) {
		t.Errorf("the watch's word of the same version does not count: %+v", got)
	}
	v.Observe("ns", "a", func(known *Record) *Record { return known.WithMetadata(partial(written)).WithStatus(status) })
	if got, _ := v.Get("ns", "a"); got.Written != NewFingerprint(&foreign.Status) {
		t.Errorf("the write's answer counts more than the watch's word of the same version: %+v", got)
	}

	overwritten := object("a", "", 7)
	overwritten.Generation = 2
	v.Observe("ns", "a", func(known *Record) *Record { return known.WithMetadata(partial(overwritten)) })
	if got, _ := v.Get("ns", "a"); got.ResourceVersion != 5 {
		t.Error("the write's answer hides a spec that the view has not seen")
	}

	remove(s, object("a", "", 9))
	v.Observe("ns", "a", func(known *Record) *Record { return known })
	if _, found := v.Get("ns", "a"); found {
		t.Error("the write's answer brings a deleted session back")
	}
}

func TestReflects(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
	s := (*store)(v)
	if v.HasSynced() {
		t.Error("synced before the first list")
	}
	replace(s, 10)
	if !v.HasSynced() || !v.Reflects(10) || v.Reflects(11) {
		t.Error("want synced at 10")
	}
	s.UpdateResourceVersion("15")
	add(s, object("a", "", 12))
	if !v.Reflects(15) || v.Reflects(16) {
		t.Error("want 15")
	}
}

func TestMetrics(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
	s := (*store)(v)
	add(s, object("a", "", 1))
	add(s, object("b", "gone", 2))
	add(s, object("c", "b", 3))
	problems, err := testutil.CollectAndLint(v)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	want := `
# HELP catena_sessions Number of ResponseSessions by the reason of their ChainValid condition. Every replica reports all of them.
# TYPE catena_sessions gauge
catena_sessions{reason="CycleDetected"} 0
catena_sessions{reason="DepthExceeded"} 0
catena_sessions{reason="NameMismatch"} 0
catena_sessions{reason="ParentNotFound"} 2
catena_sessions{reason="Resolved"} 1
catena_sessions{reason="SnapshotUnreadable"} 0
catena_sessions{reason="TurnNotCompleted"} 0
catena_sessions{reason="TurnPending"} 0
`
	if err := testutil.CollectAndCompare(v, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestExplanation: what explains a verdict names the status of the turn itself, but not that of an ancestor, which can
// change without another verdict: the message of the descendant's condition would be outdated for ever.
func TestExplanation(t *testing.T) {
	v := NewView(chain.DefaultMaxDepth)
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
