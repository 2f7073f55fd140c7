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

// Package snapshot defines the form in which bodies of turns are stored: exactly as received, and compressed. Pack is for bodies in
// their ResponseSession. A Store keeps larger ones outside it, and they are checked against their SHA-256 on every read.
//
// A snapshot in a store is written once under a key of its own and never changed. The ResponseSession that refers to the key is written
// last, so that a turn is stored completely or not at all. A snapshot that no session refers to is a leftover.
package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// MaxWriteTime is the maximum time that a save may take from writing the first part to writing the session. Leftovers are
// removed only after a longer time, so that the parts of a running save are not mistaken for leftovers.
const MaxWriteTime = 15 * time.Minute

// Overhead is the maximum size of a snapshot beyond that of its bodies, in bytes.
const Overhead = 128

// Within reports whether the bodies that ref describes total at most the given number of bytes, and whether its stored size
// is no larger than compression could produce.
func Within(ref *v1alpha1.SnapshotReference, bodies int) bool {
	return ref.SizeBytes <= int64(bodies)+Overhead && ref.StoredBytes <= ref.SizeBytes+ref.SizeBytes>>8+Overhead
}

// partsAtOnce is how many parts of one snapshot are created, looked for or deleted concurrently.
const partsAtOnce = 4

var (
	// ErrUnreadable indicates a snapshot with a missing or damaged part.
	ErrUnreadable = errors.New("snapshot is unreadable")
	// ErrNotConfigured indicates a snapshot in a store that these Stores lack: a bucket that the process is not configured with. It is also
	// an ErrUnreadable, although nothing may be damaged.
	ErrNotConfigured = errors.New("the store of the snapshot is not configured")
	// ErrChanged indicates that a part was not marked or deleted because it has changed since it was listed.
	ErrChanged = errors.New("the part has changed")
	// ErrRejected indicates that a part cannot be marked because of what its owner has made of it.
	ErrRejected = errors.New("the part is invalid or too large")
)

// Store keeps snapshots. It is safe for concurrent use.
type Store interface {
	// Name is the name of the store in a session's spec.snapshot.store.
	Name() string
	// Write stores the data that encode writes under a key of a session and returns the number of parts. It returns the error of
	// Check if the store does not belong to this cluster, and the error of encode. Parts may be stored before encode returns.
	Write(ctx context.Context, session types.NamespacedName, key string, encode func(io.Writer) error) (parts int, err error)
	// Read returns the data under a key, which has the given number of parts. It reads not much more than size bytes into memory, even if more
	// are stored. Both it and the reader return ErrUnreadable if a part is missing or belongs to another session, but not if the store does not
	// respond or does not belong to this cluster. The reader may send requests until ctx is done.
	Read(ctx context.Context, session types.NamespacedName, key string, parts int, size int64) (io.Reader, error)
	// Check returns ErrForeign or ErrUnclaimed if the store does not belong to this cluster. The result may be a minute old.
	Check(ctx context.Context) error
	// Claim marks the store as used by this cluster. It returns ErrForeign if another cluster uses it, because each cluster
	// would mistake the other's snapshots for leftovers. known are the snapshots that are expected in the store: it is this cluster's own if it
	// contains one of them. Claim returns ErrUnclaimed if the store is not marked and contains none of them, unless none is expected.
	Claim(ctx context.Context, known []Part) error
	// HeldOff returns the hold-off of the store's sweeps, or the zero value if it has ended or the store needs none. begun is false if
	// this cluster has not recorded one yet.
	HeldOff(ctx context.Context) (h HoldOff, begun bool, err error)
	// SetHeldOff records a hold-off or, with the zero value, its end.
	SetHeldOff(ctx context.Context, h HoldOff) error
	// List yields all stored parts in any order, and ignores data that Write cannot have written. It stops at the first error.
	List(ctx context.Context) iter.Seq2[Part, error]
	// Find returns the stored parts of a snapshot with the given number of parts.
	Find(ctx context.Context, session types.NamespacedName, key string, parts int) ([]Part, error)
	// Mark records in the store the time since which no session has referred to the snapshot of a part or, with the zero
	// time, that one does again. It is not an error if the part does not exist. A part that comes from List is not marked, and
	// Mark returns ErrChanged, if the store detects that it was marked, unmarked or rewritten since. Mark returns ErrRejected if
	// the owner of the part prevents the mark, for example with other annotations.
	Mark(ctx context.Context, part Part, since time.Time) error
	// Delete removes a part, and then its mark. It is not an error if the part does not exist. It returns ErrChanged if the
	// part comes from List and the store detects that it was marked, unmarked or rewritten since.
	Delete(ctx context.Context, part Part) error
}

