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
	"testing"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
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

// TestConversationsUnsupported: a driver need not store conversations.
func TestConversationsUnsupported(t *testing.T) {
	c := store.New(struct{ driver.Store }{}, driver.Options{}).Conversations()
	if _, err := c.Get(t.Context(), "conv_1"); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if err := c.Delete(t.Context(), ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// TestUnanswered: the calls of a turn that need an output.
func TestUnanswered(t *testing.T) {
	const call, output = `{"type":"function_call","call_id":"a"}`, `{"type":"function_call_output","call_id":"a"}`
	for name, tc := range map[string]struct {
		input, output, next string
		want                bool // that the turn can be appended
	}{
		"no calls":               {`"hi"`, `{"type":"message"}`, `"hi"`, true},
		"answered":               {`"hi"`, call, `[` + output + `]`, true},
		"answered by itself":     {`[` + call + `,` + output + `]`, ``, `"hi"`, true},
		"unanswered in input":    {`[` + call + `]`, ``, `"hi"`, false},
		"unanswered":             {`"hi"`, call, `[{"type":"message"}]`, false},
		"another call":           {`"hi"`, call, `[{"type":"function_call_output","call_id":"b"}]`, false},
		"made by the engine":     {`"hi"`, `{"type":"web_search_call","id":"ws"}`, `"hi"`, true},
		"null":                   {`"hi"`, `{"type":"tool_search_call","call_id":null}`, `"hi"`, true},
		"not in a list":          {`"hi"`, call, `"function_call_output"`, false},
		"of a type that is none": {`"hi"`, `{"call_id":"a"}`, `"hi"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConversation(t)
			first := &store.Session{
				ResponseID: "resp_1", Status: store.StatusCompleted,
				Request: []byte(`{"input":` + tc.input + `}`), Response: []byte(`{"output":[` + tc.output + `]}`),
			}
			if _, err := c.Append(t.Context(), "conv_1", first, store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			next := &store.Session{ResponseID: "resp_2", Status: store.StatusCompleted, Request: []byte(`{"input":` + tc.next + `}`)}
			if _, err := c.Append(t.Context(), "conv_1", next, store.AppendOptions{}); errors.Is(err, store.ErrInvalid) == tc.want {
				t.Errorf("got %v, want success: %v", err, tc.want)
			}
		})
	}
}
