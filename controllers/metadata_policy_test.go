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

package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
)

// strangers returns ownerReferences that garbage collection keeps, because it does not know their kind.
func strangers(n int) []metav1.OwnerReference {
	owners := make([]metav1.OwnerReference, n)
	for i := range owners {
		owners[i] = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Unknown", Name: fmt.Sprint("owner", i), UID: types.UID(fmt.Sprint("uid", i))}
	}
	return owners
}

func finalizers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("example.com/f", i)
	}
	return all
}

func labels(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("l", i)] = "x"
	}
	return all
}

func annotations(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("a", i)] = "x"
	}
	return all
}

// longOwners returns as many ownerReferences as a chunk may have, with a number of bytes each.
func longOwners(bytes int) []metav1.OwnerReference {
	owners := strangers(v1alpha1.MaxChunkOwnerReferences)
	for i := range owners {
		o := &owners[i]
		o.Name = strings.Repeat("n", bytes-len(o.APIVersion)-len(o.Kind)-len(o.UID))
	}
	return owners
}

// patchMetadata replaces parts of the metadata of an object without storing the result.
func patchMetadata(ctx context.Context, c client.Client, object client.Object, metadata map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, body), client.DryRunAll)
}

// TestMetadataPolicy: no one can store many ownerReferences, finalizers or labels, or long ownerReferences, in an object, or many
// annotations, or long labels and annotations, in a chunk.
func TestMetadataPolicy(t *testing.T) {
	ns := env.NewNamespace(t)
	tenant := newTenant(t, ns)
	session, chunk := turn(ns, "a"), newChunk(ns, "a", "data", "")
	createAll(t, session, chunk)
	const owners, finalizersOf, labelsOf = "metadata.ownerReferences", "metadata.finalizers", "metadata.labels"
	most := func(what string, limit, got int) string {
		return fmt.Sprintf("%s must have at most %d items, not %d: remove some", what, limit, got)
	}
	const long = "an item of metadata.ownerReferences must have at most 700 bytes: remove the longer ones"
	tests := map[string]struct {
		metadata       metav1.ObjectMeta
		session, chunk string // part of the message, empty if it is allowed
	}{
		"2 owners":            {metadata: metav1.ObjectMeta{OwnerReferences: strangers(2)}},
		"3 owners":            {metadata: metav1.ObjectMeta{OwnerReferences: strangers(3)}, chunk: most(owners, 2, 3)},
		"16 owners":           {metadata: metav1.ObjectMeta{OwnerReferences: strangers(16)}, chunk: most(owners, 2, 16)},
		"17 owners":           {metadata: metav1.ObjectMeta{OwnerReferences: strangers(17)}, session: most(owners, 16, 17), chunk: most(owners, 2, 17)},
		"10,000 owners":       {metadata: metav1.ObjectMeta{OwnerReferences: strangers(10_000)}, session: most(owners, 16, 10_000), chunk: most(owners, 2, 10_000)},
		"owners of 700 bytes": {metadata: metav1.ObjectMeta{OwnerReferences: longOwners(700)}},
		"owners of 701 bytes": {metadata: metav1.ObjectMeta{OwnerReferences: longOwners(701)}, session: long, chunk: long},
		"2 finalizers":        {metadata: metav1.ObjectMeta{Finalizers: finalizers(2)}},
		"16 finalizers":       {metadata: metav1.ObjectMeta{Finalizers: finalizers(16)}, chunk: most(finalizersOf, 2, 16)},
		"17 finalizers":       {metadata: metav1.ObjectMeta{Finalizers: finalizers(17)}, session: most(finalizersOf, 16, 17), chunk: most(finalizersOf, 2, 17)},
		"4 labels":            {metadata: metav1.ObjectMeta{Labels: labels(4)}},
		"64 labels":           {metadata: metav1.ObjectMeta{Labels: labels(64)}, chunk: most(labelsOf, 4, 64)},
		"65 labels":           {metadata: metav1.ObjectMeta{Labels: labels(65)}, session: most(labelsOf, 64, 65), chunk: most(labelsOf, 4, 65)},
		"8 annotations":       {metadata: metav1.ObjectMeta{Annotations: annotations(8)}},
		"9 annotations":       {metadata: metav1.ObjectMeta{Annotations: annotations(9)}, chunk: most("metadata.annotations of a chunk", 8, 9)},
		"30,000 annotations":  {metadata: metav1.ObjectMeta{Annotations: annotations(30_000)}, chunk: most("metadata.annotations of a chunk", 8, 30_000)},
		"text of 1,024 bytes": {metadata: metav1.ObjectMeta{
			Annotations: map[string]string{"a": strings.Repeat("é", 509)}, Labels: map[string]string{"l": "four"},
		}},
		"text of 1,025 bytes": {
			metadata: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("é", 509)}, Labels: map[string]string{"l": "fives"}},
			chunk:    "metadata.labels and metadata.annotations of a chunk must have at most 1024 bytes together, not 1025: remove some",
		},
		"the operator's mark beside 8 annotations": {metadata: metav1.ObjectMeta{Annotations: marked(annotations(8), 64)}},
		"a long mark": {
			metadata: metav1.ObjectMeta{Annotations: marked(nil, 65)},
			chunk:    "the annotation sessions.catena.dev/unreferenced-since must have at most 64 characters",
		},
		"all at their limits": {metadata: metav1.ObjectMeta{
			OwnerReferences: strangers(2), Finalizers: finalizers(2), Labels: labels(4), Annotations: marked(annotations(8), 64),
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			withMetadata := func(object client.Object) client.Object {
				object.SetOwnerReferences(tc.metadata.OwnerReferences)
				object.SetFinalizers(tc.metadata.Finalizers)
				object.SetLabels(tc.metadata.Labels)
				object.SetAnnotations(tc.metadata.Annotations)
				return object
			}
			patch := func(c client.Client, object client.Object) func(context.Context) error {
				return func(ctx context.Context) error {
					return patchMetadata(ctx, c, object, map[string]any{
						"ownerReferences": tc.metadata.OwnerReferences, "finalizers": tc.metadata.Finalizers, "labels": tc.metadata.Labels,
						"annotations": tc.metadata.Annotations,
					})
				}
			}
			for request, send := range map[string]func(context.Context) error{
				"create a session": func(ctx context.Context) error {
					return tenant.Create(ctx, withMetadata(turn(ns, "b")), client.DryRunAll)
				},
				"create a chunk": func(ctx context.Context) error {
					return tenant.Create(ctx, withMetadata(newChunk(ns, "b", "data", "")), client.DryRunAll)
				},
				"change a session":                 patch(tenant, session),
				"an administrator changes a chunk": patch(env.Client, chunk), // tenants cannot
				"create a conversation": func(ctx context.Context) error {
					return tenant.Create(ctx, withMetadata(newConversation(ns, "b")), client.DryRunAll)
				},
				"create a summary": func(ctx context.Context) error {
					return tenant.Create(ctx, withMetadata(newSummary(ns, "b")), client.DryRunAll)
				},
				"an administrator creates a session": func(ctx context.Context) error {
					return env.Client.Create(ctx, withMetadata(turn(ns, "b")), client.DryRunAll)
				},
			} {
				want := tc.session
				if strings.HasSuffix(request, "chunk") {
					want = tc.chunk
				}
				testutil.Eventually(t, func(ctx context.Context) error { // the API server may take a moment to enforce a policy
					err := send(ctx)
					if want == "" && err != nil || want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)) {
						return fmt.Errorf("%s: %w, want %q", request, err, want)
					}
					return nil
				})
			}
		})
	}
}

