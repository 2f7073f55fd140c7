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

package resolveapi

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

func TestItemCells(t *testing.T) {
	tests := map[string]struct {
		item string
		want []any
	}{
		"message with parts": {
			item: `{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"},{"type":"input_image","image_url":"data:"},{"type":"input_text","text":"there"}]}`,
			want: []any{"message", "user", "Hello there"},
		},
		"short message": {
			item: `{"role":"assistant","content":"Good\n\n  morning\t!"}`,
			want: []any{"message", "assistant", "Good morning !"},
		},
		"refusal": {
			item: `{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I would rather not"}]}`,
			want: []any{"message", "assistant", "I would rather not"},
		},
		"function call": {
			item: `{"type":"function_call","name":"get_weather","arguments":"{\"city\":\"Oslo\"}"}`,
			want: []any{"function_call", "", `get_weather({"city":"Oslo"})`},
		},
		"custom tool call": {
			item: `{"type":"custom_tool_call","name":"sql","input":"select 1"}`,
			want: []any{"custom_tool_call", "", "sql(select 1)"},
		},
		"function call output": {
			item: `{"type":"function_call_output","call_id":"1","output":"12 degrees"}`,
			want: []any{"function_call_output", "", "12 degrees"},
		},
		"output with parts": {
			item: `{"type":"function_call_output","output":[{"type":"input_text","text":"12 degrees"}]}`,
			want: []any{"function_call_output", "", "12 degrees"},
		},
		"call with parts": {
			item: `{"type":"custom_tool_call","name":"run","input":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}`,
			want: []any{"custom_tool_call", "", "run(a b)"},
		},
		"reasoning": {
			item: `{"type":"reasoning","summary":[{"type":"summary_text","text":"Thinking"}]}`,
			want: []any{"reasoning", "", "Thinking"},
		},
		"unknown": {
			item: `{"type":"web_search_call","action":{"query":"x"}}`,
			want: []any{"web_search_call", "", ""},
		},
		"fields of other types": {
			item: `{"type":1,"role":[],"name":{},"content":{"text":"x"},"output":[1]}`,
			want: []any{"", "", ""},
		},
		"terminal control characters": {
			item: `{"type":"message\u001b[31m","role":"us\u0000er","content":"a\u001b]0;x\u0007b\u202ec\u200b\ufffdd"}`,
			want: []any{"message[31m", "user", "a]0;xbcd"},
		},
		"not JSON": {item: `{`, want: []any{"", "", ""}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, itemCells([]byte(tc.item))); diff != "" {
				t.Errorf("Unexpected cells (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestLargeItemCells: the texts of a large item are not decoded as a whole.
func TestLargeItemCells(t *testing.T) {
	text := `"` + strings.Repeat(`a\n`, 1<<20) + `"`
	for name, item := range map[string]string{
		"text":           `{"type":"message","role":"user","content":` + text + `}`,
		"part":           `{"type":"message","role":"user","content":[{"type":"input_text","text":` + text + `}]}`,
		"many parts":     `{"type":"message","role":"user","content":[` + strings.Repeat(`{"text":"a\n"},`, 1<<17) + `{}]}`,
		"type and role":  `{"type":` + text + `,"role":` + text + `}`,
		"arguments":      `{"type":"function_call","name":` + text + `,"arguments":` + text + `}`,
		"nested content": `{"content":` + strings.Repeat(`[{"text":`, 1<<17) + `""` + strings.Repeat(`}]`, 1<<17) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			raw := []byte(item)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			itemCells(raw)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
				t.Errorf("allocated %d bytes for an item of %d", got, len(raw))
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	tests := map[string]struct {
		text string
		want string
	}{
		"empty":           {},
		"only spaces":     {text: " \n\t\u00a0 "},
		"at the limit":    {text: "12345678", want: "12345678"},
		"above the limit": {text: "123456789", want: "1234567…"},
		"wide":            {text: strings.Repeat("日本", 5), want: "日本日本日本日…"},
		"cut at a space":  {text: "123456 89", want: "123456…"},
		"trailing spaces": {text: "12345678  \n", want: "12345678"},
		"invalid UTF-8":   {text: "a\xff\xfeb", want: "ab"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := oneLine(tc.text, 8); got != tc.want {
				t.Errorf("Unexpected line: want %q, got %q", tc.want, got)
			}
		})
	}
}

func TestConvertToTable(t *testing.T) {
	history := makeHistory(
		testutil.FlattenTurn(t, "be brief", `{"role":"user","content":"hi"}`),
		testutil.FlattenTurn(t, "", `{"role":"user","content":"again"}`),
	)
	brief := []any{int64(0), "resp_1", "message", "system", "be brief"}
	hi := []any{int64(1), "resp_1", "message", "user", "hi"}
	again := []any{int64(2), "resp_2", "message", "user", "again"}
	tests := map[string]struct {
		options   driver.ResolveOptions
		noHeaders bool
		want      [][]any
	}{
		"everything":            {want: [][]any{brief, hi, again}},
		"newest first":          {options: driver.ResolveOptions{Order: "desc"}, want: [][]any{again, hi, brief}},
		"a page, newest first":  {options: driver.ResolveOptions{Order: "desc", Limit: 2}, want: [][]any{again, hi}},
		"a page, no headers":    {options: driver.ResolveOptions{Limit: 1}, noHeaders: true, want: [][]any{brief}},
		"without instructions ": {options: driver.ResolveOptions{Instructions: "Omit"}, want: [][]any{{int64(0), "resp_1", "message", "user", "hi"}, {int64(1), "resp_2", "message", "user", "again"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := makeAnswer(t, history, tc.options)
			table, err := tableConvertor{}.ConvertToTable(t.Context(), a, &metav1.TableOptions{NoHeaders: tc.noHeaders})
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			var got [][]any
			for _, row := range table.Rows {
				got = append(got, row.Cells)
				if diff := cmp.Diff(a.object, row.Object.Object); diff != "" {
					t.Errorf("Unexpected object (-want,+got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Unexpected rows (-want,+got):\n%s", diff)
			}
			if headers := len(table.ColumnDefinitions) > 0; headers == tc.noHeaders {
				t.Errorf("Unexpected headers: want %v, got %v", !tc.noHeaders, headers)
			}
		})
	}
}
