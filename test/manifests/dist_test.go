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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/catena-dev/catena/internal/testutil"
)

// dist writes what a version consists of into a directory.
func dist(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(testutil.Root(), "hack", "dist.sh"), "registry.example/catena", dir)
	command.Env = append(os.Environ(), "VERSION="+version, "COMMIT=0123456789", "SOURCE_DATE_EPOCH=1800000000")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return dir
}

// TestDist: install.yaml and the chart install the same version with the same image.
func TestDist(t *testing.T) {
	for version, chartVersion := range map[string]string{
		"v1.2.3":                      "1.2.3",
		"v1.2.3-4-g0123456789ab":      "1.2.3-4-g0123456789ab",
		"0123456789ab-dirty":          "0.0.0-g0123456789ab-dirty",
		"v1.2.3-4-g0123456789a-dirty": "1.2.3-4-g0123456789a-dirty",
	} {
		t.Run(version, func(t *testing.T) {
			dir := dist(t, version)
			manifest, err := os.ReadFile(filepath.Join(dir, "install.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			want := textByName(t, parse(t, manifest))
			delete(want, "Namespace /"+namespace)
			chart, err := loader.Load(filepath.Join(dir, "catena-"+chartVersion+".tgz"))
			if err != nil {
				t.Fatal(err)
			}
			objects, err := renderChart(t, chart, namespace, variants["gateway"].values)
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, objects, "catena", "registry.example/catena/catena:"+version)
			wantImage(t, objects, "catena-gateway", "registry.example/catena/catena-gateway:"+version)
			if chart.Metadata.Version != chartVersion {
				t.Errorf("the chart has the version %s, want %s", chart.Metadata.Version, chartVersion)
			}
			if objects, err = renderChart(t, chart, namespace, ""); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, textByName(t, objects)); diff != "" {
				t.Errorf("objects (-install.yaml +chart):\n%s", diff)
			}
		})
	}
}

func wantImage(t *testing.T, objects []*unstructured.Unstructured, name, want string) {
	t.Helper()
	if got := deploymentOf(t, objects, name).Spec.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("%s has the image %s, want %s", name, got, want)
	}
}

// TestDistIsReproducible: the same commit gives the same bytes.
func TestDistIsReproducible(t *testing.T) {
	read := func() map[string]string {
		dir, contents := dist(t, "v1.2.3"), map[string]string{}
		for _, name := range []string{"install.yaml", "gateway.yaml", "catena-1.2.3.tgz"} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			contents[name] = string(content)
		}
		return contents
	}
	if first, second := read(), read(); !cmp.Equal(first, second) {
		t.Error("two runs have written different files")
	}
}

// TestComponentsDocument: the kustomization in config/components/README.md is valid, and the document has every component.
func TestComponentsDocument(t *testing.T) {
	dir := filepath.Join(testutil.Root(), "config", "components")
	content, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(content), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(strings.ReplaceAll(block, "github.com/catena-dev/catena/", "../"), "?ref=VERSION", "")
	deployment := deploymentOf(t, build(t, block), "catena-gateway")
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "ghcr.io/catena-dev/catena-gateway:VERSION" {
		t.Errorf("the gateway has the image %s, want that of the document", image)
	}
	for _, name := range []string{"ConfigMap `" + deployment.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.ConfigMapKeyRef.Name + "`",
		"Secret `" + deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName + "`"} {
		if !strings.Contains(string(content), name) {
			t.Errorf("README.md does not have the %s", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() && !strings.Contains(string(content), "\n| `"+entry.Name()+"` |") {
			t.Errorf("README.md does not have %s", entry.Name())
		}
	}
}
