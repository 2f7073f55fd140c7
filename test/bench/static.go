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

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing/fstest"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/manifests"
)

// The files that a static server reads and writes in its directory.
const (
	staticBody = "body.json"
	staticCA   = "ca.pem"
)

// staticPath is where the kube-apiserver has the static server, as an aggregated API that the service accounts of the namespace "bench" may read.
const staticPath = "/apis/static.bench/v1/namespaces/bench/bodies/body"

// staticAPI registers it. The test environment makes the Service lead to this machine.
const staticAPI = `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.static.bench}
spec:
  group: static.bench
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: catena-system, name: catena-resolve, port: %s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: bench, name: static}
rules:
- {apiGroups: [static.bench], resources: [bodies], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: bench, name: static}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: static}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:bench"}
`

// aggregateStatic makes the kube-apiserver proxy staticPath to a port of this machine, and waits until a client can read it.
func (b *bench) aggregateStatic(ctx context.Context, client rest.Interface, port string) error {
	objects, err := manifests.Read(fstest.MapFS{"api/static.yaml": {Data: fmt.Appendf(nil, staticAPI, port)}}, "api")
	if err != nil {
		return err
	}
	if err := manifests.Apply(ctx, b.env.Client, objects...); err != nil {
		return err
	}
	return untilReady(ctx, read(ctx, client, staticPath))
}

// startStatic starts a process that serves a body over TLS and HTTP/2, as the operator does, and returns its port and a client of it.
func startStatic(ctx context.Context, body []byte) (port string, client rest.Interface, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return "", nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return "", nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, staticBody), body, 0o600); err != nil {
		return "", nil, nil, err
	}
	port, stopServer, err := startServer(dir, func(port string) *exec.Cmd {
		return exec.Command(program, "-static="+dir, "-address="+net.JoinHostPort("127.0.0.1", port))
	})
	if err != nil {
		return "", nil, nil, err
	}
	err = untilReady(ctx, func() (err error) {
		client, err = directClient("https://"+net.JoinHostPort("127.0.0.1", port), filepath.Join(dir, staticCA), "")
		if err != nil {
			return err
		}
		_, err = client.Get().AbsPath("/").DoRaw(ctx)
		return err
	})
	return port, client, func() error { return errors.Join(stopServer(), os.RemoveAll(dir)) }, err
}

// serveStatic serves the body in a directory until the process ends, and writes its CA there.
func serveStatic(dir, address string) error {
	body, err := os.ReadFile(filepath.Join(dir, staticBody))
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	if err := server.Listener.Close(); err != nil {
		return err
	}
	if server.Listener, err = net.Listen("tcp", address); err != nil {
		return err
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, staticCA), ca, 0o600); err != nil {
		return err
	}
	select {}
}
