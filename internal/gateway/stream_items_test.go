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
	// items returns calls, or a call and its output, of which each word has the item ID, or a hyphen, and the call ID.
	items := func(kind, words string) (items []string) {
		for i, word := range strings.Fields(words) {
			item := `{"type":"` + kind + `","id":"` + word[:1] + `","call_id":"` + word[1:] + `","status":"completed"}`
			if kind == "shell_call" && i == 1 {
				item = strings.Replace(item, kind, "shell_call_output", 1)
			}
			items = append(items, strings.Replace(item, `"id":"-",`, "", 1))
		}
		return items
	}
	const call, shell = "function_call", "shell_call"
	for name, tc := range map[string]struct {
		kind, added, done, final string
		want                     string // the engine's IDs of the calls
		parallel                 bool   // all items are added before one is done
		wantUnstored             string // if it differs: nothing adds what the final output lacks
	}{
		"another in the final output":                   {call, "1a", "1a", "9b", "a", false, ""},
		"another in each event":                         {call, "1a", "2b", "3c", "a", false, ""},
		"another in each event, with its output":        {shell, "1a 2b", "1b 2b", "1c 2c", "a a", false, ""},
		"two":                                           {call, "1a 2b", "1a 2b", "3c 4d", "a b", false, ""},
		"other item IDs, another order":                 {call, "1a 2b", "1a 2b", "3b 4a", "a b", false, ""},
		"one of two":                                    {call, "1a 2b", "1a 2b", "3a 4c", "a b", false, ""},
		"no output":                                     {call, "1a", "2b", "", "a", false, ""},
		"the first is missing":                          {call, "1a 2b", "1a 2b", "2c", "a b", false, "b"},
		"IDs that are numbered in each event":           {call, "1a 2b", "1b 2c", "1a 2b", "a b", false, ""},
		"one ID at the end":                             {call, "1a 2b", "1a 2b", "3x 4x", "a b", false, ""},
		"without item IDs and indexes":                  {call, "-a -b", "-b -a", "-a -b", "a b", true, ""},
		"one item ID, another order at the end":         {call, "1a 1b", "1a 1b", "1b 1a", "a b", true, ""},
		"one item ID, another order when they are done": {call, "1a 1b", "1b 1a", "1a 1b", "a b", true, ""},
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
				done := items(tc.kind, tc.done)
				for i, added := range items(tc.kind, tc.added) {
					event(eventItemAdded, i, added)
					if !tc.parallel {
						event(eventItemDone, i, done[i])
					}
				}
				for i := 0; tc.parallel && i < len(done); i++ {
					event(eventItemDone, i, done[i])
				}
				final := `{"type":"response.completed","response":{"status":"completed","output":[` + strings.Join(items(tc.kind, tc.final), ",") + `]}}`
				f := start(t, streamHandler(sse(append(stream, final)...)))
				all := events(f.create(fmt.Sprintf(`{"input":"a","stream":true,"store":%t}`, stored)).body)
				last := all[len(all)-1]
				want := tc.want
				if !stored && tc.wantUnstored != "" {
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
				if diff := cmp.Diff(strings.Fields(want), engines); diff != "" {
					t.Errorf("calls of the response (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(streamed, ended); diff != "" && (stored || tc.wantUnstored == "") {
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
