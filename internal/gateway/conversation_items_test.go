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
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
)

// TestCreateItems appends items to a conversation, without a call of the engine.
func TestCreateItems(t *testing.T) {
	f, replica := startConversation(t, nil)
	first := f.create(`{"conversation":"conv_1","input":"a"}`)
	runs := f.sent.count()
	r := replica.do(http.MethodPost, "/v1/conversations/conv_1/items?include=message.input_image.image_url",
		`{"items":[{"role":"user","content":"b"},{"type":"item_reference","id":"`+first.get("output.0.id")+`"},{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{}"}]}`)
	turns := f.turns(conv)
	if len(turns) != 2 || turns[0] != first.get("id") || f.sent.count() != runs {
		t.Fatalf("got %d %s, the turns %v, and %d runs of the engine, want one turn more", r.status, r.body, turns, f.sent.count()-runs)
	}
	stem := strings.TrimPrefix(turns[1], "resp_")
	want := fmt.Sprintf(`{"object":"list","data":[{"role":"user","content":[{"type":"input_text","text":"b"}],"id":"msg_%[1]s_0","type":"message","status":"completed"},`+
		`%[2]s,{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{}","id":"fc_%[1]s_2","status":"completed"}],`+
		`"first_id":"msg_%[1]s_0","last_id":"fc_%[1]s_2","has_more":false}`, stem, f.do(http.MethodGet, "/v1/conversations/conv_1/items/msg_"+stem+"_1", "").body)
	if diff := cmp.Diff(want, r.body); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	// The output of the call comes in another turn.
	f.do(http.MethodPost, "/v1/conversations/conv_1/items", `{"items":[{"type":"function_call_output","call_id":"call_1","output":"rain"}]}`)
	next := f.create(`{"conversation":"conv_1","input":[]}`)
	if got, want := next.get("output.0.content.0.text"), "The function answered: rain"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if response := f.do(http.MethodGet, "/v1/responses/"+turns[1], ""); response.get("conversation.id") != conv || response.get("output.#") != "0" {
		t.Errorf("got %s, want a response without output", response.body)
	}
}

// TestCreateItemsLocked: items are refused while a turn is created.
func TestCreateItemsLocked(t *testing.T) {
	f, _ := startConversation(t, nil)
	reservation, err := f.conversations().Reserve(t.Context(), conv, "resp_running", store.ReserveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"items":[{"role":"user","content":"b"}]}`
	if r := f.do(http.MethodPost, "/v1/conversations/conv_1/items", body); r.code() != "Bad Request conversation_locked" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	reservation.Release(t.Context())
	if r := f.do(http.MethodPost, "/v1/conversations/conv_1/items", body); r.status != http.StatusOK {
		t.Errorf("got %d %s", r.status, r.body)
	}
	f.gateway.quotas.put("default", quotaResult{err: store.ErrQuotaExceeded, until: f.gateway.now().Add(quotaAge)})
	if r := f.do(http.MethodPost, "/v1/conversations/conv_1/items", body); r.code() != "Too Many Requests session.store.quota_exceeded" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestItemsOfLongConversation: items are added as long as a response can follow, and listed even if none can.
func TestItemsOfLongConversation(t *testing.T) {
	f, _ := startConversation(t, nil, func(o *Options) { o.MaxDepth = 2 })
	const path, body = "/v1/conversations/conv_1/items", `{"items":[{"role":"user","content":"b"}]}`
	for range 2 {
		f.do(http.MethodPost, path, body)
	}
	if r := f.do(http.MethodPost, path, body); r.code() != "Bad Request session.chain.depth_exceeded" {
		t.Errorf("a third turn: got %d %s", r.status, r.body)
	}
	f.create(`{"conversation":"conv_1","input":"a"}`)
	items := f.do(http.MethodGet, path, "").itemIDs()
	if len(items) != 4 {
		t.Fatalf("got the items %v, want 4", items)
	}
	for _, item := range items {
		if r := f.do(http.MethodGet, path+"/"+item, ""); r.status != http.StatusOK {
			t.Errorf("%s: got %d %s", item, r.status, r.body)
		}
	}
	if r := f.do(http.MethodDelete, path+"/"+items[3], ""); r.status != http.StatusOK {
		t.Errorf("deleted: got %d %s", r.status, r.body)
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"a"}`); r.code() != "Bad Request session.chain.depth_exceeded" {
		t.Errorf("a fourth turn: got %d %s", r.status, r.body)
	}
}

// itemIDs returns the IDs of a list.
func (r reply) itemIDs() []string {
	ids := []string{}
	for _, item := range gjson.Get(r.body, "data").Array() {
		ids = append(ids, item.Get("id").Str)
	}
	return ids
}

