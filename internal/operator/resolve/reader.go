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
	"math"
	"runtime"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// readsPerQuery is the number of live reads that one query may have in progress, so that a long chain does not block others.
const readsPerQuery = 8

var (
	// ErrTooLarge is returned for a history of more than Options.HistoryBytes bytes, and for an answer that is larger than a namespace's share
	// of Options.InFlightBytes.
	ErrTooLarge = errors.New("answer is too large")
	// ErrBusy is returned for a query or a reservation that would exceed its namespace's share of Options.InFlightRequests or Options.InFlightBytes.
	// A retry can succeed.
	ErrBusy = errors.New("too many requests, or answers of too many bytes, are in progress in this namespace")
)

// cacheKey changes with every overwrite of the spec, but not with a write of the status.
type cacheKey struct {
	uid        sessions.UID
	generation int64
}

func keyOf(record *sessions.Record) cacheKey { return cacheKey{record.UID, record.Generation} }

// cacheOverhead is the approximate size of an entry besides its items: the key and what the cache needs for it.
const cacheOverhead = 256

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions;snapshotchunks,verbs=get
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=list

// Reader reads sessions and their snapshots from the API server and the stores of snapshots, bypassing every cache of objects,
// and keeps the items that it has read in its own cache. It is safe for concurrent use.
type Reader struct {
	client rest.Interface
	cache  *fair.Cache[cacheKey, *chain.Items] // by namespace
	// slots are the live reads, by namespace. No slot is held while waiting for anything else.
	slots *fair.Budget

	snapshots snapshot.Stores
	// maxBytes is the largest size of a snapshot, and bytes counts the bytes of the snapshots that are being read, by
	// namespace.
	maxBytes int64
	bytes    *fair.Budget
	// minBytes is the minimum that a snapshot counts for. It limits how many are read at once, and is so small that three of the largest,
	// of different namespaces, leave room for another.
	minBytes int64
	// turns are the processors, by namespace: large bodies are decompressed and turned into items in turns.
	turns *fair.Budget
	// reading tracks the reads of snapshots: a turn that has just been saved is often verified and requested at the same time.
	reading sharedReads
}

// NewReader returns a reader that uses a client of the sessions' group and version, and reads the bodies that are not in
// their sessions from snapshots.
func NewReader(client rest.Interface, snapshots snapshot.Stores, options Options) *Reader {
	return &Reader{
		client: client, cache: fair.NewCache[cacheKey, *chain.Items](options.CacheBytes), slots: fair.NewBudget(options.LiveReads),
		snapshots: snapshots, maxBytes: options.HistoryBytes, bytes: fair.NewBudget(options.InFlightBytes),
		minBytes: options.InFlightBytes / (4 * options.LiveReads), turns: newProcessors(),
	}
}

// Readable reads the snapshot of a session that has one outside its object, and reports whether it can be turned into
// input items. It returns an error if the session has been changed since the record was made.
func (r *Reader) Readable(ctx context.Context, record *sessions.Record) (bool, error) {
	// Once: nothing is paid, and its owner can change it each time it is read.
	current, _, err := r.getOnce(ctx, record.Namespace, record.Name, free, r.verify)
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, snapshot.ErrNotConfigured):
		return false, nil
	case err != nil:
		return false, err
	case current == nil || !current.HasSnapshotOf(record):
		return false, fmt.Errorf("session %s: %w", record.NamespacedName(), errOutdated)
	}
	return !current.Turn.Unreadable, nil
}

// Keep adds the items of a session to the cache. It is the sessions.KeepFunc of the view, because a turn that has just been saved is
// likely to be requested next.
func (r *Reader) Keep(record *sessions.Record, items *chain.Items) {
	r.cache.Set(record.Namespace, keyOf(record), items, int64(items.Size()+cacheOverhead))
}

// cached returns the items of a session, or nil if they are not cached.
func (r *Reader) cached(record *sessions.Record) *chain.Items {
	items, _ := r.cache.Get(keyOf(record))
	return items
}

// payment is called before the snapshot of a session is read. If it returns an error, the snapshot is not read.
type payment func(ctx context.Context, record *sessions.Record) error

// free is the payment for a read that has been paid for, or is not limited.
func free(context.Context, *sessions.Record) error { return nil }

