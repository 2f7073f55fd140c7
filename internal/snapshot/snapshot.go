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

// Package snapshot keeps the bodies of turns outside their ResponseSessions, where they are too large for one or would
// not survive it: exactly as they were received, compressed, and checked against their SHA-256 on every read.
//
// What is stored is written once under a key of its own and never changed. The ResponseSession that refers to the key is
// written last, so that a turn is there as a whole or not at all. What no session refers to is a leftover.
package snapshot

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// MaxWriteTime is how long a save may take from the first part to the session. Leftovers are removed only after a longer
// time, so that the parts of a save that is under way are not taken for some.
const MaxWriteTime = 15 * time.Minute

// Overhead is how many bytes a snapshot has at most besides the bodies.
const Overhead = 128

// Within reports whether a reference leads to bodies that have together at most a number of bytes, and takes no more to
// store than compression makes of those at worst.
func Within(ref *v1alpha1.SnapshotReference, bodies int) bool {
	return ref.SizeBytes <= int64(bodies)+Overhead && ref.StoredBytes <= ref.SizeBytes+ref.SizeBytes>>8+Overhead
}

// ErrUnreadable is the error of a snapshot of which a part is missing or damaged.
var ErrUnreadable = errors.New("snapshot is unreadable")

// ErrForeign is the error of a store that another cluster has claimed.
var ErrForeign = errors.New("the bucket is another cluster's")

// Store is where snapshots are kept. It is safe for concurrent use.
type Store interface {
	// Name is what a session's spec.snapshot.store says.
	Name() string
	// Write stores data under a key, for the session of a name, and returns the number of its parts.
	Write(ctx context.Context, session Session, key string, data []byte) (parts int, err error)
	// Read returns the data under a key, which has a number of parts. It returns an error that is ErrUnreadable where a
	// part is missing or is not one of that session.
	Read(ctx context.Context, session Session, key string, parts int) ([]byte, error)
	// Claim makes the store that of a cluster, and returns an error that is ErrForeign where it is another's: each would
	// take what the other stores for leftovers.
	Claim(ctx context.Context, cluster string) error
	// List yields everything that is stored, in any order, and nothing that Write cannot have written. It ends with the
	// first error.
	List(ctx context.Context) iter.Seq2[Stored, error]
	// Delete removes what is stored under a key. It is no error where that is gone.
	Delete(ctx context.Context, stored Stored) error
}

// Session names the ResponseSession that a snapshot belongs to.
type Session struct{ Namespace, Name string }

// Stored is what a Store has under one key.
type Stored struct {
	Session Session
	Key     string
	// Parts is the number of the parts that are there.
	Parts int
	// Since is when the newest part was written.
	Since time.Time
}

// Bodies are the bodies of one turn, each as it was received, or nil.
type Bodies struct{ Request, Response, Metadata []byte }

// Size returns the bytes of all three.
func (b Bodies) Size() int { return len(b.Request) + len(b.Response) + len(b.Metadata) }

// header is the first line of a snapshot: how many bytes of the rest each body has.
type header struct {
	Request  int `json:"request"`
	Response int `json:"response"`
	Metadata int `json:"metadata"`
}

// Write stores bodies and returns the reference for the session's spec.snapshot.
func Write(ctx context.Context, store Store, session Session, bodies Bodies) (*v1alpha1.SnapshotReference, error) {
	plain, err := join(bodies)
	if err != nil {
		return nil, err
	}
	key := newKey()
	compressed := encoder.EncodeAll(plain, nil)
	parts, err := store.Write(ctx, session, key, compressed)
	if err != nil {
		return nil, fmt.Errorf("unable to store the snapshot of session %s/%s: %w", session.Namespace, session.Name, err)
	}
	sum := sha256.Sum256(plain)
	return &v1alpha1.SnapshotReference{
		Store:       store.Name(),
		Key:         key,
		Parts:       int32(parts),
		SizeBytes:   int64(len(plain)),
		StoredBytes: int64(len(compressed)),
		SHA256:      hex.EncodeToString(sum[:]),
	}, nil
}

// Stores are all stores that snapshots are read from.
type Stores []Store

// Open returns the stores of a client of the ResponseSessions' group and version: SnapshotChunks and, as the last one, the
// bucket that a URL names, unless that is empty. Close what it returns.
func Open(ctx context.Context, client rest.Interface, bucketURL string) (stores Stores, closeAll func() error, err error) {
	stores = Stores{NewChunkStore(client)}
	if bucketURL == "" {
		return stores, func() error { return nil }, nil
	}
	bucket, err := openBucket(ctx, bucketURL)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to open the bucket for snapshots: %w", err)
	}
	return append(stores, NewBlobStore(bucket)), bucket.Close, nil
}

