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
	"errors"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// TestReservations: reservations count towards the share of their namespace until they are released, and none is made for a
// result that was released, because nothing would release it.
func TestReservations(t *testing.T) {
	options := DefaultOptions()
	options.InFlightBytes, options.InFlightRequests = 150, 4
	r := New(sessions.NewView(chain.DefaultMaxDepth, time.Hour), nil, nil, options)
	wantUsed := func(bytes, requests int64) {
		t.Helper()
		if r.shared.bytes.Used() != bytes || r.requests.Used() != requests {
			t.Errorf("%d bytes and %d requests in use, want %d and %d", r.shared.bytes.Used(), r.requests.Used(), bytes, requests)
		}
	}
	computed := 0
	share := func() (release func(), err error) {
		return r.Share(t.Context(), "a", Share{Bytes: 40}, func() { computed++ })
	}
	release, err := share()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := share(); !errors.Is(err, ErrBusy) || computed != 1 {
		t.Errorf("computed %d times, got %v, want once and ErrBusy", computed, err)
	}
	wantUsed(40, 1)
	holding, err := r.shared.hold("b", 0, turnOverhead, 100)
	if err != nil {
		t.Fatal(err)
	}
	result := &Result{holding: holding}
	if err := result.Reserve(20); err != nil {
		t.Fatal(err)
	}
	if err := result.Reserve(31); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	other, err := r.shared.hold("b", 0, turnOverhead, 100)
	if err != nil {
		t.Fatal(err)
	}
	another := &Result{holding: other}
	if err := another.Reserve(40); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	wantUsed(60, 1)
	release()
	result.Release()
	if err := result.Reserve(20); !errors.Is(err, ErrBusy) {
		t.Errorf("after Release: got %v, want ErrBusy", err)
	}
	wantUsed(0, 0)
}
