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

package cluster_test

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certutil "k8s.io/client-go/util/cert"

	"github.com/catena-dev/catena/internal/testutil"
)

// testWayOut follows docs/install.md while no operator runs: the API is taken away, so that a namespace can be deleted, and brought back.
func testWayOut(t *testing.T) {
	const apiService = "v1alpha1.resolve.catena.dev"
	last := kubectl(t, "--namespace="+tenant, "get", "responsesessions", "--output=jsonpath={.items[0].spec.responseID}")
	resolve := []string{"--namespace=" + tenant, "get", "inputitems", last, "--output=json"}
	history := kubectl(t, resolve...)
	kubectl(t, "--namespace="+system, "scale", "deployment", "catena", "--replicas=0")
	eventually(t, "False", "get", "apiservice", apiService, `--output=jsonpath={.status.conditions[?(@.type=="Available")].status}`)
	const stuck = "namespace/" + tenant + "-stuck"
	testutil.Eventually(t, func(ctx context.Context) error { // for up to a minute, the kube-apiserver remembers what it discovered
		if _, err := tryKubectl(ctx, "", "create", "namespace", tenant+"-stuck"); err == nil {
			kubectl(t, "delete", stuck, "--wait=false")
		}
		_, err := tryKubectl(ctx, "", "wait", "--for=condition=NamespaceDeletionDiscoveryFailure", stuck, "--timeout=10s")
		return err
	})

	kubectl(t, "delete", "apiservice", apiService)
	kubectl(t, "wait", "--for=delete", stuck, "--timeout="+testutil.Patience.String())
	kubectl(t, "apply", "--filename="+filepath.Join(testutil.Root(), "dist", "install.yaml"))
	rollout(t, system, "catena")
	kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout="+testutil.Patience.String())
	eventually(t, history, resolve...)
}

// testUninstall follows docs/install.md. Sessions remain until the CRDs are deleted.
func testUninstall(t *testing.T) {
	kubectl(t, "delete", "apiservice", "v1alpha1.resolve.catena.dev")
	kubectl(t, "delete", "--filename="+filepath.Join(testutil.Root(), "dist", "gateway.yaml"), "--ignore-not-found", "--timeout="+testutil.Patience.String())
	kubectl(t, "--namespace="+system, "delete", "deployment", "catena")
	kubectl(t, "delete", "rolebindings", "-A", "--field-selector=metadata.name=catena-gateway")
	if sessions := kubectl(t, "--namespace="+tenant, "get", "responsesessions", "--output=name"); sessions == "" {
		t.Error("the sessions are gone")
	}
	kubectl(t, "delete", "namespace", tenant, "--timeout="+testutil.Patience.String())
	kubectl(t, "delete", "--filename="+filepath.Join(testutil.Root(), "dist", "install.yaml"), "--ignore-not-found", "--timeout="+testutil.Patience.String())
	kubectl(t, "create", "namespace", tenant)
	kubectl(t, "delete", "namespace", tenant, "--timeout=30s")
}

// testUpgrade installs the previous version, upgrades it while there are conversations, and goes back to the previous operator, as
// docs/install.md says.
func testUpgrade(t *testing.T) {
	apply := func(dist, file string) {
		t.Helper()
		kubectl(t, "apply", "--filename="+filepath.Join(testutil.Root(), dist, file))
	}
	const previous, current = "bin/previous/dist", "dist"
	if _, err := os.Stat(filepath.Join(testutil.Root(), previous)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no previous version: ", err)
		}
		t.Skip("there is no previous version: ", err)
	}
	apply(previous, "install.yaml")
	rollout(t, system, "catena")
	applyTemplate(t, "engine.yaml", map[string]string{"AGENT_IMAGE": image("catena-test-agent")})
	rollout(t, tenant, "engine")
	startGateway(t, previous)
	startLoad(t)
	older := kubectl(t, "--namespace="+system, "get", "deployment", "catena", "--output=jsonpath={.spec.template.spec.containers[0].image}")
	withoutLoss(t, func() {
		apply(current, "install.yaml")
		rollout(t, system, "catena")
	})
	withoutLoss(t, func() {
		apply(current, "gateway.yaml")
		rollout(t, system, "catena-gateway")
	})
	withoutLoss(t, func() {
		kubectl(t, "--namespace="+system, "set", "image", "deployment/catena", "operator="+older)
		rollout(t, system, "catena")
	})
	testEveryConversation(t)
	testUninstall(t)
}

