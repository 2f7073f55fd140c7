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
	"runtime"
	"strings"
	"testing"

	"github.com/catena-dev/catena/internal/jsonvalue"
)

// TestPrependedItems: the items of remembered turns are put before those of a message, which takes little more memory than they do together,
// however many items there are.
func TestPrependedItems(t *testing.T) {
	many := "[" + strings.Repeat("{},", 1<<20) + "{}]"
	for name, tc := range map[string]struct{ input, want string }{
		"text":       {`"b"`, `[{"a":1},{"type":"message","role":"user","content":[{"type":"input_text","text":"b"}]}]`},
		"empty text": {`""`, `[{"a":1}]`},
		"null":       {"null", `[{"a":1}]`},
		"no items":   {"[ ]", `[{"a":1}]`},
		"some items": {`[ {"b":2} , {"c":3} ]`, `[{"a":1},{"b":2} , {"c":3}]`},
		"many items": {many, `[{"a":1},` + many[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parseObject(jsonvalue.Bytes(`{"input":` + tc.input + `}`))
			if err != nil {
				t.Fatal(err)
			}
			turn := &socketTurn{parent: &rememberedTurn{own: `{"a":1}`, count: 1}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = turn.prepend(o)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.raw("input"); got != tc.want {
				t.Errorf("got the input %.200s, want %.200s", got, tc.want)
			}
			if allocated, limit := after.TotalAlloc-before.TotalAlloc, uint64(3*len(many)); allocated > limit {
				t.Errorf("allocated %d bytes, want at most %d", allocated, limit)
			}
		})
	}
}
