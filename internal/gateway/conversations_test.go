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
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
)

// TestConversations creates, reads, changes and deletes a conversation, over two gateways.
func TestConversations(t *testing.T) {
	f, replica := startConversation(t, nil)
	created := f.do(http.MethodPost, "/v1/conversations", `{"metadata":{"topic":"d\u00e9mo"}}`)
	id := created.get("id")
	at := created.get("created_at")
	want := func(metadata string) string {
		return fmt.Sprintf(`{"id":%q,"object":"conversation","created_at":%s,"metadata":%s}`, id, at, metadata)
	}
	if created.status != http.StatusOK || created.body != want(`{"topic":"démo"}`) || !strings.HasPrefix(id, "conv_") || at == "0" {
		t.Fatalf("got %d %s", created.status, created.body)
	}
	path := "/v1/conversations/" + id
	turn := f.create(`{"conversation":"` + id + `","input":"a"}`).get("id")
	for _, step := range []struct{ method, body, want string }{
		{http.MethodGet, "", want(`{"topic":"démo"}`)},
		{http.MethodPost, `{"metadata":{"other":"x"}}`, want(`{"other":"x"}`)},
		{http.MethodGet, "", want(`{"other":"x"}`)},
		{http.MethodPost, `{"metadata":null}`, want(`{}`)},
		{http.MethodDelete, "", `{"id":"` + id + `","object":"conversation.deleted","deleted":true}`},
	} {
		if r := replica.do(step.method, path, step.body); r.status != http.StatusOK || r.body != step.want {
			t.Errorf("%s %s: got %d %s, want %s", step.method, step.body, r.status, r.body, step.want)
		}
	}
	if f.saved(turn) == nil {
		t.Error("the turn was deleted with its conversation")
	}
	missing := `{"error":{"message":"Conversation with id '` + id + `' not found.","type":"invalid_request_error","param":null,"code":null}}`
	for _, request := range []struct{ method, path, body string }{
		{http.MethodGet, path, ""},
		{http.MethodPost, path, `{"metadata":{}}`},
		{http.MethodDelete, path, ""},
		{http.MethodGet, path + "/items", ""},
		{http.MethodPost, path + "/items", `{"items":[{"role":"user","content":"a"}]}`},
		{http.MethodGet, path + "/items/msg_0_0", ""},
		{http.MethodDelete, path + "/items/msg_0_0", ""},
	} {
		if r := f.do(request.method, request.path, request.body); r.status != http.StatusNotFound || r.body != missing {
			t.Errorf("%s %s: got %d %s, want 404", request.method, request.path, r.status, r.body)
		}
	}
	for _, body := range []string{"", "{}", `{"items":[],"metadata":null}`} {
		if r := f.do(http.MethodPost, "/v1/conversations", body); r.status != http.StatusOK || gjson.Get(r.body, "metadata").Raw != "{}" {
			t.Errorf("created with %q: got %d %s", body, r.status, r.body)
		}
	}
}