// testChart installs the previous version's Helm chart, upgrades it while there are conversations, removes it as the chart's README says,
// and installs it again.
func testChart(t *testing.T) {
	chart, first := newestChart(t, "dist"), newestChart(t, "bin/previous/dist")
	if chart == "" {
		t.Fatal("there is no chart in dist")
	}
	if first == "" {
		first = chart
	}
	uninstall := func() {
		t.Helper()
		helm(t, "uninstall", "catena", "--namespace="+system, "--wait")
		kubectl(t, "delete", "namespace", system, "--timeout="+testutil.Patience.String())
	}
	applyTemplate(t, "engine.yaml", map[string]string{"AGENT_IMAGE": image("catena-test-agent")})
	rollout(t, tenant, "engine")
	kubectl(t, "create", "namespace", system)
	applyTemplate(t, "tenant.yaml", nil)
	helm(t, "install", "catena", first, "--namespace="+system, "--set=gateway.enabled=true", "--set=gateway.upstream.url=http://"+clusterIP(t, tenant, "engine")+":8000")
	waitForChart(t)
	rollout(t, system, "catena-gateway")
	startLoad(t)
	withoutLoss(t, func() {
		helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reset-then-reuse-values")
		rollout(t, system, "catena")
		rollout(t, system, "catena-gateway")
	})
	replaceCertificate(t, chart)
	testEveryConversation(t)
	helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reset-then-reuse-values", "--set=certificates.mode=self")
	waitForChart(t)
	serveTLS(t, chart)
	kubectl(t, "apply", "--kustomize="+filepath.Join(testutil.Root(), "config", "samples"))
	history := kubectl(t, "get", "inputitems", "resp_67ccd41be2f48190")
	uninstall()

	helm(t, "install", "catena", chart, "--namespace="+system, "--create-namespace")
	waitForChart(t)
	if diff := cmp.Diff(history, kubectl(t, "get", "inputitems", "resp_67ccd41be2f48190")); diff != "" {
		t.Errorf("history before and after another installation (-before +after):\n%s", diff)
	}
	helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reset-then-reuse-values", "--set=crds.keep=false")
	uninstall()
	if crds := kubectl(t, "get", "customresourcedefinitions", "--output=name"); strings.Contains(crds, "catena.dev") {
		t.Errorf("CRDs are left: %s", crds)
	}
	kubectl(t, "delete", "namespace", tenant, "--timeout="+testutil.Patience.String())
}

// replaceCertificate follows the chart's README: it replaces the operator's certificate by one in a Secret.
func replaceCertificate(t *testing.T, chart string) {
	t.Helper()
	dir := createCertificate(t, "catena-resolve", "own-tls")
	bundle, err := base64.StdEncoding.DecodeString(kubectl(t, "get", "apiservice", "v1alpha1.resolve.catena.dev", "--output=jsonpath={.spec.caBundle}"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), append(bundle, own...), 0o600); err != nil {
		t.Fatal(err)
	}
	withoutLoss(t, func() {
		helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reset-then-reuse-values", "--force-conflicts",
			"--set=certificates.mode=secret", "--set=certificates.secretName=own-tls", "--set-file=certificates.caBundle="+filepath.Join(dir, "ca.crt"))
		rollout(t, system, "catena")
	})
}

// serveTLS has the gateway serve TLS with a certificate in a Secret.
func serveTLS(t *testing.T, chart string) {
	t.Helper()
	dir := createCertificate(t, "catena-gateway", "gateway-tls")
	helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reset-then-reuse-values", "--set=gateway.tls.secretName=gateway-tls")
	rollout(t, system, "catena-gateway")
	output := askGateway(t, "443", "https://catena-gateway.catena-system.svc/v1/models", "--header", "Authorization: Bearer sk-for-the-test",
		"--cacert", filepath.Join(dir, "tls.crt"), "--connect-to", "::127.0.0.1:8443")
	if !strings.Contains(output, "scripted") {
		t.Errorf("the gateway responded %s", output)
	}
}

// createCertificate creates a Secret with a certificate for a Service, and returns a directory with tls.crt, which includes its CA, and tls.key.
func createCertificate(t *testing.T, service, secret string) (dir string) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(service+"."+system+".svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, "--namespace="+system, "create", "secret", "tls", secret, "--cert="+filepath.Join(dir, "tls.crt"), "--key="+filepath.Join(dir, "tls.key"))
	return dir
}

// newestChart returns the path of the newest chart in a directory of the repository, or "" if the directory has no charts.
func newestChart(t *testing.T, dist string) string {
	t.Helper()
	charts, err := filepath.Glob(filepath.Join(testutil.Root(), dist, "catena-*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if len(charts) == 0 {
		return ""
	}
	return slices.MaxFunc(charts, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
}

func waitForChart(t *testing.T) {
	t.Helper()
	rollout(t, system, "catena")
	kubectl(t, "wait", "--for=condition=Available", "apiservice/v1alpha1.resolve.catena.dev", "--timeout="+testutil.Patience.String())
}

func modified(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

func helm(t *testing.T, args ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "helm", args...).CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, output)
	}
}
