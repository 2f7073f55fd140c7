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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/testutil"
)

// operatorUser is the service account in config/rbac.
const operatorUser = "system:serviceaccount:catena-system:catena"

var operatorGroups = []string{"system:serviceaccounts", "system:serviceaccounts:catena-system"}

// TestOperatorPolicy: the operator's credentials suffice to set ownerReferences, and to delete chunks and what is deleted with a conversation,
// but not to change what tenants have stored or to delete other sessions, although RBAC permits it. Others are not affected.
func TestOperatorPolicy(t *testing.T) {
	ns := env.NewNamespace(t)
	session := turn(ns, "a")
	session.Labels, session.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "1"}
	chunk := &v1alpha1.SnapshotChunk{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "aaaaaaaaaaaaaaaaaaaaaaaaaa-0", Annotations: map[string]string{v1alpha1.SessionAnnotation: "a"}},
		Spec:       v1alpha1.SnapshotChunkSpec{Data: []byte("data")},
	}
	inConversation := turn(ns, "b")
	inConversation.Spec.ConversationID = "conv_1"
	active := unstructuredConversation(t, ns, "conv_1", `{}`)
	deleting := unstructuredConversation(t, ns, "conv_2", `{"state":"Deleting"}`)
	controllerutil.AddFinalizer(deleting, "example.com/hold") // the operator of the other tests deletes it
	summary := newSummary(ns, "conv_1")
	for _, object := range []client.Object{session, chunk, inConversation, active, deleting, summary} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, ns)
	config, err := env.ConfigFor(operatorUser, operatorGroups...)
	if err != nil {
		t.Fatal(err)
	}
	asOperator, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}

	patch := func(object client.Object, kind types.PatchType, body string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(kind, []byte(body)), client.DryRunAll)
		}
	}
	merge := func(object client.Object, body string) func(context.Context, client.Client) error {
		return patch(object, types.MergePatchType, body)
	}
	remove := func(object client.Object) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, object, client.DryRunAll) }
	}
	// removeAsIs deletes an object as it is now, with the given options.
	removeAsIs := func(object client.Object, version bool, options ...client.DeleteOption) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			stored := object.DeepCopyObject().(client.Object)
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
				return err
			}
			preconditions := client.Preconditions{UID: new(stored.GetUID())}
			if version {
				preconditions.ResourceVersion = new(stored.GetResourceVersion())
			}
			return c.Delete(ctx, stored, append(options, preconditions, client.DryRunAll)...)
		}
	}
	orphan := client.PropagationPolicy(metav1.DeletePropagationOrphan)
	add := func(object client.Object) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		}
	}
	secret := func(name string, kind corev1.SecretType) client.Object {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "catena-system", Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
			Type:       kind, Data: map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil},
		}
	}
	owner, err := json.Marshal([]any{map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.ResponseSessionKind, "name": session.Name, "uid": session.UID,
	}})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		request func(context.Context, client.Client) error
		allowed bool
	}{
		"the serving certificate":        {request: add(secret("catena-resolve-tls", corev1.SecretTypeTLS)), allowed: true},
		"another Secret":                 {request: add(secret("catena-gateway-tls", corev1.SecretTypeTLS))},
		"a token":                        {request: add(secret("catena-resolve-tls", corev1.SecretTypeServiceAccountToken))},
		"a field of a spec":              {request: merge(session, `{"spec":{"responseStatus":"failed"}}`)},
		"an undeclared key of a body":    {request: merge(session, `{"spec":{"request":{"x":1}}}`)},
		"a new field of a spec":          {request: merge(session, `{"spec":{"immutable":true}}`)},
		"a label":                        {request: merge(session, `{"metadata":{"labels":{"l":"2"}}}`)},
		"all labels":                     {request: merge(session, `{"metadata":{"labels":null}}`)},
		"an annotation":                  {request: merge(session, `{"metadata":{"annotations":{"a":null,"b":"1"}}}`)},
		"a finalizer":                    {request: merge(session, `{"metadata":{"finalizers":["example.com/hold"]}}`)},
		"deletion of a session":          {request: remove(session)},
		"deletion of a turn":             {request: removeAsIs(inConversation, true, orphan), allowed: true},
		"deletion of any turn":           {request: remove(inConversation)},
		"deletion of any version":        {request: removeAsIs(inConversation, false, orphan)},
		"deletion with descendants":      {request: removeAsIs(inConversation, true, client.PropagationPolicy(metav1.DeletePropagationBackground))},
		"deletion of a conversation":     {request: remove(active)},
		"deletion of a deleting one":     {request: removeAsIs(deleting, false), allowed: true},
		"deletion of any deleting one":   {request: remove(deleting)},
		"the data of a chunk":            {request: merge(chunk, `{"spec":{"data":"b3RoZXI="}}`)},
		"the session of a chunk":         {request: merge(chunk, `{"metadata":{"annotations":{"`+v1alpha1.SessionAnnotation+`":"b"}}}`)},
		"another annotation of a chunk":  {request: merge(chunk, `{"metadata":{"annotations":{"b":"1"}}}`)},
		"all annotations of a chunk":     {request: merge(chunk, `{"metadata":{"annotations":null}}`)},
		"the mark of a session":          {request: merge(session, `{"metadata":{"annotations":{"`+v1alpha1.UnreferencedSinceAnnotation+`":"b"}}}`)},
		"the mark of a chunk":            {request: merge(chunk, `{"metadata":{"annotations":{"`+v1alpha1.UnreferencedSinceAnnotation+`":"b"}}}`), allowed: true},
		"the owner of a session":         {request: merge(session, `{"metadata":{"ownerReferences":`+string(owner)+`}}`), allowed: true},
		"an owner of another kind":       {request: merge(session, `{"metadata":{"ownerReferences":`+strings.Replace(string(owner), v1alpha1.ResponseSessionKind, "SessionQuota", 1)+`}}`)},
		"an owner of another group":      {request: merge(session, `{"metadata":{"ownerReferences":`+strings.Replace(string(owner), v1alpha1.GroupVersion.String(), "v1", 1)+`}}`)},
		"the owner of a chunk":           {request: merge(chunk, `{"metadata":{"ownerReferences":`+string(owner)+`}}`), allowed: true},
		"deletion of a chunk":            {request: remove(chunk), allowed: true},
		"the owner of a summary":         {request: merge(summary, `{"metadata":{"ownerReferences":`+strings.Replace(string(owner), v1alpha1.ResponseSessionKind, v1alpha1.ConversationKind, 1)+`}}`), allowed: true},
		"a conversation as an owner":     {request: merge(session, `{"metadata":{"ownerReferences":`+strings.Replace(string(owner), v1alpha1.ResponseSessionKind, v1alpha1.ConversationKind, 1)+`}}`)},
		"a session as a summary's owner": {request: merge(summary, `{"metadata":{"ownerReferences":`+string(owner)+`}}`)},
		"a label of a summary":           {request: merge(summary, `{"metadata":{"labels":{"l":"2"}}}`)},
		"deletion of a summary":          {request: remove(summary)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			testutil.Eventually(t, func(ctx context.Context) error { // the API server may take a moment to enforce a policy
				if err := tc.request(ctx, asOperator); tc.allowed && err != nil || !tc.allowed && !apierrors.IsForbidden(err) {
					return fmt.Errorf("the operator: %w, want it allowed: %t", err, tc.allowed)
				}
				return nil
			})
			if err := tc.request(t.Context(), env.Client); err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("an administrator: %v", err)
			}
		})
	}
}

