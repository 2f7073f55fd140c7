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
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
)

// inClusterVariable is set in all Pods.
const inClusterVariable = "KUBERNETES_SERVICE_HOST"

// routable reports whether resolves can be sent to the operator directly: from within a cluster, and with a token. A client certificate
// would have to be reloaded as client-go does it.
func routable(config *rest.Config) bool {
	hasCertificate := config.CertFile != "" || len(config.CertData) > 0 || config.ExecProvider != nil || config.AuthProvider != nil
	return os.Getenv(inClusterVariable) != "" && !hasCertificate
}

const (
	// routeAge is how old a route to the operator may be before it is looked for again.
	routeAge = time.Minute
	// routeTimeout is the deadline for finding a route, and connectTimeout that for each connection: a request waits for it before it is
	// sent through the kube-apiserver.
	routeTimeout   = 10 * time.Second
	connectTimeout = time.Second
)

// router sends requests to the operator's Service. While that cannot be reached, it sends them through the kube-apiserver, so that no
// request fails because of the route. It is safe for concurrent use.
type router struct {
	through http.RoundTripper // to the kube-apiserver
	client  rest.Interface
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// route is nil while the Service has not been found, or is lost.
	route *route
	// next is when a route is looked for again, and finding is set meanwhile.
	next    time.Time
	finding bool
}

// route leads to the operator's Service.
type route struct {
	service   service
	transport *http.Transport
}

// service is the spec of an APIService that a route depends on.
type service struct {
	Namespace, Name string
	Port            int
	CA              string
}

// host is the name that the certificate of the Service is for; the kube-apiserver uses the same one.
func (s *service) host() string { return s.Name + "." + s.Namespace + ".svc" }

func (s *service) address() string { return net.JoinHostPort(s.host(), strconv.Itoa(s.Port)) }

// routed returns a configuration whose requests go through a router.
func routed(config *rest.Config, client rest.Interface) *rest.Config {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	config.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return &router{through: through, client: client, dial: connect}
	})
	return config
}

// RoundTrip implements http.RoundTripper for requests without a body.
func (r *router) RoundTrip(request *http.Request) (*http.Response, error) {
	route := r.current(request.Context(), time.Now())
	if route == nil {
		return r.through.RoundTrip(request)
	}
	direct := request.Clone(request.Context())
	direct.Host, direct.URL.Scheme, direct.URL.Host = "", "https", route.service.address()
	response, err := route.transport.RoundTrip(direct)
	switch {
	case err != nil && request.Context().Err() != nil:
		return nil, err
	case err == nil && response.StatusCode == http.StatusForbidden: // perhaps because the kube-apiserver has just started: see settling
		_ = response.Body.Close()
		return r.through.RoundTrip(request)
	case err == nil && response.StatusCode != http.StatusUnauthorized:
		return response, nil
	case err == nil: // also if the operator could not review the token
		_ = response.Body.Close()
	}
	r.lost(route)
	return r.through.RoundTrip(request)
}

// WrappedRoundTripper gives client-go the transport below this one.
func (r *router) WrappedRoundTripper() http.RoundTripper { return r.through }

// current returns the route, or nil, and looks for it in the background if that has not been done for routeAge.
func (r *router) current(ctx context.Context, now time.Time) *route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.finding && !now.Before(r.next) {
		r.finding = true
		go r.find(context.WithoutCancel(ctx))
	}
	return r.route
}

// lost ends the use of a route until it is found again.
func (r *router) lost(route *route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.route == route {
		r.route = nil
		route.transport.CloseIdleConnections()
	}
}

// find replaces the route.
func (r *router) find(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	r.mu.Lock()
	known := r.route
	r.mu.Unlock()
	found, err := r.discover(ctx, known)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err): // perhaps deleted because the kube-apiserver does not reach the operator, which this process does
		found = known
	case err != nil: // every resolve goes through the kube-apiserver, and reports what is wrong
		found = nil
	}
	if known != nil && known != found {
		known.transport.CloseIdleConnections()
	}
	r.route, r.next, r.finding = found, time.Now().Add(routeAge), false
}

// discover returns a route to the Service of the operator's APIService, once it accepts connections: known if that is the one.
//
// The CA of the APIService is the one that the kube-apiserver trusts for the Service, so a token is sent to no other server.
func (r *router) discover(ctx context.Context, known *route) (*route, error) {
	service, err := r.service(ctx)
	if err != nil {
		return nil, err
	}
	if known != nil && known.service == *service {
		return known, nil
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM([]byte(service.CA)) {
		return nil, errors.New("the APIService has no CA")
	}
	config := &tls.Config{RootCAs: ca, ServerName: service.host(), MinVersion: tls.VersionTLS12}
	connection, err := r.dial(ctx, "tcp", service.address())
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	if err := tls.Client(connection, config).HandshakeContext(ctx); err != nil {
		return nil, err
	}
	transport := kubeclient.NewDirectTransport(config, r.dial)
	transport.TLSHandshakeTimeout = connectTimeout
	return &route{*service, transport}, nil
}

// service reads the APIService.
func (r *router) service(ctx context.Context) (*service, error) {
	version := resolvev1alpha1.GroupVersion
	raw, err := r.client.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", version.Version+"."+version.Group).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	object := struct {
		Spec struct {
			Service *struct {
				Namespace, Name string
				Port            int
			}
			CABundle []byte
		}
	}{}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("unable to decode the APIService: %w", err)
	}
	if object.Spec.Service == nil {
		return nil, errors.New("the APIService has no Service")
	}
	s := object.Spec.Service
	return &service{s.Namespace, s.Name, s.Port, string(object.Spec.CABundle)}, nil
}
