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
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

// summariesAtOnce is how many summaries of a conversation are read at once.
const summariesAtOnce = 8

// SaveSummary implements driver.Conversations. The summary belongs to the conversation, so that garbage collection deletes it with that. Its
// turns are entered in the conversation first, by which it is found without a search of all summaries of the namespace. If it is then not
// created, an entry remains that has no effect. Another writer may drop such an entry, so the entry is looked for once more in the end.
func (c *cluster) SaveSummary(ctx context.Context, namespace, conversationID string, summary driver.Summary) error {
	conversation, err := c.getConversation(ctx, namespace, conversationID)
	if err != nil {
		return again(err)
	}
	if err := c.enterSummary(ctx, conversation, summary); err != nil {
		return err
	}
	owner := conversation.UID
	object := newSummary(conversationID, owner, summary)
	_, err = kubeclient.CreateReturningMetadata(ctx, c.client, kubeclient.Summaries, namespace, object, false)
	switch {
	case apierrors.IsAlreadyExists(err):
		err = c.compareSummary(ctx, types.NamespacedName{Namespace: namespace, Name: object.Name}, conversationID, owner, summary)
	case err != nil:
		err = conversationError(ctx, conversationID, err)
	}
	if err != nil {
		return again(err)
	}
	return c.confirmEntry(ctx, conversation, summaryTurns(summary))
}

// confirmEntry returns a conflict unless turns are among those of a conversation. A conversation that was deleted since it was read needs none.
func (c *cluster) confirmEntry(ctx context.Context, read *v1alpha1.Conversation, turns string) error {
	id := read.Spec.ConversationID
	current, err := c.getConversation(ctx, read.Namespace, id)
	switch {
	case errors.Is(err, driver.ErrConversationNotFound), err == nil && current.UID != read.UID:
		return nil
	case err != nil:
		return again(err)
	case !slices.Contains(current.Spec.Summaries, turns):
		return changedMeanwhile(id)
	}
	return nil
}

func summaryTurns(summary driver.Summary) string {
	return v1alpha1.SummaryTurns(int32(summary.StartTurn), int32(summary.EndTurn))
}

// enterSummary adds the turns of a summary to a conversation, unless they are among those that it was read with. Writers that do so at once do
// not affect each other, unless they add the first turns; they may add the same turns twice.
func (c *cluster) enterSummary(ctx context.Context, conversation *v1alpha1.Conversation, summary driver.Summary) error {
	entered, turns := conversation.Spec.Summaries, summaryTurns(summary)
	switch {
	case slices.Contains(entered, turns):
		return nil
	case len(entered) >= driver.MaxSummaries:
		return c.dropEntries(ctx, conversation)
	case entered == nil:
		return c.patchEntries(ctx, conversation, test("summaries", nil), setSummaries([]string{turns}))
	}
	return c.patchEntries(ctx, conversation, kubeclient.Operation{Op: "add", Path: "/spec/summaries/-", Value: turns})
}

func setSummaries(turns []string) kubeclient.Operation {
	return kubeclient.Operation{Op: "add", Path: "/spec/summaries", Value: turns}
}

// dropEntries removes duplicate entries from a conversation, and those whose summary is not stored. It returns a retryable conflict if that has
// made room, and driver.TooManySummaries if every entry has a summary.
func (c *cluster) dropEntries(ctx context.Context, conversation *v1alpha1.Conversation) error {
	id := conversation.Spec.ConversationID
	stored, err := c.readSummaries(ctx, conversation)
	if err != nil {
		return again(conversationError(ctx, id, err))
	}
	if len(stored) == len(conversation.Spec.Summaries) {
		return driver.TooManySummaries(id)
	}
	kept := make([]string, 0, len(stored))
	for _, entry := range stored {
		kept = append(kept, entry.turns)
	}
	if err := c.patchEntries(ctx, conversation, test("summaries", conversation.Spec.Summaries), setSummaries(kept)); err != nil {
		return err
	}
	return changedMeanwhile(id)
}

// patchEntries changes the entries of a conversation.
func (c *cluster) patchEntries(ctx context.Context, conversation *v1alpha1.Conversation, operations ...kubeclient.Operation) error {
	id := conversation.Spec.ConversationID
	operations = append([]kubeclient.Operation{{Op: "test", Path: "/metadata/uid", Value: conversation.UID}}, operations...)
	_, err := c.patchConversation(ctx, conversation.Namespace, id, "", operations)
	switch {
	case err == nil:
		return nil
	case kubeclient.IsFailedTest(err):
		return changedMeanwhile(id)
	case apierrors.IsInvalid(err): // someone else has added the last turns that are possible
		return driver.Again(conversationError(ctx, id, err))
	}
	return again(conversationError(ctx, id, err))
}

