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

package catenatest_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestConsumer runs the tests of test/consumer, a module that imports only public packages, outside of the repository and
// with only the binaries that setup-envtest installs.
func TestConsumer(t *testing.T) {
	testenv.SkipIfShort(t)
	root, dir := testutil.Root(), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "test", "consumer"))); err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	module = bytes.ReplaceAll(module, []byte("=> ../.."), []byte("=> "+root))
	// This module's go.mod already has the lines that `go mod tidy` would add.
	requirements, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, blocks, _ := strings.Cut(string(requirements), "\nrequire (")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"go.mod": fmt.Appendf(module, "\nrequire (%s", blocks), "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		path, err := filepath.Abs(filepath.Join(testenv.BinaryDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "-c", `. "$0" && GOFLAGS="$GOFLAGS -mod=mod" go test -vet=off -count=1 -v ./...`,
		filepath.Join(root, "hack", "flags.sh")) // the same flags, so that compiled packages are reused
	command.Dir = dir
	command.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets)
	output, err := command.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("found no kube-controller-manager")) {
		t.Errorf("%v, want a pass and a note about the missing kube-controller-manager:\n%s", err, output)
	}
}
