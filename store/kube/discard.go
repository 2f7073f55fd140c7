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
	"time"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

// discardTimeout limits the removal of an unused snapshot. If it is exceeded, the operator removes the snapshot later.
const discardTimeout = 10 * time.Second

// discard removes the snapshot of a save that was rejected, or whose turn was already stored. If the outcome of the save is
// unknown, it keeps the snapshot.
func (s *save) discard(ctx context.Context, object *v1alpha1.ResponseSession, err error) {
	refused := errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrTooLarge) ||
		errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrQuotaExceeded)
	if s.written == nil || s.written.Snapshot == nil || err != nil && !refused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	if refused {
		// An earlier attempt may have succeeded although its response was lost. The turn may still refer to this snapshot,
		// even if it has been changed since.
		if object, err = s.getObject(ctx, s.namespace, s.session.ResponseID); err != nil && !errors.Is(err, driver.ErrNotFound) {
			return
		}
	}
	if object != nil && object.Spec.Snapshot != nil && s.wrote(object.Spec.Snapshot) {
		return
	}
	_ = s.reads.Delete(ctx, objectName(s.namespace, s.session.ResponseID), s.written.Snapshot, nil) // see discardTimeout
}

// discardReplaced removes the snapshot of the version that a successful overwrite has replaced: no quota counts it any more. One that
// could not be read is left to the operator, because the reference may have pointed to the snapshot of another turn.
func (s *save) discardReplaced(ctx context.Context, object *v1alpha1.ResponseSession) {
	current := object.Spec.Snapshot
	if s.replaced == nil || current != nil && current.Key == s.replaced.Key {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	// The save may have taken minutes since, and someone may have restored the replaced version.
	_ = s.deleteSnapshot(ctx, s.namespace, s.session.ResponseID, s.replaced) // see discardTimeout
}

// deleteSnapshot removes a snapshot of a turn, unless the stored turn refers to it.
func (c *cluster) deleteSnapshot(ctx context.Context, namespace, responseID string, ref *v1alpha1.SnapshotReference) error {
	return c.reads.Delete(ctx, objectName(namespace, responseID), ref, func(ctx context.Context) (bool, error) {
		return c.needsSnapshot(ctx, namespace, responseID, ref.Key)
	})
}

// needsSnapshot reports whether the stored turn refers to a snapshot. A turn that cannot be decoded may do so: the operator deletes the snapshot
// if nothing refers to it.
func (c *cluster) needsSnapshot(ctx context.Context, namespace, responseID, key string) (bool, error) {
	object, err := c.getObject(ctx, namespace, responseID)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return false, nil
	case errors.Is(err, kubeclient.ErrUndecodable):
		return true, nil
	case err != nil:
		return false, err
	}
	return object.Spec.Snapshot != nil && object.Spec.Snapshot.Key == key, nil
}
