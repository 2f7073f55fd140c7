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

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// blobStore keeps each snapshot as one object of a bucket, named NAMESPACE/SESSION/KEY. The namespace and the name are
// never taken from a session's spec, so a tenant cannot read another tenant's snapshots by using their keys.
type blobStore struct {
	bucket *blob.Bucket
	claim  *claim
	// timeout is the deadline of each request that does not transfer a snapshot.
	timeout time.Duration
	// files gives requests a deadline if the bucket is in a file system, and is nil otherwise.
	files *fileRequests
}

var _ Store = &blobStore{}

// NewBlobStore returns a store in a bucket of any kind that gocloud.dev/blob supports. The caller closes the bucket.
// identify returns the identity of the cluster that must own the bucket.
func NewBlobStore(bucket *blob.Bucket, identify func(ctx context.Context) (string, error)) Store {
	return &blobStore{bucket, &claim{bucket: bucket, identify: identify}, bucketTimeout, newFileRequests(bucket)}
}

// bucketTimeout is the deadline of a bucket request that does not transfer a snapshot, and of the few requests for a claim.
// The cloud SDKs set no timeout, and would wait forever for a response. Snapshots are read and written within the deadline
// of the caller, because how long that takes depends on their size.
const bucketTimeout = time.Minute

// do calls a function with the deadline of one request. The function may continue after do returns, so it must not share
// data with the caller.
func (s *blobStore) do(ctx context.Context, request func(ctx context.Context) error) error {
	_, err := doValue(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, request(ctx) })
	return err
}

// doValue is do for a function that returns a value.
func doValue[T any](ctx context.Context, s *blobStore, request func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return within(ctx, s.files, func() (T, error) { return request(ctx) })
}

// openBucket opens the bucket that a URL names, within bucketTimeout. A prefix must end with a slash: otherwise, a cluster that
// uses the whole bucket would mistake the prefix for part of a namespace.
func openBucket(ctx context.Context, bucketURL string) (*blob.Bucket, error) {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, errors.New("invalid URL")
	}
	if prefix := u.Query().Get("prefix"); prefix != "" && !strings.HasSuffix(prefix, "/") {
		return nil, fmt.Errorf("invalid prefix %q: must end with a slash", prefix)
	}
	limited, cancel := context.WithTimeout(ctx, bucketTimeout)
	defer cancel()
	return within(limited, openings, func() (*blob.Bucket, error) {
		bucket, err := blob.OpenBucket(ctx, bucketURL) // with ctx: drivers keep the context for later requests
		if err == nil && limited.Err() != nil {
			return nil, errors.Join(limited.Err(), bucket.Close())
		}
		return bucket, err
	})
}

// openings are the buckets that are being opened.
var openings = newRequests()

func (s *blobStore) Name() string { return v1alpha1.SnapshotStoreBlob }

// markInfix is between the name of a snapshot and the time since which it is unreferenced, in the name of an empty object. The
// time of the object itself is the bucket's, which may differ from the operator's.
const markInfix = ".unreferenced-since."

func blobName(session types.NamespacedName, key string) string {
	return session.String() + "/" + key
}

// Write writes all data at once, because only such a request can be abandoned: see within.
func (s *blobStore) Write(ctx context.Context, session types.NamespacedName, key string, encode func(io.Writer) error) (int, error) {
	if err := s.Check(ctx); err != nil {
		return 0, err
	}
	var data [][]byte // a buffer that grows would take up to three times as much
	pieces := &pieceWriter{write: func(piece []byte) error {
		data = append(data, piece)
		return nil
	}}
	if err := errors.Join(encode(pieces), pieces.flush()); err != nil {
		return 0, err
	}
	whole := slices.Concat(data...)
	return within(ctx, s.files, func() (int, error) {
		return 1, s.bucket.WriteAll(ctx, blobName(session, key), whole, &blob.WriterOptions{ContentType: "application/zstd"})
	})
}

func (s *blobStore) Read(ctx context.Context, session types.NamespacedName, key string, _ int, size int64) (io.Reader, error) {
	data, err := s.readUpTo(ctx, blobName(session, key), size+1)
	if gcerrors.Code(err) == gcerrors.NotFound {
		// Snapshots are also not found if the bucket does not exist or has been replaced.
		if err := s.do(ctx, s.claim.check); err != nil {
			return nil, fmt.Errorf("unable to determine whether the bucket has lost %s: %w", blobName(session, key), err)
		}
		if data, err = s.readUpTo(ctx, blobName(session, key), size+1); gcerrors.Code(err) == gcerrors.NotFound {
			err = fmt.Errorf("%w: the bucket has no object %s", ErrUnreadable, blobName(session, key))
		}
	}
	return bytes.NewReader(data), err
}