func TestInvalidConversations(t *testing.T) {
	f, _ := startConversation(t, nil)
	metadata := func(pairs int) string {
		var all []string
		for i := range pairs {
			all = append(all, fmt.Sprintf(`"k%d":"v"`, i))
		}
		return `{"metadata":{` + strings.Join(all, ",") + "}}"
	}
	items := func(n int) string {
		return `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"a"},`, n), ",") + "]}"
	}
	escaped := `{"metadata":{` + strings.TrimSuffix(strings.ReplaceAll(strings.Repeat("#,", 16), "#", `"k#":"`+strings.Repeat(`\ud83d\ude00`, 512)+`"`), ",") + "}}"
	for i := range 16 {
		escaped = strings.Replace(escaped, `"k#"`, fmt.Sprintf(`"k%d"`, i), 1)
	}
	const all, one, list = "/v1/conversations", "/v1/conversations/conv_1", "/v1/conversations/conv_1/items"
	for name, tc := range map[string]struct {
		path, body string
		want       string // code and param
	}{
		"not JSON":               {all, `{`, "invalid_json "},
		"not an object":          {one, `[]`, "invalid_json "},
		"16 pairs":               {all, metadata(16), ""},
		"17 pairs":               {all, metadata(17), "object_above_max_properties metadata"},
		"update with 17 pairs":   {one, metadata(17), "object_above_max_properties metadata"},
		"key of 64":              {all, `{"metadata":{"` + strings.Repeat("ü", 64) + `":"v"}}`, ""},
		"key of 65":              {all, `{"metadata":{"` + strings.Repeat("k", 65) + `":"v"}}`, "property_name_above_max_length metadata." + strings.Repeat("k", 65)},
		"value of 512":           {one, `{"metadata":{"k":"` + strings.Repeat("ü", 512) + `"}}`, ""},
		"value of 513":           {one, `{"metadata":{"k":"` + strings.Repeat("v", 513) + `"}}`, "string_above_max_length metadata.k"},
		"escaped values":         {all, escaped, ""},
		"escaped key":            {all, `{"metadata":{"a\"b\\\n":"v"}}`, ""},
		"half a surrogate pair":  {one, `{"metadata":{"k":"\ud800"}}`, "invalid_value metadata"},
		"ID of 600":              {"/v1/conversations/" + strings.Repeat("c", 600), metadata(1), " "},
		"items of an ID of 600":  {"/v1/conversations/" + strings.Repeat("c", 600) + "/items", items(1), " "},
		"value not a string":     {one, `{"metadata":{"k":1}}`, "invalid_type metadata.k"},
		"key twice":              {one, `{"metadata":{"k":"1","\u006b":"2"}}`, "invalid_value metadata"},
		"metadata not an object": {all, `{"metadata":"k"}`, "invalid_type metadata"},
		"update of nothing":      {one, `{}`, "missing_required_parameter metadata"},
		"no items":               {list, `{}`, "missing_required_parameter items"},
		"items not a list":       {list, `{"items":"a"}`, "invalid_type items"},
		"items not objects":      {list, `{"items":["a"]}`, "invalid_type items"},
		"empty items":            {list, `{"items":[]}`, "empty_array items"},
		"20 items":               {list, items(20), ""},
		"21 items":               {list, items(21), "array_above_max_length items"},
		"created with 20 items":  {all, items(20), ""},
		"created with 21 items":  {all, items(21), "array_above_max_length items"},
		"item of no type":        {all, `{"items":[{"role":"user","content":"a"},{}]}`, "missing_required_parameter items[1].type"},
		"type not a string":      {list, `{"items":[{"type":1}]}`, "missing_required_parameter items[0].type"},
		"unknown reference":      {list, `{"items":[{"type":"item_reference","id":"msg_0_0"}]}`, " items"},
		"reference without ID":   {all, `{"items":[{"type":"item_reference"}]}`, "missing_required_parameter items[0].id"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.do(http.MethodPost, tc.path, tc.body)
			if tc.want == "" {
				if r.status != http.StatusOK {
					t.Errorf("got %d %s", r.status, r.body)
				}
				return
			}
			if got := r.get("error.code") + " " + r.get("error.param"); got != tc.want || r.status/100 != 4 || r.get("error.type") != "invalid_request_error" {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			}
		})
	}
}

// TestCreateWithItems: a conversation that begins with items, which are not part of another conversation with the same items.
func TestCreateWithItems(t *testing.T) {
	f, replica := startConversation(t, nil)
	other := f.create(`{"input":"a"}`)
	items := f.do(http.MethodGet, "/v1/responses/"+other.get("id")+"/input_items", "").get("data.0") + "," + other.get("output.0")
	created := f.do(http.MethodPost, "/v1/conversations", `{"items":[`+items+`],"metadata":{"k":"v"}}`)
	id := created.get("id")
	turns := f.turns(id)
	if len(turns) != 1 || turns[0] == other.get("id") {
		t.Errorf("got %s with the turns %v, want one of its own", created.body, turns)
	}
	r := replica.create(`{"conversation":"` + id + `","input":"b"}`)
	if got, want := r.get("output.0.content.0.text"), "You said 2 things, from 'a' to 'b'."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCreateConversationKey: a repeated request with an Idempotency-Key gets the conversation that the first one has created.
func TestCreateConversationKey(t *testing.T) {
	const empty, begun, path = `{"metadata":{"k":"v"}}`, `{"items":[{"role":"user","content":"a"}]}`, "/v1/conversations"
	for name, tc := range map[string]struct {
		first, again string
		want         string
	}{
		"empty":          {empty, `{"metadata":{"k":"v"},"items":[]}`, "OK"},
		"with items":     {begun, begun, "OK"},
		"other metadata": {empty, `{}`, "Conflict idempotency_key_reused"},
		"other items":    {begun, strings.Replace(begun, `"a"`, `"b"`, 1), "Conflict idempotency_key_reused"},
		"more items":     {empty, `{"metadata":{"k":"v"},"items":[{"role":"user","content":"a"}]}`, "Conflict idempotency_key_reused"},
	} {
		t.Run(name, func(t *testing.T) {
			f, replica := startConversation(t, nil)
			created := f.do(http.MethodPost, path, tc.first, key("k")...)
			id := created.get("id")
			last := f.create(`{"conversation":"` + id + `","input":"b"}`).get("id")
			r := replica.do(http.MethodPost, path, tc.again, key("k")...)
			if r.code() != tc.want || tc.want == "OK" && r.body != created.body {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			}
			if turns := f.turns(id); turns[len(turns)-1] != last {
				t.Errorf("got the turns %v, want those until %q", turns, last)
			}
			if other := f.do(http.MethodPost, path, tc.first, key("l")...); other.get("id") == id {
				t.Error("another key got the same conversation")
			}
		})
	}
}

// TestCreateConversationKeyRace: a request that looks for the conversation before another one with the same Idempotency-Key has created it gets that
// conversation, with its items.
func TestCreateConversationKeyRace(t *testing.T) {
	const body = `{"items":[{"role":"user","content":"a"}]}`
	f, replica := startConversation(t, nil)
	var first reply
	f.store.onSave = func(_ context.Context, _ *store.Session, next func() error) error {
		f.store.onSave = nil
		first = replica.do(http.MethodPost, "/v1/conversations", body, key("k")...)
		return next()
	}
	r := f.do(http.MethodPost, "/v1/conversations", body, key("k")...)
	if r.status != http.StatusOK || r.body != first.body {
		t.Errorf("got %d %s, want %s", r.status, r.body, first.body)
	}
	if turns := f.turns(r.get("id")); len(turns) != 1 {
		t.Errorf("got the turns %v, want one", turns)
	}
}

// TestCreateFails: nothing is left of a conversation that could not be created.
func TestCreateFails(t *testing.T) {
	f, _ := startConversation(t, nil)
	var saved string
	f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
		saved = session.ResponseID
		return next()
	}
	f.store.Conversations = &hookedConversations{Conversations: f.store.Conversations, onCreate: func(func() (*driver.Conversation, error)) (*driver.Conversation, error) {
		return nil, &store.Error{Code: store.CodeUnreachable, Retryable: true}
	}}
	r := f.do(http.MethodPost, "/v1/conversations", `{"items":[{"role":"user","content":"a"}]}`)
	if r.code() != "Service Unavailable session.store.unreachable" || saved == "" || f.saved(saved) != nil {
		t.Errorf("got %d %s, and the turn %q is stored", r.status, r.body, saved)
	}
}

