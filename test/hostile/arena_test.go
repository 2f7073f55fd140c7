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

package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// The limits of the operator's memory in attacks, smaller than the defaults so that they are reached. docs/architecture.md
// promises the sum: the cache, three times the bytes in flight, and the program.
const (
	cacheBytes    = 16 << 20
	historyBytes  = 40 << 20
	inFlightBytes = 128 << 20
	programBytes  = 250 << 20
)

// operatorArgs are the operator's flags.
var operatorArgs = []string{
	"--shutdown-delay-duration=0s", "--max-depth=1000",
	fmt.Sprintf("--body-cache-bytes=%d", cacheBytes), fmt.Sprintf("--max-history-bytes=%d", historyBytes),
	fmt.Sprintf("--max-inflight-bytes=%d", inFlightBytes),
}

// arena is a control plane in which one tenant attacks another.
type arena struct {
	testing.TB
	// gateway is nil unless the tenants use one.
	gateway  *gateway
	attacker *tenant
	victim   *victim
	// trees are the namespaces with a resp_root whose descendants change with it.
	trees []string
}

// newArena creates two tenants, and a gateway if they use one, for an attack.
func newArena(t testing.TB, of attack) *arena {
	t.Helper()
	a := &arena{TB: t}
	a.attacker = a.newTenant()
	resident := []int{operator.PID()}
	turns := a.newTenant()
	if of.gateway {
		a.gateway = startGateway(a, a.attacker.namespace, turns.namespace)
		resident = append(resident, a.gateway.PID())
	}
	a.victim = newVictim(a, turns, of.conversations)
	for _, pid := range resident {
		testutil.ResetPeakMemory(t, pid)
	}
	return a
}

// checkMemory checks the resident memory of the programs since the arena was made.
func (a *arena) checkMemory() {
	a.Helper()
	check := func(program string, pid int, limit int64) {
		a.Helper()
		peak := testutil.PeakMemory(a, pid)
		a.Logf("resident memory of the %s: at most %d MiB, limit %d", program, peak>>20, limit>>20)
		if peak > limit {
			a.Errorf("the %s used %d MiB, want at most %d", program, peak>>20, limit>>20)
		}
	}
	check("operator", operator.PID(), cacheBytes+3*inFlightBytes+programBytes)
	if a.gateway != nil {
		check("gateway", a.gateway.PID(), gatewayBytes+gatewayProgramBytes)
	}
}

// settle waits until the operator is idle.
func (a *arena) settle(of attack) {
	a.Helper()
	if of.settle != nil {
		of.settle(a)
	}
	testutil.Eventually(a, func(ctx context.Context) error { return testenv.Idle(ctx, operator) })
}

// tenant is a service account with the rights of the ClusterRole edit in its namespace.
type tenant struct {
	namespace string
	config    *rest.Config
	// kube sends requests unchanged, and does not retry rejected ones.
	kube  rest.Interface
	store *store.Store
	// refused are the requests of kube and store that the kube-apiserver and the resolve API have refused.
	refused *refusals
}

func (a *arena) newTenant() *tenant {
	a.Helper()
	t := &tenant{namespace: env.NewNamespace(a), refused: &refusals{}}
	kubeconfig, err := env.Editor(a.Context(), t.namespace)
	if err != nil {
		a.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		a.Fatal(err)
	}
	config.QPS = -1
	config.Wrap(t.refused.count)
	t.config = config
	if t.kube, err = kubeclient.New(config); err != nil {
		a.Fatal(err)
	}
	if t.store, err = kube.Open(a.Context(), kube.Options{Config: config, Namespace: t.namespace}); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := t.store.Close(); err != nil {
			a.Error(err)
		}
	})
	return t
}

// create creates a session from JSON.
func (t *tenant) create(ctx context.Context, object []byte) error {
	return t.createIn(ctx, t.namespace, object)
}

func (t *tenant) createIn(ctx context.Context, namespace string, object []byte) error {
	return t.createOf(ctx, kubeclient.Sessions, namespace, object)
}

// createOf creates an object of a resource from JSON.
func (t *tenant) createOf(ctx context.Context, resource, namespace string, object []byte) error {
	return t.kube.Post().Namespace(namespace).Resource(resource).SetHeader("Content-Type", "application/json").
		SetHeader("Accept", kubeclient.MetadataOnly).MaxRetries(0).Body(object).Do(ctx).Error()
}

// patch changes the status of a response.
func (t *tenant) patch(ctx context.Context, namespace, id, responseStatus string) error {
	body := fmt.Appendf(nil, `{"spec":{"responseStatus":%q}}`, responseStatus)
	return t.kube.Patch("application/merge-patch+json").Namespace(namespace).Resource(kubeclient.Sessions).Name(v1alpha1.ObjectName(id)).
		SetHeader("Accept", kubeclient.MetadataOnly).MaxRetries(0).Body(body).Do(ctx).Error()
}

// resolve returns a request for a history.
func (t *tenant) resolve(id string) *rest.Request { return t.resolveWith(t.kube, id) }

func (t *tenant) resolveWith(client rest.Interface, id string) *rest.Request {
	return client.Get().AbsPath("/apis/resolve.catena.dev/v1alpha1/namespaces", t.namespace, "inputitems", id).
		Param("maxDepth", "10000").MaxRetries(0)
}

// answerOf returns the status of a response, with the code if it is one of Catena's, and an error if there was no response.
func answerOf(err error) (string, error) {
	if err == nil {
		return "200", nil
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return "", err
	}
	answer := fmt.Sprint(status.Status().Code)
	if details := status.Status().Details; details != nil && len(details.Causes) == 1 {
		answer += " " + string(details.Causes[0].Type)
	}
	return answer, nil
}

// createAll creates sessions from JSON, with several clients.
func (a *arena) createAll(n int, object func(i int) []byte) {
	a.Helper()
	group, ctx := errgroup.WithContext(a.Context())
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return a.attacker.create(ctx, object(i)) })
	}
	if err := group.Wait(); err != nil {
		a.Fatal(err)
	}
}

// counter generates names that are unique in an arena.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}