// TestOperatorRights lists all rights of the operator, each with its reason, and compares them with config/rbac: the roles that are bound,
// and to whom.
func TestOperatorRights(t *testing.T) {
	want := map[string]string{
		"ClusterRoleBinding catena: ClusterRole catena for ServiceAccount catena-system/catena": "the rights in all namespaces",

		"ClusterRole catena: create events.k8s.io/events": "events about broken and healed chains",
		"ClusterRole catena: patch events.k8s.io/events":  "repeated events",

		"ClusterRole catena: list sessions.catena.dev/responsesessions":         "the view",
		"ClusterRole catena: watch sessions.catena.dev/responsesessions":        "the view",
		"ClusterRole catena: get sessions.catena.dev/responsesessions":          "live reads",
		"ClusterRole catena: patch sessions.catena.dev/responsesessions":        "the ownerReference to the parent; the policy operator.sessions.catena.dev refuses the rest",
		"ClusterRole catena: delete sessions.catena.dev/responsesessions":       "turns that are deleted with their conversations; the policy refuses those without a conversation. The plugin OwnerReferencesPermissionEnforcement requires it for ownerReferences, too",
		"ClusterRole catena: patch sessions.catena.dev/responsesessions/status": "verdicts",

		"ClusterRole catena: get sessions.catena.dev/snapshotchunks":    "bodies outside their objects",
		"ClusterRole catena: list sessions.catena.dev/snapshotchunks":   "the sweep, and the usage",
		"ClusterRole catena: watch sessions.catena.dev/snapshotchunks":  "the usage",
		"ClusterRole catena: patch sessions.catena.dev/snapshotchunks":  "the ownerReference to the session, and the mark of an unreferenced snapshot; the policy refuses the rest",
		"ClusterRole catena: delete sessions.catena.dev/snapshotchunks": "the sweep, and the plugin",

		"ClusterRole catena: list sessions.catena.dev/conversations":         "their heads",
		"ClusterRole catena: watch sessions.catena.dev/conversations":        "their heads",
		"ClusterRole catena: get sessions.catena.dev/conversations":          "live reads before a deletion",
		"ClusterRole catena: delete sessions.catena.dev/conversations":       "those in the state Deleting; the policy refuses others",
		"ClusterRole catena: patch sessions.catena.dev/conversations/status": "verdicts on their histories",

		"ClusterRole catena: list sessions.catena.dev/conversationsummaries":   "the usage",
		"ClusterRole catena: watch sessions.catena.dev/conversationsummaries":  "the usage",
		"ClusterRole catena: get sessions.catena.dev/conversationsummaries":    "their ownerReferences",
		"ClusterRole catena: patch sessions.catena.dev/conversationsummaries":  "ownerReferences in another version of the API; the policy refuses the rest",
		"ClusterRole catena: delete sessions.catena.dev/conversationsummaries": "the plugin; the policy refuses all",

		"ClusterRole catena: list sessions.catena.dev/sessionquotas":         "quotas",
		"ClusterRole catena: watch sessions.catena.dev/sessionquotas":        "quotas",
		"ClusterRole catena: patch sessions.catena.dev/sessionquotas/status": "their usage",

		"ClusterRole catena: get /namespaces kube-system": "its UID identifies the cluster",
		"ClusterRole catena: get URL /version":            "the time of the API server",

		"ClusterRoleBinding catena-certificates: ClusterRole catena-certificates for ServiceAccount catena-system/catena": "only if the operator keeps its own certificate",
		"RoleBinding catena-system/catena-certificates: Role catena-certificates for ServiceAccount catena-system/catena": "only if the operator keeps its own certificate",

		"ClusterRole catena-certificates: get apiregistration.k8s.io/apiservices v1alpha1.resolve.catena.dev":   "the CAs that the kube-apiserver trusts",
		"ClusterRole catena-certificates: patch apiregistration.k8s.io/apiservices v1alpha1.resolve.catena.dev": "another CA",

		"RoleBinding catena-system/catena: Role catena for ServiceAccount catena-system/catena": "the rights in its own namespace",

		"Role catena-system/catena: create /events":                                  "events about leadership",
		"Role catena-system/catena: patch /events":                                   "repeated events",
		"Role catena-system/catena-certificates: create /secrets":                    "the serving certificate; the policy operator-secret.sessions.catena.dev refuses the rest",
		"Role catena-system/catena-certificates: get /secrets catena-resolve-tls":    "the serving certificate",
		"Role catena-system/catena-certificates: update /secrets catena-resolve-tls": "another serving certificate",
		"Role catena-system/catena: create coordination.k8s.io/leases":               "leader election",
		"Role catena-system/catena: get coordination.k8s.io/leases":                  "leader election",
		"Role catena-system/catena: update coordination.k8s.io/leases":               "leader election",

		"ClusterRoleBinding catena-auth-delegator: ClusterRole system:auth-delegator for ServiceAccount catena-system/catena": "delegated authentication and authorization",

		"RoleBinding kube-system/catena-authentication-reader: Role extension-apiserver-authentication-reader for ServiceAccount catena-system/catena": "the CA of the kube-apiserver as a client",

		"ClusterRoleBinding catena-cluster-identity: ClusterRole catena-cluster-identity for Group system:authenticated": "what every client may know",

		"ClusterRole catena-cluster-identity: get /namespaces kube-system":                                        "its UID identifies the cluster",
		"ClusterRole catena-cluster-identity: get apiregistration.k8s.io/apiservices v1alpha1.resolve.catena.dev": "where gateways read histories directly",
	}
	objects, err := manifests.Read(config.FS, "rbac")
	if err != nil {
		t.Fatal(err)
	}
	bound, rights, got := map[string]bool{}, map[string][]string{}, []string{}
	for _, object := range objects {
		name := object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
		switch object.GetKind() {
		case "ClusterRoleBinding", "RoleBinding":
			binding := decode[rbacv1.RoleBinding](t, object) // both have the same fields
			role := binding.RoleRef.Kind + " "
			if binding.RoleRef.Kind == "Role" {
				role += binding.Namespace + "/"
			}
			bound[role+binding.RoleRef.Name] = true
			for _, subject := range binding.Subjects {
				who := subject.Kind + " " + strings.TrimPrefix(subject.Namespace+"/"+subject.Name, "/")
				got = append(got, fmt.Sprintf("%s: %s %s for %s", name, binding.RoleRef.Kind, binding.RoleRef.Name, who))
			}
		case "ClusterRole", "Role":
			role := decode[rbacv1.ClusterRole](t, object)
			if role.AggregationRule != nil {
				rights[name] = append(rights[name], name+": those of other roles")
			}
			for _, rule := range role.Rules {
				for _, right := range rightsOf(rule) {
					rights[name] = append(rights[name], name+": "+right)
				}
			}
		}
	}
	for role := range bound {
		got = append(got, rights[role]...)
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

func decode[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

// rightsOf returns each right that a rule grants.
func rightsOf(rule rbacv1.PolicyRule) (rights []string) {
	var targets []string
	for _, url := range rule.NonResourceURLs {
		targets = append(targets, "URL "+url)
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if len(rule.ResourceNames) == 0 {
				targets = append(targets, group+"/"+resource)
			}
			for _, name := range rule.ResourceNames {
				targets = append(targets, group+"/"+resource+" "+name)
			}
		}
	}
	for _, verb := range rule.Verbs {
		for _, target := range targets {
			rights = append(rights, verb+" "+target)
		}
	}
	return rights
}
