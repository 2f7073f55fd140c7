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

package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

func openStore(t *testing.T, namespace string) *store.Store {
	t.Helper()
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// converse fills a namespace with conversations of all kinds. The place after the turns of conv_reserved and conv_empty is reserved by writers
// that have died, and conv_deleting cannot be deleted for that reason.
func converse(t *testing.T, namespace string) {
	t.Helper()
	s := openStore(t, namespace)
	c, ctx := s.Conversations(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(conversation *store.Conversation) {
		t.Helper()
		_, err := c.Create(ctx, conversation)
		must(err)
	}
	appends := func(id string, turns ...string) {
		t.Helper()
		for _, turn := range turns {
			_, err := c.Append(ctx, id, testturn.Make(turn, ""), store.AppendOptions{})
			must(err)
		}
	}
	create(&store.Conversation{
		ConversationID: "conv_1", UserID: "maria", Title: "Grüße <&> \u2028", SystemPrompt: "Be short.",
		Metadata: json.RawMessage(`{"topic": "<weather>", "n": 1234567890}`),
	})
	appends("conv_1", "resp_1", "resp_2", "resp_3")
	_, err := c.HideItem(ctx, "conv_1", "resp_1", 0)
	must(err)
	must(c.SaveSummary(ctx, "conv_1", store.Summary{EndTurn: 2, Content: "two turns", TokenCount: 2, CreatedAt: time.Unix(1_800_000_000, 0)}))
	must(c.SaveSummary(ctx, "conv_1", store.Summary{StartTurn: 1, EndTurn: 3, Content: "two other turns"}))
	_, err = c.Fork(ctx, "conv_1", "Conv/Ü😀", store.ForkOptions{ResponseID: "resp_2"})
	must(err)
	must(c.SaveSummary(ctx, "Conv/Ü😀", store.Summary{EndTurn: 1, Content: "one turn"}))
	_, err = c.Fork(ctx, "conv_1", "conv_rolledback", store.ForkOptions{})
	must(err)
	appends("conv_rolledback", "resp_4")
	_, err = c.Rollback(ctx, "conv_rolledback", "resp_1")
	must(err)
	create(&store.Conversation{ConversationID: "conv_child", ParentConversationID: "conv_1"})
	create(&store.Conversation{ConversationID: "conv_archived"})
	appends("conv_archived", "resp_5")
	_, err = c.Archive(ctx, "conv_archived")
	must(err)
	create(&store.Conversation{ConversationID: "conv_reserved"})
	appends("conv_reserved", "resp_6")
	change(t, namespace, "conv_reserved", `{"headResponseID":"resp_never","baseResponseID":"resp_6","reservation":{"durationSeconds":600,"renewals":1}}`)
	create(&store.Conversation{ConversationID: "conv_empty"})
	change(t, namespace, "conv_empty", `{"headResponseID":"resp_neither","reservation":{"durationSeconds":600}}`)
	create(&store.Conversation{ConversationID: "conv_dangling"})
	change(t, namespace, "conv_dangling", `{"headResponseID":"resp_gone"}`)
	create(&store.Conversation{ConversationID: "conv_deleting"})
	appends("conv_deleting", "resp_7")
	must(c.SaveSummary(ctx, "conv_deleting", store.Summary{EndTurn: 1, Content: "deleted"}))
	change(t, namespace, "conv_deleting",
		`{"state":"Deleting","headResponseID":"resp_last","baseResponseID":"resp_7","reservation":{"durationSeconds":600}}`)
	annotate(t, namespace)
}

// change merges a part of a spec, in JSON, into that of a conversation.
func change(t *testing.T, namespace, id, spec string) {
	t.Helper()
	conversation := &v1alpha1.Conversation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ObjectName(id)}}
	if err := env.Client.Patch(t.Context(), conversation, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		t.Fatal(err)
	}
}

