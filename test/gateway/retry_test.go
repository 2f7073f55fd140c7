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
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestNoSecondRun checks that the model runs at most once for a turn that cannot be saved, although OpenAI's client
// retries, and not at all if the failure is known in advance.
func TestNoSecondRun(t *testing.T) {
	full, large := env.NewNamespace(t), env.NewNamespace(t)
	none := corev1.ResourceList{"count/responsesessions.sessions.catena.dev": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error { // until Kubernetes' controller has counted, the quota rejects requests for another reason
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Used) == 0 {
			return errors.New("the quota has no usage yet")
		}
		return nil
	})
	reachLimit(t, large)
	for name, tc := range map[string]struct {
		store    string
		want     int
		wantRuns int64
	}{
		"exceeded ResourceQuota": {testenv.StoreURL(full, env.Kubeconfig), http.StatusTooManyRequests, 1},
		"exceeded SessionQuota":  {testenv.StoreURL(large, env.Kubeconfig), http.StatusTooManyRequests, 0},
		"missing namespace":      {testenv.StoreURL("no-such-namespace", env.Kubeconfig), http.StatusInternalServerError, 1},
		"no permissions":         {testenv.StoreURL("default", stranger(t)), http.StatusInternalServerError, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			scripted := enginetest.Handler()
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				scripted.ServeHTTP(w, r)
			}))
			defer engine.Close()
			options := testenv.GatewayOptions{Upstream: engine.URL, Race: true, Args: []string{"--store=" + tc.store}}
			gateway, err := env.StartGateway(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			api := responses.NewResponseService(option.WithBaseURL(gateway.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(2))
			_, err = api.New(t.Context(), params("", user("hello")))
			if e, ok := errors.AsType[*responses.Error](err); !ok || e.StatusCode != tc.want {
				t.Errorf("got %v, want status %d", err, tc.want)
			}
			if got := runs.Load(); got != tc.wantRuns {
				t.Errorf("the model ran %d times, want %d", got, tc.wantRuns)
			}
			if err := gateway.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// reachLimit gives a namespace a SessionQuota, and waits until it has reached it.
func reachLimit(t *testing.T, namespace string) {
	t.Helper()
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}}
	quota.Spec.Hard.Bytes = new(resource.MustParse("0"))
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && !quota.IsExceeded() {
			return errors.New("the quota is not exceeded yet")
		}
		return err
	})
}

// stranger returns the kubeconfig of a user without permissions.
func stranger(t *testing.T) string {
	t.Helper()
	kubeconfig, err := env.KubeconfigFor("stranger")
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
