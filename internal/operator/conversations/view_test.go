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

package conversations

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// sent returns what the API server sends of a conversation.
func sent(c *v1alpha1.Conversation) gjson.Result {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return gjson.ParseBytes(raw)
}

func recordOf(c *v1alpha1.Conversation) *Record { return recordAt(sent(c), start) }

// recordAt returns the record of an object that an empty view receives at a time.
func recordAt(object gjson.Result, at time.Time) *Record {
	_, r := NewView(time.Hour, clocktesting.NewFakePassiveClock(at)).parse(object)
	return r
}

func conversation(namespace, name string, version int, head, base string) *v1alpha1.Conversation {
	return &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), Generation: int64(version), ResourceVersion: fmt.Sprint(version),
		},
		Spec: v1alpha1.ConversationSpec{ConversationID: name, HeadResponseID: head, BaseResponseID: base},
	}
}

func TestRecord(t *testing.T) {
	c := conversation("ns", "conv.1", 3, "resp_2", "resp_1")
	c.Spec.ConversationID, c.Spec.Title, c.Spec.SystemPrompt = "conv_1", strings.Repeat("title", 100), strings.Repeat("prompt", 100)
	c.Spec.UserID, c.Spec.ParentConversationID, c.Spec.State = "maria", "conv_0", "Archived"
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)))
	}
	c.CreationTimestamp = *at(1)
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a", Time: at(1)}, {Manager: "b", Time: at(5)}, {Manager: "c"}, {Subresource: "status", Time: at(9)}}
	c.Spec.Reservation = &v1alpha1.Reservation{DurationSeconds: 30}
	c.Status = v1alpha1.ConversationStatus{ObservedGeneration: 3, Turns: 2, LastActivityTime: at(7), LastUpdateTime: at(4), Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionHeadResolved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start),
	}}}
	got := recordOf(c)
	want := &Record{
		Object: got.Object, ID: "conv_1", Title: strings.Repeat("title", 20), User: "maria", Parent: "conv_0", State: "Archived",
		Head: "resp_2", Base: "resp_1", Reserved: true, Received: start, HasVerdict: true, Written: NewFingerprint(&c.Status),
		Created: sessions.SecondsOf(at(1).Time), Assigned: sessions.SecondsOf(at(5).Time), Updated: sessions.SecondsOf(at(5).Time),
		Activity: sessions.SecondsOf(at(7).Time),
	}
	want.HeadResolved, want.Since = sessions.Transition(c.Status.Conditions, v1alpha1.ConditionHeadResolved)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if text := fmt.Sprintf("%#v", got); strings.Contains(text, "prompt") {
		t.Error("the record keeps the system prompt")
	}
	if got.ObjectBytes != int32(len(sent(c).Raw)) || got.SpecNodes == 0 {
		t.Errorf("got %d bytes and %d nodes", got.ObjectBytes, got.SpecNodes)
	}
}

// TestUpdated: the time of the last change is that of the last assigned field or, if the change only removed some, that of the status or,
// without a verdict on it, that of its receipt.
func TestUpdated(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)))
	}
	for name, tc := range map[string]struct {
		written, status *metav1.Time
		observed        int64
		want            *metav1.Time
	}{
		"new":                {at(1), nil, 0, at(1)},
		"with a verdict":     {at(1), at(1), 3, at(1)},
		"assigned":           {at(2), at(1), 2, at(2)},
		"metadata assigned":  {at(2), at(1), 3, at(2)},
		"removed":            {at(1), at(1), 2, at(5)},
		"removed before":     {at(1), at(2), 3, at(2)},
		"no managed fields":  {nil, at(2), 3, at(2)},
		"assigned afterward": {at(3), at(2), 2, at(3)},
		"in the future":      {at(6), at(7), 2, at(7)},
	} {
		t.Run(name, func(t *testing.T) {
			c := conversation("ns", "a", 3, "", "")
			c.Status.ObservedGeneration, c.Status.LastUpdateTime = tc.observed, tc.status
			if tc.written != nil {
				c.ManagedFields = []metav1.ManagedFieldsEntry{{Time: tc.written}}
			}
			if got := recordAt(sent(c), at(5).Time); got.Updated != sessions.SecondsOf(tc.want.Time) {
				t.Errorf("got %s, want %s", got.Updated.Time(), tc.want)
			}
		})
	}
}

