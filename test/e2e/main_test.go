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

// Package e2e_test tests Catena end to end: a real API server with its aggregation layer and garbage collector, and the
// operator as a separate process with only the permissions in config/rbac.
package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
)

var (
	// env is the control plane that all tests share. They do not run in parallel.
	env *testenv.Environment
	// operator is the process that the aggregation layer forwards to. Tests that stop it start another one on its port.
	operator *catenatest.Operator
	// requests is the audit log of the operators' requests.
	requests audit
)

func TestMain(m *testing.M) {
	var err error
	if requests, err = newAudit(); err != nil {
		panic(err)
	}
	run := func() int {
		code := m.Run()
		if flag.Lookup("test.run").Value.String() == "" {
			if err := requests.checkRights(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		return code
	}
	code := testenv.RunSuiteWith(requests.flags("audit.log"), run, func(ctx context.Context, started *testenv.Environment) (err error) {
		env = started
		operator, err = env.StartOperator(ctx, operatorOptions(0))
		return err
	})
	if err := requests.remove(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// operatorOptions returns options of an operator that stops without delay, unless the args set another one.
func operatorOptions(port int, args ...string) catenatest.OperatorOptions {
	return catenatest.OperatorOptions{Port: port, Args: append([]string{"--shutdown-delay-duration=0s"}, args...)}
}

func startOperator(t *testing.T, port int, args ...string) *catenatest.Operator {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // t.Context is canceled in cleanups
	started, err := env.StartOperator(ctx, operatorOptions(port, args...))
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// restartOperator stops the operator, unless it has ended already, and starts another one on its port.
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
