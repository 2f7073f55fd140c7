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
	"crypto/rand"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testutil"
)

// objectAttacks store many objects, or many costly ones.
var objectAttacks = map[string]attack{
	"undecodable objects":      {clients: 8, small: 20, large: 1000, prepare: undecodableObjects, answers: map[string]bool{"200": true}},
	"sessions of tiny members": {clients: 8, small: 1000, large: 3000, prepare: tinySessions, answers: map[string]bool{"200": true}},
	"packed tiny members":      {clients: 8, small: 20_000, large: 150_000, prepare: packedTinyMembers, answers: map[string]bool{"200": true}},
	"chunks of large metadata": {clients: 8, small: 300, large: 2000, prepare: largeMetadata, answers: map[string]bool{"200": true}},
	"unreadable snapshots":     {clients: 8, small: 50, large: 4000, prepare: unreadableSnapshots, answers: map[string]bool{"200": true}},
	"many small namespaces":    {clients: 8, small: 10, large: 200, prepare: manyNamespaces, settle: settleTrees, answers: map[string]bool{"200": true}},
}

// savedAs returns a request that creates a session from an object with an ID.
func savedAs(a *arena, prefix string, object func(id string) []byte) request {
	return func(ctx context.Context, _ int) (string, int, error) {
		answer, err := answerOf(a.attacker.create(ctx, object(fmt.Sprintf("%s_%d", prefix, a.victim.ids.next()))))
		return answer, 1, err
	}
}

// undecodableObjects: size objects that Go cannot decode are stored, and more are created. The comparison creates plain
// objects with the same body, because a deeply nested body costs the kube-apiserver more than a flat one of the same size.
func undecodableObjects(a *arena, size int) (hostile, harmless request) {
	body := nested(jsonvalue.MaxDepth + 1)
	undecodable := func(id string) []byte { return session(id, `"request":{"input":[`+body+`]}`) }
	a.createAll(size, func(i int) []byte { return undecodable(fmt.Sprintf("resp_stored_%d", i)) })
	for _, i := range []int{0, size - 1} {
		wantReason(a, a.attacker.namespace, fmt.Sprintf("resp_stored_%d", i), v1alpha1.ReasonSnapshotUnreadable, "nested")
	}
	create := a.plainCreate()
	return savedAs(a, "resp_deep", undecodable), func(ctx context.Context, _ int) (string, int, error) {
		answer, err := answerOf(create(ctx, fmt.Sprintf("plain-%d", a.victim.ids.next()), body))
		return answer, 1, err
	}
}

// tinySessions saves turns whose bodies have size empty objects, which cost the API server far more than as many bytes of text.
func tinySessions(a *arena, size int) (hostile, harmless request) {
	body := `[{"type":"message","content":[{}` + strings.Repeat(",{}", size-1) + "]}]"
	create := a.plainCreate()
	hostile = savedAs(a, "resp_tiny", func(id string) []byte {
		return session(id, `"request":{"input":`+body+`},"response":{"output":[]}`)
	})
	return hostile, func(ctx context.Context, _ int) (string, int, error) {
		answer, err := answerOf(create(ctx, fmt.Sprintf("plain-%d", a.victim.ids.next()), body))
		return answer, 1, err
	}
}

// packedTinyMembers saves turns whose packed bodies have size empty objects, and become as much larger when they are unpacked as is
// allowed. The comparison saves turns with as many bytes of text.
func packedTinyMembers(a *arena, size int) (hostile, harmless request) {
	packed := snapshot.Pack(snapshot.Bodies{Request: []byte(`{"input":[{"content":[{}` + strings.Repeat(",{}", size-1) + "]}]}")})
	text := strings.Repeat("lorem ", len(packed)/6)
	return savedAs(a, "resp_packed", func(id string) []byte { return session(id, `"format":2,"packed":"`+packed+`"`) }),
		savedAs(a, "resp_text", func(id string) []byte { return session(id, `"request":{"input":"`+text+`"}`) })
}

