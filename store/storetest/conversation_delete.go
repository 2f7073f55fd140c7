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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

var withTurns = store.DeleteConversationOptions{Turns: true}

// conversationTurn saves a turn in the notation of parseTurn, with "@" and its conversation at the end.
func conversationTurn(t *testing.T, st *store.Store, notation string) string {
	t.Helper()
	turn, conversation, _ := strings.Cut(notation, "@")
	session := parseTurn(turn)
	session.ConversationID = conversation
	save(t, st, session, store.SaveOptions{})
	return session.ResponseID
}

// wantDeleted waits until conv_1 is deleted.
func (s *suite) wantDeleted(t *testing.T, c *store.Conversations) {
	t.Helper()
	s.eventually(t, func() error {
		current, err := c.Get(t.Context(), "conv_1")
		switch {
		case errors.Is(err, store.ErrConversationNotFound):
			return nil
		case err == nil && current.State != store.ConversationDeleting:
			return fmt.Errorf("conv_1 is in the state %s", current.State)
		case err == nil:
			err = errors.New("conv_1 still exists")
		}
		return err
	})
}

// testConversationDeleteTurns: the turns of a conversation are deleted with it, except those that something else needs.
func testConversationDeleteTurns(t *testing.T, s *suite) {
	tests := map[string]struct {
		turns []string
		// heads are the heads of the conversations. conv_1 is deleted.
		heads map[string]string
		want  []string
	}{
		"no turns":              {heads: map[string]string{"conv_1": ""}},
		"all turns":             {turns: []string{"a@conv_1", "b<a@conv_1", "c<b@conv_1"}, heads: map[string]string{"conv_1": "c"}},
		"rolled back":           {turns: []string{"a@conv_1", "b<a@conv_1", "c<b@conv_1"}, heads: map[string]string{"conv_1": "a"}},
		"cleared":               {turns: []string{"a@conv_1", "b<a@conv_1"}, heads: map[string]string{"conv_1": ""}},
		"branches":              {turns: []string{"a@conv_1", "b<a@conv_1", "c<a@conv_1", "d<c@conv_1", "e<c@conv_1"}, heads: map[string]string{"conv_1": "b"}},
		"newest first":          {turns: []string{"z@conv_1", "y<z@conv_1", "x<y@conv_1"}, heads: map[string]string{"conv_1": "x"}},
		"orphans":               {turns: []string{"b<a@conv_1", "d<c@conv_1"}, heads: map[string]string{"conv_1": "b"}},
		"failed turns":          {turns: []string{"a:failed@conv_1", "b<a:in_progress@conv_1"}, heads: map[string]string{"conv_1": "b"}},
		"turns of nobody":       {turns: []string{"a", "b<a@conv_1", "c"}, heads: map[string]string{"conv_1": "b"}, want: []string{"a", "c"}},
		"only the head":         {turns: []string{"a", "b<a"}, heads: map[string]string{"conv_1": "b"}, want: []string{"a", "b"}},
		"a fork at a turn":      {turns: []string{"a@conv_1", "b<a@conv_1", "c<b@conv_1"}, heads: map[string]string{"conv_1": "c", "fork": "b"}, want: []string{"a", "b"}},
		"a fork at the head":    {turns: []string{"a@conv_1", "b<a@conv_1"}, heads: map[string]string{"conv_1": "b", "fork": "b"}, want: []string{"a", "b"}},
		"a fork with turns":     {turns: []string{"a@conv_1", "b<a@conv_1", "c<a@fork"}, heads: map[string]string{"conv_1": "b", "fork": "c"}, want: []string{"a", "c"}},
		"a fork of another one": {turns: []string{"a@other", "b<a@conv_1", "c<b@conv_1"}, heads: map[string]string{"conv_1": "c", "other": "a"}, want: []string{"a"}},
		"a continued turn":      {turns: []string{"a@conv_1", "b<a@conv_1", "c<b@conv_1", "d<b"}, heads: map[string]string{"conv_1": "c"}, want: []string{"a", "b", "d"}},
		"turns in between":      {turns: []string{"a@conv_1", "b<a@other", "c<b@conv_1"}, heads: map[string]string{"conv_1": "c"}, want: []string{"a", "b"}},
		"a cycle":               {turns: []string{"a<b@conv_1", "b<a@conv_1", "c<b@conv_1"}, heads: map[string]string{"conv_1": "c"}, want: []string{"a", "b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			c := st.Conversations()
			left := map[string]bool{}
			for _, notation := range tc.turns {
				left[conversationTurn(t, st, notation)] = true
			}
			for id, head := range tc.heads {
				create(t, c, &store.Conversation{ConversationID: id, Head: store.Head{ResponseID: head}})
			}
			for range 2 { // it is no error if it does not exist
				if err := c.Delete(t.Context(), "conv_1", withTurns); err != nil {
					t.Fatal(err)
				}
			}
			s.wantDeleted(t, c)
			for id := range left {
				if _, err := st.Get(t.Context(), id); errors.Is(err, store.ErrNotFound) {
					delete(left, id)
				} else if err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(left)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			delete(tc.heads, "conv_1")
			for id := range tc.heads {
				if _, err := c.Load(t.Context(), id, store.ResolveOptions{}); err != nil {
					t.Errorf("conversation %s: %v", id, err)
				}
			}
		})
	}
}

// testConversationDeleteReserved: the base of another conversation's reserved head stays, and so does what is saved after it.
func testConversationDeleteReserved(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "a", "b", "c")
	if _, err := c.Fork(t.Context(), "conv_1", "fork", store.ForkOptions{ResponseID: "b"}); err != nil {
		t.Fatal(err)
	}
	reservation, err := c.Reserve(t.Context(), "fork", "d", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "conv_1", withTurns); err != nil {
		t.Fatal(err)
	}
	s.wantDeleted(t, c)
	if err := reservation.Save(t.Context(), testturn.Make("d", "")); err != nil {
		t.Fatal(err)
	}
	wantTurns(t, c, "fork", "a", "b", "d")
}

