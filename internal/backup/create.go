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
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/store/driver"
)

// importObject creates an object, unless it exists. parent is the outcome of its parent. It returns an error if the import cannot
// continue, and calls Problem if only this object cannot be imported.
func (i *importer) importObject(ctx context.Context, o *Object, parent outcome) (outcome, error) {
	if !parent.stored() {
		missing := [...]string{sessionKind: "an earlier turn of its history", conversationKind: "its last turn", summaryKind: "its conversation"}
		i.Problem(o.label(), "left out: "+missing[o.kind]+" was not imported")
		return leftOut, nil
	}
	ctx, cancel := context.WithTimeout(ctx, snapshot.MaxWriteTime)
	defer cancel()
	result, err := retry(ctx, func() (outcome, error) { return i.importOnce(ctx, o) })
	if reason, ok := refusal(err); ok {
		i.Problem(o.label(), "refused: "+reason)
		return refused, nil
	}
	if err != nil {
		return pending, o.named(err)
	}
	return result, nil
}

func (i *importer) importOnce(ctx context.Context, o *Object) (outcome, error) {
	name := types.NamespacedName{Namespace: i.namespace, Name: o.Name}
	existing, err := i.object(ctx, o.kind, name)
	switch {
	case err != nil:
		return pending, fmt.Errorf("unable to read it: %w", err)
	case existing != nil:
		return i.compare(ctx, o, existing)
	case i.dryRun:
		return created, i.post(ctx, o, nil, "")
	}
	return i.create(ctx, name, o)
}

// compare returns the outcome for an object that exists. If parts of its snapshot are missing, they are written again.
func (i *importer) compare(ctx context.Context, o, existing *Object) (outcome, error) {
	if existing.deleting {
		return pending, errors.New("it is being deleted: wait until it is gone")
	}
	if err := existing.parse(i.MaxTurnBytes); err != nil {
		return i.leave(o, fmt.Sprintf("exists, and cannot be compared (%v)", err))
	}
	switch {
	case existing.parsed.content != o.parsed.content:
		return i.leave(o, "exists with a different spec")
	case !contains(existing.Labels, o.Labels), !contains(existing.Annotations, o.Annotations):
		return i.leave(o, "exists with different labels or annotations")
	case o.kind == summaryKind:
		return i.compareOwner(ctx, o, existing)
	}
	return equal, i.confirm(ctx, o, existing.parsed.ref)
}

// leave reports an object that exists and is left as it is.
func (i *importer) leave(o *Object, problem string) (outcome, error) {
	i.Problem(o.label(), problem+", and was left as it is")
	return different, nil
}

