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
	"reflect"
	"slices"
	"strings"
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
	change := func(path string, change func(*apiextensionsv1.JSONSchemaProps)) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) {
			changeProperty(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, path, change)
		}
	}
	values := func(schema *apiextensionsv1.JSONSchemaProps) func(*apiextensionsv1.CustomResourceDefinition) {
		return change("spec.metadata", func(s *apiextensionsv1.JSONSchemaProps) {
			s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: schema}
		})
	}
	scale := func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas"}
	}
	tests := map[string]struct {
		given  func(*apiextensionsv1.CustomResourceDefinition) // if any, what the earlier version has, too
		change func(*apiextensionsv1.CustomResourceDefinition)
		want   int
	}{
		"nothing":       {change: func(*apiextensionsv1.CustomResourceDefinition) {}},
		"a description": {change: change("spec.responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.Description = "another" })},
		"a new property": {change: change("spec", func(s *apiextensionsv1.JSONSchemaProps) {
			s.Properties["new"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		})},
		"a new property among unknown ones": {change: change("spec.response", func(s *apiextensionsv1.JSONSchemaProps) {
			s.Properties["new"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}), want: 1},
		"a new property of any value": {change: change("spec.response", func(s *apiextensionsv1.JSONSchemaProps) {
			s.Properties["new"] = apiextensionsv1.JSONSchemaProps{Nullable: true, XPreserveUnknownFields: new(true)}
		})},
		"a default": {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) {
			s.Default = &apiextensionsv1.JSON{Raw: []byte(`"a"`)}
		}), want: 1},
		"not": {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) {
			s.Not = &apiextensionsv1.JSONSchemaProps{Pattern: "a"}
		}), want: 1},
		"all of": {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) {
			s.AllOf = []apiextensionsv1.JSONSchemaProps{{Pattern: "a"}}
		}), want: 1},
		"another type of map": {change: change("spec.response", func(s *apiextensionsv1.JSONSchemaProps) { s.XMapType = new("granular") }), want: 1},
		"a longer value":      {change: change("spec.responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(*s.MaxLength + 1) })},
		"a shorter value":     {change: change("spec.responseID", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(*s.MaxLength - 1) }), want: 1},
		"a limit":             {change: change("spec.immutable", func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = new(int64(1)) }), want: 1},
		"a minimum":           {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Minimum = new(1.0) }), want: 1},
		"another type":        {change: change("spec.immutable", func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "string" }), want: 1},
		"a pattern":           {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Pattern = "^a" }), want: 1},
		"an enum":             {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}} }), want: 1},
		"a rule": {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) {
			s.XValidations = apiextensionsv1.ValidationRules{{Rule: "true"}}
		}), want: 1},
		"a required property": {change: change("spec", func(s *apiextensionsv1.JSONSchemaProps) { s.Required = append(s.Required, "metadata") }), want: 1},
		"a missing property":  {change: change("spec", func(s *apiextensionsv1.JSONSchemaProps) { delete(s.Properties, "metadata") }), want: 1},
		"null":                {change: change("spec.conversationID", func(s *apiextensionsv1.JSONSchemaProps) { s.Nullable = true })},
		"no null":             {change: change("spec.response.model", func(s *apiextensionsv1.JSONSchemaProps) { s.Nullable = false }), want: 1},
		"the default list":    {change: change("spec.response.output", func(s *apiextensionsv1.JSONSchemaProps) { s.XListType = nil })},
		"a set":               {change: change("spec.response.output", func(s *apiextensionsv1.JSONSchemaProps) { s.XListType = new("set") }), want: 1},
		"other keys":          {change: change("status.conditions", func(s *apiextensionsv1.JSONSchemaProps) { s.XListMapKeys = []string{"reason"} }), want: 1},
		"other values":        {given: values(&apiextensionsv1.JSONSchemaProps{Type: "string"}), change: values(&apiextensionsv1.JSONSchemaProps{Type: "string", Description: "another"})},
		"shorter values":      {given: values(&apiextensionsv1.JSONSchemaProps{Type: "string"}), change: values(&apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(1))}), want: 1},
		"some values":         {given: values(nil), change: values(&apiextensionsv1.JSONSchemaProps{Type: "string"}), want: 1},
		"any values":          {given: values(&apiextensionsv1.JSONSchemaProps{Type: "string"}), change: values(nil)},
		"no values": {given: values(nil), change: change("spec.metadata", func(s *apiextensionsv1.JSONSchemaProps) {
			s.AdditionalProperties, s.XPreserveUnknownFields = nil, nil
		}), want: 2},
		"the status": {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Subresources = nil }, want: 1},
		"a scale":    {change: scale},
		"another scale": {given: scale, change: func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Subresources.Scale.SpecReplicasPath = ".spec.size"
		}, want: 1},
		"no scale":           {given: scale, change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Subresources.Scale = nil }, want: 1},
		"a missing version":  {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false }, want: 1},
		"another scope":      {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped }, want: 1},
		"a selectable field": {change: func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].SelectableFields = nil }, want: len(readCRDs(t, config.FS)[name].Spec.Versions[0].SelectableFields)},
	}
	for title, tc := range tests {
		t.Run(title, func(t *testing.T) {
			before := readCRDs(t, config.FS)[name]
			if tc.given != nil {
				tc.given(before)
			}
			after := before.DeepCopy()
			tc.change(after)
			if got := incompatibilities(before, after); len(got) != tc.want {
				t.Errorf("got %q, want %d", got, tc.want)
			}
		})
	}
}

