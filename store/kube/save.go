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

package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store"
)

// newBackoff returns how long a save waits before each of its further attempts, where the API server could not be asked
// or did not answer: 6 to 9 s in all, in which an API server restarts. A turn that has arrived nevertheless is recognised
// by the next attempt.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6}
}

// Save stores a turn.
func (s *Store) Save(ctx context.Context, session *store.Session, options store.SaveOptions) error {
	if err := session.Validate(); err != nil {
		return err
	}
	if size := len(session.Request) + len(session.Response) + len(session.Metadata); size > s.maxTurnBytes {
		return &store.Error{
			Code: store.CodeTooLarge, ResponseID: session.ResponseID,
			Message: fmt.Sprintf("response %q has %d bytes: at most %d are stored", session.ResponseID, size, s.maxTurnBytes),
		}
	}
	if err := options.CheckExpected(session); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	save := s.create
	if options.Overwrite {
		save = s.overwrite
	}
	spec := &lazySpec{store: s, session: session}
	for backoff := newBackoff(); ; {
		object, err := save(ctx, session, spec)
		if err == nil {
			session.Version = version(object)
			return nil
		}
		if !store.IsRetryable(err) || backoff.Steps == 0 || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return err
		}
	}
}

// lazySpec is what is to be stored of a session. Its snapshot is written when it is first asked for, and only once.
type lazySpec struct {
	store   *Store
	session *store.Session
	spec    *v1alpha1.ResponseSessionSpec
}

func (l *lazySpec) get(ctx context.Context) (*v1alpha1.ResponseSessionSpec, error) {
	if l.spec != nil {
		return l.spec, nil
	}
	var err error
	l.spec, err = l.store.spec(ctx, l.session)
	return l.spec, err
}

// create stores a turn that is not there yet.
func (s *Store) create(ctx context.Context, session *store.Session, lazy *lazySpec) (*v1alpha1.ResponseSession, error) {
	spec, err := lazy.get(ctx)
	if err != nil {
		return nil, err
	}
	object := &v1alpha1.ResponseSession{Spec: *spec}
	object.Name = v1alpha1.ObjectName(session.ResponseID)
	// Right before the create: garbage collection deletes a session whose owner's UID does not exist.
	if object.OwnerReferences, err = s.ownerReferences(ctx, session.PreviousResponseID); err != nil {
		return nil, err
	}
	created := &v1alpha1.ResponseSession{}
	err = s.client.Post().Namespace(s.namespace).Resource(kubeclient.Sessions).Body(object).Do(ctx).Into(created)
	if apierrors.IsAlreadyExists(err) {
		return s.alreadyThere(ctx, session)
	}
	if err != nil {
		return nil, toError(ctx, session.ResponseID, "unable to save the turn", err)
	}
	return created, nil
}

// ownerReferences returns the reference to the parent as it is now, none where there is no parent.
func (s *Store) ownerReferences(ctx context.Context, parentID string) ([]metav1.OwnerReference, error) {
	if parentID == "" {
		return nil, nil
	}
	parent := &metav1.PartialObjectMetadata{}
	err := s.client.Get().Namespace(s.namespace).Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(parentID)).
		SetHeader("Accept", kubeclient.MetadataOnly).Do(ctx).Into(parent)
	if apierrors.IsNotFound(err) || err == nil && parent.DeletionTimestamp != nil {
		return nil, nil
	}
	if err != nil {
		return nil, toError(ctx, parentID, "unable to read the parent", err)
	}
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind, Name: parent.Name, UID: parent.UID,
		Controller: new(false), BlockOwnerDeletion: new(false),
	}}, nil
}

// alreadyThere returns the object that is stored already where it has the same content, else a conflict.
func (s *Store) alreadyThere(ctx context.Context, session *store.Session) (*v1alpha1.ResponseSession, error) {
	object, err := s.getObject(ctx, session.ResponseID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, conflict(session, "it is being deleted", true)
	}
	if err != nil {
		return nil, err
	}
	same, err := s.same(ctx, object, session)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, conflict(session, "it exists already", false)
	}
	return object, nil
}

// same reports whether an object has the content of a session.
func (s *Store) same(ctx context.Context, object *v1alpha1.ResponseSession, session *store.Session) (bool, error) {
	stored, err := s.session(ctx, object)
	if errors.Is(err, store.ErrUnreadable) || errors.Is(err, store.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return equal(stored, session), nil
}

// overwrite stores a turn in the place of the one that is there, or creates it.
func (s *Store) overwrite(ctx context.Context, session *store.Session, lazy *lazySpec) (*v1alpha1.ResponseSession, error) {
	object, err := s.getObject(ctx, session.ResponseID)
	if errors.Is(err, store.ErrNotFound) && session.Version == "" {
		return s.create(ctx, session, lazy)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, conflict(session, "it is not there any more", false)
	}
	if err != nil {
		return nil, err
	}
	if same, err := s.same(ctx, object, session); err != nil || same {
		return object, err
	}
	switch {
	case object.Spec.Immutable != nil && *object.Spec.Immutable:
		return nil, conflict(session, "it is immutable", false)
	case object.Spec.PreviousResponseID != session.PreviousResponseID:
		return nil, conflict(session, fmt.Sprintf("its parent is %q and cannot be changed", object.Spec.PreviousResponseID), false)
	case session.Version != "" && !sameVersion(session.Version, object):
		return nil, conflict(session, "it has been overwritten since", false)
	}
	spec, err := lazy.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, session, object, spec)
}

// replace writes a spec over the one that an object has. Where only metadata or the status changed meanwhile, as they do
// when the controller judges the turn, it tries again.
func (s *Store) replace(
	ctx context.Context, session *store.Session, object *v1alpha1.ResponseSession, spec *v1alpha1.ResponseSessionSpec,
) (*v1alpha1.ResponseSession, error) {
	for {
		next := object.DeepCopy()
		next.Spec = *spec
		written := &v1alpha1.ResponseSession{}
		err := s.client.Put().Namespace(s.namespace).Resource(kubeclient.Sessions).Name(object.Name).Body(next).Do(ctx).Into(written)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, toError(ctx, session.ResponseID, "unable to overwrite the turn", err)
		}
		current, err := s.getObject(ctx, session.ResponseID)
		if errors.Is(err, store.ErrNotFound) {
			return nil, conflict(session, "it was deleted meanwhile", false)
		}
		if err != nil {
			return nil, err
		}
		if !sameSpec(object, current) {
			return nil, conflict(session, "it was overwritten meanwhile", false)
		}
		object = current
	}
}
