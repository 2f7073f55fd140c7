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
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/testmain"
	"github.com/catena-dev/catena/internal/testutil"
)

// Environment is a catenatest.Environment whose operators and gateways are built from source.
type Environment struct {
	*catenatest.Environment

	mu       sync.Mutex
	gateways []*Gateway
}

// Start starts a control plane. It runs no operator: see StartOperator.
func Start(ctx context.Context, options catenatest.Options) (*Environment, error) {
	options.NoOperator = true
	if options.BinaryDir == "" {
		options.BinaryDir = BinaryDir()
	}
	env, err := catenatest.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("a control plane is required (`make control-plane` builds one into bin/k8s): %w", err)
	}
	return &Environment{Environment: env}, nil
}

// BinaryDir returns the directory of the control plane's binaries: KUBEBUILDER_ASSETS if it is set, otherwise bin/k8s.
func BinaryDir() string {
	return cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(testutil.Root(), "bin", "k8s"))
}

// Stop stops everything that the environment has started. It returns an error if a gateway has ended with one, as it does
// if the race detector has found a race in it.
func (e *Environment) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, gateway := range slices.Backward(e.gateways) {
		errs = append(errs, gateway.Stop())
	}
	return errors.Join(append(errs, e.Environment.Stop())...)
}

// StartOperator builds cmd/catena and starts it as catenatest does.
func (e *Environment) StartOperator(ctx context.Context, options catenatest.OperatorOptions) (_ *catenatest.Operator, err error) {
	if options.Binary, err = BuildProgram(ctx, "catena"); err != nil {
		return nil, err
	}
	return e.Environment.StartOperator(ctx, options)
}

// ApplySamples applies config/samples to the namespace "default" and returns the objects.
func (e *Environment) ApplySamples(ctx context.Context) ([]*unstructured.Unstructured, error) {
	samples, err := manifests.Read(config.FS, "samples")
	if err != nil {
		return nil, err
	}
	return samples, manifests.Apply(ctx, e.Client, samples...)
}

// NewNamespace creates a namespace with a unique name. Unlike the one of Namespace, it is not deleted before the
// environment stops, so that the operator has nothing to do after the test.
func (e *Environment) NewNamespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("unable to create a namespace: %v", err)
	}
	return namespace.Name
}

// NewUser returns the config of a user with a Role or ClusterRole in one namespace. The user's name is NAME-NAMESPACE.
func (e *Environment) NewUser(t testing.TB, name, namespace, roleKind, role string) *rest.Config {
	t.Helper()
	name += "-" + namespace
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: roleKind, Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if err := e.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	config, err := e.ConfigFor(name)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Kubectl returns the path of kubectl: from the directory of the control plane, or from the PATH.
func Kubectl() (string, error) {
	path := filepath.Join(BinaryDir(), "kubectl")
	if _, err := os.Stat(path); err == nil {
		return filepath.Abs(path)
	}
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", fmt.Errorf("kubectl is not in %s or the PATH: run `make control-plane`: %w", BinaryDir(), err)
	}
	return path, nil
}

// skipped is the reason for a skipped test.
const skipped = "with -short, tests that need a control plane are skipped"

// SkipIfShort skips a test with -short. A package in which only some tests need a control plane calls it from those.
func SkipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(skipped)
	}
}

// RunSuite runs tests that share a control plane with a garbage collector, and returns the code to exit with. TestMain
// calls it. Before the tests, prepare starts anything else that they need. With -short, no test of the package runs.
func RunSuite(run func() int, prepare func(ctx context.Context, env *Environment) error) int {
	return RunSuiteWith(nil, run, prepare)
}

// RunSuiteWith is RunSuite with flags of the kube-apiserver.
func RunSuiteWith(apiServerFlags map[string]string, run func() int, prepare func(ctx context.Context, env *Environment) error) int {
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stdout, skipped)
		if err := flag.Set("test.run", "^$"); err != nil { // go test caches the result only if the tests run, even if none does
			panic(err)
		}
		return run()
	}
	return testmain.Run(run, func(ctx context.Context) (func() error, error) {
		env, err := Start(ctx, catenatest.Options{GarbageCollector: catenatest.Required, APIServerFlags: apiServerFlags})
		if err != nil {
			return nil, err
		}
		if err := prepare(ctx, env); err != nil {
			return nil, errors.Join(err, env.Stop())
		}
		return env.Stop, nil
	})
}
