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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// serviceNetwork connects a client to the operator's Service, whose name does not resolve outside a cluster.
type serviceNetwork struct {
	mu          sync.Mutex
	to          string // empty if the Service cannot be reached
	connections []net.Conn
	// through counts the resolves that were sent through the kube-apiserver.
	through atomic.Int32
}

// connect sets where connections to the Service lead, and closes those that there are.
func (n *serviceNetwork) connect(to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, connection := range n.connections {
		_ = connection.Close()
	}
	n.to, n.connections = to, nil
}

func (n *serviceNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(address, "catena-resolve.catena-system.svc:") {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.to == "" {
		return nil, errors.New("the Service cannot be reached")
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, network, n.to)
	if err == nil {
		n.connections = append(n.connections, connection)
	}
	return connection, err
}

// openInPod opens a store as in a Pod with a service account.
func (n *serviceNetwork) openInPod(t *testing.T) *store.Store {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	namespace := env.NewNamespace(t)
	config, err := env.PodConfig(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = n.dial
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.Contains(request.URL.Path, "/inputitems/") {
				n.through.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// resolvesThrough resolves a turn, and returns how many requests for it were sent through the kube-apiserver.
func (n *serviceNetwork) resolvesThrough(t *testing.T, s *store.Store) int32 {
	t.Helper()
	before := n.through.Load()
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Fatal(err)
	}
	return n.through.Load() - before
}

// TestRoute: in a Pod, histories are read from the operator's Service once it is found, and through the kube-apiserver, without an error,
// while it cannot be reached.
func TestRoute(t *testing.T) {
	network := &serviceNetwork{}
	network.connect(fmt.Sprintf("localhost:%d", operator.Port))
	s := network.openInPod(t)
	save(t, s, testturn.Make("resp_1", ""))
	testutil.Eventually(t, func(context.Context) error {
		if network.resolvesThrough(t, s) > 0 {
			return errors.New("resolved through the kube-apiserver")
		}
		return nil
	})
	for range 3 {
		if got := network.resolvesThrough(t, s); got != 0 {
			t.Errorf("%d requests were sent through the kube-apiserver after the Service was found", got)
		}
	}
	network.connect("")
	if got := network.resolvesThrough(t, s); got != 1 {
		t.Errorf("%d requests were sent through the kube-apiserver while the Service could not be reached, want 1", got)
	}
}

// TestRouteOfAnotherServer: a server without a certificate of the APIService's CA gets neither a request nor a token.
func TestRouteOfAnotherServer(t *testing.T) {
	handshakes := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the server was sent a request")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			select {
			case handshakes <- struct{}{}:
			default:
			}
		}
	}
	server.StartTLS()
	defer server.Close()
	network := &serviceNetwork{}
	network.connect(server.Listener.Addr().String())
	s := network.openInPod(t)
	save(t, s, testturn.Make("resp_1", ""))
	if got := network.resolvesThrough(t, s); got != 1 {
		t.Errorf("%d requests were sent through the kube-apiserver, want 1", got)
	}
	select {
	case <-handshakes:
	case <-t.Context().Done():
	}
	if got := network.resolvesThrough(t, s); got != 1 {
		t.Errorf("%d requests were sent through the kube-apiserver after the handshake failed, want 1", got)
	}
}
