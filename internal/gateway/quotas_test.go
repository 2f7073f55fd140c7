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

package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/store"
)

var errQuotaExceeded = &store.Error{Code: store.CodeQuotaExceeded, Message: "the quota is exceeded"}

// TestQuotaBeforeTheEngine checks that the engine does not run for a turn that could not be saved because of a quota, and that
// no other request is rejected.
func TestQuotaBeforeTheEngine(t *testing.T) {
	for name, tc := range map[string]struct {
		err         error
		body        string
		wantRefused bool
	}{
		"exceeded":             {errQuotaExceeded, `{"input":"x"}`, true},
		"exceeded, stream":     {errQuotaExceeded, `{"input":"x","stream":true}`, true},
		"exceeded, continued":  {errQuotaExceeded, `{"input":"x","previous_response_id":"resp_seed"}`, true},
		"exceeded, not stored": {errQuotaExceeded, `{"input":"x","store":false}`, false},
		"within":               {nil, `{"input":"x"}`, false},
		"unknown":              {errors.New("no permissions"), `{"input":"x"}`, false},
		"unreachable":          {&store.Error{Code: store.CodeUnreachable, Retryable: true}, `{"input":"x"}`, false},
		"store without quotas": {&store.Error{Code: store.CodeUnsupported}, `{"input":"x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			f.seed("resp_seed", "", store.StatusCompleted)
			f.store.onQuota = func(context.Context, string) error { return tc.err }
			r := f.do(http.MethodPost, "/v1/responses", tc.body)
			if !tc.wantRefused {
				if r.status != http.StatusOK || f.sent.count() != 1 {
					t.Errorf("got %d %s, the engine ran %d times", r.status, r.body, f.sent.count())
				}
				return
			}
			if r.status != http.StatusTooManyRequests || r.get("error.type") != typeQuota ||
				r.get("error.code") != string(store.CodeQuotaExceeded) || r.header.Get("X-Should-Retry") != "false" {
				t.Errorf("got %d %s, X-Should-Retry %q", r.status, r.body, r.header.Get("X-Should-Retry"))
			}
			if f.sent.count() != 0 {
				t.Errorf("the engine ran %d times, want 0", f.sent.count())
			}
		})
	}
}

// TestQuotaOfStoredTurns checks that a tenant that has reached its quota can read and delete turns, and repeat a request whose
// turn is stored.
func TestQuotaOfStoredTurns(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":"x"}`, "Idempotency-Key", "k")
	f.store.onQuota = func(context.Context, string) error { return errQuotaExceeded }
	f.gateway.quotas = newQuotas() // drop cached results
	if again := f.create(`{"input":"x"}`, "Idempotency-Key", "k"); again.get("id") != first.get("id") {
		t.Errorf("the repeated request got %s", again.body)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if r := f.do(method, "/v1/responses/"+first.get("id"), ""); r.status != http.StatusOK {
			t.Errorf("%s: got %d %s", method, r.status, r.body)
		}
	}
}

// TestQuotaOfAnotherTenant checks that each tenant has a quota of its own.
func TestQuotaOfAnotherTenant(t *testing.T) {
	f := start(t, nil, twoTenants(t))
	f.store.onQuota = func(_ context.Context, namespace string) error {
		if namespace == "a" {
			return errQuotaExceeded
		}
		return nil
	}
	for tenant, want := range map[string]int{"a": http.StatusTooManyRequests, "b": http.StatusOK} {
		if r := f.do(http.MethodPost, "/v1/responses", `{"input":"x"}`, "Authorization", "Bearer "+tenant); r.status != want {
			t.Errorf("tenant %s got %d %s", tenant, r.status, r.body)
		}
	}
}

// TestQuotaAge checks that the result of a quota check is used for quotaAge, including by concurrent requests, and that a
// store that does not respond delays a request by at most quotaTimeout.
func TestQuotaAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		var answer error
		proceed := make(chan struct{})
		hooked := &hookedStore{onQuota: func(ctx context.Context, _ string) error {
			reads.Add(1)
			select {
			case <-proceed:
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		q, s := newQuotas(), hooked.open()
		want := func(want error, wantReads int64) {
			t.Helper()
			if err := q.check(t.Context(), s); !errors.Is(err, want) || reads.Load() != wantReads {
				t.Errorf("got %v after %d reads, want %v after %d", err, reads.Load(), want, wantReads)
			}
		}
		begin := time.Now()
		want(context.DeadlineExceeded, 1)
		if took := time.Since(begin); took != quotaTimeout {
			t.Errorf("the check took %s, want %s", took, quotaTimeout)
		}
		time.Sleep(quotaAge) //nolint:forbidigo // of the bubble's clock

		answer = errQuotaExceeded
		errs := make(chan error)
		for range 10 {
			go func() { errs <- q.check(t.Context(), s) }()
		}
		synctest.Wait()
		close(proceed)
		for range 10 {
			if err := <-errs; !errors.Is(err, store.ErrQuotaExceeded) {
				t.Error(err)
			}
		}
		want(store.ErrQuotaExceeded, 2)
		answer = nil
		time.Sleep(quotaAge - time.Millisecond) //nolint:forbidigo // of the bubble's clock
		want(store.ErrQuotaExceeded, 2)
		time.Sleep(time.Millisecond) //nolint:forbidigo // of the bubble's clock
		want(nil, 3)
	})
}
