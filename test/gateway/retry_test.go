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

package gateway_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
)

// TestNoSecondRun checks that the model runs once for a turn that cannot be saved, although OpenAI's client retries.
func TestNoSecondRun(t *testing.T) {
	full := env.NewNamespace(t)
	none := corev1.ResourceList{"count/responsesessions.sessions.catena.dev": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as the quota controller does
	if err := env.Client.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]string{
		"a full quota":      testenv.StoreURL(full, env.Kubeconfig),
		"no such namespace": testenv.StoreURL("no-such-namespace", env.Kubeconfig),
		"no rights":         testenv.StoreURL("default", stranger(t)),
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			scripted := enginetest.Handler()
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				scripted.ServeHTTP(w, r)
			}))
			defer engine.Close()
			options := testenv.GatewayOptions{Upstream: engine.URL, Race: true, Args: []string{"--store=" + store}}
			gateway, err := env.StartGateway(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			client := responses.NewResponseService(option.WithBaseURL(gateway.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(2))
			_, err = client.New(t.Context(), params("", user("hello")))
			if e, ok := errors.AsType[*responses.Error](err); !ok || e.StatusCode < http.StatusInternalServerError {
				t.Errorf("got %v, want a server error", err)
			}
			if got := runs.Load(); got != 1 {
				t.Errorf("the model ran %d times", got)
			}
			if err := gateway.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stranger returns the kubeconfig of a user without any rights.
func stranger(t *testing.T) string {
	t.Helper()
	kubeconfig, err := env.KubeconfigFor("stranger")
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
