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

package resolveapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/log"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/requestid"
)

// TestRequestIDIsLogged: an error that is not the caller's is always logged, and any other result at level 1, with a valid request ID.
func TestRequestIDIsLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		err       error
		id        string
		verbosity int
		want      string
	}{
		"internal error":         {errors.New("broken"), "req_1", 0, `"msg"="Unable to resolve a response" "error"="broken" "namespace"="team-a" "name"="resp_1" "requestID"="req_1"`},
		"internal error, no ID":  {errors.New("broken"), "", 0, `"requestID"=""`},
		"internal error, forged": {errors.New("broken"), "a\" \"level\"=\"1", 0, `"requestID"=""`},
		"not found":              {&chain.Error{Rule: chain.NotFound, ResponseID: "resp_1"}, "req_1", 0, ""},
		"not found, debugging":   {&chain.Error{Rule: chain.NotFound, ResponseID: "resp_1"}, "req_1", 1, `"requestID"="req_1"`},
		"success":                {nil, "req_1", 0, ""},
		"success, debugging":     {nil, "req_1", 1, `"msg"="Resolved a response" "namespace"="team-a" "name"="resp_1" "requestID"="req_1"`},
	} {
		t.Run(name, func(t *testing.T) {
			var lines strings.Builder
			logger := funcr.New(func(_, args string) { lines.WriteString(args + "\n") }, funcr.Options{Verbosity: tc.verbosity})
			s := &storage{maxDepthLimit: 1, resolve: func(context.Context, string, string, uint64, resolve.Query) (*resolve.Result, error) {
				return makeHistory(), tc.err
			}}
			handler := withRequestID(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				ctx := request.WithNamespace(log.IntoContext(inHandler(req.Context()), logger), "team-a")
				if _, err := s.Get(ctx, "resp_1", &resolvev1alpha1.InputItemsOptions{}); (err == nil) != (tc.err == nil) {
					t.Errorf("got %v, want an error: %t", err, tc.err != nil)
				}
			}))
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			req.Header.Set(requestid.Header, tc.id)
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if got := lines.String(); !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("logged %q, want %q", got, tc.want)
			}
		})
	}
}
