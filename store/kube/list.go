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

var _ driver.Lister = (*cluster)(nil)

// List implements driver.Lister.
func (c *cluster) List(ctx context.Context, namespace, conversationID string, options driver.ListOptions) (*driver.TurnList, error) {
	if err := checkNamespace("", namespace); err != nil {
		return nil, err
	}
	options.Version = resourceVersion(options.Version)
	request := c.resolveRequest(ctx, namespace, resolvev1alpha1.ConversationsResource, conversationID, options.Query())
	body, err := kubeclient.Read(ctx, request.MaxRetries(resolveRetries))
	if options.History && err != nil {
		return nil, c.historyError(ctx, namespace, conversationID, err)
	}
	switch {
	case apierrors.IsNotFound(err) && ctx.Err() == nil: // an operator answers for every conversation
		return nil, c.notListed(ctx, namespace, err)
	case err != nil:
		return nil, resolveAgain(toError(ctx, "", "", err))
	}
	list, err := metered.Processed(ctx, len(body), func() (*driver.TurnList, error) { return parseList(ctx, conversationID, body) })
	switch {
	case err != nil || list != nil:
		return list, err
	case options.History:
		return nil, driver.ConversationNotFound(conversationID)
	}
	return &driver.TurnList{}, nil
}

// historyError returns the error for a history's turns that could not be listed.
func (c *cluster) historyError(ctx context.Context, namespace, conversationID string, err error) error {
	coded := toError(ctx, "", "", err)
	switch e, _ := errors.AsType[*driver.Error](coded); {
	case isUnknownParameter(err, "history"):
		return olderOperator("histories of conversations", err)
	case e != nil && e.Code == driver.CodeConversationNotFound:
		return driver.ConversationNotFound(conversationID)
	case e == nil && apierrors.IsNotFound(err) && ctx.Err() == nil:
		return c.notListed(ctx, namespace, err)
	}
	return resolveAgain(coded)
}

func olderOperator(lacks string, err error) error {
	return &driver.Error{
		Code: driver.CodeUnsupported, Err: err,
		Message: "the cluster does not serve " + lacks + ": upgrade the operator to the version of this program",
	}
}

// notListed returns the error for a cluster that does not serve lists. If it serves histories, its operator is older than this program.
func (c *cluster) notListed(ctx context.Context, namespace string, err error) error {
	if err := c.pingOperator(ctx, namespace); err != nil {
		return err
	}
	return olderOperator("lists of conversations", err)
}

// parseList parses resolvev1alpha1.ConversationTurns. It returns nil if they are those of another conversation.
func parseList(ctx context.Context, conversationID string, body []byte) (*driver.TurnList, error) {
	if err := metered.Take(ctx, int64(len(body))); err != nil { // the copies of the strings
		return nil, err
	}
	var object resolvev1alpha1.ConversationTurns
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("unable to read the response of the operator: %w", err)
	}
	list := &driver.TurnList{Next: object.Next, Count: int(object.Count), Head: object.HeadResponseID}
	if object.ConversationID != conversationID {
		return nil, nil // another conversation has the object name of this one as its ID
	}
	for _, turn := range object.Turns {
		list.Turns = append(list.Turns, driver.TurnInfo{
			ResponseID: turn.ResponseID, PreviousResponseID: turn.PreviousResponseID, Status: turn.ResponseStatus,
			CreatedAt: turn.CreatedAt.UTC(), CompletedAt: turn.CompletedAt.UTC(),
			Version: versionOf(turn.UID, turn.Generation, turn.ResourceVersion),
		})
	}
	return list, nil
}
