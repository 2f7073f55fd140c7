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

// codeOverloaded is the error code for a tenant that has reached its share of a limit.
const codeOverloaded = "overloaded"

// callBytes is the memory that every call takes besides its bodies: goroutines and the buffers of two connections.
const callBytes = 128 << 10

// share is the part of a shared limit that one call holds. It is safe for concurrent use.
type share struct {
	limit  *sharedLimit
	tenant string

	mu   sync.Mutex
	held int64
	// reserved is the number of units held for later use, and spare the number of them that are not in use.
	reserved, spare int64
	// ended is set once the call has ended. After that, it cannot acquire units.
	ended bool
}

// sharedLimit is a limit that is shared by all tenants.
type sharedLimit struct {
	budget *fair.Budget
	// perTenant is the maximum that one tenant can hold at the same time.
	perTenant int64
	// flag and resource describe the limit in errors.
	flag, resource string
}

func newSharedLimit(units int64, flag, resource string) *sharedLimit {
	return &sharedLimit{budget: fair.NewBudget(units), perTenant: units / 2, flag: flag, resource: resource}
}

// of returns an empty share for a new call of a tenant.
func (l *sharedLimit) of(tenant string) *share { return &share{limit: l, tenant: tenant} }

// refused returns the error for a tenant that has reached the limit.
func (l *sharedLimit) refused() *apiError {
	e := temporaryError(codeOverloaded, fmt.Sprintf("Your share of the gateway's %s is used up (%s); retry later.", l.resource, l.flag), nil)
	e.status = http.StatusTooManyRequests
	return e
}

// take acquires units until the call ends or they are given back. It returns an error if they are not available to the tenant
// now. The error is final if the call alone would exceed the maximum of a tenant. It never blocks: calls that hold units would
// wait for each other.
//
// Reserved units are used first.
func (s *share) take(units int64) error { return s.use(units, s.limit.budget.TryAcquire) }

// begin is like take, for a call that can still be rejected without losing work. It leaves part of the tenant's share to calls
// whose engine has started.
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

// reserve acquires units for later use by the call. Reserved units that are given back become spare again.
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
	if s.holds()+units > s.limit.perTenant {
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

// give returns units.
func (s *share) give(units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	units = min(units, s.held-s.spare)
	spare := min(units, s.reserved-s.spare)
	s.spare += spare
	s.release(units - spare)
}

// release returns units that are not in use. The caller holds the lock.
func (s *share) release(units int64) {
	if units > 0 {
		s.held -= units
		s.limit.budget.Release(s.tenant, units)
	}
}

// moveTo makes all units those of another call of the tenant, which has not ended.
func (s *share) moveTo(other *share) {
	s.mu.Lock()
	units := s.held
	s.held = 0
	s.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	other.held += units
}

// end returns all units.
func (s *share) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.reserved, s.spare = 0, 0
	s.release(s.held)
}

// admit counts a call as in flight for its tenant and holds the memory that every call takes.
func (g *Gateway) admit(c *call) error {
	c.requests, c.streams, c.memory = g.requests.of(c.store.Namespace()), g.streams.of(c.store.Namespace()), g.memory.of(c.store.Namespace())
	if err := c.requests.take(1); err != nil {
		return err
	}
	return c.memory.begin(callBytes)
}

// release returns everything that a call holds.
func (c *call) release() {
	if c.memory == nil {
		return // it was not admitted
	}
	c.memory.end()
	c.streams.end()
	c.requests.end()
}

// hold reserves memory before the call allocates it. Once the engine has been called, the reserve for its response is used
// first. If the response needs more than the reserve and the free memory, it is lost.
func (c *call) hold(bytes int64) error {
	if !c.engineCalled {
		return c.memory.begin(bytes)
	}
	err := c.memory.take(bytes)
	if e, ok := errors.AsType[*apiError](err); ok && e.code == codeOverloaded {
		e.message = "The response exceeds the memory reserved for it (--response-reserve-bytes), and your share of the gateway's " +
			"memory is used up (--max-inflight-bytes)."
	}
	return err
}

