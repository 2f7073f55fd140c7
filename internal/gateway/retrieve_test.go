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
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/history"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

func TestRetrieveAndDelete(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":"a"}`)
	id := first.get("id")
	second := f.create(fmt.Sprintf(`{"input":"b","previous_response_id":%q}`, id))
	if r := f.do(http.MethodGet, "/v1/responses/"+id, ""); r.body != first.body {
		t.Errorf("retrieved %s, created %s", r.body, first.body)
	}
	if r := f.do(http.MethodGet, "/v1/responses/"+id+"?stream=true", ""); r.code() != "Bad Request unsupported_parameter" {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := f.do(http.MethodDelete, "/v1/responses/"+id, ""); r.body != `{"id":"`+id+`","object":"response","deleted":true}` {
		t.Errorf("got %d %s", r.status, r.body)
	}
	want := `{"error":{"message":"Response with id '` + id + `' not found.","type":"invalid_request_error","param":null,"code":null}}`
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if r := f.do(method, "/v1/responses/"+id, ""); r.status != 404 || r.body != want {
			t.Errorf("%s after the deletion: got %d %s, want 404", method, r.status, r.body)
		}
	}
	for parent, want := range map[string]string{
		id:               "Bad Request previous_response_not_found",
		second.get("id"): "Bad Request session.chain.not_found",
	} {
		if r := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q}`, parent)); r.code() != want {
			t.Errorf("a follow-up got %q, want %q", r.code(), want)
		}
	}
	if r := f.do(http.MethodGet, "/v1/responses/"+second.get("id"), ""); r.body != second.body {
		t.Errorf("the later turn is missing or changed: %d %s", r.status, r.body)
	}
}

// TestDeleteUnreadable checks that unreadable turns of any size can be deleted.
func TestDeleteUnreadable(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		want     string
		wantGone bool
	}{
		"large":       {nil, "OK", true},
		"damaged":     {&store.Error{Code: store.CodeUnreadable}, "OK", true},
		"too large":   {&store.Error{Code: store.CodeTooLarge}, "OK", true},
		"unreachable": {&store.Error{Code: store.CodeUnreachable, Retryable: true}, "Service Unavailable session.store.unreachable", false},
	} {
		for _, withoutBodies := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, without bodies %t", name, withoutBodies), func(t *testing.T) {
				f := start(t, nil, func(o *Options) { o.MaxRequestBytes, o.ResponseReserveBytes, o.MaxInFlightBytes = 1, 0, 3*callBytes })
				f.seedLarge("resp_a", 3*callBytes) // alone more than a tenant may hold
				f.store.onGetWithoutBodies = func() error { return tc.err }
				if !withoutBodies {
					f.store.onGet, f.store.onGetWithoutBodies = f.store.onGetWithoutBodies, func() error { return &store.Error{Code: store.CodeUnsupported} }
				}
				if r := f.do(http.MethodDelete, "/v1/responses/resp_a", ""); r.code() != tc.want {
					t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
				}
				f.store.onGet, f.store.onGetWithoutBodies = nil, nil
				if gone := f.saved("resp_a") == nil; gone != tc.wantGone {
					t.Errorf("deleted: %t, want %t", gone, tc.wantGone)
				}
			})
		}
	}
}

// TestDeleteUnreadableOfConversation: a conversation ends before its last turn if that is deleted, although its bodies cannot be read.
func TestDeleteUnreadableOfConversation(t *testing.T) {
	f := start(t, nil)
	conversation := f.do(http.MethodPost, "/v1/conversations", `{}`).get("id")
	create := func() string { return f.create(`{"input":"a","conversation":"` + conversation + `"}`).get("id") }
	first, last := create(), create()
	f.store.onGet = func() error { return &store.Error{Code: store.CodeUnreadable} }
	if r := f.do(http.MethodDelete, "/v1/responses/"+last, ""); r.status != http.StatusOK {
		t.Errorf("got %d %s", r.status, r.body)
	}
	stored, err := f.store.open().Conversations().Get(t.Context(), conversation)
	if err != nil || stored.Head.ResponseID != first {
		t.Errorf("the conversation is %+v, %v, want it to end at %s", stored, err, first)
	}
}

// TestRetrieveTurnOfAnotherGateway: what the body of a turn lacks is taken from its session and its request.
func TestRetrieveTurnOfAnotherGateway(t *testing.T) {
	f := start(t, nil)
	session := testturn.Make("resp_x", "resp_y")
	session.CreatedAt = time.Unix(1_700_000_000, 0).UTC()
	session.Request = []byte(`{"input":"a","instructions":"Be brief.","tools":[{"type":"web_search"},{"type":"function","name":"a"},{"type":"function","name":"b","parameters":{},"strict":true}],"temperature":null}`)
	if err := f.store.next.InNamespace("default").Save(t.Context(), session, store.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	r := f.do(http.MethodGet, "/v1/responses/resp_x", "")
	for member, want := range map[string]string{
		"id": "resp_x", "previous_response_id": "resp_y", "object": "response", "status": "completed", "created_at": "1700000000",
		"output.0.id": "msg_x_1", "output.0.content.0.text": "answer of resp_x", "instructions": "Be brief.", "temperature": "1.0", "metadata": "{}", "usage.total_tokens": "0",
		"tools": `[{"type":"web_search"},{"type":"function","name":"a","parameters":null,"strict":null},{"type":"function","name":"b","parameters":{},"strict":true}]`,
	} {
		if got := r.get(member); got != want && gjson.Get(r.body, member).Raw != want {
			t.Errorf("%s is %s, want %s", member, gjson.Get(r.body, member).Raw, want)
		}
	}
}

func TestInputItems(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":[{"role":"user","content":"a","id":"x"},{"role":"user","content":"b","id":"x"}]}`)
	second := f.create(fmt.Sprintf(`{"input":"c","previous_response_id":%q}`, first.get("id")))
	id := func(r reply, i int) string {
		return fmt.Sprintf("msg_%s_%d", strings.TrimPrefix(r.get("id"), "resp_"), i)
	}
	all := []string{id(second, 0), first.get("output.0.id"), id(first, 1), id(first, 0)}
	for name, tc := range map[string]struct {
		response reply
		query    string
		want     []string
		more     bool
		wantCode string
	}{
		"all":                  {response: second, want: all},
		"oldest first":         {response: second, query: "?order=asc", want: []string{all[3], all[2], all[1], all[0]}},
		"first page":           {response: second, query: "?limit=2", want: all[:2], more: true},
		"second page":          {response: second, query: "?limit=2&after=" + all[1], want: all[2:]},
		"own input only":       {response: second, query: "?limit=1", want: all[:1], more: true},
		"after own input":      {response: second, query: "?after=" + all[0], want: all[1:]},
		"after the last":       {response: second, query: "?after=" + all[3], want: nil},
		"before":               {response: second, query: "?limit=2&before=" + all[3], want: all[1:3], more: true},
		"before the first":     {response: second, query: "?before=" + all[0], want: nil},
		"before, oldest first": {response: second, query: "?limit=2&order=asc&before=" + all[0], want: []string{all[2], all[1]}, more: true},
		"include":              {response: first, query: "?include[]=reasoning.encrypted_content", want: all[2:]},
		"first turn":           {response: first, query: "?order=asc", want: []string{all[3], all[2]}},
		"other prefix":         {response: second, query: "?after=fc" + strings.TrimPrefix(all[1], "msg"), want: all[2:]},
		"unknown after":        {response: second, query: "?after=y", wantCode: "Bad Request invalid_value"},
		"after, no such item":  {response: second, query: "?after=" + id(second, 1), wantCode: "Bad Request invalid_value"},
		"after, later item":    {response: second, query: "?after=" + id(first, 3), wantCode: "Bad Request invalid_value"},
		"after, other turn":    {response: first, query: "?after=" + all[0], wantCode: "Bad Request invalid_value"},
		"after and before":     {response: second, query: "?after=" + all[0] + "&before=" + all[1], wantCode: "Bad Request mutually_exclusive_parameters"},
		"limit of 0":           {response: second, query: "?limit=0", wantCode: "Bad Request invalid_value"},
		"limit of 101":         {response: second, query: "?limit=101", wantCode: "Bad Request invalid_value"},
		"limit not a number":   {response: second, query: "?limit=x", wantCode: "Bad Request invalid_value"},
		"unknown order":        {response: second, query: "?order=up", wantCode: "Bad Request invalid_value"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.do(http.MethodGet, "/v1/responses/"+tc.response.get("id")+"/input_items"+tc.query, "")
			if tc.wantCode != "" {
				if r.code() != tc.wantCode {
					t.Errorf("got %d %s", r.status, r.body)
				}
				return
			}
			var got []string
			for _, item := range gjson.Get(r.body, "data").Array() {
				got = append(got, item.Get("id").Str)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			first, last := "", ""
			if len(got) > 0 {
				first, last = got[0], got[len(got)-1]
			}
			wantEnd := fmt.Sprintf(`"first_id":%q,"last_id":%q,"has_more":%t}`, first, last, tc.more)
			if !strings.HasPrefix(r.body, `{"object":"list"`) || !strings.HasSuffix(r.body, wantEnd) {
				t.Errorf("got %s, want a list that ends with %s", r.body, wantEnd)
			}
		})
	}
}

