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

package controllers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestCRDPreservesJSON: the JSON of a turn is read back as equal JSON, including undeclared fields and nulls.
func TestCRDPreservesJSON(t *testing.T) {
	const (
		request = `{"input":[{"content":[{"text":"hi","x":null}],"role":"user","x_item":{"a":[1,2.5,null]}}],` +
			`"instructions":null,"model":null,"tools":[{"a":null,"parameters":{"properties":{}}}],"x_vendor":{"deep":[{"er":true}]}}`
		response = `{"error":null,"id":null,"output":[{"id":"fc_1","type":"x_unknown","x":null}],"usage":{"x":0},"y":null}`
		empty    = `{"output":null}`
		metadata = `{"a":{"b":null}}`
	)
	ns := env.NewNamespace(t)
	a, b := turn(ns, "a"), turn(ns, "b")
	a.Spec.Request, a.Spec.Response = &runtime.RawExtension{Raw: []byte(request)}, &runtime.RawExtension{Raw: []byte(response)}
	a.Spec.Metadata = &runtime.RawExtension{Raw: []byte(metadata)}
	b.Spec.Request, b.Spec.Response = nil, &runtime.RawExtension{Raw: []byte(empty)}
	create(t, a, b)
	spec := get(t, ns, "a").Spec
	got := []string{string(spec.Request.Raw), string(spec.Response.Raw), string(spec.Metadata.Raw), string(get(t, ns, "b").Spec.Response.Raw)}
	if diff := cmp.Diff([]string{request, response, metadata, empty}, got); diff != "" {
		t.Errorf("stored JSON (-want +got):\n%s", diff)
	}
	if stored := get(t, ns, "b").Spec; stored.Request != nil || stored.Metadata != nil {
		t.Errorf("fields that were not set are present: %+v", stored)
	}
}

