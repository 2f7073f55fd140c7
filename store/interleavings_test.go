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

// These tests run the code that changes conversations in the orders that a scheduler chooses. It decides which process's next call of the driver takes
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
	removed bool                // the turns of the conversation
	late    map[string]bool     // the turns that were stored after that
	savers  map[string][]string // of each turn
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
	state    string // of the conversation
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
		version, err := p.Store.Save(context.WithoutCancel(ctx), namespace, s, o)
		if err == nil {
			p.late[s.ResponseID] = p.late[s.ResponseID] || p.removed
			p.savers[s.ResponseID] = append(p.savers[s.ResponseID], p.name)
		}
		return version, err
	})
}

func (p *process) Resolve(ctx context.Context, namespace, id string, o driver.ResolveOptions) (*driver.History, error) {
	return do(ctx, p, "resolve "+id, false, func() (*driver.History, error) {
		return p.Store.Resolve(context.WithoutCancel(ctx), namespace, id, o)
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
	return do(ctx, p, "get "+id, false, func() (*driver.Conversation, error) {
		return p.Conversations.GetConversation(context.WithoutCancel(ctx), namespace, id)
	})
}

func (p *process) GetWithoutBodies(ctx context.Context, namespace, id string) (*driver.Session, error) {
	return do(ctx, p, "look at "+id, false, func() (*driver.Session, error) {
		return p.Conversations.GetWithoutBodies(context.WithoutCancel(ctx), namespace, id)
	})
}

func (p *process) UpdateConversation(ctx context.Context, namespace, id string, u driver.ConversationUpdate) (*driver.Conversation, error) {
	name := "make it " + u.State
	if u.Head != nil {
		name = fmt.Sprintf("update %+v -> %+v", *u.ExpectedHead, *u.Head)
	}
	return do(ctx, p, name, true, func() (*driver.Conversation, error) {
		updated, err := p.Conversations.UpdateConversation(context.WithoutCancel(ctx), namespace, id, u)
		if err == nil && u.Head != nil && id == conversationID {
			p.updates = append(p.updates, headUpdate{p.name, *u.ExpectedHead, *u.Head, updated.State})
		}
		return updated, err
	})
}

func (p *process) CreateConversation(ctx context.Context, namespace string, created *driver.Conversation) (*driver.Conversation, error) {
	return do(ctx, p, "create "+created.ConversationID, true, func() (*driver.Conversation, error) {
		return p.Conversations.CreateConversation(context.WithoutCancel(ctx), namespace, created)
	})
}

func (p *process) DeleteConversation(ctx context.Context, namespace, id string) error {
	_, err := do(ctx, p, "delete "+id, true, func() (struct{}, error) {
		return struct{}{}, p.Conversations.DeleteConversation(context.WithoutCancel(ctx), namespace, id)
	})
	return err
}

func (p *process) DeleteConversationTurns(ctx context.Context, namespace, id string) error {
	_, err := do(ctx, p, "delete the turns of "+id, true, func() (struct{}, error) {
		p.removed = true
		return struct{}{}, p.Conversations.(driver.ConversationDeleter).DeleteConversationTurns(context.WithoutCancel(ctx), namespace, id)
	})
	return err
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

// scenario is what the processes of a run do with one conversation, by their names.
type scenario struct {
	// appends are the IDs of the turns that the processes append, in their order. Several may append the same.
	appends map[string][]string
	// stalls, if set, is the process that stalls.
	stalls string
	// sent, if set, is a turn for which a process has reserved the first place, and that it has sent before it died.
	sent string
	// rollback, if set, is a process that clears the conversation.
	rollback string
	// reserve, if set, is a process that reserves a place, and then saves resp_r, or gives it up if release is set.
	reserve string
	release bool
	// fork, if set, is a process that forks the conversation twice. If back is set, it then rolls one fork back to its first turn. It may not be
	// combined with rollback, which would make it unknown what a fork must have.
	fork string
	back bool
	// read, if set, is a process that loads the history.
	read string
	// archive and remove, if set, are processes that archive the conversation, and that delete it with its turns.
	archive, remove string
}

// appendsOnce reports whether there is only one append of a turn.
func (sc scenario) appendsOnce(id string) bool {
	n := 0
	for _, ids := range sc.appends {
		for _, other := range ids {
			if other == id {
				n++
			}
		}
	}
	return n == 1
}

// mayFail reports whether an append can fail although nothing has gone wrong.
func (sc scenario) mayFail() bool { return sc.rollback != "" || sc.archive != "" || sc.remove != "" }

// forks are the conversations that a scenario's process makes.
var forks = []string{"conv_2", "conv_3"}

// play plays a scenario once, and returns the error of the first guarantee that does not hold.
func (sc scenario) play(ctx context.Context, l limits, choose func(options int) int) (err error) {
	opened, _, err := driver.Open(ctx, "memory:")
	if err != nil {
		return err
	}
	w := &world{Store: opened, Conversations: opened.(driver.Conversations), limits: l, choose: choose, late: map[string]bool{}, savers: map[string][]string{}}
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
	var appended []string           // whose append has succeeded
	var refused []string            // whose only append was a conflict
	forked := map[string][]string{} // to what must be part of the fork
	var kept []string               // what a fork had before it was ended earlier
	var failure error
	processes := map[string]func(*store.Conversations){}
	for name, ids := range sc.appends {
		processes[name] = func(c *store.Conversations) {
			for _, id := range ids {
				_, err := c.Append(ctx, conversationID, testturn.Make(id, ""), store.AppendOptions{})
				w.mu.Lock()
				if errors.Is(err, store.ErrConflict) && sc.appendsOnce(id) {
					refused = append(refused, id)
				}
				switch {
				case err == nil && w.late[id] && sc.rollback == "" && !slices.ContainsFunc(w.savers[id], func(by string) bool { return by != name }):
					failure = fmt.Errorf("%q was appended after the deletion", id)
				case err == nil:
					appended = append(appended, id)
				case l.faults == 0 && l.pauses == 0 && !sc.mayFail(): // nothing has gone wrong
					failure = fmt.Errorf("unable to append %q: %w", id, err)
				}
				w.mu.Unlock()
			}
		}
	}
	if sc.rollback != "" {
		processes[sc.rollback] = func(c *store.Conversations) { _, _ = c.Rollback(ctx, conversationID, "") }
	}
	if sc.reserve != "" {
		processes[sc.reserve] = func(c *store.Conversations) {
			reservation, err := c.Reserve(ctx, conversationID, "resp_r", store.ReserveOptions{})
			switch {
			case err != nil: // perhaps another process has reserved the place
			case sc.release:
				reservation.Release(ctx)
			case reservation.Save(ctx, testturn.Make("resp_r", "")) == nil:
				w.mu.Lock()
				appended = append(appended, "resp_r")
				w.mu.Unlock()
			}
		}
	}
	if sc.fork != "" {
		processes[sc.fork] = func(c *store.Conversations) {
			for _, id := range forks {
				w.mu.Lock()
				before := slices.Clone(appended)
				w.mu.Unlock()
				if _, err := c.Fork(ctx, conversationID, id, store.ForkOptions{}); err == nil {
					forked[id] = before
				}
			}
			history, err := c.Load(ctx, forks[0], store.ResolveOptions{})
			if sc.back && err == nil && len(history.Turns) > 1 {
				forked[forks[0]], kept = history.Turns[:1], history.Turns
				_, _ = c.Rollback(ctx, forks[0], history.Turns[0])
			}
		}
	}
	if sc.read != "" {
		processes[sc.read] = func(c *store.Conversations) {
			for range 2 {
				w.mu.Lock()
				before := slices.Clone(appended)
				w.mu.Unlock()
				history, err := c.Load(ctx, conversationID, store.ResolveOptions{})
				w.mu.Lock()
				missing := func(id string) bool { return err == nil && !slices.Contains(history.Turns, id) }
				if i := slices.IndexFunc(before, missing); err != nil && !errors.Is(err, errDead) {
					failure = fmt.Errorf("unable to load the history: %w", err)
				} else if i >= 0 {
					failure = fmt.Errorf("%q was appended before %q was loaded", before[i], history.Turns)
				}
				w.mu.Unlock()
			}
		}
	}
	if sc.archive != "" {
		processes[sc.archive] = func(c *store.Conversations) { _, _ = c.Archive(ctx, conversationID) }
	}
	remove := func(c *store.Conversations) error {
		return c.Delete(ctx, conversationID, store.DeleteConversationOptions{Turns: true})
	}
	if sc.remove != "" {
		processes[sc.remove] = func(c *store.Conversations) { _ = remove(c) }
	}
	if err := w.run(processes, sc.stalls); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	// Whatever has happened, the next one succeeds.
	w.limits, w.choose = limits{}, func(int) int { return 0 }
	histories := map[string][]string{}
	err = w.run(map[string]func(*store.Conversations){"next": func(c *store.Conversations) {
		load := func(id string) {
			if failure == nil {
				var history *store.History
				if history, failure = c.Load(ctx, id, store.ResolveOptions{}); failure == nil {
					histories[id] = history.Turns
				}
			}
		}
		if sc.remove != "" {
			failure = remove(c)
		} else if _, failure = c.Unarchive(ctx, conversationID); failure == nil {
			appended = append(appended, "resp_next")
			_, failure = c.Append(ctx, conversationID, testturn.Make("resp_next", ""), store.AppendOptions{})
			load(conversationID)
		}
		for id := range forked {
			load(id)
		}
	}}, "")
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("the next one: %w", err)
	}
	if err := checkForks(forked, histories); err != nil {
		return err
	}
	if sc.remove != "" {
		for _, history := range histories {
			kept = append(kept, history...)
		}
		return sc.checkRemoved(ctx, w, appended, kept)
	}
	if i := slices.IndexFunc(refused, func(id string) bool { return slices.Contains(histories[conversationID], id) }); i >= 0 {
		return fmt.Errorf("%q was refused, and is in the history", refused[i])
	}
	return sc.check(ctx, w, appended, histories[conversationID])
}

// checkForks returns an error if a fork does not have what the conversation had when it was forked.
func checkForks(forked, histories map[string][]string) error {
	for id, want := range forked {
		for _, turn := range want {
			if !slices.Contains(histories[id], turn) {
				return fmt.Errorf("%q was appended before the fork, whose history is %q", turn, histories[id])
			}
		}
	}
	return nil
}

// checkRemoved returns an error if the conversation exists, or a turn whose append has succeeded and that no fork has kept. It leaves out turns that
// were rolled back when they were perhaps not stored yet, and those that were stored late. Of these, the writer got an error, unless others
// were saving the same turn. See Conversations.Delete.
func (sc scenario) checkRemoved(ctx context.Context, w *world, appended, kept []string) error {
	if _, err := w.Conversations.GetConversation(ctx, "team", conversationID); !errors.Is(err, driver.ErrConversationNotFound) {
		return fmt.Errorf("the conversation was deleted: got %w", err)
	}
	for _, id := range appended {
		rolledBack := slices.ContainsFunc(w.updates, func(u headUpdate) bool { return u.by == sc.rollback && u.from.ResponseID == id })
		if rolledBack || w.late[id] {
			continue
		}
		switch _, err := w.Store.Get(ctx, "team", id); {
		case err == nil && !slices.Contains(kept, id):
			return fmt.Errorf("%q was appended, and has not been deleted with its conversation", id)
		case err != nil && !errors.Is(err, driver.ErrNotFound):
			return err
		}
	}
	return nil
}

// check returns an error if a turn whose append has succeeded is not in its place.
func (sc scenario) check(ctx context.Context, w *world, appended, history []string) error {
	for _, id := range appended {
		turn, err := w.Store.Get(ctx, "team", id)
		if err != nil {
			return err
		}
		isHead := func(h driver.Head) bool { return h.ResponseID == id && h.Holds(turn.PreviousResponseID) }
		// What has happened since the turn was the head for the first time, or again.
		var replaced *headUpdate
		rolledBack := false
		for i, u := range w.updates {
			givenUp := slices.ContainsFunc(w.updates[:i], func(earlier headUpdate) bool { return earlier.from == u.to })
			if u.state == driver.ConversationArchived && u.to.ResponseID == id && u.from.ResponseID != id && !givenUp {
				return fmt.Errorf("a place for %q was reserved in an archived conversation", id)
			}
			switch {
			case isHead(u.to):
				replaced, rolledBack = nil, false
			case u.by == sc.rollback:
				rolledBack = true
			case isHead(u.from) && u.to.BaseResponseID != id:
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

// deep makes TestEveryOrder play about ten times as many runs, which takes minutes.
var deep = flag.Bool("deep", false, "explore the orders with one more switch between processes")

// TestEveryOrder plays small scenarios in all ways within limits.
func TestEveryOrder(t *testing.T) {
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
		"one turn, and another":         {scenario{appends: map[string][]string{"a": {"resp_a"}, "b": {"resp_a"}, "c": {"resp_c"}}}, limits{switches: 2}},
		"one turn, a fault":             {scenario{appends: same}, limits{switches: 2, faults: 1}},
		"one turn, a fault and time":    {scenario{appends: same}, limits{faults: 1, pauses: 1}},
		// Only with -deep does this find that a repeated append must renew the reservation of a turn that it finds stored.
		"a save on its way":            {scenario{appends: two, sent: "resp_a"}, limits{pauses: 1}},
		"a rollback":                   {scenario{appends: one, rollback: "r"}, limits{switches: 1, faults: 1}},
		"a rollback, a fault and time": {scenario{appends: one, rollback: "r"}, limits{switches: 0, faults: 1, pauses: 1}},
		"a reservation":                {scenario{appends: one, reserve: "r"}, limits{switches: 2, faults: 1}},
		"a reservation that stalls":    {scenario{appends: one, reserve: "r", stalls: "r"}, limits{switches: 2, pauses: 1}},
		"a release":                    {scenario{appends: one, reserve: "r", release: true}, limits{switches: 2, faults: 1}},
		"a release, a fault and time":  {scenario{appends: one, reserve: "r", release: true}, limits{faults: 1, pauses: 1}},
		"a reader":                     {scenario{appends: two, read: "l"}, limits{switches: 2}},
		"a reader, a fault":            {scenario{appends: one, read: "l"}, limits{switches: 2, faults: 1}},
		"a fork":                       {scenario{appends: two, fork: "f"}, limits{switches: 2}},
		"an archived conversation":     {scenario{appends: two, archive: "r"}, limits{switches: 2, faults: 1}},
		"a deletion":                   {scenario{appends: one, remove: "d"}, limits{switches: 2, faults: 1}},
		"a deletion, a fork":           {scenario{appends: one, fork: "f", remove: "d"}, limits{switches: 2}},
		"a deletion, a fork goes back": {scenario{appends: map[string][]string{"a": {"resp_a", "resp_b"}}, fork: "f", back: true, remove: "d"}, limits{switches: 2}},
		"a deletion, a fault and time": {scenario{appends: one, remove: "d"}, limits{faults: 1, pauses: 1}},
		"a deletion, one stalls":       {scenario{appends: one, remove: "d", stalls: "a"}, limits{switches: 2, pauses: 1}},
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

// TestRandomOrders plays larger scenarios.
func TestRandomOrders(t *testing.T) {
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
		if rapid.Bool().Draw(t, "reserve") {
			sc.reserve, sc.release = "reserve", rapid.Bool().Draw(t, "release")
		}
		if sc.rollback == "" && rapid.Bool().Draw(t, "fork") {
			sc.fork, sc.back = "fork", rapid.Bool().Draw(t, "back")
		}
		if rapid.Bool().Draw(t, "archive") {
			sc.archive = "archive"
		}
		if rapid.Bool().Draw(t, "remove") {
			sc.remove = "remove"
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
