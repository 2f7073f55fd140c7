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

package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

func TestInstructions(t *testing.T) {
	namespace := env.NewNamespace(t)
	testsession.Make(namespace, "resp_a").Request(`{"instructions":"one","input":"A"}`).Create(t, env.Client)
	testsession.Make(namespace, "resp_b").After("resp_a").Request(`{"instructions":"two","input":"B"}`).Create(t, env.Client)
	testsession.Make(namespace, "resp_c").After("resp_b").Request(`{"instructions":"two","input":"C"}`).Create(t, env.Client)
	testsession.Make(namespace, "resp_d").After("resp_c").Request(`{"input":"D"}`).Create(t, env.Client)
	assistant := func(id string) string { return testutil.AssistantMessage("answer of " + id) }
	all := []string{
		testutil.SystemMessage("one"), testutil.UserMessage("A"), assistant("resp_a"),
		testutil.SystemMessage("two"), testutil.UserMessage("B"), assistant("resp_b"),
		testutil.SystemMessage("two"), testutil.UserMessage("C"), assistant("resp_c"),
	}
	none := slices.DeleteFunc(slices.Clone(all), func(item string) bool { return strings.Contains(item, `"system"`) })
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	cases := map[string]struct {
		id, query string
		want      []string
	}{
		"default":                         {id: "resp_c", want: all},
		"all":                             {id: "resp_c", query: "instructions=All", want: all},
		"last":                            {id: "resp_c", query: "instructions=Last", want: slices.Insert(slices.Clone(none), 4, testutil.SystemMessage("two"))},
		"last, turn without instructions": {id: "resp_d", query: "instructions=Last", want: slices.Concat(none, []string{testutil.UserMessage("D"), assistant("resp_d")})},
		"omit":                            {id: "resp_c", query: "instructions=Omit", want: none},
		"ascending":                       {id: "resp_c", query: "order=asc", want: all},
		"descending":                      {id: "resp_c", query: "order=desc", want: reversed},
		"descending, instructions":        {id: "resp_a", query: "order=desc&instructions=Last", want: []string{assistant("resp_a"), testutil.UserMessage("A"), testutil.SystemMessage("one")}},
		"first page":                      {id: "resp_c", query: "limit=2", want: all[:2]},
		"first page, descending":          {id: "resp_c", query: "limit=2&order=desc", want: reversed[:2]},
		"limit equal to the item count":   {id: "resp_c", query: "limit=9", want: all},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := aggregated(t).resolve(t, namespace, tc.id, tc.query).history(t)
			if diff := cmp.Diff(tc.want, h.texts()); diff != "" {
				t.Error(diff)
			}
			if more := len(tc.want) < 9 && strings.Contains(tc.query, "limit"); more != (h.Next != "") {
				t.Errorf("next is %q, want one: %t", h.Next, more)
			}
		})
	}
}

// bigChain creates a chain of 40 turns with 27 items each and returns the ID of the last one.
func bigChain(t *testing.T, namespace string) string {
	t.Helper()
	previous := ""
	for i := range 40 {
		id := fmt.Sprintf("resp_big_%d", i)
		var input, output []string
		for j := range 13 {
			input = append(input, fmt.Sprintf(`{"role":"user","content":"in %d.%d"}`, i, j))
			output = append(output, testutil.AssistantMessage(fmt.Sprintf("out %d.%d", i, j)))
		}
		testsession.Make(namespace, id).After(previous).
			Request(`{"instructions":"`+id+`","input":[`+strings.Join(input, ",")+`]}`).
			Response(`{"output":[`+strings.Join(output, ",")+`]}`).Create(t, env.Client)
		previous = id
	}
	return previous
}

