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
	"testing"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestTwoReplicas checks that both replicas resolve, and that verdicts are still written after one of them has stopped.
func TestTwoReplicas(t *testing.T) {
	if err := operator.Stop(); err != nil {
		t.Fatal(err)
	}
	first := startOperator(t, operator.Port, "--leader-elect=true")
	second := startOperator(t, 0, "--leader-elect=true")
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	operator = first
	t.Cleanup(func() { restartOperator(t) })
	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}

	namespace := env.NewNamespace(t)
	saveAndResolve(t, namespace, 6, 2, 12, direct(t, env.Config, first), direct(t, env.Config, second), aggregated(t))
	testsession.WaitForReason(t, env.Client, namespace, "resp_w0_c0_11", v1alpha1.ReasonResolved)

	// Whether or not the first was the leader, the second one must write verdicts.
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	ids := createChain(t, namespace, "resp_after", 3)
	testsession.WaitForReason(t, env.Client, namespace, ids[2], v1alpha1.ReasonResolved)
	if err := checkHistory(t.Context(), direct(t, env.Config, second), namespace, "", ids...); err != nil {
		t.Error(err)
	}
}

// TestClientCAFile checks that a replica with --client-ca-file becomes ready without the client CA of the cluster.
func TestClientCAFile(t *testing.T) {
	operator, err := env.StartOperator(t.Context(), catenatest.OperatorOptions{Args: []string{"--client-ca-file=" + env.ResolveCAFile}})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Stop(); err != nil {
		t.Error(err)
	}
}
