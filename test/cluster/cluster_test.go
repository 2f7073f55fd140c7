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
		{"Drain", testDrain},
		{"FillQuota", testFillQuota},
		{"RestartAPIServer", testRestartAPIServer},
		{"EveryConversation", testEveryConversation},
		{"WayOut", testWayOut},
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

// describe shows what a person would look at first, without the gateway's lines about requests that it has answered. It is no message of the
// test, of which there is one already.
func describe(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "apiservices"},
		{"--namespace=" + system, "logs", "deployment/catena", "--all-pods", "--tail=30"},
		{"--namespace=" + system, "logs", "deployment/catena-gateway", "--all-pods", "--tail=5000"},
	} {
		output, err := tryKubectl(context.WithoutCancel(t.Context()), "", args...)
		lines := slices.DeleteFunc(strings.SplitAfter(output, "\n"), func(line string) bool { return strings.Contains(line, `"msg":"request"`) })
		_, _ = fmt.Fprintf(t.Output(), "kubectl %s: %v\n%s\n", strings.Join(args, " "), err, strings.Join(lines, ""))
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
	replaced := strings.Fields(kubectl(t, "--namespace="+system, "get", "pods", "--selector=app.kubernetes.io/component=gateway", "--output=name"))
	applyTemplate(t, "tenant.yaml", nil)
	kubectl(t, "--namespace="+system, "rollout", "restart", "deployment/catena-gateway") // so that it reads the tenants at once
	rollout(t, system, "catena-gateway")
	// Those that are replaced serve for some seconds more, and do not know the tenant.
	kubectl(t, append([]string{"--namespace=" + system, "wait", "--for=delete", "--timeout=" + testutil.Patience.String()}, replaced...)...)
	startLoad(t)
	withoutLoss(t, func() {})
	testutil.Eventually(t, func(ctx context.Context) error {
		all, err := verdicts(ctx)
		if err == nil && !slices.Contains(all, "completed Resolved") {
			err = fmt.Errorf("no chain is Resolved: %q", all)
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
	underLoad(t, func() {}) // what it says first may fail: it is ready before it may read the namespace
}

// testEveryConversation resolves everything that was said, and expects verdicts of all of it. The turns of streams that the load leaves when
// it is stopped are cancelled.
func testEveryConversation(t *testing.T) {
	status, err := askLoad(t.Context(), "/check")
	if err != nil {
		t.Fatal(err)
	}
	if status.Failed.Count > 0 || status.WithID == 0 || status.Conversations == status.WithID {
		t.Errorf("of %d conversations, %d of them of the Conversations API: %s", status.Failed.Count+status.Conversations, status.WithID, status.Failed)
	}
	t.Logf("%d conversations, %d of them of the Conversations API, resolved %d times", status.Conversations, status.WithID, status.Resolves)
	kubectl(t, "--namespace="+tenant, "scale", "deployment", "load", "--replicas=0")
	testutil.Eventually(t, func(ctx context.Context) error {
		all, err := verdicts(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(all, func(v string) bool { return v == "completed Resolved" })
		if other := slices.DeleteFunc(slices.Clone(left), func(v string) bool { return v == "cancelled TurnNotCompleted" }); len(other) > 0 || len(left) > status.Streaming {
			return fmt.Errorf("verdicts that are not Resolved: %q", left)
		}
		if len(all) < status.Turns {
			return fmt.Errorf("%d sessions, want those of %d turns", len(all), status.Turns)
		}
		return nil
	})
	testutil.Eventually(t, func(ctx context.Context) error {
		all, err := conversationVerdicts(ctx)
		if err != nil {
			return err
		}
		// The load may have been stopped before the first turn of the last ones.
		left := slices.DeleteFunc(slices.Clone(all), func(v string) bool { return v == "Active Resolved" || v == "Active NoTurns" })
		if len(left) > 0 {
			return fmt.Errorf("verdicts on Conversations that are not Resolved: %q", left)
		}
		if len(all) < status.WithID {
			return fmt.Errorf("%d Conversations, want %d", len(all), status.WithID)
		}
		return nil
	})
}
