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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

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
	p = &unresponsiveProxy{unanswered: map[string]*atomic.Int64{}}
	for _, resource := range resources {
		p.unanswered[resource] = &atomic.Int64{}
	}
	kubeconfig = env.Proxy(t, "catena-system", "catena", func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		for resource, unanswered := range p.unanswered {
			if p.silent.Load() && r.URL.Query().Get("watch") == "" && strings.Contains(r.URL.Path+"/", "/"+resource+"/") {
				unanswered.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // otherwise, the server does not detect that the client disconnected
				<-r.Context().Done()
				return
			}
		}
		forward.ServeHTTP(w, r)
	})
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, operator.HealthURL+"/healthz?verbose", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/healthz returned %d, error %v", response.StatusCode, err)
	}
	for _, check := range []string{"reconciles", "conversation-reconciles", "conversation-deletions"} {
		if !strings.Contains(string(checks), "[+]"+check+" ok") {
			t.Errorf("no check of the %s:\n%s", check, checks)
		}
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