// TestUpdatedWithoutVerdict: of changes that follow each other before a status is written, each counts.
func TestUpdatedWithoutVerdict(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	v := NewView(time.Hour, clock)
	c := conversation("ns", "a", 1, "", "")
	at := func(seconds int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second)) }
	for _, step := range []struct {
		name                           string
		received, assigned, generation int
		want                           int
	}{
		{"created", 1, 1, 1, 1},
		{"assigned", 3, 2, 2, 2},
		{"removed", 5, 2, 3, 5},
		{"only the version changed", 7, 2, 3, 5},
		{"a label assigned", 8, 7, 3, 7},
		{"removed again", 9, 7, 4, 9},
		{"assigned later", 11, 10, 5, 10},
	} {
		clock.SetTime(at(step.received).Time)
		c.Generation, c.ResourceVersion = int64(step.generation), fmt.Sprint(step.received)
		c.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(at(step.assigned))}}
		_, r := v.parse(sent(c))
		v.set(r)
		if want := at(step.want); r.Updated != sessions.SecondsOf(want.Time) {
			t.Errorf("%s: got %s, want %s", step.name, r.Updated.Time(), want)
		}
	}
	c.UID, c.ResourceVersion, c.ManagedFields = "of another with the name", "12", nil
	if _, r := v.parse(sent(c)); r.Updated != 0 {
		t.Errorf("another with the name: got %s, want no time", r.Updated.Time())
	}
}

// TestUndecodable: an object with values that Go cannot decode has a record with everything else.
func TestUndecodable(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	object := `{"metadata":{"namespace":"ns","name":"c","resourceVersion":"7","generation":2},"spec":{"conversationID":"c",` +
		`"headResponseID":"h","metadata":` + deep + `,"reservation":{"renewals":1e400}},"status":{"turns":1e400,"observedGeneration":2}}`
	got := recordAt(gjson.Parse(object), start)
	want := &Record{Object: got.Object, ID: "c", Head: "h", Reserved: true, Received: start, Written: NewFingerprint(&v1alpha1.ConversationStatus{})}
	if diff := cmp.Diff(want, got); diff != "" || got.Name != "c" || got.ResourceVersion != 7 {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestFingerprint(t *testing.T) {
	status := func(change func(*v1alpha1.ConversationStatus)) *v1alpha1.ConversationStatus {
		s := &v1alpha1.ConversationStatus{ObservedGeneration: 3, Turns: 2, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionHeadResolved, Status: metav1.ConditionTrue, Reason: "Resolved", Message: "m", LastTransitionTime: metav1.NewTime(start),
		}}}
		change(s)
		return s
	}
	tests := map[string]struct {
		change func(*v1alpha1.ConversationStatus)
		same   bool
	}{
		"nothing": {func(*v1alpha1.ConversationStatus) {}, true},
		"time":    {func(s *v1alpha1.ConversationStatus) { s.Conditions[0].LastTransitionTime = metav1.Time{} }, true},
		"another condition": {func(s *v1alpha1.ConversationStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: "Other"})
		}, true},
		"message":    {func(s *v1alpha1.ConversationStatus) { s.Conditions[0].Message = "n" }, true},
		"broken at":  {func(s *v1alpha1.ConversationStatus) { s.BrokenAt = "resp_1" }, false},
		"reason":     {func(s *v1alpha1.ConversationStatus) { s.Conditions[0].Reason = "NoTurns" }, false},
		"generation": {func(s *v1alpha1.ConversationStatus) { s.ObservedGeneration++ }, false},
		"turns":      {func(s *v1alpha1.ConversationStatus) { s.Turns++ }, false},
		"activity":   {func(s *v1alpha1.ConversationStatus) { s.LastActivityTime = new(metav1.NewTime(start)) }, false},
		"update":     {func(s *v1alpha1.ConversationStatus) { s.LastUpdateTime = new(metav1.NewTime(start)) }, true},
	}
	want := NewFingerprint(status(func(*v1alpha1.ConversationStatus) {}))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if same := NewFingerprint(status(tc.change)) == want; same != tc.same {
				t.Errorf("got the same fingerprint: %t, want %t", same, tc.same)
			}
		})
	}
}

