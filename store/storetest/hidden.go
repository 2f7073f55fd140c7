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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/store"
)

func testConversationHide(t *testing.T, s *suite) {
	st, c := newConversation(t, s)
	appendTurns(t, c, "conv_1", "resp_1", "resp_2", "resp_3")
	hide := func(id string, number int) {
		t.Helper()
		if _, err := c.HideItem(t.Context(), "conv_1", id, number); err != nil {
			t.Fatalf("Unable to hide item %d of %q: %v", number, id, err)
		}
	}
	hide("resp_2", 0)
	hide("resp_3", 1)
	hide("resp_2", 0)
	if got := getConversation(t, c, "conv_1").HiddenItems; len(got) != 2 {
		t.Errorf("Unexpected hidden items: %v", got)
	}
	want := []string{"user: question of resp_1", "assistant: answer of resp_1", "assistant: answer of resp_2", "user: question of resp_3"}
	origins := []store.Origin{{ResponseID: "resp_1", First: 0, Count: 2}, {ResponseID: "resp_2", First: 1, Count: 1}, {ResponseID: "resp_3", First: 0, Count: 1}}
	for _, order := range []string{store.OrderAscending, store.OrderDescending} {
		for limit := range 4 {
			options := store.ResolveOptions{Order: order, Limit: limit, Origins: true}
			var got []string
			var gotOrigins []store.Origin
			for {
				history, err := c.Load(t.Context(), "conv_1", options)
				if err != nil {
					t.Fatal(err)
				}
				got, gotOrigins = append(got, textsOf(t, history)...), append(gotOrigins, history.Origins...)
				if options.After = history.Next; options.After == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, limit %d: unexpected items (-want,+got):\n%s", order, limit, diff)
			}
			if diff := cmp.Diff(origins, gotOrigins); limit == 0 && diff != "" {
				t.Errorf("%s: unexpected origins (-want,+got):\n%s", order, diff)
			}
		}
		slices.Reverse(want)
		slices.Reverse(origins)
		origins[2] = store.Origin{ResponseID: "resp_1", First: 1, Count: 2}
	}
	for id, number := range map[string]int{"resp_1": 2, "resp_2": -1, "resp_missing": 0} {
		_, err := c.HideItem(t.Context(), "conv_1", id, number)
		wantError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: id})
	}
	if _, err := c.Fork(t.Context(), "conv_1", "conv_2", store.ForkOptions{ResponseID: "resp_2"}); err != nil {
		t.Fatal(err)
	}
	history, err := c.Load(t.Context(), "conv_2", store.ResolveOptions{})
	if err != nil || len(history.Items) != 3 || history.Origins != nil {
		t.Errorf("Unexpected history of the fork: %d items, origins %v, %v", len(history.Items), history.Origins, err)
	}
	if got := len(resolve(t, st, "resp_3", store.ResolveOptions{}).Items); got != 6 {
		t.Errorf("items are hidden from the turns: got %d, want 6", got)
	}
	full := make([]store.HiddenItem, store.MaxHiddenItems)
	for i := range full {
		full[i] = store.HiddenItem{ResponseID: "resp_x", Number: i}
	}
	create(t, c, &store.Conversation{ConversationID: "conv_3", Head: store.Head{ResponseID: "resp_1"}, HiddenItems: full})
	_, err = c.HideItem(t.Context(), "conv_3", "resp_1", 0)
	wantError(t, err, &store.Error{Code: store.CodeConversationLimitExceeded})
	if got := getConversation(t, c, "conv_3").HiddenItems; !slices.Equal(got, full) {
		t.Errorf("got %d hidden items, want %d", len(got), len(full))
	}
}
