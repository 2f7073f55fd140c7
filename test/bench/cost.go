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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

const (
	costSize         = 7 << 10
	costTurns        = 500 // different ones
	costTurnsInChain = 20
	// packed is the form in which the library stores bodies of that size.
	packed = "packed"
)

// costExperiment measures what a session with a verdict costs the cluster, for each form in which its bodies can be stored: the live
// heap of the kube-apiserver, which keeps the latest versions of objects, the size of etcd's database after a compaction, what etcd writes
// to its log, what each replica of the operator is sent, and the CPU time of the kube-apiserver and etcd to save it and to write its verdict.
func costExperiment(ctx context.Context, b *bench) (err error) {
	bucket, stop, err := b.startBucket(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bodies, err := b.agentTurns(costTurns, costSize)
	if err != nil {
		return err
	}
	const none = "no bodies"
	forms := []struct {
		name string
		save func(ctx context.Context, namespace string) error
	}{
		{"warm-up", b.libraryForm(bodies, kube.Options{})},
		{none, b.libraryForm([]store.Session{{Status: store.StatusCompleted}}, kube.Options{})},
		{packed, b.libraryForm(bodies, kube.Options{})},
		{"as JSON", b.jsonForm(bodies)},
		{"in a chunk", b.libraryForm(bodies, kube.Options{InlineBytes: -1})},
		{"in a bucket", b.libraryForm(bodies, kube.Options{InlineBytes: -1, SnapshotStore: bucket})},
	}
	var without, withoutOld cost
	before, err := b.cost(ctx)
	if err != nil {
		return err
	}
	payload := averageSize(bodies)
	size := fmt.Sprintf("%.0f KiB", payload/1024)
	for i, form := range forms {
		namespace := fmt.Sprintf("cost-%d", i)
		if err := b.createNamespace(ctx, namespace); err != nil {
			return err
		}
		watched, err := b.watchSessions(ctx, namespace)
		if err != nil {
			return err
		}
		if err := form.save(ctx, namespace); err != nil {
			return fmt.Errorf("%s: %w", form.name, err)
		}
		if err := b.waitForNone(ctx, v1alpha1.ResponseSessionKind, namespace, "status.rootResponseID="); err != nil {
			return err
		}
		after, err := b.cost(ctx)
		if err != nil {
			return err
		}
		after.watch = before.watch + watched()
		each := after.minus(before).each(b.stored)
		settled, err := b.costAfterRestart(ctx)
		if err != nil {
			return err
		}
		old := settled.minus(before).each(b.stored)
		b.logf("%s: %.1f KiB of heap, %.1f KiB long after, %.1f KiB in etcd, %.1f KiB in its log, %.1f KiB sent, %.1f ms of CPU",
			form.name, each.heap/1024, old.heap/1024, each.etcd/1024, each.log/1024, each.watch/1024, each.cpu)
		switch {
		case form.name == none:
			without, withoutOld = each, old
		case i > 0:
			b.compareCost(form.name, size, payload, each, without)
			b.compare(fmt.Sprintf("heap of the kube-apiserver for a turn of %s that was stored long ago, %s", size, form.name), "KiB",
				series{form.name, []float64{old.heap / 1024}}, series{"without bodies", []float64{withoutOld.heap / 1024}}, nil)
		}
		before = settled
	}
	return nil
}

// averageSize returns the average size of the bodies in bytes.
func averageSize(bodies []store.Session) float64 {
	total := 0
	for i := range bodies {
		total += len(bodies[i].Request) + len(bodies[i].Response)
	}
	return float64(total) / float64(len(bodies))
}

func (b *bench) compareCost(form, size string, payload float64, each, without cost) {
	var heapGoal *goal
	if form == packed {
		heapGoal = atMost(1.15)
		b.figure(fmt.Sprintf("etcd's database for a turn of %s, %s", size, form), "KiB", atMost(6), each.etcd/1024)
		b.figure(fmt.Sprintf("bytes in etcd's log for each byte of a turn of %s, %s", size, form), "", atMost(2), each.log/payload)
	}
	for _, c := range []struct {
		name, unit   string
		ours, theirs float64
		goal         *goal
	}{
		{"heap of the kube-apiserver", "KiB", each.heap / 1024, without.heap / 1024, heapGoal},
		{"etcd's database", "KiB", each.etcd / 1024, without.etcd / 1024, nil},
		{"etcd's log", "KiB", each.log / 1024, without.log / 1024, nil},
		{"sent to each replica of the operator", "KiB", each.watch / 1024, without.watch / 1024, nil},
		{"CPU time of kube-apiserver and etcd", "ms", each.cpu, without.cpu, nil},
	} {
		b.compare(fmt.Sprintf("%s for a turn of %s, %s", c.name, size, form), c.unit,
			series{form, []float64{c.ours}}, series{"without bodies", []float64{c.theirs}}, c.goal)
	}
}

// cost has bytes of the kube-apiserver's live heap, of etcd's database, of its log and of a watch, and milliseconds of CPU time of the
// kube-apiserver and etcd.
type cost struct{ heap, etcd, log, watch, cpu float64 }

func (c cost) minus(o cost) cost {
	return cost{c.heap - o.heap, c.etcd - o.etcd, c.log - o.log, c.watch - o.watch, c.cpu - o.cpu}
}

func (c cost) each(n int) cost {
	return cost{c.heap / float64(n), c.etcd / float64(n), c.log / float64(n), c.watch / float64(n), c.cpu / float64(n)}
}

// watchSessions begins a watch of the sessions of a new namespace, which is sent what each replica of the operator is. It returns a function
// that ends the watch, and returns the bytes that it has been sent.
func (b *bench) watchSessions(ctx context.Context, namespace string) (end func() float64, err error) {
	client, err := kubeclient.New(b.env.Config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := client.Get().Namespace(namespace).Resource(kubeclient.Sessions).Param("watch", "true").Stream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	sent := make(chan float64, 1)
	go func() {
		defer func() { _ = events.Close() }()
		bytes, _ := io.Copy(io.Discard, events) // until it is cancelled
		sent <- float64(bytes)
	}()
	return func() float64 {
		cancel()
		return <-sent
	}, nil
}

// cost returns the cost since the programs started.
func (b *bench) cost(ctx context.Context) (cost, error) {
	var c cost
	for _, program := range []string{"kube-apiserver", "etcd"} {
		pid, err := childProcess(program)
		if err != nil {
			return c, err
		}
		used, err := usage(pid)
		if err != nil {
			return c, err
		}
		c.cpu += used[0].cpu
	}
	logged, err := b.env.EtcdLogBytes(ctx)
	if err != nil {
		return c, err
	}
	c.log = float64(logged)
	client, err := kubeclient.New(b.env.Config)
	if err != nil {
		return c, err
	}
	for range 2 { // finalizers run after the first collection
		profile, err := client.Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Param("debug", "1").DoRaw(ctx)
		if err != nil {
			return c, err
		}
		_, rest, _ := bytes.Cut(profile, []byte("# HeapAlloc = "))
		if _, err := fmt.Sscan(string(rest[:min(len(rest), 20)]), &c.heap); err != nil {
			return c, fmt.Errorf("unable to read the heap profile: %w", err)
		}
	}
	if err := b.env.CompactEtcd(ctx); err != nil {
		return c, err
	}
	size, err := b.env.EtcdBytes(ctx)
	c.etcd = float64(size)
	return c, err
}

// costAfterRestart returns the cost when the kube-apiserver keeps only the latest version of each object, as of one that was stored long
// ago.
func (b *bench) costAfterRestart(ctx context.Context) (cost, error) {
	if err := b.env.RestartAPIServer(ctx); err != nil {
		return cost{}, err
	}
	// Without a limit, the kube-apiserver rejects the list until it has all sessions and chunks in its watch cache. One with a limit would be read
	// from etcd.
	for _, list := range []client.ObjectList{&v1alpha1.ResponseSessionList{}, &v1alpha1.SnapshotChunkList{}} {
		fromCache := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: kubeclient.FromCache}}
		if err := untilReady(ctx, func() error { return b.env.Client.List(ctx, list, client.InNamespace("none"), fromCache) }); err != nil {
			return cost{}, err
		}
	}
	return b.cost(ctx)
}

