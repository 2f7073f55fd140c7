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

package fair

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Throttle limits the concurrent requests to a server to as many as it accepts, as TCP congestion control does: a request
// that the server refuses halves the limit, and as many served requests as the limit raise it by one. Tenants share it as in
// Budget. It is safe for concurrent use.
//
// The server may refuse the requests of one tenant only. So a tenant whose requests are refused first gets a limit of its own, of which it has
// half, as it has of the one that all share. That is halved only if requests of two tenants have been refused.
type Throttle struct {
	max int64

	mu     sync.Mutex
	begun  uint64
	shared *window
	// refused is a tenant whose request was refused since the shared limit was last halved, and within the last refusalAge, or empty.
	refused string
	// own are the limits of tenants whose requests have been refused within the last refusalAge.
	own map[string]*window
}

// refusalAge is how long a tenant has a limit of its own after a request was refused.
const refusalAge = time.Minute

// window is a limit that adapts to a server.
type window struct {
	budget        *Budget
	limit, served int64     // served are the requests since the limit changed
	halved        uint64    // the number of requests that had begun when the limit was last halved
	refused       time.Time // when a request was last refused
}

func newWindow(limit int64) *window { return &window{budget: NewBudget(limit), limit: limit} }

// Outcome is the outcome of a request to a server.
type Outcome int

const (
	// Unknown is the outcome of a request that gives no information about the server, such as a canceled one.
	Unknown Outcome = iota
	// Served is the outcome of a request that the server has answered.
	Served
	// Refused is the outcome of a request that the server refused, failed to serve, or asked to retry later.
	Refused
)

// NewThrottle returns a throttle. Its initial and maximum limit is the number of requests given, which is at least 1.
func NewThrottle(limit int64) *Throttle {
	return &Throttle{max: limit, shared: newWindow(limit), own: map[string]*window{}}
}

// Begin waits until a tenant may send a request, and returns the function that must be called once, when the request has
// ended. It returns the error of the context if that is done first.
func (t *Throttle) Begin(ctx context.Context, tenant string) (end func(Outcome), err error) {
	windows := []*window{t.shared}
	if own := t.ownOf(tenant); own != nil {
		windows = []*window{own, t.shared}
	}
	for i, w := range windows {
		if err := w.budget.Acquire(ctx, tenant, 1); err != nil {
			releaseAll(windows[:i], tenant)
			return nil, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	number := t.begun
	return func(outcome Outcome) {
		t.note(tenant, number, outcome)
		releaseAll(windows, tenant)
	}, nil
}

func releaseAll(windows []*window, tenant string) {
	for _, w := range windows {
		w.budget.Release(tenant, 1)
	}
}

// Limit returns the lowest limit that any tenant has now.
func (t *Throttle) Limit() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	limit := t.shared.limit
	for _, own := range t.own {
		limit = min(limit, own.limit)
	}
	return limit
}

// ownOf returns the limit of a tenant of its own, or nil.
func (t *Throttle) ownOf(tenant string) *window {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.own[tenant]; own != nil && time.Since(own.refused) <= refusalAge {
		return own
	}
	return nil
}

// forget ends the limits of tenants whose requests have not been refused for some time.
func (t *Throttle) forget() {
	maps.DeleteFunc(t.own, func(_ string, own *window) bool { return time.Since(own.refused) > refusalAge })
	if t.own[t.refused] == nil {
		t.refused = ""
	}
}

func (t *Throttle) note(tenant string, number uint64, outcome Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch outcome {
	case Refused:
		t.refuse(tenant, number)
	case Served:
		t.shared.raise(t.max)
		if own := t.own[tenant]; own != nil {
			own.raise(t.max)
		}
	}
}

// refuse notes a refused request. The caller holds mu.
func (t *Throttle) refuse(tenant string, number uint64) {
	t.forget()
	own := t.own[tenant]
	if own == nil {
		own = newWindow(t.max)
		t.own[tenant] = own
	}
	own.refused = time.Now()
	own.halve(number, t.begun)
	if t.refused == "" {
		t.refused = tenant
	} else if t.refused != tenant && t.shared.halve(number, t.begun) {
		t.refused = ""
	}
}

// halve halves the limit because of a refused request, unless that began under a previous limit, and reports whether it did.
func (w *window) halve(number, begun uint64) bool {
	if number <= w.halved {
		return false
	}
	w.limit, w.halved, w.served = max(w.limit/2, 1), begun, 0
	w.budget.Resize(w.limit)
	return true
}

// raise counts a served request, and raises the limit by one if they are as many.
func (w *window) raise(most int64) {
	if w.limit == most {
		return
	}
	if w.served++; w.served >= w.limit {
		w.limit, w.served = w.limit+1, 0
		w.budget.Resize(w.limit)
	}
}
