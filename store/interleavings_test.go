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

package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/internal/local"
)

// These tests run the code that appends turns in the orders that a scheduler chooses. It decides which process's next call of the driver takes
// effect, whether its response arrives, when a process dies, and when time passes. The time is not real.

// world is what the processes of one run share.
type world struct {
	driver.Store
	driver.Conversations
	limits limits
	choose func(options int) int

	mu      sync.Mutex // processes run in parallel, and when time passes
	running int
	calls   []*call // that have not taken effect
	last    *process
	updates []headUpdate
	log     []string
}

// limits are how much may happen in a run that need not happen.
type limits struct {
	switches int // to another process although the last one could go on
	faults   int // lost responses and deaths
	pauses   int // passages of time although a call could take effect
}

// headUpdate is a change of the head of the conversation.
type headUpdate struct {
	by       string
	from, to driver.Head
}

const conversationID = "conv_1"

// process is the driver of a process. Its calls take effect when the scheduler chooses them.
type process struct {
	*world
	name string
	dead bool
	// stalls means that the process notices deadlines only when its calls have returned.
	stalls bool
}

// call is a call that has not taken effect.
type call struct {
	by      *process
	name    string
	changes bool
	run     func()
	answer  chan error
	// orphaned means that nobody waits for the response.
	orphaned bool
}

var (
	errDead = errors.New("the process is dead")
	errLost = errors.New("the response is lost")
)

// do makes a call. If the context ends before it is chosen, it can still take effect later, as a request on its way to a server can.
func do[T any](ctx context.Context, p *process, name string, changes bool, run func() (T, error)) (T, error) {
	var result, none T
	var err error
	c := &call{by: p, name: p.name + ": " + name, changes: changes, answer: make(chan error, 1)}
	c.run = func() { result, err = run() }
	if !p.send(c) {
		return none, errDead
	}
	select {
	case failure := <-c.answer:
		if failure != nil {
			return none, failure
		}
		return result, err
	case <-doneUnless(ctx, p.stalls):
		p.mu.Lock()
		defer p.mu.Unlock()
		c.orphaned = true
		return none, ctx.Err()
	}
}

// send adds a call, and reports whether the process is alive.
func (p *process) send(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.calls = append(p.calls, c)
	}
	return !p.dead
}

func doneUnless(ctx context.Context, stalls bool) <-chan struct{} {
	if stalls {
		return nil
	}
	return ctx.Done()
}

func (p *process) Get(ctx context.Context, namespace, id string) (*driver.Session, error) {
	return do(ctx, p, "get "+id, false, func() (*driver.Session, error) {
		return p.Store.Get(context.WithoutCancel(ctx), namespace, id)
	})
}

func (p *process) Save(ctx context.Context, namespace string, s *driver.Session, o driver.SaveOptions) (string, error) {
	return do(ctx, p, fmt.Sprintf("save %s after %q", s.ResponseID, s.PreviousResponseID), true, func() (string, error) {
		return p.Store.Save(context.WithoutCancel(ctx), namespace, s, o)
	})
}

