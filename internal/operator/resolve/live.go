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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// The defaults of Options.
const (
	DefaultCacheBytes    = 256 << 20
	DefaultHistoryBytes  = 128 << 20
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
	// Snapshots are where bodies are that are not in their sessions.
	Snapshots snapshot.Stores
	// Unreadable is called, where it is set, with a session whose snapshot turns out to be unreadable. It must not block.
	Unreadable func(*sessions.Session)
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
		unreadable:   options.Unreadable,
		historyBytes: options.HistoryBytes,
		inFlight:     semaphore.NewWeighted(options.InFlightBytes),
		live: &live{
			client: client, cache: cache, slots: semaphore.NewWeighted(options.LiveReads),
			snapshots: options.Snapshots, maxBytes: options.HistoryBytes, bytes: semaphore.NewWeighted(options.InFlightBytes),
		},
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

	snapshots snapshot.Stores
	// maxBytes is how many bytes a snapshot may have, and bytes are those that are being read at once.
	maxBytes int64
	bytes    *semaphore.Weighted
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
	for {
		s, items, err := l.getOnce(ctx, namespace, name)
		if !errors.Is(err, errChanged) {
			return s, items, err
		}
	}
}

// errChanged says that a session was overwritten or deleted while it was read.
var errChanged = errors.New("session was changed while it was read")

func (l *live) getOnce(ctx context.Context, namespace, name string) (*sessions.Session, *chain.Items, error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer l.slots.Release(1)
	object := &v1alpha1.ResponseSession{}
	err := kubeclient.Get(ctx, l.client, kubeclient.Sessions, types.NamespacedName{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read session %s/%s: %w", namespace, name, err)
	}
	s := sessions.NewSession(object)
	bodies := sessions.Bodies(&object.Spec)
	if s.Snapshot != nil {
		if bodies, err = l.readSnapshot(ctx, s); errors.Is(err, snapshot.ErrUnreadable) {
			return l.lost(ctx, s)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	items, err := chain.Flatten(bodies.Request, bodies.Response)
	s.Turn.Unreadable, s.Verified = err != nil, s.Snapshot != nil && err == nil
	if err == nil {
		l.cache.Set(cacheKey{s.UID, s.Generation}, items)
	}
	return s, items, nil
}

// readSnapshot reads bodies that are outside their object. While it does so, what is stored and what it becomes are in
// memory.
func (l *live) readSnapshot(ctx context.Context, s *sessions.Session) (snapshot.Bodies, error) {
	if max(s.Snapshot.SizeBytes, s.Snapshot.StoredBytes) > l.maxBytes {
		return snapshot.Bodies{}, fmt.Errorf("%w: response %q alone has %d bytes", ErrTooLarge, s.Turn.ID, s.Snapshot.SizeBytes)
	}
	size := min(s.Snapshot.SizeBytes+s.Snapshot.StoredBytes, l.maxBytes)
	if err := l.bytes.Acquire(ctx, size); err != nil {
		return snapshot.Bodies{}, err
	}
	defer l.bytes.Release(size)
	return l.snapshots.Read(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, s.Snapshot)
}

// lost returns a session as unreadable, unless it was overwritten or deleted while its snapshot was read: then the old
// snapshot may be gone rightly.
func (l *live) lost(ctx context.Context, s *sessions.Session) (*sessions.Session, *chain.Items, error) {
	current, err := l.metadataIsCurrent(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if !current {
		return nil, nil, fmt.Errorf("response %q: %w", s.Turn.ID, errChanged)
	}
	s.Turn.Unreadable, s.Verified = true, false
	return s, nil, nil
}

// isCurrent reports whether a session still has the spec that it is known with.
func (l *live) isCurrent(ctx context.Context, s *sessions.Session) (bool, error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer l.slots.Release(1)
	return l.metadataIsCurrent(ctx, s)
}

func (l *live) metadataIsCurrent(ctx context.Context, s *sessions.Session) (bool, error) {
	object, err := kubeclient.GetMetadata(ctx, l.client, kubeclient.Sessions, types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
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
