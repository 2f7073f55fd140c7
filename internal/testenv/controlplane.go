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
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// etcdQuota is etcd's largest sensible quota. The default of 2 GiB does not hold 100,000 turns of 8 KiB until the
// first compaction.
const etcdQuota = "8589934592"

// controllers are those of kube-controller-manager that conversations depend on.
var controllers = []string{
	"garbage-collector-controller",
	"namespace-controller",
	"clusterrole-aggregation-controller",
}

// Root returns the root directory of this repository: the first directory with hack/build.sh in it, from the working
// directory upwards. Programs built with -trimpath do not know where their source is.
func Root() string {
	start, err := os.Getwd()
	for dir := start; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "build.sh")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	panic(fmt.Sprintf("testenv: the working directory %q is not in the repository of Catena", start))
}

// Binary returns the path of a control plane binary: from KUBEBUILDER_ASSETS, from bin/k8s or from the PATH.
func Binary(name string) (string, error) {
	for _, dir := range []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(Root(), "bin", "k8s")} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); dir != "" && err == nil {
			return filepath.Abs(path)
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither in KUBEBUILDER_ASSETS nor in bin/k8s nor in the PATH: run `make control-plane`", name)
}

func (e *Environment) startControlPlane(options Options) error {
	useExistingCluster := false
	e.envtest.UseExistingCluster = &useExistingCluster
	e.envtest.ControlPlaneStartTimeout, e.envtest.ControlPlaneStopTimeout = patience, patience
	e.envtest.Scheme = Scheme()
	e.envtest.CRDInstallOptions = envtest.CRDInstallOptions{MaxTime: patience}
	e.envtest.CRDDirectoryPaths = []string{filepath.Join(Root(), "config", "crd", "bases")}
	e.envtest.ErrorIfCRDPathMissing = true
	ports, err := FreePorts(3, 0)
	if err != nil {
		return err
	}
	if err := e.configureEtcd(options, ports[0], ports[1]); err != nil {
		return err
	}
	if err := e.configureAPIServer(ports[2]); err != nil {
		return err
	}
	if e.guard, err = startGuard(e.dir, e.temporary); err != nil {
		return err
	}
	_, err = e.envtest.Start()
	return err
}

func (e *Environment) configureEtcd(options Options, port, peerPort int) error {
	path, err := Binary("etcd")
	if err != nil {
		return err
	}
	log, err := e.openLog("etcd")
	if err != nil {
		return err
	}
	etcd := &envtest.Etcd{Path: path, DataDir: filepath.Join(e.dir, "etcd"), Out: log, Err: log}
	etcd.URL = &url.URL{Scheme: "http", Host: loopback(port)}
	etcd.Configure().Set("listen-peer-urls", "http://"+loopback(peerPort)).Set("quota-backend-bytes", etcdQuota)
	if !options.UnsafeNoFsync {
		etcd.Configure().Disable("unsafe-no-fsync") // envtest's default
	}
	e.envtest.ControlPlane.Etcd = etcd
	return nil
}

func (e *Environment) configureAPIServer(port int) error {
	path, err := Binary("kube-apiserver")
	if err != nil {
		return err
	}
	log, err := e.openLog("kube-apiserver")
	if err != nil {
		return err
	}
	proxy, err := writeFrontProxyFiles(filepath.Join(e.dir, "pki"))
	if err != nil {
		return err
	}
	server := e.envtest.ControlPlane.GetAPIServer()
	server.Path, server.CertDir, server.Out, server.Err = path, filepath.Join(e.dir, "apiserver"), log, log
	server.SecureServing.Address, server.SecureServing.Port = "127.0.0.1", strconv.Itoa(port)
	server.Configure().
		// End watches when asked to stop; by default they hold the API server for a minute.
		Set("shutdown-watch-termination-grace-period", "5s").
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		// The aggregation layer. Routing stays off its endpoints (no --enable-aggregator-routing), so that an
		// ExternalName Service can lead to a server on this machine.
		Set("requestheader-client-ca-file", proxy.ca).
		Set("requestheader-allowed-names", frontProxyName).
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-username-headers", "X-Remote-User").
		Set("proxy-client-cert-file", proxy.cert).
		Set("proxy-client-key-file", proxy.key)
	return nil
}

func (e *Environment) startControllerManager() error {
	path, err := Binary("kube-controller-manager")
	if err != nil {
		return err
	}
	log, err := e.openLog("kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig, err := e.KubeconfigFor("system:kube-controller-manager")
	if err != nil {
		return err
	}
	e.manager, err = startProcess(exec.Command(path,
		"--kubeconfig="+kubeconfig,
		"--controllers="+strings.Join(controllers, ","),
		// Each controller as its own service account: without it the garbage collector may delete nothing.
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	), log)
	return err
}
