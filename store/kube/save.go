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
	utilnet "k8s.io/apimachinery/pkg/util/net"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store"
)

// Save stores a turn.
//
// The parent's UID is read right before the turn is created. Where the parent is deleted without its descendants in the
// milliseconds between, the garbage collector, which did not see the new turn in time, deletes it with its parent: who
// deletes a turn that is being continued must expect that.
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
	limited, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	save := &save{Store: s, session: session}
	attempt := save.create
	if options.Overwrite {
		attempt = save.overwrite
	}
	object, err := retry(limited, func() (*v1alpha1.ResponseSession, error) { return attempt(limited) })
	save.discard(ctx, object, err)
	if err != nil {
		return err
	}
	session.Version = version(object)
	return nil
}

// save is one call of Save, with all its attempts.
type save struct {
	*Store
	session *store.Session
	// written is what is to be stored. Its snapshot is written when it is first asked for.
	written *v1alpha1.ResponseSessionSpec
	// posted says that an attempt has sent a create of which it is not known what became.
	posted bool
	// found is what the first attempt of an overwrite has found, nil where that was nothing.
	found *v1alpha1.ResponseSession
	// looked says that there was a first attempt.
	looked bool
}

func (s *save) spec(ctx context.Context) (*v1alpha1.ResponseSessionSpec, error) {
	if s.written != nil {
		return s.written, nil
	}
	var err error
	s.written, err = s.Store.spec(ctx, s.session)
	return s.written, err
}

// discardTimeout is how long removing what was written in vain may take. The operator removes it otherwise, later.
const discardTimeout = 10 * time.Second

// discard removes the snapshot that was written for a save that was refused, or that found its turn stored already. Where
// it is not known what became of the save, the snapshot stays.
func (s *save) discard(ctx context.Context, object *v1alpha1.ResponseSession, err error) {
	refused := errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrTooLarge)
	if s.written == nil || s.written.Snapshot == nil || err != nil && !refused {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	if refused {
		// An attempt whose answer was lost may have arrived, and what was changed since still refer to its snapshot.
		if object, err = s.getObject(ctx, s.session.ResponseID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return
		}
	}
	ref := s.written.Snapshot
	if object != nil && object.Spec.Snapshot != nil && object.Spec.Snapshot.Key == ref.Key {
		return
	}
	_ = s.reads.Delete(ctx, s.place(s.session.ResponseID), ref) // see discardTimeout
}

// create stores a turn that is not there yet.
func (s *save) create(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	if s.posted {
		if object, err := s.alreadyThere(ctx); object != nil || err != nil {
			return object, err
		}
		// It may have arrived and been deleted since, with its snapshot.
		s.written, s.posted = nil, false
	}
	spec, err := s.spec(ctx)
	if err != nil {
		return nil, err
	}
	object := &v1alpha1.ResponseSession{Spec: *spec}
	object.Name = v1alpha1.ObjectName(s.session.ResponseID)
	// Right before the create: garbage collection deletes a session whose owner's UID does not exist.
	if object.OwnerReferences, err = s.ownerReferences(ctx, s.session.PreviousResponseID); err != nil {
		return nil, err
	}
	created := &v1alpha1.ResponseSession{}
	err = s.client.Post().Namespace(s.namespace).Resource(kubeclient.Sessions).Body(object).Do(ctx).Into(created)
	if apierrors.IsAlreadyExists(err) {
		stored, err := s.alreadyThere(ctx)
		if stored == nil && err == nil {
			err = conflict(s.session, "it is being deleted", true)
		}
		return stored, err
	}
	if err != nil {
		s.posted = !utilnet.IsConnectionRefused(err) && !apierrors.IsTooManyRequests(err)
		return nil, toError(ctx, s.session.ResponseID, "unable to save the turn", err)
	}
	return created, nil
}

// ownerReferences returns the reference to the parent as it is now, none where there is no parent.
func (s *save) ownerReferences(ctx context.Context, parentID string) ([]metav1.OwnerReference, error) {
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

// alreadyThere returns the object that is stored where it has the same content, and nil where there is none, or it is being
// deleted. Any other is a conflict.
func (s *save) alreadyThere(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	object, err := s.getObject(ctx, s.session.ResponseID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	same, err := s.same(ctx, object)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, conflict(s.session, "it exists already", false)
	}
	return object, nil
}

// same reports whether an object has the content of the session.
func (s *save) same(ctx context.Context, object *v1alpha1.ResponseSession) (bool, error) {
	stored, err := s.stored(ctx, object)
	if errors.Is(err, store.ErrUnreadable) || errors.Is(err, store.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.session.SameContent(stored), nil
}

// overwrite stores a turn in the place of the one that is there, or creates it.
func (s *save) overwrite(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	object, err := s.getObject(ctx, s.session.ResponseID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if object != nil {
		if same, err := s.same(ctx, object); err != nil || same {
			return object, err
		}
	}
	// An attempt whose answer was lost may have arrived, and others may have overwritten it since.
	if s.looked && !sameSpec(s.found, object) {
		return nil, conflict(s.session, "it was changed meanwhile", false)
	}
	s.found, s.looked = object, true
	switch {
	case object == nil && s.session.Version == "":
		return s.create(ctx)
	case object == nil:
		return nil, conflict(s.session, "it is not there any more", false)
	case object.Spec.Immutable != nil && *object.Spec.Immutable:
		return nil, conflict(s.session, "it is immutable", false)
	case object.Spec.PreviousResponseID != s.session.PreviousResponseID:
		return nil, conflict(s.session, fmt.Sprintf("its parent is %q and cannot be changed", object.Spec.PreviousResponseID), false)
	case s.session.Version != "" && !sameVersion(s.session.Version, object):
		return nil, conflict(s.session, "it has been overwritten since", false)
	}
	spec, err := s.spec(ctx)
	if err != nil {
		return nil, err
	}
	return s.replace(ctx, object, spec)
}

// replace writes a spec over the one that an object has. Where only metadata or the status changed meanwhile, as they do
// when the controller judges the turn, it tries again. Another overwrite with the same content is as good as this one.
func (s *save) replace(
	ctx context.Context, object *v1alpha1.ResponseSession, spec *v1alpha1.ResponseSessionSpec,
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
			return nil, toError(ctx, s.session.ResponseID, "unable to overwrite the turn", err)
		}
		current, err := s.getObject(ctx, s.session.ResponseID)
		if errors.Is(err, store.ErrNotFound) {
			return nil, conflict(s.session, "it was deleted meanwhile", false)
		}
		if err != nil {
			return nil, err
		}
		if !sameSpec(object, current) {
			same, err := s.same(ctx, current)
			if err == nil && !same {
				err = conflict(s.session, "it was overwritten meanwhile", false)
			}
			return current, err
		}
		object = current
	}
}