// TestCRDTooLarge: a turn that does not fit into one object is refused, and no part of it is stored. The message
// comes from whichever component notices first: etcd, the API server's etcd client, or the API server.
func TestCRDTooLarge(t *testing.T) {
	ns := env.NewNamespace(t)
	tests := map[string]struct {
		size     int
		wantCode int32
		wantErr  string
	}{
		"1.6 MiB": {1600 << 10, 500, "etcdserver: request is too large"},
		"2 MiB":   {2 << 20, 500, "trying to send message larger than max"},
		"4 MiB":   {4 << 20, 413, "Request entity too large: limit is 3145728"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			large := turn(ns, "large")
			large.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":"` + strings.Repeat("a", tc.size) + `"}`)}
			err := env.Client.Create(t.Context(), large)
			status := apierrors.APIStatus(nil)
			if !errors.As(err, &status) || status.Status().Code != tc.wantCode || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %d %q", err, tc.wantCode, tc.wantErr)
			}
			if ids := responseIDs(t, client.InNamespace(ns)); len(ids) > 0 {
				t.Errorf("stored sessions: %v, want none", ids)
			}
		})
	}

	fits := turn(ns, "fits")
	fits.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"input":"` + strings.Repeat("a", 1<<20) + `"}`)}
	create(t, fits)
	wantVerdicts(t, ns, map[string]verdict{"fits": resolved(1, "fits")})
	remove(t, ns, "fits") // otherwise later tests list it
}

// TestCRDManagedFields: the bodies are atomic for server-side apply, so that managedFields stay small.
func TestCRDManagedFields(t *testing.T) {
	ns := env.NewNamespace(t)
	var items []any
	for i := range 500 {
		items = append(items, map[string]any{"type": "message", "role": "user", "content": []any{
			map[string]any{"type": "input_text", "text": fmt.Sprintf("message %d", i)},
		}})
	}
	spec := specWith(t, "resp_1", `{}`)
	spec["request"] = map[string]any{"input": items, "x_unknown": map[string]any{"a": map[string]any{"b": "c"}}}
	spec["response"] = map[string]any{"output": items}
	spec["metadata"] = map[string]any{"a": map[string]any{"b": "c"}}
	object := unstructuredTurn(ns, "resp.1", spec)
	if err := env.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("gateway")); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(object.GetManagedFields())
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 || len(data) >= 1024 {
		t.Errorf("managedFields has %d bytes, want fewer than 1024: %s", len(data), data)
	}
	wantVerdicts(t, ns, map[string]verdict{"resp_1": resolved(1, "resp_1")})
	if data, err = json.Marshal(get(t, ns, "resp_1").ManagedFields); err != nil {
		t.Fatal(err)
	}
	if len(data) >= 1024 {
		t.Errorf("with the status, managedFields has %d bytes, want fewer than 1024: %s", len(data), data)
	}
}

func TestCRDFieldSelectors(t *testing.T) {
	ns := env.NewNamespace(t)
	a, b, c := turn(ns, "a"), turn(ns, "b", "a"), turn(ns, "c", "b")
	a.Spec.ConversationID, b.Spec.ConversationID = "one", "one"
	c.Spec.ResponseStatus = v1alpha1.ResponseStatusFailed
	create(t, a, b, c, turn(ns, "d"))
	settle(t, ns)
	tests := map[string]struct {
		selector client.MatchingFields
		want     []string
	}{
		"spec.responseID":         {client.MatchingFields{"spec.responseID": "b"}, []string{"b"}},
		"spec.previousResponseID": {client.MatchingFields{"spec.previousResponseID": "b"}, []string{"c"}},
		"no parent":               {client.MatchingFields{"spec.previousResponseID": ""}, []string{"a", "d"}},
		"spec.conversationID":     {client.MatchingFields{"spec.conversationID": "one"}, []string{"a", "b"}},
		"spec.responseStatus":     {client.MatchingFields{"spec.responseStatus": "failed"}, []string{"c"}},
		"status.rootResponseID":   {client.MatchingFields{"status.rootResponseID": "a"}, []string{"a", "b", "c"}},
		"two fields":              {client.MatchingFields{"status.rootResponseID": "a", "spec.conversationID": "one"}, []string{"a", "b"}},
		"no match":                {client.MatchingFields{"spec.responseID": "z"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, responseIDs(t, client.InNamespace(ns), tc.selector)); diff != "" {
				t.Errorf("sessions (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("unsupported field", func(t *testing.T) {
		err := env.Client.List(t.Context(), &v1alpha1.ResponseSessionList{}, client.MatchingFields{"spec.immutable": "true"})
		if err == nil || !strings.Contains(err.Error(), "field label not supported: spec.immutable") {
			t.Errorf("got %v, want an error about an unsupported field label", err)
		}
	})
}

func TestCRDDiscovery(t *testing.T) {
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(env.Config).ServerResourcesForGroupVersion("sessions.catena.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range resources.APIResources {
		if resource.Name != "responsesessions" {
			continue
		}
		want := metav1.APIResource{
			Name: "responsesessions", SingularName: "responsesession", Kind: "ResponseSession", Namespaced: true,
			ShortNames: []string{"rsess"}, Categories: []string{"catena"},
			Verbs: resource.Verbs, StorageVersionHash: resource.StorageVersionHash,
		}
		if diff := cmp.Diff(want, resource); diff != "" {
			t.Errorf("resource (-want +got):\n%s", diff)
		}
		return
	}
	t.Errorf("responsesessions are not served: %+v", resources.APIResources)
}

// TestCRDTable pins the columns of `kubectl get`, and the columns of priority 1, which `-o wide` adds.
func TestCRDTable(t *testing.T) {
	ns := env.NewNamespace(t)
	makeTurn := func(id, previous, request string) testsession.Builder {
		return testsession.Make(ns, id).After(previous).Request(request).Response(`{"output":[]}`)
	}
	first := makeTurn("resp_1", "", `{"model":"gpt-5.2","input":"hello"}`).Obj()
	first.Spec.ConversationID = "conv_1"
	create(t, first,
		makeTurn("resp_2", "resp_1", `{"input":"hello"}`).Status(v1alpha1.ResponseStatusFailed).Obj(),
		makeTurn("resp_3", "resp_0", `{"input":"hello"}`).Obj())
	settle(t, ns)

	c, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Get().Namespace(ns).Resource(kubeclient.Sessions).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	mustUnmarshal(t, string(data), table)
	var columns, wide []string
	age := -1
	for i, column := range table.ColumnDefinitions {
		switch column.Priority {
		case 0:
			columns = append(columns, column.Name)
		default:
			wide = append(wide, column.Name)
		}
		if column.Name == "Age" {
			age = i
		}
	}
	if diff := cmp.Diff([]string{"Name", "Previous", "Status", "Chain", "Depth", "Model", "Age"}, columns); diff != "" {
		t.Fatalf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Conversation", "Root", "Broken-At", "Stored", "Bytes"}, wide); diff != "" {
		t.Errorf("further columns of -o wide (-want +got):\n%s", diff)
	}
	var rows [][]any
	for _, row := range table.Rows {
		if row.Cells[age] == "" {
			t.Error("a row has no age")
		}
		row.Cells[age] = "age"
		rows = append(rows, row.Cells)
	}
	want := [][]any{
		{"resp.1", nil, "completed", "Resolved", 1.0, "gpt-5.2", "age", "conv_1", "resp_1", nil, "Inline", 48.0},
		{"resp.2", "resp_1", "failed", "TurnNotCompleted", 2.0, nil, "age", nil, "resp_1", "resp_2", "Inline", 30.0},
		{"resp.3", "resp_0", "completed", "ParentNotFound", nil, nil, "age", nil, nil, "resp_0", "Inline", 30.0},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
