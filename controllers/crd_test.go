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
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
)

func TestCRDCreate(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	const objectsOnly = "must be of type object"
	tests := map[string]struct {
		spec    string // JSON, merged into a valid spec; null removes a field
		wantErr string // part of the message; empty if the spec is accepted
	}{
		"minimal": {`{}`, ""},

		"responseID is missing":         {`{"responseID":null}`, "spec.responseID: Required value"},
		"responseID is empty":           {`{"responseID":""}`, "spec.responseID: Invalid value: \"\": spec.responseID in body should be at least 1 chars long"},
		"responseID of 512":             {`{"responseID":"` + a(512) + `"}`, ""},
		"responseID of 512 runes":       {`{"responseID":"` + strings.Repeat("é", 512) + `"}`, ""},
		"responseID of 513":             {`{"responseID":"` + a(513) + `"}`, "spec.responseID: Too long: may not be more than 512"},
		"responseID of 600":             {`{"responseID":"` + a(600) + `"}`, "spec.responseID: Too long: may not be more than 512"},
		"responseID has a slash":        {`{"responseID":"resp/a"}`, ""},
		"responseID is unicode":         {`{"responseID":"antwort-é-日本"}`, ""},
		"responseID has a newline":      {`{"responseID":"a\nb"}`, ""},
		"responseID is a number":        {`{"responseID":5}`, `spec.responseID in body must be of type string: "integer"`},
		"previousResponseID of 512":     {`{"previousResponseID":"` + a(512) + `"}`, ""},
		"previousResponseID of 513":     {`{"previousResponseID":"` + a(513) + `"}`, "spec.previousResponseID: Too long: may not be more than 512"},
		"previousResponseID is empty":   {`{"previousResponseID":""}`, "spec.previousResponseID in body should be at least 1 chars long"},
		"previousResponseID is itself":  {`{"responseID":"resp_a","previousResponseID":"resp_a"}`, "`previousResponseID` must not be the session's own `responseID`"},
		"previousResponseID is similar": {`{"responseID":"resp_a2","previousResponseID":"resp.a2"}`, ""},
		"conversationID of 512":         {`{"conversationID":"` + a(512) + `"}`, ""},
		"conversationID of 513":         {`{"conversationID":"` + a(513) + `"}`, "spec.conversationID: Too long: may not be more than 512"},
		"conversationID is empty":       {`{"conversationID":""}`, "spec.conversationID in body should be at least 1 chars long"},
		"responseStatus is missing":     {`{"responseStatus":null}`, "spec.responseStatus: Required value"},
		"responseStatus is empty":       {`{"responseStatus":""}`, "spec.responseStatus in body should be at least 1 chars long"},
		"responseStatus is unknown":     {`{"responseStatus":"paused_by_moon"}`, ""},
		"responseStatus of 65":          {`{"responseStatus":"` + a(65) + `"}`, "spec.responseStatus: Too long: may not be more than 64"},
		"createdAt is a time":           {`{"createdAt":"2026-11-20T10:00:00Z"}`, ""},
		"createdAt is not a time":       {`{"createdAt":"yesterday"}`, `spec.createdAt in body must be of type date-time: "yesterday"`},
		"completedAt is a number":       {`{"completedAt":1795168801}`, "spec.completedAt in body must be of type date-time"},
		"immutable is a string":         {`{"immutable":"true"}`, `spec.immutable in body must be of type boolean: "string"`},

		"request is empty":           {`{"request":{}}`, ""},
		"request is a string":        {`{"request":"hello"}`, `spec.request in body must be of type object: "string"`},
		"request is a list":          {`{"request":[{"input":"a"}]}`, `spec.request in body must be of type object: "array"`},
		"request is a number":        {`{"request":1}`, `spec.request in body must be of type object: "integer"`},
		"request has unknown fields": {`{"request":{"x_vendor":{"a":[1,"b",null]}}}`, ""},
		"input is a string":          {`{"request":{"input":"hello"}}`, ""},
		"input is a long string":     {`{"request":{"input":"` + a(64<<10) + `"}}`, ""},
		"input is null":              {`{"request":{"input":null}}`, ""},
		"input is an empty list":     {`{"request":{"input":[]}}`, ""},
		"input is a list of objects": {`{"request":{"input":[{"role":"user","content":"hello"},{}]}}`, ""},
		"input has a string":         {`{"request":{"input":[{"role":"user"},"hello"]}}`, `spec.request.input[1] in body ` + objectsOnly + `: "string"`},
		"input has a list":           {`{"request":{"input":[[]]}}`, `spec.request.input[0] in body ` + objectsOnly + `: "array"`},
		"input has null":             {`{"request":{"input":[null]}}`, `spec.request.input[0] in body ` + objectsOnly + `: "null"`},
		// The API server cannot check this; the controller reports it as SnapshotUnreadable.
		"input is a number":        {`{"request":{"input":5}}`, ""},
		"instructions are a list":  {`{"request":{"instructions":[{"role":"system"}]}}`, ""},
		"null fields in a request": {`{"request":{"instructions":null,"model":null,"tools":null,"tool_choice":null,"reasoning":null}}`, ""},

		"response is empty":         {`{"response":{}}`, ""},
		"response is a string":      {`{"response":"hello"}`, `spec.response in body must be of type object: "string"`},
		"response is a list":        {`{"response":[]}`, `spec.response in body must be of type object: "array"`},
		"output is a list":          {`{"response":{"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}}`, ""},
		"output is an empty list":   {`{"response":{"output":[]}}`, ""},
		"output is null":            {`{"response":{"output":null}}`, ""},
		"output is a string":        {`{"response":{"output":"hello"}}`, `spec.response.output in body must be of type array: "string"`},
		"output is an object":       {`{"response":{"output":{}}}`, `spec.response.output in body must be of type array: "object"`},
		"output has a string":       {`{"response":{"output":[{},"hi"]}}`, `spec.response.output[1] in body ` + objectsOnly + `: "string"`},
		"output has null":           {`{"response":{"output":[null]}}`, `spec.response.output[0] in body ` + objectsOnly + `: "null"`},
		"output_text is long":       {`{"response":{"output_text":"` + a(64<<10) + `"}}`, ""},
		"null fields in a response": {`{"response":{"id":null,"output_text":null,"usage":null,"error":null,"incomplete_details":null,"status":null}}`, ""},

		"metadata is an object": {`{"metadata":{"a":{"b":1.5}}}`, ""},
		"metadata is a string":  {`{"metadata":"a"}`, `spec.metadata in body must be of type object: "string"`},
		"metadata is a list":    {`{"metadata":["a"]}`, `spec.metadata in body must be of type object: "array"`},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		spec := specWith(t, fmt.Sprintf("resp_create%d", i), tc.spec)
		t.Run(name, func(t *testing.T) {
			id, isString := spec["responseID"].(string)
			if !isString {
				id = "any"
			}
			object := unstructuredTurn(ns, v1alpha1.ObjectName(id), spec)
			wantResult(t, env.Client.Create(t.Context(), object), tc.wantErr)
		})
	}
}

