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

package controllers_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/testutil"
)

// TestStalledReport: a report whose request times out is retried, and the leader clears it. Once the report has been written, it is
// not sent again, but a later one is.
func TestStalledReport(t *testing.T) {
	ns := env.NewNamespace(t)
	for _, s := range storedSessions(ns) {
		if s.Spec.ResponseID == "snapshot" {
			chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("x")}}
			chunk.Namespace, chunk.Name = ns, v1alpha1.SnapshotChunkName(s.Spec.Snapshot.Key, 0)
			chunk.Annotations = map[string]string{v1alpha1.SessionAnnotation: s.Name}
			if err := env.Client.Create(t.Context(), chunk); err != nil {
				t.Fatal(err)
			}
			create(t, s)
		}
	}
	settle(t, ns)
	record, found := op.view.Get(ns, "snapshot")
	if !found {
		t.Fatal("the view lacks the session")
	}
	var sent, silent atomic.Int32
	silent.Store(2)
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && sent.Add(1) <= silent.Load() {
				return nil, context.DeadlineExceeded
			}
			return next.RoundTrip(r)
		})
	})
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	reporter := controllers.NewSnapshotReporter(c, statuses, op.clock, stallTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- reporter.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	reporter.Report(record)
	testutil.Eventually(t, func(context.Context) error {
		condition := meta.FindStatusCondition(get(t, ns, "snapshot").Status.Conditions, v1alpha1.ConditionSnapshotReadable)
		if condition == nil || condition.Reason != v1alpha1.ReasonSnapshotVerified {
			return fmt.Errorf("%d reports were sent, and the condition is %+v", sent.Load(), condition)
		}
		return nil
	})
	if sent.Load() != 3 {
		t.Errorf("%d reports were sent, want 3", sent.Load())
	}
	testutil.Eventually(t, func(context.Context) error {
		reporter.Report(record) // ignored until the first one is finished
		if sent.Load() < 4 {
			return fmt.Errorf("%d reports were sent, want another", sent.Load())
		}
		return nil
	})
}
