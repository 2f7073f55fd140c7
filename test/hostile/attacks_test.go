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
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/catena-dev/catena/internal/testutil"
)

// request is one request of a client. It returns the answer, such as "200" or "429", and the amount: 1 if requests are
// compared, or a number of bytes. An error fails the test, unless the context is done.
type request func(ctx context.Context, n int) (answer string, amount int, err error)

// attack describes an attack of one tenant on another.
type attack struct {
	// clients is the number of clients that send requests concurrently, each as fast as it is answered.
	clients int
	// small and large are the size of the attack, in tests and in benchmarks. prepare determines what it counts.
	small, large int
	// gateway starts a gateway, which the victim then uses instead of the library.
	gateway bool
	// conversations has the victim use conversations of the library.
	conversations bool
	// prepare stores the objects that the attack needs, and returns the requests of the attacker's clients and the harmless
	// requests for comparison. Both report amounts in the same unit.
	prepare func(a *arena, size int) (hostile, harmless request)
	// answers are the answers that the attacker may get. Those that are true must occur.
	answers map[string]bool
	// settle waits, after the attack, until the operator has processed its effects.
	settle func(a *arena)
}

// attacks are all attacks, by name.
func attacks() map[string]attack {
	all := map[string]attack{}
	for _, family := range []map[string]attack{objectAttacks, resolveAttacks, writeAttacks, conversationAttacks, gatewayAttacks} {
		maps.Copy(all, family)
	}
	return all
}

// turnsPerPhase is the number of turns that the victim makes in each phase of a test. Speed is not measured there.
const turnsPerPhase = 20

// TestAttacks runs each attack briefly. None of the victim's requests is refused, not even one that its client repeats, its verdicts
// and histories are correct, the attacker gets the expected errors, and the memory of the programs stays within its limit. BenchmarkAttacks
// measures speed.
func TestAttacks(t *testing.T) {
	for name, attack := range attacks() {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, attack)
			hostile, _ := attack.prepare(a, attack.small)
			a.settle(attack)
			p := a.run(phase{clients: attack.clients, send: hostile, answers: attack.answers, turns: turnsPerPhase})
			t.Logf("answers: %v", p.got)
			a.settle(attack)
			a.checkMemory()
		})
	}
}

// harmless returns the answers to the requests of the comparison. They succeed, unless that many clients exceed a share.
func (a attack) harmless() map[string]bool {
	answers := map[string]bool{}
	for answer := range a.answers {
		if strings.HasPrefix(answer, "429") {
			answers[answer] = false
		}
	}
	answers["200"] = true
	return answers
}

// phase is a time in which the victim makes a number of turns while the attacker's clients send requests.
type phase struct {
	clients int
	send    request
	// answers are the answers that the clients may get. Those that are true must occur.
	answers map[string]bool
	turns   int
	// perSecond limits the amount of all clients together; 0 is no limit.
	perSecond float64

	// The results: the answers, the amount, the duration, and the durations of the victim's operations.
	got     map[string]int
	amount  int
	took    time.Duration
	samples samples
}

// maxAmount is the largest amount of one request, in bytes.
const maxAmount = 128 << 20

// run runs a phase. It ends when the victim has made its turns, and the clients together have received at least as many
// answers as there are clients, including all required ones. It fails if a request of the victim was refused.
func (a *arena) run(p phase) phase {
	a.Helper()
	limit := rate.NewLimiter(rate.Inf, maxAmount)
	if p.perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(p.perSecond), maxAmount)
		limit.AllowN(time.Now(), maxAmount) // so that the first requests are not a burst
	}
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	p.got = map[string]int{}
	var mu sync.Mutex
	begun, start := 0, time.Now()
	for range p.clients {
		group.Go(func() error {
			for {
				mu.Lock()
				n := begun
				begun++
				mu.Unlock()
				answer, amount, err := p.send(ctx, n)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					return fmt.Errorf("request %d of the attacker: %w", n, err)
				}
				mu.Lock()
				p.got[answer]++
				p.amount += amount
				mu.Unlock()
				if err := limit.WaitN(ctx, amount); err != nil {
					return err
				}
			}
		})
	}
	p.samples = a.victim.converse(ctx, a, p.turns)
	if a.victim.conversing != nil {
		a.victim.conversing.check(a)
	}
	a.victim.wantNoRefusals(a)
	testutil.Eventually(a, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for answer, must := range p.answers {
			if ctx.Err() == nil && (sum(p.got) < p.clients || must && p.got[answer] == 0) {
				return fmt.Errorf("%d clients got %v, want %q", p.clients, p.got, answer)
			}
		}
		return nil
	})
	p.took = time.Since(start)
	cancel()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		a.Fatal(err)
	}
	for answer, n := range p.got {
		if _, ok := p.answers[answer]; !ok {
			a.Errorf("got the unexpected answer %q %d times", answer, n)
		}
	}
	return p
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}
