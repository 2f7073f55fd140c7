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

package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testPing: a store can be used, with and without turns, until it is closed.
func testPing(t *testing.T, s *suite) {
	st := s.newStore(t)
	for range 2 {
		if err := st.Ping(t.Context()); err != nil {
			t.Errorf("Unexpected error: %v", err)
		}
		save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Ping(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Unexpected error: want context.Canceled, got %v", err)
	}
	owner := s.open(t)
	if err := owner.Close(); err != nil {
		t.Fatalf("Unable to close the store: %v", err)
	}
	if err := owner.Ping(t.Context()); err == nil {
		t.Error("A closed store can be used")
	}
}
