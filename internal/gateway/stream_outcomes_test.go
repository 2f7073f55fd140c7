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

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/store"
)

func TestStreamOutcomes(t *testing.T) {
	largeItem := `{"type":"response.output_item.done","item":{"x":"` + strings.Repeat("x", 2500) + `"}}`
	for name, tc := range map[string]struct {
		stream     string
		wantKinds  []string
		wantStatus string
		wantOutput string
		wantError  string
	}{
		"completed": {
			sse(created, completed), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"incomplete": {
			sse(created, `{"type":"response.incomplete","response":{"status":"incomplete","output":[]}}`),
			[]string{"response.created", "response.incomplete"}, "incomplete", `[]`, "",
		},
		"failed": {
			sse(`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}`),
			[]string{"response.failed"}, "failed", `[]`, "no",
		},
		"error event": {
			sse(created, itemDone, `{"type":"error","code":"bad","message":"broken"}`),
			[]string{"response.created", "response.output_item.done", "error"}, "failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "broken (bad)",
		},
		"error event with an error": {
			sse(created, `{"type":"error","error":{"code":"bad","message":"broken"}}`),
			[]string{"response.created", "error"}, "failed", `[]`, "broken (bad)",
		},
		"error without a type": {
			sse(created) + `data: {"error":{"code":400,"message":"broken"}}` + "\n\n",
			[]string{"response.created", "error"}, "failed", `[]`, "broken (400)",
		},
		"error with another event name": {
			sse(created) + "event: message\n" + `data: {"error":{"code":null,"message":"broken"}}` + "\n\n",
			[]string{"response.created", "error"}, "failed", `[]`, "broken",
		},
		"response and error": {
			sse(created) + "event: response.failed\n" + `data: {"error":{},"response":{"error":{"message":"no"}}}` + "\n\n",
			[]string{"response.created", "response.failed"}, "failed", `[]`, "no",
		},
		"another event with an error": {
			sse(created, `{"type":"engine.note","error":{"message":"not the end"}}`, completed),
			[]string{"response.created", "engine.note", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"response.failed after an error event": {
			sse(created, `{"type":"error","message":"broken"}`, completed, `{"type":"response.failed","response":{"status":"failed"}}`),
			[]string{"response.created", "error", "response.failed"}, "failed", `[]`, "broken",
		},
		"two response.failed after an error event": {
			sse(`{"type":"error","message":"broken"}`, `{"type":"response.failed","response":{}}`, `{"type":"response.failed","response":{}}`),
			[]string{"error", "response.failed"}, "failed", `[]`, "broken",
		},
		"output only in items": {
			sse(created, itemDone, `{"type":"response.completed","response":{"output":[]}}`),
			[]string{"response.created", "response.output_item.done", "response.completed"}, "completed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "",
		},
		"no final empty line": {
			strings.TrimRight(sse(created, completed), "\n"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"one final line feed": {
			strings.TrimSuffix(sse(created, completed), "\n"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"one line feed after an error event": {
			strings.TrimSuffix(sse(created, `{"type":"error","code":"bad","message":"broken"}`), "\n"),
			[]string{"response.created", "error"}, "failed", `[]`, "broken (bad)",
		},
		"one line feed after another event": {
			strings.TrimSuffix(sse(created, unknown), "\n"), []string{"response.created", "engine.note", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"one final carriage return and line feed": {
			strings.TrimSuffix(strings.ReplaceAll(sse(created, unknown), "\n", "\r\n"), "\r\n"), []string{"response.created", "engine.note", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"truncated event name": {
			sse(created) + "event: resp", []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"unnamed events": {
			"data: " + created + "\r\n\r\ndata: " + completed + "\r\n\r\n", []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"data in several lines": {
			strings.ReplaceAll(sse(created, completed), `"response":{`, "\"response\":\ndata: {\ndata: "),
			nil, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"no terminal event": {
			sse(created, itemDone), []string{"response.created", "response.output_item.done", "response.failed"},
			"failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "The upstream ended its response early. (upstream_broken)",
		},
		"[DONE] before the terminal event": {
			sse(created, itemDone) + "data: [DONE]\n\n" + sse(completed), []string{"response.created", "response.output_item.done", "response.failed"},
			"failed", `[{"type":"message","id":"msg_1","role":"assistant"}]`, "The upstream ended its response early. (upstream_broken)",
		},
		"empty stream":    {"", []string{"response.failed"}, "failed", `[]`, "The upstream ended its response early. (upstream_broken)"},
		"truncated event": {sse(created) + `data: {"type":"response.completed","resp`, []string{"response.created", "response.failed"}, "failed", `[]`, "The upstream ended its response early. (upstream_broken)"},
		"too large": {
			sse(created, `{"type":"x","x":"`+strings.Repeat("x", 5000)+`"}`, completed), []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"too many items": {
			sse(largeItem, largeItem, completed), []string{"response.output_item.done", "response.failed"},
			"failed", "[" + gjson.Get(largeItem, "item").Raw + "]", "The upstream ended its response early. (upstream_broken)",
		},
		"spaces before the data": {
			strings.ReplaceAll(sse(created, completed), "data: ", "data:  \t"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"empty data line": {
			strings.ReplaceAll(sse(created, completed), "data: ", "data\ndata: "), nil, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"carriage returns": {
			strings.ReplaceAll(sse(created, completed), "\n", "\r"), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"byte order mark": {
			"\ufeff" + sse(created, completed), []string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"events after the terminal event": {
			sse(created, completed, unknown, itemDone, completed, `{"type":"error","message":"late"}`, `{"type":"response.failed","response":{"status":"failed"}}`) + "event: x\ndata: 1\n\n",
			[]string{"response.created", "response.completed"}, "completed", `[{"type":"message","id":"msg_1"}]`, "",
		},
		"terminal event with status in_progress": {
			sse(created, `{"type":"response.completed","response":{"status":"in_progress","output":[]}}`),
			[]string{"response.created", "response.completed"}, "completed", `[]`, "",
		},
		"terminal event with status incomplete": {
			sse(created, `{"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}`),
			[]string{"response.created", "response.incomplete"}, "incomplete", `[]`, "",
		},
		"terminal event with status failed": {
			sse(created, `{"type":"response.completed","response":{"status":"failed","error":{"message":"broken"},"output":[]}}`),
			[]string{"response.created", "response.failed"}, "failed", `[]`, "broken",
		},
		"unnamed terminal event with status cancelled": {
			sse(created) + "event: response.completed\ndata: {\"response\":{\"status\":\"cancelled\",\"output\":[]}}\n\n",
			[]string{"response.created", "response.failed"}, "failed", `[]`, "",
		},
		"items without indexes": {
			sse(`{"type":"response.output_item.done","item":{"id":"a"}}`, `{"type":"response.output_item.done","item":{"id":"b"}}`, `{"type":"response.completed","response":{}}`),
			[]string{"response.output_item.done", "response.output_item.done", "response.completed"}, "completed", `[{"id":"a"},{"id":"b"}]`, "",
		},
		"terminal event without an object": {
			sse(created) + "event: response.completed\ndata: []\n\n", []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
		"terminal event without a response": {
			sse(created, `{"type":"response.completed"}`), []string{"response.created", "response.failed"},
			"failed", `[]`, "The upstream ended its response early. (upstream_broken)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, streamHandler(tc.stream), func(o *Options) { o.MaxResponseBytes = 4000 })
			var saved []*store.Session
			f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
				saved = append(saved, session)
				return next()
			}
			r := f.create(`{"input":"a","stream":true,"model":"m"}`)
			if diff := cmp.Diff(tc.wantKinds, kinds(r.body)); diff != "" && tc.wantKinds != nil {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if whole := strings.Count(r.body, "\n\n"); whole != len(tc.wantKinds) && tc.wantKinds != nil {
				t.Errorf("%d events, want %d:\n%s", whole, len(tc.wantKinds), r.body)
			}
			if len(saved) != 1 {
				t.Fatalf("%d turns saved, want one", len(saved))
			}
			session := saved[0]
			if session.Status != tc.wantStatus || gjson.GetBytes(session.Response, "status").Str != tc.wantStatus {
				t.Errorf("status %q, want %q: %s", session.Status, tc.wantStatus, session.Response)
			}
			if got := gjson.GetBytes(session.Response, "output").Raw; got != tc.wantOutput {
				t.Errorf("output %s, want %s", got, tc.wantOutput)
			}
			if got := gjson.GetBytes(session.Response, "error.message").Str; got != tc.wantError {
				t.Errorf("error %q, want %q", got, tc.wantError)
			}
			after := f.do(http.MethodPost, "/v1/responses", fmt.Sprintf(`{"previous_response_id":%q,"stream":true}`, session.ResponseID))
			if usable := after.status == http.StatusOK; usable != (tc.wantStatus == store.StatusCompleted || tc.wantStatus == store.StatusIncomplete) {
				t.Errorf("a follow-up got %d %s", after.status, after.body)
			}
		})
	}
}
