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

package driver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store/driver"
)

// TestTypedAccess: the methods read the same members of the bodies as a history does.
func TestTypedAccess(t *testing.T) {
	type values struct {
		Model, Instructions, Input, Tools, OutputText string
		Output                                        int
		Usage                                         driver.Usage
	}
	for name, tc := range map[string]struct {
		request, response string
		want              values
	}{
		"all": {
			`{"model":"m","instructions":"be kind","input":[{"role":"user"}],"tools":[]}`,
			`{"output":[{"type":"reasoning"},{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal"},{"type":"output_text","text":"b"}]},` +
				`{"type":"message","content":[{"type":"output_text","text":"c"}]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}`,
			values{"m", "be kind", `[{"role":"user"}]`, "[]", "abc", 3, driver.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}},
		},
		"nothing": {"", "", values{}},
		"nulls":   {`{"model":null,"input":null}`, `{"output":null,"usage":null}`, values{}},
		"duplicate keys": {
			`{"model":"a","input":"first","model":"b","input":"second"}`,
			`{"output":[{}],"output":[{"type":"message","content":[{"type":"output_text","text":"last"}]}]}`,
			values{Model: "b", Input: `"second"`, OutputText: "last", Output: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &driver.Session{Request: []byte(tc.request), Response: []byte(tc.response)}
			got := values{s.Model(), s.Instructions(), string(s.Input()), string(s.Tools()), s.OutputText(), len(s.Output()), s.Usage()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTypedAccessToNoJSON: the methods tolerate a body that cannot be saved.
func TestTypedAccessToNoJSON(t *testing.T) {
	for _, body := range []string{strings.Repeat("[", 16<<20), strings.Repeat(`{"output":`, 1<<20), strings.Repeat(`{"output":[`, 1<<20), `{"output`} {
		s := &driver.Session{Request: []byte(body), Response: []byte(body)}
		if text := s.OutputText() + s.Model(); text != "" {
			t.Errorf("%.20s has the text %q", body, text)
		}
	}
}