// List reads the conversation and then its turns, as the operator does.
func (p *process) List(ctx context.Context, namespace, id string, o driver.ListOptions) (*driver.TurnList, error) {
	conversation, err := p.GetConversation(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	return local.History(ctx, conversation, o, func(last string) ([]driver.TurnInfo, error) {
		return do(ctx, p, "follow "+last, false, func() (turns []driver.TurnInfo, err error) {
			for next := last; next != "" && err == nil; {
				var turn *driver.Session
				if turn, err = p.Store.Get(context.WithoutCancel(ctx), namespace, next); err == nil {
					next = turn.PreviousResponseID
					turns = append(turns, driver.TurnInfo{ResponseID: turn.ResponseID, PreviousResponseID: next, Status: turn.Status})
				}
			}
			if errors.Is(err, driver.ErrNotFound) {
				err = nil
			}
			return turns, err
		})
	})
}

func (p *process) GetConversation(ctx context.Context, namespace, id string) (*driver.Conversation, error) {
	return do(ctx, p, "get the conversation", false, func() (*driver.Conversation, error) {
		return p.Conversations.GetConversation(context.WithoutCancel(ctx), namespace, id)
	})
}

func (p *process) UpdateConversation(ctx context.Context, namespace, id string, u driver.ConversationUpdate) (*driver.Conversation, error) {
	return do(ctx, p, fmt.Sprintf("update %+v -> %+v", *u.ExpectedHead, *u.Head), true, func() (*driver.Conversation, error) {
		updated, err := p.Conversations.UpdateConversation(context.WithoutCancel(ctx), namespace, id, u)
		if err == nil {
			p.updates = append(p.updates, headUpdate{p.name, *u.ExpectedHead, *u.Head})
		}
		return updated, err
	})
}

// step is one of the things that can happen next.
type step struct {
	name string
	cost limits
	do   func()
	// pause passes afterwards.
	pause time.Duration
}

// steps returns what can happen next. The first one makes progress.
func (w *world) steps() []step {
	w.mu.Lock()
	defer w.mu.Unlock()
	var steps []step
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.orphaned && !c.changes })
	waiting := func(c *call) bool { return !c.orphaned }
	ofLast := func(c *call) bool { return waiting(c) && c.by == w.last }
	mayGoOn := slices.ContainsFunc(w.calls, ofLast)
	slices.SortFunc(w.calls, func(a, b *call) int { return strings.Compare(a.name, b.name) }) // the same in every run
	for _, first := range []bool{true, false} {
		for _, c := range w.calls {
			if ofLast(c) != first {
				continue
			}
			cost := limits{}
			if !first && mayGoOn {
				cost.switches = 1
			}
			steps = append(steps, w.stepsOf(c, cost)...)
		}
	}
	if !slices.ContainsFunc(w.calls, waiting) {
		steps = slices.Insert(steps, 0, pass(1601*time.Millisecond, limits{})) // enough for a poll, and nothing else makes progress
	} else {
		// Enough for a renewal, and for the end of a reservation, and never at the same moment as a timer.
		steps = append(steps, pass(5107*time.Millisecond, limits{pauses: 1}), pass(11003*time.Millisecond, limits{pauses: 1}))
	}
	return slices.DeleteFunc(steps, func(s step) bool {
		return s.cost.switches > w.limits.switches || s.cost.faults > w.limits.faults || s.cost.pauses > w.limits.pauses
	})
}

// pass returns the step in which time passes.
func pass(d time.Duration, cost limits) step {
	return step{name: fmt.Sprintf("%v pass", d), cost: cost, do: func() {}, pause: d}
}

// stepsOf returns what can happen to a call.
func (w *world) stepsOf(c *call, cost limits) []step {
	run := func() {
		c.run()
		w.calls = slices.DeleteFunc(w.calls, func(other *call) bool { return other == c })
		w.last = c.by
	}
	if c.orphaned {
		return []step{{name: c.name, cost: cost, do: func() { run(); w.last = nil }}}
	}
	steps := []step{{name: c.name, cost: cost, do: func() { run(); c.answer <- nil }}}
	cost.faults = 1
	if c.changes {
		steps = append(steps,
			step{name: c.name + ", and its response is lost", cost: cost, do: func() { run(); c.answer <- driver.Again(errLost) }},
			step{name: c.name + ", and the process dies", cost: cost, do: func() { run(); c.answer <- errDead; w.kill(c.by) }})
	}
	return append(steps, step{name: "instead of " + c.name + ", the process dies", cost: cost, do: func() { w.kill(c.by) }})
}

// kill ends a process. What it has sent can still take effect.
func (w *world) kill(p *process) {
	p.dead = true
	for _, c := range w.calls {
		if c.by == p && !c.orphaned {
			c.orphaned = true
			c.answer <- errDead
		}
	}
}

// maxSteps is far more than any run needs.
const maxSteps = 500

