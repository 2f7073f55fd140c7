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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"time"

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
	costRounds       = 2
	costVocabulary   = 150
	// packed is the form in which the library stores bodies of that size. packedWell are bodies that compress to a third, for which the goals
	// were set.
	packed     = "packed"
	packedWell = "packed, compressed to a third"
)

// form is a form in which the bodies of a turn can be stored, and what its turns have cost, a sample for each round.
type form struct {
	name string
	save saveForm
	size float64 // of the bodies, in bytes
	cost map[resource]*series
}

// resource is what a turn costs.
type resource struct{ name, unit string }

var (
	heapBytes     = resource{"heap of the kube-apiserver", "KiB"}
	heapLater     = resource{"heap of the kube-apiserver, long after,", "KiB"}
	databaseBytes = resource{"etcd's database", "KiB"}
	logBytes      = resource{"etcd's log", "KiB"}
	cpuTime       = resource{"CPU time of kube-apiserver and etcd", "ms"}
	eventBytes    = resource{"sent to each replica of the operator", "KiB"}
)

// costExperiment measures what a session with a verdict costs the cluster, for each form in which its bodies can be stored: the live
// heap of the kube-apiserver, which keeps the latest versions of objects, also when it has been restarted since; the size of etcd's database after
// a compaction; what etcd writes to its log; the CPU time of both to save the session and to write its verdict; and what each replica of the
// operator is sent.
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
	without := b.newForm("without bodies", []store.Session{{Status: store.StatusCompleted}}, kube.Options{})
	json := b.newForm("as JSON", bodies, kube.Options{})
	json.save = b.jsonForm(bodies)
	repetitive := syntheticTurns(newWordsOf(1, costVocabulary), costTurns, costSize)
	forms := []*form{
		without, b.newForm(packed, bodies, kube.Options{}), b.newForm(packedWell, repetitive, kube.Options{}), json,
		b.newForm("in a chunk", bodies, kube.Options{InlineBytes: -1}),
		b.newForm("in a bucket", bodies, kube.Options{InlineBytes: -1, SnapshotStore: bucket}),
	}
	if err := b.saveTurns(ctx, "warm-up", json.save, b.stored/costRounds); err != nil {
		return err
	}
	before, err := b.costAfterRestart(ctx)
	if err != nil {
		return err
	}
	var cases []func() error
	for _, f := range forms {
		cases = append(cases, func() (err error) {
			before, err = b.addCost(ctx, f, before)
			return err
		})
	}
	if err := interleave(costRounds, cases...); err != nil {
		return err
	}
	for i, f := range forms {
		sent, err := b.sentToReplica(ctx, fmt.Sprintf("watched-%d", i), f.save)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		f.add(eventBytes, sent/1024)
	}
	for _, f := range forms[1:] {
		b.compareCost(f, without)
	}
	return nil
}

func (b *bench) newForm(name string, bodies []store.Session, options kube.Options) *form {
	return &form{name, b.libraryForm(bodies, options), averageSize(bodies), map[resource]*series{}}
}

// addCost saves turns in a form, and adds a sample of what each costs. before is the cost until then, and the result is the cost with them.
func (b *bench) addCost(ctx context.Context, f *form, before cost) (cost, error) {
	turns := b.stored / costRounds
	if err := b.saveTurns(ctx, fmt.Sprintf("cost-%d", time.Now().UnixNano()), f.save, turns); err != nil {
		return before, fmt.Errorf("%s: %w", f.name, err)
	}
	after, err := b.cost(ctx)
	if err != nil {
		return before, err
	}
	settled, err := b.costAfterRestart(ctx)
	if err != nil {
		return before, err
	}
	kib := 1024 * float64(turns)
	f.add(heapBytes, (after.heap-before.heap)/kib)
	f.add(heapLater, (settled.heap-before.heap)/kib)
	f.add(databaseBytes, (after.etcd-before.etcd)/kib)
	f.add(logBytes, (after.log-before.log)/kib)
	f.add(cpuTime, (after.cpu-before.cpu)/float64(turns))
	b.logf("%s: %s", f.name, f)
	return settled, nil
}

func (f *form) add(r resource, value float64) {
	if f.cost[r] == nil {
		f.cost[r] = &series{Name: f.name}
	}
	f.cost[r].add(value)
}

// String returns the latest samples.
func (f *form) String() string {
	var all []string
	for _, r := range []resource{heapBytes, heapLater, databaseBytes, logBytes, cpuTime} {
		samples := f.cost[r].Samples
		all = append(all, fmt.Sprintf("%s %s %s", r.name, digits(samples[len(samples)-1]), r.unit))
	}
	return strings.Join(all, ", ")
}

// averageSize returns the average size of the bodies in bytes.
func averageSize(bodies []store.Session) float64 {
	total := 0
	for i := range bodies {
		total += len(bodies[i].Request) + len(bodies[i].Response)
	}
	return float64(total) / float64(len(bodies))
}

