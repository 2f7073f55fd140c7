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
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/store/driver"
)

// inputItems is the part of a resolvev1alpha1.InputItems that this package reads.
type inputItems struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	ResponseID string            `json:"responseID"`
	Turns      []string          `json:"turns"`
	Input      []json.RawMessage `json:"input"`
	Next       string            `json:"next"`
}

// Resolve implements driver.Store.
func (c *cluster) Resolve(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	if wrong := content.IsPathSegmentName(namespace); len(wrong) > 0 {
		return nil, &driver.Error{Code: driver.CodeInvalid, ResponseID: responseID, Message: fmt.Sprintf("invalid namespace %q", namespace)}
	}
	history, err := c.history(ctx, namespace, responseID, options)
	return history, again(err)
}

func (c *cluster) history(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	name := responseID
	// An ID may not be valid as a path segment, and one with a dot may be another turn's object name.
	if strings.ContainsAny(responseID, "/.") {
		name = v1alpha1.ObjectName(responseID)
	}
	request := c.resolve.Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.Group, resolvev1alpha1.GroupVersion.Version,
		"namespaces", namespace, resolvev1alpha1.Resource, name)
	options.Version = resourceVersion(options.Version)
	for name, values := range options.Query() {
		request.Param(name, values[0])
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		err = toError(ctx, responseID, "", err)
		if e, ok := errors.AsType[*driver.Error](err); ok && e.ResponseID == name {
			e.ResponseID, e.Message = responseID, strings.ReplaceAll(e.Message, strconv.Quote(name), strconv.Quote(responseID))
		}
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, toError(ctx, responseID, "", err)
	}
	var items inputItems
	if err := json.Unmarshal(body, &items); err != nil {
		return nil, fmt.Errorf("unable to read the response of the operator: %w", err)
	}
	if items.ResponseID != responseID {
		return nil, &driver.Error{ // an object with that name, but with another ID
			Code: driver.CodeNotFound, ResponseID: responseID, PreviousResponseID: responseID,
			Message: fmt.Sprintf("response %q was not found", responseID),
		}
	}
	return &driver.History{
		Parent: driver.Handle{ResponseID: responseID, UID: items.Metadata.UID},
		Turns:  items.Turns,
		Items:  items.Input,
		Next:   items.Next,
	}, nil
}
