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
		"in another order": {[]string{"2", "0", "1"}, "[{0},{1},{2}]"},
		"all the same":     {[]string{"0", "0", "0"}, "[{0},{1},{2}]"},
		"none":             {[]string{"", "", ""}, "[{0},{1},{2}]"},
		"odd":              {[]string{"9223372036854775807", `"x"`, "-1"}, "[{0},{1},{2}]"},
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
				slot, _ := p.slotOf(eventItemDone, data)
				if err := p.add(eventItemDone, data, slot, 10_000, func(int64) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, strings.ReplaceAll(p.outputList(), `"n":`, "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSlots: each event is about the right item, whatever an engine calls it.
func TestSlots(t *testing.T) {
	const delta = "response.output_text.delta"
	for name, tc := range map[string]struct {
		// events are the kind, the ID and the index of each event.
		events [][3]string
		want   []int
	}{
		"as documented": {
			[][3]string{{eventItemAdded, "a", "0"}, {delta, "a", "0"}, {eventItemDone, "a", "0"}, {eventItemAdded, "b", "1"}, {delta, "b", "1"}, {eventItemDone, "b", "1"}},
			[]int{0, 0, 0, 1, 1, 1},
		},
		"at the same time": {
			[][3]string{{eventItemAdded, "a", "0"}, {eventItemAdded, "b", "1"}, {delta, "a", "0"}, {eventItemDone, "b", "1"}, {delta, "a", "0"}, {eventItemDone, "a", "0"}, {delta, "b", "1"}},
			[]int{0, 1, 0, 1, 0, 0, 1},
		},
		"one index": {
			[][3]string{{eventItemAdded, "a", "0"}, {delta, "a", "0"}, {eventItemDone, "a", "0"}, {eventItemAdded, "b", "0"}, {delta, "b", "0"}, {eventItemDone, "b", "0"}},
			[]int{0, 0, 0, 1, 1, 1},
		},
		"a new ID in each event": {
			[][3]string{{eventItemAdded, "a", "0"}, {delta, "b", "0"}, {delta, "", "0"}, {eventItemDone, "c", "0"}, {eventItemAdded, "d", "1"}, {delta, "e", "1"}, {eventItemDone, "f", "1"}},
			[]int{0, 0, 0, 0, 1, 1, 1},
		},
		"one ID": {
			[][3]string{{eventItemAdded, "a", "0"}, {eventItemDone, "a", "0"}, {eventItemAdded, "a", "1"}, {delta, "a", "1"}, {eventItemDone, "a", "1"}},
			[]int{0, 0, 1, 1, 1},
		},
		"one ID and one index": {
			[][3]string{{eventItemDone, "a", "0"}, {eventItemDone, "a", "0"}, {delta, "a", "0"}}, []int{0, 1, 1},
		},
		"neither":             {[][3]string{{eventItemDone, "", "-1"}, {eventItemDone, "", "-1"}}, []int{0, 1}},
		"indexes from 1":      {[][3]string{{eventItemAdded, "a", "1"}, {eventItemDone, "a", "1"}, {eventItemAdded, "b", "2"}}, []int{0, 0, 1}},
		"deltas only":         {[][3]string{{delta, "a", "0"}, {delta, "a", "0"}, {eventItemDone, "a", "0"}, {delta, "b", "1"}}, []int{0, 0, 0, 1}},
		"about an older item": {[][3]string{{eventItemDone, "a", "0"}, {eventItemDone, "b", "1"}, {"engine.note", "a", "0"}}, []int{0, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var p partial
			var got []int
			for _, e := range tc.events {
				event := fmt.Sprintf(`{"output_index":%s,"item":{"id":%q}}`, e[2], e[1])
				if e[0] != eventItemAdded && e[0] != eventItemDone {
					event = fmt.Sprintf(`{"output_index":%s,"item_id":%q}`, e[2], e[1])
				}
				data, err := parseObject([]byte(event))
				if err != nil {
					t.Fatal(err)
				}
				slot, _ := p.slotOf(e[0], data)
				got = append(got, slot)
				if err := p.add(e[0], data, slot, 10_000, func(int64) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
