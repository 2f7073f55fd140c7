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

// Package resolve finds the whole history of a turn: it walks the chain in the watched view of the sessions, confirms
// with live reads what it would answer as an error, and reads the turns' items through a bounded cache.
package resolve

import (
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
)

// Query says which history is asked for.
type Query struct {
	// MaxDepth is how many turns the chain may have. Zero and less fail every query.
	MaxDepth int
	// IncludeIncomplete lets turns pass that are not completed.
	IncludeIncomplete bool
	// MinResourceVersion is the resource version that the answer must at least reflect, zero for any.
	MinResourceVersion uint64
}

// History is the answer to a Query. It is shared with a cache: read it, do not change it.
type History struct {
	// Name and UID are those of the ResponseSession asked for.
	Name string
	UID  types.UID
	// ResponseID is the response ID asked for.
	ResponseID string
	// Turns are the turns of the chain, oldest first.
	Turns []history.TurnItems

	memory memory
}

// Release gives back the memory that the history is counted with. It may be called more than once.
func (h *History) Release() { h.memory.release() }

// memory is what one history holds of the bytes that all queries may hold together.
type memory struct {
	inFlight *semaphore.Weighted // nil for a history that is not counted
	limit    int64

	mu    sync.Mutex
	taken int64
}

// take counts a turn's items.
func (m *memory) take(items *chain.Items) error {
	size := int64(items.Size())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken+size > m.limit {
		return fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, m.limit)
	}
	if !m.inFlight.TryAcquire(size) {
		return ErrBusy
	}
	m.taken += size
	return nil
}

func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken > 0 {
		m.inFlight.Release(m.taken)
	}
	m.taken = 0
}
