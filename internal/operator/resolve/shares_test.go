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

package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestLiveReadsAreShared: queries of one namespace whose live reads are never answered do not delay those of another.
func TestLiveReadsAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	started := make(chan struct{}, 100)
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/"+greedy.namespace+"/") {
				started <- struct{}{}
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kubeclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	modest.save("t1", "")
	modest.freeze()
	options := resolve.DefaultOptions()
	options.LiveReads = 4
	reader, err := resolve.NewReader(client, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	resolver := resolve.New(modest.view, reader, func(*sessions.Record) {}, options)

	ctx, cancel := context.WithCancel(t.Context())
	var queries sync.WaitGroup
	for i := range 50 {
		queries.Go(func() {
			_, err := resolver.Resolve(ctx, greedy.namespace, fmt.Sprintf("Unknown_%d", i), 0, chain.WalkOptions{MaxDepth: 64})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
		})
	}
	for range options.LiveReads / 2 { // its share
		<-started
	}
	for range 20 {
		if _, err := resolver.Resolve(t.Context(), modest.namespace, "t1", 1<<62, chain.WalkOptions{MaxDepth: 64}); err != nil {
			t.Error(err)
		}
	}
	if len(started) > 0 {
		t.Errorf("the namespace had more than its share of %d live reads", options.LiveReads)
	}
	cancel()
	queries.Wait()
}

// TestInFlightBytesAreShared: a namespace that holds as many histories as it can leaves room for those of others.
func TestInFlightBytesAreShared(t *testing.T) {
	greedy, modest := newFixture(t), newFixture(t)
	text := strings.Repeat("x", 1000)
	for _, f := range []*fixture{greedy, modest} {
		f.save("t1", "", func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(text) })
	}
	modest.freeze()
	options := resolve.DefaultOptions()
	options.HistoryBytes, options.InFlightBytes = 5_000, 10_000
	resolver := resolve.New(modest.view, modest.reader, func(*sessions.Record) {}, options)
	held := 0
	for {
		result, err := resolver.Resolve(t.Context(), greedy.namespace, "t1", 0, chain.WalkOptions{MaxDepth: 64})
		if errors.Is(err, resolve.ErrBusy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer result.Release()
		held++
	}
	if held < 3 || held > 5 {
		t.Errorf("the namespace holds %d histories of about 1,000 bytes, want up to half of 10,000", held)
	}
	result, err := resolver.Resolve(t.Context(), modest.namespace, "t1", 0, chain.WalkOptions{MaxDepth: 64})
	if err != nil {
		t.Fatal(err)
	}
	result.Release()
}
