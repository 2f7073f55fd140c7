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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// right is one verb on one resource, or on one URL.
type right struct{ verb, group, resource, url string }

func (r right) String() string {
	if r.url != "" {
		return r.verb + " " + r.url
	}
	return strings.TrimSuffix(r.verb+" "+r.resource+"."+r.group, ".")
}

// rarelyUsed are the rights that the operator needs although tests may not make it use them.
var rarelyUsed = map[right]string{
	{verb: "list", group: "sessions.catena.dev", resource: "sessionquotas"}:           "informers list if the kube-apiserver does not stream lists",
	{verb: "patch", resource: "events"}:                                               "repeated events",
	{verb: "delete", group: "sessions.catena.dev", resource: "conversationsummaries"}: "OwnerReferencesPermissionEnforcement requires it to patch their owners",
	{verb: "patch", group: "events.k8s.io", resource: "events"}:                       "repeated events",
}

// TestQuotaUsage: the operator counts what a namespace with a quota stores. (Other packages test quotas; the rights are used here.)
func TestQuotaUsage(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 2)
	quota := &v1alpha1.SessionQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"},
		Spec:       v1alpha1.SessionQuotaSpec{Hard: v1alpha1.SessionQuotaLimit{Bytes: new(resource.MustParse("1Gi"))}},
	}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		used := quota.Status.Used
		return unless(used != nil && used.Sessions == int64(len(ids)), fmt.Sprintf("the status is %+v", quota.Status))
	})
}

// TestDeletingConversation: the operator deletes a conversation in the state Deleting, and its turns. (Other packages test deletions; the
// rights are used here.)
func TestDeletingConversation(t *testing.T) {
	turn := testsession.Make(env.NewNamespace(t), "resp_1").Obj()
	turn.Spec.ConversationID = "conv_1"
	conversation := &v1alpha1.Conversation{
		ObjectMeta: metav1.ObjectMeta{Namespace: turn.Namespace, Name: "conv.1"},
		Spec:       v1alpha1.ConversationSpec{ConversationID: "conv_1", HeadResponseID: "resp_1", State: v1alpha1.ConversationStateDeleting},
	}
	for _, object := range []client.Object{turn, conversation} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []client.Object{turn, conversation} {
		testutil.Eventually(t, func(ctx context.Context) error {
			err := env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
			return unless(apierrors.IsNotFound(err), fmt.Sprintf("%s: %v", object.GetName(), err))
		})
	}
}

// bound are the rights of the roles of Kubernetes that config/rbac binds.
var bound = []right{
	{verb: "get", resource: "configmaps"}, {verb: "list", resource: "configmaps"}, {verb: "watch", resource: "configmaps"},
	{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
	{verb: "create", group: "authorization.k8s.io", resource: "subjectaccessreviews"},
}

// audit is the folder of the kube-apiserver's audit log, which has the requests of operators.
type audit string

func newAudit() (audit, error) {
	dir, err := os.MkdirTemp("", "catena-audit-")
	if err != nil {
		return "", err
	}
	const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:catena-system:catena"]
- level: None
`
	return audit(dir), os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600)
}

// flags are those of a kube-apiserver that writes a log with this name, which begins with audit.
func (a audit) flags(name string) map[string]string {
	return map[string]string{"audit-policy-file": filepath.Join(string(a), "policy.yaml"), "audit-log-path": filepath.Join(string(a), name)}
}

func (a audit) remove() error { return os.RemoveAll(string(a)) }

// checkRights compares what the operators of all tests have asked for with what config/rbac grants: neither may have more.
func (a audit) checkRights() error {
	granted, err := grantedRights()
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(string(a), "audit*.log")) // the kube-apiserver begins another one every 100 MB
	if err != nil {
		return err
	}
	used, refused := map[right]bool{}, map[right]bool{}
	for _, log := range logs {
		if err := readRights(log, used, refused); err != nil {
			return err
		}
	}
	var errs []error
	for r := range refused {
		if !granted[r] && !slices.Contains(bound, r) { // a kube-apiserver that has just started grants nothing
			errs = append(errs, fmt.Errorf("the operator asked for %s, which config/rbac does not grant", r))
		}
	}
	for r := range granted {
		if rarelyUsed[r] == "" && !used[r] {
			errs = append(errs, fmt.Errorf("config/rbac grants %s, which no operator has used", r))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// grantedRights returns the rights of the operator in config/rbac. Those of all operators are made from the markers in the code.
func grantedRights() (map[right]bool, error) {
	objects, err := manifests.Read(config.FS, "rbac")
	if err != nil {
		return nil, err
	}
	rights := map[right]bool{}
	for _, object := range objects {
		kind, name := object.GetKind(), object.GetName()
		if kind != "ClusterRole" && kind != "Role" || name != "catena" && name != "catena-certificates" {
			continue
		}
		rules, err := rulesOf(object)
		if err != nil {
			return nil, err
		}
		for _, rule := range rules {
			for _, verb := range rule.Verbs {
				for _, url := range rule.NonResourceURLs {
					rights[right{verb: verb, url: url}] = true
				}
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						rights[right{verb: verb, group: group, resource: resource}] = true
					}
				}
			}
		}
	}
	return rights, nil
}

// rulesOf returns the rules of a Role or a ClusterRole.
func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.Role{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)
	return role.Rules, err
}

// readRights adds the rights that the operator has used, and those that it was refused, according to an audit log.
func readRights(path string, used, refused map[right]bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI string
			ObjectRef        *struct{ APIGroup, Resource, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("unable to read %s: %w", path, err)
		}
		path, _, _ := strings.Cut(event.RequestURI, "?")
		r := right{verb: event.Verb, url: path}
		if o := event.ObjectRef; o != nil {
			r = right{verb: event.Verb, group: o.APIGroup, resource: o.Resource}
			if o.Subresource != "" {
				r.resource += "/" + o.Subresource
			}
		}
		if event.ResponseStatus.Code == 403 {
			refused[r] = true
		} else {
			used[r] = true
		}
	}
	return lines.Err()
}
