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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// The files that a static server reads and writes in its directory.
const (
	staticBody = "body.json"
	staticCA   = "ca.pem"
)

// startStatic starts a process that serves a body over TLS and HTTP/2, as the operator does, and returns a client of it.
func startStatic(ctx context.Context, body []byte) (client rest.Interface, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "catena-bench-")
	if err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, staticBody), body, 0o600); err != nil {
		return nil, nil, err
	}
	port, stopServer, err := startServer(dir, func(port string) *exec.Cmd {
		return exec.Command(program, "-static="+dir, "-address="+net.JoinHostPort("127.0.0.1", port))
	})
	if err != nil {
		return nil, nil, err
	}
	err = untilReady(ctx, func() (err error) {
		client, err = directClient("https://"+net.JoinHostPort("127.0.0.1", port), filepath.Join(dir, staticCA), "")
		if err != nil {
			return err
		}
		_, err = client.Get().AbsPath("/").DoRaw(ctx)
		return err
	})
	return client, func() error { return errors.Join(stopServer(), os.RemoveAll(dir)) }, err
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