// readFunc reads the snapshot of a session and may return its items. It returns errNotItems if there can be none.
type readFunc func(ctx context.Context, record *sessions.Record) (*chain.Items, error)

// errNotItems indicates bodies that are not those of a turn.
var errNotItems = errors.New("the bodies are not those of a turn")

// getID returns the session with a response ID and its items, or nil if it does not exist or is being deleted. The items are
// nil if the session is unreadable.
func (r *Reader) getID(ctx context.Context, namespace, id string, pay payment) (*sessions.Record, *chain.Items, error) {
	for {
		record, items, err := r.getOnce(ctx, namespace, v1alpha1.ObjectName(id), pay, r.flatten)
		switch {
		case errors.Is(err, errChanged):
			continue
		case err != nil || record == nil || !record.InChain():
			return nil, nil, err
		}
		return record, items, nil
	}
}

// errChanged indicates that a session was overwritten or deleted while it was read.
var errChanged = errors.New("session was changed while it was read")

// getOnce returns the session with an object name and its items, or nil if it does not exist. The session may not be part of a
// chain. A session that is being deleted has no items: its snapshot may already be gone.
func (r *Reader) getOnce(ctx context.Context, namespace, name string, pay payment, read readFunc) (*sessions.Record, *chain.Items, error) {
	record, items, err := r.getObject(ctx, namespace, name)
	if err != nil || record == nil || record.Deleting {
		return record, nil, err
	}
	if items != nil {
		r.Keep(record, items)
	}
	if record.Snapshot() != nil && record.Problem() == "" {
		if err := pay(ctx, record); err != nil {
			return nil, nil, err
		}
		items, err = read(ctx, record)
		switch {
		case errors.Is(err, snapshot.ErrUnreadable) && !errors.Is(err, snapshot.ErrNotConfigured):
			return r.lost(ctx, record)
		case err != nil && !errors.Is(err, errNotItems):
			return nil, nil, err
		}
		record.Turn.Unreadable, record.Verified = err != nil, err == nil
	}
	return record, items, nil
}

// getObject returns a session, and its items if its bodies are in the object; nil if it does not exist.
func (r *Reader) getObject(ctx context.Context, namespace, name string) (*sessions.Record, *chain.Items, error) {
	if err := r.slots.Acquire(ctx, namespace, 1); err != nil {
		return nil, nil, err
	}
	defer r.slots.Release(namespace, 1)
	raw, err := kubeclient.GetRaw(ctx, r.client, kubeclient.Sessions, types.NamespacedName{Namespace: namespace, Name: name})
	if kubeclient.IsGone(err, kubeclient.Sessions, name) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read session %s/%s: %w", namespace, name, err)
	}
	record, items := sessions.Flatten(gjson.Parse(jsonvalue.Text(raw)))
	return record, items, nil
}

// flatten is a readFunc that adds the items to the cache. If the same snapshot is already being read, it waits for that read, unless parts of
// the snapshot may be gone.
func (r *Reader) flatten(ctx context.Context, record *sessions.Record) (*chain.Items, error) {
	read := func() (*chain.Items, error) {
		items, err := r.readSnapshot(ctx, record, chain.Flatten)
		if err == nil {
			r.Keep(record, items)
		}
		return items, err
	}
	if mayBeGone(record) {
		return read()
	}
	return r.reading.share(ctx, keyOf(record), read)
}

// mayBeGone reports whether a replica has failed to read the snapshot of a session.
func mayBeGone(record *sessions.Record) bool { return record.Reported() == record.Generation }

// verify is a readFunc for the verdict on a session. For the first verdict, it uses the read of a request that is in progress. It caches the
// items of up to 4 MiB for later requests, but not of more: copying them would delay other namespaces, and the next request may reach another
// replica. A session that has a verdict is verified again because parts of its snapshot may be gone, so verify always reads them.
func (r *Reader) verify(ctx context.Context, record *sessions.Record) (*chain.Items, error) {
	const small = 4<<20 + snapshot.Overhead
	if !record.HasVerdict && !mayBeGone(record) {
		if record.Snapshot().SizeBytes <= small {
			return r.flatten(ctx, record)
		}
		if items, err := r.reading.await(ctx, keyOf(record)); items != nil || err != nil {
			return items, err
		}
	}
	return r.readSnapshot(ctx, record, func(request, response []byte) (*chain.Items, error) {
		return nil, chain.Check(request, response, math.MaxInt)
	})
}

