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
	"sync"

	"k8s.io/utils/lru"

	"github.com/catena-dev/catena/internal/fair"
)

const (
	// readUnit is the memory for which a read counts as one more. Most reads take two to three times the bytes that they read.
	readUnit = 256 << 10
	// maxReadPart is the part of Options.MaxReads as which a read counts at most. A tenant whose reads count as a third has one at a time.
	maxReadPart = 3
	// readTenants is the number of tenants whose reads are remembered.
	readTenants = 1024
)

// reads shares out the reads from the store among tenants. How large a read is becomes known only when the store has done its work, so
// it counts as the last ones of its tenant on average. It is safe for concurrent use.
type reads struct {
	limit  int64 // Options.MaxReads
	budget *fair.Budget

	mu      sync.Mutex
	average *lru.Cache // of the memory of a read, in bytes as int64, by tenant
}

// newReads returns the reads of Options.MaxReads.
func newReads(limit int64) *reads {
	return &reads{limit: limit, budget: fair.NewBudget(limit), average: lru.New(readTenants)}
}

// begin waits until a tenant may read, and returns the function that must be called once, with the memory that the read has taken, when it
// has ended. It returns the error of the context if that is done first.
func (r *reads) begin(ctx context.Context, tenant string) (end func(bytes int64), err error) {
	units := min(1+r.averageOf(tenant)/readUnit, max(r.limit/maxReadPart, 1))
	if err := r.budget.Acquire(ctx, tenant, units); err != nil {
		return nil, err
	}
	return func(bytes int64) {
		r.note(tenant, bytes)
		r.budget.Release(tenant, units)
	}, nil
}

func (r *reads) averageOf(tenant string) int64 {
	average, _ := r.average.Get(tenant)
	bytes, _ := average.(int64)
	return bytes
}

func (r *reads) note(tenant string, bytes int64) {
	const weight = 4 // of what is known against the last read
	r.mu.Lock()
	defer r.mu.Unlock()
	average := r.averageOf(tenant)
	r.average.Add(tenant, average+(bytes-average)/weight)
}
