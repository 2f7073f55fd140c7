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

package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
)

// pinged is a driver that can be used in one namespace.
type pinged struct {
	fake
	usable string
	err    error // in other namespaces; if nil, it does not respond
}

func (p *pinged) Ping(ctx context.Context, namespace string) error {
	p.calls++
	if namespace == p.usable {
		return nil
	}
	if p.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return p.err
}

func TestPing(t *testing.T) {
	broken := errors.New("the disk is broken")
	for name, tc := range map[string]struct {
		namespace string
		err       error
		want      error
		wantText  string
		retryable bool
	}{
		"usable":      {namespace: "usable"},
		"no code":     {"other", broken, broken, `unable to use the store of namespace "other": the disk is broken`, false},
		"only a code": {"other", &store.Error{Code: store.CodeUnreachable, Retryable: true, Err: broken}, store.ErrUnreachable, `unable to use the store of namespace "other": the disk is broken`, true},
		"message":     {"other", &store.Error{Code: store.CodeUnsupported, Message: "too old"}, store.ErrUnsupported, "too old", false},
		"no response": {"other", nil, store.ErrUnreachable, "the store did not respond within 5s: context deadline exceeded", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pinged{usable: "usable", err: tc.err}
				err := store.New(p, driver.Options{Namespace: tc.namespace}).Ping(t.Context())
				if !errors.Is(err, tc.want) || store.IsRetryable(err) != tc.retryable || err != nil && err.Error() != tc.wantText {
					t.Errorf("got %v, want %q, retryable: %t", err, tc.wantText, tc.retryable)
				}
				if p.calls != 1 {
					t.Errorf("%d attempts, want 1", p.calls)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Error("the error is that of the caller's deadline")
				}
			})
		})
	}
}

// TestPingDeadline: a shorter deadline of the caller applies, and is returned as such.
func TestPingDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := store.New(&pinged{usable: "usable"}, driver.Options{}).Ping(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("got %v after %s, want the deadline of a second", err, time.Since(start))
		}
	})
}

// TestPingWithoutPinger: a driver that is always usable need not implement Ping.
func TestPingWithoutPinger(t *testing.T) {
	s := memory.New(memory.Options{})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("a closed store returned no error")
	}
}
