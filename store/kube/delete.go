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
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

// maxDeleteTime is how long Delete waits for garbage collection, which takes a fraction of a second.
const maxDeleteTime = 30 * time.Second

// deletePolls returns how long Delete waits before it polls again: from 20 ms to half a second.
func deletePolls() wait.DelayFunc {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.2, Steps: 20, Cap: 500 * time.Millisecond}.DelayFunc()
}

// Delete removes a turn and, with Cascade, its descendants. Without Cascade, garbage collection first removes the
// ownerReference to the turn from its dependents, and Delete waits until it has finished.
//
// A descendant that is saved within the same few milliseconds may be deleted too: see Save.
func (c *cluster) Delete(ctx context.Context, namespace, responseID string, options driver.DeleteOptions) error {
	if options.Cascade {
		if err := c.cascade(ctx, namespace, responseID); err != nil {
			return err
		}
		return c.waitUntilGone(ctx, namespace, responseID)
	}
	deleted, err := c.orphan(ctx, namespace, responseID)
	if err != nil || deleted == nil {
		return again(err)
	}
	if err := c.waitUntilGone(ctx, namespace, responseID); err != nil || deleted.Spec.Snapshot == nil {
		return err
	}
	// The snapshot is a dependent too, and was orphaned with the others. The turn may have been restored meanwhile.
	if err := c.deleteSnapshot(ctx, namespace, responseID, deleted.Spec.Snapshot); err != nil {
		return toError(ctx, responseID, "delete the bodies of the turn", err)
	}
	return nil
}

// orphan deletes a turn and keeps its dependents. It returns the identity of the turn while it is still being deleted, or nil if it is
// gone. The turn may be one that cannot be decoded.
func (c *cluster) orphan(ctx context.Context, namespace, responseID string) (*v1alpha1.ResponseSession, error) {
	raw, err := kubeclient.Delete(ctx, c.client, kubeclient.Sessions, objectName(namespace, responseID), nil, metav1.DeletePropagationOrphan)
	if isGone(err, namespace, responseID) || err == nil && raw == nil {
		return nil, nil
	}
	if err != nil {
		return nil, toError(ctx, responseID, "", err)
	}
	deleted, err := decodeIdentity(raw)
	if err != nil {
		return nil, toError(ctx, responseID, "", err)
	}
	return deleted, nil
}

// waitUntilGone waits until garbage collection has removed a turn that is being deleted.
func (c *cluster) waitUntilGone(ctx context.Context, namespace, responseID string) error {
	var last error
	limited, cancel := context.WithTimeout(ctx, maxDeleteTime)
	defer cancel()
	err := deletePolls().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		var object *metav1.ObjectMeta
		object, last = kubeclient.GetMetadata(ctx, c.client, kubeclient.Sessions, objectName(namespace, responseID))
		switch {
		case isGone(last, namespace, responseID):
			return true, nil
		case last != nil && !isUnreachable(last):
			return false, last
		}
		return last == nil && object.DeletionTimestamp == nil, nil // it was saved again
	})
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && wait.Interrupted(err) {
		return &driver.Error{
			Code: driver.CodeUnreachable, ResponseID: responseID, Retryable: true, Err: last,
			Message: fmt.Sprintf("response %q is being deleted, but garbage collection has not removed it yet", responseID),
		}
	}
	return toError(ctx, responseID, "check whether the turn is deleted", err)
}
