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
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// TestStreamAndResponseDiffer: an item of a stored stream has one ID, and a call one call ID, although the final output lacks items or has them
// in another order. What the client has seen is stored.
func TestStreamAndResponseDiffer(t *testing.T) {
	const (
		reasoning = `{"type":"reasoning","id":"rs_1","summary":[]}`
		call      = `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{}","status":"completed"}`
		message   = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[]}`
		second    = `{"type":"message","id":"msg_2","role":"assistant","status":"completed","content":[]}`
	)
	withoutIDs := regexp.MustCompile(`"id":"[a-z]+_1",`)
	for name, tc := range map[string]struct{ streamed, final, want []string }{
		"the first is missing":         {[]string{reasoning, message}, []string{message}, []string{"rs_1", "msg_1"}},
		"a call is missing":            {[]string{call, message}, []string{message}, []string{"fc_1", "msg_1"}},
		"the last is missing":          {[]string{reasoning, message}, []string{reasoning}, []string{"rs_1", "msg_1"}},
		"another order":                {[]string{reasoning, call, message}, []string{message, call, reasoning}, []string{"rs_1", "fc_1", "msg_1"}},
		"two of a type, another order": {[]string{message, second}, []string{second, message}, []string{"msg_1", "msg_2"}},
		"more than was streamed":       {[]string{message}, []string{reasoning, message, call}, []string{"msg_1", "rs_1", "fc_1"}},
		"only more at the end":         {[]string{message}, []string{message, call}, []string{"msg_1", "fc_1"}},
	} {
		for _, ids := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, IDs=%t", name, ids), func(t *testing.T) {
				if !ids && slices.Contains(tc.streamed, second) {
					t.Skip("cannot be told apart")
				}
				var stream []string
				for _, item := range tc.streamed {
					stream = append(stream, `{"type":"response.output_item.added","item":`+item+`}`, `{"type":"response.output_item.done","item":`+item+`}`)
				}
				sent := sse(append(stream, `{"type":"response.completed","response":{"status":"completed","output":[`+strings.Join(tc.final, ",")+`]}}`)...)
				if !ids {
					sent = withoutIDs.ReplaceAllString(sent, "")
				}
				f := start(t, streamHandler(sent))
				all := events(f.create(`{"input":"a","stream":true}`).body)
				last := all[len(all)-1]
				for i, item := range tc.streamed {
					shown := last.get(fmt.Sprintf("response.output.%d", i))
					if done := all[2*i+1].get("item"); shown != done || gjson.Get(shown, "type").Str != gjson.Get(item, "type").Str {
						t.Errorf("item %d is %s, but was %s", i, shown, done)
					}
				}
				var stored []string
				for _, item := range gjson.GetBytes(f.saved(last.get("response.id")).Response, "output").Array() {
					stored = append(stored, item.Get("id").Str)
				}
				if diff := cmp.Diff(tc.want, stored); ids && diff != "" || len(stored) != len(tc.want) {
					t.Errorf("stored (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestCallsKeepTheirIDs: a call has the ID that it had first, although the engine gives it another one in each event, and so has its output.
func TestCallsKeepTheirIDs(t *testing.T) {
	item := func(kind, id, call string) string {
		return `{"type":"` + kind + `","id":"` + id + `","call_id":"` + call + `","status":"completed"}`
	}
	withoutID := func(item string) string { return strings.Replace(item, `"id":"",`, "", 1) }
	const call, shell, output = "function_call", "shell_call", "shell_call_output"
	for name, tc := range map[string]struct {
		added, done, final []string
		want               []string // the engine's IDs of the calls
		parallel           bool     // all items are added before one is done
		wantUnstored       []string // if it differs: nothing adds what the final output lacks
	}{
		"another in the final output": {
			[]string{item(call, "1", "a")}, []string{item(call, "1", "a")}, []string{item(call, "9", "b")}, []string{"a"}, false, nil,
		},
		"another in each event": {
			[]string{item(call, "1", "a")}, []string{item(call, "2", "b")}, []string{item(call, "3", "c")}, []string{"a"}, false, nil,
		},
		"another in each event, with its output": {
			[]string{item(shell, "1", "a"), item(output, "2", "b")}, []string{item(shell, "1", "b"), item(output, "2", "b")},
			[]string{item(shell, "1", "c"), item(output, "2", "c")}, []string{"a", "a"}, false, nil,
		},
		"two": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "a"), item(call, "2", "b")},
			[]string{item(call, "3", "c"), item(call, "4", "d")}, []string{"a", "b"}, false, nil,
		},
		"other item IDs, another order": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "a"), item(call, "2", "b")},
			[]string{item(call, "3", "b"), item(call, "4", "a")}, []string{"a", "b"}, false, nil,
		},
		"one of two": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "a"), item(call, "2", "b")},
			[]string{item(call, "3", "a"), item(call, "4", "c")}, []string{"a", "b"}, false, nil,
		},
		"no output": {
			[]string{item(call, "1", "a")}, []string{item(call, "2", "b")}, nil, []string{"a"}, false, nil,
		},
		"the first is missing": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "a"), item(call, "2", "b")},
			[]string{item(call, "2", "c")}, []string{"a", "b"}, false, []string{"b"},
		},
		"without item IDs and indexes": {
			[]string{withoutID(item(call, "", "a")), withoutID(item(call, "", "b"))}, []string{withoutID(item(call, "", "b")), withoutID(item(call, "", "a"))},
			[]string{withoutID(item(call, "", "a")), withoutID(item(call, "", "b"))}, []string{"a", "b"}, true, nil,
		},
		"one item ID, another order at the end": {
			[]string{item(call, "1", "a"), item(call, "1", "b")}, []string{item(call, "1", "a"), item(call, "1", "b")},
			[]string{item(call, "1", "b"), item(call, "1", "a")}, []string{"a", "b"}, true, nil,
		},
		"IDs that are numbered in each event": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "b"), item(call, "2", "c")},
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{"a", "b"}, false, nil,
		},
		"one ID at the end": {
			[]string{item(call, "1", "a"), item(call, "2", "b")}, []string{item(call, "1", "a"), item(call, "2", "b")},
			[]string{item(call, "3", "x"), item(call, "4", "x")}, []string{"a", "b"}, false, nil,
		},
		"one item ID, another order when they are done": {
			[]string{item(call, "1", "a"), item(call, "1", "b")}, []string{item(call, "1", "b"), item(call, "1", "a")},
			[]string{item(call, "1", "a"), item(call, "1", "b")}, []string{"a", "b"}, true, nil,
		},
	} {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, store=%t", name, stored), func(t *testing.T) {
				var stream []string
				event := func(kind string, i int, item string) {
					if tc.parallel { // the indexes of some engines tell as little as their IDs
						i = 0
					}
					stream = append(stream, fmt.Sprintf(`{"type":%q,"sequence_number":%d,"output_index":%d,"item":%s}`, kind, len(stream), i, item))
				}
				for i, added := range tc.added {
					event(eventItemAdded, i, added)
					if !tc.parallel {
						event(eventItemDone, i, tc.done[i])
					}
				}
				if tc.parallel {
					for i, done := range tc.done {
						event(eventItemDone, i, done)
					}
				}
				final := `{"type":"response.completed","response":{"status":"completed","output":[` + strings.Join(tc.final, ",") + `]}}`
				f := start(t, streamHandler(sse(append(stream, final)...)))
				all := events(f.create(fmt.Sprintf(`{"input":"a","stream":true,"store":%t}`, stored)).body)
				last := all[len(all)-1]
				want := tc.want
				if !stored && tc.wantUnstored != nil {
					want = tc.wantUnstored
				}
				streamed, ended, engines := map[string]bool{}, map[string]bool{}, []string(nil)
				for _, e := range all[:len(all)-1] {
					streamed[e.get("item.call_id")] = true
				}
				for _, id := range gjson.Get(last.get("response"), "output.#.call_id").Array() {
					ended[id.Str] = true
					engine, _, _ := parseSuffix(id.Str)
					engines = append(engines, engine)
				}
				if !stored { // they keep the order of the final output
					slices.Sort(engines)
				}
				if diff := cmp.Diff(want, engines); diff != "" {
					t.Errorf("calls of the response (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(streamed, ended); diff != "" && (stored || tc.wantUnstored == nil) {
					t.Errorf("calls (-events +response):\n%s", diff)
				}
				if !stored {
					return
				}
				saved := gjson.GetBytes(f.saved(last.get("response.id")).Response, "output.#.call_id").Raw
				if want := gjson.Get(last.get("response"), "output.#.call_id").Raw; saved != want {
					t.Errorf("saved the calls %s, want %s", saved, want)
				}
			})
		}
	}
}

// TestLargeFinalOutput: a final output with more items than events may have is refused before it is compared with them.
func TestLargeFinalOutput(t *testing.T) {
	response, err := objectOf(`{"output":[{}` + strings.Repeat(",{}", maxOutputItems) + `]}`)
	if err != nil {
		t.Fatal(err)
	}
	data := &object{}
	data.set("response", response.String())
	s := &relay{turn: &turn{request: &createRequest{store: true}}}
	if _, _, err := s.readResponse(eventCompleted, data); !errors.Is(err, errTooManyItems) {
		t.Errorf("got %v, want %v", err, errTooManyItems)
	}
}
