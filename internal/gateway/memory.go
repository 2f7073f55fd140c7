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
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store"
)

// codeOverloaded is the code of the error of a tenant that has reached its share of a limit.
const codeOverloaded = "overloaded"

// callBytes is the memory that every call takes besides its bodies: the buffers of two connections and their goroutines.
const callBytes = 128 << 10

// share is what one call holds of a limit that tenants share. It is safe for concurrent use.
type share struct {
	limit  *sharedLimit
	tenant string

	mu   sync.Mutex
	held int64
	// reserved is how much is held for what is taken later, and spare the part of it that is not in use.
	reserved, spare int64
	// ended is set once the call has ended. Nothing can be held any more.
	ended bool
}

// sharedLimit is a limit that tenants share.
type sharedLimit struct {
	budget *fair.Budget
	// most is how much one tenant can hold at the same time.
	most int64
	// flag and what name the limit in errors.
	flag, what string
}

func newSharedLimit(units int64, flag, what string) *sharedLimit {
	return &sharedLimit{budget: fair.NewBudget(units), most: units / 2, flag: flag, what: what}
}

// of returns what a new call of a tenant holds: nothing yet.
func (l *sharedLimit) of(tenant string) *share { return &share{limit: l, tenant: tenant} }

// refused returns the error of a tenant that has reached the limit.
func (l *sharedLimit) refused() *apiError {
	e := temporaryError(codeOverloaded, fmt.Sprintf("Your requests take too %s of the gateway (%s); retry later.", l.what, l.flag), nil)
	e.status = http.StatusTooManyRequests
	return e
}

// take takes units until the call ends or they are given back. It returns an error if the tenant cannot get them now. The
// error is final if the call would hold more than one tenant may. It never waits: calls that hold units would wait for each other.
//
// Units that are reserved are used first.
func (s *share) take(units int64) error { return s.use(units, s.limit.budget.TryAcquire) }

// begin is take for a call that can still be refused without loss. It leaves part of the tenant's share for calls whose engine
// has begun.
func (s *share) begin(units int64) error { return s.use(units, s.tryBegin) }

func (s *share) tryBegin(tenant string, units int64) bool {
	return s.limit.budget.TryBegin(tenant, s.holds(), units)
}

func (s *share) use(units int64, try func(tenant string, units int64) bool) error {
	s.mu.Lock()
	spare := min(s.spare, units)
	s.spare -= spare
	s.mu.Unlock()
	err := s.acquire(units-spare, try)
	if err != nil {
		s.mu.Lock()
		s.spare += spare
		s.mu.Unlock()
	}
	return err
}

// reserve begins to hold units for what the call takes later. Those that are given back are spare again.
func (s *share) reserve(units int64) error {
	if err := s.acquire(units, s.tryBegin); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved += units
	s.spare += units
	return nil
}

func (s *share) holds() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *share) acquire(units int64, try func(tenant string, units int64) bool) error {
	if s.holds()+units > s.limit.most {
		return invalidRequest("", string(store.CodeTooLarge), "The request or its conversation is too large for the gateway (%s).", s.limit.flag)
	}
	if units > 0 && !try(s.tenant, units) {
		return s.limit.refused()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		s.limit.budget.Release(s.tenant, units)
		return errors.New("the call has ended")
	}
	s.held += units
	return nil
}

// give gives units back.
func (s *share) give(units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	units = min(units, s.held-s.spare)
	spare := min(units, s.reserved-s.spare)
	s.spare += spare
	s.release(units - spare)
}

// release gives units back that are not in use. The lock is held.
func (s *share) release(units int64) {
	if units > 0 {
		s.held -= units
		s.limit.budget.Release(s.tenant, units)
	}
}

// end gives everything back.
func (s *share) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.reserved, s.spare = 0, 0
	s.release(s.held)
}

// admit counts a call of a tenant as in flight, with the memory that every call takes.
func (g *Gateway) admit(c *call) error {
	c.requests, c.streams, c.memory = g.requests.of(c.store.Namespace()), g.streams.of(c.store.Namespace()), g.memory.of(c.store.Namespace())
	if err := c.requests.take(1); err != nil {
		return err
	}
	return c.memory.begin(callBytes)
}

// release gives back all that a call holds.
func (c *call) release() {
	if c.memory == nil {
		return // it was not admitted
	}
	c.memory.end()
	c.streams.end()
	c.requests.end()
}

// hold counts memory before the call takes it. Once the engine was called, what was reserved for its response is used first; if
// the response needs more than that and than is free, it is lost.
func (c *call) hold(bytes int64) error {
	if !c.engineCalled {
		return c.memory.begin(bytes)
	}
	err := c.memory.take(bytes)
	if e, ok := errors.AsType[*apiError](err); ok && e.code == codeOverloaded {
		e.message = "The response is larger than what was reserved for it (--response-reserve-bytes), and your requests take too much " +
			"memory of the gateway (--max-inflight-bytes)."
	}
	return err
}

// readAll reads a body and holds twice its size: for the body, and for what is made of it.
func (c *call) readAll(r io.Reader) ([]byte, error) {
	taken := int64(0)
	body, err := metered.ReadAll(r, func(bytes int64) error {
		err := c.hold(bytes)
		if err == nil {
			taken += bytes
		}
		return err
	})
	c.memory.give(taken - 2*int64(len(body)))
	return body, err
}

// read reads from the store and counts the memory that this takes. Afterwards the size of the result remains held.
func read[T any](ctx context.Context, c *call, read func(context.Context) (T, error), size func(T) int64) (T, error) {
	var taken atomic.Int64
	result, err := read(metered.With(ctx, func(bytes int64) error {
		if err := c.hold(bytes); err != nil {
			return err
		}
		taken.Add(bytes)
		return nil
	}))
	remaining := int64(0)
	if err == nil {
		remaining = size(result)
	}
	if more := remaining - taken.Load(); more > 0 {
		return result, c.hold(more) // the store does not count
	}
	c.memory.give(taken.Load() - remaining)
	return result, err
}

// sessionBytes returns the memory of a session.
func sessionBytes(s *store.Session) int64 {
	return int64(len(s.Request) + len(s.Response) + len(s.Metadata))
}

// historyBytes returns the memory of a history.
func historyBytes(h *store.History) (bytes int64) {
	const slice = 24
	for _, item := range h.Items {
		bytes += int64(len(item)) + slice
	}
	return bytes
}

// answerCosts returns the memory for an answer of a number of bytes, until its turn is saved. The most is that of a stream: an
// event whose size is not known while it is read, the same as an item and as a response, and the response with that item.
func answerCosts(bytes int64) int64 { return (2*eventCosts + 5) * bytes }

// reserveAnswer holds what an answer of up to Options.ResponseReserveBytes will need. So such an answer to a request that gets as
// far as the engine is never lost for lack of memory.
func (g *Gateway) reserveAnswer(c *call, request *createRequest) error {
	return c.memory.reserve(g.options.reserve(int64(len(request.body)), request.store))
}

// saveCosts returns the memory that a store takes to save bodies: a copy in one piece, and a compressed one that is sent in
// parts, of which a few are encoded at once.
func saveCosts(bodies int64) int64 {
	const parts = 10 << 20
	return 2*bodies + min(6*bodies, parts)
}