// readSnapshot reads bodies that are outside their object, and makes items of them in a turn. Until then they are in memory, and what a bucket
// stores of them or their items.
func (r *Reader) readSnapshot(
	ctx context.Context, record *sessions.Record, flatten func(request, response []byte) (*chain.Items, error),
) (items *chain.Items, err error) {
	reference := record.Snapshot()
	largest := max(reference.SizeBytes, reference.StoredBytes)
	if largest > r.maxBytes {
		return nil, fmt.Errorf("%w: response %q alone has %d bytes, and --max-history-bytes is less", ErrTooLarge, record.Turn.ID, reference.SizeBytes)
	}
	size := min(max(reference.SizeBytes+largest, r.minBytes), r.maxBytes)
	if err := r.bytes.Acquire(ctx, record.Namespace, size); err != nil {
		return nil, err
	}
	defer r.bytes.Release(record.Namespace, size)
	ctx = metered.WithTurns(ctx, r.turnsOf(record.Namespace))
	read := r.snapshots.Read
	if mayBeGone(record) {
		read = r.snapshots.ReadCurrent
	}
	bodies, err := read(ctx, record.NamespacedName(), reference)
	if err != nil {
		return nil, err
	}
	err = metered.Process(ctx, bodies.Size(), func() (err error) {
		if items, err = flatten(bodies.Request, bodies.Response); err != nil {
			err = fmt.Errorf("%w: %w", errNotItems, err)
		}
		return err
	})
	return items, err
}

// turnsOf returns the turns of a namespace. Small data takes none.
func (r *Reader) turnsOf(namespace string) metered.Turns {
	const large = 64 << 10
	return func(ctx context.Context, bytes int, work func() error) error {
		if bytes >= large {
			if err := r.turns.Acquire(ctx, namespace, 1); err != nil {
				return err
			}
			defer r.turns.Release(namespace, 1)
		}
		return work()
	}
}

// newProcessors returns a budget of the processors. One namespace alone has half of them.
func newProcessors() *fair.Budget { return fair.NewBudget(int64(max(2, runtime.GOMAXPROCS(0)))) }

// lost returns a session as unreadable, unless it was overwritten or deleted while its snapshot was read: then the old snapshot
// is expected to be gone.
func (r *Reader) lost(ctx context.Context, record *sessions.Record) (*sessions.Record, *chain.Items, error) {
	current, err := r.isCurrent(ctx, record)
	if err != nil {
		return nil, nil, err
	}
	if !current {
		return nil, nil, fmt.Errorf("response %q: %w", record.Turn.ID, errChanged)
	}
	record.Turn.Unreadable, record.Verified = true, false
	return record, nil, nil
}

// currentVersion returns a resource version that is at least as new as every change of a session that was answered before.
func (r *Reader) currentVersion(ctx context.Context, namespace string) (uint64, error) {
	if err := r.slots.Acquire(ctx, namespace, 1); err != nil {
		return 0, err
	}
	defer r.slots.Release(namespace, 1)
	version, err := kubeclient.CurrentVersion(ctx, r.client, kubeclient.Sessions, namespace)
	if err != nil {
		return 0, fmt.Errorf("unable to read the current resource version: %w", err)
	}
	return version, nil
}

// isCurrent reports whether a session still has the spec of its record, and is not being deleted. One that is not part of a chain
// never becomes part of one, so it only has to be the same.
func (r *Reader) isCurrent(ctx context.Context, record *sessions.Record) (bool, error) {
	if err := r.slots.Acquire(ctx, record.Namespace, 1); err != nil {
		return false, err
	}
	defer r.slots.Release(record.Namespace, 1)
	object, err := kubeclient.GetMetadata(ctx, r.client, kubeclient.Sessions, record.NamespacedName())
	if kubeclient.IsGone(err, kubeclient.Sessions, record.Name) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("unable to read session %s/%s: %w", record.Namespace, record.Name, err)
	}
	unchanged := object.Generation == record.Generation && object.DeletionTimestamp == nil
	return sessions.NewUID(object.UID) == record.UID && (unchanged || !record.InChain()), nil
}

// mayBeObjectName reports whether a name can be an object name as well as a response ID.
func mayBeObjectName(name string) bool {
	return len(validation.NameIsDNSSubdomain(name, false)) == 0
}
