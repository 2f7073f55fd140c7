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
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/store"
)

func testConversationSummaries(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	create(t, c, &store.Conversation{ConversationID: "conv_2"})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	given := []store.Summary{
		{StartTurn: 10, EndTurn: 20, Content: "later", TokenCount: 3, CreatedAt: at.Add(time.Millisecond)},
		{StartTurn: 0, EndTurn: 10, Content: "first \u2028 é", CreatedAt: at},
		{StartTurn: 0, EndTurn: 5, Content: "part of the first"},
		{StartTurn: 0, EndTurn: 10, Content: "first \u2028 é", CreatedAt: at}, // again
		{StartTurn: 9, EndTurn: 10, Content: "single"},
	}
	for _, summary := range given {
		if err := c.SaveSummary(t.Context(), "conv_1", summary); err != nil {
			t.Fatalf("Unable to save %+v: %v", summary, err)
		}
	}
	later := given[0]
	later.CreatedAt = at
	got, err := c.Summaries(t.Context(), "conv_1")
	if diff := cmp.Diff([]store.Summary{given[2], given[1], given[4], later}, got); diff != "" || err != nil {
		t.Errorf("Unexpected summaries, error %v (-want,+got):\n%s", err, diff)
	}
	appendTurns(t, c, "conv_1", "resp_1")
	if _, err := c.Rollback(t.Context(), "conv_1", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Summaries(t.Context(), "conv_1"); len(got) != 4 {
		t.Errorf("%d summaries are left after a rollback, error %v", len(got), err)
	}
	wantError(t, c.SaveSummary(t.Context(), "conv_1", store.Summary{EndTurn: 10, Content: "other"}), &store.Error{Code: store.CodeConflict})
	for name, summary := range map[string]store.Summary{
		"empty": {EndTurn: 1}, "no turns": {StartTurn: 1, EndTurn: 1, Content: "x"}, "negative": {StartTurn: -1, EndTurn: 1, Content: "x"},
		"long": {EndTurn: 1, Content: strings.Repeat("é", 65_537)}, "negative tokens": {EndTurn: 1, Content: "x", TokenCount: -1},
	} {
		if err := c.SaveSummary(t.Context(), "conv_1", summary); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if got, err := c.Summaries(t.Context(), "conv_2"); err != nil || len(got) > 0 {
		t.Errorf("another conversation has summaries %v, %v", got, err)
	}
}

// testTooManySummaries: the number of summaries is limited, also if several writers save them at once.
func testTooManySummaries(t *testing.T, s *suite) {
	_, c := newConversation(t, s)
	summary := func(n int) store.Summary { return store.Summary{StartTurn: n, EndTurn: n + 1, Content: "x"} }
	var refused atomic.Int32
	var writers errgroup.Group
	writers.SetLimit(8)
	for n := range store.MaxSummaries + 8 {
		writers.Go(func() error {
			err := c.SaveSummary(t.Context(), "conv_1", summary(n))
			if errors.Is(err, store.ErrConversationLimitExceeded) {
				refused.Add(1)
				return nil
			}
			return err
		})
	}
	if err := writers.Wait(); err != nil || refused.Load() != 8 {
		t.Fatalf("refused %d summaries, want 8; error %v", refused.Load(), err)
	}
	all, err := c.Summaries(t.Context(), "conv_1")
	if err != nil || len(all) != store.MaxSummaries {
		t.Fatalf("got %d summaries, %v; want %d", len(all), err, store.MaxSummaries)
	}
	if err := c.SaveSummary(t.Context(), "conv_1", all[0]); err != nil {
		t.Errorf("a summary that is stored: %v", err)
	}
	other := all[0]
	other.Content = "other"
	wantError(t, c.SaveSummary(t.Context(), "conv_1", other), &store.Error{Code: store.CodeConflict})
}