// fewOf returns a patch that removes all annotations but one, which gets a value.
func fewOf(annotations map[string]string, value string) map[string]any {
	patch := map[string]any{}
	for key := range annotations {
		patch[key] = nil
	}
	patch["a0"] = value
	return patch
}

// marked adds the operator's mark, with a number of characters, to annotations.
func marked(annotations map[string]string, characters int) map[string]string {
	all := map[string]string{v1alpha1.UnreferencedSinceAnnotation: strings.Repeat("x", characters)}
	maps.Copy(all, annotations)
	return all
}

// TestManagedFields: a chunk can be created with small managedFields, such as those in a dump, but not with large ones.
func TestManagedFields(t *testing.T) {
	ns := env.NewNamespace(t)
	tenant := newTenant(t, ns)
	many := map[string]any{}
	for i := range 1000 {
		many[fmt.Sprint("f:a", i)] = map[string]any{}
	}
	annotations := func(keys map[string]any) map[string]any {
		return map[string]any{"f:metadata": map[string]any{"f:annotations": keys}}
	}
	tests := map[string]struct {
		fields   any
		managers int // the same for each
		want     string
	}{
		"of a dump": {managers: 4, fields: map[string]any{
			"f:metadata": map[string]any{
				"f:annotations":     map[string]any{".": map[string]any{}, "f:" + v1alpha1.SessionAnnotation: map[string]any{}},
				"f:ownerReferences": map[string]any{`k:{"uid":"u"}`: map[string]any{".": map[string]any{}, "f:kind": map[string]any{}}},
				"f:finalizers":      map[string]any{`v:"example.com/f"`: map[string]any{}},
			},
			"f:spec": map[string]any{"f:data": map[string]any{}},
		}},
		"no fields":                 {managers: 1, fields: map[string]any{}},
		"a long key":                {managers: 1, fields: annotations(map[string]any{"f:" + strings.Repeat("a", 20_000): map[string]any{}}), want: "at most 2560 characters"},
		"many keys":                 {managers: 4, fields: annotations(many), want: "metadata.managedFields of a chunk must have at most 2560 characters"},
		"nested deep":               {managers: 1, fields: annotations(map[string]any{"f:a": map[string]any{"f:b": map[string]any{"f:c": map[string]any{}}}}), want: "at most"},
		"30 managers of few fields": {managers: 30, fields: annotations(map[string]any{"f:a": map[string]any{}}), want: "at most"},
		"100 managers":              {managers: 100, fields: annotations(map[string]any{"f:" + strings.Repeat("a", 200): map[string]any{}}), want: "at most"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fields, err := json.Marshal(tc.fields)
			if err != nil {
				t.Fatal(err)
			}
			chunk := newChunk(ns, "a", "data", "")
			for i := range tc.managers {
				chunk.ManagedFields = append(chunk.ManagedFields, metav1.ManagedFieldsEntry{
					Manager: fmt.Sprint("manager", i), Operation: metav1.ManagedFieldsOperationApply, APIVersion: v1alpha1.GroupVersion.String(),
					FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(fields)),
				})
			}
			testutil.Eventually(t, func(ctx context.Context) error { // the API server may take a moment to enforce a policy
				err := tenant.Create(ctx, chunk.DeepCopy(), client.DryRunAll)
				if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)) {
					return fmt.Errorf("got %w, want %q", err, tc.want)
				}
				return nil
			})
		})
	}
}

