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

package hostile_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// writeAttacks write large amounts of data, or cause the operator to.
var writeAttacks = map[string]attack{
	"saves beyond a quota": {
		clients: 2, small: 1 << 18, large: 1 << 22, prepare: beyondQuota, answers: map[string]bool{"200": true, string(store.CodeQuotaExceeded): true},
	},
	"bursts of large turns": {clients: 2, small: 4, large: 60, prepare: largeTurns, answers: map[string]bool{"200": true}},
	"flapping root of a large tree": {
		clients: 1, small: 100, large: 2000, prepare: flappingTree, settle: settleTrees, answers: map[string]bool{"200": true},
	},
	"flapping root of large children": {
		clients: 1, small: 8, large: 100, prepare: flappingLarge, settle: settleTrees, answers: map[string]bool{"200": true},
	},
}

// largeTurns saves turns of size MiB that do not compress. The comparison writes as many bytes, as plain objects of the size
// of a chunk, one after another.
func largeTurns(a *arena, size int) (hostile, harmless request) {
	random := make([]byte, size<<20/4*3-1<<10)
	rand.NewChaCha8([32]byte{}).Read(random) //nolint:errcheck // never fails
	response := []byte(`{"output":[{"type":"image","data":"` + base64.StdEncoding.EncodeToString(random) + `"}]}`)
	hostile = func(ctx context.Context, _ int) (string, int, error) {
		turn := &store.Session{
			ResponseID: fmt.Sprintf("resp_large_%d", a.victim.ids.next()), Status: store.StatusCompleted,
			Request: []byte(`{"input":"x"}`), Response: response,
		}
		err := a.attacker.store.Save(ctx, turn, store.SaveOptions{})
		return "200", len(response), err
	}
	const piece = v1alpha1.MaxSnapshotChunkBytes / 3 * 4 // as base64
	data := strconv.Quote(string(response[len(response)-piece-10 : len(response)-10]))
	create := a.plainCreate()
	return hostile, func(ctx context.Context, _ int) (string, int, error) {
		var err error
		for range len(response) / piece {
			if err = create(ctx, fmt.Sprintf("plain-%d", a.victim.ids.next()), data); err != nil {
				break
			}
		}
		answer, err := answerOf(err)
		return answer, len(response), err
	}
}

// beyondQuota saves turns in a namespace that may store size bytes, and deletes one, which must always be possible, when another is refused.
// The comparison creates as many plain objects of the same size.
func beyondQuota(a *arena, size int) (hostile, harmless request) {
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: a.attacker.namespace, Name: "bytes"}}
	quota.Spec.Hard.Bytes = resource.NewQuantity(int64(size), resource.BinarySI)
	if err := env.Client.Create(a.Context(), quota); err != nil {
		a.Fatal(err)
	}
	const turnBytes = 16 << 10
	text := strconv.Quote(strings.Repeat("x", turnBytes))
	var mu sync.Mutex
	var stored []string
	hostile = func(ctx context.Context, _ int) (answer string, amount int, err error) {
		turn := testturn.Make(fmt.Sprintf("resp_quota_%d", a.victim.ids.next()), "")
		turn.Request = []byte(`{"input":` + text + `}`)
		err = a.attacker.store.Save(ctx, turn, store.SaveOptions{})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			stored = append(stored, turn.ResponseID)
			return "200", turnBytes, nil
		case !errors.Is(err, store.ErrQuotaExceeded):
			return "", turnBytes, err
		case len(stored) == 0: // the usage is updated later
			return string(store.CodeQuotaExceeded), turnBytes, nil
		}
		last := len(stored) - 1
		err, stored = a.attacker.store.Delete(ctx, stored[last], store.DeleteOptions{}), stored[:last]
		return string(store.CodeQuotaExceeded), turnBytes, err
	}
	create := a.plainCreate()
	return hostile, func(ctx context.Context, _ int) (string, int, error) {
		answer, err := answerOf(create(ctx, fmt.Sprintf("plain-%d", a.victim.ids.next()), text))
		return answer, turnBytes, err
	}
}

// flappingTree: a root with size children changes between completed and failed. The comparison changes a turn without
// children equally often.
func flappingTree(a *arena, size int) (hostile, harmless request) { return a.flapping(size, ok) }