// TestView feeds the view events and lists, and compares it with the stored conversations.
func TestView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
		stored := map[types.NamespacedName]*v1alpha1.Conversation{}
		notified := map[types.NamespacedName]bool{}
		v.Subscribe(func(namespace string, names []string) {
			for _, name := range names {
				notified[types.NamespacedName{Namespace: namespace, Name: name}] = true
			}
		})
		version := 0
		turn := rapid.SampledFrom([]string{"", "resp_1", "resp_2", "UPPER"})
		draw := func(t *rapid.T) *v1alpha1.Conversation {
			version++
			return conversation(rapid.SampledFrom([]string{"ns", "other"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
				version, turn.Draw(t, "head"), turn.Draw(t, "base"))
		}
		key := func(c *v1alpha1.Conversation) types.NamespacedName {
			return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		}
		wantNotified := func(want ...types.NamespacedName) {
			for _, name := range want {
				if !notified[name] {
					t.Fatalf("no notification about %s", name)
				}
			}
			clear(notified)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				c := draw(t)
				stored[key(c)] = c
				v.set(recordOf(c))
				wantNotified(key(c))
			},
			"old": func(*rapid.T) {
				for _, c := range stored {
					old := c.DeepCopy()
					old.ResourceVersion, old.Spec.HeadResponseID = "0", "resp_old"
					v.set(recordOf(old))
				}
			},
			"remove": func(t *rapid.T) {
				c := draw(t)
				delete(stored, key(c))
				v.remove(recordOf(c))
				wantNotified(key(c))
			},
			"list": func(t *rapid.T) {
				before := slices.Collect(maps.Keys(stored))
				clear(stored)
				var list []*Record
				for range rapid.IntRange(0, 3).Draw(t, "objects") {
					if c := draw(t); stored[key(c)] == nil {
						stored[key(c)] = c
						list = append(list, recordOf(c))
					}
				}
				v.replace(list)
				wantNotified(append(before, slices.Collect(maps.Keys(stored))...)...)
			},
			"": func(t *rapid.T) {
				for _, namespace := range []string{"ns", "other"} {
					for _, id := range []string{"resp_1", "resp_2", "UPPER", "resp_old"} {
						var want []string
						for name, c := range stored {
							if name.Namespace == namespace && (c.Spec.HeadResponseID == id || c.Spec.BaseResponseID == id) {
								want = append(want, name.Name)
							}
						}
						slices.Sort(want)
						if diff := cmp.Diff(want, endingAt(v, namespace, v1alpha1.ObjectName(id))); diff != "" {
							t.Fatalf("conversations that end at %s (-want +got):\n%s", id, diff)
						}
					}
					for _, name := range []string{"a", "b", "c"} {
						c := stored[types.NamespacedName{Namespace: namespace, Name: name}]
						got, found := v.Get(namespace, name)
						if found != (c != nil) || found && got.Head != c.Spec.HeadResponseID {
							t.Fatalf("got %+v of %s/%s, want %+v", got, namespace, name, c)
						}
					}
					want := int64(0)
					for name, c := range stored {
						if name.Namespace == namespace {
							want += int64(len(sent(c).Raw))
						}
					}
					if got, all := v.Bytes(namespace), v.AllBytes()[namespace]; got != want || all != want {
						t.Fatalf("the objects of %s have %d and %d bytes, want %d", namespace, got, all, want)
					}
				}
			},
		})
	})
}

