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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/catena-dev/catena/internal/subprocess"
)

// isMissing reports whether a program is not installed.
func isMissing(err error) bool { return errors.Is(err, exec.ErrNotFound) }

// openRedis starts a Redis server that syncs every write to disk.
func openRedis(ctx context.Context, dir string) (peer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	port, stop, err := startServer(dir, func(port string) *exec.Cmd {
		return exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "")
	})
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	r := redisList{client, func() error { return errors.Join(client.Close(), stop()) }}
	return r, untilReady(ctx, func() error { return client.Ping(ctx).Err() })
}

// openPostgres starts a PostgreSQL server with its defaults, which sync every transaction to disk.
func openPostgres(ctx context.Context, dir string) (peer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "postgres")
	prepare := []*exec.Cmd{asPostgres(filepath.Join(bin, "initdb"), "--auth=trust", "--username=bench", "--encoding=UTF8", "-D", data)}
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	if isRoot() {
		prepare = append([]*exec.Cmd{exec.Command("chmod", "755", dir), exec.Command("chown", "postgres", data)}, prepare...)
	}
	for _, command := range prepare {
		if output, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", command, err, output)
		}
	}
	port, stop, err := startServer(dir, func(port string) *exec.Cmd {
		return asPostgres(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	})
	if err != nil {
		return nil, err
	}
	p := &postgres{stop: stop}
	err = untilReady(ctx, func() (err error) {
		p.connection, err = pgx.Connect(ctx, "postgres://bench@127.0.0.1:"+port+"/postgres?sslmode=disable")
		return err
	})
	if err == nil {
		_, err = p.connection.Exec(ctx, createTable)
	}
	return p, err
}

// postgresBin returns the directory of PostgreSQL's programs, which Debian does not add to PATH.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Dir(slices.Max(found)), nil
	}
	path, err := exec.LookPath("initdb")
	return filepath.Dir(path), err
}

func isRoot() bool { return os.Getuid() == 0 }

// asPostgres returns a command of PostgreSQL, which refuses to run as root.
func asPostgres(path string, args ...string) *exec.Cmd {
	if !isRoot() {
		return exec.Command(path, args...)
	}
	return exec.Command("setpriv", append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL", path}, args...)...)
}

// startServer starts a server on a free port, with its log in dir.
func startServer(dir string, command func(port string) *exec.Cmd) (port string, stop func() error, err error) {
	ports, err := subprocess.FreePorts(1, 0)
	if err != nil {
		return "", nil, err
	}
	port = strconv.Itoa(ports[0])
	log, err := os.Create(filepath.Join(dir, port+".log"))
	if err != nil {
		return "", nil, err
	}
	process, err := subprocess.Start(command(port), log)
	if err != nil {
		return "", nil, errors.Join(err, log.Close())
	}
	return port, func() error { return errors.Join(process.Stop(), log.Close()) }, nil
}

func untilReady(ctx context.Context, check func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, subprocess.PollInterval, subprocess.Patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
