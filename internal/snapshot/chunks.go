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
	"iter"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// chunksPerPage is the number of chunks whose metadata is listed at once.
const chunksPerPage = 500

// chunkStore keeps a snapshot as SnapshotChunks, named KEY-0, KEY-1 and so on, in the session's namespace. The first one
// owns the others, and the controller makes the session the owner of the first: so all of them are deleted with the
// session, and only the first is ever written a second time.
type chunkStore struct {
	client rest.Interface
	// writes and reads are the parts that are being written and read, by namespace.
	writes, reads *fair.Budget
}

// maxParts is how many parts are written concurrently, and how many are read. Each of three namespaces can use one, however many
// turns it saves, because a part costs the API server as much as dozens of small turns. With two parts at once, one turn of 60 MiB
// is saved in 1.7 s instead of 2.3, but several are not saved faster, and small turns of others take twice as long.
const maxParts = 3

var _ Store = &chunkStore{}

// NewChunkStore returns a store in the cluster of a client of the ResponseSessions' group and version.
func NewChunkStore(client rest.Interface) Store {
	return &chunkStore{client: client, writes: fair.NewBudget(maxParts), reads: fair.NewBudget(maxParts)}
}

func (s *chunkStore) Name() string { return v1alpha1.SnapshotStoreChunks }

func (s *chunkStore) Write(ctx context.Context, session types.NamespacedName, key string, data []byte) (int, error) {
	var owner *metav1.OwnerReference
	create := func(ctx context.Context, part int, data []byte) (*metav1.PartialObjectMetadata, error) {
		chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: data}}
		chunk.Name = v1alpha1.SnapshotChunkName(key, part)
		chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: session.Name, v1alpha1.DataSizeAnnotation: v1alpha1.DataSize(data)}
		if owner != nil {
			chunk.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		if err := s.writes.Acquire(ctx, session.Namespace, 1); err != nil {
			return nil, err
		}
		defer s.writes.Release(session.Namespace, 1)
		created, err := kubeclient.CreateLarge(ctx, s.client, kubeclient.Chunks, session.Namespace, chunk, part > 0)
		if apierrors.IsAlreadyExists(err) {
			// The key belongs to this write alone: it has created the chunk, its response was lost, and client-go retried.
			created, err = kubeclient.GetMetadata(ctx, s.client, kubeclient.Chunks, types.NamespacedName{Namespace: session.Namespace, Name: chunk.Name})
		}
		if err != nil {
			return nil, fmt.Errorf("unable to create part %d: %w", part, err)
		}
		return created, nil
	}
	pieces := slices.Collect(slices.Chunk(data, v1alpha1.MaxSnapshotChunkBytes))
	first, err := create(ctx, 0, pieces[0])
	if err != nil {
		return 0, err
	}
	owner = &metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SnapshotChunkKind, Name: first.Name, UID: first.UID,
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i, piece := range pieces[1:] {
		group.Go(func() error {
			_, err := create(groupCtx, i+1, piece)
			return err
		})
	}
	if err = group.Wait(); apierrors.IsForbidden(err) {
		// A quota is exceeded now. The written parts must not count towards it until a sweep deletes them.
		err = errors.Join(err, s.Delete(ctx, Part{Session: session, Key: key}))
	}
	return len(pieces), err
}

func (s *chunkStore) Read(ctx context.Context, session types.NamespacedName, key string, parts int) ([]byte, error) {
	return s.read(ctx, session, key, parts, "")
}

// readCached is Read from the API server's watch cache, which may lack the last changes.
func (s *chunkStore) readCached(ctx context.Context, session types.NamespacedName, key string, parts int) ([]byte, error) {
	return s.read(ctx, session, key, parts, "0")
}

