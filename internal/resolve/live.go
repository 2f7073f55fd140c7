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
	"errors"
	"fmt"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/sessions"
)

// The defaults of Options.
const (
	DefaultCacheBytes    = 256 << 20
	DefaultHistoryBytes  = 64 << 20
	DefaultInFlightBytes = 256 << 20
	DefaultLiveReads     = 32
)

// readsPerQuery is how many of the live reads one query may have under way, so that a long chain does not keep others
// waiting.
const readsPerQuery = 8

// Options bound what a Resolver uses.
type Options struct {
	// CacheBytes is how many bytes of items are kept in memory.
	CacheBytes uint64
	// HistoryBytes is how many bytes of items one history may have. A larger one is answered with ErrTooLarge.
	HistoryBytes int64
	// InFlightBytes is how many bytes of items all queries together may hold at once. A query beyond that is answered
	// with ErrBusy. The answers that are made of them take as much again.
	InFlightBytes int64
	// LiveReads is how many reads of the API server are under way at once, over all queries.
	LiveReads int64
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{
		CacheBytes: DefaultCacheBytes, HistoryBytes: DefaultHistoryBytes,
		InFlightBytes: DefaultInFlightBytes, LiveReads: DefaultLiveReads,
	}
}

var (
	// ErrTooLarge is the error of a history that has more bytes than Options.HistoryBytes.
	ErrTooLarge = errors.New("history is too large")
	// ErrBusy is the error of a query for which there is no memory now. A retry can help.
	ErrBusy = errors.New("too many bytes are being resolved")
)

// New returns a resolver that reads sessions live through a client of their group and version.
func New(view *sessions.View, client rest.Interface, options Options) (*Resolver, error) {
	cache, err := otter.New(&otter.Options[cacheKey, *chain.Items]{
		MaximumWeight: options.CacheBytes,
		Weigher:       func(_ cacheKey, items *chain.Items) uint32 { return uint32(items.Size() + cacheOverhead) },
	})
	if err != nil {
		return nil, fmt.Errorf("unable to make a cache of %d bytes: %w", options.CacheBytes, err)
	}
	return &Resolver{
		view:         view,
		historyBytes: options.HistoryBytes,
		inFlight:     semaphore.NewWeighted(options.InFlightBytes),
		live:         &live{client: client, cache: cache, slots: semaphore.NewWeighted(options.LiveReads)},
	}, nil
}

// cacheKey changes with every overwrite of a spec, and not with a write of a status.
type cacheKey struct {
	uid        types.UID
	generation int64
}

// cacheOverhead is about what an entry takes besides its items: the key, the UID's string and the cache's node.
const cacheOverhead = 256

// live reads sessions from the API server, past every cache, and keeps the items that it read.
type live struct {
	client rest.Interface
	cache  *otter.Cache[cacheKey, *chain.Items]
	slots  *semaphore.Weighted
}

func (l *live) cached(s *sessions.Session) (*chain.Items, bool) {
	return l.cache.GetIfPresent(cacheKey{s.UID, s.Generation})
}

// getID returns the session with a response ID and its items, and nil where there is none. The items are nil where the
// session is unreadable.
func (l *live) getID(ctx context.Context, namespace, id string) (*sessions.Session, *chain.Items, error) {
	s, items, err := l.get(ctx, namespace, v1alpha1.ObjectName(id))
	if err != nil || s == nil || s.Misnamed {
		return nil, nil, err
	}
	return s, items, nil
}

// get is getID for an object name.
func (l *live) get(ctx context.Context, namespace, name string) (*sessions.Session, *chain.Items, error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer l.slots.Release(1)
	object := &v1alpha1.ResponseSession{}
	err := l.client.Get().Namespace(namespace).Resource(sessions.Resource).Name(name).Do(ctx).Into(object)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read session %s/%s: %w", namespace, name, err)
	}
	s := sessions.NewSession(object)
	items, err := sessions.Flatten(&object.Spec)
	if err == nil {
		l.cache.Set(cacheKey{s.UID, s.Generation}, items)
	}
	return s, items, nil
}

// isCurrent reports whether a session still has the spec that it is known with.
func (l *live) isCurrent(ctx context.Context, s *sessions.Session) (bool, error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer l.slots.Release(1)
	object := &metav1.PartialObjectMetadata{}
	err := l.client.Get().Namespace(s.Namespace).Resource(sessions.Resource).Name(s.Name).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Do(ctx).Into(object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("unable to read session %s/%s: %w", s.Namespace, s.Name, err)
	}
	return object.UID == s.UID && object.Generation == s.Generation, nil
}

// mayBeObjectName reports whether a name can be an object's and not only a response ID.
func mayBeObjectName(name string) bool {
	return len(validation.NameIsDNSSubdomain(name, false)) == 0
}
