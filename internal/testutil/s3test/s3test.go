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

// Package s3test runs the S3 server of hack/s3server, for tests and benchmarks.
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testutil"
)

// Environment has the environment variables with which AWS's SDK uses the server, and nothing else of the machine.
var Environment = map[string]string{
	"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1",
	"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
}

// Server is an S3 server.
type Server struct {
	// Endpoint is its URL.
	Endpoint string

	process *subprocess.Process
	log     bytes.Buffer
}

// Start builds the server, and starts it with an empty bucket. It keeps its files in dir, which must be empty.
func Start(ctx context.Context, dir, bucket string) (*Server, error) {
	binary, root, sidecar := filepath.Join(dir, "s3server"), filepath.Join(dir, "root"), filepath.Join(dir, "sidecar")
	// Built with the same flags as all programs, so that the S3 SDK is compiled once.
	build := exec.CommandContext(ctx, "bash", "-c", `. ../flags.sh && go build -o "$0" .`, binary)
	build.Dir = filepath.Join(testutil.Root(), "hack", "s3server")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("unable to build the S3 server: %w\n%s", err, output)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, bucket), 0o700), os.Mkdir(sidecar, 0o700)); err != nil {
		return nil, err
	}
	ports, err := subprocess.FreePorts(1, 0)
	if err != nil {
		return nil, err
	}
	address := subprocess.Loopback(ports[0])
	command := exec.Command(binary, address, root, sidecar)
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Environment["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY="+Environment["AWS_SECRET_ACCESS_KEY"])
	s := &Server{Endpoint: "http://" + address}
	if s.process, err = subprocess.Start(command, &s.log); err != nil {
		return nil, err
	}
	if err := s.waitUntilListening(ctx, address); err != nil {
		return nil, errors.Join(err, s.Stop(), errors.New(s.Log()))
	}
	return s, nil
}

func (s *Server) waitUntilListening(ctx context.Context, address string) error {
	err := wait.PollUntilContextTimeout(ctx, subprocess.PollInterval, subprocess.Patience, true, func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false, nil
		}
		return true, connection.Close()
	})
	if err != nil {
		return fmt.Errorf("the S3 server is not listening: %w", err)
	}
	return nil
}

// BucketURL returns the URL of a bucket of the server, for gocloud.dev/blob.
func (s *Server) BucketURL(bucket string) string {
	return "s3://" + bucket + "?use_path_style=true&endpoint=" + s.Endpoint
}

// Stop stops the server.
func (s *Server) Stop() error { return s.process.Kill() }

// Log returns what the server has logged. It must not be called before Stop.
func (s *Server) Log() string { return s.log.String() }
