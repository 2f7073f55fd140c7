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

// Package controllers_test tests the CRDs and the controllers with a real etcd, kube-apiserver and garbage collector. Tests
// run one after another, each in its own namespaces, and share one operator.
package controllers_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/catena-dev/catena/internal/logging"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// Shared by all tests.
var (
	env *testenv.Environment
	op  *operator
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Verbose() {
		ctrl.SetLogger(logr.FromSlogHandler(logging.NewHandler(os.Stderr, slog.LevelDebug)))
	}
	run := func() int {
		defer func() {
			if op != nil { // with -short, none was started
				op.stop()
			}
		}()
		return m.Run()
	}
	os.Exit(testenv.RunSuite(run, func(ctx context.Context, started *testenv.Environment) (err error) {
		env = started
		op, err = startOperator(ctx)
		return err
	}))
}

// restartOperator stops the operator, calls the function, and starts another.
func restartOperator(t *testing.T, between func()) {
	t.Helper()
	op.stop()
	if op.err != nil {
		t.Errorf("the operator ended: %v", op.err)
	}
	dropped := unfinished(t)
	between()
	next, err := startOperator(t.Context())
	if err != nil {
		t.Fatalf("unable to restart the operator: %v", err)
	}
	next.dropped = dropped
	op = next
}

// unfinished returns the number of sessions that have been queued and not yet reconciled, over all operators so far.
func unfinished(t *testing.T) float64 {
	t.Helper()
	finished := metricSum(t, "controller_runtime_reconcile_total") // read first, so that sessions queued meanwhile count
	queued := metricSum(t, "workqueue_adds_total")
	if queued < finished {
		t.Fatalf("the metrics are inconsistent: %g sessions were queued and %g reconciled", queued, finished)
	}
	return queued - finished
}

// settle waits until the operator has seen every session of the namespaces, and is idle.
func settle(t *testing.T, namespaces ...string) {
	t.Helper()
	var before string
	testutil.Eventually(t, func(context.Context) error {
		select {
		case <-op.done:
			t.Fatalf("the operator has ended: %v", op.err)
		default:
		}
		var newest uint64
		for _, namespace := range namespaces {
			for _, s := range testsession.Metadata(t, env.Client, namespace) {
				version, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				newest = max(newest, version)
			}
		}
		current := op.view.HasSynced() && op.view.Reflects(metav1.NamespaceAll, newest) // read first, so that its notifications are counted below
		unfinished := unfinished(t) - op.dropped
		now := fmt.Sprintf("newest version %d, view up to date: %t, %g reconciles", newest, current, metricSum(t, "controller_runtime_reconcile_total"))
		same := now == before
		before = now
		if !current || unfinished > 0 || !same {
			return fmt.Errorf("%s, %g unfinished", now, unfinished)
		}
		return nil
	})
}
