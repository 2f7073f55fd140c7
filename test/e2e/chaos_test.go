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
	cryptorand "crypto/rand"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "gocloud.dev/blob/fileblob" // file://
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// chaos is the extent of TestChaos.
type chaos struct {
	// planned sessions are created by clients of the kube-apiserver, and turns by clients of the gateways.
	planned, turns int
	// leaders, apiServers and etcds are the number of times each is killed.
	leaders, apiServers, etcds int
}

var (
	shortChaos = chaos{planned: 200, turns: 100, leaders: 3, apiServers: 2, etcds: 1}
	fullChaos  = chaos{planned: 5000, turns: 5000, leaders: 20, apiServers: 5, etcds: 3}

	chaosFull = flag.Bool("chaos.full", false, "run TestChaos with 10,000 turns and 28 killed processes")
)

const (
	chaosWriters   = 6
	chaosPerSecond = 40
	// chaosGrace is the grace period of snapshots. It is longer than any save takes in the test.
	chaosGrace = 45 * time.Second
	// chaosLeftovers is the number of snapshots without a session, in chunks and in the bucket each.
	chaosLeftovers = 20
)

// TestChaos saves conversations, through two gateways and directly, while the leader of two operators, the kube-apiserver and
// etcd are killed. Afterwards every acknowledged turn is stored, every session and every Conversation has the correct verdict, none that was
// Resolved ever had another verdict (or, while a turn was saved, HeadReserved), no status was written twice with the same content, all snapshots that no session needs are
// deleted and no others, and a restart writes nothing.
func TestChaos(t *testing.T) {
	size := shortChaos
	if *chaosFull {
		size = fullChaos
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	bucketDir := t.TempDir()
	bucket := "file://" + bucketDir + "?no_tmp_dir=true&metadata=skip"
	pair := startPair(t, "--snapshot-store="+bucket, "--snapshot-sweep-interval=5s", "--snapshot-grace-period="+chaosGrace.String(),
		"--unsafe-snapshot-grace-period", "--snapshot-sweep-hold-off=0s")
	namespace := env.NewNamespace(t)
	plan := planSessions(random, namespace, size.planned)
	clients := newGatewayClients(t, bucket)
	leaveSnapshots(t, clients.namespace, bucket)
	writes := recordWrites(t, namespace, clients.namespace)

	var written atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	savePlan(ctx, group, plan, &written)
	clients.run(ctx, group, size.turns, &written)
	strikes := size.strikes(random)
	leaders := 0
	for i, strike := range strikes {
		due := int64((i + 1) * (size.planned + size.turns) / (len(strikes) + 1))
		testutil.Eventually(t, func(context.Context) error {
			return unless(written.Load() >= due || ctx.Err() != nil, fmt.Sprintf("%d of %d written", written.Load(), due))
		})
		switch strike {
		case "leader":
			leaders++
			pair.killLeader(t, *chaosFull && leaders%10 == 0)
		case "kube-apiserver":
			killAPIServer(t)
		case "etcd":
			killEtcd(t)
		}
		t.Logf("%d written: killed %s", written.Load(), strike)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	clients.check(t)
	for namespace, plan := range map[string][]testsession.Builder{namespace: plan, clients.namespace: nil} {
		testutil.Eventually(t, func(ctx context.Context) error {
			diff := diffVerdicts(ctx, t, namespace, plan)
			return unless(diff == "", diff)
		})
	}
	testutil.Eventually(t, func(ctx context.Context) error { return onlyReferenced(ctx, clients.namespace, bucketDir) })
	pair.stop(t)
	checkOwners(t, listSessions(t.Context(), t, namespace))
	checkOwners(t, listSessions(t.Context(), t, clients.namespace))
	writes.check(t)

	before := storedVersions(t)
	restartOperator(t)
	marker := markConversations(t, env.NewNamespace(t))
	waitUntilIdle(t)
	after := storedVersions(t)
	delete(after, marker)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a restart wrote objects that already had verdicts: %s", diff)
	}
}

// markConversations creates a Conversation, waits until it has a verdict, and returns its key: the operator has queued all earlier ones then.
func markConversations(t *testing.T, namespace string) (key string) {
	t.Helper()
	marker := &v1alpha1.Conversation{Spec: v1alpha1.ConversationSpec{ConversationID: "marker"}}
	marker.Namespace, marker.Name = namespace, "marker"
	if err := env.Client.Create(t.Context(), marker); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(marker), marker)
		return errors.Join(err, unless(len(marker.Status.Conditions) > 0, "the marker has no verdict"))
	})
	return conversationKeys + namespace + "/marker"
}

