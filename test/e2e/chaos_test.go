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
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

const (
	chaosSessions  = 500
	chaosWriters   = 6
	chaosPerSecond = 40
)

// TestChaos saves conversations while the operator is killed and the API server restarted. Afterwards every session must
// exist with the correct verdict, and another restart must write nothing.
func TestChaos(t *testing.T) {
	namespace := env.NewNamespace(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	plan := planSessions(rand.New(rand.NewPCG(seed, 0)), namespace)

	var written atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	queue := make(chan testsession.Builder, len(plan))
	for _, next := range plan {
		queue <- next
	}
	close(queue)
	limiter := rate.NewLimiter(chaosPerSecond, 1)
	for range chaosWriters {
		group.Go(func() error {
			for next := range queue {
				if err := errors.Join(limiter.Wait(ctx), save(ctx, next)); err != nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
	}
	waitForSaves := func(n int64) {
		testutil.Eventually(t, func(context.Context) error {
			return unless(written.Load() >= n || ctx.Err() != nil, fmt.Sprintf("%d of %d written", written.Load(), n))
		})
	}
	waitForSaves(60)
	kill(t)
	restartOperator(t)
	waitForSaves(160)
	if err := env.RestartAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
	waitForSaves(260)
	kill(t)
	killAPIServer(t)
	restartOperator(t)
	waitForSaves(380)
	kill(t)
	restartOperator(t)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	testutil.Eventually(t, func(ctx context.Context) error {
		diff := diffVerdicts(ctx, t, namespace, plan)
		return unless(diff == "", diff)
	})
	waitUntilIdle(t, 0)
	checkOwners(t, listSessions(t.Context(), t, namespace))

	before := resourceVersions(t)
	kill(t)
	restartOperator(t)
	waitUntilIdle(t, len(before))
	if diff := cmp.Diff(before, resourceVersions(t)); diff != "" {
		t.Errorf("a restart has written sessions that had verdicts: %s", diff)
	}
}

func kill(t *testing.T) {
	t.Helper()
	if err := operator.Kill(); err != nil {
		t.Fatal(err)
	}
}

// killAPIServer kills the API server and starts it again.
func killAPIServer(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(apiServerPID(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := env.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// planSessions returns sessions in the order to save them: forks, long chains, missing parents, cycles, turns that are not
// completed, and children before and after their parents.
func planSessions(random *rand.Rand, namespace string) []testsession.Builder {
	id := func(i int) string { return fmt.Sprintf("resp_%d", i) }
	var plan []testsession.Builder
	for i := range chaosSessions {
		next := testsession.Make(namespace, id(i))
		switch n := random.IntN(100); {
		case i == 0 || n < 4: // a root
		case n < 84:
			next.After(id(i - 1))
		case n < 94:
			next.After(id(random.IntN(i)))
		case n < 97:
			next.After(fmt.Sprintf("resp_missing_%d", i))
		default: // maybe a cycle
			if later := i + 1 + random.IntN(10); later < chaosSessions {
				next.After(id(later))
			}
		}
		switch n := random.IntN(200); n {
		case 0, 1:
			next.Status(v1alpha1.ResponseStatusInProgress)
		case 2, 3:
			next.Status(v1alpha1.ResponseStatusFailed)
		case 4:
			next.Request(`{"instructions":["a","list"]}`)
		}
		plan = append(plan, next)
	}
	random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	return plan
}

// save creates a session, and retries until that succeeds. If a retry finds the session, an earlier attempt has created
// it.
func save(ctx context.Context, next testsession.Builder) error {
	limiter := rate.NewLimiter(20, 1)
	for attempt := 0; ; attempt++ {
		err := env.Client.Create(ctx, next.Obj().DeepCopy())
		switch {
		case err == nil, attempt > 0 && apierrors.IsAlreadyExists(err):
			return nil
		case apierrors.IsInvalid(err), apierrors.IsAlreadyExists(err):
			return err
		}
		if waitErr := limiter.Wait(ctx); waitErr != nil {
			return errors.Join(waitErr, err)
		}
	}
}

func listSessions(ctx context.Context, t *testing.T, namespace string) []v1alpha1.ResponseSession {
	t.Helper()
	list := &v1alpha1.ResponseSessionList{}
	if err := env.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}
