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

package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

// TestConversationKey: a repeated request returns the stored response, and adds nothing to the conversation.
func TestConversationKey(t *testing.T) {
	f, replica := startConversation(t, nil)
	if _, err := f.conversations().Create(t.Context(), &store.Conversation{ConversationID: "conv_2"}); err != nil {
		t.Fatal(err)
	}
	before := f.create(`{"conversation":"conv_1","input":"a"}`)
	body := fmt.Sprintf(`{"conversation":"conv_1","input":[{"type":"item_reference","id":%q},{"role":"user","content":"b"}]}`, before.get("output.0.id"))
	first := f.create(body, key("k")...)
	after := f.create(`{"conversation":"conv_1","input":"c"}`)
	runs := f.sent.count()
	for name, tc := range map[string]struct{ body, want string }{
		"repeated":                {body, "OK"},
		"in another conversation": {strings.Replace(body, "conv_1", "conv_2", 1), "Conflict idempotency_key_reused"},
		"by the previous response": {
			strings.Replace(body, `"conversation":"conv_1"`, `"previous_response_id":"`+before.get("id")+`"`, 1), "Conflict idempotency_key_reused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := replica.do(http.MethodPost, "/v1/responses", tc.body, key("k")...)
			if r.code() != tc.want || tc.want == "OK" && r.body != first.body {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			}
		})
	}
	running, err := f.conversations().Reserve(t.Context(), conv, "resp_running", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := replica.do(http.MethodPost, "/v1/responses", body, key("k")...); r.body != first.body {
		t.Errorf("repeated while another response is created: got %d %s", r.status, r.body)
	}
	running.Release(t.Context())
	if got := f.sent.count(); got != runs {
		t.Errorf("the engine ran %d times, want %d", got, runs)
	}
	if diff := cmp.Diff([]string{before.get("id"), first.get("id"), after.get("id")}, f.turns(conv)); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}

	if _, err := f.conversations().Archive(t.Context(), conv); err != nil {
		t.Fatal(err)
	}
	if r := replica.do(http.MethodPost, "/v1/responses", body, key("k")...); r.code() != "OK" {
		t.Errorf("repeated after the conversation was archived: got %d %s", r.status, r.body)
	}
	if _, err := f.conversations().Unarchive(t.Context(), conv); err != nil {
		t.Fatal(err)
	}
	if _, err := f.conversations().Rollback(t.Context(), conv, before.get("id")); err != nil {
		t.Fatal(err)
	}
	if r := replica.do(http.MethodPost, "/v1/responses", body, key("k")...); r.status != http.StatusConflict {
		t.Errorf("repeated although the turn is not part of the conversation: got %d %s", r.status, r.body)
	}
}

// TestConversationKeyRace: a copy of a request that looks for the turn before the first one has saved it, and reserves its place after that, gets
// what the first one got.
func TestConversationKeyRace(t *testing.T) {
	for name, tc := range map[string]struct{ path, body string }{
		"response": {"/v1/responses", `{"conversation":"conv_1","input":"a"}`},
		"items":    {"/v1/conversations/conv_1/items", `{"items":[{"role":"user","content":"a"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			f, replica := startConversation(t, nil)
			var first reply
			f.store.onGet = func() error {
				f.store.onGet = nil
				first = replica.do(http.MethodPost, tc.path, tc.body, key("k")...)
				return &store.Error{Code: store.CodeNotFound}
			}
			if r := f.do(http.MethodPost, tc.path, tc.body, key("k")...); r.status != http.StatusOK || r.body != first.body {
				t.Errorf("got %d %s, want %s", r.status, r.body, first.body)
			}
			if got := f.turns(conv); len(got) != 1 {
				t.Errorf("got the turns %v, want one", got)
			}
		})
	}
}

// TestConversationConcurrentKey: concurrent copies of a request share their place in the conversation.
func TestConversationConcurrentKey(t *testing.T) {
	const clients = 4
	var together sync.WaitGroup
	together.Add(clients)
	var runs atomic.Int64
	f, replica := startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := runs.Add(1)
		together.Done()
		together.Wait()
		jsonHandler(http.StatusOK, fmt.Sprintf(`{"status":"completed","output":[],"run":%d}`, run)).ServeHTTP(w, r)
	}))
	replies := make(chan reply, clients)
	for i := range clients {
		go func() {
			replies <- []*fixture{f, replica}[i%2].do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"a"}`, key("k")...)
		}()
	}
	got := map[string]bool{}
	for range clients {
		r := <-replies
		if r.status != http.StatusOK {
			t.Errorf("got %d %s", r.status, r.body)
		}
		got[r.body] = true
	}
	if turns := f.turns(conv); len(got) != 1 || len(turns) != 1 {
		t.Errorf("got the responses %v and the turns %v, want one", got, turns)
	}
}
