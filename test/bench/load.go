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

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/store"
)

const (
	loadClients      = 200
	loadNamespaces   = 10
	loadChains       = 1000 // hot ones, and as many cold ones
	loadTurnsInChain = 4
	loadWarmUp       = 15 * time.Second // only with the hot chains
	loadFor          = 60 * time.Second
	loadSettled      = 30 * time.Second // of loadFor, after which memory may no longer grow
	// loadCache holds the hot chains, but only a part of the cold ones.
	loadCache = 24 << 20
)

// loadExperiment lets many clients resolve at once: half of the time one of the hot chains, which are cached, and otherwise one of the cold
// chains, whose turns must be read from the kube-apiserver: with the default size of the cache once, and with a smaller one most of the time.
func loadExperiment(ctx context.Context, b *bench) error {
	stores := make([]*store.Store, loadNamespaces)
	for i := range stores {
		namespace := fmt.Sprintf("load-%d", i)
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
		if err := b.fill(ctx, namespace, 2*loadChains/loadNamespaces, loadTurnsInChain, resolveSize); err != nil {
			return err
		}
		if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, namespace, "status.rootResponseID="); err != nil {
			return err
		}
		var err error
		if stores[i], err = b.openInPod(ctx, namespace, ""); err != nil {
			return err
		}
		defer func() { _ = stores[i].Close() }()
	}
	b.logf("saved %d chains of %d turns", 2*loadChains, loadTurnsInChain)
	if err := b.restartOperator(ctx); err != nil {
		return err
	}
	if err := b.loadWith(ctx, "", stores); err != nil {
		return err
	}
	if err := b.restartOperator(ctx, fmt.Sprint("--body-cache-bytes=", loadCache)); err != nil {
		return err
	}
	return b.loadWith(ctx, ", more than are cached", stores)
}

// loadWith measures one minute, after the hot chains have been read.
func (b *bench) loadWith(ctx context.Context, how string, stores []*store.Store) error {
	var all samples
	if err := b.underLoad(ctx, stores, loadWarmUp, 1, &samples{}); err != nil {
		return err
	}
	if err := b.underLoad(ctx, stores, loadSettled, 2, &all); err != nil {
		return err
	}
	early, err := residentBytes(b.operator.PID())
	if err != nil {
		return err
	}
	if err := b.underLoad(ctx, stores, loadFor-loadSettled, 2, &all); err != nil {
		return err
	}
	late, err := residentBytes(b.operator.PID())
	if err != nil {
		return err
	}
	what := "200 clients resolve hot and cold chains for a minute" + how + ": "
	b.compare(what+"99th percentile", "ms", series{Samples: []float64{quantile(all.ms, 0.99)}},
		series{Name: "median", Samples: []float64{quantile(all.ms, 0.5)}}, atMost(10))
	b.figure(what+"histories", "histories/s", nil, float64(len(all.ms))/loadFor.Seconds())
	b.compare(what+"resident memory of the operator at the end", "MiB", series{Samples: []float64{late / (1 << 20)}},
		series{Name: "after half of it", Samples: []float64{early / (1 << 20)}}, atMost(1.1))
	return nil
}

// samples are durations in milliseconds. It is safe for concurrent use.
type samples struct {
	mu sync.Mutex
	ms []float64
}

func (s *samples) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ms = append(s.ms, float64(took)/float64(time.Millisecond))
}

// underLoad lets all clients resolve for some time: hot chains and, if kinds is 2, as often cold ones. It returns the first error.
func (b *bench) underLoad(ctx context.Context, stores []*store.Store, duration time.Duration, kinds int, all *samples) error {
	end := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(ctx)
	for c := range loadClients {
		group.Go(func() error {
			s, random := stores[c%len(stores)], rand.New(rand.NewPCG(1, uint64(c)))
			for time.Now().Before(end) {
				const chains = loadChains / loadNamespaces
				chain := random.IntN(chains) + chains*random.IntN(kinds)
				start := time.Now()
				history, err := s.Resolve(ctx, fmt.Sprintf("resp_c%d_%05d", chain, loadTurnsInChain-1), store.ResolveOptions{})
				if err != nil {
					return err
				}
				all.add(time.Since(start))
				if len(history.Turns) != loadTurnsInChain {
					return fmt.Errorf("got turns %s, want %d", slices.Clone(history.Turns), loadTurnsInChain)
				}
			}
			return nil
		})
	}
	return group.Wait()
}
