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

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/store/driver"
)

const (
	// maxCascadeTime limits a Delete with Cascade. After that it returns an error, and another Delete continues.
	maxCascadeTime = 10 * time.Minute
	// childrenPerPage is the number of children of a turn that are in memory at once.
	childrenPerPage = 100
)

// cascade deletes a turn and all its descendants, including descendants without an ownerReference, which garbage collection
// would keep: they were saved before their parent, restored from a backup, or not yet reconciled by the operator.
//
// Descendants are found by spec.previousResponseID and deleted from the leaves to the root. If the cascade is interrupted, all
// remaining turns are still connected to the root, so that another cascade finds them. A child that is saved while its parent
// is being deleted is deleted too.
type cascade struct {
	*cluster
	namespace string
	// path leads from the root to the turn whose descendants are being deleted. A turn has one parent, so only the root can be
	// reached twice, if it is part of a cycle.
	path []*branch
}

// branch is a turn on the path.
type branch struct {
	name       string
	uid        types.UID
	responseID string
	// children are the children on the current page whose descendants are still to be deleted. next is the cursor of the next
	// page.
	children []child
	next     string
	listed   bool
	// found is set if the last list has found children, and again once they are listed another time.
	found, again bool
	// deleted is set once the turn is deleted. Its children are then listed again.
	deleted bool
}

type child struct {
	name string
	uid  types.UID
}

// cascade deletes a turn and its descendants. It is not an error if the turn does not exist; in that case, nothing is deleted.
func (c *cluster) cascade(ctx context.Context, namespace, responseID string) error {
	limited, cancel := context.WithTimeout(ctx, maxCascadeTime)
	defer cancel()
	err := c.deleteTree(limited, namespace, responseID)
	if err != nil && ctx.Err() == nil && limited.Err() != nil && !errors.Is(err, errRootGone) {
		return &driver.Error{
			Code: driver.CodeUnreachable, ResponseID: responseID, Retryable: true, Err: err,
			Message: fmt.Sprintf("response %q has too many descendants to delete within %s: delete it again for the others", responseID, maxCascadeTime),
		}
	}
	return err
}

// errRootGone indicates that another cascade would find nothing.
var errRootGone = errors.New("the cascade has not ended")

func (c *cluster) deleteTree(ctx context.Context, namespace, responseID string) error {
	walk := &cascade{cluster: c, namespace: namespace}
	root, err := retry(ctx, responseID, "read the turn", func() (*metav1.ObjectMeta, error) {
		name := objectName(namespace, responseID)
		object, err := kubeclient.GetMetadata(ctx, c.client, kubeclient.Sessions, name)
		if kubeclient.IsGone(err, kubeclient.Sessions, name.Name) {
			return nil, nil
		}
		return object, err
	})
	if err != nil || root == nil {
		return err
	}
	walk.path = []*branch{{name: root.Name, uid: root.UID, responseID: responseID}}
	for len(walk.path) > 0 {
		switch err := walk.step(ctx); {
		case err != nil && walk.path[0].deleted:
			return fmt.Errorf("%w: response %.100q is deleted, but turns that were saved meanwhile and continue it may remain: %w", errRootGone, responseID, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// step sends the next request for the last turn of the path, and extends or shortens the path.
func (w *cascade) step(ctx context.Context) error {
	last := w.path[len(w.path)-1]
	switch {
	case len(last.children) > 0:
		next := last.children[0]
		last.children = last.children[1:]
		id, err := w.responseID(ctx, next.name)
		if id != "" {
			w.path = append(w.path, &branch{name: next.name, uid: next.uid, responseID: id})
		}
		return err
	case !last.listed:
		return w.list(ctx, last)
	case !last.deleted && last.found && len(w.path) == 1:
		// Once the root is gone, another cascade would find nothing. So the root is deleted only when it has no more children.
		last.found, last.again, last.listed = false, true, false
		return nil
	case !last.deleted:
		if err := w.remove(ctx, last); err != nil {
			return err
		}
		last.deleted, last.again, last.listed = true, true, false
		return nil
	}
	w.path = w.path[:len(w.path)-1]
	return nil
}

// list reads the next page of a turn's children.
func (w *cascade) list(ctx context.Context, parent *branch) error {
	var page []child
	next, err := retry(ctx, parent.responseID, "list the children of the turn", func() (string, error) {
		next, err := w.page(ctx, parent, parent.next, &page)
		if apierrors.IsResourceExpired(err) { // the deletion of the previous page took minutes
			return w.page(ctx, parent, "", &page)
		}
		return next, err
	})
	if err != nil {
		return err
	}
	parent.children = append(parent.children, page...)
	parent.found = parent.found || len(page) > 0
	parent.next, parent.listed = next, next == ""
	return nil
}

// page reads a page of a turn's children that are still to be deleted, and returns the cursor of the next page.
func (w *cascade) page(ctx context.Context, parent *branch, from string, page *[]child) (next string, err error) {
	*page = (*page)[:0]
	return kubeclient.ListSessions(ctx, w.client, w.namespace, "previousResponseID", parent.responseID, childrenPerPage, from, func(object *metav1.ObjectMeta) {
		// A finalizer may hold a child that was listed before: its descendants have already been deleted.
		if held := parent.again && object.DeletionTimestamp != nil; !held && object.Name != w.path[0].name {
			*page = append(*page, child{object.Name, object.UID})
		}
	})
}

// responseID returns the response ID of a session. It returns an empty string if the session does not exist, or if its name
// belongs to another response ID: such a session is not part of any chain.
func (w *cascade) responseID(ctx context.Context, name string) (string, error) {
	if id, ok := v1alpha1.ResponseID(name); ok {
		return id, nil
	}
	raw, err := retry(ctx, name, "read a descendant", func() ([]byte, error) {
		raw, err := kubeclient.GetRaw(ctx, w.client, kubeclient.Sessions, types.NamespacedName{Namespace: w.namespace, Name: name})
		if kubeclient.IsGone(err, kubeclient.Sessions, name) {
			return nil, nil
		}
		return raw, err
	})
	id := gjson.GetBytes(raw, "spec.responseID").String()
	if err != nil || v1alpha1.ObjectName(id) != name {
		return "", err
	}
	return id, nil
}

// remove deletes a turn, unless it has been deleted and saved again since it was listed.
func (w *cascade) remove(ctx context.Context, turn *branch) error {
	_, err := retry(ctx, turn.responseID, "delete the turn", func() (struct{}, error) {
		name := types.NamespacedName{Namespace: w.namespace, Name: turn.name}
		_, err := kubeclient.Delete(ctx, w.client, kubeclient.Sessions, name, &metav1.Preconditions{UID: &turn.uid}, metav1.DeletePropagationBackground)
		if apierrors.IsConflict(err) || kubeclient.IsGone(err, kubeclient.Sessions, turn.name) {
			return struct{}{}, nil
		}
		return struct{}{}, err
	})
	return err
}

// retry repeats a request with driver.Retry, and converts its error.
func retry[T any](ctx context.Context, responseID, step string, request func() (T, error)) (T, error) {
	return driver.Retry(ctx, func() (T, error) {
		result, err := request()
		if err != nil {
			return result, again(toError(ctx, responseID, step, err))
		}
		return result, nil
	})
}
