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
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/internal/testutil"
)

// values are values of the chart that variants do not have.
var values = map[string]string{
	"one of everything": `
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
imagePullSecrets: [{name: registry}]
replicas: 3
nodeSelector: {pool: catena}
tolerations: [{key: dedicated, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
podAnnotations: {a: b}
podLabels: {azure.workload.identity/use: "true"}
serviceAccount: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/catena"}}
healthPort: 9081
logLevel: DEBUG
extraArgs: [--session-quota-interval=10s, "--certificate-lifetime=720h"]
snapshotStore: {url: "s3://bucket?region=eu-central-1&prefix=a/", secretName: bucket}
rbac: {aggregate: false}
priorityAndFairness: {enabled: true}
monitoring: {enabled: true, labels: {release: prometheus}, serviceAccount: {name: prometheus, namespace: team-a}}
gateway:
  enabled: true
  image: {tag: v1}
  upstream: {url: "https://engine.example/v1", secretName: key}
  namespaces: [team-a, team-b]
  tls: {secretName: certificate}
  service: {type: LoadBalancer, annotations: {a: b}}
  nodeSelector: {pool: catena}
  podLabels: {a: b}
  serviceAccount: {annotations: {a: b}}
  logLevel: WARN
  extraArgs: [--instructions=Last]
`,
	"little": `
replicas: 1
resources: {limits: null}
priorityClassName: ""
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
crds: {install: false}
gateway: {enabled: true, upstream: {url: "http://engine"}, tenantsSecretName: "", extraArgs: [--insecure-allow-anonymous, --namespace=default]}
`,
	"certificate of a Secret": `
certificates: {mode: secret, secretName: mine, caBundle: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}
monitoring: {enabled: true}
`,
	"issuer": `
certificates: {mode: cert-manager, issuerRef: {kind: ClusterIssuer, name: company}}
monitoring: {enabled: true}
`,
	"CRDs that are deleted": `crds: {keep: false}`,
}

// allValues returns values and those of the variants.
func allValues() map[string]string {
	all := map[string]string{}
	for name, v := range variants {
		all[name] = v.values
	}
	maps.Copy(all, values)
	return all
}

// TestSameObjects: the chart and config install the same.
func TestSameObjects(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			want := textByName(t, kustomize(t, v))
			delete(want, "Namespace /"+namespace) // Helm creates it
			if diff := cmp.Diff(want, textByName(t, render(t, namespace, v.values))); diff != "" {
				t.Errorf("objects (-config +chart):\n%s", diff)
			}
		})
	}
}

