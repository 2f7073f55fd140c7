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

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
)

// external returns a session whose bodies are in a bucket.
func external(namespace, id string) *v1alpha1.ResponseSession {
	s := turn(namespace, id)
	s.Spec.Request, s.Spec.Response = nil, nil
	s.Spec.Snapshot = &v1alpha1.SnapshotReference{
		Store: v1alpha1.SnapshotStoreBlob, Key: strings.Repeat("a", 26), Parts: 1, SizeBytes: 1, StoredBytes: 1, SHA256: strings.Repeat("0", 64),
	}
	return s
}

// TestSnapshotsWaitForWorkers: a namespace with many snapshots that take long to read never has more than its share of the
// workers. Meanwhile other namespaces get their verdicts, with and without snapshots, and in the end it gets its own.
func TestSnapshotsWaitForWorkers(t *testing.T) {
	busy, other := env.NewNamespace(t), env.NewNamespace(t)
	var reading, most atomic.Int64
	answer := make(chan struct{})
	read := func(ctx context.Context, r *sessions.Record) (bool, error) {
		if r.Namespace != busy {
			return true, nil
		}
		now := reading.Add(1)
		defer reading.Add(-1)
		for highest := most.Load(); now > highest && !most.CompareAndSwap(highest, now); highest = most.Load() {
		}
		select {
		case <-answer:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	usual := readable
	readable = read
	restartOperator(t, func() {})
	t.Cleanup(func() {
		readable = usual
		restartOperator(t, func() {})
	})
	const snapshots = 3 * workers
	want := map[string]verdict{}
	for i := range snapshots {
		id := fmt.Sprint("t", i)
		create(t, external(busy, id))
		want[id] = resolved(1, id)
	}
	testutil.Eventually(t, func(context.Context) error {
		if reading.Load() < workers/2 {
			return fmt.Errorf("%d snapshots are being read", reading.Load())
		}
		return nil
	})
	create(t, turn(other, "a"), external(other, "b"), turn(other, "c", "a"))
	wantVerdicts(t, other, map[string]verdict{"a": resolved(1, "a"), "b": resolved(1, "b"), "c": resolved(2, "a")})
	if most.Load() > workers/2 || reading.Load() == 0 {
		t.Errorf("up to %d snapshots of one namespace were read at once by %d workers", most.Load(), workers)
	}
	close(answer)
	wantVerdicts(t, busy, want)
}

// TestNewTurnsFirst: turns that change in many namespaces do not occupy the workers that the first verdicts on new turns need.
func TestNewTurnsFirst(t *testing.T) {
	namespaces := make([]string, workers+1)
	for i := range namespaces {
		namespaces[i] = env.NewNamespace(t)
		create(t, turn(namespaces[i], "a"))
	}
	other := env.NewNamespace(t)
	for _, namespace := range namespaces {
		wantVerdicts(t, namespace, map[string]verdict{"a": resolved(1, "a")})
	}
	release := op.writes.hold()
	t.Cleanup(release)
	for _, namespace := range namespaces {
		overwrite(t, namespace, "a", `{"responseStatus":"failed"}`)
	}
	wantWaiting(t, workers/8)
	create(t, turn(other, "b"))
	wantWaiting(t, workers/8+1)
	release()
	wantVerdicts(t, other, map[string]verdict{"b": resolved(1, "b")})
	for _, namespace := range namespaces {
		wantVerdicts(t, namespace, map[string]verdict{"a": brokenIn(v1alpha1.ReasonTurnNotCompleted, "a", 1, "a")})
	}
}

// wantWaiting waits until a number of the operator's writes wait.
func wantWaiting(t *testing.T, want int32) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		if got := op.writes.waiting.Load(); got != want {
			return fmt.Errorf("%d writes wait, want %d", got, want)
		}
		return nil
	})
}