// run lets things happen until all processes have ended.
func (w *world) run(processes map[string]func(*store.Conversations), stalls string) error {
	w.running = len(processes)
	for name, act := range processes {
		go func() {
			act(store.New(&process{world: w, name: name, stalls: name == stalls}, driver.Options{Namespace: "team"}).Conversations())
			w.mu.Lock()
			defer w.mu.Unlock()
			w.running--
		}()
	}
	for range maxSteps {
		synctest.Wait()
		if w.running == 0 {
			return nil
		}
		steps := w.steps()
		next := steps[w.choose(len(steps))]
		w.log = append(w.log, next.name)
		w.mu.Lock()
		w.limits.switches -= next.cost.switches
		w.limits.faults -= next.cost.faults
		w.limits.pauses -= next.cost.pauses
		next.do()
		w.mu.Unlock()
		<-time.After(next.pause)
	}
	return fmt.Errorf("not all processes have ended after %d steps", maxSteps)
}

// scenario is what the processes of a run do. All append to one conversation, by their names.
type scenario struct {
	// appends are the IDs of the turns that the processes append, in their order. Several may append the same.
	appends map[string][]string
	// stalls, if set, is the process that stalls.
	stalls string
	// sent, if set, is a turn for which a process has reserved the first place, and that it has sent before it died.
	sent string
	// rollback, if set, is a process that clears the conversation.
	rollback string
}

// play plays a scenario once, and returns the error of the first guarantee that does not hold.
func (sc scenario) play(ctx context.Context, l limits, choose func(options int) int) (err error) {
	opened, _, err := driver.Open(ctx, "memory:")
	if err != nil {
		return err
	}
	w := &world{Store: opened, Conversations: opened.(driver.Conversations), limits: l, choose: choose}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n  %s", err, strings.Join(w.log, "\n  "))
		}
	}()
	conversation := &driver.Conversation{ConversationID: conversationID, State: driver.ConversationActive}
	if sc.sent != "" {
		conversation.Head = driver.Head{ResponseID: sc.sent, Reservation: driver.Reservation{Duration: store.DefaultReservation}}
		w.calls = append(w.calls, &call{by: &process{name: "dead"}, name: "dead: save " + sc.sent, changes: true, orphaned: true, run: func() {
			turn := testturn.Make(sc.sent, "")
			turn.ConversationID = conversationID
			_, _ = w.Save(ctx, "team", turn, driver.SaveOptions{})
		}})
	}
	if _, err := w.CreateConversation(ctx, "team", conversation); err != nil {
		return err
	}
	var appended []string
	var failure error
	processes := map[string]func(*store.Conversations){}
	for name, ids := range sc.appends {
		processes[name] = func(c *store.Conversations) {
			for _, id := range ids {
				_, err := c.Append(ctx, conversationID, testturn.Make(id, ""), store.AppendOptions{})
				w.mu.Lock()
				switch {
				case err == nil:
					appended = append(appended, id)
				case l.faults == 0 && l.pauses == 0 && sc.rollback == "": // nothing has gone wrong, and no turn was rolled back
					failure = fmt.Errorf("unable to append %q: %w", id, err)
				}
				w.mu.Unlock()
			}
		}
	}
	if sc.rollback != "" {
		processes[sc.rollback] = func(c *store.Conversations) { _, _ = c.Rollback(ctx, conversationID, "") }
	}
	if err := w.run(processes, sc.stalls); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	// Whatever has happened, the next writer succeeds.
	w.limits, w.choose = limits{}, func(int) int { return 0 }
	var history *store.History
	err = w.run(map[string]func(*store.Conversations){"next": func(c *store.Conversations) {
		if _, failure = c.Append(ctx, conversationID, testturn.Make("resp_next", ""), store.AppendOptions{}); failure == nil {
			history, failure = c.Load(ctx, conversationID, store.ResolveOptions{})
		}
	}}, "")
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("the next writer: %w", err)
	}
	return sc.check(w, append(appended, "resp_next"), history.Turns)
}

// check returns an error if a turn whose append has succeeded is not in its place.
func (sc scenario) check(w *world, appended, history []string) error {
	for _, id := range appended {
		// What has happened since the turn was the head for the first time, or again.
		var replaced *headUpdate
		rolledBack := false
		for _, u := range w.updates {
			switch {
			case u.to.ResponseID == id:
				replaced, rolledBack = nil, false
			case u.by == sc.rollback:
				rolledBack = true
			case u.from.ResponseID == id && u.to.BaseResponseID != id:
				replaced = &u
			}
		}
		if replaced != nil {
			return fmt.Errorf("%q was appended, but replaced: %+v", id, *replaced)
		}
		if slices.Contains(history, id) == rolledBack {
			return fmt.Errorf("%q was appended, rolled back: %v, but the history is %q", id, rolledBack, history)
		}
	}
	sorted := slices.Sorted(slices.Values(history))
	if len(slices.Compact(sorted)) != len(history) {
		return fmt.Errorf("a turn is twice in the history %q", history)
	}
	return nil
}

