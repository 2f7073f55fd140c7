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
	"math"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/catena-dev/catena/internal/fair"
)

const (
	// readUnit is the size of an object for which it counts as one more.
	readUnit = 128 << 10
	// maxReadPart limits the objects that one tenant reads at once to 1/maxReadPart of Options.MaxReads.
	maxReadPart = 3
	// readHalfLife is the time after which an object that was read counts as half as large for the next ones.
	readHalfLife = time.Second
	// readTenants is the number of tenants whose reads are remembered.
	readTenants = 1024
)

// reads shares out the reads from the store among tenants. How large an object is becomes known only when the store has done its work, so it is
// expected to be as large as the largest one that its tenant has just read. It is safe for concurrent use.
type reads struct {
	// all has the units of Options.MaxReads, one for each read.
	all *fair.Budget
	// objects limits each tenant separately: the objects that it reads at once, counted by size, may have up to this many units.
	objects *fair.Budget
	most    int64
	now     func() time.Time

	mu   sync.Mutex
	last *lru.Cache // the lastRead of each tenant
}

// lastRead is an object that was read.
type lastRead struct {
	bytes int64
	at    time.Time
}

// newReads returns the reads of Options.MaxReads. If there is only one tenant, it does not matter how large objects are.
func newReads(limit int64, tenants bool) *reads {
	most := int64(math.MaxInt32)
	if tenants {
		most = max(limit/maxReadPart, 1)
	}
	return &reads{all: fair.NewBudget(limit), objects: fair.NewCappedBudget(math.MaxInt64, most), most: most, now: time.Now, last: lru.New(readTenants)}
}

// begin waits until a tenant may read another object, beside those that it reads, and returns the function that must be called once, with
// the size of the object in bytes, when it has been read. It returns the error of the context if that is done first.
func (r *reads) begin(ctx context.Context, tenant string) (end func(bytes int64), err error) {
	for {
		units := r.expected(tenant)
		if err := r.objects.Acquire(ctx, tenant, units); err != nil {
			return nil, err
		}
		if r.expected(tenant) <= units {
			return func(bytes int64) {
				r.note(tenant, bytes)
				r.objects.Release(tenant, units)
			}, nil
		}
		r.objects.Release(tenant, units) // a large object was read while it waited
	}
}

// expected returns the number of units for the next object of a tenant.
func (r *reads) expected(tenant string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(1+r.lastOf(tenant)/readUnit, r.most)
}

// lastOf returns the expected size of a tenant's next object, in bytes.
func (r *reads) lastOf(tenant string) int64 {
	value, _ := r.last.Get(tenant)
	last, _ := value.(lastRead)
	return last.bytes >> min(r.now().Sub(last.at)/readHalfLife, 62)
}

// note records the size of an object that was read.
func (r *reads) note(tenant string, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes = min(bytes, r.most*readUnit); bytes >= max(r.lastOf(tenant), readUnit) {
		r.last.Add(tenant, lastRead{bytes, r.now()})
	}
}
