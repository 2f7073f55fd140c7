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

package hostile_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// refusals counts the requests of a client that are refused: answered with 429 or a server's error, or not at all. It counts each attempt,
// because the library and client-go repeat such requests. It is safe for concurrent use.
type refusals struct {
	mu     sync.Mutex
	counts map[string]int // by answer and kind of request, as "429 POST responsesessions"
}

// count returns a transport that counts what is refused by another one. It does not count requests whose client gave up.
func (r *refusals) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		switch {
		case request.Context().Err() != nil:
		case err != nil:
			r.add("no answer", request)
		case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
			r.add(fmt.Sprint(response.StatusCode), request)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *refusals) add(answer string, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[answer+" "+request.Method+" "+kindOf(request.URL.Path)]++
}

// take returns the counts and sets them to 0.
func (r *refusals) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	r.counts = nil
	return counts
}

// kinds are the resources that a victim requests, those of the gateway last. Each is tried before its prefixes.
var kinds = []string{"responsesessions", "snapshotchunks", "sessionquotas", "inputitems", "input_items", "responses"}

// kindOf returns the resource in a path, or the path if it has none.
func kindOf(path string) string {
	for _, kind := range kinds {
		if strings.Contains(path, "/"+kind) {
			return kind
		}
	}
	return path
}

// TestRefusals checks what is counted.
func TestRefusals(t *testing.T) {
	const sessions, resolve = "/apis/sessions.catena.dev/v1alpha1/namespaces/a/responsesessions", "/apis/resolve.catena.dev/v1alpha1/namespaces/a/"
	for name, tc := range map[string]struct {
		method, path string
		status       int // 0 is no answer
		want         map[string]int
	}{
		"success":             {http.MethodPost, sessions, 201, nil},
		"conflict":            {http.MethodPost, sessions, 409, nil},
		"a save":              {http.MethodPost, sessions, 429, map[string]int{"429 POST responsesessions": 1}},
		"a resolve":           {http.MethodGet, resolve + "inputitems/resp_1", 503, map[string]int{"503 GET inputitems": 1}},
		"a gateway's turn":    {http.MethodPost, "/v1/responses", 429, map[string]int{"429 POST responses": 1}},
		"a gateway's history": {http.MethodGet, "/v1/responses/resp_1/input_items", 0, map[string]int{"no answer GET input_items": 1}},
		"another":             {http.MethodGet, "/version", 503, map[string]int{"503 GET /version": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &refusals{}
			transport := counted.count(roundTripper(func(*http.Request) (*http.Response, error) {
				if tc.status == 0 {
					return nil, io.EOF
				}
				return &http.Response{StatusCode: tc.status, Body: http.NoBody}, nil
			}))
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "http://kube"+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if response, err := transport.RoundTrip(request); err == nil {
				_ = response.Body.Close()
			}
			if diff := cmp.Diff(tc.want, counted.take()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}
