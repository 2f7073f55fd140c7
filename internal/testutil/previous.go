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

package testutil

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// CheckOutPrevious writes the source that users upgrade from to a directory, as hack/previous.sh does, and returns the name of its version.
// It skips the test in a tree without a previous version, such as a shallow clone.
func CheckOutPrevious(t testing.TB, dir string) (version string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), filepath.Join(Root(), "hack", "previous.sh"), dir).Output()
	if err != nil {
		t.Fatalf("unable to read the previous version: %v", err)
	}
	if version = strings.TrimSpace(string(output)); version == "" {
		t.Skip("there is no previous commit to upgrade from")
	}
	return version
}

// BuildPrevious builds a program of cmd/ in a directory of CheckOutPrevious, and returns its path.
func BuildPrevious(ctx context.Context, dir, version, name string) (string, error) {
	command := exec.CommandContext(ctx, "hack/build.sh", name)
	command.Dir = dir
	command.Env = append(os.Environ(), "VERSION="+version)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unable to build %s of version %s: %w\n%s", name, version, err, output)
	}
	return filepath.Join(dir, "bin", name), nil
}
