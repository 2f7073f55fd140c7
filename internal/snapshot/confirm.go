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

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// confirmPolls returns how long Confirm waits between checks: from 100 ms to 10 seconds.
func confirmPolls() wait.DelayFunc {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 20, Cap: 10 * time.Second}.DelayFunc()
}

// Confirm returns nil once no sweep can delete the snapshot of a stored session any more, although it may have been
// unreferenced for the grace period. It is for saves that took longer than that.
//
// A sweep deletes only parts that have a mark, and only if the session, read after the mark was set, does not refer to it.
// So if all parts are stored and have no mark, every sweep that may delete them will find the session. While a part has a
// mark, a sweep that read the session before it was stored may be about to delete that part. In that case Confirm waits:
// the next sweep removes the mark. Confirm also rewrites missing parts. It returns ErrUnreadable if the given bodies do not
// match the reference.
//
// In a bucket, a leader that was suspended between reading the session and deleting can still delete the snapshot long after
// another one has removed the mark, because a bucket has no deletion with a precondition.
func (s Stores) Confirm(ctx context.Context, session types.NamespacedName, ref *v1alpha1.SnapshotReference, bodies Bodies) error {
	store, err := s.configured(session, ref)
	if err != nil {
		return err
	}
	for next := confirmPolls(); ; {
		found, err := store.Find(ctx, session, ref.Key, int(ref.Parts))
		if err != nil {
			return err
		}
		switch marked := slices.ContainsFunc(found, func(part Part) bool { return !part.Unreferenced.IsZero() }); {
		case len(found) < int(ref.Parts):
			if err := restore(ctx, store, session, ref, bodies); err != nil {
				return err
			}
		case !marked:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a sweep may be about to delete the snapshot: %w", ctx.Err())
		case <-time.After(next()):
		}
	}
}

// restore rewrites a snapshot under its key, unless another save has just done that. It removes the remaining parts first, because chunks are
// deleted together with the first chunk of the same write.
func restore(ctx context.Context, store Store, session types.NamespacedName, ref *v1alpha1.SnapshotReference, bodies Bodies) error {
	same, err := encode(ctx, io.Discard, bodies)
	if err != nil {
		return err
	}
	if same.SHA256 != ref.SHA256 || same.StoredBytes != ref.StoredBytes {
		return fmt.Errorf("%w: it has missing parts, and the given bodies do not match it", ErrUnreadable)
	}
	found, err := store.Find(ctx, session, ref.Key, int(ref.Parts))
	if err != nil || len(found) == int(ref.Parts) {
		return err
	}
	for _, part := range found {
		if err := store.Delete(ctx, part); errors.Is(err, ErrChanged) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unable to delete the remaining parts of a snapshot: %w", err)
		}
	}
	write := func(w io.Writer) error {
		_, err := encode(ctx, w, bodies)
		return err
	}
	if _, err := store.Write(ctx, session, ref.Key, write); err != nil {
		return fmt.Errorf("unable to rewrite the missing parts of a snapshot: %w", err)
	}
	return nil
}
