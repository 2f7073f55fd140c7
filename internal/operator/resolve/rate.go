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

package resolve

import (
	"context"
	"math"
	"time"

	"github.com/catena-dev/catena/internal/fair"
)

// rate limits the units of a resource that each namespace may use: on average, and at once after a pause. It is safe for
// concurrent use.
type rate struct {
	pace      *fair.Pace[*lookup]
	perSecond float64
	// reason is the reason given for rejecting a query that would have to wait too long, or for which too many wait already.
	reason string
	// waiting has the queries that wait, of which each namespace may have a number.
	waiting *fair.Budget
}

// ThrottledError is returned for a query of a namespace that exceeds Options.ConfirmationsPerSecond or
// Options.AnswerBytesPerSecond.
type ThrottledError struct {
	// RetryAfter is the time until the namespace may query again.
	RetryAfter time.Duration
	reason     string
}

// Error returns the reason, for the caller.
func (e *ThrottledError) Error() string { return e.reason }

func newRate(perSecond int64, burst time.Duration, maxWaiting int64, reason string) *rate {
	return &rate{
		pace: fair.NewPace[*lookup](burst), perSecond: float64(perSecond), reason: reason,
		waiting: fair.NewCappedBudget(math.MaxInt64, maxWaiting),
	}
}

// delay returns the time until the namespace of a lookup may use a number of units. If it is zero, they have been taken.
// Otherwise the lookup keeps its place until it takes or forgets them.
func (r *rate) delay(l *lookup, units int64) time.Duration {
	return r.pace.Delay(time.Now(), l.namespace, l, r.cost(units))
}

func (r *rate) cost(units int64) time.Duration {
	return time.Duration(float64(units) / r.perSecond * float64(time.Second))
}

// charge counts units that a namespace has used without asking, so that its next lookups wait.
func (r *rate) charge(namespace string, units int64) {
	r.pace.Charge(time.Now(), namespace, r.cost(units))
}

// debit is charge for what may be much more than the namespace has taken units for: see fair.Pace.Debit.
func (r *rate) debit(namespace string, units int64) {
	r.pace.Debit(time.Now(), namespace, r.cost(units))
}

// refund returns units that a namespace has taken.
func (r *rate) refund(namespace string, units int64) { r.pace.Refund(namespace, r.cost(units)) }

func (r *rate) forget(l *lookup) { r.pace.Forget(l) }

// take waits until the namespace of a lookup may use a number of units. With none, it waits until the namespace is within its rate.
func (r *rate) take(ctx context.Context, l *lookup, units int64) error {
	delay := r.delay(l, units)
	if delay <= 0 {
		return nil
	}
	admitted := r.waiting.TryAcquire(l.namespace, 1)
	if admitted {
		defer r.waiting.Release(l.namespace, 1)
	}
	for ; delay > 0; delay = r.delay(l, units) {
		if !admitted || delay > l.waits.rate || l.query.NoWait {
			r.forget(l)
			return &ThrottledError{RetryAfter: delay, reason: r.reason}
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			r.forget(l)
			return ctx.Err()
		}
	}
	return nil
}
