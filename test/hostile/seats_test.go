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
	"io"
	"strings"
	"sync"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// serviceAccountLevel is the priority level of service accounts, and so of most gateways.
const serviceAccountLevel = "workload-low"

// TestNoSeatsForServiceAccounts: while requests that hang occupy all seats of the priority level of service accounts, what a person saves
// gets a verdict, and resolves, for which the operator has to ask the kube-apiserver.
func TestNoSeatsForServiceAccounts(t *testing.T) {
	a := &arena{TB: t}
	attacker, namespace := a.newTenant(), env.NewNamespace(t)
	person, err := kube.Open(t.Context(), kube.Options{
		Config: env.NewUser(t, "person", namespace, "ClusterRole", "edit"), Namespace: namespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = person.Close() }()
	fixSeats(t)
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	for range hangingRequests {
		hanging.Go(func() {
			for ctx.Err() == nil {
				body, _ := io.Pipe()
				_ = attacker.kube.Post().Namespace(attacker.namespace).Resource(kubeclient.Sessions).MaxRetries(0).Body(body).Do(ctx).Error()
			}
		})
	}
	defer hanging.Wait()
	defer cancel()
	waitForQueue(t)

	if err := person.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	history, err := person.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(history.Turns) != 1 {
		t.Errorf("resolved %q, want one turn", history.Turns)
	}
	wantReason(t, namespace, "resp_1", v1alpha1.ReasonResolved, "")
}

// hangingRequests are more than the seats that fixSeats leaves, and no more than one connection has at once.
const hangingRequests = 40

// fixSeats gives the level of service accounts a few seats of its own for the duration of a test: otherwise it borrows from others.
func fixSeats(t *testing.T) {
	t.Helper()
	level := &flowcontrolv1.PriorityLevelConfiguration{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Name: serviceAccountLevel}, level); err != nil {
		t.Fatal(err)
	}
	set := func(ctx context.Context, automatic string, shares, lendable int32, borrowing *int32) {
		t.Helper()
		before := level.DeepCopy()
		// Otherwise the kube-apiserver restores its own.
		level.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: automatic}
		level.Spec.Limited.NominalConcurrencyShares, level.Spec.Limited.LendablePercent = new(shares), new(lendable)
		level.Spec.Limited.BorrowingLimitPercent = borrowing
		if err := env.Client.Patch(ctx, level, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	was := level.Spec.Limited.DeepCopy()
	set(t.Context(), "false", 4, 0, new(int32))
	t.Cleanup(func() {
		set(context.WithoutCancel(t.Context()), "true", *was.NominalConcurrencyShares, *was.LendablePercent, was.BorrowingLimitPercent)
	})
}

// waitForQueue waits until requests of service accounts wait for a seat.
func waitForQueue(t *testing.T) {
	t.Helper()
	queue := `apiserver_flowcontrol_current_inqueue_requests{flow_schema="service-accounts",priority_level="` + serviceAccountLevel + `"} `
	testutil.Eventually(t, func(ctx context.Context) error {
		metrics, err := sessions.Get().AbsPath("/metrics").DoRaw(ctx)
		if _, length, found := strings.Cut(string(metrics), queue); err == nil && (!found || strings.HasPrefix(length, "0\n")) {
			err = errors.New("no request waits for a seat")
		}
		return err
	})
}
