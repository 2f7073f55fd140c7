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
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// newConversation returns a conversation whose history ends at a head.
func newConversation(id, head string) *Object {
	return conversationOf(id, v1alpha1.ConversationSpec{HeadResponseID: head})
}

func conversationOf(id string, spec v1alpha1.ConversationSpec) *Object {
	spec.ConversationID = id
	return objectOf(conversationKind, v1alpha1.ObjectName(id), spec)
}

// newSummary returns a summary of the first turns of the conversation with an ID, which is owned by one with a UID.
func newSummary(id string, owner types.UID, turns int32) *Object {
	s := objectOf(summaryKind, v1alpha1.SummaryName(id, v1alpha1.SummaryTurns(0, turns)), v1alpha1.ConversationSummarySpec{
		ConversationID: id, EndTurn: turns, Content: "summary of " + id,
	})
	s.owner = owner
	s.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"} // which is about sessions
	return s
}

func objectOf(kind kind, name string, spec any) *Object {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return &Object{kind: kind, Name: name, Spec: text}
}

// putConversation stores a conversation with a summary.
func putConversation(t tester, api *fakeAPI, namespace string, c *Object) {
	t.Helper()
	api.put(namespace, c)
	var spec v1alpha1.ConversationSpec
	if err := json.Unmarshal(c.Spec, &spec); err != nil {
		t.Fatalf("unable to decode a conversation: %v", err)
	}
	api.put(namespace, newSummary(spec.ConversationID, api.metadata(t, conversationKind, namespace, c.Name).UID, 1))
}

// objectsOf returns the objects of a file that are no sessions, by their labels.
func objectsOf(t tester, file string) map[string]*Object {
	t.Helper()
	found := map[string]*Object{}
	for _, o := range mustRead(t, file) {
		if o.kind != sessionKind {
			found[o.label()] = o
		}
	}
	return found
}

