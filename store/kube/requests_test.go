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
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestRequestsAreShared: while the API server answers none of a namespace's requests, only Options.MaxRequests/2 of its writes and
// as many of its reads are sent, and another namespace saves and resolves.
func TestRequestsAreShared(t *testing.T) {
	const limit = 4
	busy := env.NewNamespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan string, 1000)
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, busy) {
				sent <- r.Method
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
	})
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: env.NewNamespace(t), MaxRequests: limit})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 5 * limit {
		calls.Go(func() {
			_ = s.InNamespace(busy).Save(ctx, testturn.Make("resp_1", ""), store.SaveOptions{}) // it has no response
		})
		calls.Go(func() {
			_, _ = s.InNamespace(busy).Resolve(ctx, "resp_1", store.ResolveOptions{})
		})
	}
	counts := map[string]int{}
	for range limit {
		counts[<-sent]++
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

// TestPartsAreShared: while the API server answers none of the creates of a namespace's chunks, only one is sent, and another
// namespace saves a large turn.
func TestPartsAreShared(t *testing.T) {
	busy := env.NewNamespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan string, 1000)
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.Contains(r.URL.Path, busy) {
				sent <- r.URL.Path
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
	})
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: env.NewNamespace(t)})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 10 {
		calls.Go(func() {
			_ = s.InNamespace(busy).Save(ctx, largeTurn("resp_1", ""), store.SaveOptions{}) // it has no response
		})
	}
	if path := <-sent; !strings.Contains(path, "snapshotchunks") {
		t.Errorf("%s is sent before its chunks", path)
	}
	save(t, s, largeTurn("resp_1", ""))
	if len(sent) > 0 {
		t.Errorf("%d more chunks are sent", len(sent))
	}
}
