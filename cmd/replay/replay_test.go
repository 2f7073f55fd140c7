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

package main

import (
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/jsonvalue"
	"github.com/catena-dev/catena/internal/recorded"
)

func TestExpectedItems(t *testing.T) {
	const question = `{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}`
	cases := map[string]struct{ request, response, want string }{
		"nothing":               {request: `{}`, response: `{}`, want: `[]`},
		"nulls":                 {request: `{"instructions":null,"input":null}`, response: `{"output":null}`, want: `[]`},
		"empty":                 {request: `{"instructions":"","input":""}`, response: `{"output":[]}`, want: `[]`},
		"string":                {request: `{"input":"Hi"}`, response: `{"output":[{"a":1}]}`, want: `[` + question + `,{"a":1}]`},
		"list":                  {request: `{"input":[{"b":2},{"c":3}]}`, response: `{"output":[{"a":1}]}`, want: `[{"b":2},{"c":3},{"a":1}]`},
		"instructions":          {request: `{"instructions":"Be\nkind","input":"Hi"}`, response: `{}`, want: `[{"type":"message","role":"system","content":[{"type":"input_text","text":"Be\nkind"}]},` + question + `]`},
		"other members ignored": {request: `{"tools":[{}]}`, response: `{"output_text":"Hi","usage":{}}`, want: `[]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			items, err := expectedItems(&recorded.Turn{Request: []byte(tc.request), Response: []byte(tc.response)})
			if err != nil {
				t.Fatal(err)
			}
			want, err := jsonvalue.Decode([]byte(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if d := jsonvalue.Difference("items", want, append([]any{}, items...)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestQuantiles(t *testing.T) {
	durations := []time.Duration{}
	if got := quantiles(durations); got != "none" {
		t.Errorf("got %q, want none", got)
	}
	for i := range 101 {
		durations = append(durations, time.Duration(100-i)*time.Millisecond)
	}
	if got, want := quantiles(durations), "p50 50ms, p99 99ms, max 100ms"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
