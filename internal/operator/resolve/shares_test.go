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
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promtestutil "github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// clientThrough returns a client whose requests the function sends.
func (f *fixture) clientThrough(send func(next http.RoundTripper, r *http.Request) (*http.Response, error)) rest.Interface {
	f.Helper()
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) { return send(next, r) })
	})
	client, err := kubeclient.New(config)
	if err != nil {
		f.Fatal(err)
	}
	return client
}

// TestLiveReadsAreShared: queries of one namespace whose live reads are never answered do not delay queries of another.
func TestLiveReadsAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	started := make(chan struct{}, 100)
	client := modest.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+greedy.namespace+"/") {
			started <- struct{}{}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		return next.RoundTrip(r)
	})
	modest.save("t1", "")
	modest.freeze()
	options := resolve.DefaultOptions()
	options.LiveReads = 4
	reader := resolve.NewReader(client, chunks(client), options)
	resolver := resolve.New(modest.view, reader, func(*sessions.Record) {}, options)
	resolver.SetWaits(8, 0, time.Hour)

	ctx, cancel := context.WithCancel(t.Context())
	var queries sync.WaitGroup
	for i := range 50 {
		queries.Go(func() {
			_, err := resolver.Resolve(ctx, greedy.namespace, fmt.Sprintf("Unknown_%d", i), 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
		})
	}
	for range options.LiveReads / 2 { // its share
		<-started
	}
	for range 20 {
		if _, err := resolver.Resolve(t.Context(), modest.namespace, "t1", 1<<62, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}}); err != nil {
			t.Error(err)
		}
	}
	if len(started) > 0 {
		t.Errorf("the namespace had more than its share of %d live reads", options.LiveReads)
	}
	cancel()
	queries.Wait()
}

// TestInFlightBytesAreShared: a namespace that holds as many histories as it can leaves room for the largest history of another.
func TestInFlightBytesAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	const size = 1000
	long := func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(strings.Repeat("x", size)) }
	for i := range 10 {
		greedy.save(fmt.Sprint("t", i), "", long)
	}
	modest.save("t1", "", func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(strings.Repeat("x", 4*size)) })
	modest.freeze()
	options := resolve.DefaultOptions()
	options.HistoryBytes, options.InFlightBytes = 5*size, 15*size
	resolver := resolve.New(modest.view, modest.reader, func(*sessions.Record) {}, options)
	held := 0
	for ; ; held++ {
		result, err := resolver.Resolve(t.Context(), greedy.namespace, fmt.Sprint("t", held), 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
		if errors.Is(err, resolve.ErrBusy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer result.Release()
	}
	if held < 3 || held > 5 {
		t.Errorf("the namespace holds %d histories of about %d bytes, want up to a third of %d", held, size, options.InFlightBytes)
	}
	result, err := resolver.Resolve(t.Context(), modest.namespace, "t1", 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
	if err != nil {
		t.Fatal(err)
	}
	result.Release()
}

// TestRequestsAreShared: a namespace that has as many queries in progress as it can leaves room for queries of others. A query
// ends when its result is released, or with its error.
func TestRequestsAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	greedy.save("t1", "")
	modest.save("t1", "")
	modest.options.InFlightRequests = 6
	modest.freeze()
	query := func(f *fixture, id string) (*resolve.Result, error) {
		return modest.resolver.Resolve(t.Context(), f.namespace, id, 0, resolve.Query{WalkOptions: deep})
	}
	for range 10 {
		if _, err := query(greedy, "missing"); err == nil || errors.Is(err, resolve.ErrBusy) {
			t.Errorf("got %v, want an error for a missing turn", err)
		}
	}
	var held []*resolve.Result
	hold := func(want int) {
		t.Helper()
		for len(held) < want {
			result, err := query(greedy, "t1")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, result)
		}
		if _, err := query(greedy, "t1"); !errors.Is(err, resolve.ErrBusy) {
			t.Errorf("query %d of the namespace: %v, want ErrBusy", want+1, err)
		}
	}
	hold(3)
	held[0].Release()
	held[0].Release()
	hold(4)
	result, err := query(modest, "t1")
	if err != nil {
		t.Fatal(err)
	}
	held = append(held, result)
	for _, result := range held {
		result.Release()
	}
}

