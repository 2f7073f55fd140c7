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

package controllers

import (
	"testing"

	"github.com/catena-dev/catena/internal/operator/conversations"
)

// TestLineageOf: a revision says which turns have been added up, unless the hidden items are others now, or it is that of another build.
func TestLineageOf(t *testing.T) {
	const lineage, hidden = 0x1234567890abcdef, 0xfedcba0987654321
	revision := func(hidden uint64) string { return historyRevision(&conversations.Record{Hidden: hidden}, lineage) }
	tests := map[string]struct {
		revision string
		hidden   uint64
		want     bool
	}{
		"nothing hidden":      {revision(0), 0, true},
		"hidden items":        {revision(hidden), hidden, true},
		"an item is hidden":   {revision(0), hidden, false},
		"none is hidden now":  {revision(hidden), 0, false},
		"none":                {"", 0, false},
		"of an earlier build": {"AAAAAAAAAAAAAAAAAAAAAA", 0, false},
		"no preview":          {withoutPreview, 0, false},
		"not base64":          {"?", 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lineageOf(&conversations.Record{Hidden: tc.hidden}, tc.revision); (got == lineage) != tc.want {
				t.Errorf("got the lineage %x of %q", got, tc.revision)
			}
		})
	}
}