// TestPagesOfLongConversation compares pages of a conversation, in any order, with windows of the whole list. A page takes one resolve.
func TestPagesOfLongConversation(t *testing.T) {
	f := start(t, nil)
	var ids []string
	previous := ""
	for i, items := range []int{99, 0, 250, 47, 150} {
		session := testturn.Make(fmt.Sprintf("turn-%d", i), previous)
		session.Request = []byte(`{"instructions":"be brief","input":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"a"},`, items), ",") + `]}`)
		if err := f.store.next.InNamespace("default").Save(t.Context(), session, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		previous = session.ResponseID
		for number := range items + 1 {
			ids = append(ids, itemName{session.ResponseID, number}.id("message"))
		}
	}
	ids = ids[:len(ids)-1] // the output of the last turn
	resolves := 0
	f.store.onResolve = func(context.Context) error { resolves++; return nil }
	rapid.Check(t, func(t *rapid.T) {
		limit, descending, before := rapid.IntRange(1, 100).Draw(t, "limit"), rapid.Bool().Draw(t, "descending"), rapid.Bool().Draw(t, "before")
		cursor := rapid.IntRange(-1, len(ids)-1).Draw(t, "cursor")
		query := url.Values{"limit": {strconv.Itoa(limit)}, "order": {map[bool]string{false: "asc", true: "desc"}[descending]}}
		before = before && cursor >= 0
		switch {
		case before:
			query.Set("before", ids[cursor])
		case cursor >= 0:
			query.Set("after", ids[cursor])
		}
		window := history.NewWindow(len(ids), limit, cursor, descending != before)
		want := slices.Clone(ids[window.From:window.To])
		if descending {
			slices.Reverse(want)
		}
		resolves = 0
		r := f.do(http.MethodGet, "/v1/responses/turn-4/input_items?"+query.Encode(), "")
		got := []string{}
		for _, item := range gjson.Get(r.body, "data").Array() {
			got = append(got, item.Get("id").Str)
		}
		if diff := cmp.Diff(append([]string{}, want...), got); diff != "" || (r.get("has_more") == "true") != window.More || resolves > 1 {
			t.Fatalf("%s: has_more %s, want %t, %d resolves (-want +got):\n%s", query.Encode(), r.get("has_more"), window.More, resolves, diff)
		}
	})
}

