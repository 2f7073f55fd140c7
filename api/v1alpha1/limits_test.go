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
	"strings"
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
	"github.com/catena-dev/catena/store/driver"
)

// specSchema returns the schema of the spec of a resource.
func specSchema(t *testing.T, resource string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	raw, err := os.ReadFile("../../config/crd/bases/sessions.catena.dev_" + resource + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(raw, crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// TestLimits: the limits of the CRD, whose markers cannot refer to constants, are those of package store.
func TestLimits(t *testing.T) {
	spec := specSchema(t, "responsesessions").Properties
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

// TestConversationLimits is TestLimits for conversations and their summaries, whose limits are those of package driver.
func TestConversationLimits(t *testing.T) {
	spec, summary := specSchema(t, "conversations").Properties, specSchema(t, "conversationsummaries").Properties
	fork, reservation := spec["forkedFrom"].Properties, spec["reservation"].Properties["durationSeconds"]
	got := map[string]*int64{
		"conversationID":            spec["conversationID"].MaxLength,
		"userID":                    spec["userID"].MaxLength,
		"title":                     spec["title"].MaxLength,
		"systemPrompt":              spec["systemPrompt"].MaxLength,
		"headResponseID":            spec["headResponseID"].MaxLength,
		"baseResponseID":            spec["baseResponseID"].MaxLength,
		"forkedFrom.conversationID": fork["conversationID"].MaxLength,
		"forkedFrom.responseID":     fork["responseID"].MaxLength,
		"parentConversationID":      spec["parentConversationID"].MaxLength,
		"hiddenItems":               spec["hiddenItems"].MaxItems,
		"summaries":                 spec["summaries"].MaxItems,
		"summary.conversationID":    summary["conversationID"].MaxLength,
		"summary.content":           summary["content"].MaxLength,
		"shortest reservation":      new(int64(*reservation.Minimum)),
		"longest reservation":       new(int64(*reservation.Maximum)),
	}
	want := map[string]*int64{
		"conversationID":            new(int64(driver.MaxIDLength)),
		"userID":                    new(int64(driver.MaxUserIDLength)),
		"title":                     new(int64(driver.MaxTitleLength)),
		"systemPrompt":              new(int64(driver.MaxSystemPromptLength)),
		"headResponseID":            new(int64(driver.MaxIDLength)),
		"baseResponseID":            new(int64(driver.MaxIDLength)),
		"forkedFrom.conversationID": new(int64(driver.MaxIDLength)),
		"forkedFrom.responseID":     new(int64(driver.MaxIDLength)),
		"parentConversationID":      new(int64(driver.MaxIDLength)),
		"hiddenItems":               new(int64(driver.MaxHiddenItems)),
		"summaries":                 new(int64(driver.MaxSummaries)),
		"summary.conversationID":    new(int64(driver.MaxIDLength)),
		"summary.content":           new(int64(driver.MaxSummaryLength)),
		"shortest reservation":      new(int64(driver.MinReservation.Seconds())),
		"longest reservation":       new(int64(driver.MaxReservation.Seconds())),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConversationStates: the states of the CRD, of this package and of package driver are the same.
func TestConversationStates(t *testing.T) {
	state := specSchema(t, "conversations").Properties["state"]
	var got []string
	for _, value := range append([]apiextensionsv1.JSON{*state.Default}, state.Enum...) {
		got = append(got, strings.Trim(string(value.Raw), `"`))
	}
	for name, want := range map[string][]string{
		"this package": {
			v1alpha1.ConversationStateActive,
			v1alpha1.ConversationStateActive, v1alpha1.ConversationStateArchived, v1alpha1.ConversationStateDeleting,
		},
		"package driver": {
			driver.ConversationActive,
			driver.ConversationActive, driver.ConversationArchived, driver.ConversationDeleting,
		},
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the default and the states of %s (-want +got):\n%s", name, diff)
		}
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
