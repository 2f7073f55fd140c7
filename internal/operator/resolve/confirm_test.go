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
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

var deep = chain.WalkOptions{MaxDepth: 1000}

// brokenChain saves a chain of turns whose first parent is missing, and returns the ID of the last one.
func (f *fixture) brokenChain(turns int) (last string) {
	f.Helper()
	last = "missing"
	for i := range turns {
		id := fmt.Sprint("broken", i)
		f.save(id, last)
		last = id
	}
	return last
}

// TestDeepBrokenChain: while sessions change somewhere in the cluster, a broken chain costs one live read, however long it is.
func TestDeepBrokenChain(t *testing.T) {
	const queries = 16
	f := newFixture(t)
	last := f.brokenChain(50)
	f.options.ConfirmationsPerSecond = 1000
	f.follow()
	var running sync.WaitGroup
	for range queries {
		running.Go(func() {
			if got, want := f.answer(last, deep), "session.chain.not_found at missing"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	running.Wait()
	if reads := f.reads.Load(); reads != queries {
		t.Errorf("%d live reads for %d queries", reads, queries)
	}
}

// TestLostSnapshotIsReadAgain: an unreadable snapshot is read again, because the view does not show whether it has become readable.
func TestLostSnapshotIsReadAgain(t *testing.T) {
	f := newFixture(t)
	f.save("a", "", withLostSnapshot)
	f.save("b", "a")
	f.follow()
	record, _ := f.view.Get(f.namespace, "a")
	f.view.SetReadable(record, false)
	if got, want := f.answer("b", deep), "session.snapshot.unreadable at a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStoreIsNotConfigured: a turn that was read before, and whose bucket this replica lacks, is not reported, but cannot be resolved here. One
// that was never read is unreadable.
func TestStoreIsNotConfigured(t *testing.T) {
	f := newFixture(t)
	f.save("a", "", withLostSnapshot)
	f.freeze()
	record, _ := f.view.Get(f.namespace, "a")
	f.view.SetReadable(record, true)
	reader, reports := resolve.NewReader(f.client, nil, f.options), 0
	resolver := resolve.New(f.view, reader, func(*sessions.Record) { reports++ }, f.options)
	_, err := resolver.Resolve(t.Context(), f.namespace, "a", 0, resolve.Query{WalkOptions: deep})
	if !errors.Is(err, snapshot.ErrNotConfigured) || reports > 0 {
		t.Errorf("got %v and %d reports", err, reports)
	}
	if readable, err := reader.Readable(t.Context(), record); readable || err != nil {
		t.Errorf("verified: %t, %v", readable, err)
	}
}

// TestConfirmationsArePaced: if the view does not catch up, the rate of confirmations is limited for each namespace, and other
// namespaces are served while one waits.
func TestConfirmationsArePaced(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	greedyLast, modestLast := greedy.brokenChain(3), modest.brokenChain(3)
	waits := make(chan struct{}, 10)
	modest.options.ConfirmationsPerSecond = 1
	modest.client = modest.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if isVersion(r) {
			waits <- struct{}{}
		}
		return next.RoundTrip(r)
	})
	modest.freeze()
	modest.save("later", "") // so that the view is not current
	greedy.resolver = modest.resolver
	const want = "session.chain.not_found at missing"

	if got := greedy.answer(greedyLast, deep); got != want {
		t.Fatalf("the first query got %q, want %q", got, want)
	}
	modest.resolver.SetWaits(8, 0, 0)
	_, err := greedy.resolver.Resolve(t.Context(), greedy.namespace, greedyLast, 0, resolve.Query{WalkOptions: deep})
	throttled, ok := errors.AsType[*resolve.ThrottledError](err)
	if !ok || throttled.RetryAfter <= 0 || throttled.RetryAfter > 3*time.Second {
		t.Errorf("the second query got %v, want a throttled error", err)
	}
	<-waits

	modest.resolver.SetWaits(8, 0, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	canceled := make(chan error)
	go func() {
		_, err := greedy.resolver.Resolve(ctx, greedy.namespace, greedyLast, 0, resolve.Query{WalkOptions: deep})
		canceled <- err
	}()
	<-waits
	if got := modest.answer(modestLast, deep); got != want {
		t.Errorf("the other namespace got %q, want %q", got, want)
	}
	cancel()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("the third query: %v, want the context's error", err)
	}
}

// TestErrorsArePaced: the rate of errors that the view has shown is limited for each namespace, which still resolves turns that it
// has just saved.
func TestErrorsArePaced(t *testing.T) {
	f := newFixture(t)
	last := f.brokenChain(3)
	f.options.ConfirmationsPerSecond = 1
	f.follow()
	f.resolver.SetWaits(0, testutil.Patience, 0)
	if got, want := f.answer(last, deep), "session.chain.not_found at missing"; got != want {
		t.Fatalf("the first query got %q, want %q", got, want)
	}
	for range 2 {
		_, err := f.resolver.Resolve(t.Context(), f.namespace, last, 0, resolve.Query{WalkOptions: deep})
		if _, ok := errors.AsType[*resolve.ThrottledError](err); !ok {
			t.Errorf("got %v, want a throttled error", err)
		}
	}
	f.gate.close()
	f.save("missing", "")
	if got, want := f.answer(last, deep), "says missing, says broken0, says broken1, says broken2"; got != want {
		t.Errorf("after the missing turn was saved: got %q, want %q", got, want)
	}
}

// TestReadsOfErrorsArePaced: errors that the view cannot show are limited as well, before anything large is read: those of turns that
// it does not have, and of snapshots that it has as unreadable.
func TestReadsOfErrorsArePaced(t *testing.T) {
	const uuid = "67cc0000-0000-4000-8000-000000000001"
	large := func(s *v1alpha1.ResponseSession) { s.Spec.Snapshot.SizeBytes = 1 << 20 }
	tests := map[string]struct {
		name string
		save func(f *fixture)
		// wantBurst is how many whole objects may be read at once.
		wantBurst, confirmations, answerBytes int64
	}{
		"unknown name":              {"67cc", func(*fixture) {}, 3, 1, 1 << 20},
		"unknown object name":       {"resp.67cc", func(*fixture) {}, 3, 1, 1 << 20},
		"held in deletion":          {uuid, func(f *fixture) { f.delete(f.saveHeld(uuid, "")) }, 0, 1, 1 << 20},
		"unreadable snapshot":       {"lost", func(f *fixture) { f.save("lost", "", withLostSnapshot) }, 3, 1, 1 << 20},
		"large unreadable snapshot": {"lost", func(f *fixture) { f.save("lost", "", withLostSnapshot, large) }, 20, 1000, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.save(f)
			f.options.ConfirmationsPerSecond, f.options.AnswerBytesPerSecond = tc.confirmations, tc.answerBytes
			var reads atomic.Int64
			f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if strings.Contains(r.URL.Path, "/responsesessions/") && r.Header.Get("Accept") != kubeclient.MetadataOnly {
					reads.Add(1)
				}
				return next.RoundTrip(r)
			})
			f.freeze()
			f.resolver.SetWaits(8, 0, 0)
			if record, found := f.view.Get(f.namespace, tc.name); found && record.InChain() {
				f.view.SetReadable(record, false)
			}
			start, throttled := time.Now(), false
			for range 20 {
				_, err := f.resolver.Resolve(t.Context(), f.namespace, tc.name, 0, resolve.Query{WalkOptions: deep})
				if _, ok := errors.AsType[*resolve.ThrottledError](err); ok {
					throttled = true
				} else if _, ok := errors.AsType[*chain.Error](err); !ok {
					t.Errorf("got %v, want an error of the chain", err)
				}
			}
			if !throttled {
				t.Error("no query was throttled")
			}
			want := tc.wantBurst
			if want > 0 {
				want += int64(time.Since(start).Seconds())
			}
			if got := reads.Load(); got > want {
				t.Errorf("%d whole objects were read, want at most %d", got, want)
			}
		})
	}
}

