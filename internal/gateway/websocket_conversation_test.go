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
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// TestWebSocketNamedConversation: a WebSocket connection holds a conversation by its name.
func TestWebSocketNamedConversation(t *testing.T) {
	f, replica := startConversation(t, nil)
	c := f.dial()
	for i, d := range []*wsClient{c, replica.dial(), c} {
		last := d.ask(fmt.Sprintf(`"conversation":"conv_1","input":"input %d"`, i))
		if want := fmt.Sprintf("You said %d things, from 'input 0' to 'input %d'.", i+1, i); last.get("response.output.0.content.0.text") != want || last.get("response.conversation.id") != conv {
			t.Errorf("got %s, want %q", last.body, want)
		}
	}
	// A turn that only the connection remembers continues the conversation, but is not part of it.
	warm := c.ask(`"conversation":"conv_1","input":"d","generate":false`).get("response.id")
	aside := c.say("e", warm, notStored)
	last := c.ask(`"input":"f","previous_response_id":"` + aside + `"` + notStored)
	if got, want := last.get("response.output.0.content.0.text"), "You said 6 things, from 'input 0' to 'f'."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := f.turns(conv); len(got) != 3 {
		t.Errorf("got the turns %v, want 3", got)
	}
	aside = c.say("e", "", notStored)
	c.wantError(c.ask(`"conversation":"conv_1","input":"f","previous_response_id":"`+aside+`"`), "Bad Request mutually_exclusive_parameters")
	c.wantError(c.ask(`"conversation":"conv_2","input":"f"`), "Not Found")
}

// TestWebSocketConversationLocked: while a connection creates a turn, another one is refused at once, on every gateway and over HTTP. If the client
// goes away, the conversation can be continued.
func TestWebSocketConversationLocked(t *testing.T) {
	const members = `"conversation":"conv_1","input":"a"`
	finish := make(chan struct{})
	f, replica := startConversation(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streamHandler(sse(created)).ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-finish:
			_, _ = io.WriteString(w, sse(completed))
		case <-r.Context().Done():
		}
	}))
	for _, leaves := range []bool{false, true} {
		c := f.dial()
		c.send(`{"type":"response.create",` + members + `}`)
		c.next()
		for _, g := range []*fixture{f, replica} {
			g.dial().wantError(g.dial().ask(members), "Bad Request conversation_locked")
			if r := g.do(http.MethodPost, "/v1/responses", `{`+members+`}`); r.code() != "Bad Request conversation_locked" {
				t.Errorf("got %d %s", r.status, r.body)
			}
		}
		if leaves {
			_ = c.conn.CloseNow()
			continue
		}
		finish <- struct{}{}
		if all := c.rest(); all[len(all)-1].get("type") != "response.completed" {
			t.Errorf("got %s", all[len(all)-1].body)
		}
	}
	f.eventually("the place is still reserved", func() bool {
		c, err := f.conversations().Get(t.Context(), conv)
		return err == nil && c.Head.BaseResponseID == ""
	})
	if got := f.turns(conv); len(got) != 1 {
		t.Errorf("got the turns %v, want 1", got)
	}
}

// TestWebSocketHiddenItems: a deleted item does not come back through a turn that only the connection remembers.
func TestWebSocketHiddenItems(t *testing.T) {
	for name, aside := range map[string]string{
		"response": `"conversation":"conv_1","input":"c"` + notStored,
		"warm-up":  `"conversation":"conv_1","input":"c","generate":false`,
	} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, all=%t", name, all), func(t *testing.T) {
				f, _ := startConversation(t, nil)
				items := f.do(http.MethodPost, "/v1/conversations/conv_1/items", `{"items":[{"role":"user","content":"a"},{"role":"user","content":"secret"}]}`).itemIDs()
				f.do(http.MethodDelete, "/v1/conversations/conv_1/items/"+items[1], "")
				want := 4 // a, c, its answer and d
				if all {
					f.do(http.MethodDelete, "/v1/conversations/conv_1/items/"+items[0], "")
					want--
				}
				if name == "warm-up" {
					want--
				}
				c := f.dial()
				id := c.ask(aside).get("response.id")
				for _, store := range []string{notStored, ""} {
					c.ask(`"input":"d","previous_response_id":"` + id + `"` + store)
					if sent, _ := f.sent.last(); strings.Contains(sent, "secret") || int(gjson.Get(sent, "input.#").Int()) != want {
						t.Errorf("the engine got %s, want %d items", sent, want)
					}
				}
			})
		}
	}
}
