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
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testutil"
)

// sum adds up the series of an operator's metric that have a label.
func sum(ctx context.Context, from *catenatest.Operator, metric, label string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.MetricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	total := 0.0
	for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
		line := scanner.Text()
		if !strings.HasPrefix(line, metric+"{") || !strings.Contains(line, label) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("unable to parse %q: %w", line, err)
		}
		total += value
	}
	return total, nil
}

// waitUntilIdle waits until the operator has reconciled a number of sessions since its start and its queue is empty.
func waitUntilIdle(t *testing.T, reconciled int) {
	t.Helper()
	const controller = `controller="responsesession"`
	testutil.Eventually(t, func(ctx context.Context) error {
		total, err := sum(ctx, operator, "controller_runtime_reconcile_total", controller)
		if err != nil {
			return err
		}
		queued, err := sum(ctx, operator, "workqueue_adds_total", controller)
		if err != nil {
			return err
		}
		return unless(int(total) >= reconciled && queued == total, fmt.Sprintf("%.0f of %.0f reconciled", total, queued))
	})
}

// resourceVersions returns the resource versions of all sessions.
func resourceVersions(t *testing.T) map[string]string {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ResponseSessionKind + "List"))
	if err := env.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, object := range list.Items {
		versions[object.Namespace+"/"+object.Name] = object.ResourceVersion
	}
	return versions
}
