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
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
)

// writeAttacks write large amounts of data, or cause the operator to.
var writeAttacks = map[string]attack{
	"bursts of large turns": {clients: 2, small: 4, large: 60, prepare: largeTurns, answers: map[string]bool{"200": true}},
	"flapping root of a large tree": {
		clients: 1, small: 100, large: 2000, prepare: flappingTree, settle: settleTree, answers: map[string]bool{"200": true},
	},
	"flapping root of large children": {
		clients: 1, small: 8, large: 100, prepare: flappingLarge, settle: settleTree, answers: map[string]bool{"200": true},
	},
}

// largeTurns saves turns of size MiB that do not compress. The comparison writes as many bytes, as plain objects of the size
// of a chunk, as many at once.
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
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(piecesAtOnce)
		for range len(response) / piece {
			group.Go(func() error { return create(ctx, fmt.Sprintf("plain-%d", a.victim.ids.next()), data) })
		}
		answer, err := answerOf(group.Wait())
		return answer, len(response), err
	}
}

// piecesAtOnce is the number of chunks of a turn that the library writes at once: partsAtOnce of internal/snapshot.
const piecesAtOnce = 4

// flappingTree: a root with size children changes between completed and failed. The comparison changes a turn without
// children equally often.
func flappingTree(a *arena, size int) (hostile, harmless request) { return a.flapping(size, ok) }

// flappingLarge is the same with children of 1.4 MB.
func flappingLarge(a *arena, size int) (hostile, harmless request) {
	return a.flapping(size, bodiesOf(1_400_000))
}

func (a *arena) flapping(children int, bodies string) (hostile, harmless request) {
	a.Helper()
	if err := a.attacker.createTree(a.Context(), a.attacker.namespace, 0, ok); err != nil {
		a.Fatal(err)
	}
	a.createAll(children, func(i int) []byte { return child(i, bodies) })
	return a.flips(func(int) (string, string) { return a.attacker.namespace, "resp_root" }), a.flips(a.childless(1))
}

func child(i int, bodies string) []byte {
	return session(fmt.Sprintf("resp_child_%d", i), `"previousResponseID":"resp_root",`+bodies)
}

// createTree creates resp_root with children.
func (t *tenant) createTree(ctx context.Context, namespace string, children int, bodies string) error {
	if err := t.createIn(ctx, namespace, session("resp_root", ok)); err != nil {
		return err
	}
	for i := range children {
		if err := t.createIn(ctx, namespace, child(i, bodies)); err != nil {
			return err
		}
	}
	return nil
}

// childless creates turns without children for flips.
func (a *arena) childless(count int) func(n int) (namespace, id string) {
	a.Helper()
	name := func(i int) string { return fmt.Sprintf("resp_childless_%d", i) }
	a.createAll(count, func(i int) []byte { return session(name(i), ok) })
	return func(n int) (string, string) { return a.attacker.namespace, name(n % count) }
}

// flips returns a request that changes a turn from completed to failed, or back.
func (a *arena) flips(pick func(n int) (namespace, id string)) request {
	var mu sync.Mutex
	failed := map[string]bool{}
	return func(ctx context.Context, n int) (string, int, error) {
		namespace, id := pick(n)
		mu.Lock()
		failed[namespace+id] = !failed[namespace+id]
		status := v1alpha1.ResponseStatusCompleted
		if failed[namespace+id] {
			status = v1alpha1.ResponseStatusFailed
		}
		mu.Unlock()
		answer, err := answerOf(a.attacker.patch(ctx, namespace, id, status))
		return answer, 1, err
	}
}

// settleTree completes the root and waits until all verdicts follow from it.
func settleTree(a *arena) {
	if err := a.attacker.patch(a.Context(), a.attacker.namespace, "resp_root", v1alpha1.ResponseStatusCompleted); err != nil {
		a.Fatal(err)
	}
	testutil.Eventually(a, func(ctx context.Context) error {
		reasons, err := a.reasons(ctx)
		if err != nil {
			return err
		}
		wrong := slices.DeleteFunc(reasons, func(reason string) bool { return reason == v1alpha1.ReasonResolved })
		if len(wrong) > 1 { // the one without children may have failed
			return fmt.Errorf("%d turns have not settled", len(wrong))
		}
		return nil
	})
}

// reasons returns the verdicts on the attacker's turns, from a table, which contains no bodies.
func (a *arena) reasons(ctx context.Context) ([]string, error) {
	table, err := kubeclient.Read(ctx, a.attacker.kube.Get().Namespace(a.attacker.namespace).Resource(kubeclient.Sessions).
		Param("includeObject", "None").SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"))
	if err != nil {
		return nil, err
	}
	column := 0
	for i, definition := range gjson.GetBytes(table, "columnDefinitions.#.name").Array() {
		if definition.Str == "Chain" {
			column = i
		}
	}
	var reasons []string
	for _, reason := range gjson.GetBytes(table, fmt.Sprintf("rows.#.cells.%d", column)).Array() {
		reasons = append(reasons, reason.Str)
	}
	return reasons, nil
}

// plainName names the resource of plain objects, which no controller watches.
const plainName = "plains.hostile.example.com"

// plainResource installs the CRD of plain objects, unless it exists, and returns a client and the path of the attacker's objects.
func (a *arena) plainResource() (client rest.Interface, path string) {
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
	client, err := kubeclient.New(env.Config)
	if err != nil {
		a.Fatal(err)
	}
	path = "/apis/" + crd.Spec.Group + "/v1/namespaces/" + a.attacker.namespace + "/plains"
	testutil.Eventually(a, func(ctx context.Context) error { return client.Get().AbsPath(path).Do(ctx).Error() })
	return client, path
}

// plainCreate returns a function that creates a plain object with data, which is JSON.
func (a *arena) plainCreate() func(ctx context.Context, name, data string) error {
	a.Helper()
	client, path := a.plainResource()
	return func(ctx context.Context, name, data string) error {
		object := fmt.Appendf(nil, `{"apiVersion":"hostile.example.com/v1","kind":"Plain","metadata":{"name":%q},"data":%s}`, name, data)
		return client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").
			SetHeader("Accept", kubeclient.MetadataOnly).Body(object).Do(ctx).Error()
	}
}

// plainObject creates a plain object of a size, and returns a function that makes a request for it.
func (a *arena) plainObject(size int) func(int) *rest.Request {
	a.Helper()
	if err := a.plainCreate()(a.Context(), "large", strconv.Quote(strings.Repeat("x", size))); err != nil {
		a.Fatal(err)
	}
	client, path := a.plainResource()
	return func(int) *rest.Request { return client.Get().AbsPath(path, "large") }
}
