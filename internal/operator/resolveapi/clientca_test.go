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
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestGuard: no caller is treated as anonymous before the client CAs are loaded.
func TestGuard(t *testing.T) {
	notLoaded := &clientCAs{keys: []string{"client-ca-file"}, configMaps: fake.NewClientset().CoreV1().ConfigMaps(metav1.NamespaceSystem)}
	loaded := &clientCAs{}
	for name, tc := range map[string]struct {
		cas            *clientCAs
		path           string
		wantCode       int
		wantRetryAfter string
	}{
		"not loaded":         {notLoaded, inputItems + "resp_1", http.StatusServiceUnavailable, "1"},
		"not loaded, health": {notLoaded, "/livez", http.StatusTeapot, ""},
		"loaded":             {loaded, inputItems + "resp_1", http.StatusTeapot, ""},
	} {
		t.Run(name, func(t *testing.T) {
			next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
			w := httptest.NewRecorder()
			tc.cas.guard(next).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil))
			if got := w.Header().Get("Retry-After"); w.Code != tc.wantCode || got != tc.wantRetryAfter {
				t.Errorf("got %d with Retry-After %q, want %d with %q: %s", w.Code, got, tc.wantCode, tc.wantRetryAfter, w.Body)
			}
		})
	}
}
