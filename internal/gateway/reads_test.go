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

import "testing"

// TestReadsCountAsLarge: a read counts as the last ones of its tenant have been, and at most as a part of the limit.
func TestReadsCountAsLarge(t *testing.T) {
	r := newReads(30)
	used := func(tenant string) int64 {
		t.Helper()
		end, err := r.begin(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		defer end(r.averageOf(tenant)) // the average remains
		return r.budget.Used()
	}
	reads := func(tenant string, n int, bytes int64) {
		t.Helper()
		for range n {
			end, err := r.begin(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			end(bytes)
		}
	}
	if got := used("a"); got != 1 {
		t.Errorf("the first read counts as %d, want 1", got)
	}
	reads("a", 50, 3*readUnit+readUnit/2)
	if got := used("a"); got != 4 {
		t.Errorf("a read after reads of 3.5 units counts as %d, want 4", got)
	}
	reads("a", 50, 1<<40)
	if got := used("a"); got != 10 {
		t.Errorf("a read after huge ones counts as %d, want 10", got)
	}
	if got := used("b"); got != 1 {
		t.Errorf("a read of another tenant counts as %d, want 1", got)
	}
	reads("a", 100, 1000)
	if got := used("a"); got != 1 {
		t.Errorf("a read after small ones counts as %d, want 1", got)
	}
	if used := r.budget.Used(); used != 0 {
		t.Errorf("%d are still counted", used)
	}
}
