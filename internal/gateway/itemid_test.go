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
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestItemIDs: the name of an item can be read from its ID, whatever the response ID is, and an ID that can be read is of this form.
func TestItemIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		responseID := rapid.OneOf(
			rapid.StringMatching(`resp_[0-9a-f]{32}`), rapid.StringMatching(`(resp_)?~*[a-z_~]{1,8}`), rapid.StringN(1, 40, -1),
		).Draw(t, "responseID")
		name := itemName{responseID, rapid.IntRange(0, maxItemNumber-1).Draw(t, "number")}
		id := name.id(rapid.SampledFrom([]string{"message", "function_call", "unknown", ""}).Draw(t, "type"))
		if got, ok := parseItemID(id); !ok || got != name {
			t.Errorf("%q is the item %+v, %t, want %+v", id, got, ok, name)
		}
	})
}

func FuzzParseItemID(f *testing.F) {
	for _, id := range []string{"msg_0123456789abcdef0123456789abcdef_0", "fc_~a_b_12", "msg_~_1", "_a_1", "msg_a_01", "msg_a_-1", "msg__1", "msg_67ccd2bf17f08190", "x"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		name, ok := parseItemID(id)
		if !ok {
			return
		}
		if again, ok := parseItemID(name.id("message")); !ok || again != name {
			t.Errorf("%q is the item %+v, but its ID %q is %+v", id, name, name.id("message"), again)
		}
		if strings.Count(id, "_") < 2 {
			t.Errorf("%q is read as an ID of the gateway", id)
		}
	})
}
