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
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestLifecycle installs and removes Catena with kubectl and then with Helm, in one cluster. No Pods run there, so the resolve API is never
// available: the worst case for whatever needs discovery.
func TestLifecycle(t *testing.T) {
	testenv.SkipIfShort(t)
	c, err := startCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("kubectl", c.testKubectl)
	t.Run("helm", c.testHelm)
}

func (c *cluster) testKubectl(t *testing.T) {
	c.kubectl(t, "apply", "-k", "config/default") // completes what the environment has installed
	output := c.kubectl(t, "apply", "-k", "config/default")
	var changed []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, " unchanged") {
			changed = append(changed, line)
		}
	}
	// Its selector has the patch strategy "replace", so that kubectl always sends a patch.
	if diff := cmp.Diff([]string{"poddisruptionbudget.policy/catena configured"}, changed); diff != "" {
		t.Errorf("changed by the same manifest (-want +got):\n%s", diff)
	}

	ensureNamespaces(t, c.Client, "team-a")
	if err := c.Client.Create(t.Context(), session("team-a", "resp_1", "text")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"apiservice", "manager", "flowcontrol", "rbac"} {
		c.kubectl(t, "delete", "-k", "config/"+dir, "--timeout=60s") // the last one waits until the namespace is gone
	}
	c.wantSession(t, true)
	for _, dir := range []string{"crd", "admission"} {
		c.kubectl(t, "delete", "-k", "config/"+dir, "--timeout=60s")
	}
	c.wantNothing(t)

	// All at once.
	c.kubectl(t, "apply", "--server-side", "-k", "config/default")
	c.waitForStorage(t)
	c.kubectl(t, "delete", "-k", "config/default", "--timeout=60s")
	c.wantNothing(t)
	c.wantNamespacesEnd(t, "team-a")
}

func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	kubectl, err := testenv.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), kubectl, append(args, "--kubeconfig="+c.Kubeconfig)...)
	command.Dir = testutil.Root()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

