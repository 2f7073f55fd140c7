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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
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

// Write creates chunks while it encodes the next ones.
func (s *chunkStore) Write(ctx context.Context, session types.NamespacedName, key string, encode func(io.Writer) error) (int, error) {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	parts := 0
	var owner *metav1.OwnerReference
	pieces := &pieceWriter{write: func(data []byte) error {
		part := parts
		parts++
		if part == 0 {
			first, err := s.create(ctx, session, key, part, data, nil)
			if err == nil {
				owner = &metav1.OwnerReference{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.SnapshotChunkKind, Name: first.Name, UID: first.UID,
				}
			}
			return err
		}
		group.Go(func() error {
			_, err := s.create(groupCtx, session, key, part, data, owner)
			return err
		})
		return groupCtx.Err()
	}}
	err := encode(pieces)
	if err == nil {
		err = pieces.flush()
	}
	if failed := group.Wait(); failed != nil {
		err = failed // the others failed because of it
	}
	if parts > 1 && apierrors.IsForbidden(err) {
		// A quota is exceeded now. The written parts must not count towards it until a sweep deletes them.
		err = errors.Join(err, s.Delete(ctx, Part{Session: session, Key: key}))
	}
	return parts, err
}

// create creates one chunk.
func (s *chunkStore) create(
	ctx context.Context, session types.NamespacedName, key string, part int, data []byte, owner *metav1.OwnerReference,
) (*metav1.ObjectMeta, error) {
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
	created, err := kubeclient.CreateReturningMetadata(ctx, s.client, kubeclient.Chunks, session.Namespace, chunk, part > 0)
	if apierrors.IsAlreadyExists(err) {
		// The key belongs to this write alone: it has created the chunk, its response was lost, and client-go retried.
		created, err = kubeclient.GetMetadata(ctx, s.client, kubeclient.Chunks, types.NamespacedName{Namespace: session.Namespace, Name: chunk.Name})
	}
	if err != nil {
		return nil, fmt.Errorf("unable to create part %d: %w", part, err)
	}
	return created, nil
}

// pieceWriter cuts data into pieces of the size of a chunk. write gets each piece, which it may keep.
type pieceWriter struct {
	write func(piece []byte) error
	piece []byte
}

func (w *pieceWriter) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), v1alpha1.MaxSnapshotChunkBytes-len(w.piece))
		w.piece, rest = append(w.piece, rest[:n]...), rest[n:]
		if len(w.piece) == v1alpha1.MaxSnapshotChunkBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(data), nil
}

// flush writes the last piece.
func (w *pieceWriter) flush() error {
	piece := w.piece
	w.piece = nil
	if len(piece) == 0 {
		return nil
	}
	return w.write(piece)
}

func (s *chunkStore) Read(ctx context.Context, session types.NamespacedName, key string, parts int, _ int64) (io.Reader, error) {
	return &chunkReader{store: s, ctx: ctx, session: session, key: key, parts: parts}, nil
}

// readCached is Read from the API server's watch cache, which may lack the last changes.
func (s *chunkStore) readCached(ctx context.Context, session types.NamespacedName, key string, parts int, _ int64) (io.Reader, error) {
	return &chunkReader{store: s, ctx: ctx, session: session, key: key, parts: parts, resourceVersion: kubeclient.FromCache}, nil
}

// chunkReader reads one chunk at a time, always into the same memory: a turn can have 160.
type chunkReader struct {
	store           *chunkStore
	ctx             context.Context
	session         types.NamespacedName
	key             string
	parts           int
	resourceVersion string
	next            int
	// object is the last chunk as the API server has sent it, data its data, and rest the part of data that has not been read.
	object     bytes.Buffer
	data, rest []byte
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == r.parts {
			return 0, io.EOF
		}
		if err := r.readPart(r.next); err != nil {
			return 0, err
		}
		r.next++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *chunkReader) readPart(part int) error {
	name := types.NamespacedName{Namespace: r.session.Namespace, Name: v1alpha1.SnapshotChunkName(r.key, part)}
	err := r.readObject(name)
	switch {
	case kubeclient.IsGone(err, kubeclient.Chunks, name.Name):
		return fmt.Errorf("%w: part %d of %d, SnapshotChunk %s, is missing", ErrUnreadable, part, r.parts, name.Name)
	case err != nil:
		return fmt.Errorf("unable to read part %d: %w", part, err)
	}
	return metered.Process(r.ctx, r.object.Len(), func() error {
		var owner string
		owner, r.data, err = decodeChunk(r.object.Bytes(), r.data[:0])
		switch {
		case err != nil:
			return fmt.Errorf("%w: SnapshotChunk %s cannot be decoded: %w", ErrUnreadable, name.Name, err)
		case owner != r.session.Name:
			return fmt.Errorf("%w: SnapshotChunk %s belongs to another session", ErrUnreadable, name.Name)
		}
		r.rest = r.data
		return nil
	})
}

