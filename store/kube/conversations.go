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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

var _ driver.Conversations = (*cluster)(nil)

// CreateConversation implements driver.Conversations. If an earlier attempt may have succeeded, a stored conversation that is equal counts
// as the one that it has created.
func (c *cluster) CreateConversation(ctx context.Context, namespace string, conversation *driver.Conversation) (*driver.Conversation, error) {
	id := conversation.ConversationID
	object := &v1alpha1.Conversation{Spec: conversationSpec(conversation)}
	object.Name = v1alpha1.ObjectName(id)
	posted := false
	return driver.Retry(ctx, func() (*driver.Conversation, error) {
		created := &v1alpha1.Conversation{}
		err := kubeclient.Create(ctx, c.client, kubeclient.Conversations, namespace, object, created)
		switch {
		case err == nil:
			return fromConversation(created), nil
		case apierrors.IsAlreadyExists(err):
			return c.existing(ctx, namespace, conversation, posted)
		}
		posted = posted || mayHaveSucceeded(err)
		return nil, again(conversationError(ctx, id, err))
	})
}

// existing returns the stored conversation whose ID is taken if it is equal and may be ours, and otherwise the conflict.
func (c *cluster) existing(ctx context.Context, namespace string, conversation *driver.Conversation, mayBeOurs bool) (*driver.Conversation, error) {
	id := conversation.ConversationID
	stored, err := c.getConversation(ctx, namespace, id)
	if errors.Is(err, driver.ErrConversationNotFound) {
		return nil, driver.Again(beingDeleted(id))
	}
	if err != nil {
		return nil, again(err)
	}
	if current := fromConversation(stored); mayBeOurs && sameConversation(current, conversation) {
		return current, nil
	}
	return nil, driver.ConversationExists(id)
}

// GetConversation implements driver.Conversations.
func (c *cluster) GetConversation(ctx context.Context, namespace, conversationID string) (*driver.Conversation, error) {
	object, err := c.getConversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, again(err)
	}
	return fromConversation(object), nil
}

// getConversation returns the object of a conversation, without retries. One that is being deleted, or whose name is the hash of another ID,
// does not exist.
func (c *cluster) getConversation(ctx context.Context, namespace, conversationID string) (*v1alpha1.Conversation, error) {
	object := &v1alpha1.Conversation{}
	err := kubeclient.Get(ctx, c.client, kubeclient.Conversations, objectName(namespace, conversationID), object)
	if err != nil {
		return nil, conversationError(ctx, conversationID, err)
	}
	if object.Spec.ConversationID != conversationID || object.DeletionTimestamp != nil {
		return nil, driver.ConversationNotFound(conversationID)
	}
	return object, nil
}

// UpdateConversation implements driver.Conversations: with one patch, whose tests are the expectations.
func (c *cluster) UpdateConversation(
	ctx context.Context, namespace, conversationID string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	if update.Hide != nil || len(update.MetadataMembers) > 0 {
		return c.extend(ctx, namespace, conversationID, update)
	}
	changes := changesOf(update)
	patched, err := c.patchConversation(ctx, namespace, conversationID, "", append(testsOf(conversationID, update), changes...))
	if !kubeclient.IsFailedTest(err) {
		return c.updated(ctx, conversationID, patched, err)
	}
	current, err := c.getConversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, again(err)
	}
	expected := driver.ConversationUpdate{ExpectedState: update.ExpectedState, ExpectedHead: update.ExpectedHead}
	if err := expected.Apply(fromConversation(current)); err != nil {
		return nil, err
	}
	// It was changed back meanwhile, or someone has written an expected value in another way, such as renewals that are 0 and not absent.
	patched, err = c.patchConversation(ctx, namespace, conversationID, current.ResourceVersion, changes)
	return c.updated(ctx, conversationID, patched, err)
}

// extend makes an update that hides an item or sets members of the metadata. A patch can extend only a list or an object that exists, so this
// takes a read.
func (c *cluster) extend(
	ctx context.Context, namespace, conversationID string, update driver.ConversationUpdate,
) (*driver.Conversation, error) {
	object, err := c.getConversation(ctx, namespace, conversationID)
	if err != nil {
		return nil, again(err)
	}
	conversation := fromConversation(object)
	if err := update.Apply(conversation); err != nil {
		return nil, err
	}
	tests, withMetadata := testsOf(conversationID, update), len(update.MetadataMembers) > 0
	if withMetadata {
		if update.Metadata = conversation.Metadata; update.Metadata == nil {
			update.Metadata = json.RawMessage("null")
		}
	}
	changes := changesOf(update)
	if update.Hide != nil {
		tests = append(tests, test("hiddenItems", object.Spec.HiddenItems))
		changes = append(changes, kubeclient.Operation{Op: "add", Path: "/spec/hiddenItems", Value: toHiddenItems(conversation.HiddenItems)})
	}
	// A conversation may be appended to all the time, so only its hidden items must be as they were read. For the metadata, that cannot be
	// tested: the kube-apiserver panics if a test compares objects that have null.
	if !withMetadata {
		patched, err := c.patchConversation(ctx, namespace, conversationID, "", append(tests, changes...))
		if !kubeclient.IsFailedTest(err) {
			return c.updated(ctx, conversationID, patched, err)
		}
	}
	patched, err := c.patchConversation(ctx, namespace, conversationID, object.ResourceVersion, changes)
	return c.updated(ctx, conversationID, patched, err)
}

