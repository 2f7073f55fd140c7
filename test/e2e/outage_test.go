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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// apiServerPID returns the process of the environment's kube-apiserver.
func apiServerPID(t *testing.T) int {
	t.Helper()
	argument := []byte("--cert-dir=" + filepath.Join(filepath.Dir(env.Kubeconfig), "apiserver"))
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("there is no /proc to find the kube-apiserver in")
	}
	for _, file := range files {
		cmdline, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
			if bytes.Equal(arg, argument) {
				pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatal("the kube-apiserver was not found")
	return 0
}

// TestAPIServerDoesNotAnswer: what cannot be known is a typed error in time, and never taken for a missing turn.
func TestAPIServerDoesNotAnswer(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 3)
	testsession.Make(namespace, "resp_orphan").After("resp_gone").Create(t, env.Client)
	waitForReason(t, namespace, ids[2], v1alpha1.ReasonResolved) // what follows is about sessions that the operator knows
	waitForReason(t, namespace, "resp_orphan", v1alpha1.ReasonParentNotFound)
	a := direct(t, env.Config, operator)
	const query = "timeout=2s" // without it, it is a minute
	reader := direct(t, newReader(t, namespace), operator)
	warm := func() {
		if err := resolved(t.Context(), a, namespace, "", ids...); err != nil {
			t.Fatal(err)
		}
		a.resolve(t, namespace, "resp_none", "").wantChainError(t, "resp_none", notFound("resp_none"))
		if answer := a.resolve(t, namespace, "resp_orphan", ""); answer.code != http.StatusUnprocessableEntity {
			t.Fatalf("got %d: %s", answer.code, answer.body)
		}
	}
	check := func(t *testing.T, wantCodes ...int) {
		t.Helper()
		// What the operator knows it still answers.
		if err := resolved(t.Context(), a, namespace, "", ids...); err != nil {
			t.Error(err)
		}
		cases := map[string]struct {
			from      api
			id, query string
		}{
			"head unknown":         {from: a, id: "resp_none", query: query},
			"parent unknown":       {from: a, id: "resp_orphan", query: query},
			"newer than the watch": {from: a, id: ids[2], query: query + "&resourceVersion=9223372036854775807"},
			// An administrator may do everything without being asked about; for a reader the kube-apiserver is asked.
			"a caller not asked about yet": {from: reader, id: "resp_unheard_of", query: query},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				testutil.Eventually(t, func(ctx context.Context) error {
					start := time.Now()
					answer, err := tc.from.do(ctx, itemsPath(namespace, tc.id, tc.query), "")
					if took := time.Since(start); took > 30*time.Second {
						t.Errorf("answered after %s", took)
					}
					if err == nil {
						_, err = answer.status()
					}
					if err != nil {
						// Where a process stands still for long, the server's own limit comes first, and cuts off what follows.
						return err
					}
					if !slices.Contains(wantCodes, answer.code) {
						t.Errorf("got %d, want one of %v: %s", answer.code, wantCodes, answer.body)
					}
					return nil
				})
			})
		}
	}

	t.Run("stopped", func(t *testing.T) {
		warm()
		pid := apiServerPID(t)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Error(err)
			}
			waitUntilBack(t, a, namespace)
		})
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
			waitUntilBack(t, a, namespace)
		})
		check(t, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	})
}

// waitUntilBack waits until the operator has caught up and the aggregation layer leads to it.
func waitUntilBack(t *testing.T, a api, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testutil.Patience)
	defer cancel()
	if err := env.WaitForResolveAPI(ctx); err != nil {
		t.Fatal(err)
	}
	for _, way := range []api{a, aggregated(t)} {
		for {
			answer, err := way.do(ctx, itemsPath(namespace, "resp_none", ""), "")
			if err == nil && answer.code == http.StatusNotFound {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("not back: %v, last %d %v: %s", ctx.Err(), answer.code, err, answer.body)
			}
		}
	}
}

// TestOperatorGone: the aggregation layer answers for an operator that is not there.
func TestOperatorGone(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 2)
	if err := operator.Kill(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { restartOperator(t) })
	answer := aggregated(t).resolve(t, namespace, ids[1], "")
	if answer.code != http.StatusServiceUnavailable {
		t.Errorf("got %d, want 503: %s", answer.code, answer.body)
	}
}
