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

// Package testmain has the body of a TestMain whose tests share an environment that is expensive to start.
package testmain

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// startTimeout is how long start may take. It takes some seconds on an idle machine if nothing needs to be built.
const startTimeout = 10 * time.Minute

// Run calls start, runs the tests, stops what start has started, and returns the code to exit with: that of the tests, or 1
// if start or stop fails. With go test -list, it starts nothing.
//
// klog's output goes to the logger of controller-runtime, which discards it unless log.SetLogger was called before.
func Run(run func() int, start func(ctx context.Context) (stop func() error, err error)) (code int) {
	flag.Parse()
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return run()
	}
	log.SetLogger(logr.Discard()) // has no effect if one is set
	klog.SetLogger(log.Log)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout) //nolint:forbidigo // TestMain has no context
	defer cancel()
	stop, err := start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unable to start the test environment:", err)
		return 1
	}
	defer func() {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "unable to stop the test environment:", err)
			code = max(code, 1)
		}
	}()
	return run()
}
