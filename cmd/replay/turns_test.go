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

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/recorded"
	"github.com/catena-dev/catena/store"
)

func TestIdentities(t *testing.T) {
	ids := &identities{run: "run", used: map[string]bool{}}
	var got []string
	for i, id := range []string{"resp_a", "resp_b", "resp_a", "", "", "resp_a"} {
		got = append(got, ids.choose(id, i+1))
	}
	want := []string{"resp_a", "resp_b", "resp_a_run_3", "resp_run_4", "resp_run_5", "resp_a_run_6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := newIdentities().run; got == newIdentities().run || got != strings.ToLower(got) {
		t.Errorf("run is %q, want a unique lower-case name", got)
	}
}

func TestSession(t *testing.T) {
	turn := &recorded.Turn{
		Request:  []byte(`{"model":"m","previous_response_id":"resp_recorded"}`),
		Response: []byte(`{"id":"resp_a","status":"queued","created_at":1778276251,"completed_at":null}`),
	}
	got, err := sessionOf(turn, "resp_b", "resp_a")
	if err != nil {
		t.Fatal(err)
	}
	want := &store.Session{
		ResponseID: "resp_b", PreviousResponseID: "resp_a", Status: store.StatusQueued,
		CreatedAt: time.Unix(1778276251, 0), Request: turn.Request, Response: turn.Response,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := recordedID(turn); got != "resp_a" {
		t.Errorf("got ID %q, want resp_a", got)
	}
	turn.Response = []byte(`{"id":5}`)
	if got, err := sessionOf(turn, "resp_b", ""); err != nil || got.Status != store.StatusCompleted || recordedID(turn) != "" {
		t.Errorf("got %+v and error %v, want a completed session without a recorded ID", got, err)
	}
}