func endingAt(v *View, namespace, turn string) (names []string) {
	for _, page := range [][]string{v.EndingAt(namespace, turn, "", math.MaxInt)} {
		names = append(names, page...)
	}
	return names
}

// TestKeys: pages of any size add up to the sorted list of all conversations, in one namespace and in all namespaces, also after some of
// them were removed.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
		namespace := rapid.SampledFrom([]string{"", "ns0", "ns1", "none"}).Draw(t, "namespace")
		var want []types.NamespacedName
		for _, n := range rapid.SliceOfDistinct(rapid.IntRange(0, 50), rapid.ID).Draw(t, "conversations") {
			c := conversation(fmt.Sprint("ns", n%3), fmt.Sprint("c", n), 1, "", "")
			if v.set(recordOf(c)); n%5 == 0 {
				v.remove(recordOf(c))
			} else if namespace == "" || namespace == c.Namespace {
				want = append(want, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
			}
		}
		slices.SortFunc(want, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		var got []types.NamespacedName
		for after := (types.NamespacedName{}); ; after = got[len(got)-1] {
			page := v.Keys(namespace, after, limit)
			if len(page) > limit {
				t.Fatalf("got %d keys, more than %d", len(page), limit)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
		if got := v.Conversations(namespace); got != len(want) {
			t.Errorf("got %d conversations, want %d", got, len(want))
		}
	})
}

// TestEndingAt: the conversations that end at a turn are found in pages.
func TestEndingAt(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	const many = 7
	var want []string
	for i := range many {
		want = append(want, fmt.Sprint("c", i))
		v.set(recordOf(conversation("ns", want[i], 1, "resp_1", "")))
	}
	v.set(recordOf(conversation("ns", "c0-other", 1, "resp_0", "resp_2")))
	v.set(recordOf(conversation("other", "c0", 1, "resp_1", "")))
	for limit := range many + 2 {
		var got []string
		for after := ""; limit > 0; after = got[len(got)-1] {
			page := v.EndingAt("ns", "resp.1", after, limit)
			if len(page) > limit {
				t.Fatalf("got a page of %d conversations, want at most %d", len(page), limit)
			}
			if got = append(got, page...); len(page) < limit {
				break
			}
		}
		if diff := cmp.Diff(want[:len(want)*min(limit, 1)], got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("conversations in pages of %d (-want +got):\n%s", limit, diff)
		}
	}
}

// TestReceived: the time at which a head was received is that of its first version, whatever else changes.
func TestReceived(t *testing.T) {
	later := start.Add(time.Hour)
	tests := map[string]struct {
		change func(*v1alpha1.Conversation)
		want   time.Time
	}{
		"renewal": {func(c *v1alpha1.Conversation) { c.Spec.Reservation = &v1alpha1.Reservation{Renewals: 1} }, start},
		"head":    {func(c *v1alpha1.Conversation) { c.Spec.HeadResponseID = "resp_3" }, later},
		"base":    {func(c *v1alpha1.Conversation) { c.Spec.BaseResponseID = "" }, later},
		"object":  {func(c *v1alpha1.Conversation) { c.UID = "another" }, later},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
			v.set(recordOf(conversation("ns", "a", 1, "resp_2", "resp_1")))
			changed := conversation("ns", "a", 2, "resp_2", "resp_1")
			tc.change(changed)
			v.set(recordAt(sent(changed), later))
			if got, _ := v.Get("ns", "a"); !got.Received.Equal(tc.want) {
				t.Errorf("the head was received at %s, want %s", got.Received, tc.want)
			}
		})
	}
}

