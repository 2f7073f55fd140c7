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
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

var _ driver.Pinger = (*cluster)(nil)

const (
	// noObject is the name of a session that cannot exist: it is not a DNS name.
	noObject = "-"
	// noResponse is the response ID of a resolve that fails anyway. An ID that could be the name of an object would cost the operator a read.
	noResponse = "_"
)

// Ping implements driver.Pinger.
func (c *cluster) Ping(ctx context.Context, namespace string) error {
	if err := checkNamespace("", namespace); err != nil {
		return err
	}
	if err := c.pingSessions(ctx, namespace); err != nil {
		return err
	}
	return c.pingOperator(ctx, namespace)
}

// pingSessions returns an error unless the API server serves sessions: etcd responds that one does not exist.
func (c *cluster) pingSessions(ctx context.Context, namespace string) error {
	request := kubeclient.GetAt(c.client, kubeclient.Sessions, types.NamespacedName{Namespace: namespace, Name: noObject}, "")
	_, err := kubeclient.Read(ctx, request.MaxRetries(0))
	if err == nil || kubeclient.IsGone(err, kubeclient.Sessions, noObject) {
		return nil
	}
	if apierrors.IsNotFound(err) && ctx.Err() == nil {
		return &driver.Error{
			Code: driver.CodeUnreachable, Retryable: true, Message: "the cluster does not serve ResponseSessions at present: are the CRDs installed?", Err: err,
		}
	}
	return toError(ctx, "", fmt.Sprintf("read sessions of namespace %q", namespace), err)
}

// pingOperator returns an error unless an operator responds. It walks no chain, because that may have no turns, and reads nothing.
func (c *cluster) pingOperator(ctx context.Context, namespace string) error {
	request := c.inputItems(ctx, namespace, noResponse, driver.ResolveOptions{MaxDepth: new(0)})
	_, err := kubeclient.Read(ctx, request.MaxRetries(0))
	if err == nil {
		return nil
	}
	if err = toResolveError(ctx, "", "resolve through the operator", err); errors.Is(err, driver.ErrDepthExceeded) {
		return nil
	}
	return err
}
