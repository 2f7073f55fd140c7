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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/testutil"
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
		t.Run(name, func(t *testing.T) {
			f := start(t, nil, func(o *Options) { o.MaxRequestBytes, o.ResponseReserveBytes, o.MaxInFlightBytes = 1, 0, 3*callBytes })
			f.seedLarge("resp_a", 3*callBytes) // alone more than a tenant may hold
			f.store.onGet = func() error { return tc.err }
			if r := f.do(http.MethodDelete, "/v1/responses/resp_a", ""); r.code() != tc.want {
				t.Errorf("got %d %s, want %s", r.status, r.body, tc.want)
			}
			f.store.onGet = nil
			if gone := f.saved("resp_a") == nil; gone != tc.wantGone {
				t.Errorf("deleted: %t, want %t", gone, tc.wantGone)
			}
		})
	}
}

func TestRetrieveTurnOfAnotherGateway(t *testing.T) {
	f := start(t, nil)
	f.seed("resp_x", "resp_y", "completed")
	want := `{"output":[` + testutil.AssistantMessage("answer of resp_x") + `],"id":"resp_x","previous_response_id":"resp_y","object":"response","status":"completed"}`
	if r := f.do(http.MethodGet, "/v1/responses/resp_x", ""); r.body != want {
		t.Errorf("got %s, want %s", r.body, want)
	}
}

func TestInputItems(t *testing.T) {
	f := start(t, nil)
	first := f.create(`{"input":[{"role":"user","content":"a","id":"x"},{"role":"user","content":"b","id":"x"}]}`)
	second := f.create(fmt.Sprintf(`{"input":"c","previous_response_id":%q}`, first.get("id")))
	own := func(r reply, i int) string {
		return fmt.Sprintf("item_%s_%d", strings.TrimPrefix(r.get("id"), "resp_"), i)
	}
	answer := first.get("output.0.id")
	for name, tc := range map[string]struct {
		response reply
		query    string
		want     []string
		more     bool
		wantCode string
	}{
		"all":                {response: second, want: []string{own(second, 3), answer, own(second, 1), "x"}},
		"oldest first":       {response: second, query: "?order=asc", want: []string{"x", own(second, 1), answer, own(second, 3)}},
		"first page":         {response: second, query: "?limit=2", want: []string{own(second, 3), answer}, more: true},
		"second page":        {response: second, query: "?limit=2&after=" + answer, want: []string{own(second, 1), "x"}},
		"after the last":     {response: second, query: "?after=x", want: nil},
		"first turn":         {response: first, query: "?order=asc", want: []string{"x", own(first, 1)}},
		"unknown after":      {response: second, query: "?after=y", wantCode: "Bad Request invalid_value"},
		"limit of 0":         {response: second, query: "?limit=0", wantCode: "Bad Request invalid_value"},
		"limit of 101":       {response: second, query: "?limit=101", wantCode: "Bad Request invalid_value"},
		"limit not a number": {response: second, query: "?limit=x", wantCode: "Bad Request invalid_value"},
		"unknown order":      {response: second, query: "?order=up", wantCode: "Bad Request invalid_value"},
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
			if len(got) > 0 && (r.get("first_id") != got[0] || r.get("last_id") != got[len(got)-1]) || r.get("object") != "list" || (r.get("has_more") == "true") != tc.more {
				t.Errorf("got a list with unexpected first_id, last_id, object or has_more: %s", r.body)
			}
		})
	}
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

// TestInputItemsAreUnchanged checks that every input that the gateway accepts can be listed.
func TestInputItemsAreUnchanged(t *testing.T) {
	f := start(t, nil)
	r := f.create(`{"input":[{"role":"user","role":"user","content":"a"},{"id":null,"role":"user","content":"b"}, { } ]}`)
	id := "item_" + strings.TrimPrefix(r.get("id"), "resp_") + "_"
	want := `[{"role":"user","role":"user","content":"a","id":"` + id + `0"},{"role":"user","content":"b","id":"` + id + `1"},{"id":"` + id + `2"}]`
	if got := f.do(http.MethodGet, "/v1/responses/"+r.get("id")+"/input_items?order=asc", ""); got.get("data") != want {
		t.Errorf("got %d %s, want %s", got.status, got.body, want)
	}
}
