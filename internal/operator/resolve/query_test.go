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

package resolve_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/operator/resolve"
)

// TestDigests: the digests of a result are computed, and charged once: while they are kept with the cached items, they cost nothing.
func TestDigests(t *testing.T) {
	f := newFixture(t)
	last := f.largeChain(3, 10_000)
	f.options.AnswerBytesPerSecond = 1_000
	f.freeze()
	// cost returns the time for which a query has the namespace wait.
	cost := func(digests bool) time.Duration {
		t.Helper()
		result, err := f.resolver.Resolve(t.Context(), f.namespace, last, 0, resolve.Query{WalkOptions: deep, Digests: digests})
		if err != nil {
			t.Fatal(err)
		}
		defer result.Release()
		for _, turn := range result.Turns {
			if digests && !turn.Items.HasDigest() {
				t.Errorf("the digest of %s was not computed", turn.ResponseID)
			}
		}
		return f.resolver.ForgiveAnswers(f.namespace)
	}
	read, cached, hashed, again := cost(false), cost(false), cost(true), cost(true)
	if read < 5*cached {
		t.Errorf("reading costs %s, and the cached history %s", read, cached)
	}
	if hashed < cached+25*time.Second || again > cached+time.Second {
		t.Errorf("the cached history costs %s, %s with digests, and %s with digests again", cached, hashed, again)
	}
}

// TestDigestsAreShared: digests are computed with the processors of the namespace's share, which leaves some to others, and no longer than the
// query lasts.
func TestDigestsAreShared(t *testing.T) {
	f := newFixture(t)
	last := f.largeChain(2, 1000)
	f.freeze()
	result, err := f.resolver.Resolve(t.Context(), f.namespace, last, 0, resolve.Query{WalkOptions: deep})
	if err != nil {
		t.Fatal(err)
	}
	defer result.Release()
	release := f.resolver.HoldWalks(f.namespace)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.resolver.Digest(short, f.namespace, result.Turns); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a processor: got %v, want that the query waits", err)
	}
	if err := f.resolver.Digest(t.Context(), "another", result.Turns[:1]); err != nil || !result.Turns[0].Items.HasDigest() {
		t.Errorf("another namespace: %v", err)
	}
	release()
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	if err := f.resolver.Digest(canceled, f.namespace, result.Turns); !errors.Is(err, context.Canceled) || result.Turns[1].Items.HasDigest() {
		t.Errorf("a canceled query: got %v, and computed the digest: %t", err, result.Turns[1].Items.HasDigest())
	}
	if err := f.resolver.Digest(t.Context(), f.namespace, result.Turns); err != nil || !result.Turns[1].Items.HasDigest() {
		t.Errorf("got %v", err)
	}
}
