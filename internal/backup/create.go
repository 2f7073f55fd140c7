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

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// importSession creates a session, unless it exists. parent is the outcome of its parent. It returns an error if the import cannot
// continue, and calls Problem if only this session cannot be imported.
func (i *importer) importSession(ctx context.Context, s *Session, parent outcome) (outcome, error) {
	if !parent.stored() {
		i.Problem(s.Name, "left out: an earlier turn of its history was not imported")
		return leftOut, nil
	}
	ctx, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	result, err := retry(ctx, func() (outcome, error) { return i.importOnce(ctx, s) })
	if reason, ok := refusal(err); ok {
		i.Problem(s.Name, "refused: "+reason)
		return refused, nil
	}
	if err != nil {
		return pending, named(s.Name, err)
	}
	return result, nil
}

func (i *importer) importOnce(ctx context.Context, s *Session) (outcome, error) {
	name := types.NamespacedName{Namespace: i.namespace, Name: s.Name}
	object, found, err := i.object(ctx, name)
	switch {
	case err != nil:
		return pending, fmt.Errorf("unable to read it: %w", err)
	case found:
		return i.compare(ctx, s, object)
	case i.dryRun:
		return created, i.post(ctx, s, nil, "")
	}
	return i.create(ctx, name, s)
}

// compare returns the outcome for a session that exists. If parts of its snapshot are missing, they are written again.
func (i *importer) compare(ctx context.Context, s *Session, object []byte) (outcome, error) {
	existing, deleting, err := newSession(jsonvalue.Text(object))
	if err != nil {
		return pending, err
	}
	if deleting {
		return pending, errors.New("it is being deleted: wait until it is gone")
	}
	t, err := parseTurn(existing.Spec)
	if err != nil {
		return pending, err
	}
	switch {
	case t.content != s.turn.content:
		i.Problem(s.Name, "exists with a different spec, and was left as it is")
		return different, nil
	case !contains(existing.Labels, s.Labels), !contains(existing.Annotations, s.Annotations):
		i.Problem(s.Name, "exists with different labels or annotations, and was left as it is")
		return different, nil
	}
	return equal, i.confirm(ctx, s, t.ref)
}

// contains reports whether a map has all members of another one.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// confirm returns once no sweep can delete the snapshot of a stored session any more.
func (i *importer) confirm(ctx context.Context, s *Session, ref *v1alpha1.SnapshotReference) error {
	if s.Bodies == nil || i.dryRun {
		return nil
	}
	err := i.stores.Confirm(ctx, types.NamespacedName{Namespace: i.namespace, Name: s.Name}, ref, s.Bodies.snapshot())
	if errors.Is(err, snapshot.ErrUnreadable) {
		return nil // the verification reports it
	}
	return err
}

// create writes the snapshot of a session, if it has one, and then the session.
func (i *importer) create(ctx context.Context, name types.NamespacedName, s *Session) (outcome, error) {
	ref, err := i.writeSnapshot(ctx, name, s)
	if err != nil {
		return pending, err
	}
	// Read this last: garbage collection deletes a session whose owner's UID does not exist.
	parent, err := i.parentUID(ctx, s)
	if err != nil {
		return pending, err
	}
	switch err := i.post(ctx, s, ref, parent); {
	case err == nil && ref == nil:
		return created, nil
	case err == nil:
		return created, i.confirm(ctx, s, ref)
	case apierrors.IsAlreadyExists(err):
		return i.alreadyExists(ctx, name, s, ref)
	case ref != nil && isRefusal(err):
		return pending, errors.Join(err, i.discard(ctx, name, ref))
	default:
		return pending, fmt.Errorf("unable to create it: %w", err)
	}
}

// writeSnapshot writes the bodies of a session, if there are any, and returns the new reference to them.
func (i *importer) writeSnapshot(ctx context.Context, name types.NamespacedName, s *Session) (*v1alpha1.SnapshotReference, error) {
	if s.Bodies == nil {
		return nil, nil
	}
	return snapshot.Write(ctx, i.stores[len(i.stores)-1], name, s.Bodies.snapshot())
}

