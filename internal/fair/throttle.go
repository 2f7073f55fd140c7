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
	"sync"
)

// Throttle limits the concurrent requests to a server to as many as it accepts, as TCP congestion control does: a request
// that the server refuses halves the limit, and as many served requests as the limit raise it by one. Tenants share it as in
// Budget. It is safe for concurrent use.
type Throttle struct {
	max    int64
	budget *Budget

	mu     sync.Mutex
	limit  int64
	served int64 // requests since the limit changed
	begun  uint64
	halved uint64 // the number of requests that had begun when the limit was last halved
}

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
	return &Throttle{max: limit, limit: limit, budget: NewBudget(limit)}
}

// Begin waits until a tenant may send a request, and returns the function that must be called once, when the request has
// ended. It returns the error of the context if that is done first.
func (t *Throttle) Begin(ctx context.Context, tenant string) (end func(Outcome), err error) {
	if err := t.budget.Acquire(ctx, tenant, 1); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	number := t.begun
	return func(outcome Outcome) {
		t.note(number, outcome)
		t.budget.Release(tenant, 1)
	}, nil
}

// Limit returns the current limit.
func (t *Throttle) Limit() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

func (t *Throttle) note(number uint64, outcome Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case outcome == Refused && number > t.halved: // earlier requests began under the previous limit
		t.limit, t.halved = max(t.limit/2, 1), t.begun
	case outcome == Served && t.limit < t.max:
		if t.served++; t.served < t.limit {
			return
		}
		t.limit++
	default:
		return
	}
	t.served = 0
	t.budget.Resize(t.limit)
}
