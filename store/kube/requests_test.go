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

package kube_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// openUnanswered opens a store whose requests with one of the methods for a namespace get no answer until ctx is done. sent receives
// their methods and paths.
func openUnanswered(ctx context.Context, t *testing.T, namespace string, methods ...string) (s *store.Store, sent chan string) {
	t.Helper()
	sent = make(chan string, 1000)
	return openThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if !slices.Contains(methods, r.Method) || !strings.Contains(r.URL.Path, namespace) {
			return next.RoundTrip(r)
		}
		sent <- r.Method + " " + r.URL.Path
		<-ctx.Done()
		return nil, ctx.Err()
	}), sent
}

// TestRequestsAreShared: while the API server answers none of a namespace's requests, only Options.MaxRequests/2 of its writes and
// as many of its reads are sent, and another namespace saves and resolves.
func TestRequestsAreShared(t *testing.T) {
	const limit = kube.DefaultMaxRequests
	ctx, cancel := context.WithCancel(t.Context())
	busy := env.NewNamespace(t)
	s, sent := openUnanswered(ctx, t, busy, http.MethodGet, http.MethodPost)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 2 * limit {
		calls.Go(func() {
			_ = s.InNamespace(busy).Save(ctx, testturn.Make("resp_1", ""), store.SaveOptions{}) // it has no response
		})
		calls.Go(func() {
			_, _ = s.InNamespace(busy).Resolve(ctx, "resp_1", store.ResolveOptions{})
		})
	}
	counts := map[string]int{}
	for range limit {
		method, _, _ := strings.Cut(<-sent, " ")
		counts[method]++
	}
	turn := testturn.Make("resp_1", "")
	save(t, s, turn)
	if _, err := s.Resolve(t.Context(), turn.ResponseID, store.ResolveOptions{}); err != nil {
		t.Errorf("unable to resolve a turn of another namespace: %v", err)
	}
	if counts[http.MethodPost] != limit/2 || counts[http.MethodGet] != limit/2 || len(sent) > 0 {
		t.Errorf("the namespace has sent %v and %d more, want %d of each", counts, len(sent), limit/2)
	}
}

// TestSavesDoNotWaitForResolves: a turn is saved, and its parent read, while the operator answers none of the namespace's resolves.
func TestSavesDoNotWaitForResolves(t *testing.T) {
	const limit = kube.DefaultMaxRequests
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan struct{}, 2*limit)
	s := openThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.Path, "/inputitems/") {
			return next.RoundTrip(r)
		}
		sent <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	save(t, s, testturn.Make("resp_1", ""))
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 2 * limit {
		calls.Go(func() {
			_, _ = s.Resolve(ctx, "resp_1", store.ResolveOptions{}) // it has no response
		})
	}
	for range limit / 2 {
		<-sent
	}
	save(t, s, testturn.Make("resp_2", "resp_1"))
	save(t, s, largeTurn("resp_3", "resp_2"))
}

// TestPartsAreShared: while the API server answers none of the creates of a namespace's chunks, only one is sent, and another
// namespace saves a large turn.
func TestPartsAreShared(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	busy := env.NewNamespace(t)
	s, sent := openUnanswered(ctx, t, busy, http.MethodPost)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 10 {
		calls.Go(func() {
			_ = s.InNamespace(busy).Save(ctx, largeTurn("resp_1", ""), store.SaveOptions{}) // it has no response
		})
	}
	if request := <-sent; !strings.Contains(request, "snapshotchunks") {
		t.Errorf("%s is sent before its chunks", request)
	}
	save(t, s, largeTurn("resp_1", ""))
	if len(sent) > 0 {
		t.Errorf("%d more chunks are sent", len(sent))
	}
}

// TestRequestID: a resolve sends the ID of the request that it belongs to.
func TestRequestID(t *testing.T) {
	var sent []string
	s := openThrough(t, env.NewNamespace(t), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/inputitems/") {
			sent = append(sent, r.Header.Get("X-Request-Id"))
		}
		return next.RoundTrip(r)
	})
	turn := testturn.Make("resp_1", "")
	save(t, s, turn)
	for _, ctx := range []context.Context{store.WithRequestID(t.Context(), "req_1"), store.WithRequestID(t.Context(), "not valid"), t.Context()} {
		if _, err := s.Resolve(ctx, turn.ResponseID, store.ResolveOptions{}); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"req_1", "", ""}, sent); diff != "" {
		t.Errorf("request IDs (-want +got):\n%s", diff)
	}
}
