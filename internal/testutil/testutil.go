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

// Package testutil has helpers for the tests of this repository. It imports only the standard library, go-cmp and pure
// packages, so that the tests of pure packages can use it. Package testturn makes turns for the tests of stores, and package
// testsession makes Kubernetes objects.
package testutil

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	// Patience is how long anything that happens eventually may take on a busy machine.
	Patience = 3 * time.Minute

	// The minimum and maximum time between two checks. In between, it is an eighth of the time that has passed.
	minPollInterval, maxPollInterval = 20 * time.Millisecond, time.Second
)

// Root returns the root directory of this repository: the first directory that contains hack/build.sh, from the working
// directory upwards. Programs built with -trimpath do not know where their source is.
func Root() string {
	start, err := os.Getwd()
	for dir := start; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "build.sh")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	panic(fmt.Sprintf("testutil: the working directory %q is not in the repository of Catena", start))
}

// Eventually is EventuallyWithin Patience.
func Eventually(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	EventuallyWithin(t, Patience, check)
}

// EventuallyWithin waits until check returns nil. If that takes longer than patience, the test fails with the last error;
// the context that check gets ends at the same time. It can be called in a cleanup, when the test's context has ended.
func EventuallyWithin(t testing.TB, patience time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	start := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(min(max(minPollInterval, time.Since(start)/8), maxPollInterval)): // checks compete for the CPU with the code that they wait for
		case <-ctx.Done():
			t.Fatalf("timed out: %v; last error: %v", ctx.Err(), err)
		}
	}
}
