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

package monitoring_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

const operatorNamespace = "catena-system"

// TestPrometheus: a Prometheus that scrapes an operator and a gateway as the component describes it has data for each query of the
// dashboard and each metric of the alerts, and docs/operations.md lists all metrics of both.
func TestPrometheus(t *testing.T) {
	testenv.SkipIfShort(t)
	binary := program(t, "prometheus")
	env, err := testenv.Start(t.Context(), catenatest.Options{GarbageCollector: catenatest.Required})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	operator, err := env.StartOperator(t.Context(), catenatest.OperatorOptions{Args: []string{
		"--leader-elect", "--tls-cert-file=", "--tls-private-key-file=", "--serving-secret=catena-system/catena-resolve-tls",
		"--certificate-overlap=10s", // the APIService, which catenatest writes, is repaired at a fifth of that
		"--shutdown-delay-duration=0s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	gateway, metricsAddress := startGateway(t, env)
	createQuota(t, env)
	p := startPrometheus(t, binary, config(t, env, operator.Port, metricsAddress))
	talk(t, gateway)

	t.Run("dashboard", func(t *testing.T) {
		for panel, queries := range dashboardQueries(t) {
			for _, query := range queries {
				t.Run(panel, func(t *testing.T) { p.wantData(t, query) })
			}
		}
	})
	t.Run("alerts", func(t *testing.T) {
		for _, rule := range alerts(t) {
			for _, selector := range selectors(t, rule.Expr) {
				t.Run(rule.Alert, func(t *testing.T) { p.wantData(t, selector) })
			}
		}
	})
	t.Run("controllers", func(t *testing.T) { p.wantControllers(t) })
	// Metrics about a namespace are not attributed to that of the operator.
	p.wantData(t, `catena_session_quota_used_ratio{namespace="default"}`)
	t.Run("metrics in docs", func(t *testing.T) { checkMetrics(t, p) })
}

// startGateway starts a gateway with files that it reloads, and returns the address of its metrics.
func startGateway(t *testing.T, env *testenv.Environment) (gateway *testenv.Gateway, metricsAddress string) {
	t.Helper()
	engine := httptest.NewServer(enginetest.Handler())
	t.Cleanup(engine.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sk-of-the-gateway"), 0o600); err != nil {
		t.Fatal(err)
	}
	ports, err := subprocess.FreePorts(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	metricsAddress = subprocess.Loopback(ports[0])
	gateway, err = env.StartGateway(t.Context(), testenv.GatewayOptions{
		Upstream: engine.URL, Args: []string{"--metrics-bind-address=" + metricsAddress, "--upstream-api-key-file=" + key},
	})
	if err != nil {
		t.Fatal(err)
	}
	return gateway, metricsAddress
}

func createQuota(t *testing.T, env *testenv.Environment) {
	t.Helper()
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "bytes"}}
	limit := resource.MustParse("1Gi")
	quota.Spec.Hard.Bytes = &limit
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
}

// talk has a conversation of three turns, the last of which is a stream.
func talk(t *testing.T, gateway *testenv.Gateway) {
	t.Helper()
	previous := ""
	for _, stream := range []string{"false", "false", "true"} {
		body := fmt.Sprintf(`{"model":"scripted","input":"My name is Ada.","previous_response_id":%s,"stream":%s}`, previous, stream)
		if previous == "" {
			body = `{"model":"scripted","input":"My name is Ada."}`
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, gateway.URL+"/v1/responses", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var created struct{ ID json.RawMessage }
		if stream == "false" {
			err = json.NewDecoder(response.Body).Decode(&created)
		}
		if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("status %d: %v", response.StatusCode, err)
		}
		previous = string(created.ID)
	}
}

// config writes the configuration of a Prometheus that does what the component asks for, and returns its path. The jobs are named as the
// Prometheus operator names them.
func config(t *testing.T, env *testenv.Environment, operatorPort int, gateway string) string {
	t.Helper()
	monitor := read[monitoringv1.ServiceMonitor](t, "operator.yaml")
	endpoint := monitor.Spec.Endpoints[0]
	ca := &corev1.Secret{}
	secret := endpoint.TLSConfig.CA.Secret
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: monitor.Namespace, Name: secret.Name}, ca); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	content, err := json.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{writeRules(t)},
		"scrape_configs": []any{
			map[string]any{
				"job_name": "catena-resolve", "scheme": endpoint.Scheme, "metrics_path": endpoint.Path, "honor_labels": endpoint.HonorLabels,
				"authorization":  map[string]any{"credentials_file": write(t, dir, "token", []byte(prometheusToken(t, env)))},
				"tls_config":     map[string]any{"server_name": *endpoint.TLSConfig.ServerName, "ca_file": write(t, dir, "ca.crt", ca.Data[secret.Key])},
				"static_configs": []any{map[string]any{"targets": []string{subprocess.Loopback(operatorPort)}, "labels": map[string]any{"namespace": operatorNamespace}}},
			},
			apiServer(t, dir, env.Config),
			map[string]any{"job_name": "catena-system/catena-gateway", "static_configs": []any{map[string]any{"targets": []string{gateway}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, dir, "prometheus.yaml", content)
}

// apiServer returns the job that kube-prometheus has for the kube-apiserver.
func apiServer(t *testing.T, dir string, config *rest.Config) map[string]any {
	t.Helper()
	url, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"job_name": "apiserver", "scheme": "https",
		"tls_config": map[string]any{
			"ca_file":   write(t, dir, "apiserver.crt", config.CAData),
			"cert_file": write(t, dir, "client.crt", config.CertData), "key_file": write(t, dir, "client.key", config.KeyData),
		},
		"static_configs": []any{map[string]any{"targets": []string{url.Host}}},
	}
}

func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// prometheusToken returns a token of the service account that the component permits to read the metrics.
func prometheusToken(t *testing.T, env *testenv.Environment) string {
	t.Helper()
	binding := &unstructured.Unstructured{Object: read[map[string]any](t, "role_binding.yaml")}
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	subject := subjects[0].(map[string]any)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: subject["namespace"].(string)}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: subject["name"].(string)}}
	for _, object := range []client.Object{namespace, account, binding} {
		if err := env.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	token := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// selectors returns the selectors of series in an expression.
func selectors(t *testing.T, expression string) (found []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found = append(found, selector.String())
		}
		return nil
	})
	return found
}

