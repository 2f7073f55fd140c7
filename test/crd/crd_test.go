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

// Package crd_test holds the rules of the ResponseSession CRD against a real API server: what it accepts, what it
// refuses, and with which words.
package crd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
)

func TestResponseSessionCRD(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	env, err := testenv.Start(ctx, testenv.Options{UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("create", func(t *testing.T) { testCreate(t, env.Client) })
	t.Run("name", func(t *testing.T) { testNames(t, env.Client) })
	t.Run("update", func(t *testing.T) { testUpdate(t, env.Client) })
	t.Run("null", func(t *testing.T) { testNullKept(t, env.Client) })
}

func testCreate(t *testing.T, c client.Client) {
	long := strings.Repeat("a", 600)
	cases := map[string]struct {
		spec    string // JSON, laid over a valid spec
		wantErr string // part of the message; empty: accepted
	}{
		"minimal":                             {spec: `{}`},
		"responseID is missing":               {spec: `{"responseID": null}`, wantErr: "spec.responseID: Required value"},
		"responseID is empty":                 {spec: `{"responseID": ""}`, wantErr: "spec.responseID in body should be at least 1 chars long"},
		"responseID is too long":              {spec: `{"responseID": "` + long + `"}`, wantErr: "may not be more than 512"},
		"responseID has a slash":              {spec: `{"responseID": "resp/a"}`},
		"responseID has other letters":        {spec: `{"responseID": "antwort-é-日本"}`},
		"responseID has newlines":             {spec: `{"responseID": "a\nb"}`},
		"responseID has 512 characters":       {spec: `{"responseID": "` + long[:512] + `"}`},
		"responseStatus is missing":           {spec: `{"responseStatus": null}`, wantErr: "spec.responseStatus: Required value"},
		"responseStatus is unknown":           {spec: `{"responseStatus": "paused_by_moon"}`},
		"previousResponseID is the session's": {spec: `{"responseID": "resp_a", "previousResponseID": "resp_a"}`, wantErr: "must not be the session's own"},
		"previousResponseID is another":       {spec: `{"responseID": "resp_a2", "previousResponseID": "resp_a"}`},
		"previousResponseID is empty":         {spec: `{"previousResponseID": ""}`, wantErr: "spec.previousResponseID in body should be at least 1 chars long"},
		"previousResponseID is too long":      {spec: `{"previousResponseID": "` + long + `"}`, wantErr: "may not be more than 512"},
		"conversationID is too long":          {spec: `{"conversationID": "` + long + `"}`, wantErr: "may not be more than 512"},
		"createdAt is no time":                {spec: `{"createdAt": "yesterday"}`, wantErr: "spec.createdAt"},
		"createdAt is a time":                 {spec: `{"createdAt": "2026-11-20T10:00:00Z"}`},
		"request is a string":                 {spec: `{"request": "hello"}`, wantErr: `spec.request in body must be of type object: "string"`},
		"request is a list":                   {spec: `{"request": []}`, wantErr: `spec.request in body must be of type object: "array"`},
		"request is empty":                    {spec: `{"request": {}}`},
		"request keeps unknown fields":        {spec: `{"request": {"x_vendor": {"a": [1, "b", null]}}}`},
		"request.input is a string":           {spec: `{"request": {"input": "hello"}}`},
		"request.input is null":               {spec: `{"request": {"input": null}}`},
		"request.input is a list of objects":  {spec: `{"request": {"input": [{"role": "user", "content": "hello"}]}}`},
		"request.input is an empty list":      {spec: `{"request": {"input": []}}`},
		"request.input is a list with a string": {
			spec:    `{"request": {"input": [{"role": "user", "content": "hello"}, "hello"]}}`,
			wantErr: `spec.request.input[1] in body must be of type object: "string"`,
		},
		"request.input is a list with null": {
			spec:    `{"request": {"input": [null]}}`,
			wantErr: `spec.request.input[0] in body must be of type object: "null"`,
		},
		"request has nulls everywhere":         {spec: `{"request": {"instructions": null, "model": null, "tools": null, "tool_choice": null, "reasoning": null}}`},
		"request.instructions is a list":       {spec: `{"request": {"instructions": [{"role": "system"}]}}`},
		"response is a number":                 {spec: `{"response": 1}`, wantErr: `spec.response in body must be of type object: "integer"`},
		"response.output is a string":          {spec: `{"response": {"output": "hello"}}`, wantErr: `spec.response.output in body must be of type array: "string"`},
		"response.output is an object":         {spec: `{"response": {"output": {}}}`, wantErr: `spec.response.output in body must be of type array: "object"`},
		"response.output is null":              {spec: `{"response": {"output": null}}`},
		"response.output is a list":            {spec: `{"response": {"output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]}}`},
		"response.output is a list of strings": {spec: `{"response": {"output": ["hi"]}}`, wantErr: `spec.response.output[0] in body must be of type object: "string"`},
		"response has nulls everywhere":        {spec: `{"response": {"id": null, "output_text": null, "usage": null, "error": null, "incomplete_details": null, "status": null}}`},
		"metadata is a string":                 {spec: `{"metadata": "a"}`, wantErr: `spec.metadata in body must be of type object: "string"`},
		"metadata is an object":                {spec: `{"metadata": {"a": {"b": 1.5}}}`},
		"immutable is a string":                {spec: `{"immutable": "true"}`, wantErr: `spec.immutable in body must be of type boolean: "string"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{"responseID": "resp_" + idFor(name), "responseStatus": "completed"}
			mustUnmarshal(t, tc.spec, &spec)
			for key, value := range spec {
				if value == nil {
					delete(spec, key)
				}
			}
			id, _ := spec["responseID"].(string)
			wantResult(t, c.Create(t.Context(), session(v1alpha1.ObjectName(id), spec)), tc.wantErr)
		})
	}
}

func testNames(t *testing.T, c client.Client) {
	const mustDerive = "`metadata.name` must be derived from `spec.responseID`"
	plain := strings.Repeat("a", 250)
	cases := map[string]struct{ id, name, wantErr string }{
		"underscore becomes dot":          {id: "resp_67cc", name: "resp.67cc"},
		"a UUID stays itself":             {id: "6f8e4b1c-0d8e-4c89-b3c1-1f6d9d9a3f10", name: "6f8e4b1c-0d8e-4c89-b3c1-1f6d9d9a3f10"},
		"another name":                    {id: "resp_67cd", name: "resp.67ce", wantErr: mustDerive},
		"hashed without need":             {id: "resp_67cd", name: v1alpha1.ObjectName("resp/67cd"), wantErr: mustDerive},
		"upper case is hashed":            {id: "resp_67CC", name: v1alpha1.ObjectName("resp_67CC")},
		"upper case is not lowered":       {id: "resp_67CE", name: "resp.67ce", wantErr: mustDerive},
		"dot is hashed":                   {id: "resp.67cc", name: v1alpha1.ObjectName("resp.67cc")},
		"dot is not kept":                 {id: "resp.67cf", name: "resp.67cf", wantErr: mustDerive},
		"sha256_ is hashed":               {id: "sha256_" + plain[:52], name: v1alpha1.ObjectName("sha256_" + plain[:52])},
		"sha256_ is not kept":             {id: "sha256_" + plain[:51] + "b", name: "sha256." + plain[:51] + "bb", wantErr: mustDerive},
		"double underscore is hashed":     {id: "a__b", name: v1alpha1.ObjectName("a__b")},
		"trailing underscore is hashed":   {id: "ab_", name: v1alpha1.ObjectName("ab_")},
		"253 characters stay":             {id: plain + "_bc", name: plain + ".bc"},
		"254 characters are hashed":       {id: plain + "_bcd", name: v1alpha1.ObjectName(plain + "_bcd")},
		"trailing newline is hashed":      {id: "resp_68\n", name: v1alpha1.ObjectName("resp_68\n")},
		"trailing newline is not dropped": {id: "resp_69\n", name: "resp.69", wantErr: mustDerive},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{"responseID": tc.id, "responseStatus": "completed"}
			wantResult(t, c.Create(t.Context(), session(tc.name, spec)), tc.wantErr)
		})
	}
}

func testUpdate(t *testing.T, c client.Client) {
	cases := map[string]struct{ before, after, wantErr string }{
		"status and response change": {
			before: `{"responseStatus": "in_progress"}`,
			after:  `{"responseStatus": "completed", "response": {"output": []}}`,
		},
		"responseID changes":         {after: `{"responseID": "resp_other"}`, wantErr: "`responseID` must not change"},
		"previousResponseID changes": {before: `{"previousResponseID": "a"}`, after: `{"previousResponseID": "b"}`, wantErr: "`previousResponseID` must not change"},
		"previousResponseID is added": {
			after: `{"previousResponseID": "b"}`, wantErr: "`previousResponseID` must not change",
		},
		"previousResponseID is removed": {
			before: `{"previousResponseID": "a"}`, after: `{"previousResponseID": null}`, wantErr: "`previousResponseID` must not change",
		},
		"immutable is set":                   {after: `{"immutable": true}`},
		"immutable false changes":            {before: `{"immutable": false}`, after: `{"responseStatus": "failed"}`},
		"immutable is unset":                 {before: `{"immutable": true}`, after: `{"immutable": false}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable is removed":               {before: `{"immutable": true}`, after: `{"immutable": null}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, status changes":          {before: `{"immutable": true}`, after: `{"responseStatus": "failed"}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, declared field changes":  {before: `{"immutable": true, "response": {"output": [{"a": 1}]}}`, after: `{"response": {"output": [{"a": 2}]}}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, unknown field changes":   {before: `{"immutable": true, "request": {"x": 1}}`, after: `{"request": {"x": 2}}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, typeless field changes":  {before: `{"immutable": true, "request": {"input": "a"}}`, after: `{"request": {"input": "b"}}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, nested item changes":     {before: `{"immutable": true, "request": {"input": [{"c": {"d": 1}}]}}`, after: `{"request": {"input": [{"c": {"d": 2}}]}}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, metadata is removed":     {before: `{"immutable": true, "metadata": {"a": 1}}`, after: `{"metadata": null}`, wantErr: "`spec` must not change: `immutable` is true"},
		"immutable, written again unchanged": {before: `{"immutable": true, "request": {"input": "a"}}`, after: `{"request": {"input": "a"}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := map[string]any{"responseID": "resp_" + idFor(name), "responseStatus": "completed"}
			if tc.before != "" {
				mustUnmarshal(t, tc.before, &spec)
			}
			object := session(v1alpha1.ObjectName(spec["responseID"].(string)), spec)
			if err := c.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+tc.after+`}`))
			wantResult(t, c.Patch(t.Context(), object, patch), tc.wantErr)
		})
	}
}

// testNullKept: null is a value of the API that must come back as it went in.
func testNullKept(t *testing.T, c client.Client) {
	const request = `{"input":null,"instructions":null,"model":null,"tools":[{"a":null}],"x":null}`
	const response = `{"error":null,"id":null,"output":null,"y":null}`
	spec := map[string]any{"responseID": "resp_null", "responseStatus": "completed"}
	mustUnmarshal(t, `{"request":`+request+`,"response":`+response+`}`, &spec)
	if err := c.Create(t.Context(), session("resp.null", spec)); err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.ResponseSession{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "resp.null"}, stored); err != nil {
		t.Fatal(err)
	}
	if got := string(stored.Spec.Request.Raw); got != request {
		t.Errorf("request: got %s, want %s", got, request)
	}
	if got := string(stored.Spec.Response.Raw); got != response {
		t.Errorf("response: got %s, want %s", got, response)
	}
}

func session(name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ResponseSession"))
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

func wantResult(t *testing.T, err error, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Errorf("refused: %v", err)
	case wantErr != "" && err == nil:
		t.Errorf("accepted, want %q", wantErr)
	case wantErr != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("got %v, want %q", err, wantErr)
	}
}

func mustUnmarshal(t *testing.T, data string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), into); err != nil {
		t.Fatal(err)
	}
}

// idFor turns the name of a case into a response ID of its own.
func idFor(name string) string {
	return strings.TrimPrefix(v1alpha1.ObjectName("/"+name), "sha256.")
}