// flappingLarge is the same with children of 1.4 MB.
func flappingLarge(a *arena, size int) (hostile, harmless request) {
	return a.flapping(size, bodiesOf(1_400_000))
}

func (a *arena) flapping(children int, bodies string) (hostile, harmless request) {
	a.Helper()
	a.trees = []string{a.attacker.namespace}
	if err := a.attacker.createTree(a.Context(), a.attacker.namespace, 0, ok); err != nil {
		a.Fatal(err)
	}
	root, err := kubeclient.GetMetadata(a.Context(), a.attacker.kube, kubeclient.Sessions,
		types.NamespacedName{Namespace: a.attacker.namespace, Name: v1alpha1.ObjectName("resp_root")})
	if err != nil {
		a.Fatal(err)
	}
	a.createAll(children, func(i int) []byte { return ownedBy(root, child(i, bodies)) })
	return a.flips("resp_root"), a.flips("resp_childless")
}

func child(i int, bodies string) []byte {
	return session(fmt.Sprintf("resp_child_%d", i), `"previousResponseID":"resp_root",`+bodies)
}

// ownedBy returns an object with an ownerReference to a session, as the library creates it.
func ownedBy(owner *metav1.ObjectMeta, object []byte) []byte {
	const metadata = `"metadata":{`
	reference := fmt.Sprintf(`"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}],`,
		v1alpha1.GroupVersion, v1alpha1.ResponseSessionKind, owner.Name, owner.UID)
	return bytes.Replace(object, []byte(metadata), []byte(metadata+reference), 1)
}

// createTree creates resp_root with children, and resp_childless.
func (t *tenant) createTree(ctx context.Context, namespace string, children int, bodies string) error {
	for _, id := range []string{"resp_root", "resp_childless"} {
		if err := t.createIn(ctx, namespace, session(id, ok)); err != nil {
			return err
		}
	}
	for i := range children {
		if err := t.createIn(ctx, namespace, child(i, bodies)); err != nil {
			return err
		}
	}
	return nil
}

// flips returns a request that changes a turn from completed to failed, or back. The namespaces of the trees take turns.
func (a *arena) flips(id string) request {
	var mu sync.Mutex
	failed := map[string]bool{}
	return func(ctx context.Context, n int) (string, int, error) {
		namespace := a.trees[n%len(a.trees)]
		mu.Lock()
		failed[namespace] = !failed[namespace]
		status := v1alpha1.ResponseStatusCompleted
		if failed[namespace] {
			status = v1alpha1.ResponseStatusFailed
		}
		mu.Unlock()
		answer, err := answerOf(a.attacker.patch(ctx, namespace, id, status))
		return answer, 1, err
	}
}

// settleTrees completes the roots and waits until all verdicts follow from them. It completes them more than once, because the last
// request of the attacker, which was canceled, may still be processed.
func settleTrees(a *arena) {
	testutil.EventuallyWithin(a, testutil.Patience*time.Duration(max(1, *scale)), func(ctx context.Context) error {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(8)
		for _, namespace := range a.trees {
			group.Go(func() error {
				return a.attacker.patch(groupCtx, namespace, "resp_root", v1alpha1.ResponseStatusCompleted)
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for _, namespace := range a.trees {
			broken, err := a.broken(ctx, namespace)
			if err != nil {
				return err
			}
			if broken > 0 {
				return fmt.Errorf("at least %d turns of %s have not settled", broken, namespace)
			}
		}
		return nil
	})
}

// broken counts the turns of a tree that are not resolved, except resp_childless, in tables, which contain no bodies. It stops at the first
// page that has any.
func (a *arena) broken(ctx context.Context, namespace string) (broken int, err error) {
	for next := ""; ; {
		table, err := kubeclient.Read(ctx, a.attacker.kube.Get().Namespace(namespace).Resource(kubeclient.Sessions).
			Param("limit", "500").Param("continue", next).
			Param("includeObject", "None").SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"))
		if err != nil {
			return 0, err
		}
		broken, next = brokenIn(table), gjson.GetBytes(table, "metadata.continue").Str
		if broken > 0 || next == "" {
			return broken, nil
		}
	}
}

func brokenIn(table []byte) (broken int) {
	columns := map[string]string{}
	for i, name := range gjson.GetBytes(table, "columnDefinitions.#.name").Array() {
		columns[name.Str] = fmt.Sprint("cells.", i)
	}
	for _, row := range gjson.GetBytes(table, "rows").Array() {
		if row.Get(columns["Name"]).Str != v1alpha1.ObjectName("resp_childless") && row.Get(columns["Chain"]).Str != v1alpha1.ReasonResolved {
			broken++
		}
	}
	return broken
}

// plainName names the resource of plain objects, which no controller watches.
const plainName = "plains.hostile.example.com"

// plainResource installs the CRD of plain objects, unless it exists, and returns a client and the path of the attacker's objects.
func (a *arena) plainResource() (plains rest.Interface, path string) {
	a.Helper()
	free := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plainName},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: strings.TrimPrefix(plainName, "plains."), Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "plains", Kind: "Plain"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &free},
				},
			}},
		},
	}
	if err := env.Client.Create(a.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
		a.Fatal(err)
	}
	a.permitPlains()
	plains = a.attacker.kube
	path = "/apis/" + crd.Spec.Group + "/v1/namespaces/" + a.attacker.namespace + "/plains"
	testutil.Eventually(a, func(ctx context.Context) error { return plains.Get().AbsPath(path).Do(ctx).Error() })
	if _, measured := a.TB.(*testing.B); measured {
		a.awaitCollector(plains, path)
	}
	return plains, path
}

