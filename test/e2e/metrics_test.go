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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// waitUntilIdle waits until the operator has reconciled a number of sessions since its start and its queue is empty.
func waitUntilIdle(t *testing.T, reconciled int) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error { return testenv.Idle(ctx, operator, reconciled) })
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
