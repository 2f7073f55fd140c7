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
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

const (
	writers           = 16
	writeSize         = 4 << 10
	writeChains       = 50
	writeTurnsInChain = 20
)

// writeExperiment saves turns with 16 writers while the controller writes the verdicts, and compares with a plain client
// that creates the same objects and writes a status of the same size to each of them.
func writeExperiment(ctx context.Context, b *bench) error {
	const turns = writeChains * writeTurnsInChain
	var reconciled, lag, writes, logged series
	const withoutOperator = "16 writers create and write the statuses, without an operator"
	plain, plainLogged := series{Name: withoutOperator}, series{Name: withoutOperator}

	if err := b.operator.Stop(); err != nil {
		return err
	}
	round := 0
	warm := false
	withController := func() (err error) {
		round++
		namespace := fmt.Sprintf("reconciled-%d", round)
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
		if b.operator, err = b.env.StartOperator(ctx, operatorOptions); err != nil {
			return err
		}
		before, err := b.revision(ctx)
		if err != nil {
			return err
		}
		var start, saved, done time.Time
		bytes, err := b.logged(ctx, func() error {
			start = time.Now()
			if err := b.fill(ctx, namespace, writeChains, writeTurnsInChain, writeSize); err != nil {
				return err
			}
			saved = time.Now()
			defer func() { done = time.Now() }()
			return b.waitForNone(ctx, v1alpha1.ResponseSessionKind, namespace, "status.rootResponseID=")
		})
		if err != nil {
			return err
		}
		after, err := b.revision(ctx)
		if err != nil {
			return err
		}
		if warm {
			reconciled.add(turns / done.Sub(start).Seconds())
			lag.addTime(done.Sub(saved))
			writes.add(float64(after-before) / turns)
			logged.add(bytes / (turns * writeSize))
			b.logf("%.0f turns/s, last verdict after %s, %.2f writes per turn", turns/done.Sub(start).Seconds(), done.Sub(saved), float64(after-before)/turns)
		}
		return b.stopAndClear(ctx, namespace)
	}
	withoutController := func() error {
		round++
		namespace := fmt.Sprintf("plain-%d", round)
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
		var took time.Duration
		bytes, err := b.logged(ctx, func() error {
			start := time.Now()
			defer func() { took = time.Since(start) }()
			return b.fillWithStatus(ctx, namespace)
		})
		if err != nil {
			return err
		}
		if warm {
			plain.add(turns / took.Seconds())
			plainLogged.add(bytes / (turns * writeSize))
			b.logf("%.0f turns/s plain", turns/took.Seconds())
		}
		return b.clear(ctx, namespace)
	}
	if err := interleave(1, withController, withoutController); err != nil {
		return err
	}
	warm = true
	if err := interleave(min(b.rounds, 3), withController, withoutController); err != nil {
		return err
	}
	b.compare("16 writers save until all turns have verdicts", "turns/s", reconciled, plain, atLeast(0.95))
	b.figure("time from the last save to the last verdict", "ms", atMost(500), lag.Samples...)
	b.figure("writes to etcd for each turn", "", atMost(2.05), writes.Samples...)
	const log = "bytes in etcd's log for each byte of a turn of 4 KiB, as JSON"
	b.figure(log, "", atMost(2.3), logged.Samples...)
	b.compare(log, "", logged, plainLogged, nil)
	return nil
}

// logged returns the bytes that etcd writes to its log during work.
func (b *bench) logged(ctx context.Context, work func() error) (float64, error) {
	before, err := b.env.EtcdLogBytes(ctx)
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := b.env.EtcdLogBytes(ctx)
	return float64(after - before), err
}

func (b *bench) stopAndClear(ctx context.Context, namespace string) error {
	if err := b.operator.Stop(); err != nil {
		return err
	}
	return b.clear(ctx, namespace)
}

func (b *bench) clear(ctx context.Context, namespace string) error {
	return b.env.Client.DeleteAllOf(ctx, &v1alpha1.ResponseSession{}, client.InNamespace(namespace))
}

// fillWithStatus is fill, but also writes the statuses.
func (b *bench) fillWithStatus(ctx context.Context, namespace string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for c := range writeChains {
		group.Go(func() error {
			var previous string
			var uid types.UID
			for t := range writeTurnsInChain {
				session := turn(namespace, fmt.Sprintf("resp_c%d_%05d", c, t), previous, writeSize)
				setOwner(session, uid)
				if err := b.env.Client.Create(ctx, session); err != nil {
					return err
				}
				if err := b.writeStatus(ctx, session, t+1, fmt.Sprintf("resp_c%d_%05d", c, 0)); err != nil {
					return err
				}
				previous, uid = session.Spec.ResponseID, session.UID
			}
			return nil
		})
	}
	return group.Wait()
}

// writeStatus writes a status as large as the controller's, with a merge patch, which is the cheapest way.
func (b *bench) writeStatus(ctx context.Context, session *v1alpha1.ResponseSession, depth int, root string) error {
	patch := client.MergeFrom(session.DeepCopy())
	session.Status = v1alpha1.ResponseSessionStatus{
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionChainValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResolved,
			Message: "Every turn up to the root is stored and completed.", ObservedGeneration: 1, LastTransitionTime: metav1.Now(),
		}},
		ObservedGeneration: 1, Depth: int32(depth), RootResponseID: root,
	}
	return b.env.Client.Status().Patch(ctx, session, patch)
}

// waitForNone waits until no object of a kind in a namespace matches a field selector. It polls slowly, because for each
// request the API server goes through all objects of the namespace.
func (b *bench) waitForNone(ctx context.Context, kind, namespace, fields string) error {
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		err := b.env.Client.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{
			Limit: 1, Raw: &metav1.ListOptions{FieldSelector: fields},
		})
		return len(list.Items) == 0, err
	})
}

// revision returns etcd's revision, which every write increments.
func (b *bench) revision(ctx context.Context) (int, error) {
	list := &v1alpha1.ResponseSessionList{}
	if err := b.env.Client.List(ctx, list, client.InNamespace("none")); err != nil {
		return 0, err
	}
	return strconv.Atoi(list.ResourceVersion)
}
