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

package kube

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSettling: the 403 of an API server that has just started is a 503, whether its outage was noticed or it says that it is not ready.
func TestSettling(t *testing.T) {
	const outage = 0
	tests := map[string]struct {
		statuses []int
		ready    int
		want     []int
	}{
		"an outage":             {[]int{outage, 403, 200, 403}, 200, []int{outage, 503, 200, 503}},
		"not ready":             {[]int{403, 403}, 500, []int{503, 503}},
		"grants nothing":        {[]int{403}, 403, []int{503}},
		"unreachable meanwhile": {[]int{403}, outage, []int{503}},
		"ready":                 {[]int{403, 404, 403}, 200, []int{403, 404, 403}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			respond := func(status int) (*http.Response, error) {
				if status == outage {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: status, Body: http.NoBody}, nil
			}
			statuses := slices.Clone(tc.statuses)
			transport := &settlingTransport{new(settling), roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("%s has no credentials", r.URL)
				}
				if r.URL.Path == "/readyz" {
					return respond(tc.ready)
				}
				status := statuses[0]
				statuses = statuses[1:]
				return respond(status)
			})}
			var got []int
			for range tc.statuses {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/apis", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer secret")
				status := outage
				if response, err := transport.RoundTrip(request); err == nil {
					status = response.StatusCode
					_ = response.Body.Close()
				}
				got = append(got, status)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
