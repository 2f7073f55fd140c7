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

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
)

// SaveSummary implements driver.Conversations. The summary belongs to the conversation, so that garbage collection deletes it with that.
func (c *cluster) SaveSummary(ctx context.Context, namespace, conversationID string, summary driver.Summary) error {
	owner, err := c.conversationUID(ctx, namespace, conversationID)
	if err != nil {
		return again(err)
	}
	object := newSummary(conversationID, owner, summary)
	err = kubeclient.Create(ctx, c.client, kubeclient.Summaries, namespace, object, &v1alpha1.ConversationSummary{})
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return again(c.compareSummary(ctx, types.NamespacedName{Namespace: namespace, Name: object.Name}, conversationID, owner, summary))
	}
	return again(conversationError(ctx, conversationID, err))
}

// compareSummary returns an error unless a summary is stored, under the name that it must have.
func (c *cluster) compareSummary(
	ctx context.Context, name types.NamespacedName, conversationID string, owner types.UID, summary driver.Summary,
) error {
	stored := &v1alpha1.ConversationSummary{}
	err := kubeclient.Get(ctx, c.client, kubeclient.Summaries, name, stored)
	switch {
	case kubeclient.IsGone(err, kubeclient.Summaries, name.Name), err == nil && !belongsTo(stored, conversationID, owner):
		return beingDeleted(conversationID) // it belongs to an earlier conversation with the ID
	case err != nil:
		return conversationError(ctx, conversationID, err)
	case fromSummary(stored) != summary:
		return driver.SummaryExists(conversationID, summary)
	}
	return nil
}

// Summaries implements driver.Conversations.
func (c *cluster) Summaries(ctx context.Context, namespace, conversationID string) ([]driver.Summary, error) {
	owner, err := c.conversationUID(ctx, namespace, conversationID)
	if err != nil {
		return nil, again(err)
	}
	var summaries []driver.Summary
	var memory error
	selector := fields.OneTermEqualSelector("spec.conversationID", conversationID).String()
	request := c.client.Get().Namespace(namespace).Resource(kubeclient.Summaries).Param("fieldSelector", selector)
	_, err = kubeclient.StreamList(ctx, request, func(object gjson.Result) {
		if memory == nil {
			memory = metered.Take(ctx, int64(len(object.Raw)))
		}
		if summary, ok := parseSummary(object, conversationID, owner); ok && memory == nil {
			summaries = append(summaries, summary)
		}
	})
	if memory != nil {
		return nil, memory
	}
	if err != nil {
		return nil, again(conversationError(ctx, conversationID, err))
	}
	slices.SortFunc(summaries, func(a, b driver.Summary) int {
		return cmp.Or(cmp.Compare(a.StartTurn, b.StartTurn), cmp.Compare(a.EndTurn, b.EndTurn))
	})
	return summaries, nil
}

// conversationUID returns the UID of the object of a conversation.
func (c *cluster) conversationUID(ctx context.Context, namespace, conversationID string) (types.UID, error) {
	object, err := kubeclient.GetMetadata(ctx, c.client, kubeclient.Conversations, objectName(namespace, conversationID))
	if err != nil {
		return "", conversationError(ctx, conversationID, err)
	}
	if object.DeletionTimestamp != nil {
		return "", driver.ConversationNotFound(conversationID)
	}
	return object.UID, nil
}

// newSummary returns the object of a summary.
func newSummary(conversationID string, owner types.UID, summary driver.Summary) *v1alpha1.ConversationSummary {
	start, end := int32(summary.StartTurn), int32(summary.EndTurn)
	object := &v1alpha1.ConversationSummary{Spec: v1alpha1.ConversationSummarySpec{
		ConversationID: conversationID, StartTurn: start, EndTurn: end,
		Content: summary.Content, TokenCount: int64(summary.TokenCount), CreatedAt: toTime(summary.CreatedAt),
	}}
	object.Name = v1alpha1.SummaryName(conversationID, start, end)
	object.OwnerReferences = kubeclient.OwnerReference(v1alpha1.ConversationKind, conversationID, owner)
	return object
}

// parseSummary returns the summary for an object of a list. An object that is not a summary of the conversation is left out, and does not
// affect the others.
func parseSummary(raw gjson.Result, conversationID string, owner types.UID) (driver.Summary, bool) {
	object := &v1alpha1.ConversationSummary{}
	if json.Unmarshal([]byte(raw.Raw), object) != nil || !belongsTo(object, conversationID, owner) {
		return driver.Summary{}, false
	}
	return fromSummary(object), true
}

// belongsTo reports whether an object is a summary of the conversation whose object has a UID: not of an earlier one with the same ID, which
// garbage collection will delete, and not a second one of the same turns.
func belongsTo(object *v1alpha1.ConversationSummary, conversationID string, owner types.UID) bool {
	spec := &object.Spec
	return object.DeletionTimestamp == nil && spec.ConversationID == conversationID &&
		object.Name == v1alpha1.SummaryName(conversationID, spec.StartTurn, spec.EndTurn) &&
		slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner })
}

func fromSummary(object *v1alpha1.ConversationSummary) driver.Summary {
	spec := &object.Spec
	return driver.Summary{
		StartTurn: int(spec.StartTurn), EndTurn: int(spec.EndTurn), Content: spec.Content, TokenCount: int(spec.TokenCount),
		CreatedAt: fromTime(spec.CreatedAt).UTC(),
	}
}
