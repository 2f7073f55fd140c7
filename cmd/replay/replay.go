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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/recorded"
	"github.com/catena-dev/catena/store"
)

// replay is the state of one run.
type replay struct {
	*options
	target *store.Store
	ids    *identities
	start  time.Time

	mu sync.Mutex
	report
}

func newReplay(o *options, target *store.Store) *replay {
	return &replay{options: o, target: target, ids: newIdentities(), start: time.Now()}
}

// chain holds the turns of a chain, which have not been stored yet.
type chain struct {
	turns []*recorded.Turn
	ids   []string
}

// replay reads all turns, and stores and checks them concurrently.
func (r *replay) replay(ctx context.Context, turns *recorded.Reader) error {
	group, ctx := errgroup.WithContext(ctx)
	chains := make(chan *chain)
	group.Go(func() error {
		defer close(chains)
		return r.read(ctx, turns, chains)
	})
	for range r.workers {
		group.Go(func() error {
			for c := range chains {
				if err := r.play(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// read groups the turns that are not too large into chains.
func (r *replay) read(ctx context.Context, turns *recorded.Reader, chains chan<- *chain) error {
	next := &chain{}
	send := func() error {
		select {
		case chains <- next:
			next = &chain{}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		t, err := turns.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		id := r.ids.choose(recordedID(t), t.Line)
		if size := len(t.Request) + len(t.Response); size > r.maxTurnBytes {
			r.skip(t, id, size)
			continue
		}
		r.add(func() { r.recorded++ })
		next.turns, next.ids = append(next.turns, t), append(next.ids, id)
		if len(next.turns) == r.chainLength {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if len(next.turns) == 0 {
		return nil
	}
	return send()
}

// play stores a chain, resolves it, and compares the result.
func (r *replay) play(ctx context.Context, c *chain) error {
	var want []any
	var ids []string
	last := ""
	for i, t := range c.turns {
		start := time.Now()
		stored, err := r.store(ctx, t, c.ids[i], last)
		if err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		took := time.Since(start)
		r.add(func() { r.stored, r.storing = r.stored+1, append(r.storing, took) })
		if err := r.compareStored(ctx, t, stored); err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		items, err := expectedItems(t)
		if err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		want, ids, last = append(want, items...), append(ids, stored), stored
	}
	start := time.Now()
	// Recorded turns may have the status queued.
	h, err := r.target.Resolve(ctx, last, store.ResolveOptions{IncludeIncomplete: true, MaxDepth: new(max(r.chainLength, store.DefaultMaxDepth))})
	if err != nil {
		return err
	}
	took := time.Since(start)
	size := 0
	for _, item := range h.Items {
		size += len(item)
	}
	r.add(func() {
		r.chains, r.resolving = r.chains+1, append(r.resolving, took)
		r.items, r.bytes = r.items+len(h.Items), r.bytes+size
	})
	return r.compareHistory(h, ids, want)
}

// store saves a turn under its ID or, if that is taken, under another one, and returns the ID.
func (r *replay) store(ctx context.Context, t *recorded.Turn, id, previous string) (string, error) {
	for _, id := range []string{id, r.ids.other(id)} {
		session, err := sessionOf(t, id, previous)
		if err != nil {
			return "", err
		}
		if err = r.target.Save(ctx, session, store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
			return id, err
		}
	}
	return "", fmt.Errorf("response IDs %q and %q are taken", id, r.ids.other(id))
}

// compareStored compares the stored bodies with the recorded ones, byte by byte.
func (r *replay) compareStored(ctx context.Context, t *recorded.Turn, id string) error {
	stored, err := r.target.Get(ctx, id)
	if err != nil {
		return err
	}
	if !bytes.Equal(t.Request, stored.Request) || !bytes.Equal(t.Response, stored.Response) {
		r.differ(fmt.Sprintf("line %d, as stored in %s: the bytes differ", t.Line, id))
	}
	return nil
}

func (r *replay) compareHistory(h *store.History, ids []string, want []any) error {
	var turns, wantTurns, got []any
	for _, id := range h.Turns {
		turns = append(turns, id)
	}
	for _, id := range ids {
		wantTurns = append(wantTurns, id)
	}
	for _, raw := range h.Items {
		item, err := jsonvalue.Decode(raw)
		if err != nil {
			return err
		}
		got = append(got, item)
	}
	of := "history of " + ids[len(ids)-1] + ": "
	if d := jsonvalue.Difference("turns", wantTurns, turns); d != "" {
		r.differ(of + d)
	}
	if d := jsonvalue.Difference("input", want, got); d != "" {
		r.differ(of + d)
	}
	return nil
}