// explore plays a scenario in all ways that the limits allow, and returns their number.
func (sc scenario) explore(t *testing.T, l limits) int {
	t.Helper()
	type choice struct{ index, options int }
	var choices []choice
	for runs := 1; ; runs++ {
		next := 0
		var err error
		synctest.Test(t, func(t *testing.T) {
			err = sc.play(t.Context(), l, func(options int) int {
				if next == len(choices) {
					choices = append(choices, choice{0, options})
				}
				if choices[next].options != options {
					panic(fmt.Sprintf("a repeated run has %d options, not %d", options, choices[next].options))
				}
				next++
				return choices[next-1].index
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		choices = choices[:next]
		for len(choices) > 0 && choices[len(choices)-1].index == choices[len(choices)-1].options-1 {
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			return runs
		}
		choices[len(choices)-1].index++
	}
}

// deep makes TestAppendInEveryOrder play about ten times as many runs, for some minutes.
var deep = flag.Bool("deep", false, "explore the orders of appends with one more switch between processes")

// TestAppendInEveryOrder plays small scenarios in all ways within limits.
func TestAppendInEveryOrder(t *testing.T) {
	one := map[string][]string{"a": {"resp_a"}}
	two := map[string][]string{"a": {"resp_a"}, "b": {"resp_b"}}
	same := map[string][]string{"a": {"resp_a"}, "b": {"resp_a"}}
	for name, tc := range map[string]struct {
		scenario
		limits
	}{
		"two writers, a fault":          {scenario{appends: two}, limits{switches: 2, faults: 1}},
		"two writers, a fault and time": {scenario{appends: two}, limits{faults: 1, pauses: 1}},
		"two writers, one stalls":       {scenario{appends: two, stalls: "a"}, limits{switches: 2, pauses: 1}},
		"one turn, a fault":             {scenario{appends: same}, limits{switches: 2, faults: 1}},
		"one turn, a fault and time":    {scenario{appends: same}, limits{faults: 1, pauses: 1}},
		// Only with -deep does this find that a repeated append must renew the reservation of a turn that it finds stored.
		"a save on its way":            {scenario{appends: two, sent: "resp_a"}, limits{pauses: 1}},
		"a rollback":                   {scenario{appends: one, rollback: "r"}, limits{switches: 1, faults: 1}},
		"a rollback, a fault and time": {scenario{appends: one, rollback: "r"}, limits{switches: 0, faults: 1, pauses: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if *deep {
				tc.switches++
			}
			t.Logf("%d runs", tc.explore(t, tc.limits))
		})
	}
}

// TestAppendInRandomOrders plays larger scenarios.
func TestAppendInRandomOrders(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.SampledFrom([]string{"resp_a", "resp_b", "resp_c"}), 1, 3)
		sc := scenario{appends: map[string][]string{"a": ids.Draw(t, "a"), "b": ids.Draw(t, "b"), "c": ids.Draw(t, "c")}}
		if rapid.Bool().Draw(t, "rollback") {
			sc.rollback = "r"
		}
		if rapid.Bool().Draw(t, "stalls") {
			sc.stalls = "a"
		}
		l := limits{
			switches: rapid.IntRange(0, 20).Draw(t, "switches"), faults: rapid.IntRange(0, 3).Draw(t, "faults"),
			pauses: rapid.IntRange(0, 5).Draw(t, "pauses"),
		}
		// The first step is chosen if these are too few.
		steps := rapid.SliceOfN(rapid.IntRange(0, math.MaxInt16), 0, maxSteps).Draw(t, "steps")
		var err error
		synctest.Test(outer, func(t *testing.T) {
			err = sc.play(t.Context(), l, func(options int) int {
				if len(steps) == 0 {
					return 0
				}
				next := steps[0] % options
				steps = steps[1:]
				return next
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
