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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	sessionsv1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// patience is how long a process may take to start, to stop or to be found, each. A loaded machine needs most of it.
const patience = 2 * time.Minute

// Options say what Start starts.
type Options struct {
	// Dir is where state, certificates, kubeconfigs and logs are kept. What etcd holds is found again by the next
	// Start with the same Dir. Empty means a temporary directory that Stop removes.
	Dir string

	// GarbageCollector starts kube-controller-manager with the controllers that delete orphaned children and the
	// content of deleted namespaces, and that fill aggregated ClusterRoles.
	GarbageCollector bool

	// UnsafeNoFsync lets etcd answer before its writes are on disk. Suites are faster with it; a benchmark that
	// reports a write rate must say so if it sets it.
	UnsafeNoFsync bool
}

// Environment is a running control plane. Its methods may be called from several goroutines, except that Stop and
// RestartAPIServer may not overlap with others.
type Environment struct {
	// Config is that of an administrator, without client-side rate limit.
	Config *rest.Config

	// Client is an uncached administrator's client; it knows the types of Scheme.
	Client client.Client

	// Kubeconfig is the path of a kubeconfig file for the same administrator.
	Kubeconfig string

	// Serving holds the certificate for an aggregated server of this environment.
	Serving ServingFiles

	dir       string
	temporary bool
	envtest   *envtest.Environment
	guard     *process
	manager   *process
	logs      []*os.File

	mu        sync.Mutex
	operators []*Operator
	gateways  []*Gateway
	stopped   bool
}

// Start starts a control plane with the CRDs of config/crd/bases and the policy of config/admission in it. It returns when the API server is ready. On
// error everything that was started is stopped again.
func Start(ctx context.Context, options Options) (_ *Environment, err error) {
	if options.GarbageCollector {
		// Before anything is started: assets made for envtest alone do not have it.
		if _, err := Binary("kube-controller-manager"); err != nil {
			return nil, err
		}
	}
	env, err := newEnvironment(options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			env.temporary = false // keep the logs
			err = errors.Join(err, env.Stop())
		}
	}()

	if err := env.startControlPlane(options); err != nil {
		return nil, fmt.Errorf("unable to start the control plane, see %s: %w", env.logDir(), err)
	}
	if err := env.connect(); err != nil {
		return nil, err
	}
	if _, err := env.Apply(ctx, "config/admission"); err != nil {
		return nil, err
	}
	if options.GarbageCollector {
		// After the CRDs: the garbage collector learns of new kinds only every 30 s.
		if err := env.startControllerManager(); err != nil {
			return nil, fmt.Errorf("unable to start the garbage collector: %w", err)
		}
	}
	return env, ctx.Err()
}

// Stop stops everything that the environment started, gateways and operators included, and removes a temporary
// directory. It may be called more than once.
func (e *Environment) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	e.stopped = true

	var errs []error
	for _, gateway := range slices.Backward(e.gateways) {
		errs = append(errs, gateway.Stop())
	}
	for _, operator := range slices.Backward(e.operators) {
		errs = append(errs, operator.Stop())
	}
	errs = append(errs, e.manager.stop(), e.envtest.Stop(), e.guard.kill())
	for _, log := range e.logs {
		errs = append(errs, log.Close())
	}
	if e.temporary {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

// RestartAPIServer stops the kube-apiserver and starts it again on the same port and the same etcd. Clients and their
// certificates stay valid.
func (e *Environment) RestartAPIServer(ctx context.Context) error {
	server := e.envtest.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		return fmt.Errorf("unable to stop the API server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("unable to start the API server again: %w", err)
	}
	return ctx.Err()
}

// RESTConfigFor returns a config that authenticates by client certificate as the given user, without client-side
// rate limit.
func (e *Environment) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	authenticated, err := e.addUser(user, groups)
	if err != nil {
		return nil, err
	}
	return authenticated.Config(), nil
}

// KubeconfigFor writes a kubeconfig for the given user and returns its path.
func (e *Environment) KubeconfigFor(user string, groups ...string) (string, error) {
	authenticated, err := e.addUser(user, groups)
	if err != nil {
		return "", err
	}
	content, err := authenticated.KubeConfig()
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Join(e.dir, "kubeconfigs"), "*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	return file.Name(), errors.Join(err, file.Close())
}

func (e *Environment) addUser(user string, groups []string) (*envtest.AuthenticatedUser, error) {
	base := &rest.Config{QPS: -1}
	authenticated, err := e.envtest.AddUser(envtest.User{Name: user, Groups: groups}, base)
	if err != nil {
		return nil, fmt.Errorf("unable to add user %q: %w", user, err)
	}
	return authenticated, nil
}

// Scheme returns a new scheme with Kubernetes' own types, CustomResourceDefinition, ResponseSession and SnapshotChunk.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(sessionsv1alpha1.AddToScheme(scheme))
	return scheme
}

func newEnvironment(options Options) (*Environment, error) {
	env := &Environment{dir: options.Dir, envtest: &envtest.Environment{}}
	if env.dir == "" {
		dir, err := os.MkdirTemp("", "catena-testenv-")
		if err != nil {
			return nil, err
		}
		env.dir, env.temporary = dir, true
	}
	dir, err := filepath.Abs(env.dir)
	if err != nil {
		return nil, err
	}
	env.dir = dir
	// Certificates are made anew at each start; only etcd's data and the logs of the last run stay.
	for _, name := range []string{"apiserver", "pki", "kubeconfigs", "logs"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"apiserver", "pki", "kubeconfigs", "logs", "etcd"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// connect fills in what a caller needs to talk to the API server.
func (e *Environment) connect() error {
	admin, err := e.addUser("admin", []string{"system:masters"})
	if err != nil {
		return err
	}
	e.Config = admin.Config()
	if e.Client, err = client.New(e.Config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	content, err := admin.KubeConfig()
	if err != nil {
		return err
	}
	e.Kubeconfig = filepath.Join(e.dir, "kubeconfig")
	if err := os.WriteFile(e.Kubeconfig, content, 0o600); err != nil {
		return err
	}
	e.Serving, err = writeServingFiles(filepath.Join(e.dir, "pki"))
	return err
}

func (e *Environment) logDir() string { return filepath.Join(e.dir, "logs") }

// openLog opens the log file of a component; Stop closes it.
func (e *Environment) openLog(component string) (*os.File, error) {
	path := filepath.Join(e.logDir(), component+".log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	e.logs = append(e.logs, file)
	return file, nil
}
