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

package chain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/chain"
)

func TestFigures(t *testing.T) {
	tests := map[string]struct {
		request, response string
		want              chain.Figures
	}{
		"nothing":             {},
		"model of the engine": {`{"model":"m"}`, `{"model":"m-2026"}`, chain.Figures{Model: "m-2026"}},
		"model of the client": {`{"model":"m"}`, `{"model":null}`, chain.Figures{Model: "m"}},
		"no model":            {`{"model":["m"]}`, `{"model":{"a":1}}`, chain.Figures{}},
		"long model":          {`{"model":"` + strings.Repeat("é", 300) + `"}`, ``, chain.Figures{Model: strings.Repeat("é", 256)}},
		"escapes":             {`{"model":"\u00e9\"\ud800"}`, ``, chain.Figures{Model: "é\"\uFFFD"}},
		"usage": {
			``, `{"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5,"output_tokens_details":{"input_tokens":9}}}`,
			chain.Figures{Usage: chain.Usage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5}},
		},
		"no numbers of tokens": {``, `{"usage":{"input_tokens":-3,"output_tokens":"2","total_tokens":1e300}}`, chain.Figures{}},
		"no usage":             {``, `{"usage":[3]}`, chain.Figures{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			items, err := chain.Flatten([]byte(tc.request), []byte(tc.response))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, items.Figures); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUserText(t *testing.T) {
	tests := map[string]struct{ input, want string }{
		"none":           {`[]`, ""},
		"text":           {`"Hello 🙂 you"`, "Hello 🙂 "},
		"short text":     {`"Hello"`, "Hello"},
		"first of two":   {`[{"role":"user","content":"a"},{"role":"user","content":"b"}]`, "a"},
		"other roles":    {`[{"role":"developer","content":"a"},{"type":"message","role":"user","content":[{"type":"input_text","text":"b"}]}]`, "b"},
		"other items":    {`[{"type":"note","role":"user","content":"a"},{"type":"reasoning"}]`, ""},
		"image first":    {`[{"role":"user","content":[{"type":"input_image"},{"type":"input_text","text":"b"}]}]`, "b"},
		"no text":        {`[{"role":"user","content":[{"text":1},7,"x"]},{"role":"user","content":{"text":"x"}},{"role":"user","content":"c"}]`, "c"},
		"hundredth part": {`[{"role":"user","content":[` + strings.Repeat(`{},`, 99) + `{"text":"a"}]}]`, "a"},
		"later part":     {`[{"role":"user","content":[` + strings.Repeat(`{},`, 100) + `{"text":"a"}]}]`, ""},
		"escapes":        {`"` + strings.Repeat(`\ud83d\ude00`, 100_000) + `"`, strings.Repeat("😀", 8)},
		"escaped member": {`[{"r\u006fle":"user","content":"a\nb"}]`, "a\nb"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			items, err := chain.Flatten([]byte(`{"input":`+tc.input+`}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := items.UserText(8, func(int) bool { return false }); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