// readObject reads a chunk as the API server sends it.
func (r *chunkReader) readObject(name types.NamespacedName) error {
	if err := r.store.reads.Acquire(r.ctx, name.Namespace, 1); err != nil {
		return err
	}
	defer r.store.reads.Release(name.Namespace, 1)
	err := kubeclient.ReadInto(r.ctx, kubeclient.GetAt(r.store.client, kubeclient.Chunks, name, r.resourceVersion), &r.object)
	metered.Object(r.ctx, r.object.Len()) // which may be larger than the reference says
	return err
}

// decodeChunk decodes only what is needed of a chunk as the API server sends it, in a tenth of the time that all of it takes, and appends
// its data. The results do not share the memory of the object.
func decodeChunk(object, into []byte) (session string, data []byte, err error) {
	members := jsonvalue.RawMembers(jsonvalue.Text(object), "metadata", "spec")
	annotations := jsonvalue.RawMembers(members[0], "annotations")[0]
	session = strings.Clone(jsonvalue.Unquote(jsonvalue.RawMembers(annotations, v1alpha1.SessionAnnotation)[0]))
	encoded := jsonvalue.RawMembers(members[1], "data")[0]
	if !jsonvalue.IsString(encoded) {
		return "", nil, errors.New("spec.data must be a string")
	}
	data, err = base64.StdEncoding.AppendDecode(into, []byte(jsonvalue.Unquote(encoded)))
	return session, data, err
}

// Check returns nil: chunks are in their cluster.
func (s *chunkStore) Check(context.Context) error { return nil }

// Claim does nothing: chunks are in their cluster.
func (s *chunkStore) Claim(context.Context, []Part) error { return nil }

// HeldOff returns the zero value: chunks are restored together with their sessions.
func (s *chunkStore) HeldOff(context.Context) (HoldOff, bool, error) { return HoldOff{}, true, nil }

// SetHeldOff does nothing.
func (s *chunkStore) SetHeldOff(context.Context, HoldOff) error { return nil }

// List reads only the chunks' metadata. If the list expires before its end, that is an error.
func (s *chunkStore) List(ctx context.Context) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		options, more := &metav1.ListOptions{Limit: chunksPerPage}, true
		for more {
			page, err := kubeclient.ListMetadata(ctx, kubeclient.ListRequest(s.client, kubeclient.Chunks, options), func(chunk *metav1.ObjectMeta) {
				if part, ok := chunkPart(chunk); ok && more {
					more = yield(part, nil)
				}
			})
			if err != nil {
				if more {
					yield(Part{}, fmt.Errorf("unable to list the chunks: %w", err))
				}
				return
			}
			options.Continue = page.Continue
			more = more && page.Continue != ""
		}
	}
}

// chunkPart returns the part for a chunk, and false if the chunk is not one.
func chunkPart(chunk *metav1.ObjectMeta) (Part, bool) {
	key, index, ok := v1alpha1.ParseSnapshotChunkName(chunk.Name)
	if !ok || !keyPattern.MatchString(key) {
		return Part{}, false
	}
	session := chunk.Annotations[v1alpha1.SessionAnnotation]
	if len(session) > validation.DNS1123SubdomainMaxLength {
		session = "" // it names no session, and can be large
	}
	part := Part{
		Session: types.NamespacedName{Namespace: chunk.Namespace, Name: session},
		Key:     key, Index: index, Written: chunk.CreationTimestamp.Time, Deleting: chunk.DeletionTimestamp != nil,
	}
	// Any other value is not a mark.
	part.Unreferenced, _ = time.Parse(time.RFC3339, chunk.Annotations[v1alpha1.UnreferencedSinceAnnotation])
	uid, version := chunk.UID, chunk.ResourceVersion // pointers into chunk would keep all of it in memory
	part.listed = &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
	return part, true
}

func (s *chunkStore) Find(ctx context.Context, session types.NamespacedName, key string, parts int) ([]Part, error) {
	found := make([]*Part, parts)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i := range parts {
		group.Go(func() error {
			if err := s.reads.Acquire(ctx, session.Namespace, 1); err != nil {
				return err
			}
			defer s.reads.Release(session.Namespace, 1)
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
	value, version := "", ""
	if !since.IsZero() {
		value = since.UTC().Format(time.RFC3339)
		if part.listed != nil {
			version = *part.listed.ResourceVersion
		}
	}
	name := chunkName(part)
	err := kubeclient.Annotate(ctx, s.client, kubeclient.Chunks, name, version, v1alpha1.UnreferencedSinceAnnotation, value)
	switch {
	case kubeclient.IsGone(err, kubeclient.Chunks, name.Name):
		return nil
	case version != "" && apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), kubeclient.IsTooLargeForEtcd(err):
		return fmt.Errorf("%w: SnapshotChunk %s", ErrRejected, name) // the API server's message may contain the chunk's data
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
