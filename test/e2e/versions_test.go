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

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// beta is the version that TestSecondVersion serves besides v1alpha1 for a time.
var beta = schema.GroupVersion{Group: v1alpha1.GroupVersion.Group, Version: "v1beta1"}

// ownedKinds are the kinds of the objects that have owners.
var ownedKinds = []string{v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind, v1alpha1.ConversationSummaryKind}

// versions is a control plane of its own, because a stored version cannot easily be removed from a CRD.
type versions struct {
	*testenv.Environment
	operator  *catenatest.Operator
	discovery discovery.DiscoveryInterface
	// preferred is the version that the API server prefers.
	preferred schema.GroupVersion
}

// TestSecondVersion: if another version is stored and preferred, ownerReferences to v1alpha1 still work. References to the
// other version are rewritten, and work once it is no longer served. No object is deleted by mistake, descendants and chunks are
// deleted with a turn, and summaries with a conversation, and the library and the operator keep working.
func TestSecondVersion(t *testing.T) {
	e := startVersions(t)
	s := e.Store
	for _, turn := range []*store.Session{
		testturn.Make("resp_1", ""), testturn.Make("resp_2", "resp_1"), testturn.Make("resp_3", "resp_2"), large("resp_4", "resp_3"),
	} {
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.wantResolved(t, "resp_4")
	if _, err := s.Conversations().Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Conversations().SaveSummary(t.Context(), "conv_1", store.Summary{EndTurn: 1, Content: "They talked."}); err != nil {
		t.Fatal(err)
	}

	e.setVersions(t, beta, func(version map[string]any) []map[string]any {
		next := maps.Clone(version)
		next["name"], version["storage"] = beta.Version, false
		return []map[string]any{version, next}
	})
	e.wantWatched(t)
	// The library and the operator keep working, with references to v1alpha1.
	for _, turn := range []*store.Session{testturn.Make("new_1", "resp_2"), testturn.Make("new_3", "new_2"), testturn.Make("new_2", "new_1"), large("new_4", "new_3")} {
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.wantResolved(t, "new_3") // its reference is set by the operator
	e.wantResolved(t, "new_4")
	e.want(t, "new_1", "new_2", "new_3", "new_4", "resp_1", "resp_2", "resp_3", "resp_4")
	e.outdate(t)
	current := e.wantCurrent(t)
	e.remove(t, "resp_3")
	e.want(t, "new_1", "new_2", "new_3", "new_4", "resp_1", "resp_2")

	e.setVersions(t, v1alpha1.GroupVersion, func(version map[string]any) []map[string]any {
		before := maps.Clone(version)
		before["name"], before["served"], before["storage"], version["storage"] = beta.Version, false, false, true
		return []map[string]any{version, before}
	})
	if err := e.Store.Save(t.Context(), testturn.Make("last_1", "resp_2"), store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	e.wantResolved(t, "last_1")
	e.remove(t, "new_2")
	e.want(t, "last_1", "new_1", "resp_1", "resp_2")
	left := e.wantCurrent(t)
	if summaries := e.list(t.Context(), t, v1alpha1.ConversationSummaryKind); len(summaries) != 1 {
		t.Errorf("%d summaries are left, want 1", len(summaries))
	}
	if err := s.Conversations().Delete(t.Context(), "conv_1", store.DeleteConversationOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		summaries := e.list(ctx, t, v1alpha1.ConversationSummaryKind)
		return unless(len(summaries) == 0, fmt.Sprintf("%d summaries are left after the deletion of their conversation", len(summaries)))
	})
	for _, name := range []string{"resp.1", "resp.2", "new.1"} {
		if left[name] != current[name] {
			t.Errorf("%s was written again", name)
		}
	}
}

func startVersions(t *testing.T) *versions {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	own, err := testenv.Start(ctx, catenatest.Options{GarbageCollector: catenatest.Required, APIServerFlags: requests.flags("audit-versions.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	operator, err := own.StartOperator(ctx, operatorOptions(0, "--owner-reference-interval=100ms"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(own.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &versions{own, operator, client, v1alpha1.GroupVersion}
}

// large returns a turn that is stored in a chunk.
func large(id, previous string) *store.Session {
	turn := testturn.Make(id, previous)
	turn.Metadata = fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("a", kube.DefaultInlineBytes))
	return turn
}

// setVersions changes the versions of the CRDs, given their version v1alpha1, and waits until the API server prefers the given version. It
// then restarts the controller manager, so that garbage collection discovers the served versions.
func (e *versions) setVersions(t *testing.T, preferred schema.GroupVersion, change func(alpha map[string]any) []map[string]any) {
	t.Helper()
	for _, resource := range []string{"responsesessions", "snapshotchunks", "conversations", "conversationsummaries"} {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(resource + "." + beta.Group)
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
			t.Fatal(err)
		}
		alpha := crd.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/versions", "value": change(alpha)}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Client.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, patch)); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, func(context.Context) error {
		groups, err := e.discovery.ServerGroups()
		if err != nil {
			return err
		}
		for _, group := range groups.Groups {
			if group.Name == beta.Group {
				return unless(group.PreferredVersion.Version == preferred.Version, "the preferred version is "+group.PreferredVersion.Version)
			}
		}
		return fmt.Errorf("the group %s is not served", beta.Group)
	})
	e.preferred = preferred
	if err := e.RestartControllerManager(); err != nil {
		t.Fatal(err)
	}
}

// outdate changes all references to v1alpha1 into references to v1beta1, as written by an operator and gateways that know both.
func (e *versions) outdate(t *testing.T) {
	t.Helper()
	for _, kind := range ownedKinds {
		changed := 0
		for _, object := range e.list(t.Context(), t, kind) {
			before := object.DeepCopy()
			for i := range object.OwnerReferences {
				object.OwnerReferences[i].APIVersion = beta.String()
				changed++
			}
			object.SetGroupVersionKind(beta.WithKind(kind))
			if err := e.Client.Patch(t.Context(), &object, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}
		if changed == 0 {
			t.Fatalf("no %s has an owner", kind)
		}
	}
}

// wantCurrent waits until all references are to v1alpha1, and returns the resource versions of the objects.
func (e *versions) wantCurrent(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	testutil.Eventually(t, func(ctx context.Context) error {
		if outdated, err := testenv.Sum(ctx, e.operator, "catena_outdated_owner_references", "kind="); err != nil || outdated > 0 {
			return fmt.Errorf("%.0f objects have outdated references: %w", outdated, err)
		}
		for _, kind := range ownedKinds {
			for _, object := range e.list(ctx, t, kind) {
				versions[object.Name] = object.ResourceVersion
				for _, owner := range object.OwnerReferences {
					if owner.APIVersion != v1alpha1.GroupVersion.String() {
						return fmt.Errorf("%s has an owner in %s", object.Name, owner.APIVersion)
					}
				}
			}
		}
		return nil
	})
	return versions
}

// wantWatched waits until garbage collection watches the sessions in the version that it prefers.
func (e *versions) wantWatched(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		metrics, err := e.discovery.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(metrics)) {
			if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="responsesessions"`) &&
				strings.Contains(line, `version="v1beta1"`) && !strings.HasSuffix(line, " 0\n") {
				return nil
			}
		}
		return fmt.Errorf("garbage collection does not watch %s yet", beta)
	})
}

func (e *versions) wantResolved(t *testing.T, id string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		session := &v1alpha1.ResponseSession{}
		err := e.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: v1alpha1.ObjectName(id)}, session)
		if err != nil {
			return err
		}
		if len(session.Status.Conditions) == 0 || len(session.OwnerReferences) != 1 {
			return fmt.Errorf("%s has the status %+v and the owners %v", id, session.Status, session.OwnerReferences)
		}
		return unless(session.Status.Conditions[0].Reason == v1alpha1.ReasonResolved, session.Status.Conditions[0].Message)
	})
	if _, err := e.Store.Resolve(t.Context(), id, store.ResolveOptions{}); err != nil {
		t.Errorf("%s does not resolve: %v", id, err)
	}
}

// want waits until exactly the given turns are stored, including their chunks.
func (e *versions) want(t *testing.T, want ...string) {
	t.Helper()
	chunks := 0
	for _, id := range want {
		if strings.HasSuffix(id, "_4") {
			chunks++
		}
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		var got []string
		for _, session := range e.list(ctx, t, v1alpha1.ResponseSessionKind) {
			got = append(got, strings.ReplaceAll(session.GetName(), ".", "_"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("sessions (-want +got):\n%s", diff)
		}
		return unless(len(e.list(ctx, t, v1alpha1.SnapshotChunkKind)) == chunks, fmt.Sprintf("want %d chunks", chunks))
	})
}

// list lists the objects of a kind in the preferred version, by name.
func (e *versions) list(ctx context.Context, t *testing.T, kind string) []metav1.PartialObjectMetadata {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(e.preferred.WithKind(kind + "List"))
	if err := e.Client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// remove deletes a turn in the preferred version, as kubectl does, which leaves its descendants to garbage collection.
func (e *versions) remove(t *testing.T, id string) {
	t.Helper()
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(e.preferred.WithKind(v1alpha1.ResponseSessionKind))
	o.Namespace, o.Name = metav1.NamespaceDefault, v1alpha1.ObjectName(id)
	if err := e.Client.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
}