// alreadyExists is called if a create, or an earlier attempt of it, has met a session that did not exist just before.
func (i *importer) alreadyExists(ctx context.Context, name types.NamespacedName, s *Session, ref *v1alpha1.SnapshotReference) (outcome, error) {
	object, found, err := i.object(ctx, name)
	if err != nil || !found {
		return pending, errors.Join(err, errors.New("it was created and deleted at the same time"))
	}
	if ref != nil && !strings.Contains(jsonvalue.Text(object), ref.Key) {
		if err := i.discard(ctx, name, ref); err != nil {
			return pending, err
		}
	}
	return i.compare(ctx, s, object)
}

// discardTimeout limits the removal of an unused snapshot. If it is exceeded, the operator removes the snapshot later.
const discardTimeout = 10 * time.Second

func (i *importer) discard(ctx context.Context, name types.NamespacedName, ref *v1alpha1.SnapshotReference) error {
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	return i.stores.Delete(ctx, name, ref)
}

// parentUID returns the UID of the parent if the session may have an ownerReference to it. It is empty if the parent does not exist any
// more.
func (i *importer) parentUID(ctx context.Context, s *Session) (types.UID, error) {
	if s.parent < 0 || s.omitsOwner() {
		return "", nil
	}
	name := types.NamespacedName{Namespace: i.namespace, Name: v1alpha1.ObjectName(s.turn.previous)}
	parent, err := kubeclient.GetMetadata(ctx, i.client, kubeclient.Sessions, name)
	switch {
	case kubeclient.IsGone(err, kubeclient.Sessions, name.Name), err == nil && parent.DeletionTimestamp != nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("unable to read its parent: %w", err)
	}
	return parent.UID, nil
}

// post creates the object of a session, with a reference to its snapshot unless that is nil.
func (i *importer) post(ctx context.Context, s *Session, ref *v1alpha1.SnapshotReference, parent types.UID) error {
	spec := s.Spec
	if ref != nil {
		var fields map[string]json.RawMessage
		err := json.Unmarshal(spec, &fields)
		if err == nil {
			fields["snapshot"], err = json.Marshal(ref)
		}
		if err == nil {
			spec, err = json.Marshal(fields)
		}
		if err != nil {
			return err
		}
	}
	object, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            json.RawMessage   `json:"spec"`
	}{
		metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind},
		metav1.ObjectMeta{
			Name: s.Name, Labels: s.Labels, Annotations: s.Annotations, OwnerReferences: kubeclient.ParentReference(s.turn.previous, parent),
		},
		spec,
	})
	if err != nil {
		return err
	}
	_, err = kubeclient.CreateRaw(ctx, i.client, kubeclient.Sessions, i.namespace, object, i.dryRun)
	return err
}

// isRefusal reports whether the API server has not accepted an object because of what is in it.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || kubeclient.IsTooLargeForEtcd(err)
}

// refusal returns why the API server has not accepted an object. It does not quote the object: the messages about fields have their
// values.
func refusal(err error) (reason string, ok bool) {
	var status apierrors.APIStatus
	if !isRefusal(err) || !errors.As(err, &status) {
		return "", false
	}
	details := status.Status().Details
	if !apierrors.IsInvalid(err) || details == nil || len(details.Causes) == 0 {
		return status.Status().Message, true
	}
	var causes []string
	for _, cause := range details.Causes {
		if cause.Field != "" {
			causes = append(causes, fmt.Sprintf("%s is invalid (%s)", cause.Field, cause.Type))
		} else {
			causes = append(causes, cause.Message) // of a policy
		}
	}
	return strings.Join(causes, "; "), true
}

// retry repeats a call for some seconds, as long as its error is transient.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	return driver.Retry(ctx, func() (T, error) {
		result, err := call()
		if isTransient(err) {
			err = driver.Again(err)
		}
		return result, err
	})
}

// isTransient reports whether another attempt may succeed: no API server or bucket has decided about the request.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if err == nil || isRefusal(err) || errors.Is(err, context.Canceled) || errors.Is(err, snapshot.ErrForeign) {
		return false
	}
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
	}
	return true
}