// readAll reads a body and holds twice its size: once for the body, and once for the data derived from it.
func (c *call) readAll(r io.Reader) ([]byte, error) { return readAll(r, c.memory, c.hold) }

// readAll is call.readAll for a share, whose units hold acquires.
func readAll(r io.Reader, s *share, hold func(bytes int64) error) ([]byte, error) {
	taken := int64(0)
	body, err := metered.ReadAll(r, func(bytes int64) error {
		err := hold(bytes)
		if err == nil {
			taken += bytes
		}
		return err
	})
	s.give(taken - 2*int64(len(body)))
	return body, err
}

// read reads from the store and holds the memory that this takes. After it returns, only the size of the result remains held.
func read[T any](ctx context.Context, c *call, get func(context.Context) (T, error), size func(T) int64) (T, error) {
	var taken atomic.Int64
	result, err := get(metered.With(ctx, func(bytes int64) error {
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

// readOne is read within the tenant's share of Options.MaxReads, for which it waits. get must wait for nothing but the store. Reads are shared
// because every step of other requests slows down while one tenant reads much at once.
func readOne[T any](ctx context.Context, c *call, get func(context.Context) (T, error), size func(T) int64) (result T, err error) {
	tenant := c.store.Namespace()
	if err := c.reads.all.Acquire(ctx, tenant, 1); err != nil {
		return result, err
	}
	defer c.reads.all.Release(tenant, 1)
	return read(ctx, c, get, size)
}

// readObjects is readOne for an operation on objects, such as that of a conversation, and waits until they may be as large as others that the
// tenant has just read or changed. In a cluster they come from the kube-apiserver, which does not share out its CPUs among namespaces as the operator
// does for histories, and whose client notes how large they are: see handle.
func readObjects[T any](ctx context.Context, c *call, get func(context.Context) (T, error), size func(T) int64) (result T, err error) {
	end, err := c.reads.begin(ctx, c.store.Namespace())
	if err != nil {
		return result, err
	}
	defer end(0)
	return readOne(ctx, c, get, size)
}

// readStored is readObjects for one object, whose bodies count too, wherever they are stored.
func readStored[T any](ctx context.Context, c *call, get func(context.Context) (T, error), size func(T) int64) (result T, err error) {
	end, err := c.reads.begin(ctx, c.store.Namespace())
	if err != nil {
		return result, err
	}
	var bytes, taken atomic.Int64
	defer func() { end(max(bytes.Load(), taken.Load()/readFactor)) }() // also of what is not kept, as metadata is not
	counted := func(ctx context.Context) (T, error) {
		return get(metered.With(ctx, func(bytes int64) error {
			taken.Add(bytes)
			return metered.Take(ctx, bytes)
		}))
	}
	return readOne(ctx, c, counted, func(result T) int64 {
		bytes.Store(size(result))
		return bytes.Load()
	})
}

// readFactor is about how many times its size the memory is that is taken to read an object, also if that fails in the end.
const readFactor = 3

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

// responseMemory returns the memory for a response with the given number of bytes until the client has received it. The worst case is a
// stream: an event whose size is unknown while it is read, the same data as an item and as a response, the response with that item, and
// what the client sees of it, also as an event.
func responseMemory(bytes int64) int64 { return (2*eventMemoryFactor + 7) * bytes }

// reserveResponse reserves the memory for a response of up to Options.ResponseReserveBytes. Once a request has reached the
// engine, a response of that size is never lost for lack of memory.
func (g *Gateway) reserveResponse(c *call, request *createRequest) error {
	return c.memory.reserve(g.options.reserve(int64(len(request.body)), request.store))
}

// saveMemory returns the memory that a store takes to save bodies: two copies while pieces are joined, or a few parts that are sent at
// the same time.
func saveMemory(bodies int64) int64 {
	const parts = 10 << 20
	return 2*bodies + min(6*bodies, parts)
}
