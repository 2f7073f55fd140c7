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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// TestThinEvents checks that events get what an engine leaves out, and nothing else.
func TestThinEvents(t *testing.T) {
	const item = `{"type":"message","role":"assistant","content":[],"status":"completed"}`
	// Of the events, only those that follow response.created are listed. ID is the ID of the first item if it is a message, and IMAGE if it
	// is an image.
	for name, tc := range map[string]struct{ sent, want []string }{
		"nothing is missing": {
			[]string{`{"type":"response.output_text.delta", "sequence_number":7,"output_index":3,"content_index":1,"item_id":"x","logprobs":[],"delta":"a"}`},
			[]string{`{"type":"response.output_text.delta", "sequence_number":7,"output_index":3,"content_index":1,"item_id":"ID","logprobs":[],"delta":"a"}`},
		},
		"all is missing": {
			[]string{
				`{"type":"response.output_item.added","item":` + item + `}`,
				`{"type":"response.content_part.added","part":{"type":"output_text","text":"","annotations":null}}`,
				`{"type":"response.output_text.delta","delta":"a"}`,
				`{"type":"response.reasoning_summary_text.delta","delta":"a"}`,
				`{"type":"response.function_call_arguments.delta","delta":"a"}`,
			},
			[]string{
				`{"type":"response.output_item.added","item":{"type":"message","role":"assistant","content":[],"status":"completed","id":"ID"},"sequence_number":1,"output_index":0}`,
				`{"type":"response.content_part.added","part":{"type":"output_text","text":"","annotations":[],"logprobs":[]},"sequence_number":2,"output_index":0,"content_index":0,"item_id":"ID"}`,
				`{"type":"response.output_text.delta","delta":"a","sequence_number":3,"output_index":0,"content_index":0,"logprobs":[],"item_id":"ID"}`,
				`{"type":"response.reasoning_summary_text.delta","delta":"a","sequence_number":4,"output_index":0,"summary_index":0,"item_id":"ID"}`,
				`{"type":"response.function_call_arguments.delta","delta":"a","sequence_number":5,"output_index":0,"item_id":"ID"}`,
			},
		},
		"null": {
			[]string{`{"type":"response.output_text.done","sequence_number":null,"output_index":null,"item_id":null,"text":"a"}`},
			[]string{`{"type":"response.output_text.done","sequence_number":1,"output_index":0,"item_id":"ID","text":"a","content_index":0,"logprobs":[]}`},
		},
		"numbers go on": {
			[]string{`{"type":"response.queued","sequence_number":41}`, `{"type":"response.from.the.future"}`},
			[]string{`{"type":"response.queued","sequence_number":41}`, `{"type":"response.from.the.future","sequence_number":42}`},
		},
		"counted": {
			[]string{
				`{"type":"response.output_item.added","item":{"type":"image_generation_call"}}`,
				`{"type":"response.output_item.added","item":` + item + `}`,
				`{"type":"response.image_generation_call.partial_image","output_index":0}`,
				`{"type":"response.output_text.annotation.added","output_index":1}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"annotation_index":null}`,
				`{"type":"response.image_generation_call.partial_image","output_index":0}`,
				`{"type":"response.image_generation_call.generating","output_index":0}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"annotation_index":7}`,
				`{"type":"response.output_text.annotation.added","output_index":1}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"content_index":1}`,
				`{"type":"response.output_text.annotation.added","output_index":2}`,
				`{"type":"response.output_text.annotation.added","output_index":2}`,
				`{"type":"response.output_item.done","output_index":2,"item":` + item + `}`,
				`{"type":"response.output_text.annotation.added","output_index":3}`,
			},
			[]string{
				`{"type":"response.output_item.added","item":{"type":"image_generation_call","id":"IMAGE","status":"in_progress","result":null},"sequence_number":1,"output_index":0}`,
				`{"type":"response.output_item.added","item":{"type":"message","role":"assistant","content":[],"status":"completed","id":"SECOND"},"sequence_number":2,"output_index":1}`,
				`{"type":"response.image_generation_call.partial_image","output_index":0,"sequence_number":3,"partial_image_index":0,"item_id":"IMAGE"}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"sequence_number":4,"content_index":0,"annotation_index":0,"item_id":"SECOND"}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"annotation_index":1,"sequence_number":5,"content_index":0,"item_id":"SECOND"}`,
				`{"type":"response.image_generation_call.partial_image","output_index":0,"sequence_number":6,"partial_image_index":1,"item_id":"IMAGE"}`,
				`{"type":"response.image_generation_call.generating","output_index":0,"sequence_number":7,"item_id":"IMAGE"}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"annotation_index":7,"sequence_number":8,"content_index":0,"item_id":"SECOND"}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"sequence_number":9,"content_index":0,"annotation_index":8,"item_id":"SECOND"}`,
				`{"type":"response.output_text.annotation.added","output_index":1,"content_index":1,"sequence_number":10,"annotation_index":0,"item_id":"SECOND"}`,
				`{"type":"response.output_text.annotation.added","output_index":2,"sequence_number":11,"content_index":0,"annotation_index":0,"item_id":"THIRD"}`,
				`{"type":"response.output_text.annotation.added","output_index":2,"sequence_number":12,"content_index":0,"annotation_index":1,"item_id":"THIRD"}`,
				`{"type":"response.output_item.done","output_index":2,"item":{"type":"message","role":"assistant","content":[],"status":"completed","id":"THIRD"},"sequence_number":13}`,
				`{"type":"response.output_text.annotation.added","output_index":3,"sequence_number":14,"content_index":0,"annotation_index":0,"item_id":"FOURTH"}`,
			},
		},
		"not OpenAI's": {
			[]string{`{"type":"engine.note", "x":1}`, `{"type":"response.output_text.delta","output_index":"0","item_id":7,"delta":"a"}`},
			[]string{
				`{"type":"engine.note", "x":1}`,
				`{"type":"response.output_text.delta","output_index":"0","item_id":"ID","delta":"a","sequence_number":1,"content_index":0,"logprobs":[]}`,
			},
		},
	} {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, store=%t", name, stored), func(t *testing.T) {
				const created = `{"type":"response.created","response":{"id":"up","status":"in_progress"}}`
				f := start(t, streamHandler(sse(append(append([]string{created}, tc.sent...), completed)...)))
				r := f.create(fmt.Sprintf(`{"input":"a","stream":true,"store":%t}`, stored))
				all := events(r.body)
				if got := all[0].get("sequence_number"); got != "0" {
					t.Errorf("response.created has the number %q, want 0", got)
				}
				id := func(number int, kind string) string {
					name := itemName{all[0].get("response.id"), number}
					if stored {
						return name.id(kind)
					}
					return name.unstoredID(kind)
				}
				var want, got []string
				for i := range tc.want {
					first := id(1, "message")
					if engine := gjson.Get(tc.sent[i], "item_id").Str; !stored && engine != "" {
						first = engine
					}
					ids := strings.NewReplacer(`"ID"`, quote(first),
						"IMAGE", id(1, "image_generation_call"), "SECOND", id(2, "message"), "THIRD", id(3, "message"), "FOURTH", id(4, "message"))
					want, got = append(want, ids.Replace(tc.want[i])), append(got, all[i+1].body)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestThinErrorEvents checks that error events have OpenAI's members.
func TestThinErrorEvents(t *testing.T) {
	for sent, want := range map[string]string{
		`{"type":"error","message":"m"}`:                                              `{"type":"error","message":"m","sequence_number":0,"code":null,"param":null}`,
		`{"type":"error", "sequence_number":7,"code":"c","message":"m","param":null}`: `{"type":"error", "sequence_number":7,"code":"c","message":"m","param":null}`,
		`{"type":"error"}`:                                       `{"type":"error","sequence_number":0,"code":null,"message":"","param":null}`,
		`{"error":{"message":"m"}}`:                              `{"error":{"message":"m"},"type":"error","sequence_number":0,"code":null,"message":"m","param":null}`,
		`{"error":{"message":"m","code":400,"param":"p"}}`:       `{"error":{"message":"m","code":400,"param":"p"},"type":"error","sequence_number":0,"code":"400","message":"m","param":"p"}`,
		`{"type":"error","error":{"message":"m","code":"c"}}`:    `{"type":"error","error":{"message":"m","code":"c"},"sequence_number":0,"code":"c","message":"m","param":null}`,
		`{"type":"error","message":"n","error":{"message":"m"}}`: `{"type":"error","message":"n","error":{"message":"m"},"sequence_number":0,"code":null,"param":null}`,
	} {
		f := start(t, streamHandler(sse(sent)))
		r := f.create(`{"input":"a","stream":true}`)
		if got := events(r.body)[0].body; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestNamedEvents checks that an event whose type is only its name gets it as a member: OpenAI's clients ignore the name.
func TestNamedEvents(t *testing.T) {
	f := start(t, streamHandler("event: response.output_text.delta\ndata: {\"delta\":\"a\"}\n\n"+sse(completed)))
	all := events(f.create(`{"input":"a","stream":true}`).body)
	id := itemName{all[1].get("response.id"), 1}.id("message")
	want := `{"delta":"a","type":"response.output_text.delta","sequence_number":0,"output_index":0,"content_index":0,"logprobs":[],"item_id":"` + id + `"}`
	if diff := cmp.Diff(want, all[0].body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
