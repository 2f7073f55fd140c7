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
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
)

type throughFunc func(*http.Request) (*http.Response, error)

func (f throughFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestRouter: a request that the operator rejects as unauthenticated, or whose connection is lost, is sent through the kube-apiserver, and
// so are those after it. One that it refuses is sent there too: see settling. Other responses of the operator are final.
func TestRouter(t *testing.T) {
	for name, tc := range map[string]struct {
		status      int
		wantThrough int
	}{
		"success":         {http.StatusOK, 0},
		"forbidden":       {http.StatusForbidden, 2},
		"not found":       {http.StatusNotFound, 0},
		"unauthenticated": {http.StatusUnauthorized, 2},
		"connection lost": {0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tc.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(tc.status)
			}))
			defer server.Close()
			transport := server.Client().Transport.(*http.Transport)
			transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
			}
			transport.TLSClientConfig.ServerName = "example.com" // in httptest's certificate
			through := 0
			r := &router{
				through: throughFunc(func(request *http.Request) (*http.Response, error) {
					if request.URL.Host != "kube-apiserver" {
						t.Errorf("the request through the kube-apiserver is for %s", request.URL.Host)
					}
					through++
					return httptest.NewRecorder().Result(), nil
				}),
				route: &route{service{"catena-system", "catena-resolve", 443, ""}, transport},
				next:  time.Now().Add(time.Hour),
			}
			for range 2 {
				request := httptest.NewRequest(http.MethodGet, "https://kube-apiserver/apis", http.NoBody)
				response, err := r.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			if through != tc.wantThrough {
				t.Errorf("%d requests were sent through the kube-apiserver, want %d", through, tc.wantThrough)
			}
		})
	}
}

// TestKnownRoute: a route is kept if its APIService is deleted, and not if it cannot be read.
func TestKnownRoute(t *testing.T) {
	for status, want := range map[int]bool{
		http.StatusNotFound: true, http.StatusForbidden: false, http.StatusInternalServerError: false,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			defer server.Close()
			client, err := kubeclient.New(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			known := &route{service{"catena-system", "catena-resolve", 443, ""}, &http.Transport{}}
			r := &router{client: client, route: known}
			r.find(t.Context())
			if got := r.route == known; got != want || r.next.IsZero() {
				t.Errorf("the route is kept: %t, want %t", got, want)
			}
		})
	}
}