// compareOwner returns the outcome for a summary that exists with the same spec. It is a summary of the conversation only if that owns it.
func (i *importer) compareOwner(ctx context.Context, s, existing *Object) (outcome, error) {
	owner, err := i.parentUID(ctx, s)
	switch {
	case err != nil:
		return pending, err
	case existing.owner == "":
		return i.leave(s, "exists without an ownerReference to its conversation")
	case existing.owner != owner:
		return pending, errors.New("it belongs to an earlier conversation with the same ID: wait until it is gone")
	}
	return equal, nil
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
func (i *importer) confirm(ctx context.Context, s *Object, ref *v1alpha1.SnapshotReference) error {
	if s.Bodies == nil || i.dryRun {
		return nil
	}
	err := i.stores.Confirm(ctx, types.NamespacedName{Namespace: i.namespace, Name: s.Name}, ref, s.Bodies.snapshot())
	if errors.Is(err, snapshot.ErrUnreadable) {
		return nil // the verification reports it
	}
	return err
}

// create writes the snapshot of an object, if it has one, and then the object.
func (i *importer) create(ctx context.Context, name types.NamespacedName, o *Object) (outcome, error) {
	ref, err := i.writeSnapshot(ctx, name, o)
	if err != nil {
		return pending, err
	}
	// Read this last: garbage collection deletes an object whose owner's UID does not exist.
	parent, err := i.parentUID(ctx, o)
	if err != nil {
		return pending, err
	}
	switch err := i.post(ctx, o, ref, parent); {
	case err == nil && ref == nil:
		return created, nil
	case err == nil:
		return created, i.confirm(ctx, o, ref)
	case apierrors.IsAlreadyExists(err):
		return i.alreadyExists(ctx, name, o, ref)
	case ref != nil && isRefusal(err):
		return pending, errors.Join(err, i.discard(ctx, name, ref))
	default:
		return pending, fmt.Errorf("unable to create it: %w", err)
	}
}

// writeSnapshot writes the bodies of a session, if there are any, and returns the new reference to them.
func (i *importer) writeSnapshot(ctx context.Context, name types.NamespacedName, s *Object) (*v1alpha1.SnapshotReference, error) {
	if s.Bodies == nil {
		return nil, nil
	}
	return snapshot.Write(ctx, i.stores[len(i.stores)-1], name, s.Bodies.snapshot())
}

// alreadyExists is called if a create, or an earlier attempt of it, has met an object that did not exist just before.
func (i *importer) alreadyExists(ctx context.Context, name types.NamespacedName, o *Object, ref *v1alpha1.SnapshotReference) (outcome, error) {
	existing, err := i.object(ctx, o.kind, name)
	if err != nil || existing == nil {
		return pending, errors.Join(err, errors.New("it was created and deleted at the same time"))
	}
	if ref != nil && !strings.Contains(string(existing.Spec), ref.Key) {
		if err := i.discard(ctx, name, ref); err != nil {
			return pending, err
		}
	}
	return i.compare(ctx, o, existing)
}

// discardTimeout limits the removal of an unused snapshot. If it is exceeded, the operator removes the snapshot later.
const discardTimeout = 10 * time.Second

func (i *importer) discard(ctx context.Context, name types.NamespacedName, ref *v1alpha1.SnapshotReference) error {
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	return i.stores.Delete(ctx, name, ref, nil)
}

// parentUID returns the UID of the parent if the object may have an ownerReference to it. It is empty if the parent of a session does not
// exist any more. Without a conversation, there is no summary.
func (i *importer) parentUID(ctx context.Context, o *Object) (types.UID, error) {
	if o.parent < 0 || o.kind == conversationKind || o.omitsOwner() {
		return "", nil
	}
	resource := kinds[o.kind.parentKind()].resource
	name := types.NamespacedName{Namespace: i.namespace, Name: v1alpha1.ObjectName(o.parsed.parentID)}
	parent, err := kubeclient.GetMetadata(ctx, i.client, resource, name)
	switch gone := kubeclient.IsGone(err, resource, name.Name) || err == nil && parent.DeletionTimestamp != nil; {
	case gone && o.kind == summaryKind && !i.dryRun:
		return "", errors.New("its conversation was deleted while the import was running")
	case gone:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("unable to read its parent: %w", err)
	}
	return parent.UID, nil
}

// post creates an object, with a reference to its snapshot unless that is nil.
func (i *importer) post(ctx context.Context, o *Object, ref *v1alpha1.SnapshotReference, parent types.UID) error {
	spec := o.Spec
	if ref != nil {
		reference, err := json.Marshal(ref)
		if err != nil {
			return err
		}
		if spec, err = o.editSpec(func(members map[string]json.RawMessage) { members["snapshot"] = reference }); err != nil {
			return err
		}
	}
	object, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            json.RawMessage   `json:"spec"`
	}{
		metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kinds[o.kind].name},
		metav1.ObjectMeta{
			Name: o.Name, Labels: o.Labels, Annotations: o.Annotations,
			OwnerReferences: kubeclient.OwnerReference(kinds[o.kind.parentKind()].name, o.parsed.parentID, parent),
		},
		spec,
	})
	if err != nil {
		return err
	}
	_, err = kubeclient.CreateRaw(ctx, i.client, kinds[o.kind].resource, i.namespace, object, i.dryRun)
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
	silent := errors.Is(err, silence.ErrSilent) || errors.Is(err, silence.ErrEndless) // it has been waited for long enough
	if err == nil || silent || isRefusal(err) || errors.Is(err, context.Canceled) || errors.Is(err, snapshot.ErrForeign) {
		return false
	}
	if errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
	}
	return true
}