// withoutMetadataPolicy calls a function while no policy limits the metadata of sessions and chunks.
func withoutMetadataPolicy(t *testing.T, call func()) {
	t.Helper()
	ns := env.NewNamespace(t)
	tooMany := func(ctx context.Context) error {
		s := turn(ns, "probe")
		s.OwnerReferences = strangers(v1alpha1.MaxOwnerReferences + 1)
		return env.Client.Create(ctx, s, client.DryRunAll)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "metadata.sessions.catena.dev"}}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
		t.Fatal(err)
	}
	if err := env.Client.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		again := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}, Spec: binding.Spec,
		}
		createAll(t, again)
		testutil.Eventually(t, func(ctx context.Context) error {
			if err := tooMany(ctx); !apierrors.IsInvalid(err) {
				return fmt.Errorf("the policy does not apply again: %w", err)
			}
			return nil
		})
	}
	defer restore()
	testutil.Eventually(t, tooMany)
	call()
}

// TestOlderMetadata: objects with more ownerReferences, finalizers, labels and annotations than the policy permits can be changed, emptied and deleted,
// the operator can mark such a chunk and write such a session, and garbage collection can remove a reference. The operator adds no
// reference and rewrites none, and does not try to.
func TestOlderMetadata(t *testing.T) {
	ns := env.NewNamespace(t)
	// An expression that compares each of so many owners with each other would exceed the limit on its cost, and so would one that
	// visits each of so many annotations.
	const many, manyAnnotations = 1000, 40_000
	crowd := map[string]string{}
	for i := range manyAnnotations {
		crowd[fmt.Sprintf("a%x", i)] = ""
	}
	parent := turn(ns, "parent")
	createAll(t, parent)
	owned := turn(ns, "owned", "parent")
	owned.OwnerReferences = append(strangers(many), ownerIn(v1alpha1.GroupVersion.String(), v1alpha1.ResponseSessionKind, parent))
	owned.OwnerReferences[many].BlockOwnerDeletion = nil
	owned.Finalizers, owned.Labels = finalizers(20), labels(100)
	crowded, full, annotated := turn(ns, "crowded", "parent"), turn(ns, "full", "parent"), turn(ns, "annotated", "parent")
	crowded.OwnerReferences, full.OwnerReferences = strangers(many), strangers(v1alpha1.MaxOwnerReferences)
	annotated.Annotations = crowd
	// Its chunk can have no further owner.
	stored := external(ns, "stored")
	stored.Spec.Snapshot.Store = v1alpha1.SnapshotStoreChunks
	chunk := newChunk(ns, "a", "data", "")
	chunk.Annotations = annotations(many)
	chunk.Annotations[v1alpha1.SessionAnnotation] = stored.Name
	chunk.OwnerReferences = append(strangers(many-1), ownerIn(otherVersion, v1alpha1.SnapshotChunkKind, chunk))
	chunk.OwnerReferences[many-1].UID, chunk.OwnerReferences[many-1].BlockOwnerDeletion = "gone", nil
	crowdedChunk := newChunk(ns, "b", "data", "")
	crowdedChunk.OwnerReferences, crowdedChunk.Annotations = strangers(1), maps.Clone(crowd)
	crowdedChunk.Annotations[v1alpha1.UnreferencedSinceAnnotation] = strings.Repeat("x", 100)
	fewMore := newChunk(ns, "c", "data", "")
	fewMore.OwnerReferences, fewMore.Annotations = strangers(1), annotations(9)
	sessions, chunks := []client.Object{owned, crowded, full, annotated, stored}, []client.Object{chunk, crowdedChunk, fewMore}
	withoutMetadataPolicy(t, func() { createAll(t, slices.Concat(sessions, chunks)...) })
	settle(t, ns)
	wantOutdated(t, ns) // although the chunk has an outdated reference
	wantWrites := []string{"annotated", "annotated/status", "crowded/status", "full/status", "owned/status", "parent/status", "stored/status"}
	if diff := cmp.Diff(wantWrites, op.writes.sessions(ns)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if got := len(get(t, ns, "annotated").OwnerReferences); got != 1 {
		t.Errorf("the session with many annotations has %d owners, want its parent", got)
	}
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(chunk), chunk); err != nil || len(chunk.OwnerReferences) != many {
		t.Errorf("the chunk has %d owners, want the same as before: %v", len(chunk.OwnerReferences), err)
	}

	config, err := env.ConfigFor(operatorUser, operatorGroups...)
	if err != nil {
		t.Fatal(err)
	}
	asOperator, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	mark := map[string]any{"annotations": map[string]string{v1alpha1.UnreferencedSinceAnnotation: "a"}}
	if err := patchMetadata(t.Context(), asOperator, chunk, mark); err != nil {
		t.Errorf("the operator cannot mark the chunk: %v", err)
	}
	if err := patchMetadata(t.Context(), asOperator, chunk, map[string]any{"ownerReferences": strangers(1)}); !apierrors.IsForbidden(err) {
		t.Errorf("the operator changes the owners of the chunk: %v, want Forbidden", err)
	}
	tests := map[string]struct {
		object   client.Object // the session by default
		metadata map[string]any
		allowed  bool
	}{
		"another owner":                 {metadata: map[string]any{"ownerReferences": strangers(many + 2)}},
		"as many owners":                {metadata: map[string]any{"ownerReferences": strangers(many + 1)}, allowed: true},
		"one owner less":                {metadata: map[string]any{"ownerReferences": owned.OwnerReferences[1:]}, allowed: true},
		"no owners":                     {metadata: map[string]any{"ownerReferences": nil}, allowed: true},
		"another finalizer":             {metadata: map[string]any{"finalizers": finalizers(21)}},
		"one finalizer less":            {metadata: map[string]any{"finalizers": finalizers(19)}, allowed: true},
		"another label":                 {metadata: map[string]any{"labels": map[string]string{"new": "x"}}},
		"another value of a label":      {metadata: map[string]any{"labels": map[string]string{"l0": "y"}}, allowed: true},
		"one label less":                {metadata: map[string]any{"labels": map[string]any{"l0": nil}}, allowed: true},
		"a finalizer less, two labels":  {metadata: map[string]any{"finalizers": finalizers(19), "labels": map[string]string{"x": "", "y": ""}}},
		"an annotation":                 {metadata: map[string]any{"annotations": map[string]string{"a": "b"}}, allowed: true},
		"another annotation of a chunk": {object: chunk, metadata: map[string]any{"annotations": map[string]string{"new": ""}}},
		"another value of a chunk's annotation": {
			object: chunk, metadata: map[string]any{"annotations": map[string]string{"a0": "y"}}, allowed: true,
		},
		"a chunk's annotation less": {object: chunk, metadata: map[string]any{"annotations": map[string]any{"a0": nil}}, allowed: true},
		"a long annotation of nine": {object: fewMore, metadata: map[string]any{"annotations": map[string]string{"a0": strings.Repeat("x", 5000)}}},
		"few long annotations of many": {
			object: crowdedChunk, metadata: map[string]any{"annotations": fewOf(crowd, strings.Repeat("x", 5000))}, allowed: true,
		},
		"no annotations of a chunk":                    {object: chunk, metadata: map[string]any{"annotations": nil}, allowed: true},
		"one owner of a chunk less":                    {object: chunk, metadata: map[string]any{"ownerReferences": chunk.OwnerReferences[1:]}, allowed: true},
		"the owner of a chunk with 40,000 annotations": {object: crowdedChunk, metadata: map[string]any{"ownerReferences": nil}, allowed: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := tc.object
			if object == nil {
				object = owned
			}
			if err := patchMetadata(t.Context(), env.Client, object, tc.metadata); tc.allowed && err != nil || !tc.allowed && !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want it allowed: %t", err, tc.allowed)
			}
		})
	}

	remove(t, ns, "parent")
	testutil.Eventually(t, func(context.Context) error {
		if got := len(get(t, ns, "owned").OwnerReferences); got != many {
			return fmt.Errorf("the session has %d owners, want all except its parent", got)
		}
		return nil
	})
	if err := env.Client.Patch(t.Context(), owned, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Errorf("unable to remove the finalizers: %v", err)
	}
	var errs []error
	for _, object := range slices.Concat(sessions, chunks) { // garbage collection would look for their owners forever
		errs = append(errs, env.Client.Delete(t.Context(), object))
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	waitUntilGone(t, owned)
}
