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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3://
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/s3test"
	"github.com/catena-dev/catena/store"
)

const (
	bucketName = "snapshots"
	// plainWriters create as many chunks as a turn has, for comparison.
	plainWriters = 8
)

// largeExperiment saves and resolves turns whose bodies are outside their objects. The comparison with a bucket is to store and to read the
// same bytes in it, and that with chunks is to create as many objects of the same size.
func largeExperiment(ctx context.Context, b *bench) (err error) {
	url, stop, err := b.startBucket(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bucket, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	for _, mib := range []int{4, 64} {
		if err := b.inBucket(ctx, bucket, url, mib); err != nil {
			return err
		}
		if err := b.inChunks(ctx, mib); err != nil {
			return err
		}
	}
	return nil
}

// startBucket starts an S3 server, and restarts the operator with a bucket of it. It returns the bucket's URL.
func (b *bench) startBucket(ctx context.Context) (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return "", nil, err
	}
	server, err := s3test.Start(ctx, dir, bucketName)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() error { return errors.Join(server.Stop(), os.RemoveAll(dir)) }
	for name, value := range s3test.Environment {
		if err := os.Setenv(name, value); err != nil {
			return "", nil, errors.Join(err, stop())
		}
	}
	url = server.BucketURL(bucketName)
	if err := b.restartOperator(ctx, "--snapshot-store="+url); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return url, stop, nil
}

func (b *bench) inBucket(ctx context.Context, bucket *blob.Bucket, url string, mib int) error {
	turn := imagesTurn(mib)
	plain := []byte(string(turn.Request) + string(turn.Response))
	path := fmt.Sprintf("bench/%d", mib)
	ours, theirs := series{}, series{Name: "one PUT and one GET of the same bytes"}
	saveAndResolve, closeStore, err := b.largeStore(ctx, fmt.Sprintf("bucket-%d", mib), url, turn)
	if err != nil {
		return err
	}
	defer closeStore()
	err = b.alternate(&ours, &theirs, saveAndResolve, func() error {
		if err := bucket.WriteAll(ctx, path, plain, nil); err != nil {
			return err
		}
		_, err := bucket.ReadAll(ctx, path)
		return err
	})
	b.compare(fmt.Sprintf("save and resolve a turn of %d MiB in a bucket", mib), "ms", ours, theirs, atMost(1.3))
	return err
}

func (b *bench) inChunks(ctx context.Context, mib int) error {
	namespace := fmt.Sprintf("chunks-%d", mib)
	turn := imagesTurn(mib)
	ours, theirs := series{}, series{Name: fmt.Sprintf("%d writers create as many chunks", plainWriters)}
	saveAndResolve, closeStore, err := b.largeStore(ctx, namespace, "", turn)
	if err != nil {
		return err
	}
	defer closeStore()
	if err := saveAndResolve(); err != nil {
		return err
	}
	chunks := &v1alpha1.SnapshotChunkList{}
	if err := b.env.Client.List(ctx, chunks, client.InNamespace(namespace)); err != nil {
		return err
	}
	round := 0
	err = b.alternate(&ours, &theirs, saveAndResolve, func() error {
		round++
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(plainWriters)
		for i := range chunks.Items {
			chunk := &v1alpha1.SnapshotChunk{Spec: chunks.Items[i].Spec}
			chunk.Namespace, chunk.Name, chunk.Annotations = namespace, fmt.Sprintf("plain-%d-%d", round, i), chunks.Items[i].Annotations
			group.Go(func() error { return b.env.Client.Create(ctx, chunk) })
		}
		return group.Wait()
	})
	b.compare(fmt.Sprintf("save and resolve a turn of %d MiB in %d chunks", mib, len(chunks.Items)), "ms", ours, theirs, atMost(1.3))
	return err
}

// largeStore opens a store in a new namespace, and returns a function that saves a turn and resolves it.
func (b *bench) largeStore(ctx context.Context, namespace, bucket string, turn store.Session) (saveAndResolve func() error, closeStore func(), err error) {
	if err := b.createNamespace(ctx, namespace); err != nil {
		return nil, nil, err
	}
	s, err := b.openInPod(ctx, namespace, bucket)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	return func() error {
		n++
		next := turn
		next.ResponseID = fmt.Sprintf("resp_%d", n)
		if err := s.Save(ctx, &next, store.SaveOptions{}); err != nil {
			return err
		}
		_, err := s.Resolve(ctx, next.ResponseID, store.ResolveOptions{})
		return err
	}, func() { _ = s.Close() }, nil
}

// alternate measures two functions in each round, after a round that only warms up.
func (b *bench) alternate(ours, theirs *series, run, compared func() error) error {
	err := interleave(1+min(b.rounds, 3), timed(ours, run), timed(theirs, compared))
	if err == nil {
		ours.Samples, theirs.Samples = ours.Samples[1:], theirs.Samples[1:]
	}
	return err
}