// TestErrorsAreCurrent saves, changes and deletes turns at random while the view is behind, and compares each error with a walk over
// the stored turns.
func TestErrorsAreCurrent(t *testing.T) {
	f := newFixture(t)
	f.options.ConfirmationsPerSecond = 1_000_000
	f.follow()
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	id := func() string { return fmt.Sprint("t", random.IntN(6)) }
	stored := map[string]*v1alpha1.ResponseSession{} // the reference
	for range 60 {
		f.gate.close()
		for range random.IntN(4) {
			f.change(random, id, stored)
		}
		last := id()
		options := chain.WalkOptions{MaxDepth: 1 + random.IntN(6)}
		got, want := f.answer(last, options), reference(t.Context(), stored, last, options)
		isError := strings.HasPrefix(got, "session.")
		if isError && got != want || !isError && !strings.HasPrefix(got, "says ") { // a history may be older
			t.Fatalf("%s with %d turns: got %q, want %q", last, options.MaxDepth, got, want)
		}
	}
}

// change saves, overwrites or deletes a turn.
func (f *fixture) change(random *rand.Rand, id func() string, stored map[string]*v1alpha1.ResponseSession) {
	f.Helper()
	changed := id()
	switch session := stored[changed]; {
	case session == nil:
		previous := id()
		if previous == changed {
			previous = ""
		}
		stored[changed] = f.save(changed, previous)
	case random.IntN(2) == 0:
		f.delete(session)
		delete(stored, changed)
	default:
		f.update(session, withStatus([]string{"completed", "failed"}[random.IntN(2)]))
	}
}

// reference returns the expected result of answer.
func reference(ctx context.Context, stored map[string]*v1alpha1.ResponseSession, id string, options chain.WalkOptions) string {
	turns, err := chain.Walk(ctx, id, func(_ context.Context, id string) (chain.Turn, bool, error) {
		session := stored[id]
		if session == nil {
			return chain.Turn{}, false, nil
		}
		return chain.Turn{ID: id, Previous: session.Spec.PreviousResponseID, Status: session.Spec.ResponseStatus}, true, nil
	}, options)
	if chainErr, ok := errors.AsType[*chain.Error](err); ok {
		return fmt.Sprintf("%s at %s", chainErr.Code(), chainErr.ResponseID)
	}
	texts := make([]string, len(turns))
	for i, turn := range turns {
		texts[i] = "says " + turn.ID
	}
	return strings.Join(texts, ", ")
}

// TestTurnArrivesWhileItIsConfirmed resolves turns as soon as they are saved. The view receives some of them in the middle of a
// query.
func TestTurnArrivesWhileItIsConfirmed(t *testing.T) {
	f := newFixture(t)
	stop := f.start()
	t.Cleanup(stop)
	const clients, turns = 16, 100
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for turn := range turns {
				id := fmt.Sprintf("resp_%d_%d", client, turn)
				f.save(id, "")
				history, err := f.resolver.Resolve(t.Context(), f.namespace, id, 0, resolve.Query{WalkOptions: deep})
				if err != nil {
					t.Errorf("resolve %s: %v", id, err)
					continue
				}
				history.Release()
			}
		})
	}
	group.Wait()
}
