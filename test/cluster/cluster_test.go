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
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil"
)

// TestInstallation installs Catena, has conversations with it while everything that may happen to it happens, and removes it. The steps
// build on each other.
func TestInstallation(t *testing.T) {
	if !*enabled {
		t.Skip("without -cluster, this test does not touch the cluster of KUBECONFIG")
	}
	steps := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Quickstart", testQuickstart},
		{"Conversations", testConversations},
		{"KillReplica", testKillReplica},
		{"KillLeader", testKillLeader},
		{"RollOut", testRollOut},
		{"RotateCertificates", testRotateCertificates},
		{"Evict", testEvict},
		{"FillQuota", testFillQuota},
		{"RestartAPIServer", testRestartAPIServer},
		{"EveryConversation", testEveryConversation},
		{"Uninstall", testUninstall},
		{"Upgrade", testUpgrade},
		{"Chart", testChart},
	}
	for _, step := range steps {
		start := time.Now()
		if !t.Run(step.name, step.run) {
			describe(t)
			t.FailNow()
		}
		t.Logf("%s took %s", step.name, time.Since(start).Round(time.Second))
	}
}

// describe logs what a person would look at first.
func describe(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "apiservices"},
		{"--namespace=" + system, "logs", "deployment/catena", "--all-pods", "--tail=30"},
		{"--namespace=" + system, "logs", "deployment/catena-gateway", "--all-pods", "--tail=5"},
	} {
		output, err := tryKubectl(context.WithoutCancel(t.Context()), "", args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// testQuickstart runs the blocks of docs/quickstart-cluster.md, with a scripted engine, and compares their outputs.
func testQuickstart(t *testing.T) {
	applyTemplate(t, "engine.yaml", map[string]string{"AGENT_IMAGE": image("catena-test-agent")})
	rollout(t, tenant, "engine")
	content, err := os.ReadFile(filepath.Join(testutil.Root(), "docs", "quickstart-cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("trap 'kill $(jobs -p)' EXIT\n")
	blocks := testutil.FencedBlocks(t, string(content))
	for _, block := range blocks {
		script.WriteString(block.Code + "printf '\\036'\n")
	}
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script.String())
	command.Dir = testutil.Root()
	command.Env = append(os.Environ(), "ENGINE=http://"+clusterIP(t, tenant, "engine")+":8000", "MODEL=scripted")
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, output, stderr.String())
	}
	for i, output := range strings.Split(strings.TrimSuffix(string(output), "\036"), "\036") {
		if diff := cmp.Diff(blocks[i].Output, output); diff != "" {
			t.Errorf("line %d (-document +run):\n%s", blocks[i].Line, diff)
		}
	}
	eventually(t, "2", "--namespace="+system, "get", "deployment", "catena", "--output=jsonpath={.status.readyReplicas}")
}

// testConversations adds another tenant to the gateway, which has conversations from now on.
func testConversations(t *testing.T) {
	applyTemplate(t, "tenant.yaml", nil)
	kubectl(t, "--namespace="+system, "rollout", "restart", "deployment/catena-gateway") // so that it reads the tenants at once
	rollout(t, system, "catena-gateway")
	startLoad(t)
	underLoad(t, func() {})
	testutil.Eventually(t, func(ctx context.Context) error {
		reasons, err := tryKubectl(ctx, "", "--namespace="+tenant, "get", "responsesessions",
			`--output=jsonpath={range .items[*]}{.status.conditions[?(@.type=="ChainValid")].reason}{"\n"}{end}`)
		if err == nil && !strings.Contains(reasons, "Resolved") {
			err = fmt.Errorf("no chain is Resolved: %s", reasons)
		}
		return err
	})
}

// startGateway starts the gateway of a version, whose manifests are in dist.
func startGateway(t *testing.T, dist string) {
	t.Helper()
	applyTemplate(t, "tenant.yaml", nil)
	kubectl(t, "--namespace="+system, "create", "configmap", "catena-gateway", "--from-literal=upstream=http://"+clusterIP(t, tenant, "engine")+":8000")
	kubectl(t, "apply", "--filename="+filepath.Join(testutil.Root(), dist, "gateway.yaml"))
	rollout(t, system, "catena-gateway")
}

// startLoad starts the client that has conversations.
func startLoad(t *testing.T) {
	t.Helper()
	applyTemplate(t, "load.yaml", map[string]string{
		"AGENT_IMAGE": image("catena-test-agent"),
		"RESOLVE_IP":  clusterIP(t, system, "catena-resolve"), "GATEWAY_IP": clusterIP(t, system, "catena-gateway"),
	})
	rollout(t, tenant, "load")
}

func testKillReplica(t *testing.T) {
	underLoad(t, func() {
		kubectl(t, "--namespace="+system, "delete", "pod", operators(t)[0], "--force", "--grace-period=0")
		kubectl(t, "--namespace="+system, "delete", "--force", "--grace-period=0", "pod", kubectl(t, "--namespace="+system, "get", "pods",
			"--selector=app.kubernetes.io/component=gateway", "--output=jsonpath={.items[0].metadata.name}"))
	})
	rollout(t, system, "catena")
	rollout(t, system, "catena-gateway")
}

func testKillLeader(t *testing.T) {
	underLoad(t, func() { kubectl(t, "--namespace="+system, "delete", "pod", leader(t), "--force", "--grace-period=0") })
	rollout(t, system, "catena")
	leader(t)
}

func testRollOut(t *testing.T) {
	underLoad(t, func() {
		kubectl(t, "--namespace="+system, "rollout", "restart", "deployment/catena")
		kubectl(t, "--namespace="+system, "rollout", "restart", "deployment/catena-gateway")
		rollout(t, system, "catena")
		rollout(t, system, "catena-gateway")
	})
}

// testRotateCertificates lets certificates live for a minute, until one that was used no longer is.
func testRotateCertificates(t *testing.T) {
	secret := []string{"--namespace=" + system, "get", "secret", "catena-resolve-tls", `--output=jsonpath={.data.tls\.crt}`}
	rotated := func(before string) (after string) {
		testutil.Eventually(t, func(ctx context.Context) (err error) {
			if after, err = tryKubectl(ctx, "", secret...); err == nil && after == before {
				err = errors.New("the certificate is the same")
			}
			return err
		})
		return after
	}
	underLoad(t, func() {
		kubectl(t, "--namespace="+system, "patch", "deployment", "catena", "--type=json", `--patch=[
			{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--certificate-lifetime=1m"},
			{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--certificate-overlap=10s"}]`)
		rollout(t, system, "catena")
		first := kubectl(t, secret...)
		kubectl(t, "--namespace="+system, "delete", "secret", "catena-resolve-tls")
		rotated(rotated(first))
	})
	eventually(t, "True", "get", "apiservice", "v1alpha1.resolve.catena.dev", `--output=jsonpath={.status.conditions[?(@.type=="Available")].status}`)
	bundle := kubectl(t, "get", "apiservice", "v1alpha1.resolve.catena.dev", "--output=jsonpath={.spec.caBundle}")
	if pem, err := base64.StdEncoding.DecodeString(bundle); err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
		t.Errorf("the caBundle is %q: %v", bundle, err)
	}
	// The one of a minute is replaced by one of 90 days.
	underLoad(t, func() {
		kubectl(t, "apply", "--filename="+filepath.Join(testutil.Root(), "dist", "install.yaml"))
		rollout(t, system, "catena")
		testutil.Eventually(t, func(ctx context.Context) error {
			value, err := tryKubectl(ctx, "", secret...)
			if err != nil {
				return err
			}
			content, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return err
			}
			block, _ := pem.Decode(content)
			if block == nil {
				return errors.New("the Secret has no certificate")
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err == nil && time.Until(certificate.NotAfter) < time.Hour {
				err = fmt.Errorf("the certificate expires at %s", certificate.NotAfter)
			}
			return err
		})
	})
}

