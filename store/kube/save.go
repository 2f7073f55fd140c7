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
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/elapsed"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// Save implements driver.Store.
//
// The parent's UID is read immediately before the turn is created or, if options.Parent has the UID, at the same time, and again if that has
// taken 100 ms or more. If the parent is deleted without its descendants within these milliseconds, garbage collection may delete the new
// turn as well. Callers should therefore not delete a turn while it is being continued.
func (c *cluster) Save(ctx context.Context, namespace string, session *driver.Session, options driver.SaveOptions) (string, error) {
	limited, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	s := &save{cluster: c, namespace: namespace, session: session, options: options}
	if options.Parent.ResponseID == session.PreviousResponseID {
		s.guess = types.UID(options.Parent.UID)
	}
	attempt := s.create
	if options.Overwrite || options.Existing {
		attempt = s.overwrite
	}
	object, err := driver.Retry(limited, func() (*v1alpha1.ResponseSession, error) {
		object, err := attempt(limited)
		return object, again(err)
	})
	if err == nil {
		err = s.confirm(ctx, object)
	}
	s.discard(ctx, object, err)
	if err != nil {
		return "", err
	}
	s.discardReplaced(ctx, object)
	return version(object), nil
}

// save is the state of one call of Save, with all its attempts.
type save struct {
	*cluster
	namespace string
	session   *driver.Session
	options   driver.SaveOptions
	// guess is the UID that the parent is expected to have, or empty, and used are those with which the turn may have been created.
	guess types.UID
	used  []types.UID
	// written is the spec to store, and started is the time at which the first part was written. They are set when the spec is
	// first needed.
	written *v1alpha1.ResponseSessionSpec
	started time.Time
	// posted is set after a create whose outcome is unknown, and ours once a create may have succeeded.
	posted, ours bool
	// found is the object that the first attempt of an overwrite found, or nil if there was none. It is valid if looked is
	// set. replaced is its snapshot, or nil if it has none that could be read.
	found    *v1alpha1.ResponseSession
	replaced *v1alpha1.SnapshotReference
	looked   bool
	// undecodable is set if only the identity of the last object read could be decoded. verified is its snapshot, or nil if it has none
	// that could be read.
	undecodable bool
	verified    *v1alpha1.SnapshotReference
}

func (s *save) spec(ctx context.Context) (*v1alpha1.ResponseSessionSpec, error) {
	if s.written != nil {
		return s.written, nil
	}
	var err error
	s.started = time.Now()
	s.written, err = s.cluster.spec(ctx, s.namespace, s.session)
	return s.written, err
}

