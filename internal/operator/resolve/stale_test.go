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
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/operator/resolve"
)

// staleTurns is the length of the chains in these tests, and lastBroken their last turn. A namespace may have one of them read in a
// minute.
const (
	staleTurns = 60
	lastBroken = "broken59"
)

// freezeStale creates the resolver with a view that is stale, and changes sessions before and after the view has listed them. Queries
// that would have to wait are refused.
func (f *fixture) freezeStale(before, after func(f *fixture)) {
	f.Helper()
	f.silence = -1
	f.options.ConfirmationsPerSecond = 1
	before(f)
	f.freeze()
	f.resolver.SetWaits(8, 0, 0)
	after(f)
}

func nothing(*fixture) {}

func broken(f *fixture) { f.brokenChain(staleTurns) }

func intact(f *fixture) {
	f.save("missing", "")
	f.brokenChain(staleTurns)
}

// isThrottled resolves lastBroken, and reports whether its namespace has to wait.
func (f *fixture) isThrottled() bool {
	f.Helper()
	_, err := f.resolver.Resolve(f.Context(), f.namespace, lastBroken, 0, resolve.Query{WalkOptions: deep})
	_, throttled := errors.AsType[*resolve.ThrottledError](err)
	return throttled
}

// TestStaleErrorsArePaced: while the view is stale, each turn of a broken chain is read, and the namespace pays for these reads,
// whatever the view shows. Other namespaces do not wait.
func TestStaleErrorsArePaced(t *testing.T) {
	tests := map[string]struct{ before, after func(f *fixture) }{
		"known to the view":   {before: broken, after: nothing},
		"unknown to the view": {before: nothing, after: broken},
		"intact in the view": {before: intact, after: func(f *fixture) {
			f.delete(&v1alpha1.ResponseSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "missing"}})
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f, modest := newFixture(t), newFixture(t)
			modest.save("t1", "missing")
			var reads atomic.Int64
			f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				reads.Add(1)
				return next.RoundTrip(r)
			})
			f.freezeStale(tc.before, tc.after)
			if got, want := f.answer(lastBroken, deep), "session.chain.not_found at missing"; got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			first := reads.Load()
			if first < staleTurns {
				t.Errorf("%d live reads, want one for each of %d turns", first, staleTurns)
			}
			if !f.isThrottled() {
				t.Error("the second query was not throttled")
			}
			if again := reads.Load() - first; again > 0 {
				t.Errorf("the second query made %d live reads", again)
			}
			modest.resolver = f.resolver
			if got, want := modest.answer("t1", deep), "session.chain.not_found at missing"; got != want {
				t.Errorf("the other namespace got %q, want %q", got, want)
			}
		})
	}
}

// TestStaleErrorsArePaidInAdvance: a query of a chain that seems to be broken pays even if it is canceled before the error is known.
func TestStaleErrorsArePaidInAdvance(t *testing.T) {
	f := newFixture(t)
	const unanswered = 8 // as many as one query sends at once
	f.options.LiveReads = 4 * unanswered
	var reads atomic.Int64
	started := make(chan struct{}, unanswered)
	f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.Path, "/responsesessions/") || reads.Add(1) > unanswered {
			return next.RoundTrip(r)
		}
		started <- struct{}{}
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	f.freezeStale(broken, nothing)
	ctx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error)
	go func() {
		_, err := f.resolver.Resolve(ctx, f.namespace, lastBroken, 0, resolve.Query{WalkOptions: deep})
		canceled <- err
	}()
	for range unanswered {
		<-started
	}
	if !f.isThrottled() {
		t.Error("a query at the same time was not throttled")
	}
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if !f.isThrottled() {
		t.Error("a query after a canceled one was not throttled")
	}
}

// TestStaleHistoriesAreFree: while the view is stale, each turn of a history is read too, but the namespace does not pay for that,
// whatever the view shows.
func TestStaleHistoriesAreFree(t *testing.T) {
	tests := map[string]struct{ before, after func(f *fixture) }{
		"known to the view":   {before: intact, after: nothing},
		"unknown to the view": {before: nothing, after: intact},
		"broken in the view":  {before: broken, after: func(f *fixture) { f.save("missing", "") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.freezeStale(tc.before, tc.after)
			for range 3 {
				if got := f.answer(lastBroken, deep); strings.Count(got, "says") != staleTurns+1 {
					t.Fatalf("got %q, want a history of %d turns", got, staleTurns+1)
				}
			}
			if got, want := f.answer("Unknown", deep), "session.chain.not_found at Unknown"; got != want {
				t.Errorf("then got %q, want %q", got, want)
			}
		})
	}
}