func (c *cluster) patchConversation(
	ctx context.Context, namespace, conversationID, resourceVersion string, operations []kubeclient.Operation,
) (*v1alpha1.Conversation, error) {
	patched := &v1alpha1.Conversation{}
	err := kubeclient.Patch(ctx, c.client, kubeclient.Conversations, objectName(namespace, conversationID), resourceVersion, operations, patched)
	return patched, err
}

// updated returns the result of an update for that of a patch.
func (c *cluster) updated(ctx context.Context, conversationID string, patched *v1alpha1.Conversation, err error) (*driver.Conversation, error) {
	switch {
	case apierrors.IsConflict(err):
		return nil, changedMeanwhile(conversationID)
	case err != nil:
		return nil, again(conversationError(ctx, conversationID, err))
	case patched.DeletionTimestamp != nil:
		return nil, driver.ConversationNotFound(conversationID)
	}
	return fromConversation(patched), nil
}

// DeleteConversation implements driver.Conversations. Garbage collection deletes the summaries. If an attempt without an answer is repeated, a
// conversation that was created with the same ID meanwhile stays.
func (c *cluster) DeleteConversation(ctx context.Context, namespace, conversationID string) error {
	name := objectName(namespace, conversationID)
	var read *metav1.ObjectMeta
	_, err := driver.Retry(ctx, func() (none struct{}, err error) {
		if read == nil {
			read, err = kubeclient.GetMetadata(ctx, c.client, kubeclient.Conversations, name)
		}
		if err == nil {
			preconditions := &metav1.Preconditions{UID: &read.UID}
			_, err = kubeclient.Delete(ctx, c.client, kubeclient.Conversations, name, preconditions, metav1.DeletePropagationBackground)
		}
		if apierrors.IsConflict(err) {
			if current, getErr := kubeclient.GetMetadata(ctx, c.client, kubeclient.Conversations, name); getErr == nil && current.UID != read.UID {
				return none, nil
			}
		}
		if err == nil || kubeclient.IsGone(err, kubeclient.Conversations, name.Name) {
			return none, nil
		}
		return none, again(conversationError(ctx, conversationID, err))
	})
	return err
}

// GetWithoutBodies implements driver.Conversations: with one read, wherever the bodies are.
func (c *cluster) GetWithoutBodies(ctx context.Context, namespace, responseID string) (*driver.Session, error) {
	object, err := c.getObject(ctx, namespace, responseID)
	if err != nil {
		return nil, again(err)
	}
	return withBodies(object, snapshot.Bodies{}), nil
}

// testsOf returns the operations that fail unless a conversation is as an update expects.
func testsOf(conversationID string, update driver.ConversationUpdate) []kubeclient.Operation {
	tests := []kubeclient.Operation{test("conversationID", conversationID)}
	if update.ExpectedState != "" {
		tests = append(tests, test("state", update.ExpectedState))
	}
	if head := update.ExpectedHead; head != nil {
		tests = append(tests, test("headResponseID", orNull(head.ResponseID)), test("baseResponseID", orNull(head.BaseResponseID)),
			test("reservation", orNull(toReservation(head.Reservation))))
	}
	return tests
}

func test(field string, value any) kubeclient.Operation {
	return kubeclient.Operation{Op: "test", Path: "/spec/" + field, Value: value}
}

// changesOf returns the operations of an update.
func changesOf(update driver.ConversationUpdate) []kubeclient.Operation {
	var changes []kubeclient.Operation
	set := func(field string, value any) {
		path := "/spec/" + field
		// "add" replaces a field that exists, and "remove" fails for a field that does not.
		changes = append(changes, kubeclient.Operation{Op: "add", Path: path, Value: value})
		if value == nil {
			changes = append(changes, kubeclient.Operation{Op: "remove", Path: path})
		}
	}
	if update.State != "" {
		set("state", update.State)
	}
	if head := update.Head; head != nil {
		set("headResponseID", orNull(head.ResponseID))
		set("baseResponseID", orNull(head.BaseResponseID))
		set("reservation", orNull(toReservation(head.Reservation)))
	}
	for field, text := range map[string]*string{"userID": update.UserID, "title": update.Title, "systemPrompt": update.SystemPrompt} {
		if text != nil {
			set(field, orNull(*text))
		}
	}
	switch {
	case string(update.Metadata) == "null":
		set("metadata", nil)
	case update.Metadata != nil:
		set("metadata", update.Metadata)
	}
	return changes
}

// orNull returns nil for a zero value, which is absent in the object.
func orNull[T comparable](value T) any {
	if value == *new(T) {
		return nil
	}
	return value
}

