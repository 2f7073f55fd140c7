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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

const treeRoot = "resp_tree_0"

// treeExperiment deletes the root of a tree and creates it again, and compares with a plain client that writes as many
// statuses. Meanwhile it measures how long turns saved in another namespace wait for their verdicts.
func treeExperiment(ctx context.Context, b *bench) error {
	for _, namespace := range []string{"tree", "other"} {
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	if err := b.createTree(ctx); err != nil {
		return err
	}
	b.logf("%d turns saved", b.turns)
	if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, "tree", "status.rootResponseID="); err != nil {
		return err
	}
	deleted, recreated := series{Name: "root deleted"}, series{Name: "root created again"}
	plain := series{Name: "a plain client writes as many statuses"}
	var waits series

	updateVerdicts := func(s *series, change func() error, done string) func() error {
		return func() error {
			start := time.Now()
			if err := change(); err != nil {
				return err
			}
			stop := b.saveElsewhere(ctx, &waits)
			err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, "tree", done)
			took := time.Since(start)
			s.add(float64(b.turns-1) / took.Seconds())
			b.logf("%s: %.0f/s", s.Name, float64(b.turns-1)/took.Seconds())
			if stopErr := stop(); err == nil {
				err = stopErr
			}
			return err
		}
	}
	root := turn("tree", treeRoot, "", 1<<10)
	deleteRoot := func() error {
		return b.env.Client.Delete(ctx, root.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}
	createRoot := func() error { return b.env.Client.Create(ctx, root.DeepCopy()) }
	updateDeleted := updateVerdicts(&deleted, deleteRoot, "status.rootResponseID="+treeRoot)
	updateRecreated := updateVerdicts(&recreated, createRoot, "status.rootResponseID=")
	err := interleave(min(b.rounds, 2),
		func() error { return b.plainStatusWrites(ctx, &plain) },
		func() error {
			if err := updateDeleted(); err != nil {
				return err
			}
			return updateRecreated()
		},
	)
	if err != nil {
		return err
	}
	b.compare(fmt.Sprintf("verdicts on %d turns whose root is deleted", b.turns), "statuses/s", deleted, plain, atLeast(0.8))
	b.compare(fmt.Sprintf("verdicts on %d turns whose root is created again", b.turns), "statuses/s", recreated, plain, atLeast(0.8))
	b.figure("verdict on a turn of another tenant meanwhile", "ms", nil, waits.Samples...)
	b.figure("the slowest of them", "ms", atMost(500), slices.Max(waits.Samples))
	return nil
}

// createTree creates a binary tree of turns without ownerReferences, which the controller adds.
func (b *bench) createTree(ctx context.Context) error {
	for first := 0; first < b.turns; first = 2*first + 1 {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(writers)
		for i := first; i < min(2*first+1, b.turns); i++ {
			group.Go(func() error {
				previous := ""
				if i > 0 {
					previous = fmt.Sprintf("resp_tree_%d", (i-1)/2)
				}
				return b.env.Client.Create(ctx, turn("tree", fmt.Sprintf("resp_tree_%d", i), previous, 1<<10))
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// saveElsewhere saves turns in another namespace, one at a time, until the returned function is called.
func (b *bench) saveElsewhere(ctx context.Context, waits *series) func() error {
	ctx, cancel := context.WithCancel(ctx)
	group := &errgroup.Group{}
	group.Go(func() error {
		for i := 0; ctx.Err() == nil; i++ {
			session := turn("other", fmt.Sprintf("resp_other_%d_%d", time.Now().UnixNano(), i), "", 1<<10)
			start := time.Now()
			if err := b.env.Client.Create(ctx, session); err != nil {
				return ignoreCanceled(err)
			}
			err := wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				err := b.env.Client.Get(ctx, client.ObjectKeyFromObject(session), session)
				return len(session.Status.Conditions) > 0, err
			})
			if err != nil {
				return ignoreCanceled(err)
			}
			waits.addTime(time.Since(start))
			// About one turn per 100 ms, to add little load.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
	return func() error {
		cancel()
		return group.Wait()
	}
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// plainStatusWrites writes a status to each session of the tree, with as many concurrent requests as the controller, while
// the operator is stopped. It then restarts the operator, which corrects the statuses.
func (b *bench) plainStatusWrites(ctx context.Context, plain *series) (err error) {
	if err := b.operator.Stop(); err != nil {
		return err
	}
	start := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := 1; i < b.turns; i++ {
		group.Go(func() error {
			session := &v1alpha1.ResponseSession{ObjectMeta: metav1.ObjectMeta{
				Namespace: "tree", Name: v1alpha1.ObjectName(fmt.Sprintf("resp_tree_%d", i)),
			}}
			return b.writeStatus(groupCtx, session, 99, "resp_plain")
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(start)
	plain.add(float64(b.turns-1) / took.Seconds())
	b.logf("%s: %.0f/s", plain.Name, float64(b.turns-1)/took.Seconds())
	if b.operator, err = b.env.StartOperator(ctx, operatorOptions); err != nil {
		return err
	}
	return b.waitForNone(ctx, v1alpha1.ResponseSessionKind, "tree", "status.rootResponseID=resp_plain")
}