// TestImmutablePolicy changes immutable sessions. The changes are dry runs, repeated until they are refused: the API server may take a
// moment to enforce a policy.
func TestImmutablePolicy(t *testing.T) {
	tests := map[string]struct{ before, after string }{
		"immutable is turned off": {`{}`, `{"immutable":false}`},
		"immutable is removed":    {`{}`, `{"immutable":null}`},
		"status":                  {`{}`, `{"responseStatus":"failed"}`},
		"declared field":          {`{"response":{"output":[{"a":1}]}}`, `{"response":{"output":[{"a":2}]}}`},
		"unknown field":           {`{"request":{"x":1}}`, `{"request":{"x":2}}`},
		"inside an item":          {`{"request":{"input":[{"c":{"d":1}}]}}`, `{"request":{"input":[{"c":{"d":2}}]}}`},
		"a field in request":      {`{"request":{"x":1,"y":2}}`, `{"request":{"y":null}}`},
		"request is removed":      {`{"request":{"x":1}}`, `{"request":null}`},
		"metadata is removed":     {`{"metadata":{"a":1}}`, `{"metadata":null}`},
		"a field is added":        {`{}`, `{"conversationID":"a"}`},

		"request key replaced":                 {`{"request":{"x":1}}`, `{"request":{"x":null,"y":2}}`},
		"input replaced by an undeclared key":  {`{"request":{"input":"a"}}`, `{"request":{"input":null,"y":2}}`},
		"output replaced by an undeclared key": {`{"response":{"output":[{"a":1}]}}`, `{"response":{"output":null,"y":2}}`},
		"keys of an input item":                {`{"request":{"input":[{"a":1}]}}`, `{"request":{"input":[{"b":2}]}}`},
		"keys of an output item":               {`{"response":{"output":[{"a":1}]}}`, `{"response":{"output":[{"b":2}]}}`},
		"keys of metadata":                     {`{"metadata":{"a":1}}`, `{"metadata":{"a":null,"b":2}}`},
		"keys of a deeply nested object":       {`{"metadata":{"a":{"b":[{"c":1}]}}}`, `{"metadata":{"a":{"b":[{"d":1}]}}}`},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("resp_policy%d", i)
		t.Run(name, func(t *testing.T) {
			spec := specWith(t, id, tc.before)
			spec["immutable"] = true
			object := unstructuredTurn(ns, v1alpha1.ObjectName(id), spec)
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.after+`}`))
			testutil.Eventually(t, func(context.Context) error {
				err := env.Client.Patch(t.Context(), object.DeepCopy(), patch, client.DryRunAll)
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "`immutable` is true") {
					return fmt.Errorf("the patch was not refused as expected: %w", err)
				}
				return nil
			})
			same := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.before+`,"metadata":{"labels":{"a":"b"}}}`))
			if err := env.Client.Patch(t.Context(), object, same); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCRDUpdate(t *testing.T) {
	const (
		identity = "`responseID` must not change: save another turn under an ID of its own"
		parent   = "`previousResponseID` must not change: the parent of a turn is fixed when it is created"
		snapshot = "`snapshot` must not change while its `store` and `key` stay the same: the snapshot never changes"
	)
	stored := func(store, key, rest string) string {
		return fmt.Sprintf(`{"snapshot":{"store":%q,"key":%q,%s}}`, store, strings.Repeat(key, 26), rest)
	}
	sizes := func(parts, size, stored int, digit string) string {
		return fmt.Sprintf(`"parts":%d,"sizeBytes":%d,"storedBytes":%d,"sha256":%q`, parts, size, stored, strings.Repeat(digit, 64))
	}
	blob, before := stored("Blob", "a", sizes(1, 9, 5, "0")), sizes(1, 9, 5, "0")
	tests := map[string]struct{ before, after, wantErr string }{
		"status and response change": {`{"responseStatus":"in_progress"}`, `{"responseStatus":"completed","response":{"output":[]}}`, ""},
		"conversation and metadata":  {`{"conversationID":"a"}`, `{"conversationID":"b","metadata":{"a":1}}`, ""},
		"request is removed":         {`{"request":{"input":"a"}}`, `{"request":null}`, ""},

		"responseID changes":              {`{}`, `{"responseID":"resp_other"}`, identity},
		"previousResponseID changes":      {`{"previousResponseID":"a"}`, `{"previousResponseID":"b"}`, parent},
		"previousResponseID is set":       {`{}`, `{"previousResponseID":"b"}`, parent},
		"previousResponseID is removed":   {`{"previousResponseID":"a"}`, `{"previousResponseID":null}`, parent},
		"previousResponseID is unchanged": {`{"previousResponseID":"a"}`, `{"previousResponseID":"a"}`, ""},

		"immutable becomes true":               {`{}`, `{"immutable":true}`, ""},
		"immutable becomes true with a change": {`{}`, `{"immutable":true,"responseStatus":"failed"}`, ""},
		"immutable false permits changes":      {`{"immutable":false}`, `{"responseStatus":"failed"}`, ""},

		"snapshot: storedBytes":       {blob, `{"snapshot":{"storedBytes":1}}`, snapshot},
		"snapshot: sizeBytes":         {blob, `{"snapshot":{"sizeBytes":1}}`, snapshot},
		"snapshot: parts":             {blob, `{"snapshot":{"parts":2}}`, snapshot},
		"snapshot: sha256":            {blob, stored("Blob", "a", sizes(1, 9, 5, "1")), snapshot},
		"snapshot: format is added":   {blob, `{"snapshot":{"format":1}}`, snapshot},
		"snapshot: format is removed": {stored("Blob", "a", `"format":1,`+before), `{"snapshot":{"format":null}}`, snapshot},
		"snapshot: unchanged":         {blob, blob, ""},
		"snapshot: another field":     {blob, `{"responseStatus":"failed"}`, ""},
		"snapshot: another key":       {blob, stored("Blob", "b", sizes(2, 7, 6, "1")), ""},
		"snapshot: another store":     {blob, stored("Chunks", "a", sizes(2, 7, 6, "1")), ""},
		"snapshot is removed":         {blob, `{"snapshot":null,"request":{"input":"a"}}`, ""},
		"snapshot is added":           {`{}`, blob, ""},

		"request becomes a list": {`{}`, `{"request":[]}`, `spec.request in body must be of type object: "array"`},
		"output becomes text":    {`{}`, `{"response":{"output":"hi"}}`, `spec.response.output in body must be of type array: "string"`},
	}
	ns := env.NewNamespace(t)
	i := 0
	for name, tc := range tests {
		i++
		id := fmt.Sprintf("resp_update%d", i)
		t.Run(name, func(t *testing.T) {
			object := unstructuredTurn(ns, v1alpha1.ObjectName(id), specWith(t, id, tc.before))
			if err := env.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":`+tc.after+`}`))
			wantResult(t, env.Client.Patch(t.Context(), object, patch), tc.wantErr)
		})
	}
}

