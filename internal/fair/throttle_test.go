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
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestThrottle compares the limit with one that is recomputed from all calls so far.
func TestThrottle(t *testing.T) {
	type request struct {
		begun   int // the number of calls that had begun with it
		outcome Outcome
		ended   int // the number of calls that had begun when it ended
	}
	limit := func(most int64, ended []request) int64 {
		limit, since, halved := most, int64(0), 0
		for _, c := range ended {
			switch {
			case c.outcome == Refused && c.begun > halved:
				limit, since, halved = max(limit/2, 1), 0, c.ended
			case c.outcome == Served && limit < most:
				if since++; since >= limit {
					limit, since = limit+1, 0
				}
			}
		}
		return limit
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			most := rapid.Int64Range(1, 20).Draw(t, "most")
			throttle := NewThrottle(most)
			type open struct {
				begun int
				end   func(Outcome)
			}
			var running []open
			var ended []request
			begun := 0
			for range rapid.IntRange(1, 200).Draw(t, "steps") {
				if len(running) > 0 && rapid.Bool().Draw(t, "end") {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "request")
					outcome := rapid.SampledFrom([]Outcome{Unknown, Served, Served, Served, Refused}).Draw(t, "outcome")
					ended = append(ended, request{running[i].begun, outcome, begun})
					running[i].end(outcome)
					running = append(running[:i], running[i+1:]...)
				} else {
					// Each call has its own tenant, so that only the limit matters.
					end, err := beginNow(throttle, fmt.Sprint(begun))
					if free := int64(len(running)) < limit(most, ended); (err == nil) != free {
						t.Fatalf("%d calls run, the limit is %d: got %v", len(running), limit(most, ended), err)
					}
					if err == nil {
						begun++
						running = append(running, open{begun, end})
					}
				}
				if got, want := throttle.Limit(), limit(most, ended); got != want {
					t.Fatalf("the limit is %d, want %d after %+v", got, want, ended)
				}
			}
		})
	})
}

// beginNow begins a call, or returns an error if it would have to wait.
func beginNow(throttle *Throttle, tenant string) (end func(Outcome), err error) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // rapid has no context
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		end, err = throttle.Begin(ctx, tenant)
	}()
	synctest.Wait()
	select {
	case <-done:
	default:
		cancel()
		<-done
	}
	return end, err
}

// TestThrottleAdaptsToServer: when a server accepts only a few calls at once, the calls of all tenants soon drop to that
// number, and return to the previous number when it accepts more again.
func TestThrottleAdaptsToServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, few = 32, 4
		throttle := NewThrottle(most)
		var mu sync.Mutex
		capacity, running, refused, served := few, 0, 0, map[string]int{}
		call := func(tenant string) {
			end, err := throttle.Begin(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			running++
			outcome := Served
			if running > capacity {
				outcome = Refused
				refused++
			} else {
				served[tenant]++
			}
			mu.Unlock()
			time.Sleep(time.Second) //nolint:forbidigo // on the bubble's clock
			mu.Lock()
			running--
			mu.Unlock()
			end(outcome)
		}
		for i := range 1000 {
			go call(fmt.Sprint("greedy", i%3))
		}
		for range 50 {
			call("modest")
		}
		mu.Lock() // other calls are still in progress
		if served["modest"] < 40 {
			t.Errorf("%d of 50 calls of a modest tenant were served, others: %v", served["modest"], served)
		}
		total := refused
		for _, count := range served {
			total += count
		}
		if refused > total/3 {
			t.Errorf("%d of %d calls were refused", refused, total)
		}
		capacity = 10 * most
		mu.Unlock()
		for throttle.Limit() < most {
			call("modest")
		}
		time.Sleep(time.Hour) //nolint:forbidigo // on the bubble's clock
		if used := throttle.budget.Used(); used != 0 {
			t.Errorf("%d calls have not ended", used)
		}
	})
}

// TestThrottleCanceled: a call that waits ends with its context.
func TestThrottleCanceled(t *testing.T) {
	throttle := NewThrottle(1)
	end, err := throttle.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := throttle.Begin(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	end(Refused)
	if throttle.Limit() != 1 || throttle.budget.Used() != 0 {
		t.Errorf("limit %d, %d in use", throttle.Limit(), throttle.budget.Used())
	}
}
