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
)

func TestPartialOutput(t *testing.T) {
	for name, tc := range map[string]struct {
		indexes []string // of the items 0, 1, …; empty if the engine leaves it out
		want    string
	}{
		"in order":         {[]string{"0", "1", "2"}, "[{0},{1},{2}]"},
		"in another order": {[]string{"2", "0", "1"}, "[{1},{2},{0}]"},
		"all the same":     {[]string{"0", "0", "0"}, "[{0},{1},{2}]"},
		"none":             {[]string{"", "", ""}, "[{0},{1},{2}]"},
		"some":             {[]string{"1", "", "0"}, "[{2},{0},{1}]"},
		"odd":              {[]string{"9223372036854775807", `"x"`, "-1"}, "[{2},{0},{1}]"},
	} {
		t.Run(name, func(t *testing.T) {
			var p partial
			for i, index := range tc.indexes {
				event := fmt.Sprintf(`{"item":{"n":%d}}`, i)
				if index != "" {
					event = fmt.Sprintf(`{"output_index":%s,"item":{"n":%d}}`, index, i)
				}
				data, err := parseObject([]byte(event))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.add("response.output_item.done", data, 1000, func(int64) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(p.outputList(), `"n":`, "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
