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

package resolve

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/store/driver"
)

// TestHiddenItemsWithin: a result keeps the hidden items of its turns, in their order, and no others.
func TestHiddenItemsWithin(t *testing.T) {
	hidden := func(items ...driver.HiddenItem) *Conversation { return &Conversation{ID: "conv_1", Hidden: items} }
	path := []*sessions.Record{{Turn: chain.Turn{ID: "a"}}, {Turn: chain.Turn{ID: "b"}}}
	tests := map[string]struct{ of, want *Conversation }{
		"no conversation": {nil, nil},
		"none":            {hidden(), hidden()},
		"of other turns":  {hidden(driver.HiddenItem{ResponseID: "c"}, driver.HiddenItem{ResponseID: "", Number: 1}), hidden()},
		"of these turns":  {hidden(driver.HiddenItem{ResponseID: "b", Number: 2}, driver.HiddenItem{ResponseID: "a"}), hidden(driver.HiddenItem{ResponseID: "b", Number: 2}, driver.HiddenItem{ResponseID: "a"})},
		"of both":         {hidden(driver.HiddenItem{ResponseID: "c"}, driver.HiddenItem{ResponseID: "a", Number: 1}, driver.HiddenItem{ResponseID: "a", Number: 1}), hidden(driver.HiddenItem{ResponseID: "a", Number: 1}, driver.HiddenItem{ResponseID: "a", Number: 1})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.of.within(path), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
