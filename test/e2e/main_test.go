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

// Package e2e_test proves all of Catena together: a real API server with its aggregation layer and garbage collector,
// and the operator as a process of its own, with the rights that config/rbac gives it and no more.
package e2e_test

import (
	"context"
	"os"
	"testing"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
)

var (
	// env is the control plane that all tests share. None of them runs in parallel to another.
	env *testenv.Environment
	// operator is the process that the aggregation layer leads to. Tests that end it start another on its port.
	operator *catenatest.Operator
)

func TestMain(m *testing.M) {
	os.Exit(testenv.RunSuite(m.Run, func(ctx context.Context, started *testenv.Environment) (err error) {
		env = started
		operator, err = env.StartOperator(ctx, operatorOptions(0))
		return err
	}))
}

// operatorOptions are those of an operator that stops without delay, but for what a test needs otherwise.
func operatorOptions(port int, args ...string) catenatest.OperatorOptions {
	return catenatest.OperatorOptions{Port: port, Args: append([]string{"--shutdown-delay-duration=0s"}, args...)}
}

func startOperator(t *testing.T, port int, args ...string) *catenatest.Operator {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // in a cleanup, the test's context is done
	started, err := env.StartOperator(ctx, operatorOptions(port, args...))
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// restartOperator puts a new process in the place of the operator, and ends that where nobody has.
func restartOperator(t *testing.T) {
	t.Helper()
	if err := operator.Stop(); err != nil {
		t.Error(err)
	}
	operator = startOperator(t, operator.Port)
	if err := env.WaitForResolveAPI(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}