// TestObserve: the result of a write is applied to the version that was written only, and is no change of the spec.
func TestObserve(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	first := recordOf(conversation("ns", "a", 1, "resp_1", ""))
	v.set(first)
	status := &v1alpha1.ConversationStatus{ObservedGeneration: 1, Turns: 1}
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "5"}}
	v.Observe(first, first.WithStatus(written, status))
	observed, _ := v.Get("ns", "a")
	if observed.ResourceVersion != 5 || observed.Written != NewFingerprint(status) || !observed.HasVerdict {
		t.Errorf("got %+v after a write", observed)
	}
	v.set(first)
	if got, _ := v.Get("ns", "a"); got != observed {
		t.Error("an older version replaces what was written")
	}

	later := conversation("ns", "a", 6, "resp_1", "")
	later.Generation = 1
	next := recordAt(sent(later), start.Add(time.Hour))
	v.set(next)
	if got, _ := v.Get("ns", "a"); !got.Received.Equal(start) {
		t.Errorf("the spec was received at %s, want %s", got.Received, start)
	}
	v.Observe(observed, observed.WithStatus(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "7"}}, status))
	if got, _ := v.Get("ns", "a"); got.ResourceVersion != 6 {
		t.Errorf("got the version %d: the write was to an older one", got.ResourceVersion)
	}
	v.remove(next)
	v.Observe(next, next.WithStatus(written, status))
	if _, found := v.Get("ns", "a"); found {
		t.Error("a write brings back a deleted conversation")
	}
}

// TestListKeepsRecords: another list, or the same event again, takes no memory for the conversations that have not changed.
func TestListKeepsRecords(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	receive := func(c *v1alpha1.Conversation) *Record {
		_, r := v.parse(sent(c))
		return r
	}
	first := receive(conversation("ns", "a", 1, "resp_1", ""))
	v.replace([]*Record{first})
	same := func() *Record { return receive(conversation("ns", "a", 1, "resp_1", "")) }
	v.replace([]*Record{same()})
	v.set(same())
	if got, _ := v.Get("ns", "a"); got != first {
		t.Error("an unchanged conversation has another record")
	}
	recreated, changed := conversation("ns", "a", 1, "resp_1", ""), conversation("ns", "a", 2, "resp_1", "")
	recreated.UID = "another"
	for name, c := range map[string]*v1alpha1.Conversation{"another object": recreated, "another version": changed} {
		if receive(c) == first {
			t.Errorf("%s has the same record", name)
		}
	}

	status := &v1alpha1.ConversationStatus{ObservedGeneration: 1, Turns: 1}
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "5"}}
	v.Observe(first, first.WithStatus(written, status))
	object := conversation("ns", "a", 1, "resp_1", "")
	object.ResourceVersion, object.Status = "5", *status
	v.set(receive(object))
	if got, _ := v.Get("ns", "a"); int(got.ObjectBytes) != len(sent(object).Raw) {
		t.Errorf("the object has %d bytes after a write, want %d", got.ObjectBytes, len(sent(object).Raw))
	}
}

// TestReplaceWhileObserved: results of writes are applied while a new list is, as after an interruption of the watch.
func TestReplaceWhileObserved(t *testing.T) {
	v := NewView(time.Hour, clocktesting.NewFakePassiveClock(start))
	v.Subscribe(func(string, []string) {})
	const conversations = 100
	list := func() (records []*Record) {
		for i := range conversations {
			_, r := v.parse(sent(conversation("ns", fmt.Sprint("c", i), 1, "resp_1", "")))
			records = append(records, r)
		}
		return records
	}
	v.replace(list())
	replaced := make(chan struct{})
	go func() {
		defer close(replaced)
		for range 100 {
			v.replace(list())
		}
	}()
	status := &v1alpha1.ConversationStatus{ObservedGeneration: 1}
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "1"}}
	for i := 0; ; i++ {
		select {
		case <-replaced:
			if got := len(endingAt(v, "ns", "resp.1")); got != conversations {
				t.Errorf("the view has %d conversations, want %d", got, conversations)
			}
			return
		default:
		}
		if known, found := v.Get("ns", fmt.Sprint("c", i%conversations)); found {
			v.Observe(known, known.WithStatus(written, status))
			if known.NamespacedName().Namespace != "ns" {
				t.Fatal("the record of a conversation has changed")
			}
		}
	}
}
