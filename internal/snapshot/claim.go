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
	"strings"
	"sync/atomic"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/catena-dev/catena/internal/elapsed"
)

var (
	// ErrForeign indicates a bucket that another cluster has claimed.
	ErrForeign = errors.New("the bucket belongs to another cluster")
	// ErrUnclaimed indicates a bucket that no cluster has claimed. Either the operator has not opened it yet, or it is the
	// wrong bucket: it was moved, emptied, or misconfigured.
	ErrUnclaimed = errors.New("no cluster has claimed the bucket")
)

const (
	// claimName is the object that identifies the cluster that owns a bucket.
	claimName = "catena-cluster"
	// claimValid is how long a claim that was read stays valid. It must be shorter than the grace period, after which
	// snapshots that this cluster writes to a bucket taken over by another one are deleted.
	claimValid = time.Minute
	// maxProbes is the maximum number of snapshots to look up to determine whether an unclaimed bucket belongs to this cluster.
	maxProbes = 16
)

// claim reads and writes the object that identifies the cluster that owns a bucket. Without it, a wrong bucket would look
// like one that has lost all its snapshots. It is safe for concurrent use.
type claim struct {
	bucket *blob.Bucket
	// identify returns the identity of this cluster, which never changes.
	identify func(ctx context.Context) (string, error)
	checked  atomic.Pointer[time.Time]
}

// recheck is check, unless the claim was read recently.
func (c *claim) recheck(ctx context.Context) error {
	if checked := c.checked.Load(); checked != nil && elapsed.Since(*checked) < claimValid {
		return nil
	}
	return c.check(ctx)
}

// check reads the claim. It returns nil if the bucket responds and belongs to this cluster. Its errors include ErrForeign
// and ErrUnclaimed.
func (c *claim) check(ctx context.Context) error {
	now := time.Now()
	cluster, err := c.identify(ctx)
	if err != nil {
		return err
	}
	claimed, err := c.bucket.ReadAll(ctx, claimName)
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound:
		return fmt.Errorf("%w: it has no object %s, which the operator writes", ErrUnclaimed, claimName)
	case err != nil:
		return fmt.Errorf("unable to read the claim on the bucket: %w", err)
	case strings.TrimSpace(string(claimed)) != cluster: // it may have been written by hand
		return fmt.Errorf("%w: it is claimed by %s, and this cluster is %s: use another bucket or prefix or, if that cluster no longer exists, write %s to the object %s",
			ErrForeign, claimed, cluster, cluster, claimName)
	}
	c.checked.Store(&now)
	return nil
}

// make claims the bucket if it is unclaimed. If sessions of this cluster refer to snapshots, the bucket must contain one of them.
func (c *claim) make(ctx context.Context, known []Part) error {
	err := c.check(ctx)
	if !errors.Is(err, ErrUnclaimed) {
		return err
	}
	if err := c.recognize(ctx, known); err != nil {
		return err
	}
	cluster, err := c.identify(ctx)
	if err != nil {
		return err
	}
	options := &blob.WriterOptions{ContentType: "text/plain", IfNotExist: true}
	err = c.bucket.WriteAll(ctx, claimName, []byte(cluster), options)
	if err != nil && gcerrors.Code(err) != gcerrors.FailedPrecondition {
		return fmt.Errorf("unable to claim the bucket: %w", err)
	}
	return c.check(ctx)
}

// recognize returns an error if the bucket contains none of the known snapshots, unless none are known and the claim was
// never read.
func (c *claim) recognize(ctx context.Context, known []Part) error {
	if len(known) == 0 && c.checked.Load() == nil {
		return nil
	}
	known = known[:min(len(known), maxProbes)]
	for _, part := range known {
		found, err := c.bucket.Exists(ctx, blobName(part.Session, part.Key))
		if err != nil {
			return fmt.Errorf("unable to check whether the bucket has a snapshot: %w", err)
		}
		if found {
			return nil
		}
	}
	example := "" // none if this process has read a claim that is gone, and no snapshot
	if len(known) > 0 {
		example = fmt.Sprintf(", such as that of session %s", known[0].Session)
	}
	return fmt.Errorf("%w, and it has none of %d snapshots that sessions refer to%s: configure the bucket that has them or, if they are lost, write the UID of the namespace kube-system to the object %s",
		ErrUnclaimed, len(known), example, claimName)
}
