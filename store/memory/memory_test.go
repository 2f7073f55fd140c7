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

package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
	"github.com/catena-dev/catena/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) driver.Store { return memory.NewDriver() })
}

// TestLongConversation: a conversation can outgrow what can be loaded. Its end can still be read, and it can be cleared.
func TestLongConversation(t *testing.T) {
	c := memory.New(memory.Options{}).Conversations()
	if _, err := c.Create(t.Context(), &store.Conversation{ConversationID: "conv_1"}); err != nil {
		t.Fatal(err)
	}
	for i := range store.MaxDepthLimit + 1 {
		if _, err := c.Append(t.Context(), "conv_1", testturn.Make(fmt.Sprintf("resp_%d", i), ""), store.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	depth := store.MaxDepthLimit
	_, loadErr := c.Load(t.Context(), "conv_1", store.ResolveOptions{MaxDepth: &depth})
	_, countErr := c.Count(t.Context(), "conv_1")
	_, rollbackErr := c.Rollback(t.Context(), "conv_1", "resp_9")
	for name, err := range map[string]error{"Load": loadErr, "Count": countErr, "Rollback": rollbackErr} {
		if !errors.Is(err, store.ErrDepthExceeded) {
			t.Errorf("%s: got %v, want ErrDepthExceeded", name, err)
		}
	}
	if h, err := c.Recent(t.Context(), "conv_1", 2, store.ResolveOptions{}); err != nil || len(h.Turns) != 2 {
		t.Errorf("Recent: got %v, %v", h, err)
	}
	if _, err := c.Rollback(t.Context(), "conv_1", ""); err != nil {
		t.Errorf("unable to clear the history: %v", err)
	}
}
