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

package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestPingRequests: a ping sends two requests, one of them to the operator, and no request a second time.
func TestPingRequests(t *testing.T) {
	namespace := env.NewNamespace(t)
	sessions := "GET /apis/sessions.catena.dev/v1alpha1/namespaces/" + namespace + "/responsesessions/-"
	operator := "GET /apis/resolve.catena.dev/v1alpha1/namespaces/" + namespace + "/inputitems/_?maxDepth=0"
	overloaded := func(r *http.Request) (*http.Response, error) {
		response := answer(r, http.StatusServiceUnavailable)
		response.Header.Set("Retry-After", "1")
		return response, nil
	}
	notServed := func(r *http.Request) (*http.Response, error) { return answer(r, http.StatusNotFound), nil }
	for name, tc := range map[string]struct {
		fail     string // the request that fails
		how      func(r *http.Request) (*http.Response, error)
		want     []string
		wantText string
	}{
		"usable":                 {want: []string{sessions, operator}},
		"no API server":          {sessions, func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }, []string{sessions}, "connection refused"},
		"API server overloaded":  {sessions, overloaded, []string{sessions}, "unable to read sessions of namespace"},
		"no CRDs":                {sessions, notServed, []string{sessions}, "does not serve ResponseSessions"},
		"no operator":            {operator, overloaded, []string{sessions, operator}, "unable to resolve through the operator"},
		"resolve API not served": {operator, notServed, []string{sessions, operator}, "does not serve the resolve API"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			s := openThrough(t, namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				request := r.Method + " " + r.URL.RequestURI()
				if sent = append(sent, request); request == tc.fail {
					return tc.how(r)
				}
				return next.RoundTrip(r)
			})
			err := s.Ping(t.Context())
			if diff := cmp.Diff(tc.want, sent); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if tc.wantText == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) || !strings.Contains(err.Error(), tc.wantText) {
				t.Errorf("got %v, want ErrUnreachable with %q", err, tc.wantText)
			}
		})
	}
}

// TestPingRights: a ping fails without one of the rights that it tests, and in other namespaces.
func TestPingRights(t *testing.T) {
	namespace, other := env.NewNamespace(t), env.NewNamespace(t)
	for role, missing := range map[string]string{"edit": "", "catena-reader": "", "view": "responsesessions", "catena-edit": "responsesessions"} {
		t.Run(role, func(t *testing.T) {
			s, err := kube.Open(t.Context(), kube.Options{Config: env.NewUser(t, role, namespace, "ClusterRole", role), Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			wantForbidden(t, s.Ping(t.Context()), missing)
			wantForbidden(t, s.InNamespace(other).Ping(t.Context()), "responsesessions")
			if err := s.InNamespace("x/../" + namespace).Ping(t.Context()); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

// wantForbidden checks that an error names the resource that must not be read, or that there is none.
func wantForbidden(t *testing.T, err error, resource string) {
	t.Helper()
	if resource == "" && err == nil {
		return
	}
	if resource == "" || err == nil || store.IsRetryable(err) || !strings.Contains(err.Error(), "cannot get resource "+fmt.Sprintf("%q", resource)) {
		t.Errorf("got %v, want an error about the resource %q", err, resource)
	}
}
