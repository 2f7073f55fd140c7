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
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// The victim's behavior: its turns per second, spread over conversations that restart after a number of turns.
const (
	victimPerSecond     = 20
	victimConversations = 8
	victimTurns         = 16
)

// operation is a step of each of the victim's turns that is timed.
type operation string

const (
	opSave    operation = "save"    // with a gateway, the whole request
	opResolve operation = "resolve" // with a gateway, the page of input items
	opVerdict operation = "verdict" // from the save to the verdict
)

var operations = []operation{opSave, opResolve, opVerdict}

// samples are the durations of operations.
type samples map[operation][]time.Duration

// percentile returns the duration that a share p of the samples of an operation do not exceed.
func (s samples) percentile(op operation, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s[op]))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// victim is a tenant that makes turns at a steady pace.
type victim struct {
	*tenant
	conversations [victimConversations]conversation
	ids           counter
	// save makes the next turn of a conversation with a suggested ID, and returns its ID. resolve returns how many turns its
	// history has.
	save    func(ctx context.Context, id, previous string) (string, error)
	resolve func(ctx context.Context, id string) (turns int, err error)
	// conversing is nil unless the victim uses conversations.
	conversing *conversing

	mu      sync.Mutex
	settled map[string]chan struct{} // by object name
	reasons map[string]string
}

type conversation struct {
	mu    sync.Mutex
	last  string
	turns int
}

// newVictim returns a victim that uses the library, with or without conversations, or, if the arena has one, the gateway.
func newVictim(a *arena, t *tenant, withConversations bool) *victim {
	a.Helper()
	v := &victim{tenant: t, settled: map[string]chan struct{}{}, reasons: map[string]string{}}
	v.save, v.resolve = v.saveTurn, v.resolveTurn
	if withConversations {
		v.conversing = newConversing(t)
		v.save, v.resolve = v.conversing.save, v.conversing.resolve
	}
	if a.gateway != nil {
		v.save, v.resolve = a.gateway.through(t.refused).victim(t.namespace)
	}
	verdicts, err := t.kube.Get().Namespace(t.namespace).Resource(kubeclient.Sessions).Param("watch", "true").Watch(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	go v.follow(verdicts)
	a.Cleanup(verdicts.Stop)
	return v
}

func (v *victim) saveTurn(ctx context.Context, id, previous string) (string, error) {
	return id, v.store.Save(ctx, testturn.Make(id, previous), store.SaveOptions{})
}

func (v *victim) resolveTurn(ctx context.Context, id string) (int, error) {
	history, err := v.store.Resolve(ctx, id, store.ResolveOptions{})
	if err != nil {
		return 0, err
	}
	return len(history.Turns), nil
}

// follow records the verdicts on the victim's turns.
func (v *victim) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		session, ok := event.Object.(*v1alpha1.ResponseSession)
		if !ok {
			continue
		}
		condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
		if condition == nil {
			continue
		}
		v.mu.Lock()
		if v.reasons[session.Name] == "" {
			close(v.verdict(session.Name))
		}
		v.reasons[session.Name] = condition.Reason
		v.mu.Unlock()
	}
}

// verdict returns a channel that is closed when a session has a verdict. The caller holds mu.
func (v *victim) verdict(name string) chan struct{} {
	if v.settled[name] == nil {
		v.settled[name] = make(chan struct{})
	}
	return v.settled[name]
}

// converse makes a number of turns, each at its scheduled time, however long earlier ones take.
func (v *victim) converse(ctx context.Context, a *arena, turns int) samples {
	a.Helper()
	took := samples{}
	var mu sync.Mutex
	group := &errgroup.Group{}
	pace := rate.NewLimiter(victimPerSecond, 1)
	for i := range turns {
		if err := pace.Wait(ctx); err != nil {
			break
		}
		group.Go(func() error {
			one, err := v.turn(ctx, &v.conversations[i%victimConversations])
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for op, duration := range one {
				took[op] = append(took[op], duration)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		a.Fatalf("the victim: %v", err)
	}
	return took
}

// wantNoRefusals checks that none of the victim's requests has been refused since the last check, even if it succeeded when repeated.
func (v *victim) wantNoRefusals(a *arena) {
	a.Helper()
	for kind, n := range v.refused.take() {
		a.Errorf("%d requests of the victim were refused: %s", n, kind)
	}
}

// turn makes the next turn of a conversation. Durations are measured from the time when the turn was due.
func (v *victim) turn(ctx context.Context, c *conversation) (map[operation]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, testutil.Patience)
	defer cancel()
	due := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns == victimTurns {
		c.last, c.turns = "", 0
	}
	id, err := v.save(ctx, fmt.Sprintf("resp_%d", v.ids.next()), c.last)
	if err != nil {
		return nil, fmt.Errorf("save: %w", err)
	}
	saved := time.Now()
	c.last = id
	c.turns++
	name := v1alpha1.ObjectName(id)
	v.mu.Lock()
	verdict := v.verdict(name)
	v.mu.Unlock()
	settled := make(chan time.Duration, 1)
	go func() {
		select {
		case <-verdict:
		case <-ctx.Done():
		}
		settled <- time.Since(saved)
	}()
	resolved, err := v.resolve(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", id, err)
	}
	if resolved != c.turns {
		return nil, fmt.Errorf("the history of %s has %d turns, want %d", id, resolved, c.turns)
	}
	took := map[operation]time.Duration{opSave: saved.Sub(due), opResolve: time.Since(saved), opVerdict: <-settled}
	v.mu.Lock()
	defer v.mu.Unlock()
	if reason := v.reasons[name]; reason != v1alpha1.ReasonResolved {
		return nil, fmt.Errorf("the verdict on %s is %q", id, reason)
	}
	return took, nil
}
