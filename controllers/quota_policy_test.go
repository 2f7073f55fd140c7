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
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
)

// quotaCode is the beginning of the policy's message.
const quotaCode = "session.store.quota_exceeded: "

func isQuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), quotaCode)
}

// newTenant returns a client with the ClusterRole admin in a namespace, which a tenant has.
func newTenant(t *testing.T, namespace string) client.Client {
	t.Helper()
	user := "tenant-" + namespace
	createAll(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	config, err := env.ConfigFor(user)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error { // rights take effect a moment later
		return c.List(ctx, &v1alpha1.SessionQuotaList{}, client.InNamespace(namespace))
	})
	return c
}

// wantRefused waits until a namespace can store nothing, and wantAdmitted until it can.
func wantRefused(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		if err := c.Create(ctx, turn(namespace, "probe"), client.DryRunAll); !isQuotaExceeded(err) {
			return fmt.Errorf("a session is not refused because of the quota: %w", err)
		}
		return nil
	})
}

func wantAdmitted(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error { return c.Create(ctx, turn(namespace, "probe"), client.DryRunAll) })
}

// TestQuotaPolicy: a tenant that exceeds its quota cannot store more by any means, but can delete; the operator and garbage
// collection are not affected, nor are other namespaces.
func TestQuotaPolicy(t *testing.T) {
	ns, other := env.NewNamespace(t), env.NewNamespace(t)
	tenant := newTenant(t, ns)
	session, chunk := turn(ns, "a", "parent"), newChunk(ns, "a", "data", "")
	session.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
	conversation := newConversation(ns, "a")
	conversation.Spec.Title, conversation.Spec.HiddenItems = "title", []v1alpha1.HiddenItem{{ResponseID: "b"}}
	createAll(t, conversation, turn(ns, "parent"), session, turn(ns, "child", "a"), chunk, newQuota(ns, "quota", "1Ki"), newQuota(ns, "another", "1Gi"), newQuota(other, "quota", "1Gi"))
	settle(t, ns)
	wantRefused(t, tenant, ns)

	patch := func(object client.Object, body string) func(context.Context) error {
		return func(ctx context.Context) error {
			copied := object.DeepCopyObject().(client.Object)
			return tenant.Patch(ctx, copied, client.RawPatch(types.MergePatchType, []byte(body)), client.DryRunAll)
		}
	}
	apply := func(ctx context.Context) error {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"responseID": "applied", "responseStatus": "completed"}}}
		object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ResponseSessionKind))
		object.SetNamespace(ns)
		object.SetName("applied")
		return tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"), client.DryRunAll)
	}
	tests := map[string]struct {
		request func(context.Context) error
		allowed bool
	}{
		"create a session": {request: func(ctx context.Context) error { return tenant.Create(ctx, turn(ns, "b"), client.DryRunAll) }},
		"apply a session":  {request: apply},
		"create a chunk": {request: func(ctx context.Context) error {
			return tenant.Create(ctx, newChunk(ns, "b", "x", "4"), client.DryRunAll)
		}},
		"create a conversation":         {request: func(ctx context.Context) error { return tenant.Create(ctx, newConversation(ns, "b"), client.DryRunAll) }},
		"create a summary":              {request: func(ctx context.Context) error { return tenant.Create(ctx, newSummary(ns, "a"), client.DryRunAll) }},
		"add metadata":                  {request: patch(conversation, `{"spec":{"metadata":{"a":"b"}}}`)},
		"add a system prompt":           {request: patch(conversation, `{"spec":{"systemPrompt":"p"}}`)},
		"change the title":              {request: patch(conversation, `{"spec":{"title":"another"}}`)},
		"remove the title":              {request: patch(conversation, `{"spec":{"title":null}}`), allowed: true},
		"hide an item":                  {request: patch(conversation, `{"spec":{"hiddenItems":[{"responseID":"a","number":0}]}}`)},
		"hide another item":             {request: patch(conversation, `{"spec":{"hiddenItems":[{"responseID":"another","number":0}]}}`)},
		"move the head":                 {request: patch(conversation, `{"spec":{"headResponseID":"a"}}`), allowed: true},
		"delete a conversation's turns": {request: patch(conversation, `{"spec":{"state":"Deleting"}}`), allowed: true},
		"delete a conversation":         {request: func(ctx context.Context) error { return tenant.Delete(ctx, conversation, client.DryRunAll) }, allowed: true},
		"change a field":                {request: patch(session, `{"spec":{"responseStatus":"failed"}}`)},
		"add an undeclared key":         {request: patch(session, `{"spec":{"request":{"x":null,"y":1}}}`)},
		"remove a body":                 {request: patch(session, `{"spec":{"request":null}}`)},
		"change both":                   {request: patch(session, `{"metadata":{"labels":{"a":"b"}},"spec":{"responseStatus":"failed"}}`)},
		"change nothing":                {request: patch(session, `{"spec":{"responseStatus":"completed"}}`), allowed: true},
		"add a label":                   {request: patch(session, `{"metadata":{"labels":{"a":"b"}}}`), allowed: true},
		"add a finalizer":               {request: patch(session, `{"metadata":{"finalizers":["example.com/a"]}}`), allowed: true},
		"delete a session":              {request: func(ctx context.Context) error { return tenant.Delete(ctx, session, client.DryRunAll) }, allowed: true},
		"delete a chunk":                {request: func(ctx context.Context) error { return tenant.Delete(ctx, chunk, client.DryRunAll) }, allowed: true},
		"save in another namespace":     {request: func(ctx context.Context) error { return env.Client.Create(ctx, turn(other, "b"), client.DryRunAll) }, allowed: true},
		"save as an administrator":      {request: func(ctx context.Context) error { return env.Client.Create(ctx, turn(ns, "b"), client.DryRunAll) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.request(t.Context())
			if tc.allowed && err != nil || !tc.allowed && !isQuotaExceeded(err) {
				t.Errorf("got %v, want it allowed: %t", err, tc.allowed)
			}
		})
	}
	err := tenant.Create(t.Context(), turn(ns, "b"))
	if want := "SessionQuota quota of this namespace is exceeded: "; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "of 1Ki bytes are used: delete sessions") {
		t.Errorf("got the message %v, want it to contain %q", err, want)
	}

	// The operator adds the ownerReference that was opted out of, and garbage collection removes it from the child again.
	if err := tenant.Patch(t.Context(), turn(ns, "a"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))); err != nil {
		t.Fatal(err)
	}
	settle(t, ns)
	if owners := get(t, ns, "a").OwnerReferences; len(owners) != 1 {
		t.Errorf("the session has the owners %+v, want its parent", owners)
	}
	remove(t, ns, "a")
	wantVerdicts(t, ns, map[string]verdict{
		"parent": resolved(1, "parent"),
		"child":  {Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonParentNotFound, BrokenAt: "a"},
	})
	if owners := get(t, ns, "child").OwnerReferences; len(owners) > 0 {
		t.Errorf("the child has owners: %+v", owners)
	}

	// A deletion frees the space, and so does a higher limit.
	for _, kind := range []client.Object{&v1alpha1.ResponseSession{}, &v1alpha1.SnapshotChunk{}, &v1alpha1.Conversation{}} {
		if err := env.Client.DeleteAllOf(t.Context(), kind, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	wantAdmitted(t, tenant, ns)
	createAll(t, turn(ns, "c"))
	wantRefused(t, tenant, ns)
	higher := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"bytes":"1Gi"}}}`))
	if err := env.Client.Patch(t.Context(), newQuota(ns, "quota", ""), higher); err != nil {
		t.Fatal(err)
	}
	wantAdmitted(t, tenant, ns)
}

// TestTenantsCannotChangeQuotas: a tenant can read its quotas, but change neither the limit nor the usage.
func TestTenantsCannotChangeQuotas(t *testing.T) {
	ns := env.NewNamespace(t)
	tenant := newTenant(t, ns)
	createAll(t, newQuota(ns, "quota", "1Ki"))
	wantUsage(t, ns, "quota", "False WithinLimit")
	quota := newQuota(ns, "quota", "")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":{"bytes":"1Gi"}},"status":{"used":{"bytes":"0"}}}`))
	for name, request := range map[string]func() error{
		"create":            func() error { return tenant.Create(t.Context(), newQuota(ns, "mine", "1Gi"), client.DryRunAll) },
		"patch":             func() error { return tenant.Patch(t.Context(), quota, patch, client.DryRunAll) },
		"patch of a status": func() error { return tenant.Status().Patch(t.Context(), quota, patch) },
		"delete":            func() error { return tenant.Delete(t.Context(), quota, client.DryRunAll) },
		"delete all": func() error {
			return tenant.DeleteAllOf(t.Context(), quota, client.InNamespace(ns), &client.DeleteAllOfOptions{DeleteOptions: client.DeleteOptions{DryRun: []string{metav1.DryRunAll}}})
		},
	} {
		if err := request(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want Forbidden", name, err)
		}
	}
	if err := tenant.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil || quota.Status.Used == nil {
		t.Errorf("get: %v, %+v", err, quota.Status)
	}
}