// TestListItems lists the items of a conversation, of which some are deleted.
func TestListItems(t *testing.T) {
	f, replica := startConversation(t, nil)
	const path = "/v1/conversations/conv_1/items"
	if r := f.do(http.MethodGet, path, ""); r.body != `{"object":"list","data":[],"first_id":"","last_id":"","has_more":false}` {
		t.Errorf("got %d %s from an empty conversation", r.status, r.body)
	}
	if r := f.do(http.MethodGet, path+"?after=msg_0_0", ""); r.code() != "Bad Request invalid_value" {
		t.Errorf("got %d %s from an empty conversation", r.status, r.body)
	}
	first := f.create(`{"conversation":"conv_1","input":[` + userMessage("a") + "," + userMessage("b") + `]}`)
	other := f.create(`{"input":"x"}`)
	second := f.create(`{"conversation":"conv_1","input":"c"}`)
	id := func(r reply, i int) string {
		return fmt.Sprintf("msg_%s_%d", strings.TrimPrefix(r.get("id"), "resp_"), i)
	}
	all := []string{id(second, 1), id(second, 0), id(first, 2), id(first, 1), id(first, 0)}
	check := func(step string, queries map[string][]string, more map[string]bool) {
		t.Helper()
		for query, want := range queries {
			r := replica.do(http.MethodGet, path+query, "")
			got := r.itemIDs()
			ends := `"first_id":"","last_id":"",`
			if len(got) > 0 {
				ends = fmt.Sprintf(`"first_id":%q,"last_id":%q,`, got[0], got[len(got)-1])
			}
			if diff := cmp.Diff(want, got); diff != "" || r.get("has_more") != strconv.FormatBool(more[query]) || !strings.Contains(r.body, ends) {
				t.Errorf("%s, %s: got %d %s (-want +got):\n%s", step, query, r.status, r.body, diff)
			}
		}
	}
	check("all", map[string][]string{
		"":                                       all,
		"?order=asc":                             {all[4], all[3], all[2], all[1], all[0]},
		"?limit=2":                               all[:2],
		"?limit=5":                               all,
		"?limit=2&after=" + all[1]:               all[2:4],
		"?limit=2&after=" + all[3]:               all[4:],
		"?after=" + all[4]:                       {},
		"?limit=2&before=" + all[3]:              all[1:3],
		"?limit=2&order=asc&after=" + all[4]:     {all[3], all[2]},
		"?include[]=reasoning.encrypted_content": all,
	}, map[string]bool{"?limit=2": true, "?limit=2&after=" + all[1]: true, "?limit=2&before=" + all[3]: true, "?limit=2&order=asc&after=" + all[4]: true})
	for query, want := range map[string]string{
		"?limit=0": "invalid_value", "?limit=101": "invalid_value", "?order=up": "invalid_value", "?after=x": "invalid_value",
		"?after=" + id(first, 3): "invalid_value", "?after=" + id(other, 0): "invalid_value",
		"?after=" + all[0] + "&before=" + all[1]: "mutually_exclusive_parameters",
	} {
		if r := f.do(http.MethodGet, path+query, ""); r.code() != "Bad Request "+want {
			t.Errorf("%s: got %d %s", query, r.status, r.body)
		}
	}
	for _, item := range all[1:4] {
		if r := f.do(http.MethodDelete, path+"/"+item, ""); r.status != http.StatusOK || r.get("id") != conv || r.get("object") != "conversation" {
			t.Errorf("got %d %s, want the conversation", r.status, r.body)
		}
	}
	check("deleted", map[string][]string{
		"":                                    {all[0], all[4]},
		"?limit=1":                            {all[0]},
		"?limit=1&order=asc":                  {all[4]},
		"?limit=1&after=" + all[2]:            {all[4]}, // a hidden item
		"?limit=1&order=asc&after=" + all[4]:  {all[0]},
		"?limit=1&order=asc&before=" + all[1]: {all[4]},
	}, map[string]bool{"?limit=1": true, "?limit=1&order=asc": true})
	for _, item := range []string{all[1], "msg_0", id(other, 0), id(first, 3), id(second, 2)} {
		want := `{"message":"Item with id '` + item + `' not found in conversation.","type":"invalid_request_error","param":null,"code":null}`
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if r := f.do(method, path+"/"+item, ""); r.status != http.StatusNotFound || r.get("error") != want {
				t.Errorf("%s %s: got %d %s", method, item, r.status, r.body)
			}
		}
	}
	list := f.do(http.MethodGet, path, "")
	for i, item := range []string{all[0], all[4]} {
		if r := replica.do(http.MethodGet, path+"/"+item, ""); r.body != list.get(fmt.Sprintf("data.%d", i)) {
			t.Errorf("got %d %s, want it as in the list", r.status, r.body)
		}
	}
	// The model does not get deleted items. Their turns keep them.
	for _, members := range []string{`,"store":false`, ""} {
		f.create(`{"conversation":"conv_1","input":"d"` + members + `}`)
		if diff := cmp.Diff([]string{"a", "You said 3 things, from 'a' to 'c'.", "d"}, f.inputs()); diff != "" {
			t.Errorf("the engine got (-want +got):\n%s", diff)
		}
	}
	if got := f.do(http.MethodGet, "/v1/responses/"+first.get("id"), ""); got.body != first.body {
		t.Errorf("the response is %s, created as %s", got.body, first.body)
	}
	f.create(`{"conversation":"conv_1","input":[{"type":"item_reference","id":"` + all[3] + `"},{"type":"item_reference","id":"` + all[2] + `"}]}`)
	if diff := cmp.Diff([]string{"b", first.get("output.0.content.0.text")}, f.inputs()[4:]); diff != "" {
		t.Errorf("the engine got as references to deleted items (-want +got):\n%s", diff)
	}
}

