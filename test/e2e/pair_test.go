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
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

// leaseName is the name of the operators' lease.
const leaseName = "catena.sessions.catena.dev"

// pair holds two operators, of which one leads. The first one has the port of the resolve API.
type pair struct {
	operators [2]*catenatest.Operator
	args      []string
}

// startPair replaces the operator of the suite by a pair with further arguments, and puts it back at the end of the test.
func startPair(t *testing.T, args ...string) *pair {
	t.Helper()
	if err := operator.Stop(); err != nil {
		t.Fatal(err)
	}
	p := &pair{args: append([]string{"--leader-elect=true"}, args...)}
	for i, port := range []int{operator.Port, 0} {
		p.operators[i] = startOperator(t, port, p.args...)
	}
	operator = p.operators[0]
	t.Cleanup(func() {
		p.stop(t)
		restartOperator(t)
	})
	if err := env.WaitForResolveAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// stop stops both. The second call does nothing.
func (p *pair) stop(t *testing.T) {
	t.Helper()
	for _, o := range p.operators {
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// killLeader kills the leader and starts it again. Unless patient, it releases the dead leader's lease, which would
// otherwise expire after a minute.
func (p *pair) killLeader(t *testing.T, patient bool) {
	t.Helper()
	leader := 0
	testutil.Eventually(t, func(ctx context.Context) (err error) {
		leader, err = p.leader(ctx)
		return err
	})
	if err := p.operators[leader].Kill(); err != nil {
		t.Fatal(err)
	}
	if !patient {
		testutil.Eventually(t, releaseLease)
	}
	p.operators[leader] = startOperator(t, p.operators[leader].Port, p.args...)
	operator = p.operators[0]
}

// leader returns the index of the operator that leads.
func (p *pair) leader(ctx context.Context) (int, error) {
	for i, o := range p.operators {
		if leads, err := testenv.Sum(ctx, o, "leader_election_master_status", `name="`+leaseName+`"`); err != nil || leads == 1 {
			return i, err
		}
	}
	return 0, fmt.Errorf("no operator leads")
}

func releaseLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "catena-system", Name: leaseName}}
	free := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":null,"leaseDurationSeconds":1}}`))
	return env.Client.Patch(ctx, lease, free)
}