// named returns the store that a reference is in, nil where it is not one of these.
func (s Stores) named(name string) Store {
	for _, store := range s {
		if store.Name() == name {
			return store
		}
	}
	return nil
}

// Delete removes what a reference leads to. It does nothing where that is in none of the stores.
func (s Stores) Delete(ctx context.Context, session Session, ref *v1alpha1.SnapshotReference) error {
	store := s.named(ref.Store)
	if store == nil {
		return nil
	}
	return store.Delete(ctx, Stored{Session: session, Key: ref.Key})
}

// Read returns the bodies that a reference leads to. It takes memory for both of the reference's sizes. It returns an
// error that is ErrUnreadable where a part is missing or damaged, or none of the stores is the one that it is in.
func (s Stores) Read(ctx context.Context, session Session, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	store := s.named(ref.Store)
	if store == nil {
		return Bodies{}, fmt.Errorf("%w: the snapshot of session %s/%s is in a store that is not configured here: %s",
			ErrUnreadable, session.Namespace, session.Name, ref.Store)
	}
	bodies, err := read(ctx, store, session, ref)
	if err != nil {
		return Bodies{}, fmt.Errorf("unable to read the snapshot of session %s/%s: %w", session.Namespace, session.Name, err)
	}
	return bodies, nil
}

func read(ctx context.Context, store Store, session Session, ref *v1alpha1.SnapshotReference) (Bodies, error) {
	// What is read into memory must not be more than the reference says.
	if int64(ref.Parts-1)*v1alpha1.MaxSnapshotChunkBytes >= ref.StoredBytes {
		return Bodies{}, fmt.Errorf("%w: %d parts are too many for %d bytes", ErrUnreadable, ref.Parts, ref.StoredBytes)
	}
	compressed, err := store.Read(ctx, session, ref.Key, int(ref.Parts))
	if err != nil {
		return Bodies{}, err
	}
	if int64(len(compressed)) != ref.StoredBytes {
		return Bodies{}, fmt.Errorf("%w: %d bytes are stored, not %d", ErrUnreadable, len(compressed), ref.StoredBytes)
	}
	plain, err := decompress(compressed, int(ref.SizeBytes))
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if sum := sha256.Sum256(plain); hex.EncodeToString(sum[:]) != ref.SHA256 {
		return Bodies{}, fmt.Errorf("%w: its SHA-256 is not the one that was written", ErrUnreadable)
	}
	bodies, err := split(plain)
	if err != nil {
		return Bodies{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return bodies, nil
}

// decompress takes memory for size bytes, whatever window the data asks for. Where it holds more than that, it takes a
// little more than twice as much until it is refused: the decoder looks at the size after each block.
func decompress(compressed []byte, size int) ([]byte, error) {
	plain, err := decoder.DecodeAll(compressed, make([]byte, 0, size))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, fmt.Errorf("it has more than %d bytes", size)
	}
	if err != nil {
		return nil, err
	}
	if len(plain) != size {
		return nil, fmt.Errorf("it has %d bytes, not %d", len(plain), size)
	}
	return plain, nil
}

func join(bodies Bodies) ([]byte, error) {
	line, err := json.Marshal(header{len(bodies.Request), len(bodies.Response), len(bodies.Metadata)})
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{line, []byte("\n"), bodies.Request, bodies.Response, bodies.Metadata}, nil), nil
}

func split(plain []byte) (Bodies, error) {
	line, rest, _ := bytes.Cut(plain, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return Bodies{}, fmt.Errorf("unable to read its first line: %w", err)
	}
	var bodies Bodies
	for _, part := range []struct {
		body   *[]byte
		length int
	}{{&bodies.Request, h.Request}, {&bodies.Response, h.Response}, {&bodies.Metadata, h.Metadata}} {
		if part.length < 0 || part.length > len(rest) {
			return Bodies{}, errors.New("its first line does not fit the rest")
		}
		if part.length > 0 {
			*part.body = rest[:part.length:part.length]
		}
		rest = rest[part.length:]
	}
	if len(rest) > 0 {
		return Bodies{}, errors.New("something follows the last body")
	}
	return bodies, nil
}

var (
	// Images in base64 have nothing that repeats, but take only six of eight bits.
	encoder = must(zstd.NewWriter(nil, zstd.WithAllLitEntropyCompression(true)))
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true)))
)

// must panics where a coder's options, which are constant, are not allowed.
func must[T any](coder T, err error) T {
	if err != nil {
		panic(err)
	}
	return coder
}

// keyPattern is what a key looks like. What does not is somebody else's, and left alone.
var keyPattern = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newKey returns a key that nobody has used: 26 characters, a to z and 2 to 7.
func newKey() string { return strings.ToLower(rand.Text()) }
