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

package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestDeletedTurn checks that a turn that is being deleted, but held by a finalizer, is treated as deleted by every request.
func TestDeletedTurn(t *testing.T) {
	raw := &rawClient{url: replicas[0].URL, replies: map[string]int{}}
	create := func(previous string) string {
		t.Helper()
		body := fmt.Sprintf(`{"model":"scripted","input":"hello","previous_response_id":%s}`, previous)
		status, reply := raw.do(t.Context(), "", "create", [3]string{http.MethodPost, "/v1/responses", body})
		if status != http.StatusOK {
			t.Fatalf("got %d %s", status, reply)
		}
		return gjson.Get(reply, "id").Str
	}
	deleted := create("null")
	child := create(`"` + deleted + `"`)
	object := &v1alpha1.ResponseSession{}
	object.Namespace, object.Name = metav1.NamespaceDefault, v1alpha1.ObjectName(deleted)
	patch := func(finalizers string) error {
		return env.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`)))
	}
	if err := patch(`["example.com/hold"]`); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := patch("null"); err != nil {
			t.Error(err)
		}
	}()
	if err := env.Client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		method, path, body string
		wantStatus         int
		wantCode           string
	}{
		"continue the turn":              {http.MethodPost, "/v1/responses", `{"input":"x","previous_response_id":"` + deleted + `"}`, 400, "previous_response_not_found"},
		"continue the turn, as a stream": {http.MethodPost, "/v1/responses", `{"input":"x","stream":true,"previous_response_id":"` + deleted + `"}`, 400, "previous_response_not_found"},
		"continue a child":               {http.MethodPost, "/v1/responses", `{"input":"x","previous_response_id":"` + child + `"}`, 400, "session.chain.not_found"},
		"input items of a child":         {http.MethodGet, "/v1/responses/" + child + "/input_items", "", 400, "session.chain.not_found"},
		"input items of the turn":        {http.MethodGet, "/v1/responses/" + deleted + "/input_items", "", 404, ""},
		"retrieve the turn":              {http.MethodGet, "/v1/responses/" + deleted, "", 404, ""},
		"delete the turn":                {http.MethodDelete, "/v1/responses/" + deleted, "", 404, ""},
		"retrieve a child":               {http.MethodGet, "/v1/responses/" + child, "", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			// The operator may see the deletion a moment later.
			testutil.Eventually(t, func(ctx context.Context) error {
				status, reply := raw.do(ctx, "", name, [3]string{tc.method, tc.path, tc.body})
				if code := gjson.Get(reply, "error.code").Str; status != tc.wantStatus || code != tc.wantCode {
					return fmt.Errorf("got %d %s", status, reply)
				}
				return nil
			})
		})
	}
}
