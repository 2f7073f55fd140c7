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
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// process is a process of the environment's control plane.
type process struct {
	pid  int
	args []string
}

// apiServerPID returns the process ID of the kube-apiserver.
func apiServerPID(t *testing.T) int {
	t.Helper()
	return findProcess(t, "--cert-dir="+filepath.Join(filepath.Dir(env.Kubeconfig), "apiserver")).pid
}

// etcdProcess returns the process of etcd.
func etcdProcess(t *testing.T) process {
	t.Helper()
	return findProcess(t, "--data-dir="+filepath.Join(filepath.Dir(env.Kubeconfig), "etcd"))
}

// findProcess returns the process that has an argument.
func findProcess(t *testing.T, argument string) process {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("this test requires /proc to find processes")
	}
	for _, file := range files {
		cmdline, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(cmdline), "\x00")
		if !slices.Contains(args, argument) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		return process{pid, args}
	}
	t.Fatalf("no process has the argument %s", argument)
	return process{}
}

// suspend stops a process until the end of the test. It returns once each thread has stopped, because a thread that the kernel
// has not rescheduled yet still responds to requests.
func suspend(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	testutil.Eventually(t, func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads of process %d: %w", pid, err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// The state follows the name, which is in parentheses and may contain any byte.
			if !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T ")) {
				return fmt.Errorf("a thread has not stopped yet: %s", stat)
			}
		}
		return nil
	})
}

// TestAPIServerOutage checks that a resolve that needs the API server fails in time with a typed error, and never reports
// a missing turn instead.
func TestAPIServerOutage(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 3)
	testsession.Make(namespace, "resp_orphan").After("resp_gone").Create(t, env.Client)
	testsession.WaitForReason(t, env.Client, namespace, ids[2], v1alpha1.ReasonResolved) // so that the operator has these sessions in its view
	testsession.WaitForReason(t, env.Client, namespace, "resp_orphan", v1alpha1.ReasonParentNotFound)
	a := direct(t, env.Config, operator)
	const query = "timeout=2s" // the default is a minute
	reader := direct(t, newReader(t, namespace), operator)
	warm := func() {
		if err := checkHistory(t.Context(), a, namespace, "", ids...); err != nil {
			t.Fatal(err)
		}
		a.resolve(t, namespace, "resp_none", "").wantChainError(t, "resp_none", notFound("resp_none"))
		if response := a.resolve(t, namespace, "resp_orphan", ""); response.code != http.StatusUnprocessableEntity {
			t.Fatalf("got %d: %s", response.code, response.body)
		}
	}
	check := func(t *testing.T, wantCodes ...int) {
		t.Helper()
		// Chains in the view still resolve.
		if err := checkHistory(t.Context(), a, namespace, "", ids...); err != nil {
			t.Error(err)
		}
		cases := map[string]struct {
			from      api
			id, query string
		}{
			"missing head":         {from: a, id: "resp_none", query: query},
			"missing parent":       {from: a, id: "resp_orphan", query: query},
			"newer than the watch": {from: a, id: ids[2], query: query + "&resourceVersion=9223372036854775807"},
			// Administrators are authorized without an access review, readers are not.
			"caller without a cached review": {from: reader, id: "resp_unheard_of", query: query},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				testutil.Eventually(t, func(ctx context.Context) error {
					start := time.Now()
					response, err := tc.from.do(ctx, itemsPath(namespace, tc.id, tc.query), "")
					if took := time.Since(start); took > 30*time.Second {
						t.Errorf("the response took %s", took)
					}
					if err == nil {
						_, err = response.status()
					}
					if err != nil {
						// If a process is suspended for long, the server's own timeout cuts off the response.
						return err
					}
					if !slices.Contains(wantCodes, response.code) {
						t.Errorf("got %d, want one of %v: %s", response.code, wantCodes, response.body)
					}
					return nil
				})
			})
		}
	}

	t.Run("stopped", func(t *testing.T) {
		warm()
		t.Cleanup(func() { waitForRecovery(t, a, namespace) })
		suspend(t, apiServerPID(t))
		check(t, http.StatusGatewayTimeout)
	})
	t.Run("gone", func(t *testing.T) {
		warm()
		if err := syscall.Kill(apiServerPID(t), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := env.RestartAPIServer(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			waitForRecovery(t, a, namespace)
		})
		check(t, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	})
}

// waitForRecovery waits until the operator has caught up and the aggregation layer forwards to it.
func waitForRecovery(t *testing.T, a api, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testutil.Patience)
	defer cancel()
	if err := env.WaitForResolveAPI(ctx); err != nil {
		t.Fatal(err)
	}
	for _, route := range []api{a, aggregated(t)} {
		for {
			response, err := route.do(ctx, itemsPath(namespace, "resp_none", ""), "")
			if err == nil && response.code == http.StatusNotFound {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("not recovered: %v, last response %d %v: %s", ctx.Err(), response.code, err, response.body)
			}
		}
	}
}

// TestOperatorGone checks that the aggregation layer returns 503 if the operator is not running.
func TestOperatorGone(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 2)
	if err := operator.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restartOperator(t) })
	response := aggregated(t).resolve(t, namespace, ids[1], "")
	if response.code != http.StatusServiceUnavailable {
		t.Errorf("got %d, want 503: %s", response.code, response.body)
	}
}
