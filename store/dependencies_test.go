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

package store_test

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/catena-dev/catena/"

// TestDependencies: gateways never link the API server, and link Kubernetes packages only if they import store/kube. A program
// that uses only store and store/memory does not link client-go.
func TestDependencies(t *testing.T) {
	for _, name := range goList(t, module+"store/...") {
		forbidden := []string{"k8s.io/apiserver", module + "internal/operator/resolveapi", module + "internal/operator/resolve/"}
		if !strings.HasPrefix(name, module+"store/kube") {
			forbidden = append(forbidden, "k8s.io/", "sigs.k8s.io/", module+"api/", module+"store/kube/")
		}
		if name == module+"store" {
			forbidden = append(forbidden, "modernc.org/", module+"store/sqlite/", module+"store/memory/")
		}
		for _, dependency := range goList(t, "-deps", name) {
			for _, prefix := range forbidden {
				if strings.HasPrefix(dependency+"/", prefix) {
					t.Errorf("%s depends on %s", name, dependency)
				}
			}
		}
	}
}

// goList returns the output of `go list`.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("Unable to list %v: %v", args, err)
	}
	return strings.Fields(string(out))
}
