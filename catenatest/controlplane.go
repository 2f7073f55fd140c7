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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/subprocess"
)

const (
	// defaultBinaryDir is envtest's default.
	defaultBinaryDir = "/usr/local/kubebuilder/bin"

	// etcdQuota is etcd's largest sensible quota. The default of 2 GiB does not hold 100,000 turns of 8 KiB until the
	// first compaction.
	etcdQuota = "8589934592"
)

// controllers are the controllers of kube-controller-manager that sessions and their quotas depend on.
var controllers = []string{
	"garbage-collector-controller",
	"namespace-controller",
	"clusterrole-aggregation-controller",
	"resourcequota-controller",
}

// binaries are the paths of the control plane's programs.
type binaries struct {
	etcd, apiServer   string
	controllerManager string // empty if it is not to run
}

// findBinaries looks for all binaries before anything is started.
func findBinaries(options Options) (found binaries, err error) {
	if found.etcd, err = findBinary(options.BinaryDir, "etcd"); err != nil {
		return found, err
	}
	if found.apiServer, err = findBinary(options.BinaryDir, "kube-apiserver"); err != nil {
		return found, err
	}
	if options.GarbageCollector == Off {
		return found, nil
	}
	found.controllerManager, err = findBinary(options.BinaryDir, "kube-controller-manager")
	if options.GarbageCollector == IfAvailable {
		err = nil
	}
	return found, err
}

func findBinary(dir, name string) (string, error) {
	dirs := []string{dir}
	if dir == "" {
		dirs = []string{os.Getenv("KUBEBUILDER_ASSETS"), defaultBinaryDir}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); dir != "" && err == nil {
			return filepath.Abs(path)
		}
	}
	if dir != "" {
		return "", fmt.Errorf("%s is not in %s", name, dir)
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is not in KUBEBUILDER_ASSETS (%q), %s or the PATH: "+
		"set KUBEBUILDER_ASSETS to a directory with envtest's binaries, for example with `setup-envtest use`",
		name, os.Getenv("KUBEBUILDER_ASSETS"), defaultBinaryDir)
}

func (e *Environment) startControlPlane(binaries binaries) error {
	useExistingCluster := false
	e.envtest.UseExistingCluster = &useExistingCluster
	e.envtest.ControlPlaneStartTimeout, e.envtest.ControlPlaneStopTimeout = subprocess.Patience, subprocess.Patience
	e.envtest.Scheme = newScheme()
	crds, err := readCRDs()
	if err != nil {
		return err
	}
	e.envtest.CRDInstallOptions = envtest.CRDInstallOptions{CRDs: crds, MaxTime: subprocess.Patience}
	ports, err := subprocess.FreePorts(3, 0)
	if err != nil {
		return err
	}
	if err := e.configureEtcd(binaries.etcd, ports[0], ports[1]); err != nil {
		return err
	}
	if err := e.configureAPIServer(binaries.apiServer, ports[2]); err != nil {
		return err
	}
	// etcd and kube-apiserver, as envtest starts them, survive this process.
	temporaryDir := ""
	if e.options.Dir == "" {
		temporaryDir = e.dir
	}
	etcd, server := e.envtest.ControlPlane.Etcd, e.envtest.ControlPlane.GetAPIServer()
	if e.guard, err = subprocess.Guard(temporaryDir, "--data-dir="+etcd.DataDir, "--cert-dir="+server.CertDir); err != nil {
		return err
	}
	_, err = e.envtest.Start()
	return err
}

func readCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	objects, err := manifests.Read(config.FS, "crd/bases")
	if err != nil {
		return nil, err
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(objects))
	for i, object := range objects {
		crds[i] = &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crds[i]); err != nil {
			return nil, err
		}
	}
	return crds, nil
}

func (e *Environment) configureEtcd(path string, port, peerPort int) error {
	log, err := e.openLog("etcd")
	if err != nil {
		return err
	}
	etcd := &envtest.Etcd{Path: path, DataDir: filepath.Join(e.dir, "etcd"), Out: log, Err: log}
	etcd.URL = &url.URL{Scheme: "http", Host: subprocess.Loopback(port)}
	etcd.Configure().Set("listen-peer-urls", "http://"+subprocess.Loopback(peerPort)).Set("quota-backend-bytes", etcdQuota)
	if e.options.Fsync {
		etcd.Configure().Disable("unsafe-no-fsync") // envtest's default
	}
	e.envtest.ControlPlane.Etcd = etcd
	return nil
}

func (e *Environment) configureAPIServer(path string, port int) error {
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
		// End watches when asked to stop; by default, they keep the API server alive for a minute.
		Set("shutdown-watch-termination-grace-period", "5s").
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		// The aggregation layer. Endpoint routing stays off (no --enable-aggregator-routing), so that an ExternalName
		// Service can lead to a server on this machine.
		Set("requestheader-client-ca-file", proxy.ca).
		Set("requestheader-allowed-names", frontProxyName).
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-username-headers", "X-Remote-User").
		Set("proxy-client-cert-file", proxy.cert).
		Set("proxy-client-key-file", proxy.key)
	for name, value := range e.options.APIServerFlags {
		server.Configure().Set(name, value)
	}
	return nil
}

