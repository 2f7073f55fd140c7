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

package resolve

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/fair"
)

// turnOverhead is the approximate memory that a query needs for each turn of its history besides the items.
const turnOverhead = 128

// digestOverhead is the memory that the digest of a turn takes in an answer.
const digestOverhead = 96

// shared holds the items of all histories in flight. A turn is read once and counted once, no matter how many queries hold it:
// it counts for the first one, as long as any query holds it. It is safe for concurrent use.
type shared struct {
	bytes *fair.Budget // by namespace
	share int64        // the most that a namespace can hold

	reads sharedReads

	mu    sync.Mutex
	turns map[cacheKey]*heldTurn
}

type heldTurn struct {
	items   *chain.Items
	queries int
}

// sharedReads tracks the reads in progress, so that callers that need the same items wait for one read. The zero value is ready to use. It is
// safe for concurrent use.
type sharedReads struct {
	mu    sync.Mutex
	reads map[cacheKey]*sharedRead
}

// sharedRead is a read in progress. What follows done is valid after it.
type sharedRead struct {
	done chan struct{}
	// items are those that share has read, nil if that failed.
	items *chain.Items
	// failed is set if holding.lead has failed to read, unless its context was canceled.
	failed bool
}

func newShared(bytes, share int64) *shared {
	return &shared{bytes: fair.NewCappedBudget(bytes, share), share: share, turns: map[cacheKey]*heldTurn{}}
}

// begin returns the read in progress for a key. If there is none, it returns nil, and the caller must read and then call end.
func (s *sharedReads) begin(key cacheKey) *sharedRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read := s.reads[key]; read != nil {
		return read
	}
	if s.reads == nil {
		s.reads = map[cacheKey]*sharedRead{}
	}
	s.reads[key] = &sharedRead{done: make(chan struct{})}
	return nil
}

func (s *sharedReads) end(key cacheKey, items *chain.Items, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read := s.reads[key]
	read.items, read.failed = items, failed
	close(read.done)
	delete(s.reads, key)
}

// share waits for a read in progress and returns its items. If there is none, or if it fails, share calls read.
func (s *sharedReads) share(ctx context.Context, key cacheKey, read func() (*chain.Items, error)) (items *chain.Items, err error) {
	if other := s.begin(key); other == nil {
		defer func() { s.end(key, items, false) }()
	} else if items, err := other.wait(ctx); items != nil || err != nil {
		return items, err
	}
	return read()
}

// await waits for a read in progress and returns its items. It returns nil if there is no such read, or if it fails.
func (s *sharedReads) await(ctx context.Context, key cacheKey) (*chain.Items, error) {
	s.mu.Lock()
	other := s.reads[key]
	s.mu.Unlock()
	if other == nil {
		return nil, nil
	}
	return other.wait(ctx)
}

// wait returns the items of a read once it has ended, or nil if it has failed.
func (r *sharedRead) wait(ctx context.Context) (*chain.Items, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return r.items, nil
	}
}

// holding is the part of its namespace's share of the bytes that one query holds.
type holding struct {
	*shared
	namespace string
	limit     int64 // of a history

	mu       sync.Mutex
	size     int64 // of the items
	overhead int64
	turns    []cacheKey
	released bool
}

// tooLarge returns ErrTooLarge if an answer alone would have more bytes than a namespace can hold.
func (s *shared) tooLarge(bytes int64) error {
	if bytes > s.share {
		return fmt.Errorf("%w: it takes %d bytes of memory, and a namespace can have %d, a third of --max-inflight-bytes", ErrTooLarge, bytes, s.share)
	}
	return nil
}

// hold returns the holding of a query for a history with a number of turns, each of which takes an overhead, ErrTooLarge or ErrBusy. It must be released.
func (s *shared) hold(namespace string, turns int, perTurn, limit int64) (*holding, error) {
	overhead := int64(turns) * perTurn
	if !s.bytes.TryAcquire(namespace, overhead) {
		return nil, cmp.Or(s.tooLarge(overhead), ErrBusy)
	}
	return &holding{shared: s, namespace: namespace, limit: limit, overhead: overhead, turns: make([]cacheKey, 0, turns)}, nil
}

// take counts the items of a turn, and returns the counted items. They differ from the given ones if another query holds the
// turn. Without items, it returns nil if no query holds the turn.
func (h *holding) take(key cacheKey, items *chain.Items) (*chain.Items, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	held := h.shared.turns[key]
	if held != nil {
		items = held.items
	}
	if items == nil {
		return nil, nil
	}
	size := int64(items.Size())
	if h.size+size > h.limit {
		return nil, fmt.Errorf("%w: the history has more than %d bytes, the limit of --max-history-bytes", ErrTooLarge, h.limit)
	}
	if held == nil {
		if !h.bytes.TryAcquire(h.namespace, size) {
			return nil, cmp.Or(h.tooLarge(h.size+h.overhead+size), ErrBusy)
		}
		held = &heldTurn{items: items}
		h.shared.turns[key] = held
	}
	held.queries++
	h.size += size
	h.turns = append(h.turns, key)
	return items, nil
}

// read takes the items of a turn, which cached returns if they are cached, and read otherwise. While another query reads the
// same turn, it waits for that read, and takes over if the read is canceled.
func (h *holding) read(ctx context.Context, key cacheKey, cached func() *chain.Items, read func() (*chain.Items, error)) (*chain.Items, error) {
	if items, err := h.take(key, cached()); items != nil || err != nil {
		return items, err
	}
	for {
		other := h.reads.begin(key)
		if other == nil {
			return h.lead(ctx, key, cached, read)
		}
		if _, err := other.wait(ctx); err != nil {
			return nil, err
		}
		if other.failed { // perhaps because of a state of the session that was replaced before this query began
			return h.readAndTake(key, read)
		}
	}
}

// lead performs a read that other queries may wait for.
func (h *holding) lead(
	ctx context.Context, key cacheKey, cached func() *chain.Items, read func() (*chain.Items, error),
) (*chain.Items, error) {
	failed := false
	defer func() { h.reads.end(key, nil, failed) }()
	if items, err := h.take(key, cached()); items != nil || err != nil {
		return items, err
	}
	return h.readAndTake(key, func() (*chain.Items, error) {
		items, err := read()
		failed = err != nil && ctx.Err() == nil
		return items, err
	})
}

func (h *holding) readAndTake(key cacheKey, read func() (*chain.Items, error)) (*chain.Items, error) {
	items, err := read()
	if err != nil {
		return nil, err
	}
	return h.take(key, items)
}

// reserve counts bytes besides the items. It returns ErrTooLarge if the query alone would have more than a namespace can hold.
func (h *holding) reserve(bytes int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return ErrBusy
	}
	if !h.bytes.TryAcquire(h.namespace, bytes) {
		return cmp.Or(h.tooLarge(h.size+h.overhead+bytes), ErrBusy)
	}
	h.overhead += bytes
	return nil
}

// release returns the held bytes. It may be called more than once.
func (h *holding) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	bytes := h.overhead
	for _, key := range h.turns {
		held := h.shared.turns[key]
		if held.queries--; held.queries == 0 {
			bytes += int64(held.items.Size())
			delete(h.shared.turns, key)
		}
	}
	if bytes > 0 {
		h.bytes.Release(h.namespace, bytes)
	}
	h.overhead, h.turns, h.size, h.released = 0, nil, 0, true
}