// changeProperty changes the property of a schema with a path such as spec.metadata.
func changeProperty(schema *apiextensionsv1.JSONSchemaProps, path string, change func(*apiextensionsv1.JSONSchemaProps)) {
	name, rest, nested := strings.Cut(path, ".")
	property := schema.Properties[name]
	if nested {
		changeProperty(&property, rest, change)
	} else {
		change(&property)
	}
	schema.Properties[name] = property
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
		was, is := cmp.Or(version.Subresources, &apiextensionsv1.CustomResourceSubresources{}), cmp.Or(next.Subresources, &apiextensionsv1.CustomResourceSubresources{})
		if was.Status != nil && is.Status == nil {
			problems = append(problems, version.Name+" has no subresource status any more")
		}
		if was.Scale != nil && !reflect.DeepEqual(was.Scale, is.Scale) {
			problems = append(problems, version.Name+" has another subresource scale, or none")
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
	check(!before.Nullable || after.Nullable, "does not accept null any more")
	check(listType(before) == listType(after) && slices.Equal(before.XListMapKeys, after.XListMapKeys), "is another type of list, or has other keys")
	check(!isTrue(before.XPreserveUnknownFields) || isTrue(after.XPreserveUnknownFields), "loses unknown fields")
	check(reflect.DeepEqual(before.XMapType, after.XMapType), "is another type of map")
	check(reflect.DeepEqual(before.Default, after.Default), "has another default")
	check(after.Not == nil || reflect.DeepEqual(before.Not, after.Not), "has another not")
	for word, lists := range map[string][2][]apiextensionsv1.JSONSchemaProps{
		"allOf": {before.AllOf, after.AllOf}, "anyOf": {before.AnyOf, after.AnyOf}, "oneOf": {before.OneOf, after.OneOf},
	} {
		check(len(lists[1]) == 0 || reflect.DeepEqual(lists[0], lists[1]), "has another "+word)
	}
	for name, property := range after.Properties {
		if _, ok := before.Properties[name]; !ok { // what unknown fields were, can be anything
			check(!isTrue(before.XPreserveUnknownFields) && before.AdditionalProperties == nil || isAny(&property), "restricts "+name)
		}
	}
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
	if is := after.AdditionalProperties; is != nil && is.Schema != nil {
		check(before.AdditionalProperties != nil || !isTrue(before.XPreserveUnknownFields), "restricts unknown fields")
	}
	if was, is := before.AdditionalProperties, after.AdditionalProperties; was != nil && (was.Allows || was.Schema != nil) {
		switch {
		case is == nil || !is.Allows && is.Schema == nil:
			check(isTrue(after.XPreserveUnknownFields), "accepts no further properties any more")
		case is.Schema != nil && was.Schema == nil:
			check(false, "restricts further properties")
		case is.Schema != nil:
			problems = append(problems, narrower(path+".*", was.Schema, is.Schema)...)
		}
	}
	return problems
}

// isAny reports whether a schema accepts every value.
func isAny(schema *apiextensionsv1.JSONSchemaProps) bool {
	return reflect.DeepEqual(schema, &apiextensionsv1.JSONSchemaProps{
		Description: schema.Description, Nullable: true, XPreserveUnknownFields: schema.XPreserveUnknownFields,
	}) && isTrue(schema.XPreserveUnknownFields)
}

// listType returns the type of a list, which is atomic by default.
func listType(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.XListType == nil {
		return "atomic"
	}
	return *schema.XListType
}

// lowered and raised report whether a limit has become stricter.
func lowered[T cmp.Ordered](before, after *T) bool {
	return after != nil && (before == nil || *after < *before)
}

func raised[T cmp.Ordered](before, after *T) bool {
	return after != nil && (before == nil || *after > *before)
}

func isTrue(value *bool) bool { return value != nil && *value }
