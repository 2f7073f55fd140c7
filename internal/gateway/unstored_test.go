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
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
)

// unstored returns what a client gets for an input with store: false over each transport: the events, or the response as the only event.
func (f *fixture) unstored(model, input string) map[string][]reply {
	members := fmt.Sprintf(`"model":%q,"input":%s,"store":false`, model, input)
	c := f.dial()
	c.send(`{"type":"response.create",` + members + `}`)
	return map[string][]reply{
		"JSON":      {{body: `{"type":"response.completed","response":` + f.create(`{`+members+`}`).body + `}`}},
		"SSE":       events(f.create(`{` + members + `,"stream":true}`).body),
		"WebSocket": c.rest(),
	}
}

// idsOf returns the ID of an item in each event that has one, without repetitions.
func idsOf(all []reply, item int) (ids []string) {
	for _, e := range all {
		id := e.get(fmt.Sprintf("response.output.%d.id", item))
		if e.get("output_index") == fmt.Sprint(item) {
			id = e.get("item_id") + e.get("item.id")
		}
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestUnstoredItems checks that items that are not stored have all members, and the same ID in all events.
func TestUnstoredItems(t *testing.T) {
	f := start(t, enginetest.Strict())
	for transport, all := range f.unstored(enginetest.ModelThin, `"reason"`) {
		response := gjson.Get(all[len(all)-1].body, "response")
		for i, kind := range []string{"reasoning", "message"} {
			want := []string{itemName{response.Get("id").Str, 1 + i}.unstoredID(kind)}
			if diff := cmp.Diff(want, idsOf(all, i)); diff != "" {
				t.Errorf("%s: IDs of the %s (-want +got):\n%s", transport, kind, diff)
			}
		}
		message := response.Get("output.1")
		part := message.Get("content.0")
		if message.Get("status").Str != "completed" || !part.Get("annotations").IsArray() || !part.Get("logprobs").IsArray() {
			t.Errorf("%s: got %s", transport, message.Raw)
		}
		for _, e := range all {
			if done := e.get("item"); e.get("type") == eventItemDone && response.Get("output."+e.get("output_index")).Raw != done {
				t.Errorf("%s: the event has the item %s", transport, done)
			}
		}
	}
	for transport, all := range f.unstored(enginetest.ModelStrict, `"reason"`) {
		for i := range 2 {
			if ids := idsOf(all, i); len(ids) != 1 || !strings.Contains(ids[0], "_engine_") {
				t.Errorf("%s: item %d of an engine with IDs has %q", transport, i, ids)
			}
		}
	}
}

// TestUnstoredItemsAreStable checks that an item that is not stored keeps the ID that it had first, whatever the engine does.
func TestUnstoredItemsAreStable(t *testing.T) {
	const generated = "generated"
	event := func(kind, id string) string {
		return `{"type":"response.output_item.` + kind + `","output_index":0,"item":{"type":"message"` + id + `}}`
	}
	end := func(items string) string {
		return `{"type":"response.completed","response":{"status":"completed","output":[` + items + `]}}`
	}
	const first, second = `,"id":"msg_a"`, `,"id":"msg_b"`
	const delta = `{"type":"response.output_text.delta","item_id":"msg_b","output_index":0,"delta":"x"}`
	for name, tc := range map[string]struct {
		stream []string
		want   []string
	}{
		"an ID at the end":     {[]string{event("added", ""), event("done", first), end(`{"type":"message"` + first + `}`)}, []string{generated}},
		"another ID each time": {[]string{event("added", first), delta, end(`{"type":"message"` + second + `}`)}, []string{"msg_a"}},
		"an ID only at first":  {[]string{event("added", first), event("done", ""), end(`{"type":"message"}`)}, []string{"msg_a"}},
		"no output at the end": {[]string{event("added", ""), event("done", ""), end("")}, []string{generated}},
		"no end":               {[]string{event("added", first), event("done", second)}, []string{"msg_a"}},
		"a number":             {[]string{event("added", `,"id":7`), event("done", `,"id":7`), end(`{"type":"message","id":7}`)}, []string{generated}},
		"an item less":         {[]string{event("done", first), end(`{"type":"reasoning","id":"rs_1"}`)}, []string{"msg_a", "rs_1"}},
		"the first is missing": {
			[]string{event("done", first), event("done", second), end(`{"type":"message"` + second + `}`)}, []string{"msg_a", "msg_b"},
		},
		"in another order": {
			[]string{event("done", first), event("done", second), end(`{"type":"message"` + second + `},{"type":"message"` + first + `}`)},
			[]string{"msg_a", "msg_b"},
		},
		"a delta first, without an ID": {
			[]string{`{"type":"response.output_text.delta","output_index":0,"delta":"x"}`, event("added", first), end(`{"type":"message"` + first + `}`)}, []string{generated},
		},
		"a delta first, with another ID": {[]string{delta, event("added", first), end(`{"type":"message"` + first + `}`)}, []string{"msg_b"}},
		"items without events":           {[]string{end(`{"type":"message"}`)}, []string{generated}},
	} {
		t.Run(name, func(t *testing.T) {
			all := events(start(t, streamHandler(sse(tc.stream...))).create(`{"input":"a","stream":true,"store":false}`).body)
			id := itemName{all[len(all)-1].get("response.id"), 1}.unstoredID("message")
			got := idsOf(all, 0)
			if i := slices.Index(got, id); i >= 0 {
				got[i] = generated
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnstoredEventsAreUnchanged checks that an event with an ID and all members is passed on as it is.
func TestUnstoredEventsAreUnchanged(t *testing.T) {
	sent := []string{
		`{"type":"response.output_item.added", "sequence_number":1, "output_index":0, "item":{ "type":"reasoning", "id":"rs_1", "summary":[] }}`,
		`{"type":"response.reasoning_summary_text.delta", "sequence_number":2, "output_index":0, "summary_index":0, "item_id": "rs_1", "delta":"a"}`,
	}
	all := events(start(t, streamHandler(sse(append(sent, completed)...))).create(`{"input":"a","stream":true,"store":false}`).body)
	if diff := cmp.Diff(sent, []string{all[0].body, all[1].body}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUnstoredItemsComeBack checks what the engine gets of items that are not stored: what it has returned if the connection remembers it,
// and no generated ID if the client sends them.
func TestUnstoredItemsComeBack(t *testing.T) {
	const item = `{ "role":"assistant","id":null,"content":"yes" }`
	f := start(t, itemEngine(item))
	sent := func() string {
		body, _ := f.sent.last()
		return gjson.Get(body, "input").Raw
	}
	c := f.dial()
	last := c.ask(`"input":[],"store":false`)
	c.ask(`"input":[` + userA + `],"previous_response_id":"` + last.get("response.id") + `"`)
	if want := "[" + item + "," + userA + "]"; sent() != want {
		t.Errorf("remembered: the engine got %s, want %s", sent(), want)
	}
	shown := last.get("response.output.0")
	want := `[{"role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"yes"}],"type":"message","status":"completed"}]`
	stored := f.create(`{"input":[` + shown + `]}`)
	if sent() != want {
		t.Errorf("by value: the engine got %s, want %s", sent(), want)
	}
	copied := `{"type":"item_reference","id":"` + itemName{stored.get("id"), 0}.id("message") + `"}`
	f.create(`{"input":[` + copied + `],"store":false}`)
	if sent() != want {
		t.Errorf("stored and referred to: the engine got %s, want %s", sent(), want)
	}
	r := f.do(http.MethodPost, "/v1/responses", `{"input":[`+reference(gjson.Get(shown, "id").Str)+`]}`)
	if r.status != http.StatusNotFound || !strings.Contains(r.get("error.message"), "Items are not persisted when `store` is set to false.") {
		t.Errorf("referred to: got %d %s", r.status, r.body)
	}
}
