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

package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The delays between attempts: 6 to 9 s in total, enough for a restart of an API server.
const (
	maxRetries = 6
	firstWait  = 100 * time.Millisecond
)

// again marks an error. See Again.
type again struct{ error }

func (e again) Unwrap() error { return e.error }

// Again marks the error of a call that may succeed if it is repeated after a moment, and that has not been repeated below the
// driver. The mark must be the outermost wrapper of the error. If an attempt may have succeeded despite its error, the next
// one must detect that.
func Again(err error) error {
	if err == nil {
		return nil
	}
	return again{err}
}

type repeatedKey struct{}

// NoteRepeats returns a context, and what is set once NoteRepeat is called with it, as Retry does.
func NoteRepeats(ctx context.Context) (context.Context, *atomic.Bool) {
	repeated := &atomic.Bool{}
	return context.WithValue(ctx, repeatedKey{}, repeated), repeated
}

// NoteRepeat is called before a save stores a turn that it may have stored before.
func NoteRepeat(ctx context.Context) {
	if repeated, ok := ctx.Value(repeatedKey{}).(*atomic.Bool); ok {
		repeated.Store(true)
	}
}

// Retry repeats a call as long as its error is marked with Again, for a few seconds at most, and returns the last result with
// the error unmarked.
//
// store.Store does this with every call of a driver except those of QuotaChecker, Checker and Pinger. A driver whose attempts share state calls
// Retry itself.
func Retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	pause := firstWait
	for retries := 0; ; retries++ {
		result, err := call()
		marked, ok := errors.AsType[again](err)
		if !ok {
			return result, err
		}
		if err = marked.error; retries == maxRetries {
			return result, err
		}
		select {
		case <-time.After(pause + rand.N(pause/2)):
			pause *= 2
			NoteRepeat(ctx)
		case <-ctx.Done():
			return result, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