// annotate gives conv_1 and one of its summaries labels and annotations.
func annotate(t *testing.T, namespace string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"},"annotations":{"note":"Notiz 😀"}}}`))
	for _, object := range []client.Object{
		&v1alpha1.Conversation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1"}},
		&v1alpha1.ConversationSummary{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1-0-2"}},
	} {
		if err := env.Client.Patch(t.Context(), object, patch); err != nil {
			t.Fatal(err)
		}
	}
}

func conversationsOf(t *testing.T, namespace string) []v1alpha1.Conversation {
	t.Helper()
	list := &v1alpha1.ConversationList{}
	if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func summariesOf(t *testing.T, namespace string) []v1alpha1.ConversationSummary {
	t.Helper()
	list := &v1alpha1.ConversationSummaryList{}
	if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// talks are the conversations and summaries of a namespace, by object name, as an export must preserve them. It checks that each summary is
// owned by its conversation alone.
func talks(t *testing.T, namespace string) map[string]any {
	t.Helper()
	found, uids := map[string]any{}, map[string]types.UID{}
	for _, c := range conversationsOf(t, namespace) {
		uids[c.Spec.ConversationID] = c.UID
		found[c.Name] = []any{c.Spec, c.Labels, c.Annotations}
	}
	for _, s := range summariesOf(t, namespace) {
		found[s.Name] = []any{s.Spec, s.Labels, s.Annotations}
		want := []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ConversationKind, Name: v1alpha1.ObjectName(s.Spec.ConversationID),
			UID: uids[s.Spec.ConversationID], Controller: new(false), BlockOwnerDeletion: new(false),
		}}
		if diff := cmp.Diff(want, s.OwnerReferences); diff != "" {
			t.Errorf("owners of %s (-want +got):\n%s", s.Name, diff)
		}
	}
	return found
}

// exported returns what an export has of talks: nothing that is being deleted, and no reservation of a turn that is not stored.
func exported(all map[string]any) map[string]any {
	kept := map[string]any{}
	for name, object := range all {
		fields := object.([]any)
		spec, ok := fields[0].(v1alpha1.ConversationSpec)
		switch {
		case strings.HasPrefix(name, "conv.deleting"):
			continue
		case ok && slices.Contains([]string{"conv.reserved", "conv.empty"}, name):
			spec.HeadResponseID, spec.BaseResponseID, spec.Reservation = spec.BaseResponseID, "", nil
		}
		if ok {
			object = []any{spec, fields[1], fields[2]}
		}
		kept[name] = object
	}
	return kept
}

// verdicts returns the statuses of conversations, by conversation ID, once there is one for each generation.
func verdicts(t *testing.T, namespace string) map[string]string {
	t.Helper()
	var found map[string]string
	testutil.Eventually(t, func(context.Context) error {
		found = map[string]string{}
		for _, c := range conversationsOf(t, namespace) {
			verdict := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionHeadResolved)
			if verdict == nil || c.Status.ObservedGeneration != c.Generation {
				return fmt.Errorf("%s has no verdict", c.Name)
			}
			found[c.Spec.ConversationID] = fmt.Sprintf("%s, %d turns", verdict.Reason, c.Status.Turns)
		}
		return nil
	})
	return found
}

// wantVerdicts are the verdicts after an import of the conversations of converse.
var wantVerdicts = map[string]string{
	"conv_1": "Resolved, 3 turns", "Conv/Ü😀": "Resolved, 2 turns", "conv_rolledback": "Resolved, 1 turns", "conv_child": "NoTurns, 0 turns",
	"conv_archived": "Resolved, 1 turns", "conv_reserved": "Resolved, 1 turns", "conv_empty": "NoTurns, 0 turns",
	"conv_dangling": "ParentNotFound, 0 turns",
}