// userMessage returns a message with a text.
func userMessage(text string) string {
	return `{"role":"user","content":[{"type":"input_text","text":"` + text + `"}]}`
}

// TestListManyHiddenItems: a page is filled with the items behind many deleted ones, and there are no more if all that follow are deleted.
func TestListManyHiddenItems(t *testing.T) {
	f, _ := startConversation(t, nil)
	const path = "/v1/conversations/conv_1/items"
	ids := f.do(http.MethodPost, path, `{"items":[`+strings.TrimSuffix(strings.Repeat(userMessage("a")+",", 20), ",")+"]}").itemIDs()
	for _, id := range ids[:18] {
		f.do(http.MethodDelete, path+"/"+id, "")
	}
	for query, want := range map[string][]string{"?limit=2&order=asc": ids[18:], "?limit=2": {ids[19], ids[18]}} {
		r := f.do(http.MethodGet, path+query, "")
		if diff := cmp.Diff(want, r.itemIDs()); diff != "" || r.get("has_more") != "false" {
			t.Errorf("%s: got %s (-want +got):\n%s", query, r.body, diff)
		}
	}
}

// TestListAfterHiddenItem: a hidden item makes a page read few more items.
func TestListAfterHiddenItem(t *testing.T) {
	f, _ := startConversation(t, nil)
	const path = "/v1/conversations/conv_1/items"
	ids := f.do(http.MethodPost, path, `{"items":[`+strings.TrimSuffix(strings.Repeat(userMessage("a")+",", 20), ",")+"]}").itemIDs()
	f.do(http.MethodDelete, path+"/"+ids[19], "")
	before := f.store.resolved.Load()
	r := f.do(http.MethodGet, path+"?limit=1", "")
	if diff := cmp.Diff([]string{ids[18]}, r.itemIDs()); diff != "" || r.get("has_more") != "true" {
		t.Errorf("got %s (-want +got):\n%s", r.body, diff)
	}
	if read := f.store.resolved.Load() - before; read > 6 {
		t.Errorf("%d items were read for one", read)
	}
}

// TestDeletedItemVanishes: an item whose turn is deleted while it is being removed is not there, as a moment later.
func TestDeletedItemVanishes(t *testing.T) {
	f, _ := startConversation(t, nil)
	const path = "/v1/conversations/conv_1/items"
	item := f.do(http.MethodPost, path, `{"items":[`+userMessage("a")+`]}`).itemIDs()[0]
	turn, reads := f.turns(conv)[0], 0
	f.store.onResolve = func(context.Context) error {
		if reads++; reads == 2 { // it was found before
			f.store.onResolve = nil
			if r := f.do(http.MethodDelete, "/v1/responses/"+turn, ""); r.status != http.StatusOK {
				t.Errorf("got %d %s", r.status, r.body)
			}
		}
		return nil
	}
	r := f.do(http.MethodDelete, path+"/"+item, "")
	if r.status != http.StatusNotFound || !strings.Contains(r.get("error.message"), "not found in conversation") {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestCreateItemsLost: items that may have been appended are not appended again by a client that repeats the request, unless it has a key.
func TestCreateItemsLost(t *testing.T) {
	for name, tc := range map[string]struct {
		key  []string
		want string // X-Should-Retry
	}{
		"without a key": {want: "false"},
		"with a key":    {key: key("k")},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := startConversation(t, nil)
			f.store.onSave = func(_ context.Context, _ *store.Session, next func() error) error {
				if err := next(); err != nil {
					t.Error(err)
				}
				return &store.Error{Code: store.CodeUnreachable, Retryable: true}
			}
			const path = "/v1/conversations/conv_1/items"
			body := `{"items":[` + userMessage("a") + `]}`
			r := f.do(http.MethodPost, path, body, tc.key...)
			if got := r.header.Get("X-Should-Retry"); r.status != http.StatusServiceUnavailable || got != tc.want {
				t.Errorf("got %d %s, X-Should-Retry %q", r.status, r.body, got)
			}
			f.store.onSave = nil
			if tc.key != nil {
				f.do(http.MethodPost, path, body, tc.key...)
			}
			if got := f.turns(conv); len(got) != 1 {
				t.Errorf("got the turns %v, want 1", got)
			}
		})
	}
}

