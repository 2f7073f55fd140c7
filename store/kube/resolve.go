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
	"github.com/catena-dev/catena/store"
)

// inputItems is what this package reads of a resolvev1alpha1.InputItems.
type inputItems struct {
	Metadata struct {
		UID string `json:"uid"`
	} `json:"metadata"`
	ResponseID string            `json:"responseID"`
	Turns      []string          `json:"turns"`
	Input      []json.RawMessage `json:"input"`
	Next       string            `json:"next"`
}

// Resolve returns the history of a turn.
func (s *Store) Resolve(ctx context.Context, responseID string, options store.ResolveOptions) (*store.History, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	if responseID == "" && options.After != "" {
		return nil, &store.Error{Code: store.CodeInvalid, Message: "the cursor cannot be used: the empty response ID has no items"}
	}
	if responseID == "" {
		return &store.History{}, nil
	}
	if wrong := content.IsPathSegmentName(s.namespace); len(wrong) > 0 {
		return nil, &store.Error{Code: store.CodeInvalid, ResponseID: responseID, Message: fmt.Sprintf("namespace %q is no name", s.namespace)}
	}
	return retry(ctx, func() (*store.History, error) { return s.history(ctx, responseID, options) })
}

func (s *Store) history(ctx context.Context, responseID string, options store.ResolveOptions) (*store.History, error) {
	name := responseID
	// An ID may be no segment of a path, and one with a dot may be another turn's object name.
	if strings.ContainsAny(responseID, "/.") {
		name = v1alpha1.ObjectName(responseID)
	}
	request := s.resolve.Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.Group, resolvev1alpha1.GroupVersion.Version,
		"namespaces", s.namespace, resolvev1alpha1.Resource, name)
	for key, value := range parameters(options) {
		request.Param(key, value)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		err = toError(ctx, responseID, "unable to resolve", err)
		if e, ok := errors.AsType[*store.Error](err); ok && e.ResponseID == name {
			e.ResponseID, e.Message = responseID, strings.ReplaceAll(e.Message, strconv.Quote(name), strconv.Quote(responseID))
		}
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, toError(ctx, responseID, "unable to resolve", err)
	}
	var answer inputItems
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("unable to read the history of response %q: %w", responseID, err)
	}
	if answer.ResponseID != responseID {
		return nil, notFound(responseID, responseID) // an object of that name, but with another ID
	}
	return &store.History{
		Parent: store.Handle{ResponseID: responseID, UID: answer.Metadata.UID},
		Turns:  answer.Turns,
		Items:  answer.Input,
		Next:   answer.Next,
	}, nil
}

func parameters(o store.ResolveOptions) map[string]string {
	p := map[string]string{}
	set := func(key, value string) {
		if value != "" {
			p[key] = value
		}
	}
	set("instructions", o.Instructions)
	set("after", o.After)
	set("order", o.Order)
	set("resourceVersion", resourceVersion(o.Version))
	if o.MaxDepth != nil {
		p["maxDepth"] = strconv.Itoa(*o.MaxDepth)
	}
	if o.Limit > 0 {
		p["limit"] = strconv.Itoa(o.Limit)
	}
	if o.IncludeIncomplete {
		p["includeIncomplete"] = "true"
	}
	return p
}
