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

package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// Programs limits the test of random programs of changes of conversations to a number of programs of a number of steps. Without this option,
// rapid decides.
func Programs(programs, steps int) Option {
	return func(s *suite) { s.programs, s.steps = programs, steps }
}

// defaultSteps is the number of steps of a program without the option Programs.
const defaultSteps = 60

// testConversationModel compares the effect of random programs with a model.
func testConversationModel(t *testing.T, s *suite) {
	run := func(program []modelStep) error {
		m := &model{
			suite: s, store: s.newStore(t), turns: map[string]modelTurn{}, conversations: map[string]*modelConversation{},
		}
		for i, step := range program {
			if err := m.do(t.Context(), step); err != nil {
				return fmt.Errorf("step %d of %+v: %w", i, program, err)
			}
		}
		return m.check(t.Context())
	}
	if s.programs == 0 {
		rapid.Check(t, func(t *rapid.T) {
			if err := run(modelSteps(defaultSteps).Draw(t, "program")); err != nil {
				t.Fatal(err)
			}
		})
		return
	}
	for range s.programs {
		if err := run(modelSteps(s.steps).Example(rand.Int())); err != nil { // the error has the program
			t.Error(err)
		}
	}
}

// modelStep is a step of a program. Its numbers select, modulo their number, from the conversations, the turns, and the turns of a history.
type modelStep struct {
	Operation    string
	Conversation int
	Turn         int
}

func modelSteps(most int) *rapid.Generator[[]modelStep] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelStep {
		return modelStep{
			// Without deletions of turns, there is nothing to find: most programs have some.
			Operation: rapid.SampledFrom([]string{
				"append", "append", "append", "append", "save", "branch", "create", "fork", "fork", "rollback", "archive", "unarchive",
				"delete", "delete with turns", "delete with turns",
			}).Draw(t, "operation"),
			Conversation: rapid.IntRange(0, modelConversations-1).Draw(t, "conversation"),
			Turn:         rapid.IntRange(0, 20).Draw(t, "turn"),
		}
	}), most/2, most)
}

// modelConversations is the number of different conversation IDs.
const modelConversations = 4

// model is what should be stored.
type model struct {
	*suite
	store         *store.Store
	turns         map[string]modelTurn
	conversations map[string]*modelConversation
	created       int // turns
}

type modelTurn struct{ previous, conversation string }

type modelConversation struct {
	head     string
	archived bool
}

// history returns the turns of the history that ends at a turn.
func (m *model) history(head string) (ids []string) {
	for id := head; id != ""; id = m.turns[id].previous {
		ids = append(ids, id)
	}
	slices.Reverse(ids)
	return ids
}

// pick returns one of the IDs, or "" for the one after the last.
func pick(ids []string, number int) string {
	if i := number % (len(ids) + 1); i < len(ids) {
		return ids[i]
	}
	return ""
}

func (m *model) newTurn(previous, conversation string) *store.Session {
	m.created++
	turn := testturn.Make(fmt.Sprintf("t%d", m.created), previous)
	turn.ConversationID = conversation
	return turn
}

// do executes a step, and checks the result.
func (m *model) do(ctx context.Context, step modelStep) error {
	c, id := m.store.Conversations(), fmt.Sprintf("conv_%d", step.Conversation)
	conversation := m.conversations[id]
	switch step.Operation {
	case "save", "branch":
		turn := m.newTurn(pick(slices.Sorted(maps.Keys(m.turns)), step.Turn), "")
		if step.Operation == "branch" {
			turn.ConversationID = id
		}
		m.turns[turn.ResponseID] = modelTurn{turn.PreviousResponseID, turn.ConversationID}
		return m.store.Save(ctx, turn, store.SaveOptions{})
	case "create":
		_, err := c.Create(ctx, &store.Conversation{ConversationID: id})
		if conversation == nil {
			m.conversations[id] = &modelConversation{}
			return err
		}
		return expect(err, store.ErrConflict)
	case "delete":
		delete(m.conversations, id)
		return c.Delete(ctx, id, store.DeleteConversationOptions{})
	case "delete with turns":
		m.delete(id)
		if err := c.Delete(ctx, id, withTurns); err != nil {
			return err
		}
		return errors.Join(m.awaitDeletion(ctx, c, id), m.check(ctx))
	}
	return m.change(ctx, step, c, id, conversation)
}

