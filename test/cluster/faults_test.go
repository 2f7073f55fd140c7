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
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/testutil"
)

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
	withoutLossOfStreams(t, func() {
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
	withoutLoss(t, func() {
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
	withoutLoss(t, func() {
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

// testDrain drains the node of one operator and one gateway of all Pods of Catena. If no other node takes them, the PodDisruptionBudgets
// refuse to evict the second replicas until the node takes Pods again.
func testDrain(t *testing.T) {
	nodes := strings.Fields(kubectl(t, "get", "nodes", "--field-selector=spec.unschedulable=false", "--output=jsonpath={.items[*].metadata.name}"))
	uncordon := func() {
		if _, err := tryKubectl(context.WithoutCancel(t.Context()), "", append([]string{"uncordon"}, nodes...)...); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(uncordon)
	before := operators(t)
	withoutLossOfStreams(t, func() {
		var group errgroup.Group
		defer func() {
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
		}()
		var output drainOutput
		for _, node := range nodes {
			group.Go(func() error { return drain(t.Context(), node, &output) })
		}
		testutil.Eventually(t, output.refused)
		uncordon()
	})
	rollout(t, system, "catena")
	rollout(t, system, "catena-gateway")
	for _, pod := range operators(t) {
		if slices.Contains(before, pod) {
			t.Errorf("%s was not evicted", pod)
		}
	}
}

// drain evicts the Pods of Catena from a node, and waits until they are gone.
func drain(ctx context.Context, node string, output io.Writer) error {
	command := exec.CommandContext(ctx, "kubectl", "drain", node, "--pod-selector=app.kubernetes.io/name=catena", "--timeout="+testutil.Patience.String())
	command.Stdout, command.Stderr = output, output
	return command.Run()
}

// drainOutput is what several `kubectl drain` have printed.
type drainOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *drainOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// refused returns nil once the eviction of an operator and of a gateway has been refused.
func (o *drainOutput) refused(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, pod := range []string{"catena-gateway-", "catena-"} {
		refusal := regexp.MustCompile(`pods/"?` + pod + `[0-9a-f]+-[0-9a-z]+.*disruption budget`)
		if !refusal.MatchString(o.text.String()) {
			return fmt.Errorf("no eviction of %s* was refused because of the disruption budget: %s", pod, o.text.String())
		}
	}
	return nil
}

// testFillQuota fills the quota of another tenant, whom the gateway then refuses.
func testFillQuota(t *testing.T) {
	withoutLoss(t, func() {
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
		output := askGateway(t, "80", "http://127.0.0.1:8443/v1/responses", "--header", "Authorization: Bearer sk-of-the-full",
			"--header", "Content-Type: application/json", "--data", `{"model":"scripted","input":"Is there room?"}`, "--write-out", " %{http_code}")
		if !strings.Contains(output, "session.store.quota_exceeded") || !strings.HasSuffix(output, " 429") {
			t.Errorf("the gateway responded %s", output)
		}
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
