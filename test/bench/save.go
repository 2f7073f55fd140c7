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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
	"github.com/catena-dev/catena/store/memory"
	"github.com/catena-dev/catena/store/sqlite"
)

const (
	saveChains       = writers
	saveTurnsInChain = 16
)

// inlineExperiment saves turns of several sizes, with their bodies in the object and outside it, until all of them have
// verdicts. kube.DefaultInlineBytes was chosen by its results.
func inlineExperiment(ctx context.Context, b *bench) error {
	for _, kib := range []int{16, 64, 128, 256} {
		session := conversationTurn(kib << 10)
		inside := series{Name: "bodies in the object"}
		outside := series{Name: "bodies in chunks"}
		run := func(s *series, inline int) func() error {
			return func() error {
				rate, err := b.saveUntilVerdicts(ctx, session, inline)
				s.add(rate)
				return err
			}
		}
		if err := interleave(1+min(b.rounds, 2), run(&inside, 512<<10), run(&outside, -1)); err != nil {
			return err
		}
		for _, s := range []*series{&inside, &outside} {
			s.Samples = s.Samples[1:] // the first round only warms up connections and caches
		}
		b.logf("%d KiB: %.0f turns/s in the object, %.0f in chunks", kib, inside.median(), outside.median())
		b.compare(fmt.Sprintf("save turns of %d KiB in chunks until all have verdicts", kib), "turns/s", outside, inside, nil)
	}
	return nil
}

// saveUntilVerdicts returns the rate, in turns per second, at which concurrent writers save turns until all of them have
// verdicts.
func (b *bench) saveUntilVerdicts(ctx context.Context, session store.Session, inline int) (float64, error) {
	namespace := fmt.Sprintf("save-%d", time.Now().UnixNano())
	if err := b.createNamespace(ctx, namespace); err != nil {
		return 0, err
	}
	s, err := kube.Open(ctx, kube.Options{Config: b.env.Config, Namespace: namespace, InlineBytes: inline})
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	start := time.Now()
	if err := saveChainsOf(ctx, s, session); err != nil {
		return 0, err
	}
	if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, namespace, "status.rootResponseID="); err != nil {
		return 0, err
	}
	rate := saveChains * saveTurnsInChain / time.Since(start).Seconds()
	// Wait for garbage collection, so that every case starts with the same number of objects.
	if err := b.clear(ctx, namespace); err != nil {
		return 0, err
	}
	return rate, b.waitForNone(ctx, v1alpha1.SnapshotChunkKind, namespace, "")
}

// saveChainsOf saves saveChains chains of copies of a session, each with its own writer.
func saveChainsOf(ctx context.Context, s *store.Store, session store.Session) error {
	group, ctx := errgroup.WithContext(ctx)
	for c := range saveChains {
		group.Go(func() error {
			next := session
			for t := range saveTurnsInChain {
				next.PreviousResponseID = ""
				if t > 0 {
					next.PreviousResponseID = fmt.Sprintf("resp_c%d_%d", c, t-1)
				}
				next.ResponseID, next.Version = fmt.Sprintf("resp_c%d_%d", c, t), ""
				if err := s.Save(ctx, &next, store.SaveOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// conversationTurn returns a turn whose request and response have size bytes together. They compress to about a third, as
// conversations do.
func conversationTurn(size int) store.Session {
	w := newWords(uint64(size))
	return store.Session{
		Status:   store.StatusCompleted,
		Request:  fmt.Appendf(nil, `{"model":"bench","input":[{"role":"user","content":%q}]}`, w.text(size/2)),
		Response: fmt.Appendf(nil, `{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q}]}]}`, w.text(size/2)),
	}
}

// saveExperiment saves turns of 4 KiB with 16 writers through each driver, and with plain clients that create the same
// objects: one reads the metadata of each parent, one remembers its UID.
func saveExperiment(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := b.operator.Stop(); err != nil {
		return err // this experiment measures no verdicts
	}
	session := conversationTurn(writeSize)
	rate := func(s *series, save func(namespace string) error) func() error {
		return func() error {
			namespace := fmt.Sprintf("save-%d", time.Now().UnixNano())
			if err := b.createNamespace(ctx, namespace); err != nil {
				return err
			}
			start := time.Now()
			if err := save(namespace); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			s.add(saveChains * saveTurnsInChain / time.Since(start).Seconds())
			return nil
		}
	}
	through := func(open func(namespace string) (*store.Store, error)) func(string) error {
		return func(namespace string) error {
			s, err := open(namespace)
			if err != nil {
				return err
			}
			return errors.Join(saveChainsOf(ctx, s, session), s.Close())
		}
	}
	cluster := series{Name: "store/kube"}
	reading := series{Name: "a plain client that reads each parent's metadata"}
	knowing := series{Name: "a plain client that knows each parent's UID"}
	file := series{Name: "store/sqlite"}
	process := series{Name: "store/memory"}
	err = interleave(1+b.rounds,
		rate(&cluster, through(func(namespace string) (*store.Store, error) {
			return kube.Open(ctx, kube.Options{Config: b.env.Config, Namespace: namespace})
		})),
		rate(&reading, func(namespace string) error {
			return b.fillWith(ctx, namespace, saveChains, saveTurnsInChain, writeSize, b.readOwner)
		}),
		rate(&knowing, func(namespace string) error {
			return b.fill(ctx, namespace, saveChains, saveTurnsInChain, writeSize)
		}),
		rate(&file, through(func(namespace string) (*store.Store, error) {
			return sqlite.Open(ctx, filepath.Join(dir, namespace+".db"), sqlite.Options{})
		})),
		rate(&process, through(func(string) (*store.Store, error) { return memory.New(memory.Options{}), nil })),
	)
	if err != nil {
		return err
	}
	for _, s := range []*series{&cluster, &reading, &knowing, &file, &process} {
		s.Samples = s.Samples[1:] // the first round only warms up connections and caches
	}
	b.compare("save with store/kube, 16 writers", "turns/s", cluster, reading, atLeast(0.95))
	b.compare("save with store/kube, 16 writers", "turns/s", cluster, knowing, nil)
	b.compare("save with store/sqlite, 16 writers", "turns/s", file, cluster, nil)
	b.compare("save with store/memory, 16 writers", "turns/s", process, cluster, nil)
	return nil
}