// textByName returns objects as text, without what only a chart has, and with volumes in the order of their names.
func textByName(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for name, object := range byName(t, objects) {
		removeHelm(object)
		sortByName(object.Object, "spec", "template", "spec", "volumes")
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			sortByName(container.(map[string]any), "volumeMounts")
		}
		if containers != nil {
			if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
				t.Fatal(err)
			}
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

func sortByName(object map[string]any, path ...string) {
	list, found, _ := unstructured.NestedSlice(object, path...)
	if !found {
		return
	}
	name := func(item any) string { return item.(map[string]any)["name"].(string) }
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	_ = unstructured.SetNestedSlice(object, list, path...) // the path exists
}

// removeHelm removes what only a chart has.
func removeHelm(object *unstructured.Unstructured) {
	labels := object.GetLabels()
	for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"} {
		delete(labels, label)
	}
	object.SetLabels(labels)
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	if len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

// TestCertificateRights: the service account of an operator whose certificate comes from elsewhere has no rights to Secrets or to the APIService, which
// everybody may get.
func TestCertificateRights(t *testing.T) {
	const mine = `{mode: secret, secretName: mine, caBundle: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}`
	tests := map[string]struct {
		objects []*unstructured.Unstructured
		want    []string
	}{
		"self": {render(t, namespace, `certificates: {mode: self}`), []string{
			"create secrets", "get apiservices", "get secrets", "patch apiservices", "update secrets",
		}},
		"secret":       {objects: render(t, namespace, `certificates: `+mine)},
		"cert-manager": {objects: render(t, namespace, `certificates: {mode: cert-manager}`)},
		"component":    {objects: kustomize(t, variant{components: []string{"cert-manager"}})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			bound := map[string]bool{}
			for _, kind := range []string{"ClusterRoleBinding", "RoleBinding"} {
				for _, binding := range decode[rbacv1.RoleBinding](t, kind, tc.objects) { // both have the same fields
					if binding.Subjects[0].Kind == rbacv1.ServiceAccountKind {
						bound[binding.RoleRef.Kind+" "+binding.RoleRef.Name] = true
					}
				}
			}
			var got []string
			for _, kind := range []string{"ClusterRole", "Role"} {
				for _, role := range decode[rbacv1.ClusterRole](t, kind, tc.objects) {
					for _, rule := range role.Rules {
						if !bound[kind+" "+role.Name] {
							continue
						}
						for _, resource := range rule.Resources {
							if resource != "secrets" && resource != "apiservices" && resource != "*" {
								continue
							}
							for _, verb := range rule.Verbs {
								got = append(got, verb+" "+resource)
							}
						}
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespace: a release in another namespace differs only in that, even if YAML reads its name as another type.
func TestNamespace(t *testing.T) {
	for name, values := range allValues() {
		t.Run(name, func(t *testing.T) {
			want := toText(t, render(t, namespace, values))
			for _, other := range []string{"other", "123"} {
				got := toText(t, render(t, other, values))
				if diff := cmp.Diff(strings.ReplaceAll(want, namespace, other), got); diff != "" {
					t.Errorf("objects (-%s +%s):\n%s", namespace, other, diff)
				}
			}
		})
	}
}

// TestNamesAreText: names in values are strings, even if YAML reads them as another type.
func TestNamesAreText(t *testing.T) {
	const placeholder = "placeholder"
	const text = `
imagePullSecrets: [{name: "placeholder"}]
priorityClassName: "placeholder"
nodeSelector: {a: "placeholder"}
podLabels: {a: "placeholder"}
podAnnotations: {a: "placeholder"}
serviceAccount: {annotations: {a: "placeholder"}}
snapshotStore: {url: "s3://bucket", secretName: "placeholder"}
monitoring: {enabled: true, labels: {a: "placeholder"}, serviceAccount: {name: "placeholder", namespace: "placeholder"}}
gateway:
  enabled: true
  upstream: {url: "http://engine", secretName: "placeholder"}
  namespaces: ["placeholder"]
  tenantsSecretName: "placeholder"
  tls: {secretName: "placeholder"}
  service: {annotations: {a: "placeholder"}}
  priorityClassName: "placeholder"
  nodeSelector: {a: "placeholder"}
  podLabels: {a: "placeholder"}
  podAnnotations: {a: "placeholder"}
  serviceAccount: {annotations: {a: "placeholder"}}
`
	for _, certificates := range []string{
		`certificates: {mode: secret, secretName: "placeholder", caBundle: "-----BEGIN CERTIFICATE-----"}`,
		`certificates: {mode: cert-manager, issuerRef: {name: "placeholder"}}`,
	} {
		values := text + certificates
		want := toText(t, render(t, namespace, values))
		for _, name := range []string{"123", "1e3", "true", "null", "2026-01-01"} {
			got := toText(t, render(t, namespace, strings.ReplaceAll(values, placeholder, name)))
			if diff := cmp.Diff(strings.ReplaceAll(want, placeholder, name), got); diff != "" {
				t.Errorf("objects (-text +%s):\n%s", name, diff)
			}
		}
	}
}

func toText(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var text strings.Builder
	for _, object := range objects {
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	return text.String()
}

// TestLint runs what `helm lint --strict` runs.
func TestLint(t *testing.T) {
	for name, values := range allValues() {
		t.Run(name, func(t *testing.T) {
			result := lint.RunAll(filepath.Join(testutil.Root(), chartDir), parseValues(t, values), namespace)
			for _, message := range result.Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}

// TestInvalidValues: the schema rejects mistakes, and templates those that a schema cannot describe.
func TestInvalidValues(t *testing.T) {
	const pemHeader = "-----BEGIN CERTIFICATE-----"
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for name, tc := range map[string]struct{ values, wantErr string }{
		"unknown value":                 {`replica: 3`, "additional properties 'replica' not allowed"},
		"unknown value of the gateway":  {`gateway: {enable: true}`, "additional properties 'enable' not allowed"},
		"number as text":                {`replicas: "3"`, "at '/replicas': got string, want integer"},
		"gateway without an engine":     {`gateway: {enabled: true}`, "at '/gateway/upstream/url'"},
		"engine without a scheme":       {`gateway: {upstream: {url: "engine:8000"}}`, "at '/gateway/upstream/url'"},
		"certificate without a Secret":  {`certificates: {mode: secret}`, "at '/certificates/secretName'"},
		"certificate without a CA":      {`certificates: {mode: secret, secretName: a}`, "at '/certificates/caBundle'"},
		"CA that is not PEM":            {`certificates: {caBundle: LS0t}`, "at '/certificates/caBundle'"},
		"issuer without a name":         {`certificates: {issuerRef: {kind: Issuer}}`, "at '/certificates/issuerRef'"},
		"unknown mode":                  {`certificates: {mode: helm}`, "at '/certificates/mode'"},
		"digest without the algorithm":  {`image: {digest: "0123"}`, "at '/image/digest'"},
		"flag without dashes":           {`extraArgs: [max-depth=3]`, "at '/extraArgs/0'"},
		"bucket without a scheme":       {`snapshotStore: {url: bucket}`, "at '/snapshotStore/url'"},
		"bucket in a folder":            {`snapshotStore: {url: "file:///var/bucket"}`, "at '/snapshotStore/url'"},
		"label of the selector":         {`podLabels: {app.kubernetes.io/name: a}`, "at '/podLabels/app.kubernetes.io~1"},
		"label of the gateway":          {`gateway: {podLabels: {app.kubernetes.io/component: a}}`, "at '/gateway/podLabels/app.kubernetes.io~1"},
		"annotation of the chart":       {`podAnnotations: {kubectl.kubernetes.io/default-container: a}`, "at '/podAnnotations/kubectl.kubernetes.io~1"},
		"label of a component":          {`monitoring: {labels: {app.kubernetes.io/component: a}}`, "at '/monitoring/labels/app.kubernetes.io~1"},
		"label of Helm":                 {`monitoring: {labels: {app.kubernetes.io/managed-by: a}}`, "at '/monitoring/labels/app.kubernetes.io~1"},
		"kubelet's port on the network": {`hostNetwork: true`, "hostNetwork is set: port must not be 10250"},
		"kubelet's port for probes":     {`{hostNetwork: true, port: 10270, healthPort: 10250}`, "hostNetwork is set: healthPort must not be 10250"},
		"one port for both":             {`healthPort: 10250`, "port and healthPort must differ, but both are 10250"},
		"no log level":                  {`logLevel: null`, "missing property 'logLevel'"},
		"no depth":                      {`maxDepth: null`, "missing property 'maxDepth'"},
		"no port":                       {`port: null`, "missing property 'port'"},
		"no bucket":                     {`snapshotStore: null`, "missing property 'snapshotStore'"},
		"no certificate":                {`certificates: {mode: secret, secretName: null, caBundle: "` + pemHeader + `"}`, "missing property 'secretName'"},
		"no CA":                         {`certificates: {mode: secret, secretName: mine, caBundle: null}`, "missing property 'caBundle'"},
		"no engine":                     {`gateway: {enabled: true, upstream: {url: null}}`, "missing property 'url'"},
		"no TLS of the gateway":         {`gateway: {tls: null}`, "missing property 'tls'"},
		"the operator's own Secret":     {`certificates: {mode: secret, secretName: catena-resolve-tls, caBundle: "` + pemHeader + `"}`, "at '/certificates/secretName': 'not' failed"},
		"tag and digest":                {`image: {tag: v1, digest: "` + digest + `"}`, "image.tag and image.digest are both set: one of them must be empty"},
		"tag and digest of the gateway": {
			`gateway: {enabled: true, upstream: {url: "http://engine"}, image: {tag: v1, digest: "` + digest + `"}}`,
			"gateway.image.tag and gateway.image.digest are both set: one of them must be empty",
		},
		"gateway without tenants": {
			`gateway: {enabled: true, upstream: {url: "http://engine"}, tenantsSecretName: ""}`,
			"gateway.tenantsSecretName is empty: gateway.extraArgs must have --insecure-allow-anonymous",
		},
		"gateway that is not anonymous": {
			`gateway: {enabled: true, upstream: {url: "http://engine"}, tenantsSecretName: null, extraArgs: [--insecure-allow-anonymous=false]}`,
			"gateway.tenantsSecretName is empty",
		},
		"anonymous gateway without a namespace": {
			`gateway: {enabled: true, upstream: {url: "http://engine"}, tenantsSecretName: "", extraArgs: [--insecure-allow-anonymous]}`,
			"gateway.extraArgs must have --namespace=NAME",
		},
		"claims":               {`resources: {claims: [{name: gpu}]}`, "claims"},
		"a text before the CA": {`certificates: {mode: secret, secretName: mine, caBundle: "junk -----BEGIN CERTIFICATE-----"}`, "caBundle"},
		"a privileged port":    {`{hostNetwork: true, port: 443}`, "port must be at least 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tryRender(t, namespace, tc.values); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

// TestNull: the schema rejects null, with which Helm removes a value, or it means the same as an empty value.
func TestNull(t *testing.T) {
	const base = `
monitoring: {enabled: true}
gateway: {enabled: true, upstream: {url: "http://engine"}, extraArgs: [--insecure-allow-anonymous, --namespace=default]}
`
	chart, err := loader.Load(filepath.Join(testutil.Root(), chartDir))
	if err != nil {
		t.Fatal(err)
	}
	with := func(path string, value any) (map[string]string, error) {
		values := parseValues(t, base)
		if err := unstructured.SetNestedField(values, value, strings.Split(path, ".")...); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		return renderFiles(t, chart, namespace, string(text))
	}
	for _, v := range readValues(t) {
		for path := v.path; path != ""; path = path[:max(0, strings.LastIndex(path, "."))] {
			got, err := with(path, nil)
			if err != nil && strings.Contains(err.Error(), "missing property '"+path[strings.LastIndex(path, ".")+1:]+"'") {
				continue
			}
			if err != nil || path != v.path {
				t.Errorf("%s is null: error %v, want one of the schema", path, err)
				continue
			}
			want, err := with(path, empty(t, v.value))
			if err != nil {
				t.Errorf("%s is empty: %v", path, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s is null: templates (-empty +null):\n%s", path, diff)
			}
		}
	}
}

// empty returns the empty value of the type of a default. Helm adds the keys of the default to an empty object.
func empty(t *testing.T, node *kyaml.Node) any {
	t.Helper()
	var fallback any
	if err := node.Decode(&fallback); err != nil {
		t.Fatal(err)
	}
	switch fallback := fallback.(type) {
	case string:
		return ""
	case []any:
		return []any{}
	case map[string]any:
		removed := map[string]any{}
		for key := range fallback {
			removed[key] = nil
		}
		return removed
	}
	return fallback // numbers and booleans are never empty
}

// TestNotes: the notes warn of a tag that the next upgrade would keep.
func TestNotes(t *testing.T) {
	chart, err := loader.Load(filepath.Join(testutil.Root(), chartDir))
	if err != nil {
		t.Fatal(err)
	}
	for values, want := range map[string][]string{
		"":                            nil,
		"image: {tag: v1}":            {"image.tag is v1,"},
		"gateway: {image: {tag: v1}}": nil, // not installed
		"image: {tag: " + chart.Metadata.AppVersion + "}":                                                  nil,
		`{image: {tag: v1}, gateway: {enabled: true, upstream: {url: "http://engine"}, image: {tag: v2}}}`: {"gateway.image.tag is v2,", "image.tag is v1,"},
	} {
		files, err := renderFiles(t, chart, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		warnings := strings.Split(files["catena/templates/NOTES.txt"], "WARNING: ")[1:]
		if !slices.EqualFunc(warnings, want, strings.HasPrefix) {
			t.Errorf("values %q: warnings %q, want %q", values, warnings, want)
		}
	}
}

// TestNodeSelector: README.md describes how to add to the default and how to remove it.
func TestNodeSelector(t *testing.T) {
	for values, want := range map[string]map[string]string{
		"nodeSelector: {}":                                {"kubernetes.io/os": "linux"},
		"nodeSelector: {pool: a}":                         {"kubernetes.io/os": "linux", "pool": "a"},
		"nodeSelector: {kubernetes.io/os: null}":          nil,
		"nodeSelector: {kubernetes.io/os: null, pool: a}": {"pool": "a"},
	} {
		got := deploymentOf(t, render(t, namespace, values), "catena").Spec.Template.Spec.NodeSelector
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: selector (-want +got):\n%s", values, diff)
		}
	}
}

// TestCABundle: a CA may have comments before it, as those of openssl.
func TestCABundle(t *testing.T) {
	const values = `certificates: {mode: secret, secretName: mine, caBundle: "# company\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}`
	if _, err := tryRender(t, namespace, values); err != nil {
		t.Error(err)
	}
}

// TestKeep: CRDs and admission policies, and nothing else, survive the release.
func TestKeep(t *testing.T) {
	for values, want := range map[string]bool{"": true, values["CRDs that are deleted"]: false} {
		for _, object := range render(t, namespace, values) {
			belongs := slices.Contains([]string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, object.GetKind())
			if got := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"; got != (belongs && want) {
				t.Errorf("values %q: %s %s is kept: %t", values, object.GetKind(), object.GetName(), got)
			}
		}
	}
}

// TestWithoutCRDs: without crds.install, the chart leaves out exactly the CRDs and the policies that belong to them. What restricts the operator
// stays.
func TestWithoutCRDs(t *testing.T) {
	want := textByName(t, render(t, namespace, ""))
	for name := range want {
		policy := strings.HasPrefix(name, "ValidatingAdmissionPolicy") && !strings.HasSuffix(name, "/operator.sessions.catena.dev") &&
			!strings.HasSuffix(name, "/operator-secret.sessions.catena.dev")
		if policy || strings.HasPrefix(name, "CustomResourceDefinition.") {
			delete(want, name)
		}
	}
	if diff := cmp.Diff(want, textByName(t, render(t, namespace, "crds: {install: false}"))); diff != "" {
		t.Errorf("objects without crds.install (-want +got):\n%s", diff)
	}
}

// TestOwnNames: each installation in a cluster is the same one, so that a second release is rejected by Helm.
func TestOwnNames(t *testing.T) {
	for _, object := range render(t, namespace, "") {
		if strings.Contains(object.GetName(), "release") {
			t.Errorf("%s %s is named after the release", object.GetKind(), object.GetName())
		}
	}
}

// TestAggregation: without rbac.aggregate, Catena's roles are part of no other.
func TestAggregation(t *testing.T) {
	count := func(values string) (aggregated int) {
		for _, object := range render(t, namespace, values) {
			for label := range object.GetLabels() {
				if strings.Contains(label, "aggregate-to") {
					aggregated++
				}
			}
		}
		return aggregated
	}
	if got := count(""); got == 0 {
		t.Error("nothing is aggregated by default")
	}
	if got := count("rbac: {aggregate: false}"); got > 0 {
		t.Errorf("%d labels are left with rbac.aggregate=false", got)
	}
}