// histories returns the visible histories of conversations, or the codes of the errors.
func histories(t *testing.T, namespace string) map[string]string {
	t.Helper()
	results := map[string]string{}
	for id := range wantVerdicts {
		history, err := openStore(t, namespace).Conversations().Load(t.Context(), id, store.ResolveOptions{})
		if e, ok := errors.AsType[*store.Error](err); ok {
			results[id] = string(e.Code) + " " + e.ResponseID
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		results[id] = strings.Join(history.Turns, " ") + "\n" + string(bytes.Join(raws(history.Items), []byte("\n")))
	}
	return results
}

// TestConversations: after everything was deleted and imported, every conversation and summary is as before, with the garbage collector
// running, and for a user who may only edit the namespace. A second import finds everything stored.
func TestConversations(t *testing.T) {
	namespace := env.NewNamespace(t)
	converse(t, namespace)
	c := openStore(t, namespace).Conversations()
	before, historiesBefore := exported(talks(t, namespace)), histories(t, namespace)
	reader, editor := newUser(t, namespace, "catena-reader"), newUser(t, namespace, "edit")
	file := reader.export(t, namespace)
	editor.run(t, "import", file).want(t, 1, "conversation conv.deleting of namespace "+namespace+" is being deleted with its turns")
	wipe(t, namespace)

	editor.run(t, "import", "--dry-run", file).want(t, 0, "7 would be created", "conversations: 8 would be created", "summaries: 3 would be created")
	if left := len(conversationsOf(t, namespace)) + len(summariesOf(t, namespace)); left > 0 {
		t.Fatalf("a dry run has created %d objects", left)
	}
	const verified = "; 7 verified, 1 not verified, 0 wrong"
	editor.run(t, "import", file).want(t, 0, "7 created",
		"conversations: 8 created, 0 exist already, 0 different, 0 refused, 0 left out"+verified, "summaries: 3 created", "; 3 verified, 0 not verified, 0 wrong")
	waitForGarbageCollection(t, namespace)
	same := func(when string) {
		t.Helper()
		if diff := cmp.Diff(before, talks(t, namespace)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", when, diff)
		}
		if diff := cmp.Diff(wantVerdicts, verdicts(t, namespace)); diff != "" {
			t.Errorf("%s: verdicts (-want +got):\n%s", when, diff)
		}
		sameHistories(t, when, historiesBefore, histories(t, namespace))
		if got, err := c.Summaries(t.Context(), "conv_1"); err != nil || len(got) != 2 {
			t.Errorf("%s: got the summaries %+v, %v, want two", when, got, err)
		}
	}
	same("after the import")
	editor.run(t, "import", file).want(t, 0, "conversations: 0 created, 8 exist already, 0 different, 0 refused, 0 left out"+verified, "summaries: 0 created, 3 exist already")
	same("after the second import")
	continueAll(t, namespace)
	editor.run(t, "import", file).want(t, 1, "conversation conv.reserved: exists with a different spec, and was left as it is")

	// The references work: summaries are deleted with their conversations, and the turns that nothing else needs.
	if err := c.Delete(t.Context(), "conv_1", store.DeleteConversationOptions{Turns: true}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		var left []string
		for _, s := range summariesOf(t, namespace) {
			left = append(left, s.Name)
		}
		if want := []string{v1alpha1.SummaryName("Conv/Ü😀", v1alpha1.SummaryTurns(0, 1))}; !slices.Equal(want, left) {
			return fmt.Errorf("got the summaries %v, want %v", left, want)
		}
		return nil
	})
}

// continueAll appends a turn to conversations that a dead writer had reserved before the export: nobody waits for it.
func continueAll(t *testing.T, namespace string) {
	t.Helper()
	c := openStore(t, namespace).Conversations()
	for id, want := range map[string][]string{"conv_reserved": {"resp_6", "resp_next_1"}, "conv_empty": {"resp_next_2"}} {
		if _, err := c.Append(t.Context(), id, testturn.Make(want[len(want)-1], ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		history, err := c.Load(t.Context(), id, store.ResolveOptions{})
		if err != nil || !slices.Equal(want, history.Turns) {
			t.Errorf("%s: got %+v, %v, want the turns %v", id, history, err, want)
		}
	}
}

// TestConversationsInOtherNamespace: conversations can be imported into another namespace, whose operator does not continue a deletion of the
// exported one.
func TestConversationsInOtherNamespace(t *testing.T) {
	namespace, other := env.NewNamespace(t), env.NewNamespace(t)
	converse(t, namespace)
	file := newUser(t, namespace, "edit").export(t, namespace)
	newUser(t, other, "edit").run(t, "import", "-n", other, file).want(t, 0, "conversations: 8 created", "; 7 verified, 1 not verified, 0 wrong")
	if diff := cmp.Diff(exported(talks(t, namespace)), talks(t, other)); diff != "" {
		t.Errorf("(-exported +imported):\n%s", diff)
	}
	if diff := cmp.Diff(wantVerdicts, verdicts(t, other)); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	sameHistories(t, "in the other namespace", histories(t, namespace), histories(t, other))
	if _, err := openStore(t, other).Get(t.Context(), "resp_7"); err != nil {
		t.Errorf("the turn of a conversation that was being deleted: %v", err)
	}
}

// TestVersion1: a file without conversations, of an earlier program, is imported as before.
func TestVersion1(t *testing.T) {
	namespace := env.NewNamespace(t)
	editor := newUser(t, namespace, "edit")
	const file = "../../internal/backup/testdata/version1.jsonl"
	editor.run(t, "import", "-n", namespace, file).want(t, 0, "6 created, 0 exist already", "2 verified", "4 not verified", "1 without their bodies")
	editor.run(t, "import", "-n", namespace, file).want(t, 0, "0 created, 6 exist already", "2 verified")
}