// TestReservedHead: a conversation whose head is reserved for a turn that is not in the file ends at the base. Others stay as they are.
func TestReservedHead(t *testing.T) {
	reserved := func(head, base string) *Object {
		c := conversationOf("conv", v1alpha1.ConversationSpec{
			HeadResponseID: head, BaseResponseID: base, Reservation: &v1alpha1.Reservation{DurationSeconds: 10, Renewals: 7}, Title: "<title>",
		})
		c.Spec = bytes.Replace(c.Spec, []byte("{"), []byte(`{"later":{"x":1},`), 1)
		return c
	}
	const ended = `{"conversationID":"conv","later":{"x":1},"title":"<title>"}`
	tests := map[string]struct {
		exported *Object
		want     string // as exported if empty
	}{
		"stored":                      {reserved("b", "a"), ""},
		"stored as the first turn":    {reserved("a", ""), ""},
		"not stored":                  {reserved("c", "a"), `{"conversationID":"conv","headResponseID":"a","later":{"x":1},"title":"<title>"}`},
		"not stored as the first one": {reserved("c", ""), ended},
		"stored after another turn":   {reserved("b", "x"), `{"conversationID":"conv","headResponseID":"x","later":{"x":1},"title":"<title>"}`},
		"stored, and not as the first": {
			reserved("b", ""), ended,
		},
		"stored under another name": {reserved("wrong", ""), ended},
		"being deleted":             {reserved("gone", "b"), `{"conversationID":"conv","headResponseID":"b","later":{"x":1},"title":"<title>"}`},
		"missing":                   {newConversation("conv", "c"), ""},
		"none":                      {newConversation("conv", ""), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api, config := newFake()
			misnamed := newTurn("right", "")
			misnamed.Name = "wrong"
			for _, o := range []*Object{newTurn("a", ""), newTurn("b", "a"), newTurn("x", ""), newTurn("gone", "b"), misnamed, tc.exported} {
				api.put("from", o)
			}
			api.objects["responsesessions/from/gone"]["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
			got := objectsOf(t, export(t.Context(), t, openFake(t, config), "from"))["conversation conv"]
			want := []byte(tc.want)
			if tc.want == "" {
				want = tc.exported.Spec
			}
			if diff := cmp.Diff(canonical(t, want), canonical(t, got.Spec)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func canonical(t *testing.T, spec []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(spec, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestContinuedWhileExported: if a conversation is continued between two lists of an export, neither its last turn is missing, nor is there a
// summary of turns that are not in its history.
func TestContinuedWhileExported(t *testing.T) {
	for between := range len(kinds) + 1 {
		t.Run(fmt.Sprint(between), func(t *testing.T) {
			api, config := newFake()
			api.put("from", newTurn("a", ""))
			api.put("from", newConversation("conv", "a"))
			lists := 0
			api.before = func(_ http.ResponseWriter, r *http.Request) bool {
				if !r.URL.Query().Has("limit") {
					return false
				}
				if lists == between {
					api.put("from", newTurn("b", "a"))
					uid := api.metadata(t, conversationKind, "from", "conv").UID
					api.put("from", newConversation("conv", "b"))
					api.objects["conversations/from/conv"]["metadata"].(map[string]any)["uid"] = uid
					api.put("from", newSummary("conv", uid, 2))
				}
				lists++
				return false
			}
			c := openFake(t, config)
			file := export(t.Context(), t, c, "from")
			objects := objectsOf(t, file)
			if head := objects["conversation conv"].parsed.parentID; head != "b" && objects["summary conv-0-2"] != nil {
				t.Errorf("there is a summary of two turns, and the history ends at %s", head)
			}
			api.before = nil
			imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{Namespace: "to"})
			if err != nil || imported.Conversations.Verified != 1 || lists != len(kinds) {
				t.Errorf("got %+v, %v, after %d lists", imported, err, lists)
			}
		})
	}
}

// TestLeftOutConversations: what is being deleted is not in the file, and neither are summaries that belong to no conversation in it.
func TestLeftOutConversations(t *testing.T) {
	api, config := newFake()
	for _, id := range []string{"kept", "terminating", "dead"} {
		putConversation(t, api, "from", newConversation(id, ""))
	}
	putConversation(t, api, "from", conversationOf("deleting", v1alpha1.ConversationSpec{State: v1alpha1.ConversationStateDeleting}))
	api.objects["conversations/from/terminating"]["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	delete(api.objects, "conversations/from/dead")
	api.put("from", newSummary("kept", "uid-of-an-earlier-conversation", 2))
	api.put("from", newSummary("kept", "", 3)) // restored without its owner
	c := openFake(t, config)
	found := problems(c)
	var out bytes.Buffer
	exported, err := c.Export(t.Context(), "from", &out)
	if want := (&Exported{Conversations: 1, Summaries: 2}); err != nil || !cmp.Equal(want, exported) {
		t.Errorf("got %+v, %v, want %+v", exported, err, want)
	}
	got := objectsOf(t, out.String())
	if len(got) != 3 || got["conversation kept"] == nil || got["summary kept-0-1"] == nil || got["summary kept-0-3"] == nil || len(found) > 0 {
		t.Errorf("got %v, and the problems %v", got, found)
	}
}

// TestUnreadableConversations: conversations and summaries that cannot be decoded are reported, without their text, and everything else is
// exported.
func TestUnreadableConversations(t *testing.T) {
	api, config := newFake()
	for _, id := range []string{"a", "b", "c"} {
		putConversation(t, api, "from", newConversation(id, ""))
	}
	api.objects["conversations/from/a"]["spec"].(map[string]any)["title"] = []any{"SECRET"}
	delete(api.objects["conversations/from/b"]["spec"].(map[string]any), "conversationID")
	api.objects["conversationsummaries/from/c-0-1"]["spec"].(map[string]any)["createdAt"] = "SECRET"
	c := openFake(t, config)
	found := problems(c)
	var out bytes.Buffer
	exported, err := c.Export(t.Context(), "from", &out)
	if want := (&Exported{Conversations: 1, LeftOut: 3}); err != nil || !cmp.Equal(want, exported) {
		t.Errorf("got %+v, %v, want %+v", exported, err, want)
	}
	want := map[string]string{
		"conversation a": "left out: unable to decode its spec: a field has a value of another type",
		"conversation b": "left out: its spec has no conversationID",
		"summary c-0-1":  "left out: unable to decode its spec: a field has a value of another type",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := objectsOf(t, out.String()); len(got) != 1 || got["conversation c"] == nil {
		t.Errorf("got %v", got)
	}
}