func (s *chunkStore) read(ctx context.Context, session types.NamespacedName, key string, parts int, resourceVersion string) ([]byte, error) {
	pieces := make([][]byte, parts)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i := range parts {
		group.Go(func() error {
			name := v1alpha1.SnapshotChunkName(key, i)
			if err := s.reads.Acquire(ctx, session.Namespace, 1); err != nil {
				return err
			}
			defer s.reads.Release(session.Namespace, 1)
			chunk := &v1alpha1.SnapshotChunk{}
			err := kubeclient.GetAt(ctx, s.client, kubeclient.Chunks, types.NamespacedName{Namespace: session.Namespace, Name: name}, resourceVersion, chunk)
			switch {
			case kubeclient.IsGone(err, kubeclient.Chunks, name):
				return fmt.Errorf("%w: part %d of %d, SnapshotChunk %s, is missing", ErrUnreadable, i, parts, name)
			case errors.Is(err, kubeclient.ErrUndecodable):
				return fmt.Errorf("%w: SnapshotChunk %s cannot be decoded", ErrUnreadable, name)
			case err != nil:
				return fmt.Errorf("unable to read part %d: %w", i, err)
			case chunk.Annotations[v1alpha1.SessionAnnotation] != session.Name:
				return fmt.Errorf("%w: SnapshotChunk %s belongs to another session", ErrUnreadable, name)
			}
			pieces[i] = chunk.Spec.Data
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return bytes.Join(pieces, nil), nil
}

// Check returns nil: chunks are in their cluster.
func (s *chunkStore) Check(context.Context) error { return nil }

// Claim does nothing: chunks are in their cluster.
func (s *chunkStore) Claim(context.Context, []Part) error { return nil }

// HeldOff returns the zero value: chunks are restored together with their sessions.
func (s *chunkStore) HeldOff(context.Context, time.Time) (HoldOff, error) { return HoldOff{}, nil }

// SetHeldOff does nothing.
func (s *chunkStore) SetHeldOff(context.Context, HoldOff) error { return nil }

// List reads only the chunks' metadata. If the list expires before its end, that is an error.
func (s *chunkStore) List(ctx context.Context) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		for next := ""; ; {
			page, err := kubeclient.ListMetadata(ctx, s.client, kubeclient.Chunks, chunksPerPage, next)
			if err != nil {
				yield(Part{}, fmt.Errorf("unable to list the chunks: %w", err))
				return
			}
			for i := range page.Items {
				if part, ok := chunkPart(&page.Items[i]); ok && !yield(part, nil) {
					return
				}
			}
			if next = page.Continue; next == "" {
				return
			}
		}
	}
}

// chunkPart returns the part for a chunk, and false if the chunk is not one.
func chunkPart(chunk *metav1.PartialObjectMetadata) (Part, bool) {
	key, index, ok := v1alpha1.ParseSnapshotChunkName(chunk.Name)
	if !ok || !keyPattern.MatchString(key) {
		return Part{}, false
	}
	part := Part{
		Session: types.NamespacedName{Namespace: chunk.Namespace, Name: chunk.Annotations[v1alpha1.SessionAnnotation]},
		Key:     key, Index: index, Written: chunk.CreationTimestamp.Time,
	}
	// Any other value is not a mark.
	part.Unreferenced, _ = time.Parse(time.RFC3339, chunk.Annotations[v1alpha1.UnreferencedSinceAnnotation])
	uid, version := chunk.UID, chunk.ResourceVersion // pointers into chunk would keep its whole page in memory
	part.listed = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	return part, true
}

func (s *chunkStore) Find(ctx context.Context, session types.NamespacedName, key string, parts int) ([]Part, error) {
	found := make([]*Part, parts)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i := range parts {
		group.Go(func() error {
			name := v1alpha1.SnapshotChunkName(key, i)
			chunk, err := kubeclient.GetMetadata(ctx, s.client, kubeclient.Chunks, types.NamespacedName{Namespace: session.Namespace, Name: name})
			if kubeclient.IsGone(err, kubeclient.Chunks, name) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("unable to find part %d: %w", i, err)
			}
			if part, ok := chunkPart(chunk); ok && part.Session == session {
				found[i] = &part
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []Part
	for _, part := range found {
		if part != nil {
			all = append(all, *part)
		}
	}
	return all, nil
}

func chunkName(part Part) types.NamespacedName {
	return types.NamespacedName{Namespace: part.Session.Namespace, Name: v1alpha1.SnapshotChunkName(part.Key, part.Index)}
}

func (s *chunkStore) Mark(ctx context.Context, part Part, since time.Time) error {
	value := ""
	if !since.IsZero() {
		value = since.UTC().Format(time.RFC3339)
	}
	err := kubeclient.Annotate(ctx, s.client, kubeclient.Chunks, chunkName(part), v1alpha1.UnreferencedSinceAnnotation, value)
	if kubeclient.IsGone(err, kubeclient.Chunks, chunkName(part).Name) {
		return nil
	}
	return err
}

// Delete deletes one chunk. If it is the first, garbage collection deletes the others, unless they have lost their
// ownerReferences.
func (s *chunkStore) Delete(ctx context.Context, part Part) error {
	_, err := kubeclient.Delete(ctx, s.client, kubeclient.Chunks, chunkName(part), part.listed, metav1.DeletePropagationBackground)
	if kubeclient.IsGone(err, kubeclient.Chunks, chunkName(part).Name) {
		return nil
	}
	if part.listed != nil && apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}