// wantControllers: the alerts and panels about reconciles and queues select every controller of the operator.
func (p *prometheus) wantControllers(t *testing.T) {
	t.Helper()
	queries := slices.Concat(slices.Collect(maps.Values(dashboardQueries(t)))...)
	for _, rule := range alerts(t) {
		queries = append(queries, rule.Expr)
	}
	all, n := p.controllers(t, "controller_runtime_reconcile_total"), 0
	for _, query := range queries {
		for _, selector := range selectors(t, query) {
			if !strings.Contains(selector, "controller=~") {
				continue
			}
			n++
			if diff := cmp.Diff(all, p.controllers(t, selector)); diff != "" {
				t.Errorf("%s (-controllers +selected):\n%s", selector, diff)
			}
		}
	}
	if len(all) < 2 || n == 0 {
		t.Errorf("%d selectors of the controllers %q", n, all)
	}
}

// controllers returns the controllers of series.
func (p *prometheus) controllers(t *testing.T, selector string) (names []string) {
	t.Helper()
	result, err := p.query(t.Context(), "count by (controller) ("+selector+")")
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range result {
		names = append(names, series.Metric["controller"])
	}
	slices.Sort(names)
	return names
}

// prometheus is a running Prometheus.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, binary, config string) *prometheus {
	t.Helper()
	ports, err := subprocess.FreePorts(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	process, err := subprocess.Start(exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"),
		"--web.listen-address="+subprocess.Loopback(ports[0])), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(process.Stop(), log.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			content, _ := os.ReadFile(log.Name())
			t.Logf("the log of Prometheus:\n%s", content)
		}
	})
	p := &prometheus{"http://" + subprocess.Loopback(ports[0])}
	testutil.Eventually(t, func(ctx context.Context) error {
		select {
		case <-process.Done():
			t.Fatalf("Prometheus has ended: %v", process.Err())
		default:
		}
		if up, err := p.query(ctx, "up == 1"); err != nil || len(up) < 3 {
			return fmt.Errorf("not all targets can be scraped: %v %w", up, err)
		}
		return nil
	})
	return p
}

// get reads the data of an answer of the API.
func (p *prometheus) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// series is a series with its current value.
type series struct {
	Metric map[string]string
	Value  [2]any
}

func (p *prometheus) query(ctx context.Context, query string) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "query?"+url.Values{"query": {query}}.Encode(), &data)
	return data.Result, err
}

// wantData waits until a query has a number as its result.
func (p *prometheus) wantData(t *testing.T, query string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		result, err := p.query(ctx, query)
		if err != nil {
			return err
		}
		for _, series := range result {
			if series.Value[1] != "NaN" {
				return nil
			}
		}
		return fmt.Errorf("%s has no data: %v", query, result)
	})
}
