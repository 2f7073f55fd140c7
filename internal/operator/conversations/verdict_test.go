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
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// turnsOf returns a view of turns.
func turnsOf(t *testing.T, turns ...*v1alpha1.ResponseSession) *sessions.View {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events := json.NewEncoder(w)
		send := func(kind watch.EventType, object any) error {
			return events.Encode(map[string]any{"type": kind, "object": object})
		}
		for _, turn := range turns {
			turn.CreationTimestamp, turn.Generation, turn.ResourceVersion = metav1.NewTime(start), 1, "1"
			if err := send(watch.Added, turn); err != nil {
				t.Error(err)
			}
		}
		end := &metav1.PartialObjectMetadata{}
		end.ResourceVersion, end.Annotations = "2", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		if err := send(watch.Bookmark, end); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	client, err := kubeclient.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	view := sessions.NewView(4, time.Hour)
	go view.Run(t.Context(), client)
	if err := view.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return view
}

// TestVerdict: the verdict on a conversation is that on its history, which ends at the head or, until its turn is stored in its place, at the
// base.
func TestVerdict(t *testing.T) {
	turn := func(id, previous string) *v1alpha1.ResponseSession {
		return testsession.Make("ns", id).After(previous).Obj()
	}
	misnamed := turn("Odd", "")
	misnamed.Name = "sha256." + strings.Repeat("a", 52)
	pending := turn("pending", "a")
	pending.Spec.ResponseStatus = "in_progress"
	turns := turnsOf(t, turn("a", ""), turn("b", "a"), turn("late", "x"), turn("orphan", "gone"), pending,
		turn("c", "b"), turn("d", "c"), turn("e", "d"), misnamed, testsession.Make("other", "foreign").Obj())

	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	at := func(id string, n int, status metav1.ConditionStatus, reason string) Verdict {
		return Verdict{Status: status, Reason: reason, Turns: n, HeadStored: true, Last: id, Stored: sessions.SecondsOf(start)}
	}
	broken := func(v Verdict, at string) Verdict {
		v.BrokenAt = at
		return v
	}
	missing := func(id string) Verdict {
		return Verdict{Status: no, Reason: v1alpha1.ReasonParentNotFound, BrokenAt: id}
	}
	waiting := func(v Verdict) Verdict {
		v.HeadStored = false
		return v
	}
	tests := map[string]struct {
		head, base string
		reserved   bool
		want       Verdict
		message    string // part of it
	}{
		"no turns":                    {want: noTurns, message: "has no turns"},
		"head":                        {head: "b", want: at("b", 2, yes, v1alpha1.ReasonResolved)},
		"head is missing":             {head: "z", want: missing("z"), message: `"z"`},
		"head of another namespace":   {head: "foreign", want: missing("foreign")},
		"head has another name":       {head: "Odd", want: missing("Odd")},
		"head is pending":             {head: "pending", want: broken(at("pending", 2, unknown, v1alpha1.ReasonTurnPending), "pending")},
		"head has no parent":          {head: "orphan", want: broken(at("orphan", 0, no, v1alpha1.ReasonParentNotFound), "gone"), message: `"gone"`},
		"head is too deep":            {head: "e", want: broken(at("e", 5, no, v1alpha1.ReasonDepthExceeded), "a")},
		"reserved head is stored":     {head: "b", base: "a", reserved: true, want: at("b", 2, yes, v1alpha1.ReasonResolved)},
		"first reserved head":         {head: "a", reserved: true, want: at("a", 1, yes, v1alpha1.ReasonResolved)},
		"head is reserved":            {head: "z", base: "b", reserved: true, want: waiting(at("b", 2, unknown, v1alpha1.ReasonHeadReserved)), message: `"z"`},
		"first head is reserved":      {head: "z", reserved: true, want: Verdict{Status: unknown, Reason: v1alpha1.ReasonHeadReserved}},
		"head has lost its place":     {head: "late", base: "b", reserved: true, want: waiting(at("b", 2, unknown, v1alpha1.ReasonHeadReserved))},
		"base is missing":             {head: "z", base: "y", reserved: true, want: missing("y"), message: `"y"`},
		"base is broken":              {head: "z", base: "orphan", reserved: true, want: waiting(broken(at("orphan", 0, no, v1alpha1.ReasonParentNotFound), "gone"))},
		"base is pending":             {head: "z", base: "pending", reserved: true, want: waiting(at("pending", 2, unknown, v1alpha1.ReasonHeadReserved))},
		"base, but not a reservation": {head: "b", base: "z", want: at("b", 2, yes, v1alpha1.ReasonResolved)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := recordOf(conversation("ns", "conv", 1, tc.head, tc.base))
			r.Reserved = tc.reserved
			got := r.Verdict(turns)
			if !strings.Contains(got.Message(), tc.message) {
				t.Errorf("message %q, want %q in it", got.Message(), tc.message)
			}
			readable := tc.want.Status == yes || tc.want.Reason == v1alpha1.ReasonHeadReserved && tc.want.BrokenAt == "" && tc.base != "pending"
			if readable = readable || tc.want.Reason == v1alpha1.ReasonDepthExceeded; (got.Lineage != 0) != (readable && tc.want.Turns > 0) {
				t.Errorf("lineage %x of a history that can be read: %t", got.Lineage, readable)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Verdict{}, "Lineage"), cmpopts.IgnoreUnexported(Verdict{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	pendingVerdict := recordOf(conversation("ns", "conv", 1, "pending", "")).Verdict(turns)
	if got := pendingVerdict.Message(); strings.Contains(got, "in_progress") {
		t.Errorf("the message %q has the status of the turn, which can change without a new verdict", got)
	}
	r := recordOf(conversation("ns", "conv", 1, "b", ""))
	r.Misnamed = true
	if got := r.Verdict(turns); got.Status != no || got.Reason != v1alpha1.ReasonNameMismatch {
		t.Errorf("of a misnamed conversation: %+v", got)
	}
}