// Part is a stored part of a snapshot.
type Part struct {
	// Session is the ResponseSession that the snapshot belongs to. Its name can be any string.
	Session types.NamespacedName
	Key     string
	// Index is 0 for the first part.
	Index int
	// Written is the time at which the part was written, zero if only its mark is left. Unreferenced is the time of its
	// mark, or zero.
	Written, Unreferenced time.Time
	// Deleting is set if the part has been deleted, and exists as long as someone's finalizer keeps it.
	Deleting bool
	// listed identifies the version of a chunk that was listed.
	listed *metav1.Preconditions
}

// Bodies are the bodies of one turn, each as received, or nil.
type Bodies struct{ Request, Response, Metadata []byte }

// Size returns the total size of the bodies in bytes.
func (b Bodies) Size() int { return len(b.Request) + len(b.Response) + len(b.Metadata) }

// Write stores bodies and returns the reference for the session's spec.snapshot.
func Write(ctx context.Context, store Store, session types.NamespacedName, bodies Bodies) (*v1alpha1.SnapshotReference, error) {
	var ref *v1alpha1.SnapshotReference
	key := newKey()
	parts, err := store.Write(ctx, session, key, func(w io.Writer) (err error) {
		ref, err = encode(ctx, w, bodies)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("unable to store the snapshot of session %s: %w", session, err)
	}
	ref.Store, ref.Key, ref.Parts = store.Name(), key, int32(parts)
	return ref, nil
}

// Stores are all stores from which snapshots are read.
type Stores []Store

// Open returns the snapshot stores: SnapshotChunks, accessed with a client of the ResponseSessions' group and version, and
// last, unless the URL is empty, the bucket at that URL. Call closeAll when they are no longer needed.
func Open(ctx context.Context, client rest.Interface, bucketURL string) (stores Stores, closeAll func() error, err error) {
	stores = Stores{NewChunkStore(client)}
	if bucketURL == "" {
		return stores, func() error { return nil }, nil
	}
	bucket, err := openBucket(ctx, bucketURL)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to open the bucket for snapshots: %w", err)
	}
	identify := func(ctx context.Context) (string, error) { return kubeclient.ClusterID(ctx, client) }
	return append(stores, NewBlobStore(bucket, identify)), bucket.Close, nil
}

// named returns the store with the given name, or nil.
func (s Stores) named(name string) Store {
	for _, store := range s {
		if store.Name() == name {
			return store
		}
	}
	return nil
}

// configured returns the store of a reference, or an error that is both ErrNotConfigured and ErrUnreadable.
func (s Stores) configured(session types.NamespacedName, ref *v1alpha1.SnapshotReference) (Store, error) {
	if store := s.named(ref.Store); store != nil {
		return store, nil
	}
	return nil, fmt.Errorf("%w: session %s, store %s: %w", ErrUnreadable, session, ref.Store, ErrNotConfigured)
}

// maxDeletedParts is the number of parts that Delete looks for: those of 96 MiB. A reference can have any number, of parts that do not exist. Garbage
// collection deletes the others with the first.
const maxDeletedParts = 256

