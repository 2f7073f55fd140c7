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

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// unresponsiveProxy is a proxy between an operator and the kube-apiserver. While it is silent, it accepts requests without
// responding to them, except for watches and requests for other resources, which it forwards.
type unresponsiveProxy struct {
	silent atomic.Bool
	// unanswered is the number of unanswered requests, by resource.
	unanswered map[string]*atomic.Int64
}

// startUnresponsiveProxy returns a proxy, and a kubeconfig whose requests go through it with the operator's rights.
func startUnresponsiveProxy(t *testing.T, resources ...string) (p *unresponsiveProxy, kubeconfig string) {
	t.Helper()
	config, err := env.ConfigFor("system:serviceaccount:catena-system:catena", "system:serviceaccounts", "system:serviceaccounts:catena-system")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	target.Scheme = "https"
	p = &unresponsiveProxy{unanswered: map[string]*atomic.Int64{}}
	for _, resource := range resources {
		p.unanswered[resource] = &atomic.Int64{}
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for resource, unanswered := range p.unanswered {
			if p.silent.Load() && r.URL.Query().Get("watch") == "" && strings.Contains(r.URL.Path+"/", "/"+resource+"/") {
				unanswered.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // otherwise, the server does not detect that the client disconnected
				<-r.Context().Done()
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// TestUnresponsiveAPIServer: a kube-apiserver that accepts requests without responding blocks nothing forever: reconciles and
// sweeps end with an error, which a metric counts, and are retried. The operator stays healthy, because a restart would not
// help.
func TestUnresponsiveAPIServer(t *testing.T) {
	namespace := env.NewNamespace(t)
	proxy, kubeconfig := startUnresponsiveProxy(t, "responsesessions", "snapshotchunks")
	if err := operator.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restartOperator(t) })
	operator = startOperator(t, operator.Port, "--kubeconfig="+kubeconfig, "--api-timeout=500ms", "--snapshot-sweep-interval=100ms")
	proxy.silent.Store(true)
	testsession.Make(namespace, "resp_1").Create(t, env.Client)
	testsession.Make(namespace, "resp_2").After("resp_gone").Create(t, env.Client)
	testutil.Eventually(t, func(ctx context.Context) error {
		for _, resource := range []string{"responsesessions", "snapshotchunks"} {
			if proxy.unanswered[resource].Load() < 3 {
				return fmt.Errorf("%s: only %d requests were sent", resource, proxy.unanswered[resource].Load())
			}
		}
		failed, err := testenv.Sum(ctx, operator, "controller_runtime_reconcile_errors_total", `controller="responsesession"`)
		if err != nil {
			return err
		}
		unanswered, err := testenv.Sum(ctx, operator, "rest_client_requests_total", `code="<error>"`)
		if err != nil {
			return err
		}
		return unless(failed > 0 && unanswered > 0, fmt.Sprintf("%g failed reconciles, %g unanswered requests", failed, unanswered))
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, operator.HealthURL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/healthz returned %d, error %v", response.StatusCode, err)
	}

	proxy.silent.Store(false)
	testsession.WaitForReason(t, env.Client, namespace, "resp_1", v1alpha1.ReasonResolved)
	testsession.WaitForReason(t, env.Client, namespace, "resp_2", v1alpha1.ReasonParentNotFound)
	lines, err := os.ReadFile(operator.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(lines), "Unable to sweep the snapshots") {
		t.Error("the log does not contain the failed sweeps")
	}
}
