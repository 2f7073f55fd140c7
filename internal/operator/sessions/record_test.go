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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/sortedlist"
)

// TestRecordKeeps lists the fields of an object that the view keeps: each further field takes memory for every turn.
func TestRecordKeeps(t *testing.T) {
	var got []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Record]()) {
		if field.Anonymous {
			continue // its fields follow
		}
		got = append(got, field.Name+" "+field.Type.String())
	}
	want := []string{
		"Namespace string", "Name string", "UID sessions.UID", "Generation int64", "ResourceVersion uint64", "ObjectBytes int32", "SpecNodes int32",
		"Created sessions.Seconds", "Since sessions.Seconds", "Turn chain.Turn", "SnapshotBytes int64", "Listing sessions.Listing",
		"Extra *sessions.Extra", "Written sessions.Fingerprint", "ChainValid sessions.ConditionStatus",
		"Misnamed bool", "Deleting bool", "HasOwner bool", "OmitOwner bool", "OutdatedOwner bool", "Verified bool", "HasVerdict bool",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}

	const body = "a body that is not kept"
	raw := &runtime.RawExtension{Raw: []byte(`{"input":"` + body + `"}`)}
	o := object("resp_2", "resp_1", 7)
	o.Spec.Request, o.Spec.Response, o.Spec.Metadata = raw, raw, raw
	o.Spec.ConversationID, o.Spec.CreatedAt = "conv_1", new(metav1.Unix(1_700_000_000, 0))
	o.Labels = map[string]string{"label": body}
	o.Annotations = map[string]string{"annotation": body, v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:` + body + `":{}}`)}}
	o.OwnerReferences = []metav1.OwnerReference{
		{Kind: "Other", Name: "resp.1", UID: "other"}, {Kind: v1alpha1.ResponseSessionKind, Name: "resp.1", UID: "parent"},
	}
	created, since := time.Unix(1_700_000_000, 0), time.Unix(1_800_000_000, 0)
	o.CreationTimestamp = metav1.NewTime(created)
	o.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since),
	}}
	kept := record(o, nil)
	wantRecord := &Record{
		Object: Object{
			Namespace: "ns", Name: "resp.2", UID: NewUID("uid-of-resp.2"), Generation: 1, ResourceVersion: 7,
			ObjectBytes: int32(len(encoded(o).Raw)), SpecNodes: int32(jsonvalue.Nodes(encoded(o).Get("spec").Raw)),
		},
		Created:  Seconds(created.Unix()),
		Turn:     chain.Turn{ID: "resp_2", Previous: "resp_1", Status: "completed"},
		HasOwner: true, OmitOwner: true, SnapshotBytes: int64(3 * len(raw.Raw)),
		Listing:    Listing{Conversation: &Conversation{ID: "conv_1", Name: "conv.1"}, CreatedAt: 1_700_000_000, CompletedAt: sortedlist.Unknown},
		ChainValid: conditionStatusOf(metav1.ConditionTrue), Since: Seconds(since.Unix()), Written: NewFingerprint(&o.Status),
	}
	if diff := cmp.Diff(wantRecord, kept); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if strings.Contains(fmt.Sprintf("%#v", kept), body) {
		t.Error("the record keeps the body")
	}
}

// packed returns a request as it is packed in an object.
func packed(request string) string {
	return snapshot.Pack(snapshot.Bodies{Request: []byte(request)})
}