// readUpTo returns at most limit bytes of an object.
func (s *blobStore) readUpTo(ctx context.Context, name string, limit int64) ([]byte, error) {
	return within(ctx, s.files, func() ([]byte, error) {
		reader, err := s.bucket.NewReader(ctx, name, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = reader.Close() }()
		// A buffer that grows is copied, which takes several times the memory. Not every server returns the size.
		var data bytes.Buffer
		data.Grow(int(max(0, min(limit, reader.Size()))) + bytes.MinRead)
		_, err = data.ReadFrom(io.LimitReader(reader, limit))
		return data.Bytes(), err
	})
}

func (s *blobStore) Check(ctx context.Context) error { return s.do(ctx, s.claim.recheck) }

func (s *blobStore) Claim(ctx context.Context, known []Part) error {
	return s.do(ctx, func(ctx context.Context) error { return s.claim.make(ctx, known) })
}

func (s *blobStore) List(ctx context.Context) iter.Seq2[Part, error] { return s.list(ctx, "") }

func (s *blobStore) Find(ctx context.Context, session types.NamespacedName, key string, _ int) ([]Part, error) {
	for part, err := range s.list(ctx, blobName(session, key)) {
		if err != nil || part.Written.IsZero() {
			return nil, err
		}
		return []Part{part}, nil
	}
	return nil, nil
}

// list lists the objects with a prefix. It relies on the bucket listing objects by name, so that a mark follows its snapshot.
func (s *blobStore) list(ctx context.Context, prefix string) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		var last Part // not yielded yet: its mark may follow
		for objects := s.bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
			object, err := s.next(ctx, objects)
			if err != nil && !errors.Is(err, io.EOF) {
				yield(Part{}, fmt.Errorf("unable to list the bucket: %w", err))
				return
			}
			if err == nil && last.Key != "" && last.readMark(object.Key) {
				continue
			}
			if last.Key != "" && !yield(last, nil) || err != nil {
				return
			}
			last = blobPart(object)
		}
	}
}

// next returns the next object of a list, which may require a request. It returns io.EOF at the end.
func (s *blobStore) next(ctx context.Context, objects *blob.ListIterator) (*blob.ListObject, error) {
	return doValue(ctx, s, objects.Next)
}

// readMark reports whether an object is a mark of a snapshot, and sets the time of the first one.
func (p *Part) readMark(name string) bool {
	text, found := strings.CutPrefix(name, blobName(p.Session, p.Key)+markInfix)
	if since, err := time.Parse(time.RFC3339, text); found && err == nil && (p.Unreferenced.IsZero() || since.Before(p.Unreferenced)) {
		p.Unreferenced = since
	}
	return found
}

// blobPart returns the part for an object that is a snapshot or the mark of one, and the zero Part for any other object.
func blobPart(object *blob.ListObject) Part {
	path := strings.Split(object.Key, "/")
	if len(path) != 3 {
		return Part{}
	}
	key, _, isMark := strings.Cut(path[2], markInfix)
	if !keyPattern.MatchString(key) {
		return Part{}
	}
	part := Part{Session: types.NamespacedName{Namespace: path[0], Name: path[1]}, Key: key}
	if isMark {
		part.readMark(object.Key)
	} else {
		part.Written = object.ModTime
	}
	return part
}

// Mark writes an empty object next to the snapshot. Two concurrent leaders may write two; the earlier one counts.
func (s *blobStore) Mark(ctx context.Context, part Part, since time.Time) error {
	prefix := blobName(part.Session, part.Key) + markInfix
	if !since.IsZero() {
		return s.do(ctx, func(ctx context.Context) error {
			return s.bucket.WriteAll(ctx, prefix+since.UTC().Format(time.RFC3339), nil, &blob.WriterOptions{ContentType: "text/plain"})
		})
	}
	for marks := s.bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
		mark, err := s.next(ctx, marks)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.remove(ctx, mark.Key)
		}
		if err != nil {
			return err
		}
	}
}

// Delete removes the mark last: see Confirm.
func (s *blobStore) Delete(ctx context.Context, part Part) error {
	if err := s.remove(ctx, blobName(part.Session, part.Key)); err != nil || part.Unreferenced.IsZero() {
		return err
	}
	return s.Mark(ctx, part, time.Time{})
}

// remove deletes an object, if it exists.
func (s *blobStore) remove(ctx context.Context, name string) error {
	err := s.do(ctx, func(ctx context.Context) error { return s.bucket.Delete(ctx, name) })
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return err
}
