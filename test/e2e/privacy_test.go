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

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
)

// TestTextOnlyInBodies: the text of turns appears only in their bodies, readable or not, and that of conversations in their objects and lists,
// but not in the operator's log and metrics, events, statuses of turns, verdicts, or errors of resolves.
func TestTextOnlyInBodies(t *testing.T) {
	const text = "flamingo"
	namespace := env.NewNamespace(t)
	body := `{"model":"m","input":"` + text + `"}`
	testsession.Make(namespace, "resp_whole").Request(body).Create(t, env.Client)
	testsession.Make(namespace, "resp_orphan").Request(body).After("resp_none").Create(t, env.Client)
	testsession.Make(namespace, "resp_failed").Request(body).Status("failed").Create(t, env.Client)
	testsession.Make(namespace, "resp_unreadable").Request(`{"instructions":["`+text+`"]}`).Create(t, env.Client)
	large := &store.Session{ResponseID: "resp_large", Status: "completed", Request: []byte(body),
		Response: []byte(`{"output":[{"type":"message","content":"` + strings.Repeat(text, 300_000) + `"}]}`)}
	if err := env.Store.InNamespace(namespace).Save(t.Context(), large, store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	for id, head := range map[string]string{"conv_whole": "resp_whole", "conv_broken": "resp_orphan"} {
		conversation := &v1alpha1.Conversation{Spec: v1alpha1.ConversationSpec{
			ConversationID: id, HeadResponseID: head, Title: text, SystemPrompt: text, UserID: text,
			Metadata: &runtime.RawExtension{Raw: []byte(`{"` + text + `":"` + text + `"}`)},
		}}
		summary := &v1alpha1.ConversationSummary{Spec: v1alpha1.ConversationSummarySpec{ConversationID: id, EndTurn: 1, Content: text}}
		conversation.Namespace, conversation.Name = namespace, v1alpha1.ObjectName(id)
		summary.Namespace, summary.Name = namespace, v1alpha1.SummaryName(id, "0-1")
		for _, object := range []client.Object{conversation, summary} {
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			err := env.Client.Get(ctx, client.ObjectKeyFromObject(conversation), conversation)
			return errors.Join(err, unless(conversation.Status.ObservedGeneration > 0, id+" has no verdict"))
		})
	}
	var answers strings.Builder
	for id, reason := range map[string]string{
		"resp_whole": v1alpha1.ReasonResolved, "resp_large": v1alpha1.ReasonResolved, "resp_orphan": v1alpha1.ReasonParentNotFound,
		"resp_failed": v1alpha1.ReasonTurnNotCompleted, "resp_unreadable": v1alpha1.ReasonSnapshotUnreadable,
	} {
		testsession.WaitForReason(t, env.Client, namespace, id, reason)
		if response := newAPI(t, env.Config).resolve(t, namespace, id, ""); response.code != http.StatusOK {
			answers.Write(response.body)
		} else if !strings.Contains(string(response.body), text) {
			t.Errorf("%s does not resolve to its text", id)
		}
	}
	for _, session := range listSessions(t.Context(), t, namespace) {
		status, err := json.Marshal(session.Status)
		if err != nil {
			t.Fatal(err)
		}
		answers.Write(status)
	}
	conversations := &v1alpha1.ConversationList{}
	if err := env.Client.List(t.Context(), conversations, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, conversation := range conversations.Items {
		conditions, err := json.Marshal(conversation.Status.Conditions) // the preview is text
		if err != nil {
			t.Fatal(err)
		}
		answers.Write(conditions)
	}
	answers.Write(newAPI(t, env.Config).get(t, verdictsPath(namespace), "").body)
	verdicts := newAPI(t, env.Config).get(t, conversationVerdictsPath(namespace), "").body
	if !strings.Contains(string(verdicts), "conv_whole") {
		t.Errorf("the verdicts on conversations are %s", verdicts)
	}
	answers.Write(verdicts)

	events, coreEvents := &eventsv1.EventList{}, &corev1.EventList{}
	for _, list := range []client.ObjectList{events, coreEvents} {
		if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		answers.Write(written)
	}
	log, err := os.ReadFile(operator.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, operator.MetricsURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for where, written := range map[string]string{"the log": string(log), "the metrics": string(metrics), "the responses and events": answers.String()} {
		if strings.Contains(written, text) {
			t.Errorf("%s contain the text of a turn: %.2000s", where, written[strings.Index(written, text):])
		}
		if written == "" {
			t.Errorf("%s are empty", where)
		}
	}
}
