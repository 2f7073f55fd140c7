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
	"fmt"
	"os"
	"sync/atomic"

	"gocloud.dev/blob"
)

// maxFileRequests is the maximum number of concurrent requests to the file system of a bucket. Each may occupy a thread.
const maxFileRequests = 64

// errHung indicates that a request was not sent because the file system has not responded to maxFileRequests others.
// Callers treat it like an exceeded deadline.
var errHung = fmt.Errorf("the file system of the bucket has not responded to %d earlier requests: %w", maxFileRequests, context.DeadlineExceeded)

// fileRequests gives requests to a file system a deadline. They ignore contexts, and a request to a hung NFS server never
// returns. So each has a goroutine of its own, which is abandoned at the deadline and ends when the file system responds.
type fileRequests struct {
	slots     chan struct{}
	abandoned atomic.Int32
}

// newFileRequests returns nil if the bucket is not in a file system.
func newFileRequests(bucket *blob.Bucket) *fileRequests {
	var directory os.FileInfo
	if !bucket.As(&directory) {
		return nil
	}
	return newRequests()
}

func newRequests() *fileRequests { return &fileRequests{slots: make(chan struct{}, maxFileRequests)} }

// within runs a request and returns its result or, if ctx is done first, the context's error. In that case the request
// continues, so it must not share data with the caller.
func within[T any](ctx context.Context, files *fileRequests, request func() (T, error)) (T, error) {
	if files == nil {
		return request()
	}
	var none T
	if err := files.acquire(ctx); err != nil {
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	var left atomic.Bool // by the caller or by the request
	go func() {
		value, err := request()
		answered <- answer{value, err}
		if left.Swap(true) {
			files.abandoned.Add(-1)
		}
		<-files.slots
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		files.abandoned.Add(1)
		if left.Swap(true) {
			files.abandoned.Add(-1)
		}
		return none, fmt.Errorf("the bucket has not responded: %w", ctx.Err())
	}
}

// acquire waits for a slot, unless all of them are abandoned.
func (f *fileRequests) acquire(ctx context.Context) error {
	if f.abandoned.Load() >= maxFileRequests {
		return errHung
	}
	select {
	case f.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the file system of the bucket is too slow: %w", ctx.Err())
	}
}
