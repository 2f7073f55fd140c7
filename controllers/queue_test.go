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

package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/catena-dev/catena/internal/fair"
)

// TestQueueWakesWorkers: once a costly session that used the whole share of its namespace is done, all workers of the share
// process the others.
func TestQueueWakesWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // to wait until the workers wait
		const workers, share, others = 16, 7, 100 // team-b leaves 15 workers, of which team-a alone can use half
		order := newOrder(workers)
		queue := withOrder(order)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		session := func(name string) reconcile.Request {
			return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: name}}
		}
		costly := session("costly")
		add := func(r reconcile.Request, units int) {
			order.Mark(r, fair.Mark{Urgent: true, Units: units})
			queue.Add(r)
		}
		add(costly, 100)
		_, _ = queue.Get()
		// While another item is processed, Done wakes no worker.
		slow := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-b", Name: "slow"}}
		add(slow, 1)
		_, _ = queue.Get()
		var processed atomic.Int32
		end := make(chan struct{})
		worker := func() {
			for next, shutdown := queue.Get(); !shutdown; next, shutdown = queue.Get() {
				if !isWake(next) {
					processed.Add(1)
					<-end
				}
				queue.Done(next)
			}
		}
		for range workers - 2 {
			go worker()
		}
		for i := range others {
			add(session(fmt.Sprint(i)), 1)
		}
		check := func(want int32) {
			t.Helper()
			synctest.Wait()
			if n := processed.Load(); n != want {
				t.Errorf("%d sessions have come out, want %d", n, want)
			}
		}
		check(0)
		queue.Done(costly)
		go worker() // the one that has processed it
		check(share)
		close(end)
		check(others)
		queue.ShutDown()
	})
}

// TestHealthOfQueue: the operator is unhealthy while objects wait and none is reconciled for too long, although no reconcile is in
// progress: a fault of the queue.
func TestHealthOfQueue(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	sessions := &ResponseSessionReconciler{Clock: clock, StallTimeout: 5 * time.Minute, order: newOrder(1)}
	testHealth(t, clock, "session", sessions.order, &sessions.progress, sessions.Healthy)
	reporter := NewSnapshotReporter(nil, DefaultStatusLimits(), clock, 5*time.Minute)
	defer reporter.queue.ShutDown()
	testHealth(t, clock, "unreadable snapshot", reporter.order, &reporter.progress, reporter.Healthy)
	var heads progress
	order := newOrder(1)
	testHealth(t, clock, "conversation", order, &heads, func(*http.Request) error {
		return heads.check(clock.Now(), "conversation", waiting(order, synced(true), synced(true)), 5*time.Minute)
	})
}

// synced is a view.
type synced bool

func (s synced) HasSynced() bool { return bool(s) }

// TestHealthBeforeSync: the operator is healthy while conversations wait until all views have synced.
func TestHealthBeforeSync(t *testing.T) {
	order := newOrder(1)
	queue := withOrder(order)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "conv.1"}})
	if got := waiting(order, synced(true), synced(false)); got != 0 {
		t.Errorf("%d wait, want 0", got)
	}
	if got := waiting(order, synced(true), synced(true)); got != 1 {
		t.Errorf("%d wait, want 1", got)
	}
}

func testHealth(
	t *testing.T, clock *clocktesting.FakePassiveClock, kind string, order *fair.Queue[reconcile.Request], workers *progress,
	healthy func(*http.Request) error,
) {
	queue := withOrder(order)("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	named := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: name}}
	}
	lost := named("lost")
	for _, tc := range []struct {
		name  string
		after time.Duration
		do    func()
		want  string
	}{
		{name: "idle for long", after: time.Hour},
		// The queue believes that a worker is busy with this one.
		{name: "one comes out", do: func() { queue.Add(lost); _, _ = queue.Get() }},
		{name: "none waits", after: time.Hour},
		{name: "one waits", do: func() { queue.Add(named("waiting")) }},
		{name: "for the timeout", after: 5 * time.Minute},
		{name: "for longer", after: time.Second, want: kind + ": 1 wait, and none has been reconciled for 5m1s"},
		{name: "a reconcile starts", do: func() { workers.start(clock.Now())() }},
		{name: "none starts again", after: 5*time.Minute + time.Second, want: kind + ": 1 wait"},
		{name: "the lost one comes out", do: func() { queue.Done(lost); _, _ = queue.Get() }},
	} {
		clock.SetTime(clock.Now().Add(tc.after))
		if tc.do != nil {
			tc.do()
		}
		if err := healthy(nil); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}
