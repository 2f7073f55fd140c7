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
	"net/url"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/requestid"
	"github.com/catena-dev/catena/store/driver"
)

// resolveRetries is the number of times that client-go repeats a resolve whose response has a Retry-After header. Each
// repetition may read thousands of turns; client-go's default is ten.
const resolveRetries = 1

// Resolve implements driver.Store.
func (c *cluster) Resolve(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	if err := checkNamespace(responseID, namespace); err != nil {
		return nil, err
	}
	if options.Bodies {
		return c.resolveBodies(ctx, namespace, responseID, options)
	}
	return c.resolveItems(ctx, namespace, responseID, options)
}

// resolveItems returns a history as the operator has it.
func (c *cluster) resolveItems(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	history, err := c.history(ctx, namespace, responseID, options)
	for _, newer := range []struct {
		option *bool
		name   string
	}{ // An operator rejects the first unknown parameter in alphabetical order.
		{&options.ContinueIncomplete, "continueIncomplete"}, {&options.Digests, "digests"}, {&options.Origins, "origins"},
	} {
		if *newer.option && isUnknownParameter(err, newer.name) {
			*newer.option = false
			history, err = c.history(ctx, namespace, responseID, options)
		}
	}
	if options.Last > 0 && isUnknownParameter(err, "last") {
		return nil, olderOperator("the last turns of a history", err)
	}
	return history, resolveAgain(err)
}

// resolveAgain is like again, for errors of the resolve API.
func resolveAgain(err error) error {
	switch {
	case apierrors.HasStatusCause(err, resolvev1alpha1.CauseReadFailed):
		return err // each attempt may read the whole chain again
	case apierrors.IsServiceUnavailable(err):
		return driver.Again(err) // no replica is serving, or one is starting or stopping
	}
	return again(err)
}

// checkNamespace returns an error if a namespace is invalid as a path segment.
func checkNamespace(responseID, namespace string) error {
	if wrong := content.IsPathSegmentName(namespace); len(wrong) > 0 {
		return &driver.Error{Code: driver.CodeInvalid, ResponseID: responseID, Message: fmt.Sprintf("invalid namespace %q", namespace)}
	}
	return nil
}

// isUnknownParameter reports whether the operator is older than a parameter. Operators of all versions use these words.
func isUnknownParameter(err error, name string) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), strconv.Quote(name)+" is unknown")
}

func (c *cluster) history(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) (*driver.History, error) {
	body, err := kubeclient.Read(ctx, c.inputItems(ctx, namespace, responseID, options).MaxRetries(resolveRetries))
	if err != nil {
		return nil, toResolveError(ctx, responseID, "", err)
	}
	history, err := metered.Processed(ctx, len(body), func() (*driver.History, error) { return parseHistory(ctx, body) })
	if err != nil {
		return nil, err
	}
	if history.Parent.ResponseID != responseID {
		return nil, driver.NotFound(responseID) // an object with that name, but with another ID
	}
	return history, nil
}

// inputItems returns the request for the history of a turn.
func (c *cluster) inputItems(ctx context.Context, namespace, responseID string, options driver.ResolveOptions) *rest.Request {
	options.Version = resourceVersion(options.Version)
	return c.resolveRequest(ctx, namespace, resolvev1alpha1.Resource, responseID, options.Query())
}

// resolveRequest returns a request to the resolve API for what it has under a response ID or a conversation ID.
func (c *cluster) resolveRequest(ctx context.Context, namespace, resource, id string, query url.Values) *rest.Request {
	request := c.resolve.Get().AbsPath("/apis", resolvev1alpha1.GroupVersion.Group, resolvev1alpha1.GroupVersion.Version,
		"namespaces", namespace, resource, pathName(id))
	for name, values := range query {
		request.Param(name, values[0])
	}
	if id := requestid.FromContext(ctx); id != "" {
		request.SetHeader(requestid.Header, id)
	}
	return request
}

// pathName returns the name of a turn or a conversation in the path of a request to the operator. An ID may be invalid as a path
// segment, and an ID with a dot may equal the object name of another one.
func pathName(id string) string {
	if strings.ContainsAny(id, "/.") {
		return v1alpha1.ObjectName(id)
	}
	return id
}

// toResolveError converts the error of a request to the operator. See toError.
func toResolveError(ctx context.Context, responseID, step string, err error) error {
	notServed := apierrors.IsNotFound(err)
	err = toError(ctx, responseID, step, err)
	if _, coded := errors.AsType[*driver.Error](err); notServed && !coded && ctx.Err() == nil { // by the operator, which names the turn
		return &driver.Error{
			Code: driver.CodeUnreachable, ResponseID: responseID, Retryable: true, Message: "the cluster does not serve the resolve API at present", Err: err,
		}
	}
	if e, ok := errors.AsType[*driver.Error](err); ok && e.ResponseID == pathName(responseID) {
		e.ResponseID, e.Message = responseID, strings.ReplaceAll(e.Message, strconv.Quote(pathName(responseID)), strconv.Quote(responseID))
	}
	return err
}

// The memory overhead of a turn, or of an origin, of a digest, and of an item in a history, in addition to the body that contains them.
const (
	turnBytes   = 64
	digestBytes = 96
	itemBytes   = 24
)

// parseHistory parses a resolvev1alpha1.InputItems. The items share the memory of the body: copies of many tiny items would
// take several times as much.
func parseHistory(ctx context.Context, body []byte) (*driver.History, error) {
	object, err := jsonvalue.ParseObject(body)
	if err != nil {
		return nil, fmt.Errorf("unable to read the response of the operator: it %w", err)
	}
	fields := object.RawMembers("metadata", "responseID", "turns", "input", "next", "origins", "digests", "previousResponseID")
	turns, items, origins := jsonvalue.Count(fields[2]), jsonvalue.Count(fields[3]), jsonvalue.Count(fields[5])
	digests := jsonvalue.Count(fields[6])
	if err := metered.Take(ctx, int64(turnBytes*(turns+origins)+digestBytes*digests+itemBytes*items)); err != nil {
		return nil, err
	}
	history := &driver.History{
		// A caller may keep the handle longer than the items, and with it the body.
		Parent: driver.Handle{ResponseID: strings.Clone(gjson.Parse(fields[1]).Str), UID: strings.Clone(gjson.Get(fields[0], "uid").Str)},
		Turns:  make([]string, 0, turns),
		Items:  make([]json.RawMessage, 0, items),
		Next:   gjson.Parse(fields[4]).Str,

		PreviousResponseID: strings.Clone(gjson.Parse(fields[7]).Str),
	}
	for _, turn := range jsonvalue.Elements(fields[2]) {
		history.Turns = append(history.Turns, strings.Clone(gjson.Parse(turn).Str))
	}
	for _, item := range jsonvalue.Elements(fields[3]) {
		history.Items = append(history.Items, jsonvalue.Bytes(item))
	}
	for _, origin := range jsonvalue.Elements(fields[5]) {
		o := gjson.Parse(origin)
		history.Origins = append(history.Origins, driver.Origin{
			ResponseID: strings.Clone(o.Get("responseID").Str), First: int(o.Get("first").Int()), Count: int(o.Get("count").Int()),
		})
	}
	for _, digest := range jsonvalue.Elements(fields[6]) {
		history.Digests = append(history.Digests, strings.Clone(gjson.Parse(digest).Str))
	}
	return history, nil
}
