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

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// suiteTimeout is how long a suite may take to start, what it builds for that included.
const suiteTimeout = 10 * time.Minute

// RunSuite runs tests that share a control plane with a garbage collector, and returns the code to exit with: it is what
// a suite's TestMain calls. Before the tests, prepare starts what else they need. It is an error too where something that
// the environment started has met a race.
func RunSuite(run func() int, prepare func(ctx context.Context, env *Environment) error) (code int) {
	log.SetLogger(logr.Discard())                                          // envtest's
	ctx, cancel := context.WithTimeout(context.Background(), suiteTimeout) //nolint:forbidigo // TestMain has none
	defer cancel()
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "suite:", err)
		code = max(code, 1)
	}
	env, err := Start(ctx, Options{GarbageCollector: true, UnsafeNoFsync: true})
	if err != nil {
		fail(err)
		return code
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fail(err)
		}
	}()
	if err := prepare(ctx, env); err != nil {
		fail(err)
		return code
	}
	return run()
}

// StartServingOperator is StartOperator with the resolve API registered. It returns when the API is available.
func (e *Environment) StartServingOperator(ctx context.Context, options OperatorOptions) (*Operator, error) {
	operator, err := e.StartOperator(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.RegisterAPIService(ctx, operator.Port), e.WaitForAPIService(ctx)); err != nil {
		return nil, err
	}
	return operator, nil
}