// permitPlains gives the attacker all rights for plain objects in its namespace: harmless requests come from the same user as an attack.
func (a *arena) permitPlains() {
	a.Helper()
	resource, group, _ := strings.Cut(plainName, ".")
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.attacker.namespace, Name: resource},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"*"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + a.attacker.namespace}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := env.Client.Create(a.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			a.Fatal(err)
		}
	}
}

// awaitCollector waits until garbage collection watches the plain objects, as it watches all objects: the kube-apiserver sends it each
// of them. It discovers a new CRD after up to 30 seconds.
func (a *arena) awaitCollector(client rest.Interface, path string) {
	a.Helper()
	create := func(ctx context.Context, name, owners string) (uid string, err error) {
		object := fmt.Appendf(nil, `{"apiVersion":"hostile.example.com/v1","kind":"Plain","metadata":{"name":%q,"ownerReferences":[%s]}}`, name, owners)
		raw, err := client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").
			SetHeader("Accept", kubeclient.MetadataOnly).Body(object).Do(ctx).Raw()
		return gjson.GetBytes(raw, "metadata.uid").Str, err
	}
	owner, err := create(a.Context(), "owner", "")
	if err != nil {
		a.Fatal(err)
	}
	reference := fmt.Sprintf(`{"apiVersion":"hostile.example.com/v1","kind":"Plain","name":"owner","uid":%q}`, owner)
	if _, err := create(a.Context(), "owned", reference); err != nil {
		a.Fatal(err)
	}
	if err := client.Delete().AbsPath(path, "owner").Do(a.Context()).Error(); err != nil {
		a.Fatal(err)
	}
	testutil.Eventually(a, func(ctx context.Context) error {
		if err := client.Get().AbsPath(path, "owned").Do(ctx).Error(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the owned object has not been deleted: %w", err)
		}
		return nil
	})
}

// plainCreate returns a function that creates a plain object with data, which is JSON.
func (a *arena) plainCreate() func(ctx context.Context, name, data string) error {
	a.Helper()
	client, path := a.plainResource()
	return func(ctx context.Context, name, data string) error {
		object := fmt.Appendf(nil, `{"apiVersion":"hostile.example.com/v1","kind":"Plain","metadata":{"name":%q,"labels":{}},"data":%s}`, name, data)
		return client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").
			SetHeader("Accept", kubeclient.MetadataOnly).Body(object).Do(ctx).Error()
	}
}

// plainObject creates a plain object of a size, and returns a function that makes a request for it.
func (a *arena) plainObject(size int) func(int) *rest.Request {
	a.Helper()
	name := fmt.Sprintf("bytes-%d", size)
	if err := a.plainCreate()(a.Context(), name, strconv.Quote(strings.Repeat("x", size))); err != nil {
		a.Fatal(err)
	}
	client, path := a.plainResource()
	return func(int) *rest.Request { return client.Get().AbsPath(path, name) }
}
