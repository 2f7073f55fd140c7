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
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
)

// find returns the result of a query of a caller that has the items already.
func (f *fixture) find(version uint64, name string) *resolve.Result {
	f.Helper()
	query := resolve.Query{WalkOptions: deep, Unchanged: func(*resolve.Result) bool { return true }}
	result, err := f.resolver.Resolve(f.Context(), f.namespace, name, version, query)
	if err != nil {
		f.Fatal(err)
	}
	result.Release()
	return result
}

// TestUnchanged: if the caller has the items already, no bodies are read and no bytes are held. Errors are errors.
func TestUnchanged(t *testing.T) {
	f := newFixture(t)
	f.save("t1", "")
	f.save("t2", "t1")
	f.save("broken", "missing")
	f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/t1") || strings.HasSuffix(r.URL.Path, "/t2") {
			t.Errorf("%s was read", r.URL)
		}
		return next.RoundTrip(r)
	})
	f.freeze()
	result := f.find(0, "t2")
	if !result.Unchanged || result.Turns != nil || result.ResponseID != "t2" || result.Name != "t2" || result.UID == "" || result.Revision == (resolve.Revision{}) {
		t.Errorf("got %+v", result)
	}
	query := resolve.Query{WalkOptions: deep, Unchanged: func(r *resolve.Result) bool {
		t.Errorf("a broken chain was compared: %+v", r)
		return true
	}}
	_, err := f.resolver.Resolve(t.Context(), f.namespace, "broken", 0, query)
	if err, ok := errors.AsType[*chain.Error](err); !ok || err.Rule != chain.ParentNotFound {
		t.Errorf("got %v, want an error for a missing turn", err)
	}
}

// TestRevision: an overwrite of any turn changes the revision, and so does a new turn in place of a deleted one. A status does not. It is the
// same with and without the items, and for every replica.
func TestRevision(t *testing.T) {
	f := newFixture(t)
	sessions := []*v1alpha1.ResponseSession{f.save("t0", ""), f.save("t1", "t0"), f.save("t2", "t1")}
	other := &fixture{T: t, namespace: f.namespace, silence: f.silence, options: f.options, client: f.client}
	for _, replica := range []*fixture{f, other} {
		t.Cleanup(replica.start())
		replica.resolver.SetWaits(8, time.Minute, time.Minute)
	}
	seen := map[resolve.Revision]string{}
	check := func(version uint64, after string, changed bool) {
		t.Helper()
		revision := f.find(version, "t2").Revision
		if before, found := seen[revision]; found == changed {
			t.Errorf("the revision after %s: seen before: %t (%s)", after, found, before)
		}
		seen[revision] = after
		if got := other.find(version, "t2").Revision; got != revision {
			t.Errorf("the revision after %s differs between replicas", after)
		}
		result, err := f.resolver.Resolve(t.Context(), f.namespace, "t2", version, resolve.Query{WalkOptions: deep})
		if err != nil {
			t.Fatal(err)
		}
		defer result.Release()
		if result.Revision != revision || result.Unchanged || len(result.Turns) != 3 {
			t.Errorf("the revision after %s differs with the items", after)
		}
	}
	check(0, "nothing", true)
	for i, session := range sessions {
		version := f.update(session, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(fmt.Sprint("says more as t", i)) })
		check(version, fmt.Sprint("an overwrite of t", i), true)
		session.Status.Depth = int32(i + 1)
		if err := env.Client.Status().Update(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		version = f.update(session, func(s *v1alpha1.ResponseSession) { s.Annotations = map[string]string{"example.com/a": "b"} })
		check(version, "a status and an annotation", false)
	}
	f.delete(sessions[1])
	again := f.save("t1", "t0")
	check(version(t, again), "a deletion", true)
}

// TestUnchangedIsCharged: clients that have the items already cannot make the operator walk along chains without limit.
func TestUnchangedIsCharged(t *testing.T) {
	f := newFixture(t)
	f.save("t1", "")
	f.save("t2", "t1")
	f.options.AnswerBytesPerSecond = 1
	f.freeze()
	f.resolver.SetWaits(8, 0, 0)
	f.find(0, "t2")
	_, err := f.resolver.Resolve(t.Context(), f.namespace, "t2", 0, resolve.Query{WalkOptions: deep, Unchanged: func(*resolve.Result) bool { return true }})
	if throttled, ok := errors.AsType[*resolve.ThrottledError](err); !ok || throttled.RetryAfter < time.Minute {
		t.Errorf("got %v, want that the namespace waits for two minutes", err)
	}
}

// TestNoWait: a query that must not wait is rejected when its namespace exceeds a rate, however long others may wait.
func TestNoWait(t *testing.T) {
	f := newFixture(t)
	f.save("t1", "")
	f.options.AnswerBytesPerSecond = 1
	f.freeze()
	f.resolver.SetWaits(8, 0, time.Hour)
	f.find(0, "t1")
	_, err := f.resolver.Resolve(t.Context(), f.namespace, "t1", 0, resolve.Query{WalkOptions: deep, NoWait: true})
	if _, ok := errors.AsType[*resolve.ThrottledError](err); !ok {
		t.Errorf("got %v, want a ThrottledError", err)
	}
}

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

func version(t *testing.T, object client.Object) (version uint64) {
	t.Helper()
	if _, err := fmt.Sscan(object.GetResourceVersion(), &version); err != nil {
		t.Fatal(err)
	}
	return version
}