// largeMetadata: size chunks whose metadata is as large as the policy permits are stored, and more are created. A new leader reads the metadata
// of all, for its first sweep and for its view of chunks. The comparison creates chunks as the library does, with as many bytes of data.
func largeMetadata(a *arena, size int) (hostile, harmless request) {
	metadata := largestMetadata()
	create := func(ctx context.Context, metadata, data string) error {
		return a.attacker.createOf(ctx, kubeclient.Chunks, a.attacker.namespace, fmt.Appendf(nil,
			`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,%s},"spec":{"data":%q}}`, v1alpha1.GroupVersion, v1alpha1.SnapshotChunkKind,
			v1alpha1.SnapshotChunkName(strings.ToLower(rand.Text()), 0), metadata, data))
	}
	chunk := func(ctx context.Context) error { return create(ctx, metadata, "eA==") }
	data := strings.Repeat("eHh4", len(metadata)/4)
	annotations := fmt.Sprintf(`"annotations":{%q:"resp.1",%q:"%d"}`, v1alpha1.SessionAnnotation, v1alpha1.DataSizeAnnotation, len(data))
	group, ctx := errgroup.WithContext(a.Context())
	group.SetLimit(8)
	for range size {
		group.Go(func() error { return chunk(ctx) })
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
	restartOperator(a) // a leader sweeps at once
	return func(ctx context.Context, _ int) (string, int, error) {
			answer, err := answerOf(chunk(ctx))
			return answer, 1, err
		}, func(ctx context.Context, _ int) (string, int, error) {
			answer, err := answerOf(create(ctx, annotations, data))
			return answer, 1, err
		}
}

// largestMetadata returns members of an object's metadata that are together as large as the policy permits, except for finalizers, which
// would keep the namespace.
func largestMetadata() string {
	owners, labels := make([]string, v1alpha1.MaxChunkOwnerReferences), make([]string, 4)
	for i := range owners {
		owners[i] = fmt.Sprintf(`{"apiVersion":"hostile.example.com/v2","kind":"Unknown","uid":"%d","name":%q}`, i, strings.Repeat("x", 660))
	}
	for i := range labels {
		labels[i] = fmt.Sprintf(`"%s%d/%s":%q`, strings.Repeat("x", 30), i, strings.Repeat("x", 60), strings.Repeat("x", 60))
	}
	// Text in managedFields is kept even if the object has no such field.
	return fmt.Sprintf(`"annotations":{%q:%q},"ownerReferences":[%s],"labels":{%s},"managedFields":[{"manager":"a","operation":"Apply",`+
		`"apiVersion":"sessions.catena.dev/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:%s":{}}}}}]`,
		v1alpha1.SessionAnnotation, strings.Repeat("x", 350), strings.Join(owners, ","), strings.Join(labels, ","), strings.Repeat("x", 1700))
}

// unreadableSnapshots: size sessions refer to snapshots that do not exist, and more are created.
func unreadableSnapshots(a *arena, size int) (hostile, harmless request) {
	lost := func(id string) []byte {
		return session(id, fmt.Sprintf(`"snapshot":{"store":"Chunks","key":%q,"parts":1,"sizeBytes":1000,"storedBytes":1000,"sha256":%q}`,
			strings.Repeat("a", 26), strings.Repeat("0", 64)))
	}
	a.createAll(size, func(i int) []byte { return lost(fmt.Sprintf("resp_stored_%d", i)) })
	wantReason(a, a.attacker.namespace, fmt.Sprintf("resp_stored_%d", size-1), v1alpha1.ReasonSnapshotUnreadable, "")
	text := strings.Repeat("x", 150)
	return savedAs(a, "resp_lost", lost), savedAs(a, "resp_kept", func(id string) []byte {
		return session(id, `"request":{"input":"`+text+`"},"response":{"output":[]}`)
	})
}

// manyNamespaces: each of size namespaces has a small tree whose root changes repeatedly. The comparison changes a turn without
// descendants in each of them.
func manyNamespaces(a *arena, size int) (hostile, harmless request) {
	const children = 10
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "hostile-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.attacker.namespace, Name: "catena-gateway"}},
	}
	if err := env.Client.Create(a.Context(), everywhere); err != nil {
		a.Fatal(err)
	}
	a.trees = make([]string, size)
	group, ctx := errgroup.WithContext(a.Context())
	group.SetLimit(8)
	for i := range a.trees {
		a.trees[i] = env.NewNamespace(a)
	}
	testutil.Eventually(a, func(ctx context.Context) error { // the kube-apiserver observes the binding with a short delay
		return a.attacker.createIn(ctx, a.trees[size-1], session("resp_allowed", ok))
	})
	for _, namespace := range a.trees {
		group.Go(func() error { return a.attacker.createTree(ctx, namespace, children, ok) })
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
	return a.flips("resp_root"), a.flips("resp_childless")
}
