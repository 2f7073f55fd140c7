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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	sessionsv1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// Requirement states whether an environment needs a component.
type Requirement int

const (
	// IfAvailable starts the component if its binary exists.
	IfAvailable Requirement = iota
	// Required makes Start fail if the binary does not exist.
	Required
	// Off does not start the component.
	Off
)

// Options are the options of Start. The zero value suits most suites.
type Options struct {
	// BinaryDir is the directory of etcd, kube-apiserver and, optionally, kube-controller-manager. If it is empty, they
	// are looked for in the directory that the environment variable KUBEBUILDER_ASSETS names, in
	// /usr/local/kubebuilder/bin and in the PATH.
	BinaryDir string

	// Dir is where data, certificates, kubeconfigs and logs are stored. A later Start with the same Dir reuses etcd's data.
	// If Dir is empty, it is a temporary directory that Stop removes.
	Dir string

	// GarbageCollector states whether to run kube-controller-manager with its garbage collector, its namespace controller,
	// and its controllers of aggregated ClusterRoles and of ResourceQuotas.
	GarbageCollector Requirement

	// APIServerFlags are flags of the kube-apiserver, by name without dashes, in addition to those that Start sets, such as
	// "audit-policy-file".
	APIServerFlags map[string]string

	// Fsync makes etcd write to disk before it responds, as it does in production. Tests are faster without it.
	Fsync bool

	// NoOperator leaves out the operator and the aggregated API: turns can be saved, but not resolved.
	// Environment.StartOperator starts them later.
	NoOperator bool

	// Operator are the options of the operator that Start starts.
	Operator OperatorOptions
}

// Environment is a running control plane with Catena. Its methods may be called concurrently, except that Stop,
// RestartAPIServer, RestartEtcd and RestartControllerManager must not run concurrently with others.
type Environment struct {
	// Config authenticates as an administrator of the cluster, and has no client-side rate limit.
	Config *rest.Config

	// Kubeconfig is the path of a kubeconfig file for the same administrator.
	Kubeconfig string

	// Client is an uncached client for the same administrator. Its scheme has Kubernetes' own types and Catena's.
	Client client.Client

	// Store holds the turns of the namespace "default", with the rights of the same administrator.
	// Store.InNamespace returns the stores of other namespaces.
	Store *store.Store

	// Operator is the operator that Start has started, or nil if Options.NoOperator is set.
	Operator *Operator

	// GarbageCollector reports whether kube-controller-manager runs. See Options.GarbageCollector.
	GarbageCollector bool

	// ResolveCAFile is the path of the CA certificate that signed the operator's serving certificate. It is for clients
	// that call the operator directly rather than through the kube-apiserver; see kube.Options.ResolveTLS.
	ResolveCAFile string

	// LogDir is the directory of the log files, one per process.
	LogDir string

	options   Options
	dir       string
	envtest   *envtest.Environment
	guard     *subprocess.Process
	manager   *subprocess.Process
	serving   certificateFiles
	logs      []*os.File
	mu        sync.Mutex
	operators []*Operator
	stopped   bool
}

// Start starts an environment and returns when the kube-apiserver, and with it the resolve API, serves. If it returns an
// error, everything that was started has been stopped, and the log files of a temporary directory have been kept.
func Start(ctx context.Context, options Options) (_ *Environment, err error) {
	binaries, err := findBinaries(options)
	if err != nil {
		return nil, err
	}
	env, err := newEnvironment(options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, env.stop(keepDir))
		}
	}()
	if err := env.startControlPlane(binaries); err != nil {
		return nil, fmt.Errorf("unable to start the control plane, see %s: %w", env.LogDir, err)
	}
	if err := env.connect(ctx); err != nil {
		return nil, err
	}
	for _, dir := range []string{"admission", "rbac", "flowcontrol"} {
		if err := env.applyConfig(ctx, dir); err != nil {
			return nil, err
		}
	}
	if binaries.controllerManager != "" {
		// After the CRDs: the garbage collector learns of new kinds only every 30 s.
		if err := env.startControllerManager(binaries.controllerManager); err != nil {
			return nil, fmt.Errorf("unable to start the garbage collector: %w", err)
		}
	}
	if !options.NoOperator {
		if env.Operator, err = env.StartOperator(ctx, options.Operator); err != nil {
			return nil, err
		}
	}
	return env, ctx.Err()
}

// Stop stops everything that the environment has started, and removes a temporary directory. Calls after the first one do
// nothing.
func (e *Environment) Stop() error { return e.stop(e.options.Dir != "") }

// keepDir keeps a temporary directory.
const keepDir = true

func (e *Environment) stop(keepDir bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	e.stopped = true

	var errs []error
	for _, operator := range slices.Backward(e.operators) {
		errs = append(errs, operator.Stop())
	}
	if e.Store != nil {
		errs = append(errs, e.Store.Close())
	}
	errs = append(errs, e.manager.Stop(), e.envtest.Stop(), e.guard.Kill())
	for _, log := range e.logs {
		errs = append(errs, log.Close())
	}
	if !keepDir {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

func newEnvironment(options Options) (*Environment, error) {
	dir := options.Dir
	if dir == "" {
		temporary, err := os.MkdirTemp("", "catenatest-")
		if err != nil {
			return nil, err
		}
		dir = temporary
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	// Certificates are created at each start; only etcd's data and the logs of the last run stay.
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
	return &Environment{options: options, dir: dir, LogDir: filepath.Join(dir, "logs"), envtest: &envtest.Environment{}}, nil
}

// connect sets the fields that callers use to reach the API server.
func (e *Environment) connect(ctx context.Context) error {
	admin, err := e.addUser("admin", []string{"system:masters"})
	if err != nil {
		return err
	}
	e.Config = admin.Config()
	if e.Client, err = client.New(e.Config, client.Options{Scheme: newScheme()}); err != nil {
		return err
	}
	content, err := kubeconfig(admin)
	if err != nil {
		return err
	}
	e.Kubeconfig = filepath.Join(e.dir, "kubeconfig")
	if err := os.WriteFile(e.Kubeconfig, content, 0o600); err != nil {
		return err
	}
	if e.serving, err = writeServingFiles(filepath.Join(e.dir, "pki")); err != nil {
		return err
	}
	e.ResolveCAFile = e.serving.ca
	e.Store, err = kube.Open(ctx, kube.Options{Config: e.Config, Namespace: metav1.NamespaceDefault})
	return err
}

// newScheme returns a scheme with Kubernetes' own types, CustomResourceDefinition, and Catena's types.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(sessionsv1alpha1.AddToScheme(scheme))
	return scheme
}

// openLog opens the log file of a component. Stop closes it.
func (e *Environment) openLog(component string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(e.LogDir, component+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logs = append(e.logs, file)
	return file, nil
}
