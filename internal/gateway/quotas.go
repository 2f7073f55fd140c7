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
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/catena-dev/catena/store"
)

const (
	// quotaAge is how long the result of a quota check is cached. The operator updates the usage every 3 s.
	quotaAge = time.Second
	// quotaTimeout is how long a request waits for a quota check. After that it continues: a save beyond the quota is rejected
	// later.
	quotaTimeout = 5 * time.Second
)

// quotas caches which namespaces have reached their quota. It is safe for concurrent use.
type quotas struct {
	now   func() time.Time
	reads singleflight.Group

	mu sync.Mutex
	// results has the last result for each namespace that has saved a turn. The tenants file limits their number.
	results map[string]quotaResult
}

type quotaResult struct {
	err   error
	until time.Time
}

func newQuotas() *quotas { return &quotas{now: time.Now, results: map[string]quotaResult{}} }

// check returns the result of store.CheckQuota, at most quotaAge old. Concurrent calls share one read.
func (q *quotas) check(ctx context.Context, s *store.Store) error {
	if answer := q.get(s.Namespace()); q.now().Before(answer.until) {
		return answer.err
	}
	_, err, _ := q.reads.Do(s.Namespace(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quotaTimeout) // other calls may wait for the result
		defer cancel()
		err := s.CheckQuota(ctx)
		q.put(s.Namespace(), quotaResult{err: err, until: q.now().Add(quotaAge)})
		return nil, err
	})
	return err
}

func (q *quotas) get(namespace string) quotaResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.results[namespace]
}

func (q *quotas) put(namespace string, result quotaResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.results[namespace] = result
}

// checkQuota returns an error if the turn of a request could not be saved because its tenant has reached its quota: the model
// must not run for such a request.
func (g *Gateway) checkQuota(ctx context.Context, c *call, request *createRequest) error {
	if !request.store {
		return nil
	}
	if err := g.quotas.check(ctx, c.store); errors.Is(err, store.ErrQuotaExceeded) {
		return quotaError(err)
	}
	return nil
}
