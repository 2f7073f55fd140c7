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

package requestid

import (
	"strings"
	"testing"
)

func TestFromContext(t *testing.T) {
	outer := NewContext(t.Context(), "outer")
	for id, want := range map[string]string{
		"req_0123": "req_0123", "A.b-c_9": "A.b-c_9", strings.Repeat("a", 64): strings.Repeat("a", 64),
		"": "outer", strings.Repeat("a", 65): "outer", "a b": "outer", "a\nb": "outer", "a\n": "outer", `"`: "outer", "é": "outer",
	} {
		if got := FromContext(NewContext(outer, id)); got != want {
			t.Errorf("the context with ID %q has %q, want %q", id, got, want)
		}
	}
	if got := FromContext(t.Context()); got != "" {
		t.Errorf("a context without an ID has %q", got)
	}
}