// TestCRDImmutableAppliesOnlyToSpec: labels, owners and the status of an immutable turn can change.
func TestCRDImmutableAppliesOnlyToSpec(t *testing.T) {
	ns := env.NewNamespace(t)
	yes := true
	b := turn(ns, "b", "a")
	b.Spec.Immutable = &yes
	create(t, b, turn(ns, "a"))
	wantVerdicts(t, ns, map[string]verdict{"a": resolved(1, "a"), "b": resolved(2, "a")})
	settle(t, ns)
	wantOwned(t, ns, map[string]string{"b": "a"})
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"gold"}}}`))
	if err := env.Client.Patch(t.Context(), b, patch); err != nil {
		t.Error(err)
	}
}

// specWith merges a part of a spec into a valid one. A field that is null is removed.
func specWith(t *testing.T, id, part string) map[string]any {
	t.Helper()
	spec := map[string]any{"responseID": id, "responseStatus": "completed"}
	mustUnmarshal(t, part, &spec)
	for field, value := range spec {
		if value == nil {
			delete(spec, field)
		}
	}
	return spec
}

func unstructuredTurn(namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ResponseSession"))
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

// wantResult checks that a write was accepted, or refused as invalid with the message given.
func wantResult(t *testing.T, err error, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Errorf("unexpectedly refused: %v", err)
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
