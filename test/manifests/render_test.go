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
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/internal/testutil"
)

const (
	chartDir = "charts/catena"
	// namespace is that of config, and of the chart's release.
	namespace = "catena-system"
)

// variant is an installation by both means.
type variant struct {
	components []string // of config/components
	patches    string   // of the user's own kustomization
	values     string   // of the chart
}

// upstream sets the URL of the engine, as config/components/README.md describes.
const upstream = `
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: catena-gateway, namespace: catena-system}
    spec: {template: {spec: {containers: [{name: gateway, env: [{name: UPSTREAM, valueFrom: null, value: "http://engine.models:8000"}]}]}}}
`

var variants = map[string]variant{
	"default": {},
	"gateway": {
		components: []string{"gateway"},
		patches:    upstream,
		values:     `gateway: {enabled: true, upstream: {url: "http://engine.models:8000"}}`,
	},
	"gateway with TLS and a key": {
		components: []string{"gateway", "gateway-upstream-key", "gateway-tls"},
		patches:    upstream,
		values: `gateway: {enabled: true, upstream: {url: "http://engine.models:8000", secretName: catena-gateway-upstream},
			tls: {secretName: catena-gateway-tls}}`,
	},
	"cert-manager": {components: []string{"cert-manager"}, values: `certificates: {mode: cert-manager}`},
	"monitoring":   {components: []string{"monitoring"}, values: `monitoring: {enabled: true}`},
	"monitoring of a gateway": {
		components: []string{"gateway", "monitoring"},
		patches:    upstream,
		values:     `{gateway: {enabled: true, upstream: {url: "http://engine.models:8000"}}, monitoring: {enabled: true}}`,
	},
	"monitoring with cert-manager": {
		components: []string{"monitoring", "cert-manager"},
		values:     `{certificates: {mode: cert-manager}, monitoring: {enabled: true}}`,
	},
	"priority and fairness": {components: []string{"priority-and-fairness"}, values: `priorityAndFairness: {enabled: true}`},
	"host network":          {components: []string{"host-network"}, values: `{hostNetwork: true, port: 10270}`},
}

// kustomize builds config/default with components and patches.
func kustomize(t *testing.T, v variant) []*unstructured.Unstructured {
	t.Helper()
	return build(t, kustomization(v))
}

func kustomization(v variant) string {
	components := make([]string, len(v.components))
	for i, component := range v.components {
		components[i] = "../config/components/" + component
	}
	return fmt.Sprintf("resources: [../config/default]\ncomponents: [%s]\npatches: %s", strings.Join(components, ", "), v.patches)
}

// build builds a kustomization whose references to ../config lead to the repository.
func build(t *testing.T, kustomization string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := tryBuild(t, kustomization)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func tryBuild(t *testing.T, kustomization string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(dir, filepath.Join(testutil.Root(), "config"))
	if err != nil {
		t.Fatal(err)
	}
	content := strings.ReplaceAll(kustomization, "../config/", filepath.ToSlash(config)+"/")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	manifest, err := resources.AsYaml()
	if err != nil {
		return nil, err
	}
	return parse(t, manifest), nil
}

// parseValues parses values of the chart.
func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// render renders the chart with values as a release in a namespace.
func render(t *testing.T, namespace, values string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := tryRender(t, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func tryRender(t *testing.T, namespace, values string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	chart, err := loader.Load(filepath.Join(testutil.Root(), chartDir))
	if err != nil {
		t.Fatal(err)
	}
	return renderChart(t, chart, namespace, values)
}

func renderChart(t *testing.T, chart *chart.Chart, namespace, values string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	files, err := renderFiles(t, chart, namespace, values)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(file) == ".yaml" {
			objects = append(objects, parse(t, []byte(files[file]))...)
		}
	}
	return objects, nil
}

// renderFiles returns what each template of a chart renders.
func renderFiles(t *testing.T, chart *chart.Chart, namespace, values string) (map[string]string, error) {
	t.Helper()
	release := common.ReleaseOptions{Name: "release", Namespace: namespace, Revision: 1, IsInstall: true}
	context, err := util.ToRenderValues(chart, parseValues(t, values), release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, context)
}

// parse parses the objects of a manifest strictly.
func parse(t *testing.T, manifest []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(manifest)))
	buffer := make([]byte, 1<<20)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(buffer[:n], &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, buffer[:n])
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// byName returns objects by kind, namespace and name, which must be unique.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	named := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		name := fmt.Sprintf("%s %s/%s", object.GroupVersionKind().GroupKind(), object.GetNamespace(), object.GetName())
		if named[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		named[name] = object
	}
	return named
}
