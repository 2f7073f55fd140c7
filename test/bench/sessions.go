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
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// turn returns a completed turn whose request and response have about size/2 bytes each.
func turn(namespace, id, previous string, size int) *v1alpha1.ResponseSession {
	text := strings.Repeat("lorem ipsum ", size/24+1)[:size/2-120]
	return testsession.Make(namespace, id).After(previous).
		Request(fmt.Sprintf(`{"model":"bench","input":[{"role":"user","content":%q}]}`, text)).
		Response(fmt.Sprintf(`{"id":%q,"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q}]}]}`, id, text)).
		Obj()
}

func setOwner(session *v1alpha1.ResponseSession, parent types.UID) {
	if parent == "" {
		return
	}
	no := false
	session.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ResponseSessionKind,
		Name: v1alpha1.ObjectName(session.Spec.PreviousResponseID), UID: parent, Controller: &no, BlockOwnerDeletion: &no,
	}}
}

// knownOwner is an ownFunc for a client that knows the UID of the parent.
func knownOwner(_ context.Context, session *v1alpha1.ResponseSession, parent types.UID) error {
	setOwner(session, parent)
	return nil
}

// readOwner is an ownFunc for a client that reads the metadata of the parent.
func (b *bench) readOwner(ctx context.Context, session *v1alpha1.ResponseSession, _ types.UID) error {
	if session.Spec.PreviousResponseID == "" {
		return nil
	}
	parent := &metav1.PartialObjectMetadata{}
	parent.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ResponseSessionKind))
	if err := b.env.Client.Get(ctx, kubeKey(session.Namespace, session.Spec.PreviousResponseID), parent); err != nil {
		return err
	}
	setOwner(session, parent.UID)
	return nil
}

func kubeKey(namespace, id string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}
}

func (b *bench) createNamespace(ctx context.Context, name string) error {
	return b.env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// ownFunc sets the owner of a session, whose parent has a UID.
type ownFunc func(ctx context.Context, session *v1alpha1.ResponseSession, parent types.UID) error

// fill creates conversations, with several writers that know the UID of each parent.
func (b *bench) fill(ctx context.Context, namespace string, conversations, turns, size int) error {
	return b.fillWith(ctx, namespace, conversations, turns, size, knownOwner)
}

// fillWith is fill for writers that set the owners of turns themselves.
func (b *bench) fillWith(ctx context.Context, namespace string, conversations, turns, size int, own ownFunc) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for c := range conversations {
		group.Go(func() error { return b.createChain(ctx, namespace, fmt.Sprintf("c%d", c), turns, size, own) })
	}
	return group.Wait()
}

func (b *bench) createChain(ctx context.Context, namespace, name string, turns, size int, own ownFunc) error {
	var previous string
	var uid types.UID
	for t := range turns {
		session := turn(namespace, fmt.Sprintf("resp_%s_%05d", name, t), previous, size)
		if err := own(ctx, session, uid); err != nil {
			return err
		}
		if err := b.env.Client.Create(ctx, session); err != nil {
			return err
		}
		previous, uid = session.Spec.ResponseID, session.UID
	}
	return nil
}

// list reads all sessions of a namespace, page by page.
func list(ctx context.Context, c client.Client, namespace string, visit func(*v1alpha1.ResponseSession)) error {
	list := &v1alpha1.ResponseSessionList{}
	for {
		if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(500), client.Continue(list.Continue)); err != nil {
			return err
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		var kib float64
		if _, err := fmt.Sscanf(string(line), "VmRSS: %f kB", &kib); err == nil {
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
}