func TestNewRecord(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.ResponseSession)
		want   func(*Record)
	}{
		"plain":        {func(*v1alpha1.ResponseSession) {}, func(*Record) {}},
		"misnamed":     {func(o *v1alpha1.ResponseSession) { o.Name = "other" }, func(s *Record) { s.Name, s.Misnamed = "other", true }},
		"other status": {func(o *v1alpha1.ResponseSession) { o.Spec.ResponseStatus = "odd" }, func(s *Record) { s.Turn.Status = "odd" }},
		"numeric input": {func(o *v1alpha1.ResponseSession) { o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":5}`)} }, func(s *Record) {
			s.Turn.Unreadable, s.SnapshotBytes = true, 11
			s.Extra = &Extra{Problem: "unable to read `input` of the request: must be a string or a list of objects: must be a list"}
		}},
		"newer bodies": {func(o *v1alpha1.ResponseSession) {
			o.Spec.Format = 3
			o.Spec.Request, o.Spec.CreatedAt = &runtime.RawExtension{Raw: []byte(`[5]`)}, nil
		}, func(s *Record) {
			s.Turn.Unreadable, s.SnapshotBytes = true, 3
			s.Extra = &Extra{Problem: "its bodies are in format 3, and the operator reads formats up to 2: upgrade the operator"}
		}},
		"packed": {func(o *v1alpha1.ResponseSession) {
			o.Spec.Format, o.Spec.Packed = 2, packed(`{"input":"hi"}`)
			o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"model":"m"}`)}
		}, func(s *Record) { s.SnapshotBytes = 14 }},
		"packed, not flattened": {func(o *v1alpha1.ResponseSession) { o.Spec.Packed = packed(`{"input":5}`) }, func(s *Record) {
			s.Turn.Unreadable, s.SnapshotBytes = true, 11
			s.Extra = &Extra{Problem: "unable to read `input` of the request: must be a string or a list of objects: must be a list"}
		}},
		"packed, damaged": {func(o *v1alpha1.ResponseSession) { o.Spec.Packed = packed(`{}`)[4:] }, func(s *Record) {
			s.Turn.Unreadable, s.Extra = true, &Extra{Problem: "`spec.packed` is damaged"}
		}},
		"packed, newer": {func(o *v1alpha1.ResponseSession) { o.Spec.Format, o.Spec.Packed = 3, "newer" }, func(s *Record) {
			s.Turn.Unreadable, s.Extra = true, &Extra{Problem: "its bodies are in format 3, and the operator reads formats up to 2: upgrade the operator"}
		}},
		"newer snapshot": {func(o *v1alpha1.ResponseSession) {
			o.Spec.Snapshot = &v1alpha1.SnapshotReference{Store: "Cold", Key: "f2.key", SizeBytes: 9, Format: 2}
			o.Status.ObservedGeneration, o.Status.SnapshotBytes = 1, 9 // a newer operator has read it
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionChainValid, Reason: v1alpha1.ReasonResolved}}
		}, func(s *Record) {
			s.Turn.Unreadable, s.SnapshotBytes = true, 9
			s.Extra = &Extra{Snapshot: &v1alpha1.SnapshotReference{Store: "Cold", Key: "f2.key", SizeBytes: 9, Format: 2}, Problem: "its snapshot is in format 2, and the operator reads formats up to 1: upgrade the operator"}
		}},
		"format of this build": {func(o *v1alpha1.ResponseSession) { o.Spec.Format = 1 }, func(*Record) {}},
		"outdated owner": {func(o *v1alpha1.ResponseSession) {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "sessions.catena.dev/v9", UID: "x"}}
		}, func(s *Record) { s.OutdatedOwner = true }},
		"no version": {func(o *v1alpha1.ResponseSession) { o.ResourceVersion = "" }, func(s *Record) { s.ResourceVersion = 0 }},
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
			s.Extra = newExtra(ref, "", s.Reported())
			s.SnapshotBytes, s.Verified, s.Turn.Unreadable = 9, verified, unreadable
		}
	}
	const resolved, unreadable = v1alpha1.ReasonResolved, v1alpha1.ReasonSnapshotUnreadable
	for name, tc := range map[string]struct {
		reason, brokenAt     string
		observed, bytes      int64
		reported             int64
		verified, unreadable bool
	}{
		"external, read":                {reason: resolved, observed: 1, bytes: 9, verified: true},
		"external, not read":            {reason: resolved, observed: 1},
		"external, read before":         {reason: resolved, observed: 0, bytes: 9},
		"external, unreadable":          {reason: unreadable, brokenAt: "resp_1", observed: 1, unreadable: true},
		"external, unreadable before":   {reason: unreadable, brokenAt: "resp_1", observed: 0},
		"external, after an unreadable": {reason: unreadable, brokenAt: "resp_0", observed: 1, bytes: 9, verified: true},
		"external, reported":            {reason: resolved, observed: 1, bytes: 9, reported: 1},
		"external, reported before":     {reason: resolved, observed: 1, bytes: 9, reported: 7, verified: true},
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
			want := &Record{
				Object: Object{Namespace: "ns", Name: "resp.1", UID: NewUID("uid-of-resp.1"), Generation: 1, ResourceVersion: 3},
				Turn:   chain.Turn{ID: "resp_1", Status: "completed"}, Listing: Listing{nil, sortedlist.Unknown, sortedlist.Unknown},
			}
			want.ObjectBytes, want.SpecNodes = int32(len(encoded(o).Raw)), int32(jsonvalue.Nodes(encoded(o).Get("spec").Raw))
			want.setStatus(&o.Status)
			tc.want(want)
			if diff := cmp.Diff(want, record(o, nil)); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewRecordOfKnownSpec checks that the bodies of a spec are parsed once: an event that changes only the status or the
// metadata reuses the record.
func TestNewRecordOfKnownSpec(t *testing.T) {
	o := object("resp_1", "", 3)
	o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":5}`)}
	known := record(o, nil)
	if !known.Turn.Unreadable || known.SnapshotBytes != 11 {
		t.Fatalf("got %+v, want an unreadable turn of 11 bytes", known)
	}
	o.ResourceVersion, o.Spec.Request = "4", nil // cannot happen, but shows what is read
	if got := record(o, known); !got.Turn.Unreadable || got.SnapshotBytes != 11 || got.SpecNodes != known.SpecNodes || got.ResourceVersion != 4 {
		t.Errorf("same generation: got %+v", got)
	}
	o.Generation = 2
	if got := record(o, known); got.Turn.Unreadable || got.SnapshotBytes != 0 || got.SpecNodes >= known.SpecNodes {
		t.Errorf("next generation: got %+v", got)
	}
}