// TestWalksAreShared: a namespace that walks along as many chains as it can leaves processors for walks in others. Its own queries
// wait.
func TestWalksAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	greedy.save("t1", "missing")
	modest.save("t1", "missing")
	modest.freeze()
	query := func(ctx context.Context, f *fixture) error {
		_, err := modest.resolver.Resolve(ctx, f.namespace, "t1", 0, resolve.Query{WalkOptions: deep})
		return err
	}
	wantBroken := func(f *fixture) {
		t.Helper()
		if err, ok := errors.AsType[*chain.Error](query(t.Context(), f)); !ok || err.Rule != chain.ParentNotFound {
			t.Errorf("got %v, want an error for a missing turn", err)
		}
	}
	release := modest.resolver.HoldWalks(greedy.namespace)
	wantBroken(modest)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := query(ctx, greedy); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a query that waits", err)
	}
	release()
	wantBroken(greedy)
}

// TestProcessorsAreNotHeld: what waits until a change of its namespace has been applied holds no processor.
func TestProcessorsAreNotHeld(t *testing.T) {
	busy, other := newFixture(t), newFixture(t)
	busy.save("t1", "")
	other.save("t1", "")
	other.freeze()
	query := func(ctx context.Context) error {
		result, err := other.resolver.Resolve(ctx, other.namespace, "t1", 0, resolve.Query{WalkOptions: deep})
		if err == nil {
			result.Release()
		}
		return err
	}
	defer other.resolver.HoldAllWalksButOne()()
	var running sync.WaitGroup
	defer running.Wait()
	changing, proceed := make(chan struct{}), make(chan struct{})
	running.Go(func() {
		other.view.Observe(busy.namespace, v1alpha1.ObjectName("t1"), func(known *sessions.Record) *sessions.Record {
			close(changing)
			<-proceed
			return known
		})
	})
	<-changing
	var computing atomic.Bool
	running.Go(func() {
		err := other.resolver.Process(context.WithoutCancel(t.Context()), busy.namespace, func() {
			computing.Store(true)
			other.view.IsContinued(busy.namespace, "t1")
		})
		if err != nil {
			t.Errorf("the namespace that was busy: %v", err)
		}
	})
	defer close(proceed)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	defer cancel()
	for range 100 {
		if err := query(ctx); err != nil {
			t.Fatalf("the other namespace: %v", err)
		}
	}
	if computing.Load() {
		t.Error("the namespace that is busy has a processor")
	}
}