// strikes returns the names of the processes to kill, in a random order.
func (c chaos) strikes(random *rand.Rand) []string {
	all := slices.Concat(slices.Repeat([]string{"leader"}, c.leaders), slices.Repeat([]string{"kube-apiserver"}, c.apiServers),
		slices.Repeat([]string{"etcd"}, c.etcds))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// savePlan saves sessions in their order, with several writers.
func savePlan(ctx context.Context, group *errgroup.Group, plan []testsession.Builder, written *atomic.Int64) {
	queue := make(chan testsession.Builder, len(plan))
	for _, next := range plan {
		queue <- next
	}
	close(queue)
	limiter := rate.NewLimiter(chaosPerSecond/2, 1)
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
}

// leaveSnapshots stores snapshots without a session: chunks, as a saver leaves them that is killed, and objects in the bucket, as kubectl does
// when it deletes a session.
func leaveSnapshots(t *testing.T, namespace, bucket string) {
	t.Helper()
	turns, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace, SnapshotStore: bucket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = turns.Close() }()
	for i := range chaosLeftovers {
		chunk := &v1alpha1.SnapshotChunk{Spec: v1alpha1.SnapshotChunkSpec{Data: []byte("left")}}
		chunk.Namespace, chunk.Name = namespace, v1alpha1.SnapshotChunkName(strings.ToLower(cryptorand.Text()), 0)
		session := &store.Session{
			ResponseID: fmt.Sprint("resp_left_", i), Status: store.StatusCompleted, Request: fmt.Appendf(nil, `{"input":%q}`, padding),
		}
		err := errors.Join(
			env.Client.Create(t.Context(), chunk),
			turns.Save(t.Context(), session, store.SaveOptions{}),
			env.Client.Delete(t.Context(), testsession.Make(namespace, session.ResponseID).Obj()),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onlyReferenced returns an error unless a namespace has exactly the chunks and objects in the bucket that its sessions refer to.
func onlyReferenced(ctx context.Context, namespace, bucketDir string) error {
	sessions, chunks := &v1alpha1.ResponseSessionList{}, &metav1.PartialObjectMetadataList{}
	chunks.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.SnapshotChunkKind + "List"))
	err := errors.Join(env.Client.List(ctx, sessions, client.InNamespace(namespace)), env.Client.List(ctx, chunks, client.InNamespace(namespace)))
	if err != nil {
		return err
	}
	wantChunks, wantObjects := 0, 0
	for _, session := range sessions.Items {
		switch snapshot := session.Spec.Snapshot; {
		case snapshot == nil:
		case snapshot.Store == v1alpha1.SnapshotStoreChunks:
			wantChunks += int(snapshot.Parts)
		default:
			wantObjects++
		}
	}
	objects, err := filepath.Glob(filepath.Join(bucketDir, namespace, "*", "*"))
	if err != nil {
		return err
	}
	return unless(len(objects) == wantObjects && len(chunks.Items) == wantChunks,
		fmt.Sprintf("%d chunks and %d objects in the bucket, want %d and %d", len(chunks.Items), len(objects), wantChunks, wantObjects))
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

// killEtcd kills etcd and starts it again.
func killEtcd(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(etcdProcess(t).pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := env.RestartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// planSessions returns sessions in the order to save them: forks, long chains, missing parents, cycles, turns that are not
// completed, and children before and after their parents.
func planSessions(random *rand.Rand, namespace string, sessions int) []testsession.Builder {
	id := func(i int) string { return fmt.Sprintf("resp_%d", i) }
	var plan []testsession.Builder
	for i := range sessions {
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
			if later := i + 1 + random.IntN(10); later < sessions {
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