// TestQuotaRule: the policy and SessionQuota.IsExceeded agree.
func TestQuotaRule(t *testing.T) {
	ns := env.NewNamespace(t)
	restartOperator(t, func() { // so that no operator corrects the usage
		createAll(t, newQuota(ns, "quota", "1"))
		for _, tc := range []struct{ hard, used string }{
			{hard: `"1Ki"`}, {used: `"1Ki"`}, {hard: `0`, used: `0`}, {hard: `1`, used: `"0"`}, {hard: `"1Ki"`, used: `1024`}, {hard: `"1Ki"`, used: `"1023"`},
			{hard: `"1025"`, used: `"1Ki"`}, {hard: `"1e3"`, used: `"1k"`}, {hard: `"1e3"`, used: `"999"`}, {hard: `"0.5"`, used: `"500m"`},
			{hard: `"0.5"`, used: `"499m"`}, {hard: `"7.9Ei"`, used: `"7Ei"`}, {hard: `"1Gi"`, used: `"9Ei"`}, {hard: `10`, used: `9`}, {hard: `9`, used: `"10"`},
		} {
			t.Run(tc.hard+" "+tc.used, func(t *testing.T) {
				bytesOf := func(quantity string) string {
					if quantity == "" {
						return "null"
					}
					return `{"bytes":` + quantity + `,"sessions":1,"snapshotChunks":1}`
				}
				hard := "null"
				if tc.hard != "" {
					hard = `{"bytes":` + tc.hard + `}`
				}
				quota := newQuota(ns, "quota", "")
				for _, patch := range []func() error{
					func() error {
						return env.Client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hard":`+hard+`}}`)))
					},
					func() error {
						return env.Client.Status().Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, []byte(`{"status":{"used":`+bytesOf(tc.used)+`}}`)))
					},
				} {
					if err := patch(); err != nil {
						t.Fatal(err)
					}
				}
				if quota.IsExceeded() {
					wantRefused(t, env.Client, ns)
				} else {
					wantAdmitted(t, env.Client, ns)
				}
			})
		}
		if err := env.Client.Delete(t.Context(), newQuota(ns, "quota", "")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestQuotaQuantities: the API server refuses a limit that the operator could not parse.
func TestQuotaQuantities(t *testing.T) {
	ns := env.NewNamespace(t)
	for bytes, valid := range map[string]bool{
		`0`: true, `1`: true, `"10Gi"`: true, `"1e3"`: true, `"0.5"`: true, `"1500m"`: true, `"7.9Ei"`: true, `"+1"`: true,
		`-1`: false, `"-1"`: false, `"1e1.5"`: false, `"1e99"`: false, `"8Ei"`: false, `""`: false, `"10 Gi"`: false, `"10GiB"`: false, `"lots"`: false,
		`"0000000000000000000000000000000001"`: false, `{}`: false, `true`: false, `1.5`: false, `99999999999999999999`: false,
	} {
		quota := &unstructured.Unstructured{}
		if err := quota.UnmarshalJSON([]byte(`{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"SessionQuota","metadata":{"name":"quota"},"spec":{"hard":{"bytes":` + bytes + `}}}`)); err != nil {
			t.Fatal(err)
		}
		quota.SetNamespace(ns)
		err := env.Client.Create(t.Context(), quota, client.DryRunAll)
		if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it valid: %t", bytes, err, valid)
		}
	}
	if _, err := resource.ParseQuantity("1e1.5"); err == nil {
		t.Error("Go parses the quantity 1e1.5: the pattern of quantities in the CRD is no longer more permissive than Go")
	}
}

// TestChunkPolicy: the annotation with the size of a chunk's data is true or absent, and its characters have one byte each.
func TestChunkPolicy(t *testing.T) {
	ns := env.NewNamespace(t)
	const size = "12" // of "8 bytes!" in base64
	for annotation, valid := range map[string]bool{size: true, "": true, "11": false, "8": false, "012": false, "-12": false, "12 ": false, "x": false} {
		testutil.Eventually(t, func(ctx context.Context) error { // the API server may take a moment to enforce a policy
			err := env.Client.Create(ctx, newChunk(ns, "a", "8 bytes!", annotation), client.DryRunAll)
			if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
				return fmt.Errorf("%q: %w, want it valid: %t", annotation, err, valid)
			}
			return nil
		})
	}
	for _, data := range []string{strings.Repeat("\U0001F600", 12), "ab\u00e9=", "ab<=", "ab\n=", "a&b=", `ab\=`, `ab"=`, "ab\x00=", "ab\x1f="} {
		wide := partialChunk(t, ns, data)
		if err := env.Client.Create(t.Context(), wide, client.DryRunAll); !apierrors.IsInvalid(err) {
			t.Errorf("data %q: got %v, want it invalid", data, err)
		}
	}
	large := newChunk(ns, "large", strings.Repeat("a", 524288/4*3), "")
	if err := env.Client.Create(t.Context(), large, client.DryRunAll); err != nil {
		t.Errorf("the largest chunk: %v", err)
	}
	chunk := newChunk(ns, "a", "8 bytes!", size)
	createAll(t, chunk)
	for patch, valid := range map[string]bool{
		`{"metadata":{"annotations":{"` + v1alpha1.DataSizeAnnotation + `":"1"}}}`:                            false,
		`{"metadata":{"annotations":{"` + v1alpha1.DataSizeAnnotation + `":null}}}`:                           true,
		`{"spec":{"data":"bG9uZ2VyIHRoYW4gYmVmb3Jl"}}`:                                                        false,
		`{"metadata":{"annotations":{"` + v1alpha1.UnreferencedSinceAnnotation + `":"a","` + "b" + `":"c"}}}`: true,
		`{"metadata":{"labels":{"a":"b"}}}`:                                                                   true,
	} {
		err := env.Client.Patch(t.Context(), chunk.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want it valid: %t", patch, err, valid)
		}
	}
}

// partialChunk returns a chunk whose data need not be base64.
func partialChunk(t *testing.T, namespace, data string) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(newChunk(namespace, "wide", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	chunk := &unstructured.Unstructured{Object: content}
	chunk.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.SnapshotChunkKind))
	if err := unstructured.SetNestedField(chunk.Object, data, "spec", "data"); err != nil {
		t.Fatal(err)
	}
	return chunk
}