func TestPages(t *testing.T) {
	namespace := env.NewNamespace(t)
	id := bigChain(t, namespace)
	cases := map[string]struct {
		query     string
		limit     int
		wantItems int
	}{
		"ascending":               {query: "order=asc", limit: 97, wantItems: 40 * 27},
		"descending":              {query: "order=desc", limit: 97, wantItems: 40 * 27},
		"maximum limit":           {query: "", limit: 1000, wantItems: 40 * 27},
		"one page for each turn":  {query: "instructions=All", limit: 27, wantItems: 40 * 27},
		"Last":                    {query: "instructions=Last", limit: 100, wantItems: 40*26 + 1},
		"Omit, descending":        {query: "instructions=Omit&order=desc", limit: 99, wantItems: 40 * 26},
		"Last, descending, small": {query: "instructions=Last&order=desc", limit: 7, wantItems: 40*26 + 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			whole := aggregated(t).resolve(t, namespace, id, tc.query).history(t)
			if len(whole.Items) != tc.wantItems || whole.Next != "" {
				t.Fatalf("%d items, next %q, want %d", len(whole.Items), whole.Next, tc.wantItems)
			}
			var pages []string
			after := ""
			for {
				page := aggregated(t).resolve(t, namespace, id, fmt.Sprintf("%s&limit=%d%s", tc.query, tc.limit, after)).history(t)
				if diff := cmp.Diff(whole.Turns, page.Turns); diff != "" {
					t.Fatal(diff)
				}
				if page.Next != "" && len(page.Items) != tc.limit {
					t.Fatalf("page of %d items, limit %d", len(page.Items), tc.limit)
				}
				pages = append(pages, page.texts()...)
				if page.Next == "" {
					break
				}
				after = "&after=" + url.QueryEscape(page.Next)
			}
			if diff := cmp.Diff(whole.texts(), pages); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCursors(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 3)
	cursor := func(id, query string) string {
		next := aggregated(t).resolve(t, namespace, id, "limit=2"+query).history(t).Next
		if next == "" {
			t.Fatalf("resolve of %s %s returns no cursor", id, query)
		}
		return next
	}
	own := cursor(ids[2], "")
	cases := map[string]struct {
		query    string
		wantCode int
	}{
		"own cursor":                         {query: "limit=1&after=" + own, wantCode: http.StatusOK},
		"own cursor with another limit":      {query: "limit=1000&after=" + own, wantCode: http.StatusOK},
		"cursor of another session":          {query: "limit=2&after=" + cursor(ids[1], ""), wantCode: http.StatusBadRequest},
		"cursor of the other order":          {query: "limit=2&after=" + cursor(ids[2], "&order=desc"), wantCode: http.StatusBadRequest},
		"own cursor in the other order":      {query: "limit=2&order=desc&after=" + own, wantCode: http.StatusBadRequest},
		"own cursor with other instructions": {query: "limit=2&instructions=Omit&after=" + own, wantCode: http.StatusBadRequest},
		"no limit":                           {query: "after=" + own, wantCode: http.StatusBadRequest},
		"truncated cursor":                   {query: "limit=2&after=" + own[:len(own)-2], wantCode: http.StatusBadRequest},
		"trailing data":                      {query: "limit=2&after=" + own + "AAAA", wantCode: http.StatusBadRequest},
		"not a cursor":                       {query: "limit=2&after=nonsense", wantCode: http.StatusBadRequest},
		"not base64":                         {query: "limit=2&after=%00%F0%9F%98%80", wantCode: http.StatusBadRequest},
		"very long cursor":                   {query: "limit=2&after=" + strings.Repeat("QUFB", 2000), wantCode: http.StatusBadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			response := aggregated(t).resolve(t, namespace, ids[2], tc.query)
			if response.code != tc.wantCode {
				t.Fatalf("got %d, want %d: %s", response.code, tc.wantCode, response.body)
			}
			if tc.wantCode == http.StatusBadRequest {
				if status := response.wantStatus(t); !strings.Contains(status.Message, `"after"`) {
					t.Errorf("the message does not name the parameter: %s", status.Message)
				}
			}
		})
	}
}