func (b *bench) libraryForm(bodies []store.Session, options kube.Options) func(context.Context, string) error {
	return func(ctx context.Context, namespace string) error {
		options.Config, options.Namespace = b.env.Config, namespace
		s, err := kube.Open(ctx, options)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		return b.inChains(ctx, func(ctx context.Context, id, previous string, n int) error {
			turn := bodies[n%len(bodies)]
			turn.ResponseID, turn.PreviousResponseID = id, previous
			return s.Save(ctx, &turn, store.SaveOptions{})
		})
	}
}

func (b *bench) jsonForm(bodies []store.Session) func(context.Context, string) error {
	return func(ctx context.Context, namespace string) error {
		return b.inChains(ctx, func(ctx context.Context, id, previous string, n int) error {
			turn := bodies[n%len(bodies)]
			session := testsession.Make(namespace, id).After(previous).Obj()
			session.Spec.Request, session.Spec.Response = &runtime.RawExtension{Raw: turn.Request}, &runtime.RawExtension{Raw: turn.Response}
			if err := b.readOwner(ctx, session, ""); err != nil {
				return err
			}
			return b.env.Client.Create(ctx, session)
		})
	}
}

// inChains saves the turns of the experiment, in chains, with several writers.
func (b *bench) inChains(ctx context.Context, save func(ctx context.Context, id, previous string, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for c := range b.stored / costTurnsInChain {
		group.Go(func() error {
			previous := ""
			for t := range costTurnsInChain {
				id := fmt.Sprintf("resp_c%d_%d", c, t)
				if err := save(ctx, id, previous, c*costTurnsInChain+t); err != nil {
					return err
				}
				previous = id
			}
			return nil
		})
	}
	return group.Wait()
}