// TestReportsAreFair: the reports of a namespace with more unreadable snapshots than can wait, and whose writes wait for their share, do
// not keep others waiting.
func TestReportsAreFair(t *testing.T) {
	greedy, modest := env.NewNamespace(t), env.NewNamespace(t)
	var sent atomic.Int64
	gate := make(chan struct{})
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && strings.Split(r.URL.Path, "/")[5] == greedy {
				sent.Add(1)
				<-gate
			}
			return next.RoundTrip(r)
		})
	})
	reports, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	reporter := controllers.NewSnapshotReporter(reports, statuses, clocktesting.NewFakePassiveClock(startTime), stallTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- reporter.Start(ctx) }()
	const many = 100
	report := func() {
		for i := range many {
			s := turn(greedy, fmt.Sprint("t", i))
			reporter.Report(&sessions.Record{Object: sessions.Object{Namespace: greedy, Name: s.Name, UID: sessions.NewUID("none"), Generation: 1}})
		}
	}
	report()
	testutil.Eventually(t, func(context.Context) error {
		if sent.Load() == 0 {
			return errors.New("no report has been sent")
		}
		return nil
	})
	create(t, turn(modest, "a"))
	a := get(t, modest, "a")
	for range 3 { // it is reported once
		reporter.Report(&sessions.Record{Object: sessions.Object{Namespace: modest, Name: a.Name, UID: sessions.NewUID(a.UID), Generation: 1}})
	}
	testutil.Eventually(t, func(context.Context) error {
		// The operator, which can read it, has answered the report or will.
		if meta.FindStatusCondition(get(t, modest, "a").Status.Conditions, v1alpha1.ConditionSnapshotReadable) == nil {
			return fmt.Errorf("the snapshot has not been reported yet")
		}
		return nil
	})
	if got := sent.Load(); got > 8 {
		t.Errorf("%d reports of one namespace wait at once", got)
	}
	report() // ignored
	close(gate)
	testutil.Eventually(t, func(context.Context) error {
		if got := sent.Load(); got < 64 {
			return fmt.Errorf("%d reports were sent", got)
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := sent.Load(); got != 64 {
		t.Errorf("%d reports of one namespace were sent, want as many as can wait", got)
	}
}

// overloaded is a proxy in front of the API server that accepts a limited number of concurrent writes, and refuses others as
// API priority and fairness does.
type overloaded struct {
	capacity atomic.Int64
	writing  atomic.Int64
	refused  atomic.Int64
	written  atomic.Int64
	// seen is called with each write.
	seen atomic.Pointer[func()]
}

func (o *overloaded) proxy(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			if seen := o.seen.Load(); seen != nil {
				(*seen)()
			}
			defer o.writing.Add(-1)
			if o.writing.Add(1) > o.capacity.Load() {
				o.refused.Add(1)
				w.Header().Set("Retry-After", "1")
				http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
				return
			}
			o.written.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.CloseClientConnections)
	return &rest.Config{Host: server.URL}
}

// TestWritesAdaptToServer: if the API server refuses writes, the operator sends fewer at once, all sessions get their verdicts
// nevertheless, and later it sends more again.
func TestWritesAdaptToServer(t *testing.T) {
	server := &overloaded{}
	server.capacity.Store(2)
	direct := connect
	connect = func(config *rest.Config) *rest.Config { return server.proxy(t, config) }
	busy, other := env.NewNamespace(t), env.NewNamespace(t)
	const turns = 40
	want := map[string]verdict{}
	restartOperator(t, func() {
		for i := range turns {
			id := fmt.Sprint("t", i)
			create(t, turn(busy, id))
			want[id] = resolved(1, id)
		}
	})
	t.Cleanup(func() {
		connect = direct
		restartOperator(t, func() {})
	})
	var lowest atomic.Int64
	lowest.Store(2 * workers)
	limiter := op.limiter
	note := func() {
		now := limiter.Writes()
		for before := lowest.Load(); now < before && !lowest.CompareAndSwap(before, now); before = lowest.Load() {
		}
	}
	server.seen.Store(&note)
	create(t, turn(other, "a"))
	wantVerdicts(t, other, map[string]verdict{"a": resolved(1, "a")})
	wantVerdicts(t, busy, want)
	if server.refused.Load() == 0 || server.refused.Load() > 2*server.written.Load() {
		t.Errorf("%d writes were refused, and %d were not", server.refused.Load(), server.written.Load())
	}
	if lowest.Load() >= 2*workers {
		t.Errorf("the limit fell no lower than %d of %d concurrent writes", lowest.Load(), 2*workers)
	}

	server.capacity.Store(1000)
	for round := 0; limiter.Writes() <= lowest.Load(); round++ {
		for i := range turns {
			overwrite(t, busy, fmt.Sprint("t", i), fmt.Sprintf(`{"metadata":{"round":%d}}`, round))
		}
		wantVerdicts(t, busy, want)
	}
}