// compareSummary returns an error unless a summary is stored, under the name that it must have.
func (c *cluster) compareSummary(
	ctx context.Context, name types.NamespacedName, conversationID string, owner types.UID, summary driver.Summary,
) error {
	stored := &v1alpha1.ConversationSummary{}
	err := kubeclient.Get(ctx, c.client, kubeclient.Summaries, name, stored)
	switch foreign := err == nil && !belongsTo(stored, conversationID, owner); {
	case foreign && stored.DeletionTimestamp == nil && !hasConversation(stored): // nothing will delete it
		return &driver.Error{
			Code: driver.CodeConflict, ConversationID: conversationID,
			Message: fmt.Sprintf("the ConversationSummary %s of these turns belongs to no conversation: delete it", name.Name),
		}
	case foreign, kubeclient.IsGone(err, kubeclient.Summaries, name.Name):
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
	conversation, err := c.getConversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, again(err)
	}
	stored, err := c.readSummaries(ctx, conversation)
	if err != nil {
		return nil, again(conversationError(ctx, conversationID, err))
	}
	var summaries []driver.Summary
	for _, entry := range stored {
		if entry.summary != nil {
			summaries = append(summaries, *entry.summary)
		}
	}
	slices.SortFunc(summaries, func(a, b driver.Summary) int {
		return cmp.Or(cmp.Compare(a.StartTurn, b.StartTurn), cmp.Compare(a.EndTurn, b.EndTurn))
	})
	return summaries, nil
}

// entry are turns of a conversation of which a summary is stored. The summary is nil if it cannot be decoded, which does not affect the others.
type entry struct {
	turns   string
	summary *driver.Summary
}

// readSummaries reads the summaries of a conversation.
func (c *cluster) readSummaries(ctx context.Context, conversation *v1alpha1.Conversation) ([]entry, error) {
	entered := slices.Compact(slices.Sorted(slices.Values(conversation.Spec.Summaries)))
	read := make([]*entry, len(entered))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(summariesAtOnce)
	for i, turns := range entered {
		group.Go(func() (err error) {
			read[i], err = c.readSummary(ctx, conversation, turns)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var stored []entry
	for _, entry := range read {
		if entry != nil {
			stored = append(stored, *entry)
		}
	}
	return stored, nil
}

// readSummary returns the entry of turns of a conversation, or nil if no summary of them is stored.
func (c *cluster) readSummary(ctx context.Context, conversation *v1alpha1.Conversation, turns string) (*entry, error) {
	id := conversation.Spec.ConversationID
	name := types.NamespacedName{Namespace: conversation.Namespace, Name: v1alpha1.SummaryName(id, turns)}
	object := &v1alpha1.ConversationSummary{}
	err := kubeclient.Get(ctx, c.client, kubeclient.Summaries, name, object)
	switch {
	case kubeclient.IsGone(err, kubeclient.Summaries, name.Name):
		return nil, nil
	case errors.Is(err, kubeclient.ErrUndecodable):
		return &entry{turns: turns}, nil
	case err != nil:
		return nil, err
	case !belongsTo(object, id, conversation.UID):
		return nil, nil
	}
	summary := fromSummary(object)
	return &entry{turns, &summary}, nil
}

// newSummary returns the object of a summary.
func newSummary(conversationID string, owner types.UID, summary driver.Summary) *v1alpha1.ConversationSummary {
	start, end := int32(summary.StartTurn), int32(summary.EndTurn)
	object := &v1alpha1.ConversationSummary{Spec: v1alpha1.ConversationSummarySpec{
		ConversationID: conversationID, StartTurn: start, EndTurn: end,
		Content: summary.Content, TokenCount: int64(summary.TokenCount), CreatedAt: toTime(summary.CreatedAt),
	}}
	object.Name = v1alpha1.SummaryName(conversationID, summaryTurns(summary))
	object.OwnerReferences = kubeclient.OwnerReference(v1alpha1.ConversationKind, conversationID, owner)
	return object
}

// belongsTo reports whether an object is a summary of the conversation whose object has a UID: not of an earlier one with the same ID, which
// garbage collection will delete, and not a second one of the same turns.
func belongsTo(object *v1alpha1.ConversationSummary, conversationID string, owner types.UID) bool {
	spec := &object.Spec
	return object.DeletionTimestamp == nil && spec.ConversationID == conversationID &&
		object.Name == v1alpha1.SummaryName(conversationID, v1alpha1.SummaryTurns(spec.StartTurn, spec.EndTurn)) &&
		slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner })
}

// hasConversation reports whether a summary has a Conversation as an owner, whichever it is.
func hasConversation(object *v1alpha1.ConversationSummary) bool {
	return slices.ContainsFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == v1alpha1.ConversationKind })
}

func fromSummary(object *v1alpha1.ConversationSummary) driver.Summary {
	spec := &object.Spec
	return driver.Summary{
		StartTurn: int(spec.StartTurn), EndTurn: int(spec.EndTurn), Content: spec.Content, TokenCount: int(spec.TokenCount),
		CreatedAt: fromTime(spec.CreatedAt).UTC(),
	}
}