// conversationSpec returns the spec of a new conversation.
func conversationSpec(conversation *driver.Conversation) v1alpha1.ConversationSpec {
	spec := v1alpha1.ConversationSpec{
		ConversationID:       conversation.ConversationID,
		UserID:               conversation.UserID,
		Title:                conversation.Title,
		SystemPrompt:         conversation.SystemPrompt,
		State:                conversation.State,
		HeadResponseID:       conversation.Head.ResponseID,
		BaseResponseID:       conversation.Head.BaseResponseID,
		ParentConversationID: conversation.ParentConversationID,
		HiddenItems:          toHiddenItems(conversation.HiddenItems),
	}
	if conversation.Metadata != nil {
		spec.Metadata = &runtime.RawExtension{Raw: conversation.Metadata}
	}
	if reservation := toReservation(conversation.Head.Reservation); reservation != (v1alpha1.Reservation{}) {
		spec.Reservation = &reservation
	}
	if fork := v1alpha1.Fork(conversation.ForkedFrom); fork != (v1alpha1.Fork{}) {
		spec.ForkedFrom = &fork
	}
	return spec
}

func toReservation(reservation driver.Reservation) v1alpha1.Reservation {
	return v1alpha1.Reservation{DurationSeconds: int32(reservation.Duration / time.Second), Renewals: reservation.Renewals}
}

func toHiddenItems(items []driver.HiddenItem) []v1alpha1.HiddenItem {
	var hidden []v1alpha1.HiddenItem
	for _, item := range items {
		hidden = append(hidden, v1alpha1.HiddenItem{ResponseID: item.ResponseID, Number: int32(item.Number)})
	}
	return hidden
}

// fromConversation returns the conversation for an object.
func fromConversation(object *v1alpha1.Conversation) *driver.Conversation {
	spec := &object.Spec
	conversation := &driver.Conversation{
		ConversationID:       spec.ConversationID,
		UserID:               spec.UserID,
		Title:                spec.Title,
		SystemPrompt:         spec.SystemPrompt,
		Metadata:             fromExtension(spec.Metadata),
		State:                spec.State,
		Head:                 driver.Head{ResponseID: spec.HeadResponseID, BaseResponseID: spec.BaseResponseID},
		ParentConversationID: spec.ParentConversationID,
		CreatedAt:            object.CreationTimestamp.UTC(),
		Version:              object.ResourceVersion,
	}
	if reservation := spec.Reservation; reservation != nil {
		conversation.Head.Reservation = driver.Reservation{
			Duration: time.Duration(reservation.DurationSeconds) * time.Second, Renewals: reservation.Renewals,
		}
	}
	for _, item := range spec.HiddenItems {
		conversation.HiddenItems = append(conversation.HiddenItems, driver.HiddenItem{ResponseID: item.ResponseID, Number: int(item.Number)})
	}
	if spec.ForkedFrom != nil {
		conversation.ForkedFrom = driver.Fork(*spec.ForkedFrom)
	}
	return conversation
}

// sameConversation reports whether two conversations are equal, regardless of when they were created and changed.
func sameConversation(a, b *driver.Conversation) bool {
	x, y := *a, *b
	x.CreatedAt, y.CreatedAt = time.Time{}, time.Time{}
	x.Version, y.Version = "", ""
	x.Metadata, y.Metadata = nil, nil
	x.HiddenItems, y.HiddenItems = nil, nil
	return reflect.DeepEqual(x, y) && slices.Equal(a.HiddenItems, b.HiddenItems) &&
		(a.Metadata == nil) == (b.Metadata == nil) && jsonvalue.Equal(a.Metadata, b.Metadata)
}

// changedMeanwhile returns the conflict for a conversation that someone else has changed, so that the next attempt may succeed.
func changedMeanwhile(conversationID string) error {
	conflict := driver.ConversationChanged(conversationID)
	conflict.Retryable = true
	return driver.Again(conflict)
}

// beingDeleted returns the conflict for a conversation whose ID is taken by one that does not exist any more.
func beingDeleted(conversationID string) error {
	return &driver.Error{
		Code: driver.CodeConflict, ConversationID: conversationID, Retryable: true,
		Message: fmt.Sprintf("conversation %.100q is being deleted", conversationID),
	}
}

// conversationError is toError for a request for a conversation or its summaries.
func conversationError(ctx context.Context, conversationID string, err error) error {
	name := v1alpha1.ObjectName(conversationID)
	switch {
	case ctx.Err() != nil:
	case kubeclient.IsGone(err, kubeclient.Conversations, name):
		return driver.ConversationNotFound(conversationID)
	case apierrors.IsNotFound(err) && !kubeclient.IsAnyGone(err):
		return &driver.Error{
			Code: driver.CodeUnsupported, ConversationID: conversationID, Err: err,
			Message: "the cluster does not serve conversations: install the CRDs of this version",
		}
	}
	err = toError(ctx, "", "", err)
	if e, ok := errors.AsType[*driver.Error](err); ok {
		e.ConversationID = conversationID
		if e.Code == driver.CodeQuotaExceeded {
			e.Message = fmt.Sprintf("conversation %.100q cannot be stored, because the quota of its namespace is exceeded", conversationID)
		}
	}
	return err
}
