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
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
)

// readOf reads an object of a size.
func readOf(t *testing.T, r *reads, tenant string, bytes int64) {
	t.Helper()
	end, err := r.begin(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	end(bytes)
}

// TestReadsCountAsLarge: an object counts as the largest one that its tenant has just read, and at most as a third of the limit.
func TestReadsCountAsLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		single bool    // there are no tenants
		read   []int64 // the sizes of the objects that were read
		passed time.Duration
		want   int64
	}{
		"nothing was read":  {want: 1},
		"small ones":        {read: []int64{1, readUnit - 1}, want: 1},
		"a larger one":      {read: []int64{3*readUnit + 1}, want: 4},
		"a huge one":        {read: []int64{1 << 40}, want: 10},
		"a small one next":  {read: []int64{1 << 40, 1, 0}, want: 10},
		"a larger one next": {read: []int64{readUnit, 2 * readUnit}, want: 3},
		"two half-lives":    {read: []int64{1 << 40}, passed: 2 * readHalfLife, want: 3},
		"an hour":           {read: []int64{1 << 40}, passed: time.Hour, want: 1},
		"one tenant":        {single: true, read: []int64{10 * readUnit}, want: 11},
	} {
		t.Run(name, func(t *testing.T) {
			r, now := newReads(30, !tc.single), time.Unix(0, 0)
			r.now = func() time.Time { return now }
			for _, bytes := range tc.read {
				readOf(t, r, "a", bytes)
			}
			now = now.Add(tc.passed)
			if got := r.expected("a"); got != tc.want {
				t.Errorf("the next object counts as %d, want %d", got, tc.want)
			}
			if got := r.expected("b"); got != 1 {
				t.Errorf("an object of another tenant counts as %d, want 1", got)
			}
			if used := r.objects.Used(); used != 0 {
				t.Errorf("%d are still counted", used)
			}
		})
	}
}

// TestLargeReadsWait: a tenant has one large object at once, also of those that had to wait before it was known that they are large, and others
// do not wait for it.
func TestLargeReadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begun := newReads(6, true), make(chan func(int64), 10)
		begin := func(ctx context.Context, tenant string) error {
			end, err := r.begin(ctx, tenant)
			if err == nil {
				begun <- end
			}
			return err
		}
		for range 4 {
			go func() { _ = begin(t.Context(), "a") }()
		}
		for _, want := range []int{2, 1, 1} { // at once: two that may be small, then the second of them, and one of those that have waited
			synctest.Wait()
			if len(begun) != want {
				t.Fatalf("%d objects are read, want %d", len(begun), want)
			}
			(<-begun)(1 << 30)
		}
		synctest.Wait()
		if err := begin(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := begin(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v while another large object is read, want a deadline", err)
		}
		for range 2 {
			(<-begun)(0)
		}
		if used := r.objects.Used(); used != 0 || len(begun) != 0 {
			t.Errorf("%d are still counted", used)
		}
	})
}

// TestWholeReadsCount: all that was read of an object counts, although the read has failed in the end, or little of it is kept.
func TestWholeReadsCount(t *testing.T) {
	t.Run("failed", func(t *testing.T) { wantCounted(t, errors.New("failed")) })
	t.Run("small result", func(t *testing.T) { wantCounted(t, nil) })
}

// TestObjectsCount: what an operation on a conversation reads and changes counts for the next ones, however little of it is returned.
func TestObjectsCount(t *testing.T) {
	const units = 5
	f, _ := startConversation(t, nil)
	f.store.Conversations = &hookedConversations{Conversations: f.store.Conversations, onUpdate: func(
		ctx context.Context, next func() (*driver.Conversation, error),
	) (*driver.Conversation, error) {
		metered.Object(ctx, units*readUnit)
		return next()
	}}
	f.gateway.reads.now = func() time.Time { return time.Unix(0, 0) }
	for path, body := range map[string]string{"/v1/responses": `{"conversation":"conv_1","input":"a"}`, "/v1/conversations/conv_1": `{"metadata":{}}`} {
		f.gateway.reads.last.Clear()
		f.do(http.MethodPost, path, body)
		if got := f.gateway.reads.expected("default"); got != 1+units {
			t.Errorf("the next object counts as %d, want %d", got, 1+units)
		}
	}
}

// TestObjectsWait: an operation on a conversation waits while its tenant reads as much as it may at once.
func TestObjectsWait(t *testing.T) {
	f, _ := startConversation(t, nil)
	f.create(`{"conversation":"conv_1","input":"a"}`)
	turn := f.turns(conv)[0]
	reads := f.gateway.reads
	reads.most, reads.objects = 1, fair.NewCappedBudget(math.MaxInt64, 1)
	for _, request := range [][]string{
		{http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"b"}`},
		{http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"b","store":false}`},
		{http.MethodGet, "/v1/conversations/conv_1/items", ""},
		{http.MethodPost, "/v1/conversations/conv_1", `{"metadata":{}}`},
		{http.MethodDelete, "/v1/responses/" + turn, ""},
		{http.MethodDelete, "/v1/conversations/conv_1", ""},
	} {
		end, err := reads.begin(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, request[0], f.url+request[1], strings.NewReader(request[2]))
		if err != nil {
			t.Fatal(err)
		}
		response, err := f.client.Do(r)
		if err == nil {
			_ = response.Body.Close()
			t.Errorf("%s %s: got %d while another object is read", request[0], request[1], response.StatusCode)
		}
		cancel()
		end(0)
		f.eventually("the request has not ended", func() bool { return reads.objects.Used() == 0 })
	}
}

// wantCounted reads an object with a result.
func wantCounted(t *testing.T, failed error) {
	t.Helper()
	const units = 5
	g, turns := &Gateway{memory: newSharedLimit(1<<30, "--flag", "memory")}, memory.New(memory.Options{})
	c := &call{store: turns.InNamespace("a"), reads: newReads(30, true), memory: g.memory.of("a")}
	c.reads.now = func() time.Time { return time.Unix(0, 0) }
	_, err := readStored(t.Context(), c, func(ctx context.Context) (*store.Session, error) {
		return &store.Session{}, errors.Join(failed, metered.Take(ctx, readFactor*units*readUnit))
	}, sessionBytes)
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if got := c.reads.expected("a"); got != 1+units {
		t.Errorf("the next object counts as %d, want %d", got, 1+units)
	}
	if used := g.memory.budget.Used(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}
