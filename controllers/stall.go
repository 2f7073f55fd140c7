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
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/catena-dev/catena/internal/fair"
)

// progress tracks the reconciles in progress. It is safe for concurrent use.
type progress struct {
	mu      sync.Mutex
	last    uint64
	started map[uint64]time.Time
	// since is the time of the first check that found objects in the queue, none of which has started since, and seen the value of last
	// then.
	seen  uint64
	since time.Time
}

// start records the start of a reconcile. The caller calls finish at its end.
func (p *progress) start(now time.Time) (finish func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		p.started = map[uint64]time.Time{}
	}
	p.last++
	id := p.last
	p.started[id] = now
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.started, id)
	}
}

// longest returns the duration of the oldest reconcile in progress, or 0 if no worker is busy.
func (p *progress) longest(now time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, started := range p.started {
		longest = max(longest, now.Sub(started))
	}
	return longest
}

// standstill returns for how long no reconcile has started although objects have been waiting, as far as its calls have seen.
func (p *progress) standstill(now time.Time, waiting int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case waiting == 0:
		p.since = time.Time{}
		return 0
	case p.since.IsZero() || p.seen != p.last:
		p.seen, p.since = p.last, now
	}
	return now.Sub(p.since)
}

// check returns an error if a reconcile takes longer than a timeout, or if none starts for that time although objects of a kind wait, as far as
// its calls show.
//
// An unavailable or unresponsive API server or bucket does not cause that: every request has a deadline, so reconciles end with an
// error and are retried. A restart would not help, and would empty the view and the cache. The remaining cause is a worker that ignores
// its deadline, such as one that waits for a lock or for a hung file system, or a fault of the queue. In that case, a restart helps, or
// another replica that becomes the leader.
func (p *progress) check(now time.Time, kind string, waiting int, timeout time.Duration) error {
	if longest := p.longest(now); longest > timeout {
		return fmt.Errorf("%s: one has been reconciled for %s", kind, longest.Round(time.Second))
	}
	if still := p.standstill(now, waiting); still > timeout {
		return fmt.Errorf("%s: %d wait, and none has been reconciled for %s", kind, waiting, still.Round(time.Second))
	}
	return nil
}

// Healthy is a check of /healthz, with StallTimeout as the timeout. One slow reconcile is enough: the sessions of a namespace share half of the
// workers, and those that already have verdicts an eighth, so few stuck workers keep them waiting.
func (r *ResponseSessionReconciler) Healthy(*http.Request) error {
	return r.progress.check(r.Clock.Now(), "session", r.order.Waiting(), r.StallTimeout)
}

// Healthy is a check of /healthz, as that of ResponseSessionReconciler.
func (r *ConversationReconciler) Healthy(*http.Request) error {
	return r.progress.check(r.Clock.Now(), "conversation", waiting(r.order, r.Conversations, r.Sessions), r.StallTimeout)
}

// Healthy is a check of /healthz, as that of ResponseSessionReconciler.
func (r *ConversationDeleter) Healthy(*http.Request) error {
	return r.progress.check(r.Clock.Now(), "deletion of a conversation", waiting(r.order, r.Conversations, r.Sessions), r.StallTimeout)
}

// Healthy is a check of /healthz, as that of ResponseSessionReconciler, of the reconciles that have begun.
func (r *SessionQuotaReconciler) Healthy(*http.Request) error {
	return r.progress.check(r.Clock.Now(), "SessionQuota", 0, r.StallTimeout)
}

// Healthy is a check of /healthz, as that of ResponseSessionReconciler.
func (r *SnapshotReporter) Healthy(*http.Request) error {
	return r.progress.check(r.clock.Now(), "unreadable snapshot", r.order.Waiting(), r.stallTimeout)
}

// waiting returns the number of objects in the queue of a controller that is fed from one view and waits for others, too: until all have
// synced, it has no workers.
func waiting(order *fair.Queue[reconcile.Request], views ...interface{ HasSynced() bool }) int {
	for _, view := range views {
		if !view.HasSynced() {
			return 0
		}
	}
	return order.Waiting()
}