// TestConversationsOfTenants: tenants do not see each other's conversations.
func TestConversationsOfTenants(t *testing.T) {
	f, _ := startTenants(t)
	a, b := []string{"Authorization", "Bearer sk-a"}, []string{"Authorization", "Bearer sk-b"}
	id := f.do(http.MethodPost, "/v1/conversations", `{"items":[{"role":"user","content":"a"}]}`, a...).get("id")
	item := f.do(http.MethodGet, "/v1/conversations/"+id+"/items", "", a...).get("data.0.id")
	for _, path := range []string{"", "/items", "/items/" + item} {
		for _, tenant := range []struct {
			headers []string
			want    int
		}{{a, http.StatusOK}, {b, http.StatusNotFound}} {
			if r := f.do(http.MethodGet, "/v1/conversations/"+id+path, "", tenant.headers...); r.status != tenant.want {
				t.Errorf("%s: got %d %s, want %d", path, r.status, r.body, tenant.want)
			}
		}
	}
	if r := f.do(http.MethodPost, "/v1/responses", `{"conversation":"`+id+`","input":"b"}`, b...); r.status != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", r.status, r.body)
	}
	if r := f.do(http.MethodPost, "/v1/conversations", `{"items":[{"type":"item_reference","id":"`+item+`"}]}`, b...); r.status != http.StatusNotFound {
		t.Errorf("a reference to the item of another tenant: got %d %s, want 404", r.status, r.body)
	}
	if strings.Contains(f.log.String(), id) {
		t.Error("the log contains the ID of the conversation")
	}
}

// TestConversationsUnsupported: a store without conversations.
func TestConversationsUnsupported(t *testing.T) {
	f := startWithoutConversations(t)
	want := `{"message":"The gateway's store does not support conversations.","type":"invalid_request_error","param":"conversation","code":"session.store.unsupported"}`
	for _, request := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/conversations", "{}"},
		{http.MethodPost, "/v1/conversations", `{"items":[{"role":"user","content":"a"}]}`},
		{http.MethodGet, "/v1/conversations/conv_1", ""},
		{http.MethodGet, "/v1/conversations/conv_1/items", ""},
		{http.MethodPost, "/v1/conversations/conv_1/items", `{"items":[{"role":"user","content":"a"}]}`},
		{http.MethodPost, "/v1/responses", `{"conversation":"conv_1","input":"a"}`},
	} {
		if r := f.do(request.method, request.path, request.body); r.status != 400 || r.get("error") != want {
			t.Errorf("%s %s: got %d %s", request.method, request.path, r.status, r.body)
		}
	}
	f.create(`{"input":"a"}`)
}

func startWithoutConversations(t *testing.T) *fixture {
	t.Helper()
	return start(t, nil, func(o *Options) {
		o.Store = store.New(struct{ driver.Store }{newHookedStore(t)}, driver.Options{Namespace: "default"})
	})
}
