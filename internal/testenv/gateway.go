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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testutil"
)

// gatewayName is the name of the gateways' service account.
const gatewayName = "catena-gateway"

// GatewayOptions are the options of StartGateway.
type GatewayOptions struct {
	// Namespace is the namespace of the turns, "default" if empty.
	Namespace string

	// Upstream is the URL of the engine.
	Upstream string

	// Port is the port of the Responses API; 0 is a free port.
	Port int

	// Race builds the gateway with the race detector.
	Race bool

	// Args are appended to the gateway's command line, and override what StartGateway sets.
	Args []string
}

// Gateway is a process of the reference gateway, with the rights of the ClusterRole edit in its namespace and no others.
type Gateway struct {
	// URL is the base URL of the Responses API, without the /v1.
	URL string

	// Port is the port of URL.
	Port int

	// LogFile is the path of the gateway's log.
	LogFile string

	process *subprocess.Process
	killed  bool
}

// StartGateway builds cmd/gateway and runs it with a store in the cluster. It returns when the gateway is ready.
func (e *Environment) StartGateway(ctx context.Context, options GatewayOptions) (*Gateway, error) {
	if options.Namespace == "" {
		options.Namespace = metav1.NamespaceDefault
	}
	binary, err := buildGateway(ctx, options.Race)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := e.gatewayUser(ctx, options.Namespace)
	if err != nil {
		return nil, err
	}
	gateway, health, err := e.runGateway(binary, kubeconfig, options)
	if err != nil {
		return nil, fmt.Errorf("unable to start the gateway: %w", err)
	}
	if err := subprocess.WaitUntilReady(ctx, health, gateway.Done(), gateway.Err); err != nil {
		return nil, errors.Join(fmt.Errorf("the gateway did not become ready, see %s: %w", gateway.LogFile, err), gateway.process.Stop())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gateways = append(e.gateways, gateway)
	return gateway, nil
}

// Stop signals the gateway to stop and waits until it has ended. It returns an error if the gateway ends with one, as it
// does if the race detector has found a race.
func (g *Gateway) Stop() error {
	if err := g.process.Stop(); err != nil {
		return err
	}
	if g.process.Err() != nil && !g.killed {
		return fmt.Errorf("the gateway failed, see %s: %w", g.LogFile, g.process.Err())
	}
	return nil
}

// Kill kills the gateway and waits until it has ended, which Stop then does not report as an error. It must not be called while Stop is.
func (g *Gateway) Kill() error {
	g.killed = true
	return g.process.Kill()
}

// Done is closed when the gateway's process has ended, for whatever reason.
func (g *Gateway) Done() <-chan struct{} { return g.process.Done() }

// Err returns the error with which the gateway's process ended, or nil. It must not be called before Done is closed.
func (g *Gateway) Err() error { return g.process.Err() }

// PID returns the ID of the gateway's process.
func (g *Gateway) PID() int { return g.process.PID() }

// GatewayLog returns the path of the log of all gateways.
func (e *Environment) GatewayLog() string { return filepath.Join(e.LogDir, "gateway.log") }

func (e *Environment) runGateway(binary, kubeconfig string, options GatewayOptions) (gateway *Gateway, health string, err error) {
	ports, err := subprocess.FreePorts(2, options.Port)
	if err != nil {
		return nil, "", err
	}
	address, healthAddress := subprocess.Loopback(ports[0]), subprocess.Loopback(ports[1])
	args := []string{
		"--store=" + StoreURL(options.Namespace, kubeconfig),
		"--upstream=" + options.Upstream,
		"--listen-address=" + address,
		"--metrics-bind-address=0",
		"--health-probe-bind-address=" + healthAddress,
		"--shutdown-delay-duration=0s",
		"--shutdown-timeout=30s", // for streams that a test leaves behind
	}
	log, err := os.OpenFile(e.GatewayLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = log.Close() }() // the child keeps its own
	process, err := subprocess.Start(exec.Command(binary, append(args, options.Args...)...), log)
	if err != nil {
		return nil, "", err
	}
	return &Gateway{URL: "http://" + address, Port: ports[0], LogFile: log.Name(), process: process}, "http://" + healthAddress, nil
}

// StoreURL returns the URL of the store in a namespace of the cluster that a kubeconfig file names.
func StoreURL(namespace, kubeconfig string) string {
	return "kube:?" + url.Values{"namespace": {namespace}, "kubeconfig": {kubeconfig}}.Encode()
}

// gatewayUser returns the kubeconfig of the gateways' service account in a namespace, with the rights that gateways have in a cluster.
func (e *Environment) gatewayUser(ctx context.Context, namespace string) (kubeconfig string, err error) {
	raw, err := os.ReadFile(filepath.Join(testutil.Root(), "config", "components", "gateway", "role.yaml"))
	if err != nil {
		return "", err
	}
	role := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(raw, &role.Object); err != nil {
		return "", err
	}
	if err := manifests.Apply(ctx, e.Client, role); err != nil {
		return "", err
	}
	return e.serviceAccount(ctx, namespace, role.GetName())
}

// Editor returns the kubeconfig of the gateways' service account in a namespace, bound to the ClusterRole edit.
func (e *Environment) Editor(ctx context.Context, namespace string) (kubeconfig string, err error) {
	return e.serviceAccount(ctx, namespace, "edit")
}

// serviceAccount returns the kubeconfig of the gateways' service account in a namespace, bound to a ClusterRole. It waits until the
// kube-apiserver has seen the binding.
func (e *Environment) serviceAccount(ctx context.Context, namespace, role string) (kubeconfig string, err error) {
	user := "system:serviceaccount:" + namespace + ":" + gatewayName
	binding := rbacv1ac.RoleBinding(role, namespace).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(role)).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).WithName(gatewayName))
	if err := e.Client.Apply(ctx, binding, client.FieldOwner("catena-testenv"), client.ForceOwnership); err != nil {
		return "", fmt.Errorf("unable to bind the gateway's role: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, subprocess.Patience)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, subprocess.PollInterval, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "snapshotchunks",
			},
		}}
		err := e.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return "", fmt.Errorf("the ClusterRole %s does not permit the gateway to write snapshots: %w", role, err)
	}
	return e.KubeconfigFor(user, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// PodConfig creates the gateways' service account in a namespace, bound to the ClusterRole edit, and returns how a Pod with it reaches
// the cluster: with a token, whose rights the operator has to ask for, unlike those of an administrator.
func (e *Environment) PodConfig(ctx context.Context, namespace string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gatewayName}}
	if err := e.Client.Create(ctx, account); err != nil {
		return nil, err
	}
	if _, err := e.Editor(ctx, namespace); err != nil {
		return nil, err
	}
	token := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(e.Config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	return config, nil
}

// WriteKubeconfig writes what PodConfig has returned to a kubeconfig file, and returns its path.
func (e *Environment) WriteKubeconfig(pod *rest.Config) (path string, err error) {
	file, err := os.CreateTemp(filepath.Dir(e.Kubeconfig), "*.kubeconfig")
	if err != nil {
		return "", err
	}
	const name = "pod"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{name: {Server: pod.Host, CertificateAuthorityData: pod.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {Token: pod.BearerToken}},
		Contexts:  map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}}, CurrentContext: name,
	}, file.Name())
	return file.Name(), errors.Join(err, file.Close())
}

// buildGateway builds bin/gateway, or bin/gateway-race.
func buildGateway(ctx context.Context, race bool) (string, error) {
	if race {
		return build(ctx, "gateway-race", "env", "CGO_ENABLED=1", "go", "build", "-race", "-o", "bin/gateway-race", "./cmd/gateway")
	}
	return BuildProgram(ctx, "gateway")
}