func (b *bench) compareCost(f, without *form) {
	size := fmt.Sprintf("%.0f KiB", f.size/1024)
	goals := map[resource]*goal{}
	if f.name == packedWell {
		goals[heapBytes] = atMost(1.15)
		b.figure(fmt.Sprintf("etcd's database for a turn of %s, %s", size, f.name), "KiB", atMost(6), f.cost[databaseBytes].Samples...)
		var written []float64
		for _, kib := range f.cost[logBytes].Samples {
			written = append(written, kib*1024/f.size)
		}
		b.figure(fmt.Sprintf("bytes in etcd's log for each byte of a turn of %s, %s", size, f.name), "", atMost(2), written...)
	}
	for _, r := range []resource{heapBytes, heapLater, databaseBytes, logBytes, cpuTime, eventBytes} {
		b.compare(fmt.Sprintf("%s for a turn of %s, %s", r.name, size, f.name), r.unit, *f.cost[r], *without.cost[r], goals[r])
	}
}

// cost has bytes of the kube-apiserver's live heap, of etcd's database and of its log, and milliseconds of CPU time of both.
type cost struct{ heap, etcd, log, cpu float64 }

// saveForm saves a number of turns in a namespace in one of the forms.
type saveForm func(ctx context.Context, namespace string, turns int) error

// saveTurns saves turns in a new namespace, and waits until all have verdicts.
func (b *bench) saveTurns(ctx context.Context, namespace string, save saveForm, turns int) error {
	if err := b.createNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := save(ctx, namespace, turns); err != nil {
		return err
	}
	return b.waitForNone(ctx, v1alpha1.ResponseSessionKind, namespace, "status.rootResponseID=")
}

// sentToReplica returns how many bytes the watches of a replica of the operator are sent for each turn: sessions, and the metadata of chunks.
func (b *bench) sentToReplica(ctx context.Context, namespace string, save saveForm) (float64, error) {
	client, err := kubeclient.New(b.env.Config)
	if err != nil {
		return 0, err
	}
	const turns = 10 * costTurnsInChain
	watching, end := context.WithCancel(ctx)
	defer end()
	group, sent := errgroup.Group{}, atomic.Int64{}
	for resource, accept := range map[string]string{kubeclient.Sessions: runtime.ContentTypeJSON, kubeclient.Chunks: kubeclient.MetadataOnly} {
		request := client.Get().Namespace(namespace).Resource(resource).Param("watch", "true").SetHeader("Accept", accept)
		events, err := request.Stream(watching)
		if err != nil {
			return 0, err
		}
		group.Go(func() error {
			defer func() { _ = events.Close() }()
			bytes, err := io.Copy(io.Discard, events)
			sent.Add(bytes)
			if watching.Err() != nil {
				return nil
			}
			return fmt.Errorf("the watch of %s ended too early: %w", resource, cmp.Or(err, io.ErrUnexpectedEOF))
		})
	}
	if err := b.saveTurns(ctx, namespace, save, turns); err != nil {
		return 0, err
	}
	end()
	err = group.Wait()
	return float64(sent.Load()) / turns, err
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
	c.heap = math.Inf(1)
	for i := range 4 { // finalizers run after the first collection, and requests in progress take memory for a moment
		if err := sleep(ctx, time.Duration(i)*500*time.Millisecond); err != nil {
			return c, err
		}
		profile, err := client.Get().AbsPath("/debug/pprof/heap").Param("gc", "1").Param("debug", "1").DoRaw(ctx)
		if err != nil {
			return c, err
		}
		_, rest, _ := bytes.Cut(profile, []byte("# HeapAlloc = "))
		var heap float64
		if _, err := fmt.Sscan(string(rest[:min(len(rest), 20)]), &heap); err != nil {
			return c, fmt.Errorf("unable to read the heap profile: %w", err)
		}
		c.heap = min(c.heap, heap)
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
	// After some outages of the kube-apiserver, the operator watches again only after half a minute.
	if err := b.restartOperator(ctx, b.flags...); err != nil {
		return cost{}, err
	}
	return b.cost(ctx)
}

func (b *bench) libraryForm(bodies []store.Session, options kube.Options) saveForm {
	return func(ctx context.Context, namespace string, turns int) error {
		options.Config, options.Namespace = b.env.Config, namespace
		s, err := kube.Open(ctx, options)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		return inChains(ctx, turns, func(ctx context.Context, id, previous string, n int) error {
			turn := bodies[n%len(bodies)]
			turn.ResponseID, turn.PreviousResponseID = id, previous
			return s.Save(ctx, &turn, store.SaveOptions{})
		})
	}
}

func (b *bench) jsonForm(bodies []store.Session) saveForm {
	return func(ctx context.Context, namespace string, turns int) error {
		return inChains(ctx, turns, func(ctx context.Context, id, previous string, n int) error {
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

// inChains saves a number of turns, in chains, with several writers.
func inChains(ctx context.Context, turns int, save func(ctx context.Context, id, previous string, n int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for c := range turns / costTurnsInChain {
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
