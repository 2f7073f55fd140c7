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

package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewWindow(t *testing.T) {
	for name, tc := range map[string]struct {
		count, limit, after int
		descending          bool
		want                Window
	}{
		"empty":                 {0, 2, -1, false, Window{0, 0, false}},
		"first page":            {5, 2, -1, false, Window{0, 2, true}},
		"next page":             {5, 2, 1, false, Window{2, 4, true}},
		"last page":             {5, 2, 3, false, Window{4, 5, false}},
		"full last page":        {4, 2, 1, false, Window{2, 4, false}},
		"after the last":        {5, 2, 4, false, Window{5, 5, false}},
		"empty, newest first":   {0, 2, -1, true, Window{0, 0, false}},
		"first, newest first":   {5, 2, -1, true, Window{3, 5, true}},
		"next, newest first":    {5, 2, 3, true, Window{1, 3, true}},
		"last, newest first":    {5, 2, 1, true, Window{0, 1, false}},
		"after the first entry": {5, 2, 0, true, Window{0, 0, false}},
		"all":                   {5, 9, -1, true, Window{0, 5, false}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, NewWindow(tc.count, tc.limit, tc.after, tc.descending)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
