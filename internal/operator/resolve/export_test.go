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
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// GetID is getID for a read that has been paid for.
func (r *Reader) GetID(ctx context.Context, namespace, id string) (*sessions.Record, *chain.Items, error) {
	return r.getID(ctx, namespace, id, free)
}

// SetClient replaces the client of a reader.
func (r *Reader) SetClient(client rest.Interface) { r.client = client }

// CachedBytes returns the size of the cache.
func (r *Reader) CachedBytes() int64 { return r.cache.Used() }

// SetWaits sets how many turns are confirmed without waiting for the view, and how long a query waits for the view and for the
// rate of its namespace.
func (r *Resolver) SetWaits(immediate int, view, rate time.Duration) {
	r.waits = waits{immediate, view, rate}
}

// Waiting returns the number of queries that wait because their namespaces exceed their rates of answers.
func (r *Resolver) Waiting() int64 { return r.answers.waiting.Used() }

// HoldWalks takes as many walks for a namespace as it may have in progress, as walks along deep chains do.
func (r *Resolver) HoldWalks(namespace string) (release func()) {
	var held int64
	for r.walks.TryAcquire(namespace, 1) {
		held++
	}
	return func() { r.walks.Release(namespace, held) }
}

// Process calls compute with a processor.
func (r *Resolver) Process(ctx context.Context, namespace string, compute func()) error {
	return r.process(ctx, namespace, compute)
}

// HoldAllWalksButOne takes them for other namespaces.
func (r *Resolver) HoldAllWalksButOne() (release func()) {
	held := 0
	name := func() string { return fmt.Sprint("other-", held) }
	for r.walks.TryAcquire(name(), 1) {
		held++
	}
	give := func() {
		held--
		r.walks.Release(name(), 1)
	}
	give()
	return func() {
		for held > 0 {
			give()
		}
	}
}

// TurnOverhead is the number of bytes that a query counts for each turn in addition to the items.
const TurnOverhead = turnOverhead

// ForgiveAnswers returns the time for which a namespace is ahead of its rate of answers, and lets it answer at once again.
func (r *Resolver) ForgiveAnswers(namespace string) time.Duration {
	l := &lookup{Resolver: r, namespace: namespace}
	ahead := r.answers.delay(l, 0)
	r.answers.forget(l)
	r.answers.pace.Refund(namespace, ahead)
	return ahead
}

// Digest computes the digests of turns.
func (r *Resolver) Digest(ctx context.Context, namespace string, turns []history.TurnItems) error {
	return (&lookup{Resolver: r, namespace: namespace}).digest(ctx, turns)
}

// Bytes returns the size for which the history of a turn counts.
func (r *Resolver) Bytes(record *sessions.Record) int64 {
	return (&lookup{Resolver: r, namespace: record.Namespace, query: Query{Digests: true}}).bytes(record)
}