// TestCreateItemsKey: with the same key, items are appended once.
func TestCreateItemsKey(t *testing.T) {
	f, replica := startConversation(t, nil)
	other := f.create(`{"input":"x"}`).get("output.0.id")
	const path = "/v1/conversations/conv_1/items"
	body := `{"items":[` + userMessage("a") + `,{"type":"item_reference","id":"` + other + `"}]}`
	first := f.do(http.MethodPost, path, body, key("k")...)
	f.create(`{"conversation":"conv_1","input":"b"}`)
	if again := replica.do(http.MethodPost, path, body, key("k")...); again.status != http.StatusOK || again.body != first.body {
		t.Errorf("got %d %s, want %s again", again.status, again.body, first.body)
	}
	if r := replica.do(http.MethodPost, path, `{"items":[`+userMessage("b")+`]}`, key("k")...); r.code() != "Conflict idempotency_key_reused" {
		t.Errorf("got %d %s for other items", r.status, r.body)
	}
	if got := f.turns(conv); len(got) != 2 {
		t.Errorf("got the turns %v, want 2", got)
	}
}

// TestHiddenItemStays: a deleted item is no longer part of the conversation, but stays part of its turn.
func TestHiddenItemStays(t *testing.T) {
	f, replica := startConversation(t, nil)
	items := f.do(http.MethodPost, "/v1/conversations/conv_1/items", `{"items":[`+userMessage("secret")+`]}`).itemIDs()
	turn := f.turns(conv)[0]
	f.do(http.MethodDelete, "/v1/conversations/conv_1/items/"+items[0], "")
	for member, want := range map[string]bool{`"previous_response_id":"` + turn: true, `"conversation":"` + conv: false} {
		replica.create(`{` + member + `","input":"b"}`)
		if sent, _ := f.sent.last(); strings.Contains(sent, "secret") != want {
			t.Errorf("%s: the engine got %s, want the item: %t", member, sent, want)
		}
	}
}

// TestTooManyHiddenItems: the number of deleted items is limited.
func TestTooManyHiddenItems(t *testing.T) {
	f, _ := startConversation(t, nil)
	item := f.create(`{"conversation":"conv_1","input":"a"}`).get("output.0.id")
	hidden := make([]store.HiddenItem, store.MaxHiddenItems)
	for i := range hidden {
		hidden[i] = store.HiddenItem{ResponseID: "resp_other", Number: i}
	}
	_, err := f.conversations().Create(t.Context(), &store.Conversation{
		ConversationID: "conv_2", Head: store.Head{ResponseID: f.turns(conv)[0]}, HiddenItems: hidden,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.do(http.MethodDelete, "/v1/conversations/conv_2/items/"+item, ""); r.code() != "Bad Request session.conversation.limit_exceeded" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

// TestHiddenCompaction: deleted items do not change which items a compaction item replaces.
func TestHiddenCompaction(t *testing.T) {
	f, _ := startConversation(t, jsonHandler(http.StatusOK, `{"status":"completed","output":[{"type":"message","role":"assistant","content":"z"}]}`))
	created := f.do(http.MethodPost, "/v1/conversations/conv_1/items",
		`{"items":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"type":"compaction","id":"cmp_1","encrypted_content":"x"},{"role":"user","content":"c"}]}`)
	ids := created.itemIDs()
	f.do(http.MethodDelete, "/v1/conversations/conv_1/items/"+ids[1], "")
	f.create(`{"conversation":"conv_1","input":"d"}`)
	sent, _ := f.sent.last()
	if diff := cmp.Diff(`["user","compaction","user","user"]`, kindsOf(sent)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.do(http.MethodDelete, "/v1/conversations/conv_1/items/"+ids[2], "")
	f.create(`{"conversation":"conv_1","input":"e"}`)
	sent, _ = f.sent.last()
	if diff := cmp.Diff(`["user","user","user","assistant","user"]`, kindsOf(sent)); diff != "" {
		t.Errorf("without the compaction item (-want +got):\n%s", diff)
	}
}

// kindsOf returns the roles, or otherwise the types, of the input of a request.
func kindsOf(request string) string {
	var all []string
	for _, item := range gjson.Get(request, "input").Array() {
		kind := item.Get("role").Str
		if kind == "" {
			kind = item.Get("type").Str
		}
		all = append(all, fmt.Sprintf("%q", kind))
	}
	return "[" + strings.Join(all, ",") + "]"
}
