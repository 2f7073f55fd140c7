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

// Command s3server serves the directories of ROOT as the buckets of an S3 server, with metadata in SIDECAR, for the tests of
// snapshots in a bucket:
//
//	s3server ADDRESS ROOT SIDECAR
//
// The credentials are the environment variables ROOT_ACCESS_KEY and ROOT_SECRET_KEY. It is the server of versitygw
// without the other backends and the tests that its own command links, which would have to be compiled too.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: s3server ADDRESS ROOT SIDECAR")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, root, sidecar string) error {
	metadata, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	backend, err := posix.New(root, metadata, posix.PosixOpts{SideCarDir: sidecar})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess:    os.Getenv("ROOT_ACCESS_KEY"),
		RootUserSecret:    os.Getenv("ROOT_SECRET_KEY"),
		Ports:             []string{address},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10_000, // as S3
		Quiet:             true,
	})
}
