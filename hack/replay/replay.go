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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
)

// replay is one run.
type replay struct {
	*options
	target *cluster
	ids    *identities
	start  time.Time

	mu sync.Mutex
	report
}

func newReplay(o *options, target *cluster) *replay {
	return &replay{options: o, target: target, ids: newIdentities(), start: time.Now()}
}

// conversation is a chain to be.
type conversation struct {
	turns []*turn
	ids   []string
}

// replay reads all turns, and stores and checks them as they come.
func (r *replay) replay(ctx context.Context, turns *turnReader) error {
	group, ctx := errgroup.WithContext(ctx)
	conversations := make(chan *conversation)
	group.Go(func() error {
		defer close(conversations)
		return r.read(ctx, turns, conversations)
	})
	for range r.workers {
		group.Go(func() error {
			for c := range conversations {
				if err := r.play(ctx, c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// read makes conversations of the turns that fit an object.
func (r *replay) read(ctx context.Context, turns *turnReader, conversations chan<- *conversation) error {
	next := &conversation{}
	send := func() error {
		select {
		case conversations <- next:
			next = &conversation{}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		t, err := turns.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		id := r.ids.choose(t.recordedID(), t.Line)
		size, err := r.size(t, id)
		if err != nil {
			return err
		}
		if size > r.maxTurnBytes {
			r.refuse(t, id, size)
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

// size returns how large the object of a turn is as it is sent.
func (r *replay) size(t *turn, id string) (int, error) {
	session, err := t.session(r.namespace, id, "")
	if err != nil {
		return 0, err
	}
	raw, err := json.Marshal(session)
	return len(raw), err
}

// play stores a conversation, resolves it, and compares.
func (r *replay) play(ctx context.Context, c *conversation) error {
	var want []any
	var ids []string
	var last *v1alpha1.ResponseSession
	for i, t := range c.turns {
		start := time.Now()
		stored, err := r.store(ctx, t, c.ids[i], last)
		if err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		took := time.Since(start)
		r.add(func() { r.stored, r.storing = r.stored+1, append(r.storing, took) })
		if err := r.compareStored(t, stored); err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		items, err := expectedItems(t)
		if err != nil {
			return fmt.Errorf("line %d: %w", t.Line, err)
		}
		want, ids, last = append(want, items...), append(ids, stored.Spec.ResponseID), stored
	}
	start := time.Now()
	h, size, err := r.target.get(ctx, last)
	if err != nil {
		return err
	}
	took := time.Since(start)
	r.add(func() {
		r.chains, r.resolving = r.chains+1, append(r.resolving, took)
		r.items, r.bytes = r.items+len(h.Input), r.bytes+size
	})
	return r.compareHistory(last, h, ids, want)
}

// store creates the object of a turn under its ID or, where that is taken, under another.
func (r *replay) store(ctx context.Context, t *turn, id string, parent *v1alpha1.ResponseSession) (*v1alpha1.ResponseSession, error) {
	for _, id := range []string{id, r.ids.other(id)} {
		previous := ""
		var owners []metav1.OwnerReference
		if parent != nil {
			previous, owners = parent.Spec.ResponseID, []metav1.OwnerReference{owner(parent)}
		}
		session, err := t.session(r.namespace, id, previous)
		if err != nil {
			return nil, err
		}
		session.OwnerReferences = owners
		if err = r.target.sessions.Create(ctx, session); !apierrors.IsAlreadyExists(err) {
			return session, err
		}
	}
	return nil, fmt.Errorf("response IDs %q and %q are taken", id, r.ids.other(id))
}

// compareStored compares the snapshots that the API server has stored with those that were recorded.
func (r *replay) compareStored(t *turn, stored *v1alpha1.ResponseSession) error {
	for name, pair := range map[string][2][]byte{
		"request":  {t.Request, stored.Spec.Request.Raw},
		"response": {t.Response, stored.Spec.Response.Raw},
	} {
		want, err := decode(pair[0])
		if err != nil {
			return err
		}
		got, err := decode(pair[1])
		if err != nil {
			return err
		}
		if d := difference(name, want, got); d != "" {
			r.differ(fmt.Sprintf("line %d, as stored in %s: %s", t.Line, stored.Name, d))
		}
	}
	return nil
}

func (r *replay) compareHistory(last *v1alpha1.ResponseSession, h *history, ids []string, want []any) error {
	var turns, wantTurns, got []any
	for _, id := range h.Turns {
		turns = append(turns, id)
	}
	for _, id := range ids {
		wantTurns = append(wantTurns, id)
	}
	for _, raw := range h.Input {
		item, err := decode(raw)
		if err != nil {
			return err
		}
		got = append(got, item)
	}
	of := "history of " + last.Spec.ResponseID + ": "
	if h.Metadata.UID != last.UID {
		r.differ(of + "it is that of another object")
	}
	if d := difference("turns", wantTurns, turns); d != "" {
		r.differ(of + d)
	}
	if d := difference("input", want, got); d != "" {
		r.differ(of + d)
	}
	return nil
}
