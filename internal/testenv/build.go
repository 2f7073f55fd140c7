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

package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/catena-dev/catena/internal/testutil"
)

// BuildProgram builds a program of cmd/ and returns its path.
func BuildProgram(ctx context.Context, name string) (string, error) {
	return build(ctx, name, "hack/build.sh", name)
}

// built are the programs that this process has built, by name. A suite starts some of them many times, and finding out that
// one is up to date takes seconds.
var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// build runs a command that builds bin/NAME, unless it is up to date. The file lock is for suites that build the same
// program at the same time.
func build(ctx context.Context, name string, args ...string) (string, error) {
	built.Lock()
	defer built.Unlock()
	if path := built.paths[name]; path != "" {
		return path, nil
	}
	bin := filepath.Join(testutil.Root(), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = testutil.Root()
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unable to build bin/%s: %w\n%s", name, err, output)
	}
	built.paths[name] = filepath.Join(bin, name)
	return built.paths[name], nil
}
