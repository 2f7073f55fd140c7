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

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// limit sets the maximum bytes of a namespace, and waits until the operator has counted the current usage.
func limit(t *testing.T, namespace, bytes string) {
	t.Helper()
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}
	quota.Spec.Hard.Bytes = new(resource.MustParse(bytes))
	err := env.Client.Create(t.Context(), quota)
	if err != nil {
		patch := fmt.Appendf(nil, `{"spec":{"hard":{"bytes":%q}}}`, bytes)
		err = env.Client.Patch(t.Context(), quota, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && quota.Status.ObservedGeneration != quota.Generation {
			return errors.New("the operator has not applied the limit yet")
		}
		return err
	})
}

// wantQuotaExceeded waits until a save is rejected because of a quota.
func wantQuotaExceeded(t *testing.T, s *store.Store, session *store.Session) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		err := s.Save(ctx, session, store.SaveOptions{})
		if !errors.Is(err, store.ErrQuotaExceeded) {
			return fmt.Errorf("got %w, want %w", err, store.ErrQuotaExceeded)
		}
		if store.IsRetryable(err) || !strings.Contains(err.Error(), "because the quota of its namespace is exceeded") {
			t.Errorf("got %v (retryable: %t), want a final error that names the quota", err, store.IsRetryable(err))
		}
		return nil
	})
}

// TestSessionQuota: a gateway in a namespace that has reached its limit stores nothing, regardless of where its turns are
// stored, until turns are deleted or the limit is raised.
func TestSessionQuota(t *testing.T) {
	for name, bucket := range map[string]string{"chunks": "", "bucket": bucketURL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits
			namespace := env.NewNamespace(t)
			s, err := kube.Open(t.Context(), kube.Options{Config: asGateway(t, namespace), Namespace: namespace, SnapshotStore: bucket})
			if err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func(ctx context.Context) error { // the permissions take effect a few milliseconds later
				return s.Save(ctx, testturn.Make("resp_1", ""), store.SaveOptions{})
			})
			limit(t, namespace, "2Mi")
			large := largeTurn("resp_2", "resp_1") // of 0.9 MB when compressed, and more in base64
			save(t, s, large)
			save(t, s, testturn.Make("resp_3", "resp_2"))
			limit(t, namespace, "512Ki")
			wantQuotaExceeded(t, s, testturn.Make("resp_4", "resp_3"))
			if err := s.CheckQuota(t.Context()); !errors.Is(err, store.ErrQuotaExceeded) || !strings.Contains(err.Error(), "of 512Ki bytes") {
				t.Errorf("CheckQuota returned %v, want ErrQuotaExceeded", err)
			}
			overwritten := testturn.Make("resp_3", "resp_2")
			overwritten.ConversationID = "conv"
			if err := s.Save(t.Context(), overwritten, store.SaveOptions{Overwrite: true}); !errors.Is(err, store.ErrQuotaExceeded) {
				t.Errorf("overwrite returned %v, want ErrQuotaExceeded", err)
			}
			if err := s.Delete(t.Context(), "resp_2", store.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, namespace) })
			testutil.Eventually(t, func(ctx context.Context) error { return s.Save(ctx, testturn.Make("resp_5", ""), store.SaveOptions{}) })

			limit(t, namespace, "1")
			wantQuotaExceeded(t, s, largeTurn("resp_6", ""))
			if err := nothingStored(t, namespace); err != nil {
				t.Errorf("a part was written: %v", err)
			}
			limit(t, namespace, "1Gi")
			testutil.Eventually(t, func(ctx context.Context) error { return s.Save(ctx, largeTurn("resp_6", ""), store.SaveOptions{}) })
			if err := s.CheckQuota(t.Context()); err != nil {
				t.Errorf("CheckQuota returned %v, want no error", err)
			}
		})
	}
}

// TestSessionQuotaOvershoot: a tenant that saves as fast as it can is stopped.
func TestSessionQuotaOvershoot(t *testing.T) {
	s := open(t, kube.Options{InlineBytes: -1})
	limit(t, s.Namespace(), "1Mi")
	saved := 0
	testutil.Eventually(t, func(ctx context.Context) error {
		for {
			err := s.Save(ctx, largeTurn(fmt.Sprint("resp_", saved), ""), store.SaveOptions{})
			if errors.Is(err, store.ErrQuotaExceeded) {
				return nil
			}
			if err != nil {
				return err
			}
			saved++
		}
	})
	if saved == 0 {
		t.Error("nothing was stored")
	}
	wantTurns(t, s.Namespace(), turnIDs(saved)...)
}

// turnIDs returns the first IDs of TestSessionQuotaOvershoot, in the order of a list.
func turnIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("resp_", i)
	}
	slices.Sort(ids)
	return ids
}

// TestUsageMetrics: the metrics of the operator include the usage of a namespace with or without a quota.
func TestUsageMetrics(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, largeTurn("resp_1", "")) // one of the largest namespaces
	testutil.Eventually(t, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, operator.MetricsURL, http.NoBody)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		metrics, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		for _, want := range []string{
			fmt.Sprintf("catena_stored_bytes{namespace=%q} ", s.Namespace()),
			fmt.Sprintf("catena_stored_sessions{namespace=%q} 1\n", s.Namespace()),
			fmt.Sprintf("catena_stored_snapshot_chunks{namespace=%q} 3\n", s.Namespace()),
		} {
			if !strings.Contains(string(metrics), want) {
				return fmt.Errorf("the metrics do not contain %q", want)
			}
		}
		return nil
	})
}

// TestResourceQuota: Kubernetes' own limit on the number of objects has the same code. A snapshot that exceeds it halfway
// leaves nothing behind.
func TestResourceQuota(t *testing.T) {
	s := open(t, kube.Options{})
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/responsesessions.sessions.catena.dev": resource.MustParse("2"),
			"count/snapshotchunks.sessions.catena.dev":   resource.MustParse("2"),
		}},
	}
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && len(quota.Status.Used) != 2 {
			return fmt.Errorf("kube-controller-manager has not updated the usage: %+v", quota.Status)
		}
		return err
	})
	save(t, s, testturn.Make("resp_1", ""))
	wantQuotaExceeded(t, s, largeTurn("resp_2", "resp_1")) // of three chunks
	testutil.Eventually(t, func(context.Context) error { return nothingStored(t, s.Namespace()) })
	save(t, s, testturn.Make("resp_2", "resp_1"))
	wantQuotaExceeded(t, s, testturn.Make("resp_3", "resp_2"))
	if err := s.Delete(t.Context(), "resp_2", store.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		return s.Save(ctx, testturn.Make("resp_3", "resp_1"), store.SaveOptions{})
	})
}
