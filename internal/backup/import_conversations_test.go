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

package backup

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// conversations is a family with a conversation that ends at the grandchild, and one that ends at the other root.
func conversations(t *testing.T) (*fakeAPI, *Cluster, string) {
	t.Helper()
	return familyWith(t, newConversation("conv_1", "c"), newConversation("conv_2", "d"))
}

// TestImportedConversations: existing conversations are never overwritten, and nothing that was not imported is needed by what was.
func TestImportedConversations(t *testing.T) {
	tests := map[string]struct {
		existing func(api *fakeAPI)
		want     Imported
		problems map[string]string
	}{
		"none": {func(*fakeAPI) {}, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 2, Verified: 2}, Summaries: Counts{Created: 2, Verified: 2},
		}, nil},
		"the same": {func(api *fakeAPI) {
			putConversation(t, api, "from", newConversation("conv_1", "c"))
			api.objects["conversations/from/conv.1"]["metadata"].(map[string]any)["labels"] = map[string]any{"more": "x"}
		}, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 1, Equal: 1, Verified: 2}, Summaries: Counts{Created: 1, Equal: 1, Verified: 2},
		}, nil},
		"another conversation": {func(api *fakeAPI) { api.put("from", newConversation("conv_1", "d")) }, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 1, Different: 1, Verified: 1}, Summaries: Counts{Created: 1, LeftOut: 1, Verified: 1},
		}, map[string]string{
			"conversation conv.1": "exists with a different spec, and was left as it is",
			"summary conv.1-0-1":  "left out: its conversation was not imported",
		}},
		"an unreadable conversation": {func(api *fakeAPI) {
			api.put("from", objectOf(conversationKind, "conv.1", map[string]any{"conversationID": 1}))
		}, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 1, Different: 1, Verified: 1}, Summaries: Counts{Created: 1, LeftOut: 1, Verified: 1},
		}, map[string]string{
			"conversation conv.1": "exists, and cannot be compared (unable to decode its spec: a field has a value of another type), and was left as it is",
			"summary conv.1-0-1":  "left out: its conversation was not imported",
		}},
		"another last turn": {func(api *fakeAPI) { api.put("from", newTurn("c", "d")) }, Imported{
			Sessions:      Counts{Created: 3, Different: 1, Verified: 3},
			Conversations: Counts{Created: 1, LeftOut: 1, Verified: 1}, Summaries: Counts{Created: 1, LeftOut: 1, Verified: 1},
		}, map[string]string{
			"c":                   "exists with a different spec, and was left as it is",
			"conversation conv.1": "left out: its last turn was not imported",
			"summary conv.1-0-1":  "left out: its conversation was not imported",
		}},
		"another summary": {func(api *fakeAPI) {
			putConversation(t, api, "from", newConversation("conv_1", "c"))
			api.objects["conversationsummaries/from/conv.1-0-1"]["spec"].(map[string]any)["content"] = "other"
		}, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 1, Equal: 1, Verified: 2}, Summaries: Counts{Created: 1, Different: 1, Verified: 1},
		}, map[string]string{"summary conv.1-0-1": "exists with a different spec, and was left as it is"}},
		"a summary without its owner": {func(api *fakeAPI) { api.put("from", newSummary("conv_1", "", 1)) }, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 2, Verified: 2}, Summaries: Counts{Created: 1, Different: 1, Verified: 1},
		}, map[string]string{"summary conv.1-0-1": "exists without an ownerReference to its conversation, and was left as it is"}},
		"a refused conversation": {func(api *fakeAPI) { api.before = refuseConversations }, Imported{
			Sessions: Counts{Created: 4, Verified: 4}, Conversations: Counts{Created: 1, Refused: 1, Verified: 1}, Summaries: Counts{Created: 1, LeftOut: 1, Verified: 1},
		}, map[string]string{
			"conversation conv.1": "refused: spec.title is invalid (FieldValueInvalid)",
			"summary conv.1-0-1":  "left out: its conversation was not imported",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api, c, file := conversations(t)
			tc.existing(api)
			existing := map[string]any{}
			for key, object := range api.objects {
				existing[key] = object["metadata"].(map[string]any)["uid"]
			}
			found := problems(c)
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Header, tc.want.Namespace = imported.Header, "from"
			if diff := cmp.Diff(&tc.want, imported); diff != "" || imported.Complete() != (len(tc.problems) == 0) {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.problems, found, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			for key, uid := range existing {
				if api.objects[key]["metadata"].(map[string]any)["uid"] != uid {
					t.Errorf("%s was replaced", key)
				}
			}
		})
	}
}

// refuseConversations refuses the conversation conv.1.
func refuseConversations(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/conversations") {
		return false
	}
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	r.Body = io.NopCloser(&body)
	if !strings.Contains(body.String(), `"name":"conv.1"`) {
		return false
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: v1alpha1.ConversationKind}, "conv.1", nil)
	invalid.ErrStatus.Message = "SECRET"
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.title", Message: "SECRET"}}
	refuse(w, invalid)
	return true
}