func TestInputItemsOfBrokenConversations(t *testing.T) {
	f := start(t, nil)
	f.seed("resp_gone_parent", "resp_gone", "completed")
	f.seed("resp_failed", "", "failed")
	f.seed("resp_after_failed", "resp_failed", "completed")
	for id, want := range map[string]string{
		"resp_none":         "Not Found",
		"resp_gone_parent":  "Bad Request " + string(store.CodeNotFound),
		"resp_failed":       "OK",
		"resp_after_failed": "OK",
	} {
		if r := f.do(http.MethodGet, "/v1/responses/"+id+"/input_items", ""); r.code() != want {
			t.Errorf("%s: got %q, want %q", id, r.code(), want)
		}
	}
}

// TestListedItems: items have the shape of OpenAI's, whatever the input was, and are otherwise unchanged.
func TestListedItems(t *testing.T) {
	for name, tc := range map[string]struct{ item, want string }{
		"short message": {
			`{"role":"user","content":"a \u00fc","x":1.0}`,
			`{"role":"user","content":[{"type":"input_text","text":"a \u00fc"}],"x":1.0,"id":"msg_r_2","type":"message","status":"completed"}`,
		},
		"message of the assistant": {
			`{"id":"engine","role":"assistant","content":"a"}`,
			`{"id":"msg_r_2","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"a"}],"type":"message","status":"completed"}`,
		},
		"message with parts":   {`{"type":"message","id":null,"role":"user","status":"incomplete","content":[]}`, `{"type":"message","id":"msg_r_2","role":"user","status":"incomplete","content":[]}`},
		"output of a function": {`{"type":"function_call_output","call_id":"c","output":"o"}`, `{"type":"function_call_output","call_id":"c","output":"o","id":"fco_r_2","status":"completed"}`},
		"image from a function": {
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u"},{"type":"input_text","text":"a"}]}`,
			`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"u","detail":"auto"},{"type":"input_text","text":"a"}],"id":"fco_r_2","status":"completed"}`,
		},
		"found tools": {
			`{"type":"tool_search_output","tools":[]}`,
			`{"type":"tool_search_output","tools":[],"id":"item_r_2","status":"completed","execution":"client","call_id":null}`,
		},
		"output of a shell": {
			`{"type":"shell_call_output","call_id":"c","output":[]}`,
			`{"type":"shell_call_output","call_id":"c","output":[],"id":"item_r_2","status":"completed","max_output_length":null}`,
		},
		"call of a shell": {
			`{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}}`,
			`{"type":"shell_call","call_id":"c","action":{"commands":["ls"],"max_output_length":null,"timeout_ms":null},"id":"item_r_2","status":"completed","environment":null}`,
		},
		"search of tools": {
			`{"type":"tool_search_call","arguments":{}}`,
			`{"type":"tool_search_call","arguments":{},"id":"item_r_2","status":"completed","execution":"server","call_id":null}`,
		},
		"search of tools by the client": {
			`{"type":"tool_search_call","call_id":"c","arguments":{}}`,
			`{"type":"tool_search_call","call_id":"c","arguments":{},"id":"item_r_2","status":"completed","execution":"client"}`,
		},
		"unknown type":   {`{"type":"new_thing", "id" : "a"}`, `{"type":"new_thing","id":"item_r_2"}`},
		"duplicate keys": {`{"role":"user","role":"user","id":"a","content":"a"}`, `{"role":"user","role":"user","id":"msg_r_2","content":"a"}`},
		"empty":          {`{ }`, `{"id":"item_r_2"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := listed(tc.item, itemName{"resp_r", 2}); got != tc.want {
				t.Errorf("got  %s, want %s", got, tc.want)
			}
		})
	}
}
