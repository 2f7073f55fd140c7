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
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestThrottle compares the limits with those that are recomputed from all calls so far.
func TestThrottle(t *testing.T) {
	type request struct {
		tenant  string
		begun   int // the number of calls that had begun with it
		outcome Outcome
		ended   int // the number of calls that had begun when it ended
	}
	// adapted returns a limit after calls, given which refusals halve it if they do not belong to an earlier limit.
	adapted := func(most int64, ended []request, halves func(request) bool, halved func()) int64 {
		limit, since, last := most, int64(0), 0
		for _, c := range ended {
			switch {
			case c.outcome == Refused && halves(c) && c.begun > last:
				limit, since, last = max(limit/2, 1), 0, c.ended
				halved()
			case c.outcome == Served && limit < most:
				if since++; since >= limit {
					limit, since = limit+1, 0
				}
			}
		}
		return limit
	}
	shared := func(most int64, ended []request) int64 {
		first := ""
		return adapted(most, ended, func(c request) bool {
			if first == "" {
				first = c.tenant
			}
			return first != c.tenant
		}, func() { first = "" })
	}
	own := func(most int64, ended []request, tenant string) int64 {
		var theirs []request
		for _, c := range ended {
			if c.tenant == tenant && (len(theirs) > 0 || c.outcome == Refused) {
				theirs = append(theirs, c)
			}
		}
		return adapted(most, theirs, func(request) bool { return true }, func() {})
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // a bubble has no deadline
			most := rapid.Int64Range(1, 20).Draw(t, "most")
			throttle := NewThrottle(most)
			type open struct {
				tenant string
				begun  int
				end    func(Outcome)
			}
			var running []open
			var ended []request
			begun := 0
			tenants := []string{"a", "b", "c"}
			for range rapid.IntRange(1, 200).Draw(t, "steps") {
				if len(running) > 0 && rapid.Bool().Draw(t, "end") {
					i := rapid.IntRange(0, len(running)-1).Draw(t, "request")
					outcome := rapid.SampledFrom([]Outcome{Unknown, Served, Served, Served, Refused}).Draw(t, "outcome")
					ended = append(ended, request{running[i].tenant, running[i].begun, outcome, begun})
					running[i].end(outcome)
					running = append(running[:i], running[i+1:]...)
				} else {
					tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
					first := slices.IndexFunc(ended, func(c request) bool { return c.tenant == tenant && c.outcome == Refused })
					var theirs, limited int64 // its calls, and those since it has a limit of its own
					for _, c := range running {
						if c.tenant == tenant {
							theirs++
							if first >= 0 && c.begun > ended[first].ended {
								limited++
							}
						}
					}
					end, err := beginNow(throttle, tenant)
					if err != nil && theirs == 0 && int64(len(running)) < shared(most, ended) {
						t.Fatalf("%s has no call, %d run, the limit is %d: got %v", tenant, len(running), shared(most, ended), err)
					}
					all, theirOwn := shared(most, ended), own(most, ended, tenant)
					if err == nil && (theirs > 0 && theirs+1 > all/2 || limited > 0 && limited+1 > theirOwn/2) {
						t.Fatalf("%s has %d of %d calls, and %d of %d", tenant, theirs+1, all, limited+1, theirOwn)
					}
					if err == nil {
						begun++
						running = append(running, open{tenant, begun, end})
					}
				}
				want := shared(most, ended)
				if throttle.shared.limit != want {
					t.Fatalf("the shared limit is %d, want %d after %+v", throttle.shared.limit, want, ended)
				}
				for _, tenant := range tenants {
					limit := own(most, ended, tenant)
					if window := throttle.own[tenant]; window != nil && window.limit != limit || window == nil && limit != most {
						t.Fatalf("the limit of %s is not %d after %+v", tenant, limit, ended)
					}
					want = min(want, limit)
				}
				if got := throttle.Limit(); got != want {
					t.Fatalf("the limit is %d, want %d after %+v", got, want, ended)
				}
			}
		})
	})
}

// TestThrottleOfOneTenant: a server that refuses the calls of one tenant makes only that one wait, until it has refused none for some time.
func TestThrottleOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 32
		throttle := NewThrottle(most)
		call := func(tenant string, outcome Outcome) {
			t.Helper()
			end, err := beginNow(throttle, tenant)
			if err != nil {
				t.Fatalf("%s: %v", tenant, err)
			}
			end(outcome)
		}
		for range 100 {
			call("refused", Refused)
			call("served", Served)
		}
		if throttle.shared.limit != most || throttle.Limit() != 1 {
			t.Errorf("the limit of all is %d, and that of one %d, want %d and 1", throttle.shared.limit, throttle.Limit(), most)
		}
		call("another", Refused) // the server's refusals concern more than one
		if throttle.shared.limit != most/2 {
			t.Errorf("the limit of all is %d, want %d", throttle.shared.limit, most/2)
		}
		time.Sleep(refusalAge + time.Second) //nolint:forbidigo // on the bubble's clock
		if got := throttle.Limit(); got != most/2 || len(throttle.own) > 0 {
			t.Errorf("after a time without refusals, the limit is %d, with %d of single tenants", got, len(throttle.own))
		}
		for _, tenant := range []string{"refused", "another"} { // long after each other
			call(tenant, Refused)
			time.Sleep(refusalAge + time.Second) //nolint:forbidigo // on the bubble's clock
		}
		if throttle.shared.limit != most/2 {
			t.Errorf("the limit of all is %d, want %d", throttle.shared.limit, most/2)
		}
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
		if used := throttle.shared.budget.Used(); used != 0 {
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
	if throttle.Limit() != 1 || throttle.shared.budget.Used() != 0 {
		t.Errorf("limit %d, %d in use", throttle.Limit(), throttle.shared.budget.Used())
	}
}
