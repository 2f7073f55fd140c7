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

package catenatest

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/internal/testmain"
)

// Main starts an environment, stores it in env, runs the tests of m, stops the environment, and returns the code to exit
// with. Call it from TestMain:
//
//	var env *catenatest.Environment
//
//	func TestMain(m *testing.M) { os.Exit(catenatest.Main(m, &env, catenatest.Options{})) }
//
// Main sends klog's output to the logger of controller-runtime, which it discards unless log.SetLogger of
// controller-runtime was called before. With go test -list, it starts nothing.
func Main(m *testing.M, env **Environment, options Options) (code int) {
	return testmain.Run(m.Run, func(ctx context.Context) (func() error, error) {
		started, err := Start(ctx, options)
		if err != nil {
			return nil, err
		}
		if !started.GarbageCollector && options.GarbageCollector == IfAvailable {
			fmt.Fprintln(os.Stderr, "catenatest: found no kube-controller-manager: nothing is garbage-collected, and deleted namespaces remain")
		}
		*env = started
		return started.Stop, nil
	})
}

// Namespace creates a namespace with a unique name and returns the name. If there is a garbage collector, the namespace
// is deleted when the test ends, in the background; otherwise, it stays until the environment stops.
func (e *Environment) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("unable to create a namespace: %v", err)
	}
	if e.GarbageCollector {
		t.Cleanup(func() {
			if err := e.Client.Delete(context.WithoutCancel(t.Context()), namespace); err != nil {
				t.Errorf("unable to delete namespace %s: %v", namespace.Name, err)
			}
		})
	}
	return namespace.Name
}