// confirm returns an error if a sweep may still delete the snapshot of a stored turn, which is possible if the snapshot was
// written long before the turn. This may be the case after a repeated save.
func (s *save) confirm(ctx context.Context, object *v1alpha1.ResponseSession) error {
	ref := object.Spec.Snapshot
	if ref == nil || s.wrote(ref) && elapsed.Since(s.started) < s.slow {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	bodies := snapshot.Bodies{Request: s.session.Request, Response: s.session.Response, Metadata: s.session.Metadata}
	err := s.reads.Confirm(limited, objectName(s.namespace, s.session.ResponseID), ref, bodies)
	if err != nil {
		return toError(ctx, s.session.ResponseID, "check whether the bodies of the turn are still stored", err)
	}
	return nil
}

// wrote reports whether a reference points to the snapshot that this save has written.
func (s *save) wrote(ref *v1alpha1.SnapshotReference) bool {
	return s.written != nil && s.written.Snapshot != nil && s.written.Snapshot.Key == ref.Key
}

// create stores a turn that does not exist yet.
func (s *save) create(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	if s.posted {
		object, err := s.alreadyStored(ctx)
		if err != nil {
			return nil, err
		}
		if object != nil {
			return s.correctOwner(ctx, object)
		}
		// It may have been stored and deleted since, with its snapshot.
		s.written, s.posted = nil, false
	}
	spec, err := s.spec(ctx)
	if err != nil {
		return nil, err
	}
	if s.guess != "" {
		return s.createGuessed(ctx, spec)
	}
	// Read this last: garbage collection deletes a session whose owner's UID does not exist.
	read := time.Now()
	parent, err := s.parentUID(ctx)
	if err != nil {
		return nil, err
	}
	object, err := s.post(ctx, spec, parent)
	if err != nil || elapsed.Since(read) < ownerValid {
		return object, err
	}
	return s.correctOwner(ctx, object)
}

// ownerValid is how long after it was read the UID of a parent is used without being read again. A create can wait for its turn, and
// an overloaded API server has it repeated. Nobody but a deletion of the parent alone in that time would make the UID invalid.
const ownerValid = 100 * time.Millisecond

// createGuessed stores a turn with the guessed UID of its parent, and reads the UID at the same time. That is as safe as to read it
// first: if the guess was wrong, the save does not end before the owner is corrected, or the turn stored once more.
func (s *save) createGuessed(ctx context.Context, spec *v1alpha1.ResponseSessionSpec) (*v1alpha1.ResponseSession, error) {
	var parent types.UID
	var parentErr error
	read := time.Now()
	var reading sync.WaitGroup
	reading.Go(func() { parent, parentErr = s.parentUID(ctx) })
	object, err := s.post(ctx, spec, s.guess)
	reading.Wait()
	if err != nil || parentErr == nil && parent == s.guess && elapsed.Since(read) < ownerValid {
		return object, err
	}
	return s.correctOwner(ctx, object)
}

// correctOwner returns the stored turn as soon as the UID that the save has used, if the turn has it, is that of its parent. If garbage
// collection has deleted the turn meanwhile, it is stored once more.
//
// A turn that this save has created with another UID is replaced by one with another UID of its own. To change its ownerReferences would not
// be enough: if the object has changed in any other way since garbage collection has looked at it, as by the operator's status, garbage
// collection looks once more and then deletes it without a look at its version.
func (s *save) correctOwner(ctx context.Context, object *v1alpha1.ResponseSession) (*v1alpha1.ResponseSession, error) {
	for object != nil {
		i := slices.IndexFunc(object.OwnerReferences, func(o metav1.OwnerReference) bool { return slices.Contains(s.used, o.UID) })
		if i < 0 {
			return object, nil
		}
		s.posted = true // until it is certain that garbage collection keeps it
		parent, err := s.parentUID(ctx)
		if err != nil {
			return nil, err
		}
		if parent == object.OwnerReferences[i].UID {
			return object, nil
		}
		if s.ours {
			if err := s.remove(ctx, object); err != nil {
				return nil, err
			}
			break
		}
		owners := []kubeclient.Operation{{Op: "add", Path: "/metadata/ownerReferences", Value: s.owners(parent)}}
		corrected := &v1alpha1.ResponseSession{}
		name := objectName(s.namespace, s.session.ResponseID)
		err = kubeclient.Patch(ctx, s.client, kubeclient.Sessions, name, object.ResourceVersion, owners, corrected)
		if err == nil {
			return corrected, nil
		}
		if !apierrors.IsConflict(err) && !isGone(err, s.namespace, s.session.ResponseID) {
			return nil, toError(ctx, s.session.ResponseID, "correct the owner of the turn", err)
		}
		if object, err = s.alreadyStored(ctx); err != nil {
			return nil, err
		}
	}
	s.guess, s.written, s.posted = "", nil, false
	driver.NoteRepeat(ctx)
	return s.create(ctx)
}

// remove deletes a turn that this save has created. Nothing continues it yet: nobody has been told that it is stored. An orphaning deletion would be
// less safe: when garbage collection removes its finalizer, the API server deletes whatever then has the name.
func (s *save) remove(ctx context.Context, object *v1alpha1.ResponseSession) error {
	name, preconditions := objectName(s.namespace, s.session.ResponseID), &metav1.Preconditions{UID: &object.UID}
	_, err := kubeclient.Delete(ctx, s.client, kubeclient.Sessions, name, preconditions, metav1.DeletePropagationBackground)
	if err == nil || isGone(err, s.namespace, s.session.ResponseID) || apierrors.IsConflict(err) {
		return nil
	}
	return toError(ctx, s.session.ResponseID, "replace the turn, whose parent was replaced", err)
}

// post creates the object of a turn with the UID of its parent, or returns the stored one if it has the same content.
func (s *save) post(ctx context.Context, spec *v1alpha1.ResponseSessionSpec, parent types.UID) (*v1alpha1.ResponseSession, error) {
	s.used = append(s.used, parent)
	object := &v1alpha1.ResponseSession{Spec: *spec}
	object.Name, object.OwnerReferences = v1alpha1.ObjectName(s.session.ResponseID), s.owners(parent)
	created, err := kubeclient.CreateReturningMetadata(ctx, s.client, kubeclient.Sessions, s.namespace, object, false)
	if apierrors.IsAlreadyExists(err) {
		stored, err := s.alreadyStored(ctx)
		if stored == nil && err == nil {
			conflict := driver.Conflict(s.session.ResponseID, "response %q is being deleted", s.session.ResponseID)
			conflict.Retryable = true
			err = conflict
		}
		if err != nil {
			return nil, err
		}
		return s.correctOwner(ctx, stored) // an earlier create may have succeeded late
	}
	if err != nil {
		s.posted = mayHaveSucceeded(err)
		s.ours = s.ours || s.posted
		return nil, toError(ctx, s.session.ResponseID, "", err)
	}
	s.ours = true
	object.ObjectMeta = *created
	return object, nil
}

// owners returns the ownerReferences of the turn.
func (s *save) owners(parent types.UID) []metav1.OwnerReference {
	return kubeclient.OwnerReference(v1alpha1.ResponseSessionKind, s.session.PreviousResponseID, parent)
}

// parentUID reads the parent's UID. It is empty for a root, and for a turn whose parent does not exist or is being deleted.
func (s *save) parentUID(ctx context.Context) (types.UID, error) {
	id := s.session.PreviousResponseID
	if id == "" {
		return "", nil
	}
	parent, err := kubeclient.GetMetadata(ctx, s.client, kubeclient.Sessions, objectName(s.namespace, id))
	if isGone(err, s.namespace, id) || err == nil && parent.DeletionTimestamp != nil {
		return "", nil
	}
	if err != nil {
		return "", toError(ctx, id, "read the parent", err)
	}
	return parent.UID, nil
}

// alreadyStored returns the stored object if it has the same content, and nil if it does not exist or is being deleted. Any other
// object is a conflict.
func (s *save) alreadyStored(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	object, err := s.current(ctx)
	if object == nil || err != nil {
		return nil, err
	}
	options := s.options
	options.Overwrite = false
	if _, err := s.decide(ctx, object, options); err != nil {
		return nil, err
	}
	return object, nil
}

// current returns the stored object, or nil if it does not exist. If the object cannot be decoded, only the fields that decide
// whether it may be replaced are set, so that an overwrite can repair it.
func (s *save) current(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	s.verified = nil
	object, err := s.getObject(ctx, s.namespace, s.session.ResponseID)
	if s.undecodable = errors.Is(err, kubeclient.ErrUndecodable); s.undecodable {
		object, err = s.getIdentity(ctx)
	}
	if errors.Is(err, driver.ErrNotFound) {
		return nil, nil
	}
	return object, err
}

// getIdentity is like getObject, for an object that cannot be decoded.
func (s *save) getIdentity(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	raw, err := kubeclient.GetRaw(ctx, s.client, kubeclient.Sessions, objectName(s.namespace, s.session.ResponseID))
	if isGone(err, s.namespace, s.session.ResponseID) {
		return nil, driver.NotFound(s.session.ResponseID)
	}
	if err != nil {
		return nil, toError(ctx, s.session.ResponseID, "", err)
	}
	object, err := decodeIdentity(raw)
	if err != nil {
		return nil, toError(ctx, s.session.ResponseID, "", err)
	}
	if object.Spec.ResponseID != s.session.ResponseID || object.DeletionTimestamp != nil {
		return nil, driver.NotFound(s.session.ResponseID)
	}
	return object, nil
}

// decide calls driver.Decide with the stored object, or nil.
func (s *save) decide(ctx context.Context, object *v1alpha1.ResponseSession, options driver.SaveOptions) (driver.Decision, error) {
	changed := s.looked && !sameSpec(s.found, object) ||
		s.session.Version != "" && (object == nil || !sameVersion(s.session.Version, object))
	if object == nil {
		return driver.Decide(nil, changed, s.session, options)
	}
	same, err := s.sameContent(ctx, object)
	if err != nil {
		return "", err
	}
	return driver.Decide(&driver.Stored{
		PreviousResponseID: object.Spec.PreviousResponseID,
		Immutable:          object.Spec.Immutable != nil && *object.Spec.Immutable,
		SameContent:        same,
	}, changed, s.session, options)
}

// sameContent reports whether an object has the same content as the session. An unreadable object is treated as different. The
// exception is an object that only a newer version can read, because it must not be replaced.
func (s *save) sameContent(ctx context.Context, object *v1alpha1.ResponseSession) (bool, error) {
	if s.undecodable {
		if err := snapshot.CheckFormats("this program", int64(object.Spec.Format), object.Spec.Snapshot); err != nil {
			return false, unreadable(s.session.ResponseID, err)
		}
		return false, nil
	}
	stored, err := s.stored(ctx, object)
	if errors.Is(err, snapshot.ErrNewer) {
		return false, err
	}
	if errors.Is(err, driver.ErrUnreadable) || errors.Is(err, driver.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.verified = object.Spec.Snapshot
	return s.session.SameContent(stored), nil
}

// overwrite replaces the stored turn, or creates it. If only metadata or the status changed since it was read, for example
// because the controller wrote the status, it tries again. If the turn itself changed, that is a conflict, unless the stored
// content is the same: an earlier attempt may have succeeded although its response was lost, and the turn may have been
// overwritten since.
func (s *save) overwrite(ctx context.Context) (*v1alpha1.ResponseSession, error) {
	for {
		object, err := s.current(ctx)
		if err != nil {
			return nil, err
		}
		decision, err := s.decide(ctx, object, s.options)
		if err != nil {
			return nil, err
		}
		if decision == driver.Keep { // perhaps by an earlier attempt of this save
			return s.correctOwner(ctx, object)
		}
		s.found, s.replaced, s.looked = object, s.verified, true
		if decision == driver.Create {
			return s.create(ctx)
		}
		spec, err := s.spec(ctx)
		if err != nil {
			return nil, err
		}
		replacement, err := replaceSpec(spec)
		if err != nil {
			return nil, err
		}
		written := &v1alpha1.ResponseSession{}
		err = kubeclient.Patch(ctx, s.client, kubeclient.Sessions, objectName(s.namespace, s.session.ResponseID), object.ResourceVersion, replacement, written)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsConflict(err) && !isGone(err, s.namespace, s.session.ResponseID) {
			return nil, toError(ctx, s.session.ResponseID, "", err)
		}
	}
}
