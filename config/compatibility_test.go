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

package config_test

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestCompatibility: the CRDs accept everything that those of the previous version accept, so that the objects of a cluster remain valid
// when it is upgraded, and both versions can run side by side.
func TestCompatibility(t *testing.T) {
	dir := t.TempDir()
	version := testutil.CheckOutPrevious(t, dir)
	before, after := readCRDs(t, os.DirFS(filepath.Join(dir, "config"))), readCRDs(t, config.FS)
	for name, crd := range before {
		if after[name] == nil {
			t.Errorf("%s is gone since version %s", name, version)
			continue
		}
		for _, problem := range incompatibilities(crd, after[name]) {
			t.Errorf("%s, since version %s: %s", name, version, problem)
		}
	}
}

// TestIncompatibilities checks that TestCompatibility finds what it looks for.
func TestIncompatibilities(t *testing.T) {
	const name = "responsesessions.sessions.catena.dev"
	spec := func(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
		return new(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	}
	set := func(crd *apiextensionsv1.CustomResourceDefinition, spec *apiextensionsv1.JSONSchemaProps) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = *spec
	}
	change := func(property string, change func(*apiextensionsv1.JSONSchemaProps)) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) {
			s := spec(crd)
			changed := new(s.Properties[property])
			change(changed)
			s.Properties[property] = *changed
			set(crd, s)
		}
	}
	tests := map[string]struct {
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   int
	}{
		"nothing":       {change: func(*apiextensionsv1.CustomResourceDefinition) {}},
		"a description": {change: change("responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.Description = "another" })},
		"a new property": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			spec(crd).Properties["new"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}},
		"a longer value":  {change: change("responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(*s.MaxLength + 1) })},
		"a shorter value": {change: change("responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(*s.MaxLength - 1) }), want: 1},
		"a limit":         {change: change("immutable", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(int64(1)) }), want: 1},
		"a minimum":       {change: change("conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Minimum = new(1.0) }), want: 1},
		"another type":    {change: change("immutable", func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "string" }), want: 1},
		"a pattern":       {change: change("conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Pattern = "^a" }), want: 1},
		"an enum":         {change: change("conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}} }), want: 1},
		"a rule": {change: change("conversationID", func(s *apiextensionsv1.JSONSchemaProps) {
			s.XValidations = apiextensionsv1.ValidationRules{{Rule: "true"}}
		}), want: 1},
		"a required property": {change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			s := spec(crd)
			s.Required = append(slices.Clone(s.Required), "metadata")
			set(crd, s)
		}, want: 1},
		"a missing property": {change: func(crd *apiextensionsv1.CustomResourceDefinition) { delete(spec(crd).Properties, "metadata") }, want: 1},
		"a missing version":  {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false }, want: 1},
		"another scope":      {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped }, want: 1},
		"a selectable field": {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].SelectableFields = nil }, want: len(readCRDs(t, config.FS)[name].Spec.Versions[0].SelectableFields)},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			before := readCRDs(t, config.FS)[name]
			after := before.DeepCopy()
			tc.change(after)
			if got := incompatibilities(before, after); len(got) != tc.want {
				t.Errorf("got %q, want %d", got, tc.want)
			}
		})
	}
}

func readCRDs(t *testing.T, files fs.FS) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	objects, err := manifests.Read(files, "crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, object := range objects {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
			t.Fatal(err)
		}
		crds[crd.Name] = crd
	}
	return crds
}

// incompatibilities returns why objects or clients of one CRD may not work with another one.
func incompatibilities(before, after *apiextensionsv1.CustomResourceDefinition) []string {
	var problems []string
	if before.Spec.Scope != after.Spec.Scope || before.Spec.Names.Kind != after.Spec.Names.Kind {
		problems = append(problems, "the scope or the kind has changed")
	}
	for _, version := range before.Spec.Versions {
		i := slices.IndexFunc(after.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version.Name && v.Served
		})
		if i < 0 {
			problems = append(problems, version.Name+" is not served any more")
			continue
		}
		next := after.Spec.Versions[i]
		for _, field := range version.SelectableFields {
			if !slices.Contains(next.SelectableFields, field) {
				problems = append(problems, field.JSONPath+" cannot be selected any more")
			}
		}
		problems = append(problems, narrower(version.Name, version.Schema.OpenAPIV3Schema, next.Schema.OpenAPIV3Schema)...)
	}
	return problems
}

// narrower returns what one schema accepts and another one does not, as far as Catena's schemas use it.
func narrower(path string, before, after *apiextensionsv1.JSONSchemaProps) []string {
	var problems []string
	check := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, path+" "+problem)
		}
	}
	check(before.Type == after.Type, "has another type")
	check(after.Pattern == "" || before.Pattern == after.Pattern, "has another pattern")
	check(after.Format == "" || before.Format == after.Format, "has another format")
	check(!isTrue(before.XPreserveUnknownFields) || isTrue(after.XPreserveUnknownFields), "loses unknown fields")
	check(!lowered(before.MaxLength, after.MaxLength) && !lowered(before.MaxItems, after.MaxItems) && !lowered(before.MaxProperties, after.MaxProperties) &&
		!lowered(before.Maximum, after.Maximum), "has a lower maximum")
	check(!raised(before.MinLength, after.MinLength) && !raised(before.MinItems, after.MinItems) && !raised(before.MinProperties, after.MinProperties) &&
		!raised(before.Minimum, after.Minimum), "has a higher minimum")
	for _, name := range after.Required {
		check(slices.Contains(before.Required, name), "requires "+name)
	}
	for _, value := range before.Enum {
		check(len(after.Enum) == 0 || slices.ContainsFunc(after.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }),
			"does not accept "+string(value.Raw))
	}
	check(len(before.Enum) > 0 || len(after.Enum) == 0, "accepts only some values")
	for _, rule := range after.XValidations {
		check(slices.ContainsFunc(before.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }), "has a new rule: "+rule.Rule)
	}
	for name, property := range before.Properties {
		next, ok := after.Properties[name]
		if !ok {
			check(isTrue(after.XPreserveUnknownFields), "has no property "+name)
			continue
		}
		problems = append(problems, narrower(path+"."+name, &property, &next)...)
	}
	if before.Items != nil && after.Items != nil && before.Items.Schema != nil && after.Items.Schema != nil {
		problems = append(problems, narrower(path+"[]", before.Items.Schema, after.Items.Schema)...)
	}
	return problems
}

// lowered and raised report whether a limit has become stricter.
func lowered[T cmp.Ordered](before, after *T) bool {
	return after != nil && (before == nil || *after < *before)
}

func raised[T cmp.Ordered](before, after *T) bool {
	return after != nil && (before == nil || *after > *before)
}

func isTrue(value *bool) bool { return value != nil && *value }