// TestNewRecordOfJudgedSession: a list does not read the bodies of a session if its status shows that the leader has read them.
func TestNewRecordOfJudgedSession(t *testing.T) {
	for name, tc := range map[string]struct {
		change         func(*v1alpha1.ResponseSession)
		wantUnreadable bool
	}{
		"judged":                      {func(*v1alpha1.ResponseSession) {}, false},
		"an ancestor is unreadable":   {func(o *v1alpha1.ResponseSession) { judge(o, v1alpha1.ReasonSnapshotUnreadable, "resp_1") }, false},
		"no status":                   {func(o *v1alpha1.ResponseSession) { o.Status = v1alpha1.ResponseSessionStatus{} }, true},
		"changed since":               {func(o *v1alpha1.ResponseSession) { o.Generation++ }, true},
		"unreadable":                  {func(o *v1alpha1.ResponseSession) { judge(o, v1alpha1.ReasonSnapshotUnreadable, "resp_2") }, true},
		"not completed, so not known": {func(o *v1alpha1.ResponseSession) { o.Spec.ResponseStatus = chain.StatusFailed }, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := object("resp_2", "resp_1", 7)
			o.Spec.Format, o.Spec.Packed = 2, "damaged"
			judge(o, v1alpha1.ReasonResolved, "")
			tc.change(o)
			r := NewRecord(encoded(o), nil)
			if r.Turn.Unreadable != tc.wantUnreadable || !tc.wantUnreadable && r.SnapshotBytes != o.Status.SnapshotBytes {
				t.Errorf("got %+v, want it unreadable: %t", r, tc.wantUnreadable)
			}
			if _, items := Flatten(encoded(o)); items != nil {
				t.Error("a live read has not noticed that the bodies are damaged")
			}
		})
	}
}

// judge sets the status that the leader has written.
func judge(o *v1alpha1.ResponseSession, reason, brokenAt string) {
	o.Status = v1alpha1.ResponseSessionStatus{
		ObservedGeneration: o.Generation, SnapshotBytes: 500, BrokenAt: brokenAt,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: reason}},
	}
}

// TestWriteBytes: a value of a body counts as much as 64 bytes of text.
func TestWriteBytes(t *testing.T) {
	withInput := func(content string) *Record {
		o := object("resp_1", "", 3)
		o.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":[{"type":"message","content":` + content + `}]}`)}
		return record(o, nil)
	}
	none, text := withInput(`""`).WriteBytes(), withInput(`"`+strings.Repeat("[,]", 10_000)+`"`).WriteBytes()
	if text-none != 30_000 {
		t.Errorf("30,000 bytes of text count as %d", text-none)
	}
	// Each element is an object and has a comma, except for the last one, whose place the list itself takes.
	if got, want := withInput(`[{}`+strings.Repeat(",{}", 9_999)+`]`).WriteBytes()-none, int64(30_000-1+2*10_000*64); got != want {
		t.Errorf("10,000 empty objects count as %d bytes, want %d", got, want)
	}
}

func TestAwaitsVerdict(t *testing.T) {
	cases := map[string]struct {
		record Record
		want   bool
	}{
		"no verdict":                         {Record{}, true},
		"valid":                              {Record{ChainValid: conditionStatusOf(metav1.ConditionTrue), HasVerdict: true}, false},
		"valid before a change":              {Record{ChainValid: conditionStatusOf(metav1.ConditionTrue)}, false},
		"broken before a change":             {Record{ChainValid: conditionStatusOf(metav1.ConditionFalse)}, false},
		"pending":                            {Record{ChainValid: conditionStatusOf(metav1.ConditionUnknown), HasVerdict: true}, false},
		"pending before its owner completed": {Record{ChainValid: conditionStatusOf(metav1.ConditionUnknown)}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.record.AwaitsVerdict(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
