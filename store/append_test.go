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
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
)

func newConversation(t *testing.T) *store.Conversations {
	t.Helper()
	c := memory.New(memory.Options{Namespace: "team"}).Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatalf("Unable to create the conversation: %v", err)
	}
	return c
}

func turnsOf(t *testing.T, c *store.Conversations, id string) []string {
	t.Helper()
	history, err := c.Load(t.Context(), id, store.ResolveOptions{})
	if err != nil {
		t.Fatalf("Unable to load %q: %v", id, err)
	}
	return history.Turns
}

// TestAppendWriters: 32 writers append at the same time.
func TestAppendWriters(t *testing.T) {
	c := newConversation(t)
	const writers = 32
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			if _, err := c.Append(t.Context(), "conv_1", testturn.Make(fmt.Sprintf("resp_%d", i), ""), store.AppendOptions{}); err != nil {
				t.Errorf("Unable to append: %v", err)
			}
		})
	}
	all.Wait()
	turns := turnsOf(t, c, "conv_1")
	slices.Sort(turns)
	if len(slices.Compact(turns)) != writers {
		t.Errorf("got %d turns, want %d", len(turns), writers)
	}
}

func TestAppendAgain(t *testing.T) {
	c := newConversation(t)
	for _, id := range []string{"resp_1", "resp_2", "resp_1", "resp_2"} {
		turn := testturn.Make(id, "")
		if _, err := c.Append(t.Context(), "conv_1", turn, store.AppendOptions{}); err != nil {
			t.Fatalf("Unable to append %q: %v", id, err)
		}
	}
	if diff := cmp.Diff([]string{"resp_1", "resp_2"}, turnsOf(t, c, "conv_1")); diff != "" {
		t.Errorf("Unexpected turns (-want,+got):\n%s", diff)
	}
}

func TestReserve(t *testing.T) {
	c := newConversation(t)
	r, err := c.Reserve(t.Context(), "conv_1", "resp_1", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{}); !errors.Is(err, store.ErrConversationLocked) {
		t.Errorf("got %v, want ErrConversationLocked", err)
	}
	r.Release(t.Context())
	r, err = c.Reserve(t.Context(), "conv_1", "resp_2", store.ReserveOptions{Duration: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Save(t.Context(), testturn.Make("resp_2", "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"resp_2"}, turnsOf(t, c, "conv_1")); diff != "" {
		t.Errorf("Unexpected turns (-want,+got):\n%s", diff)
	}
}