// change executes a step that changes a conversation, which may be nil.
func (m *model) change(ctx context.Context, step modelStep, c *store.Conversations, id string, conversation *modelConversation) (err error) {
	turn, history := m.newTurn("", id), []string(nil)
	var want error
	switch {
	case conversation == nil:
		want = store.ErrConversationNotFound
	case conversation.archived && (step.Operation == "append" || step.Operation == "rollback"):
		want = store.ErrConversationArchived
	}
	if conversation != nil {
		history = m.history(conversation.head)
	}
	at := pick(history, step.Turn)
	switch step.Operation {
	case "append":
		_, err = c.Append(ctx, id, turn, store.AppendOptions{})
		if want == nil {
			m.turns[turn.ResponseID], conversation.head = modelTurn{conversation.head, id}, turn.ResponseID
		}
	case "rollback":
		_, err = c.Rollback(ctx, id, at)
		if want == nil {
			conversation.head = at
		}
	case "archive":
		_, err = c.Archive(ctx, id)
		if want == nil {
			conversation.archived = true
		}
	case "unarchive":
		_, err = c.Unarchive(ctx, id)
		if want == nil {
			conversation.archived = false
		}
	case "fork":
		target := fmt.Sprintf("conv_%d", (step.Conversation+1+step.Turn)%modelConversations)
		if want == nil && m.conversations[target] != nil {
			want = store.ErrConflict
		}
		_, err = c.Fork(ctx, id, target, store.ForkOptions{ResponseID: at})
		if want == nil {
			if at == "" {
				at = conversation.head
			}
			m.conversations[target] = &modelConversation{head: at}
		}
	}
	return expect(err, want)
}

func expect(err, want error) error {
	if want == nil || !errors.Is(err, want) {
		if err == nil && want != nil {
			return fmt.Errorf("got no error, want %w", want)
		}
		return err
	}
	return nil
}

// delete deletes a conversation with its turns, except the ancestors of the heads of others, and of turns outside of it.
func (m *model) delete(id string) {
	if m.conversations[id] == nil {
		return
	}
	delete(m.conversations, id)
	needed := map[string]bool{}
	need := func(head string) {
		for _, id := range m.history(head) {
			needed[id] = true
		}
	}
	for _, other := range m.conversations {
		need(other.head)
	}
	for turn, t := range m.turns {
		if t.conversation != id {
			need(turn)
		}
	}
	maps.DeleteFunc(m.turns, func(turn string, t modelTurn) bool { return t.conversation == id && !needed[turn] })
}

// awaitDeletion waits until a conversation is deleted.
func (m *model) awaitDeletion(ctx context.Context, c *store.Conversations, id string) error {
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	for {
		_, err := c.Get(ctx, id)
		if errors.Is(err, store.ErrConversationNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// check compares what is stored with the model.
func (m *model) check(ctx context.Context) error {
	for i := range m.created {
		id := fmt.Sprintf("t%d", i+1)
		_, want := m.turns[id]
		if _, err := m.store.Get(ctx, id); errors.Is(err, store.ErrNotFound) == want {
			return fmt.Errorf("turn %s: got %w, want it stored: %t", id, err, want)
		}
	}
	c := m.store.Conversations()
	for i := range modelConversations {
		id := fmt.Sprintf("conv_%d", i)
		got, err := c.Get(ctx, id)
		want := m.conversations[id]
		if want == nil {
			if !errors.Is(err, store.ErrConversationNotFound) {
				return fmt.Errorf("conversation %s: got %+v, %w, want that it does not exist", id, got, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		history, err := c.Load(ctx, id, store.ResolveOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(m.history(want.head), history.Turns, cmpopts.EquateEmpty()); diff != "" || (got.State == store.ConversationArchived) != want.archived {
			return fmt.Errorf("conversation %s in the state %s, history (-want +got):\n%s", id, got.State, diff)
		}
	}
	return nil
}
