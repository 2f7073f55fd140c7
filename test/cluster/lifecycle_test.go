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
