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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/catena-dev/catena/store"
)

// newBackoff returns how long a call waits before each of its further attempts: 6 to 9 s in all, in which an API server
// restarts.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6}
}

// retry calls a function again as long as it fails because a server could not be asked or did not answer, or because a
// turn is about to be deleted. What has arrived nevertheless is recognised by the next attempt. Where a server says when to
// come again, client-go does so by itself, up to ten times, and where S3 answers, its client does, three times: that is
// enough.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for backoff := newBackoff(); ; {
		result, err := call()
		again := store.IsRetryable(err) && (errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrConflict))
		if _, told := apierrors.SuggestsClientDelay(err); !again || told || s3Status(err) != 0 || backoff.Steps == 0 {
			return result, err
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return result, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
