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

// Package testsession builds ResponseSessions for tests.
package testsession

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
)

// Builder builds a ResponseSession.
type Builder struct{ session *v1alpha1.ResponseSession }

// Make returns a completed session with the bodies of testutil.Request and testutil.Response; testutil.Items returns its items.
func Make(namespace, id string) Builder {
	return Builder{&v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ObjectName(id)},
		Spec:       v1alpha1.ResponseSessionSpec{ResponseID: id, ResponseStatus: v1alpha1.ResponseStatusCompleted},
	}}.
		Request(testutil.Request(id)).
		Response(testutil.Response(id))
}

// After sets the response ID of the parent.
func (b Builder) After(id string) Builder {
	b.session.Spec.PreviousResponseID = id
	return b
}

// Status sets the status of the response.
func (b Builder) Status(status string) Builder {
	b.session.Spec.ResponseStatus = status
	return b
}

// Request sets the request, a JSON object.
func (b Builder) Request(raw string) Builder {
	b.session.Spec.Request = &runtime.RawExtension{Raw: []byte(raw)}
	return b
}

// Response sets the response, a JSON object.
func (b Builder) Response(raw string) Builder {
	b.session.Spec.Response = &runtime.RawExtension{Raw: []byte(raw)}
	return b
}

// OwnedBy sets the ownerReference that a saver sets.
func (b Builder) OwnedBy(parent *v1alpha1.ResponseSession) Builder {
	b.session.OwnerReferences = []metav1.OwnerReference{OwnerReference(parent)}
	return b
}

// Obj returns the session.
func (b Builder) Obj() *v1alpha1.ResponseSession { return b.session }

// Create creates the session in a cluster and returns it as it is stored.
func (b Builder) Create(t testing.TB, c client.Client) *v1alpha1.ResponseSession {
	t.Helper()
	if err := c.Create(t.Context(), b.session); err != nil {
		t.Fatalf("unable to create %s: %v", b.session.Spec.ResponseID, err)
	}
	return b.session
}

// ChainValid returns the ChainValid condition of a session, or the zero value if it has none.
func ChainValid(s *v1alpha1.ResponseSession) metav1.Condition {
	if condition := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionChainValid); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}

// WaitForReason waits until the verdict on a session has a reason, and then returns the session.
func WaitForReason(t testing.TB, c client.Client, namespace, id, reason string) *v1alpha1.ResponseSession {
	t.Helper()
	var session *v1alpha1.ResponseSession
	testutil.Eventually(t, func(ctx context.Context) error {
		session = &v1alpha1.ResponseSession{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, session); err != nil {
			return err
		}
		if got := ChainValid(session); got.Reason != reason {
			return fmt.Errorf("%s has reason %q, want %q: %s", id, got.Reason, reason, got.Message)
		}
		return nil
	})
	return session
}

// ResourceVersions returns the resource versions of the sessions in a namespace by object name, or, if namespace is empty,
// those of all namespaces by NAMESPACE/NAME.
func ResourceVersions(t testing.TB, c client.Client, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, object := range Metadata(t, c, namespace) {
		name := object.Name
		if namespace == metav1.NamespaceAll {
			name = object.Namespace + "/" + name
		}
		versions[name] = object.ResourceVersion
	}
	return versions
}

// Metadata returns the sessions of a namespace, or of all if it is empty, without reading their bodies.
func Metadata(t testing.TB, c client.Client, namespace string) []metav1.PartialObjectMetadata {
	t.Helper()
	return metadata(t, c, v1alpha1.ResponseSessionKind, namespace)
}

// Chunks returns the chunks of a namespace, or of all if it is empty, without reading their data.
func Chunks(t testing.TB, c client.Client, namespace string) []metav1.PartialObjectMetadata {
	t.Helper()
	return metadata(t, c, v1alpha1.SnapshotChunkKind, namespace)
}

func metadata(t testing.TB, c client.Client, kind, namespace string) []metav1.PartialObjectMetadata {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// WaitForGarbageCollection waits until the garbage collector has seen every earlier change of objects of the canary's kind, which it has when
// it deletes the canary, because it sees them in order. The canary must exist.
func WaitForGarbageCollection(t testing.TB, c client.Client, canary client.Object) {
	t.Helper()
	missing := Make(canary.GetNamespace(), "resp_never").Obj()
	missing.UID = "00000000-0000-0000-0000-000000000000"
	before := client.MergeFrom(canary.DeepCopyObject().(client.Object))
	canary.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(missing)})
	if err := c.Patch(t.Context(), canary, before); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(canary), canary)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("the canary lives"))
	})
}

// OwnerReference returns the ownerReference of a child of parent.
func OwnerReference(parent *v1alpha1.ResponseSession) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind, Name: parent.Name, UID: parent.UID,
		Controller: new(false), BlockOwnerDeletion: new(false),
	}
}
