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

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store/driver"
)

var _ driver.ConversationLister = (*cluster)(nil)

// ListConversations implements driver.ConversationLister.
func (c *cluster) ListConversations(
	ctx context.Context, namespace string, options driver.ConversationListOptions,
) (*driver.ConversationList, error) {
	if err := checkNamespace("", namespace); err != nil {
		return nil, err
	}
	request := c.resolveRequest(ctx, namespace, resolvev1alpha1.ConversationListsResource, resolvev1alpha1.AllConversations, options.Query())
	body, err := kubeclient.Read(ctx, request.MaxRetries(resolveRetries))
	switch {
	case apierrors.IsNotFound(err) && ctx.Err() == nil: // an operator answers in every namespace
		return nil, c.notListed(ctx, namespace, err)
	case err != nil:
		err = toError(ctx, "", "", err)
		if e, ok := errors.AsType[*driver.Error](err); ok {
			e.ConversationID = options.ParentConversationID
		}
		return nil, resolveAgain(err)
	}
	return metered.Processed(ctx, len(body), func() (*driver.ConversationList, error) { return parseConversationList(ctx, body) })
}

// parseConversationList parses resolvev1alpha1.ConversationLists.
func parseConversationList(ctx context.Context, body []byte) (*driver.ConversationList, error) {
	if err := metered.Take(ctx, int64(len(body))); err != nil { // the copies of the strings
		return nil, err
	}
	var object resolvev1alpha1.ConversationLists
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("unable to read the response of the operator: %w", err)
	}
	list := &driver.ConversationList{Next: object.Next}
	for _, c := range object.Conversations {
		list.Conversations = append(list.Conversations, driver.ConversationInfo{
			ConversationID: c.ConversationID, UserID: c.UserID, Title: c.Title, State: c.State,
			ParentConversationID: c.ParentConversationID, HeadResponseID: c.HeadResponseID,
			CreatedAt: c.CreatedAt.UTC(), UpdatedAt: c.UpdatedAt.UTC(), LastActivityAt: c.LastActivityAt.UTC(),
		})
	}
	return list, nil
}
