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
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// blobStore keeps each snapshot as one object of a bucket, named NAMESPACE/SESSION/KEY. The namespace and the name are never
// taken from a session's spec: no tenant reaches another's snapshots by using their keys.
type blobStore struct {
	bucket *blob.Bucket
	claim  *claim
}

var _ Store = &blobStore{}

// NewBlobStore returns a store in a bucket of any kind that gocloud.dev/blob supports. The caller closes the bucket. identify
// returns the identity of the cluster, to which the bucket must belong.
func NewBlobStore(bucket *blob.Bucket, identify func(ctx context.Context) (string, error)) Store {
	return &blobStore{bucket, &claim{bucket: bucket, identify: identify}}
}

// openBucket opens the bucket that a URL names. A prefix must end with a slash: otherwise, a cluster that uses the
// whole bucket would take the prefix for part of a namespace.
func openBucket(ctx context.Context, bucketURL string) (*blob.Bucket, error) {
	u, err := url.Parse(bucketURL)
	if err != nil {
		return nil, errors.New("invalid URL")
	}
	if prefix := u.Query().Get("prefix"); prefix != "" && !strings.HasSuffix(prefix, "/") {
		return nil, fmt.Errorf("invalid prefix %q: must end with a slash", prefix)
	}
	return blob.OpenBucket(ctx, bucketURL)
}

func (s *blobStore) Name() string { return v1alpha1.SnapshotStoreBlob }

func blobName(session types.NamespacedName, key string) string {
	return session.String() + "/" + key
}

func (s *blobStore) Write(ctx context.Context, session types.NamespacedName, key string, data []byte) (int, error) {
	if err := s.claim.recheck(ctx); err != nil {
		return 0, err
	}
	return 1, s.bucket.WriteAll(ctx, blobName(session, key), data, &blob.WriterOptions{ContentType: "application/zstd"})
}

func (s *blobStore) Read(ctx context.Context, session types.NamespacedName, key string, _ int) ([]byte, error) {
	data, err := s.bucket.ReadAll(ctx, blobName(session, key))
	if gcerrors.Code(err) != gcerrors.NotFound {
		return data, err
	}
	// A bucket that does not exist, or is not the one that it was, has no snapshots either.
	if err := s.claim.check(ctx); err != nil {
		return nil, fmt.Errorf("unable to find out whether the bucket has lost %s: %w", blobName(session, key), err)
	}
	if data, err = s.bucket.ReadAll(ctx, blobName(session, key)); gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: the bucket has no %s", ErrUnreadable, blobName(session, key))
	}
	return data, err
}

func (s *blobStore) Claim(ctx context.Context, known []Stored) error { return s.claim.make(ctx, known) }

func (s *blobStore) List(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		objects := s.bucket.List(nil)
		for {
			object, err := objects.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Stored{}, fmt.Errorf("unable to list the bucket: %w", err))
				return
			}
			path := strings.Split(object.Key, "/")
			if len(path) != 3 || !keyPattern.MatchString(path[2]) {
				continue
			}
			if !yield(Stored{Session: types.NamespacedName{Namespace: path[0], Name: path[1]}, Key: path[2], Parts: 1, Since: object.ModTime}, nil) {
				return
			}
		}
	}
}

func (s *blobStore) Delete(ctx context.Context, stored Stored) error {
	err := s.bucket.Delete(ctx, blobName(stored.Session, stored.Key))
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil
	}
	return err
}