// startDeletion begins to delete conv_1 with its turns, which waits for the turn "c". finish saves that, and waits for the end.
func (s *suite) startDeletion(t *testing.T, c *store.Conversations) (finish func()) {
	t.Helper()
	reservation, err := c.Reserve(t.Context(), "conv_1", "c", store.ReserveOptions{Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error)
	go func() { deleted <- c.Delete(t.Context(), "conv_1", withTurns) }()
	s.eventually(t, func() error {
		if got := getConversation(t, c, "conv_1"); got.State != store.ConversationDeleting {
			return fmt.Errorf("the state is %s", got.State)
		}
		return nil
	})
	return func() {
		t.Helper()
		if err := reservation.Save(t.Context(), testturn.Make("c", "")); err != nil {
			t.Fatal(err)
		}
		if err := <-deleted; err != nil {
			t.Fatal(err)
		}
		s.wantDeleted(t, c)
	}
}

// testConversationDeleteRollback: a fork cannot go back to a turn that is about to be deleted with the conversation that it was forked from.
func testConversationDeleteRollback(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "a", "b")
	if _, err := c.Fork(t.Context(), "conv_1", "fork", store.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	appendTurns(t, c, "fork", "x", "y")
	finish := s.startDeletion(t, c)
	for _, id := range []string{"a", "b"} {
		if _, err := c.Rollback(t.Context(), "fork", id); !errors.Is(err, store.ErrConflict) {
			t.Errorf("rollback to %s: got %v, want ErrConflict", id, err)
		}
	}
	if _, err := c.Rollback(t.Context(), "fork", "x"); err != nil {
		t.Errorf("rollback to x: %v", err)
	}
	wantTurns(t, c, "fork", "a", "b", "x")
	finish()
	if _, err := c.Rollback(t.Context(), "fork", "b"); err != nil {
		t.Errorf("rollback after the deletion: %v", err)
	}
	wantTurns(t, c, "fork", "a", "b")
}

// testConversationDeletePending: the turn for which a place is reserved is deleted too, and no other one can be appended.
func testConversationDeletePending(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "a", "b")
	if _, err := c.Archive(t.Context(), "conv_1"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Unarchive(t.Context(), "conv_1"); err != nil {
		t.Fatal(err)
	}
	finish := s.startDeletion(t, c)
	for name, call := range map[string]func() error{
		"append": func() error {
			_, err := c.Append(t.Context(), "conv_1", testturn.Make("d", ""), store.AppendOptions{})
			return err
		},
		"reserve":   func() error { _, err := c.Reserve(t.Context(), "conv_1", "d", store.ReserveOptions{}); return err },
		"rollback":  func() error { _, err := c.Rollback(t.Context(), "conv_1", "a"); return err },
		"archive":   func() error { _, err := c.Archive(t.Context(), "conv_1"); return err },
		"unarchive": func() error { _, err := c.Unarchive(t.Context(), "conv_1"); return err },
		"fork":      func() error { _, err := c.Fork(t.Context(), "conv_1", "fork", store.ForkOptions{}); return err },
		"create": func() error {
			_, err := c.Create(t.Context(), &store.Conversation{ConversationID: "new", Head: store.Head{ResponseID: "a"}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: got %v, want ErrConflict", name, err)
		}
	}
	finish()
	for _, id := range []string{"a", "b", "c", "d"} {
		wantMissing(t, st, id)
	}
	for _, id := range []string{"fork", "new"} {
		_, err := c.Get(t.Context(), id)
		wantError(t, err, &store.Error{Code: store.CodeConversationNotFound})
	}
}

// testConversationDeleteRace: while a conversation is deleted with its turns, conversations are created at them. Each creation that succeeds
// keeps its whole history.
func testConversationDeleteRace(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("t%02d", i))
	}
	appendTurns(t, c, "conv_1", ids...)
	var mu sync.Mutex
	heads := map[string]int{} // of the created conversations, as indexes of ids
	var all sync.WaitGroup
	for writer := range 4 {
		all.Go(func() {
			for i, at := range slices.Backward(ids) {
				id := fmt.Sprintf("fork_%d_%d", writer, i)
				_, err := c.Create(t.Context(), &store.Conversation{ConversationID: id, Head: store.Head{ResponseID: at}})
				switch {
				case err == nil:
					mu.Lock()
					heads[id] = i
					mu.Unlock()
				case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
					t.Errorf("create a conversation at %s: %v", at, err)
				}
			}
		})
	}
	if err := c.Delete(t.Context(), "conv_1", withTurns); err != nil {
		t.Error(err)
	}
	all.Wait()
	s.wantDeleted(t, c)
	for id, head := range heads {
		wantTurns(t, c, id, ids[:head+1]...)
	}
}