func (c *cluster) testHelm(t *testing.T) {
	h := newHelm(t, c)
	ensureNamespaces(t, c.Client, "team-a")
	h.install(t, "")
	published := c.publish(t)
	h.upgrade(t, "{gateway: {enabled: true, upstream: {url: http://engine}, namespaces: [team-a]}, priorityAndFairness: {enabled: true}}")
	if got := c.caBundle(t); got != published {
		t.Errorf("after an upgrade, the caBundle is %q, want the operator's", got)
	}
	if err := c.Client.Create(t.Context(), session("team-a", "resp_1", "text")); err != nil {
		t.Fatal(err)
	}
	h.uninstall(t)
	h.wantOrder(t)
	c.wantSession(t, true)
	policies := c.kubectl(t, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
	if got := strings.Count(policies, ".sessions.catena.dev\n"); got != 12 {
		t.Errorf("%d admission policies and bindings are left beside the CRDs, want 12:\n%s", got, policies)
	}

	// The release finds its CRDs again, with the sessions, and deletes both if it is told to.
	h.install(t, "")
	c.wantSession(t, true)
	c.waitForStorage(t)
	c.publish(t)
	h.forceConflicts = true
	h.upgrade(t, `{crds: {keep: false}, certificates: {mode: secret, secretName: mine, caBundle: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}}`)
	h.uninstall(t)
	c.wantNothing(t)
	c.wantNamespacesEnd(t, "team-a", h.namespace)
}

// userAgent is Helm's in the audit log.
const userAgent = "helm"

// helm runs Helm's actions on one release.
type helm struct {
	cluster        *cluster
	namespace      string
	config         *action.Configuration
	forceConflicts bool
}

func newHelm(t *testing.T, c *cluster) *helm {
	t.Helper()
	h := &helm{cluster: c, namespace: "operators", config: action.NewConfiguration()}
	flags := genericclioptions.NewConfigFlags(false)
	cache := t.TempDir()
	flags.KubeConfig, flags.Namespace, flags.CacheDir = &c.Kubeconfig, &h.namespace, &cache
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.UserAgent = userAgent
		return config
	}
	h.config.SetLogger(slog.NewTextHandler(io.Discard, nil))
	if err := h.config.Init(flags, h.namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *helm) install(t *testing.T, values string) {
	t.Helper()
	install := action.NewInstall(h.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy = "conversations", h.namespace, true, kube.HookOnlyStrategy
	chart, err := loader.Load(filepath.Join(testutil.Root(), chartDir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.RunWithContext(t.Context(), chart, parseValues(t, values)); err != nil {
		t.Fatalf("helm install: %v", err)
	}
}

func (h *helm) upgrade(t *testing.T, values string) {
	t.Helper()
	upgrade := action.NewUpgrade(h.config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.ForceConflicts = h.namespace, kube.HookOnlyStrategy, h.forceConflicts
	chart, err := loader.Load(filepath.Join(testutil.Root(), chartDir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upgrade.RunWithContext(t.Context(), "conversations", chart, parseValues(t, values)); err != nil {
		t.Fatalf("helm upgrade: %v", err)
	}
}

func (h *helm) uninstall(t *testing.T) {
	t.Helper()
	uninstall := action.NewUninstall(h.config)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run("conversations"); err != nil {
		t.Fatalf("helm uninstall: %v", err)
	}
}

// publish writes a caBundle to the APIService as the operator does, and returns it.
func (c *cluster) publish(t *testing.T) string {
	t.Helper()
	bundle := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----"))
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1alpha1.resolve.catena.dev"}, "spec": map[string]any{"caBundle": bundle},
	}}
	if err := apply(t.Context(), c.Client, object); err != nil {
		t.Fatal(err)
	}
	return bundle
}

func (c *cluster) caBundle(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "get", "apiservice", "v1alpha1.resolve.catena.dev", "-o", "jsonpath={.spec.caBundle}")
}

// wantOrder checks that Helm has deleted the APIService before anything that the operator needs to serve it. So the chart needs no hook
// that does it.
func (h *helm) wantOrder(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		var deleted []string
		for _, event := range h.cluster.events(t, "admin") {
			if event.Verb == "delete" && event.UserAgent == userAgent {
				deleted = append(deleted, event.ObjectRef.Resource)
			}
		}
		if len(deleted) == 0 || deleted[0] != "apiservices" || !slices.Contains(deleted, "deployments") {
			return fmt.Errorf("Helm deleted %v, want the APIService first", deleted)
		}
		return nil
	})
}

// waitForStorage waits until the kube-apiserver has the caches of all CRDs. It takes minutes to delete a CRD that has none yet.
func (c *cluster) waitForStorage(t *testing.T) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range []string{"responsesessions", "sessionquotas", "snapshotchunks", "conversations", "conversationsummaries"} {
		testutil.Eventually(t, func(ctx context.Context) error {
			fromCache := clientset.RESTClient().Get().AbsPath("/apis/sessions.catena.dev/v1alpha1", resource).Param("resourceVersion", "0")
			return fromCache.Do(ctx).Error()
		})
	}
}

// wantSession checks whether the session exists, without finalizers.
func (c *cluster) wantSession(t *testing.T, want bool) {
	t.Helper()
	object := &v1alpha1.ResponseSession{}
	err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "resp.1"}, object)
	if err != nil != !want || err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		t.Errorf("read the session: %v, want it: %t", err, want)
	}
	if len(object.Finalizers) > 0 {
		t.Errorf("finalizers %v, want none", object.Finalizers)
	}
}

// wantNothing checks that nothing of Catena is left but namespaces.
func (c *cluster) wantNothing(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := c.Client.List(ctx, crds); err != nil || len(crds.Items) > 0 {
			return fmt.Errorf("%d CRDs are left: %w", len(crds.Items), err)
		}
		return nil
	})
	kinds := "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,apiservices,flowschemas," +
		"prioritylevelconfigurations,roles,rolebindings,services,serviceaccounts,deployments,poddisruptionbudgets,networkpolicies,resourcequotas"
	if left := c.kubectl(t, "get", kinds, "-A", "-l", "app.kubernetes.io/name=catena", "-o", "name"); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// wantNamespacesEnd checks that namespaces can be deleted.
func (c *cluster) wantNamespacesEnd(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			err := c.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s is still there: %v, %w", name, object.Status.Conditions, err)
			}
			return nil
		})
	}
}