// DeletedParts returns the number of parts of a reference that Delete looks for.
func DeletedParts(ref *v1alpha1.SnapshotReference) int { return min(int(ref.Parts), maxDeletedParts) }

// Delete removes the snapshot of a reference, but no part of another session's, unless the store belongs to another cluster. It does nothing if
// the reference names none of these stores, or has a format that only a newer build supports: that build's operator removes the parts. If
// needed is not nil, it is called just before the parts are deleted, after all waits. If it returns true or an error, they stay.
func (s Stores) Delete(
	ctx context.Context, session types.NamespacedName, ref *v1alpha1.SnapshotReference, needed func(context.Context) (bool, error),
) error {
	store := s.named(ref.Store)
	if store == nil || ref.Format > v1alpha1.MaxSnapshotFormat {
		return nil
	}
	if err := store.Check(ctx); err != nil {
		return err
	}
	stored := []Part{{Session: session, Key: ref.Key}}
	if chunks, ok := store.(*chunkStore); ok { // the name of a chunk does not have that of its session, so the reference can be to another's
		found, err := chunks.Find(ctx, session, ref.Key, DeletedParts(ref))
		if err != nil {
			return err
		}
		stored = found
	}
	if needed != nil {
		if is, err := needed(ctx); is || err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for _, part := range stored {
		part.listed = nil // the operator may mark it meanwhile
		group.Go(func() error { return store.Delete(ctx, part) })
	}
	return group.Wait()
}

// Read returns the bodies of a reference. It needs memory for the bodies, and for what is stored: twice as much for an object of a
// bucket, or a snapshot that is a single frame, as those of earlier builds are. It returns ErrUnreadable if a part is missing or damaged,
// and ErrNotConfigured if the reference names none of these stores. The bodies are never wrong, but their parts may just have been deleted.
func (s Stores) Read(ctx context.Context, session types.NamespacedName, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	return s.read(ctx, session, ref, false)
}

// ReadCurrent is Read for a snapshot whose parts may be gone: it returns the bodies only if they are still stored.
func (s Stores) ReadCurrent(ctx context.Context, session types.NamespacedName, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	return s.read(ctx, session, ref, true)
}

func (s Stores) read(ctx context.Context, session types.NamespacedName, ref *v1alpha1.SnapshotReference, current bool) (Bodies, error) {
	store, err := s.configured(session, ref)
	if err != nil {
		return Bodies{}, err
	}
	var bodies Bodies
	err = ErrUnreadable
	if chunks, ok := store.(*chunkStore); ok && !current {
		// This costs the API server half as much. Only errors have to be current.
		bodies, err = read(ctx, chunks.readCached, session, ref)
	}
	if errors.Is(err, ErrUnreadable) {
		bodies, err = read(ctx, store.Read, session, ref)
	}
	if err != nil {
		return Bodies{}, fmt.Errorf("unable to read the snapshot of session %s: %w", session, err)
	}
	return bodies, nil
}

// readFunc is Store.Read.
type readFunc func(ctx context.Context, session types.NamespacedName, key string, parts int, size int64) (io.Reader, error)

func read(ctx context.Context, from readFunc, session types.NamespacedName, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	// The parts that are read into memory must not be larger than the size in the reference.
	if int64(ref.Parts-1)*v1alpha1.MaxSnapshotChunkBytes >= ref.StoredBytes {
		return Bodies{}, fmt.Errorf("%w: %d parts are too many for %d bytes", ErrUnreadable, ref.Parts, ref.StoredBytes)
	}
	stored, err := from(ctx, session, ref.Key, int(ref.Parts), ref.StoredBytes)
	if err != nil {
		return Bodies{}, err
	}
	return decode(ctx, stored, ref)
}

// keyPattern matches every key. Data under any other name does not belong to Catena or has a format that only a newer build
// supports, and is ignored: see docs/decisions/versions.md.
var keyPattern = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newKey returns a unique key: 26 characters, a to z and 2 to 7.
func newKey() string { return strings.ToLower(rand.Text()) }
