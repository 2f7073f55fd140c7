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

package manifests_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/internal/testutil"
)

// TestPriorityAndFairness: the operator's requests do not share the level of tenants. Those for conversations get the level of the component,
// except the operator's, and those of Kubernetes itself.
func TestPriorityAndFairness(t *testing.T) {
	c := sharedCluster(t)
	installed := byName(t, kustomize(t, variants["default"]))
	for name, object := range byName(t, kustomize(t, variants["priority and fairness"])) {
		if installed[name] != nil || object.GroupVersionKind().Group != flowcontrolv1.GroupName {
			continue
		}
		if err := apply(t.Context(), c.Client, object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Client.Delete(context.WithoutCancel(t.Context()), object) })
	}
	const (
		sessions = "/apis/sessions.catena.dev/v1alpha1/namespaces/team-a/responsesessions"
		items    = "/apis/resolve.catena.dev/v1alpha1/namespaces/team-a/inputitems/resp_1"
	)
	for name, tc := range map[string]struct{ user, group, path, want string }{
		"gateway":                 {"system:serviceaccount:catena-system:catena-gateway", "system:serviceaccounts", sessions, "catena-sessions"},
		"person":                  {"ada", "people", sessions, "catena-sessions"},
		"all namespaces":          {"ada", "people", "/apis/sessions.catena.dev/v1alpha1/snapshotchunks", "catena-sessions"},
		"resolve":                 {"ada", "people", items, "catena-resolve"},
		"something else":          {"ada", "people", "/api/v1/namespaces/team-a/configmaps", "global-default"},
		"operator":                {"system:serviceaccount:catena-system:catena", "system:serviceaccounts", sessions, "catena-operator"},
		"operator, of its server": {"system:serviceaccount:catena-system:catena", "system:serviceaccounts", "/version", "catena-operator"},
		"operator's lease": {
			"system:serviceaccount:catena-system:catena", "system:serviceaccounts",
			"/apis/coordination.k8s.io/v1/namespaces/catena-system/leases/catena.sessions.catena.dev", "catena-leader-election",
		},
		"garbage collection": {
			"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccounts:kube-system", sessions, "kube-system-service-accounts",
		},
		"administrator": {"root", "system:masters", sessions, "exempt"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := c.ConfigFor(tc.user, tc.group)
			if err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func(ctx context.Context) error {
				got, err := flowSchemaOf(ctx, c.Client, config, tc.path)
				if err == nil && got != tc.want {
					err = fmt.Errorf("the request belongs to %s, want %s", got, tc.want)
				}
				return err
			})
		})
	}
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"catena-sessions", "catena-resolve"} {
		// docs/security.md has figures for this number.
		if want := fmt.Sprintf("apiserver_flowcontrol_nominal_limit_seats{priority_level=%q} 12\n", level); !strings.Contains(string(metrics), want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
}

// flowSchemaOf sends a GET and returns the name of its FlowSchema.
func flowSchemaOf(ctx context.Context, c client.Client, config *rest.Config, path string) (string, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	schemas := &flowcontrolv1.FlowSchemaList{}
	if err := c.List(ctx, schemas); err != nil {
		return "", err
	}
	for _, schema := range schemas.Items {
		if string(schema.UID) == response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) {
			return schema.Name, nil
		}
	}
	return "", fmt.Errorf("%s, without a known FlowSchema", response.Status)
}
