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

package resolveapi

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// conversationVerdictSource has the verdicts on the histories of conversations.
type conversationVerdictSource struct {
	view  *conversations.View
	turns *sessions.View
}

func newConversationVerdicts(view *conversations.View, turns *sessions.View, share ShareFunc) *verdicts {
	return &verdicts{
		verdictSource: conversationVerdictSource{view, turns},
		resource:      resolvev1alpha1.ConversationVerdictsResource, singular: "conversationverdict", objects: "Conversations",
		empty: &resolvev1alpha1.ConversationVerdict{}, emptyList: &resolvev1alpha1.ConversationVerdictList{},
		columns: conversationVerdictColumns, share: share, max: resolvev1alpha1.MaxVerdicts,
	}
}

// check leaves out the resource version of the turns: if no session changes, it can take a minute until their view reflects one.
func (s conversationVerdictSource) check(ctx context.Context, resourceVersion string) error {
	if err := checkView(ctx, s.view, "Conversations", resourceVersion); err != nil {
		return err
	}
	return checkView(ctx, s.turns, "sessions", "")
}

func (s conversationVerdictSource) verdict(key types.NamespacedName) (runtime.Object, bool) {
	r, found := s.view.Get(key.Namespace, key.Name)
	if !found || r.Deleting {
		return nil, false
	}
	return newConversationVerdict(r, r.Verdict(s.turns)), true
}

func (s conversationVerdictSource) keys(namespace string, after types.NamespacedName, limit int) []types.NamespacedName {
	return s.view.Keys(namespace, after, limit)
}

func (s conversationVerdictSource) count(namespace string) int {
	return s.view.Conversations(namespace)
}

// visitCost is 0: the view has the names in their order.
func (conversationVerdictSource) visitCost(string) int64 { return 0 }

// newConversationVerdict returns a verdict as it is in the status of its conversation; see newConversationStatus in package controllers.
// It has neither text nor the user, because the ClusterRole view includes it.
func newConversationVerdict(r *conversations.Record, v conversations.Verdict) *resolvev1alpha1.ConversationVerdict {
	return &resolvev1alpha1.ConversationVerdict{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, UID: r.UID.Text(), CreationTimestamp: r.Created.Time(),
		},
		ConversationID: r.ID,
		State:          r.State,
		HeadResponseID: r.Head,
		Turns:          int32(v.Turns),
		HeadResolved:   v.Status,
		Reason:         v.Reason,
	}
}

// conversationVerdictColumns are the columns of the Conversations' table that a verdict has data for, with the same names, and the ID,
// which does not follow from every name.
var conversationVerdictColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the Conversation."},
	{Name: "State", Type: "string", Description: "The state of the conversation."},
	{Name: "Turns", Type: "integer", Description: "The number of turns in the history."},
	{Name: "Head", Type: "string", Description: "The response ID of the head."},
	{Name: "Verdict", Type: "string", Description: "The reason of the condition HeadResolved."},
	{Name: "Age", Type: "date", Description: "The time since the Conversation was created."},
	{Name: "Conversation", Type: "string", Priority: 1, Description: "The conversation ID."},
}

func (conversationVerdictSource) texts(verdict runtime.Object) []string {
	v := verdict.(*resolvev1alpha1.ConversationVerdict)
	return []string{v.Name, v.ConversationID, v.HeadResponseID}
}

func (conversationVerdictSource) cells(verdict runtime.Object) []any {
	v := verdict.(*resolvev1alpha1.ConversationVerdict)
	return []any{
		v.Name, v.State, numberCell(v.Turns), oneLine(v.HeadResponseID, maxWordRunes), v.Reason,
		table.ConvertToHumanReadableDateType(v.CreationTimestamp), oneLine(v.ConversationID, maxWordRunes),
	}
}
