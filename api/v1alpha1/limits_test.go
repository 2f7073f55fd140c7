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

package v1alpha1_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/store"
)

// TestLimits: the limits of the CRD, whose markers cannot refer to constants, are those of package store.
func TestLimits(t *testing.T) {
	raw, err := os.ReadFile("../../config/crd/bases/sessions.catena.dev_responsesessions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	got := map[string]*int64{
		"responseID":         spec["responseID"].MaxLength,
		"previousResponseID": spec["previousResponseID"].MaxLength,
		"conversationID":     spec["conversationID"].MaxLength,
		"responseStatus":     spec["responseStatus"].MaxLength,
		"input":              spec["request"].Properties["input"].MaxItems,
		"output":             spec["response"].Properties["output"].MaxItems,
	}
	want := map[string]*int64{
		"responseID":         new(int64(store.MaxIDLength)),
		"previousResponseID": new(int64(store.MaxIDLength)),
		"conversationID":     new(int64(store.MaxIDLength)),
		"responseStatus":     new(int64(store.MaxStatusLength)),
		"input":              new(int64(v1alpha1.MaxListItems)),
		"output":             new(int64(v1alpha1.MaxListItems)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestMaxOwnerReferences: the policies, which cannot refer to the constants, have the same maximums.
func TestMaxOwnerReferences(t *testing.T) {
	objects, err := manifests.Read(config.FS, "admission")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, object := range objects {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy); err != nil {
			t.Fatal(err)
		}
		for _, variable := range policy.Spec.Variables {
			if variable.Name == "maxOwners" {
				got[policy.Name] = variable.Expression
			}
		}
	}
	want := map[string]string{
		"metadata.sessions.catena.dev": fmt.Sprintf("variables.isChunk ? %d : %d", v1alpha1.MaxChunkOwnerReferences, v1alpha1.MaxOwnerReferences),
		"operator.sessions.catena.dev": strconv.Itoa(v1alpha1.MaxOwnerReferences),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables maxOwners (-want +got):\n%s", diff)
	}
}
