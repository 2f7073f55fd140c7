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

package operator

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/catena-dev/catena/internal/httpheader"
	"github.com/catena-dev/catena/internal/operator/connections"
)

// health has the checks of /healthz and /readyz, by name.
type health struct {
	live, ready map[string]healthz.Checker
}

// Limits for the health probe server. It has no authentication, and the server in controller-runtime accepts headers of up to 1 MiB.
const (
	probeHeaderBytes   = 4 << 10
	probeHeaderValues  = 64
	probeHeaderTimeout = 10 * time.Second
	probeConnections   = 64 // of an address
)

// newHealthServer returns a server of the checks, which listens on an address already.
func newHealthServer(address string, checks *health) (*manager.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("unable to serve the health probes: %w", err)
	}
	mux := http.NewServeMux()
	for path, of := range map[string]map[string]healthz.Checker{"/healthz": checks.live, "/readyz": checks.ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: of})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: probeHeaderBytes, ReadHeaderTimeout: probeHeaderTimeout, ReadTimeout: probeHeaderTimeout, IdleTimeout: time.Minute,
	}
	httpheader.Limit(server, probeHeaderValues)
	return &manager.Server{
		Name: "health probe", Server: server, Listener: connections.Limit(listener, probeConnections), ShutdownTimeout: new(time.Second),
	}, nil
}
