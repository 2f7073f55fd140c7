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

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/catena-dev/catena/store/driver"
)

// pingTimeout is the deadline of Ping.
const pingTimeout = 5 * time.Second

// Ping returns an error if the store cannot be used now. It makes one attempt and takes at most 5 seconds. If IsRetryable is true for the
// error, a later attempt may succeed: a server did not respond, is starting or overloaded, or does not serve the API yet. Other errors do
// not go away by themselves: missing rights, or a file that was replaced, or that a newer program has migrated (ErrUnsupported).
//
// In a cluster, it reads a session that cannot exist, and resolves with a MaxDepth of 0: two small requests in the store's namespace, with
// its credentials, which have to fail with the right error. A file is read, and must be the one that was opened. A store in memory can
// always be used.
//
// Success does not prove that a save succeeds: neither the rights to write nor quotas are tested (see CheckQuota), nor whether the
// namespace exists, the disk has space, or the bucket can be reached (see Check). Nor does it prove that any stored turn can be read.
//
// Use it in tools, and for a message when a program starts. If readiness probes call it, all replicas that share a store become unready
// when that is down, and clients get refused connections instead of an error that explains the cause.
func (s *Store) Ping(ctx context.Context) error {
	_, err := observe(s, "ping", func() (struct{}, error) { return struct{}{}, s.ping(ctx) })
	return complete(err, fmt.Sprintf("unable to use the store of namespace %q", s.namespace), "")
}

func (s *Store) ping(ctx context.Context) error {
	pinger, ok := s.driver.(driver.Pinger)
	if !ok {
		return ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := pinger.Ping(limited, s.namespace)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		// The error is not wrapped, because the deadline is not the caller's.
		return &Error{Code: CodeUnreachable, Retryable: true, Message: fmt.Sprintf("the store did not respond within %s: %v", pingTimeout, err)}
	}
	return err
}