// RestartAPIServer stops the kube-apiserver, if it still runs, and starts it again on the same port with the same etcd.
// Clients and their certificates stay valid. It does not wait for the resolve API; see WaitForResolveAPI.
func (e *Environment) RestartAPIServer(ctx context.Context) error {
	server := e.envtest.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		return fmt.Errorf("unable to stop the API server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("unable to restart the API server: %w", err)
	}
	return ctx.Err()
}

// RestartEtcd stops etcd, if it still runs, and starts it again on the same port with the same data. The kube-apiserver
// reconnects by itself.
func (e *Environment) RestartEtcd(ctx context.Context) error {
	etcd := e.envtest.ControlPlane.Etcd
	if err := etcd.Stop(); err != nil {
		return fmt.Errorf("unable to stop etcd: %w", err)
	}
	if err := etcd.Start(); err != nil {
		return fmt.Errorf("unable to restart etcd: %w", err)
	}
	return ctx.Err()
}

// RestartControllerManager stops the kube-controller-manager and starts it again. Its garbage collector, which looks for
// new kinds and versions only every 30 s, then discovers everything that the API server serves.
func (e *Environment) RestartControllerManager() error {
	if err := e.manager.Stop(); err != nil {
		return fmt.Errorf("unable to stop the controller manager: %w", err)
	}
	path, err := findBinary(e.options.BinaryDir, "kube-controller-manager")
	if err != nil {
		return err
	}
	return e.startControllerManager(path)
}

// CompactEtcd removes the history from etcd, as it does every few minutes in a cluster: a list that has been read only
// partly expires, and a watch that has fallen behind ends.
func (e *Environment) CompactEtcd(ctx context.Context) error {
	var current struct{ Header struct{ Revision string } }
	if err := e.callEtcd(ctx, "/v3/kv/range", `{"key":"AA=="}`, &current); err != nil {
		return fmt.Errorf("unable to read etcd's revision: %w", err)
	}
	err := e.callEtcd(ctx, "/v3/kv/compaction", `{"physical":true,"revision":"`+current.Header.Revision+`"}`, &struct{}{})
	if err != nil && !strings.Contains(err.Error(), "has been compacted") { // there is no history
		return fmt.Errorf("unable to compact etcd: %w", err)
	}
	return nil
}

// EtcdBytes returns the size of the part of etcd's database that is in use, in bytes.
func (e *Environment) EtcdBytes(ctx context.Context) (int64, error) {
	var status struct {
		DBSizeInUse int64 `json:",string"`
	}
	if err := e.callEtcd(ctx, "/v3/maintenance/status", "{}", &status); err != nil {
		return 0, fmt.Errorf("unable to read etcd's status: %w", err)
	}
	return status.DBSizeInUse, nil
}

// EtcdLogBytes returns how many bytes etcd has written to its log since it started.
func (e *Environment) EtcdLogBytes(ctx context.Context) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.envtest.ControlPlane.Etcd.URL.JoinPath("/metrics").String(), http.NoBody)
	if err != nil {
		return 0, err
	}
	metrics, err := doEtcd(request)
	if err != nil {
		return 0, fmt.Errorf("unable to read etcd's metrics: %w", err)
	}
	_, after, _ := strings.Cut(string(metrics), "\netcd_disk_wal_write_bytes_total ")
	value, _, _ := strings.Cut(after, "\n")
	written, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("etcd's metrics do not have the bytes in its log: %w", err)
	}
	return int64(written), nil
}

// callEtcd calls a method of etcd's API, and decodes the result.
func (e *Environment) callEtcd(ctx context.Context, path, body string, into any) error {
	url := e.envtest.ControlPlane.Etcd.URL.JoinPath(path).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	content, err := doEtcd(request)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// doEtcd sends a request to etcd and returns the body of the response.
func doEtcd(request *http.Request) ([]byte, error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd responded with %s: %s", response.Status, content)
	}
	return content, nil
}

func (e *Environment) startControllerManager(path string) error {
	log, err := e.openLog("kube-controller-manager")
	if err != nil {
		return err
	}
	kubeconfig, err := e.KubeconfigFor("system:kube-controller-manager")
	if err != nil {
		return err
	}
	e.manager, err = subprocess.Start(exec.Command(path,
		"--kubeconfig="+kubeconfig,
		"--controllers="+strings.Join(controllers, ","),
		// One service account per controller. Without it, the garbage collector has no permission to delete objects.
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	), log)
	e.GarbageCollector = err == nil
	return err
}