// TestSummaryOfEarlierConversation: an import waits until garbage collection has deleted the summaries of an earlier conversation with the same
// ID.
func TestSummaryOfEarlierConversation(t *testing.T) {
	api, c, file := conversations(t)
	api.put("from", newSummary("conv_1", "earlier", 1))
	reads := 0
	api.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/conv.1-0-1") {
			if reads++; reads == 2 {
				api.mu.Lock()
				delete(api.objects, "conversationsummaries/from/conv.1-0-1")
				api.mu.Unlock()
			}
		}
		return false
	}
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
	if err != nil || !imported.Complete() || imported.Summaries.Created != 2 {
		t.Errorf("got %+v, %v", imported, err)
	}
	wantSummaryOwner(t, api)
}

// wantSummaryOwner checks that the summary of conversations belongs to the conversation that is stored.
func wantSummaryOwner(t *testing.T, api *fakeAPI) {
	t.Helper()
	conversation, summary := api.metadata(t, conversationKind, "from", "conv.1"), api.metadata(t, summaryKind, "from", "conv.1-0-1")
	if conversation == nil || summary == nil {
		t.Fatalf("got the conversation %v and the summary %v", conversation, summary)
	}
	want := []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ConversationKind, Name: "conv.1", UID: conversation.UID,
		Controller: new(false), BlockOwnerDeletion: new(false),
	}}
	if diff := cmp.Diff(want, summary.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// TestOrderOfCreation: when a conversation is created, its last turn is stored, and when a summary is, its conversation.
func TestOrderOfCreation(t *testing.T) {
	api, c, file := conversations(t)
	api.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/conversations") && api.count("responsesessions") != 4:
			t.Errorf("a conversation is created after %d of 4 sessions", api.count("responsesessions"))
		case strings.HasSuffix(r.URL.Path, "/conversationsummaries") && api.count("conversations") != 2:
			t.Errorf("a summary is created after %d of 2 conversations", api.count("conversations"))
		}
		return false
	}
	if _, err := c.Import(t.Context(), pipe{strings.NewReader(file)}, ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	wantSummaryOwner(t, api)
}

// TestImportDuringDeletion: nothing is imported into a namespace in which turns are being deleted with their conversation.
func TestImportDuringDeletion(t *testing.T) {
	api, c, file := conversations(t)
	api.put("from", newConversation("conv_0", ""))
	api.put("from", conversationOf("conv_3", v1alpha1.ConversationSpec{State: v1alpha1.ConversationStateDeleting}))
	for _, dryRun := range []bool{true, false} {
		_, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{DryRun: dryRun})
		if want := "conversation conv.3 of namespace from is being deleted with its turns: wait until it is gone"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if got := api.count("responsesessions") + api.count("snapshotchunks"); got > 0 {
		t.Errorf("%d objects were created", got)
	}
	if _, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"}); err != nil {
		t.Errorf("another namespace: %v", err)
	}
}

// TestConversationHistories: a conversation is verified only if the history that it ends with is.
func TestConversationHistories(t *testing.T) {
	tests := map[string]struct {
		head     string
		existing *Object // in the namespace of the import
		want     Counts
		problem  string
	}{
		"whole":                {head: "b", want: Counts{Created: 1, Verified: 1}},
		"no turns":             {head: "", want: Counts{Created: 1, Verified: 1}},
		"after a missing turn": {head: "d", want: Counts{Created: 1, Broken: 1}},
		"a missing last turn":  {head: "gone", want: Counts{Created: 1, Broken: 1}},
		"a last turn that exists by now": {
			head: "gone", existing: newTurn("gone", ""), want: Counts{Created: 1, Wrong: 1},
			problem: "was exported without its last turn, which exists in this namespace: its history is another one here",
		},
		"after a missing turn that exists by now": {head: "d", existing: newTurn("absent", ""), want: Counts{Created: 1, Wrong: 1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api, config := newFake()
			for _, o := range []*Object{newTurn("a", ""), newTurn("b", "a"), newTurn("d", "absent"), newConversation("conv", tc.head)} {
				api.put("from", o)
			}
			c := openFake(t, config)
			file := export(t.Context(), t, c, "from")
			if tc.existing != nil {
				api.put("to", tc.existing)
			}
			found := problems(c)
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"})
			if diff := cmp.Diff(tc.want, imported.Conversations); err != nil || diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, err)
			}
			if got := found["conversation conv"]; got != tc.problem {
				t.Errorf("got the problem %q, want %q", got, tc.problem)
			}
		})
	}
}

// TestChangedConversation: a conversation that is changed or deleted while an import is running is found by the verification, and so is its
// summary.
func TestChangedConversation(t *testing.T) {
	for name, change := range map[string]func(api *fakeAPI){
		"continued": func(api *fakeAPI) {
			api.objects["conversations/from/conv.1"]["spec"].(map[string]any)["headResponseID"] = "other"
		},
		"deleted": func(api *fakeAPI) { delete(api.objects, "conversations/from/conv.1") },
	} {
		t.Run(name, func(t *testing.T) {
			api, c, file := conversations(t)
			found := problems(c)
			c.Progress = func(phase string, _ int) (step, end func()) {
				if phase == "verify" {
					change(api)
				}
				return func() {}, func() {}
			}
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
			want := Counts{Created: 2, Verified: 1, Wrong: 1}
			if err != nil || imported.Conversations != want || imported.Summaries.Wrong != 1 || imported.Sessions.Verified != 4 || imported.Complete() {
				t.Errorf("got %+v, %v", imported, err)
			}
			if len(found) != 1 || found["conversation conv.1"] == "" {
				t.Errorf("problems: got %v, want one of conversation conv.1", found)
			}
		})
	}
}