// testEvict evicts one replica while no node takes another one. The PodDisruptionBudget then refuses the second eviction.
func testEvict(t *testing.T) {
	nodes := strings.Fields(kubectl(t, "get", "nodes", "--output=jsonpath={.items[*].metadata.name}"))
	uncordon := func() {
		if _, err := tryKubectl(context.WithoutCancel(t.Context()), "", append([]string{"uncordon"}, nodes...)...); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(uncordon)
	pods := operators(t)
	underLoad(t, func() {
		kubectl(t, append([]string{"cordon"}, nodes...)...)
		if err := evict(t, pods[0]); err != nil {
			t.Error(err)
		}
		if err := evict(t, pods[1]); err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("the second eviction: %v, want it to be refused because of the disruption budget", err)
		}
	})
	uncordon()
	rollout(t, system, "catena")
}

func evict(t *testing.T, pod string) error {
	_, err := tryKubectl(t.Context(), fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%q,"name":%q}}`, system, pod),
		"create", "--raw", "/api/v1/namespaces/"+system+"/pods/"+pod+"/eviction", "--filename=-")
	return err
}

// testFillQuota fills the quota of another tenant.
func testFillQuota(t *testing.T) {
	underLoad(t, func() {
		applyTemplate(t, "quota.yaml", nil)
		testutil.Eventually(t, func(ctx context.Context) error {
			name := fmt.Sprintf("full-%d", time.Now().UnixNano())
			_, err := tryKubectl(ctx, `{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"ResponseSession","metadata":{"name":"`+name+`"},
				"spec":{"responseID":"`+name+`","responseStatus":"completed","request":{"input":"`+strings.Repeat("a", 10_000)+`"}}}`,
				"--namespace="+tenant+"-quota", "create", "--filename=-")
			if err == nil {
				return errors.New("the quota is not exceeded")
			}
			if !strings.Contains(err.Error(), "session.store.quota_exceeded") {
				t.Fatal(err)
			}
			return nil
		})
	})
	kubectl(t, "delete", "namespace", tenant+"-quota", "--timeout="+testutil.Patience.String())
}

func testRestartAPIServer(t *testing.T) {
	if *restartAPIServer == "" {
		t.Skip("-restart-apiserver is not set")
	}
	underLoad(t, func() {
		if output, err := exec.CommandContext(t.Context(), "sh", "-c", *restartAPIServer).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", *restartAPIServer, err, output)
		}
		testutil.Eventually(t, func(ctx context.Context) error {
			_, err := tryKubectl(ctx, "", "get", "--raw", "/readyz")
			return err
		})
	})
}

// testEveryConversation resolves everything that was said, and expects verdicts of all of it.
func testEveryConversation(t *testing.T) {
	status, err := askLoad(t.Context(), "/check")
	if err != nil {
		t.Fatal(err)
	}
	if status.Failed > 0 || status.Conversations == 0 {
		t.Errorf("%d of %d conversations are not intact: %s", status.Failed, status.Failed+status.Conversations, strings.Join(status.Failures, "\n"))
	}
	t.Logf("%d conversations, resolved %d times", status.Conversations, status.Resolves)
	kubectl(t, "--namespace="+tenant, "scale", "deployment", "load", "--replicas=0")
	testutil.Eventually(t, func(ctx context.Context) error {
		reasons, err := tryKubectl(ctx, "", "--namespace="+tenant, "get", "responsesessions",
			`--output=jsonpath={range .items[*]}{.status.conditions[?(@.type=="ChainValid")].reason}{"\n"}{end}`)
		if err != nil {
			return err
		}
		if other := slices.DeleteFunc(strings.Fields(reasons), func(r string) bool { return r == "Resolved" }); len(other) > 0 {
			return fmt.Errorf("verdicts that are not Resolved: %v", other)
		}
		return nil
	})
}

// testUninstall follows docs/install.md. Sessions remain until the CRDs are deleted.
func testUninstall(t *testing.T) {
	kubectl(t, "delete", "apiservice", "v1alpha1.resolve.catena.dev")
	kubectl(t, "delete", "--filename="+filepath.Join(testutil.Root(), "dist", "gateway.yaml"), "--ignore-not-found", "--timeout="+testutil.Patience.String())
	kubectl(t, "--namespace="+system, "delete", "deployment", "catena")
	if sessions := kubectl(t, "--namespace="+tenant, "get", "responsesessions", "--output=name"); sessions == "" {
		t.Error("the sessions are gone")
	}
	kubectl(t, "delete", "namespace", tenant, "--timeout="+testutil.Patience.String())
	kubectl(t, "delete", "--filename="+filepath.Join(testutil.Root(), "dist", "install.yaml"), "--ignore-not-found", "--timeout="+testutil.Patience.String())
	kubectl(t, "create", "namespace", tenant)
	kubectl(t, "delete", "namespace", tenant, "--timeout=30s")
}

// testUpgrade installs the previous version, and upgrades it while there are conversations.
func testUpgrade(t *testing.T) {
	apply := func(dist, file string) {
		t.Helper()
		kubectl(t, "apply", "--filename="+filepath.Join(testutil.Root(), dist, file))
	}
	const previous, current = "bin/previous/dist", "dist"
	if _, err := os.Stat(filepath.Join(testutil.Root(), previous)); err != nil {
		t.Skip("there is no previous version: ", err)
	}
	apply(previous, "install.yaml")
	rollout(t, system, "catena")
	applyTemplate(t, "engine.yaml", map[string]string{"AGENT_IMAGE": image("catena-test-agent")})
	rollout(t, tenant, "engine")
	startGateway(t, previous)
	startLoad(t)
	underLoad(t, func() {
		apply(current, "install.yaml")
		rollout(t, system, "catena")
	})
	underLoad(t, func() {
		apply(current, "gateway.yaml")
		rollout(t, system, "catena-gateway")
	})
	testEveryConversation(t)
	testUninstall(t)
}

// testChart installs and removes the Helm chart as its README says.
func testChart(t *testing.T) {
	charts, err := filepath.Glob(filepath.Join(testutil.Root(), "dist", "catena-*.tgz"))
	if err != nil || len(charts) == 0 {
		t.Fatalf("there is no chart in dist: %v", err)
	}
	chart := slices.MaxFunc(charts, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
	install := func() {
		t.Helper()
		helm(t, "install", "catena", chart, "--namespace="+system, "--create-namespace")
		rollout(t, system, "catena")
		kubectl(t, "wait", "--for=condition=Available", "apiservice/v1alpha1.resolve.catena.dev", "--timeout="+testutil.Patience.String())
	}
	install()
	kubectl(t, "apply", "--kustomize="+filepath.Join(testutil.Root(), "config", "samples"))
	history := kubectl(t, "get", "inputitems", "resp_67ccd41be2f48190")

	helm(t, "uninstall", "catena", "--namespace="+system, "--wait")
	kubectl(t, "delete", "namespace", system, "--timeout="+testutil.Patience.String())
	install()
	if diff := cmp.Diff(history, kubectl(t, "get", "inputitems", "resp_67ccd41be2f48190")); diff != "" {
		t.Errorf("history before and after another installation (-before +after):\n%s", diff)
	}
	helm(t, "upgrade", "catena", chart, "--namespace="+system, "--reuse-values", "--set=crds.keep=false")
	helm(t, "uninstall", "catena", "--namespace="+system, "--wait")
	kubectl(t, "delete", "namespace", system, "--timeout="+testutil.Patience.String())
	if crds := kubectl(t, "get", "customresourcedefinitions", "--output=name"); strings.Contains(crds, "catena.dev") {
		t.Errorf("CRDs are left: %s", crds)
	}
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

// operators returns the names of the operator's Pods that are ready.
func operators(t *testing.T) []string {
	t.Helper()
	var pods []string
	testutil.Eventually(t, func(ctx context.Context) error {
		output, err := tryKubectl(ctx, "", "--namespace="+system, "get", "pods", "--selector=app.kubernetes.io/component=operator", "--field-selector=status.phase=Running",
			`--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
		if err != nil {
			return err
		}
		pods = nil
		for line := range strings.Lines(output) {
			if name, deleted, _ := strings.Cut(strings.TrimSpace(line), " "); deleted == "" {
				pods = append(pods, name)
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("these Pods run: %s", output)
		}
		return nil
	})
	return pods
}

// leader returns the name of the Pod that leads. The lease of one that was killed names it until it expires.
func leader(t *testing.T) string {
	t.Helper()
	pods, leader := operators(t), ""
	testutil.Eventually(t, func(ctx context.Context) error {
		holder, err := tryKubectl(ctx, "", "--namespace="+system, "get", "lease", "catena.sessions.catena.dev", "--output=jsonpath={.spec.holderIdentity}")
		if leader, _, _ = strings.Cut(holder, "_"); err == nil && !slices.Contains(pods, leader) {
			err = fmt.Errorf("%q leads, and these Pods run: %v", leader, pods)
		}
		return err
	})
	return leader
}
