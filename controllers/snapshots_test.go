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

package controllers_test

import (
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/catena-dev/catena/controllers"
)

// TestWaits: a session whose namespace uses its share of the workers waits twice as long each time, so that 100,000 of them do not
// occupy the workers with their retries.
func TestWaits(t *testing.T) {
	tests := map[string]struct {
		before int // how often it has waited already
		want   time.Duration
	}{
		"first":  {0, 50 * time.Millisecond},
		"second": {1, 100 * time.Millisecond},
		"third":  {2, 200 * time.Millisecond},
		"ninth":  {8, 12800 * time.Millisecond},
		"tenth":  {9, 15 * time.Second},
		"always": {math.MaxUint16, 15 * time.Second},
	}
	request := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			waits := controllers.NewWaits()
			for range tc.before {
				waits.When(request("a"))
			}
			if got := waits.When(request("a")); got != tc.want {
				t.Errorf("got a delay of %s, want %s", got, tc.want)
			}
			if got := waits.When(request("b")); got != tests["first"].want {
				t.Errorf("got a delay of %s for another session", got)
			}
			waits.Forget(request("a"))
			if got := waits.When(request("a")); got != tests["first"].want {
				t.Errorf("got a delay of %s after the snapshot was read", got)
			}
		})
	}
}
