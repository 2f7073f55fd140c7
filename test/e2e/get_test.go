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

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func TestGetByEitherName(t *testing.T) {
	namespace := env.NewNamespace(t)
	upper := testsession.Make(namespace, "resp_Upper").Create(t, env.Client) // has a hashed name
	root := testsession.Make(namespace, "resp_root").Create(t, env.Client)
	testsession.Make(namespace, "resp_child").After("resp_root").Create(t, env.Client)
	// This ID equals the object name of another session.
	testsession.Make(namespace, "resp.root").Create(t, env.Client)

	cases := map[string]struct {
		name      string
		wantTurns []string
	}{
		"response ID":                {name: "resp_child", wantTurns: []string{"resp_root", "resp_child"}},
		"object name":                {name: "resp.child", wantTurns: []string{"resp_root", "resp_child"}},
		"response ID, hashed name":   {name: "resp_Upper", wantTurns: []string{"resp_Upper"}},
		"object name, hashed":        {name: upper.Name, wantTurns: []string{"resp_Upper"}},
		"response ID wins over name": {name: "resp.root", wantTurns: []string{"resp.root"}},
		"ID of the other session":    {name: "resp_root", wantTurns: []string{"resp_root"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := aggregated(t).resolve(t, namespace, tc.name, "").history(t)
			if diff := h.check(tc.wantTurns, testutil.Items(tc.wantTurns...)); diff != "" {
				t.Error(diff)
			}
			id := tc.wantTurns[len(tc.wantTurns)-1]
			if h.ResponseID != id || h.Metadata.Name != v1alpha1.ObjectName(id) || h.Metadata.Namespace != namespace || h.Next != "" {
				t.Errorf("got %+v for %q, want those for %q", h.Metadata, h.ResponseID, id)
			}
		})
	}
	if h := aggregated(t).resolve(t, namespace, "resp_root", "").history(t); h.Metadata.UID != root.UID {
		t.Errorf("UID %q, want %q", h.Metadata.UID, root.UID)
	}
}

// TestItemsMatchObjects compares items with the objects that the API server returns, byte for byte.
func TestItemsMatchObjects(t *testing.T) {
	namespace := env.NewNamespace(t)
	requests := []string{
		`{"instructions":"Be <b>brief</b> & \"kind\" é 日本 \ud83d\ude00\n","input":"<script>&amp;\u2028\u0000"}`,
		`{"input":[{"role":"user","content":"no type"},{"type":"function_call_output","call_id":"c","output":"{\"a\": 1.50}"},
			{"type":"never_seen","n":[1.0,-0.0,1e3,1e-7,9007199254740993,-9223372036854775808],"z":null,"a":{"b":{},"a":[]}}]}`,
		`{"instructions":"","input":""}`,
		`{"instructions":null,"input":null}`,
		`{"input":[],"x_vendor":{"keep":true}}`,
	}
	previous, ids, want := "", []string{}, []string{}
	for i, request := range requests {
		next := testsession.Make(namespace, fmt.Sprintf("resp_%d", i)).Request(request)
		if previous != "" {
			next.After(previous)
		}
		previous = next.Create(t, env.Client).Spec.ResponseID
		ids = append(ids, previous)
	}
	for _, id := range ids {
		object := aggregated(t).get(t, "/apis/sessions.catena.dev/v1alpha1/namespaces/"+namespace+"/responsesessions/"+v1alpha1.ObjectName(id), "")
		spec := gjson.GetBytes(object.body, "spec")
		if instructions := spec.Get("request.instructions"); instructions.String() != "" {
			want = append(want, `{"type":"message","role":"system","content":[{"type":"input_text","text":`+instructions.Raw+`}]}`)
		}
		if input := spec.Get("request.input"); input.IsArray() {
			for _, item := range input.Array() {
				want = append(want, item.Raw)
			}
		} else if input.String() != "" {
			want = append(want, `{"type":"message","role":"user","content":[{"type":"input_text","text":`+input.Raw+`}]}`)
		}
		for _, item := range spec.Get("response.output").Array() {
			want = append(want, item.Raw)
		}
	}
	if diff := aggregated(t).resolve(t, namespace, previous, "").history(t).check(ids, want); diff != "" {
		t.Error(diff)
	}
}

func TestDepth(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 65)
	last := ids[64]
	cases := map[string]struct {
		id, query string
		wantTurns int
		wantErr   *chainError
	}{
		"64 turns resolve":           {id: ids[63], wantTurns: 64},
		"65 turns fail":              {id: last, wantErr: new(invalid(chain.CodeDepthExceeded, ids[0]))},
		"65 turns with maxDepth=65":  {id: last, query: "maxDepth=65", wantTurns: 65},
		"65 turns, largest maxDepth": {id: last, query: "maxDepth=10000", wantTurns: 65},
		"65 turns with maxDepth=64":  {id: last, query: "maxDepth=64", wantErr: new(invalid(chain.CodeDepthExceeded, ids[0]))},
		"one turn with maxDepth=1":   {id: ids[0], query: "maxDepth=1", wantTurns: 1},
		"one turn with maxDepth=0":   {id: ids[0], query: "maxDepth=0", wantErr: new(invalid(chain.CodeDepthExceeded, ids[0]))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			response := aggregated(t).resolve(t, namespace, tc.id, tc.query)
			if tc.wantErr != nil {
				response.wantChainError(t, tc.id, *tc.wantErr)
				return
			}
			if diff := response.history(t).check(ids[:tc.wantTurns], testutil.Items(ids[:tc.wantTurns]...)); diff != "" {
				t.Error(diff)
			}
		})
	}
	testsession.WaitForReason(t, env.Client, namespace, ids[63], v1alpha1.ReasonResolved)
	testsession.WaitForReason(t, env.Client, namespace, last, v1alpha1.ReasonDepthExceeded)
}

func TestFormats(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 2)
	path := itemsPath(namespace, ids[1], "")

	aggregated(t).get(t, path, "application/json").history(t)

	table := metav1.Table{}
	asTable := aggregated(t).get(t, path, "application/json;as=Table;v=v1;g=meta.k8s.io")
	if err := json.Unmarshal(asTable.body, &table); err != nil || table.Kind != "Table" {
		t.Fatalf("%v: %s", err, asTable.body)
	}
	var cells []string
	for _, row := range table.Rows {
		cells = append(cells, fmt.Sprint(row.Cells))
	}
	want := []string{
		"[0 resp_0 message user question of resp_0]", "[1 resp_0 message assistant answer of resp_0]",
		"[2 resp_1 message user question of resp_1]", "[3 resp_1 message assistant answer of resp_1]",
	}
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Error(diff)
	}
	for _, format := range []string{"application/yaml", "application/xml"} {
		if response := aggregated(t).get(t, path, format); response.code != http.StatusNotAcceptable {
			t.Errorf("as %s: got %d, want 406", format, response.code)
		}
	}
}