// TestAnswersArePaced: the rate of bytes is limited for each namespace. Its queries wait, or are refused if the wait would be long,
// and queries of other namespaces are not affected.
func TestAnswersArePaced(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	large := func(s *v1alpha1.ResponseSession) {
		s.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 1000)}
	}
	greedy.save("t1", "", large)
	modest.save("t1", "", large)
	modest.options.AnswerBytesPerSecond = 10
	modest.freeze()
	greedy.resolver = modest.resolver
	throttled := func() time.Duration {
		t.Helper()
		greedy.resolver.SetWaits(8, 0, 0)
		defer greedy.resolver.SetWaits(8, 0, time.Hour)
		_, err := greedy.resolver.Resolve(t.Context(), greedy.namespace, "t1", 0, resolve.Query{WalkOptions: deep})
		throttled, ok := errors.AsType[*resolve.ThrottledError](err)
		if !ok {
			t.Fatalf("got %v, want a throttled error", err)
		}
		return throttled.RetryAfter
	}
	want := greedy.answer("t1", deep)
	// It was read live, so that each of more than 1,000 bytes counts six times.
	first := throttled()
	if first < time.Minute {
		t.Errorf("the namespace must wait for %s", first)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := greedy.resolver.Resolve(canceled, greedy.namespace, "t1", 0, resolve.Query{WalkOptions: deep}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if got := modest.answer("t1", deep); got != want {
		t.Errorf("the other namespace got %q, want %q", got, want)
	}
	if later := throttled(); later > first {
		t.Errorf("a refused or a canceled query was counted: the delay rose from %s to %s", first, later)
	}
}

// TestFalseSizesCount: whatever size a reference to a snapshot says, its turn counts for at least nothing, and at most for the largest history.
func TestFalseSizesCount(t *testing.T) {
	f := newFixture(t)
	f.freeze()
	limit := f.options.HistoryBytes
	for size, want := range map[int64]int64{-1: 0, 1: 7, limit: limit, 3e18: limit, math.MaxInt64: limit, math.MinInt64: 0} {
		record := &sessions.Record{Extra: &sessions.Extra{Snapshot: &v1alpha1.SnapshotReference{SizeBytes: size}}, SnapshotBytes: size}
		if got := f.resolver.Bytes(record); got != want {
			t.Errorf("%d bytes count for %d, want %d", size, got, want)
		}
	}
}

// TestAnswersWait: a query that exceeds its namespace's rate is answered after some time.
func TestAnswersWait(t *testing.T) {
	f := newFixture(t)
	f.save("t1", "")
	f.options.AnswerBytesPerSecond = 10_000
	f.freeze()
	want := f.answer("t1", deep)
	for range 3 {
		if got := f.answer("t1", deep); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestFewRequestsWait: further queries of a namespace that exceeds its rate are refused at once, and queries of others may wait.
func TestFewRequestsWait(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	greedy.save("t1", "")
	modest.save("t1", "")
	modest.options.AnswerBytesPerSecond, modest.options.WaitingRequests = 1, 2
	modest.freeze()
	greedy.resolver = modest.resolver
	greedy.resolver.SetWaits(8, 0, 1000*time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	for i, f := range []*fixture{greedy, modest} {
		f.answer("t1", deep) // more than its rate
		for range 2 {
			group.Go(func() error {
				if _, err := f.resolver.Resolve(ctx, f.namespace, "t1", 0, resolve.Query{WalkOptions: deep}); !errors.Is(err, context.Canceled) {
					return fmt.Errorf("a query that waited was not canceled: %w", err)
				}
				return nil
			})
		}
		want := int64(2 * (i + 1))
		testutil.Eventually(t, func(context.Context) error {
			if waiting := f.resolver.Waiting(); waiting != want {
				return fmt.Errorf("%d queries wait, want %d", waiting, want)
			}
			return nil
		})
		_, err := f.resolver.Resolve(t.Context(), f.namespace, "t1", 0, resolve.Query{WalkOptions: deep})
		if throttled, ok := errors.AsType[*resolve.ThrottledError](err); !ok || throttled.RetryAfter <= 0 {
			t.Errorf("got %v, want a throttled error with a delay", err)
		}
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if waiting := greedy.resolver.Waiting(); waiting != 0 {
		t.Errorf("%d queries still wait", waiting)
	}
}

// TestHistoryIsHeldOnce: queries of one history that is not cached share one read of each of its turns, even if the query that
// reads is canceled, and it counts once, until the last of them is released.
func TestHistoryIsHeldOnce(t *testing.T) {
	f := newFixture(t)
	const turns, size, queries = 3, 1000, 20
	for i := range turns {
		f.save(fmt.Sprint("t", i), strings.TrimSuffix(fmt.Sprint("t", i-1), "t-1"), func(s *v1alpha1.ResponseSession) {
			s.Spec.Response = output(strings.Repeat("x", size))
		})
	}
	f.freeze()
	options := resolve.DefaultOptions()
	options.HistoryBytes, options.InFlightBytes = 10*size, 60*size
	first, cancelFirst := context.WithCancel(t.Context())
	var mu sync.Mutex
	reads := map[string]int{}
	arrived, answer := make(chan struct{}, 100), make(chan struct{})
	reader := resolve.NewReader(f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-answer:
		}
		mu.Lock()
		reads[r.URL.Path]++
		mu.Unlock()
		return next.RoundTrip(r)
	}), nil, options)
	resolver := resolve.New(f.view, reader, func(*sessions.Record) {}, options)
	resolveWith := func(ctx context.Context) (*resolve.Result, error) {
		return resolver.Resolve(ctx, f.namespace, fmt.Sprint("t", turns-1), 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
	}

	canceled := make(chan error)
	go func() {
		_, err := resolveWith(first)
		canceled <- err
	}()
	for range turns {
		<-arrived // the first query reads, and all others wait for it
	}
	results := make(chan *resolve.Result, queries)
	for range queries {
		go func() {
			result, err := resolveWith(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- result
		}()
	}
	cancelFirst()
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("the first query: %v, want the context's error", err)
	}
	close(answer)
	var held []*resolve.Result
	for range queries {
		held = append(held, <-results)
	}
	if len(reads) != turns {
		t.Errorf("reads: %v, want %d turns", reads, turns)
	}
	for path, count := range reads {
		if count != 1 {
			t.Errorf("%s was read %d times", path, count)
		}
	}
	items := int64(0)
	for i, turn := range held[0].Turns {
		items += int64(turn.Items.Size())
		if turn.Items != held[queries-1].Turns[i].Items {
			t.Errorf("turn %d is in memory more than once", i)
		}
	}
	const overhead = turns * resolve.TurnOverhead
	inFlightBytes := func() int64 { return int64(promtestutil.ToFloat64(resolver.Metric())) }
	want := []int64{items + queries*overhead, items + (queries-1)*overhead, items + overhead, 0}
	got := []int64{inFlightBytes()}
	held[0].Release()
	held[0].Release()
	got = append(got, inFlightBytes())
	for _, result := range held[1 : queries-1] {
		result.Release()
	}
	got = append(got, inFlightBytes())
	held[queries-1].Release()
	got = append(got, inFlightBytes())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bytes in flight with all, all but one, one and no query (-want +got):\n%s", diff)
	}
}
