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
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// parseTurn returns testturn.Make's turn for "id", "id<parent", "id:status" or "id<parent:status".
func parseTurn(s string) *store.Session {
	s, status, ok := strings.Cut(s, ":")
	if !ok {
		status = store.StatusCompleted
	}
	id, previous, _ := strings.Cut(s, "<")
	turn := testturn.Make(id, previous)
	turn.Status = status
	return turn
}

func saveTurns(t *testing.T, s *store.Store, turns []string) {
	t.Helper()
	for _, turn := range turns {
		save(t, s, parseTurn(turn), store.SaveOptions{})
	}
}

// wantHistory checks the history of the turn id, which consists of testturn.Make's turns.
func wantHistory(t *testing.T, h *store.History, id string, turns ...string) {
	t.Helper()
	if h.Parent.ResponseID != id || (h.Parent.UID == "") != (id == "") {
		t.Errorf("Unexpected parent of the history of %q: %+v", id, h.Parent)
	}
	if diff := cmp.Diff(turns, h.Turns, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Unexpected turns of the history of %q (-want,+got):\n%s", id, diff)
	}
	if diff := cmp.Diff(texts(turns...), textsOf(t, h)); diff != "" {
		t.Errorf("Unexpected items of the history of %q (-want,+got):\n%s", id, diff)
	}
	if h.Next != "" {
		t.Errorf("Unexpected next page after the whole history of %q: %q", id, h.Next)
	}
}

// testWalk: the names of the cases begin with the statement that they check.
func testWalk(t *testing.T, s *suite) {
	failure := func(code store.Code, id, asked string) *store.Error {
		return &store.Error{Code: code, ResponseID: id, PreviousResponseID: asked}
	}
	retryable := func(e *store.Error) *store.Error {
		e.Retryable = true
		return e
	}
	row, cycle := []string{"a", "b<a", "c<b"}, []string{"a<b", "b<a"}
	tests := map[string]struct {
		turns                                 []string
		id                                    string
		maxDepth                              int // -1 means DefaultMaxDepth
		continueIncomplete, includeIncomplete bool
		want                                  []string
		wantErr                               *store.Error
	}{
		"G1 oldest first":             {turns: row, id: "c", maxDepth: -1, want: []string{"a", "b", "c"}},
		"G1 from the middle":          {turns: row, id: "b", maxDepth: -1, want: []string{"a", "b"}},
		"G3 depth equal to the limit": {turns: row, id: "c", maxDepth: 3, want: []string{"a", "b", "c"}},
		"G3 depth above the limit":    {turns: row, id: "c", maxDepth: 2, wantErr: failure(store.CodeDepthExceeded, "a", "c")},
		"G3 largest depth":            {turns: row, id: "c", maxDepth: store.MaxDepthLimit, want: []string{"a", "b", "c"}},
		"G4 depth 0":                  {turns: row, id: "a", wantErr: failure(store.CodeDepthExceeded, "a", "a")},
		"G4 depth 0, missing":         {id: "nope", wantErr: failure(store.CodeDepthExceeded, "nope", "nope")},
		"G5 cycle, depth 2":           {turns: cycle, id: "a", maxDepth: 2, wantErr: failure(store.CodeDepthExceeded, "a", "a")},
		"G5 cycle, depth 3":           {turns: cycle, id: "a", maxDepth: 3, wantErr: failure(store.CodeCycleDetected, "a", "a")},
		"G5 cycle, default depth":     {turns: cycle, id: "b", maxDepth: -1, wantErr: failure(store.CodeCycleDetected, "b", "b")},
		"G5 tail of a cycle":          {turns: append(cycle, "c<a"), id: "c", maxDepth: -1, wantErr: failure(store.CodeCycleDetected, "a", "c")},
		"G6 depth before missing":     {turns: []string{"a<gone", "b<a"}, id: "b", maxDepth: 2, wantErr: failure(store.CodeDepthExceeded, "gone", "b")},
		"G6 missing within the depth": {turns: []string{"a<gone", "b<a"}, id: "b", maxDepth: 3, wantErr: failure(store.CodeNotFound, "gone", "b")},
		"G7 cycle before status":      {turns: []string{"a<b:failed", "b<a:failed"}, id: "a", maxDepth: -1, includeIncomplete: true, wantErr: failure(store.CodeCycleDetected, "a", "a")},
		"G8 missing turn":             {turns: row, id: "nope", maxDepth: -1, wantErr: failure(store.CodeNotFound, "nope", "nope")},
		"G8 missing ancestor":         {turns: []string{"a<gone", "b<a"}, id: "b", maxDepth: -1, wantErr: failure(store.CodeNotFound, "gone", "b")},
		"G9 incomplete":               {turns: []string{"a:incomplete"}, id: "a", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"G9 failed":                   {turns: []string{"a:failed"}, id: "a", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"G9 cancelled":                {turns: []string{"a:cancelled"}, id: "a", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"G9 queued":                   {turns: []string{"a:queued"}, id: "a", maxDepth: -1, wantErr: retryable(failure(store.CodeUnavailable, "a", "a"))},
		"G9 in progress":              {turns: []string{"a:in_progress"}, id: "a", maxDepth: -1, wantErr: retryable(failure(store.CodeUnavailable, "a", "a"))},
		"G9 unknown status":           {turns: []string{"a:Completed"}, id: "a", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"G9 failed ancestor":          {turns: []string{"a:failed", "b<a", "c<b"}, id: "c", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "c")},
		"G9 pending ancestor":         {turns: []string{"a", "b<a:queued", "c<b"}, id: "c", maxDepth: -1, wantErr: retryable(failure(store.CodeUnavailable, "b", "c"))},
		"G9 nearest turn first":       {turns: []string{"a:queued", "b<a:failed", "c<b"}, id: "c", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "b", "c")},
		"G9 status before missing":    {turns: []string{"a<gone:failed"}, id: "a", maxDepth: -1, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"G9 depth before status":      {turns: []string{"a:failed", "b<a"}, id: "b", maxDepth: 1, wantErr: failure(store.CodeDepthExceeded, "a", "b")},
		"incomplete continued":        {turns: []string{"a:incomplete", "b<a", "c<b:incomplete"}, id: "c", maxDepth: -1, continueIncomplete: true, want: []string{"a", "b", "c"}},
		"failed, continued":           {turns: []string{"a:failed", "b<a:incomplete"}, id: "b", maxDepth: -1, continueIncomplete: true, wantErr: failure(store.CodeUnavailable, "a", "b")},
		"cancelled, continued":        {turns: []string{"a:cancelled"}, id: "a", maxDepth: -1, continueIncomplete: true, wantErr: failure(store.CodeUnavailable, "a", "a")},
		"pending, continued":          {turns: []string{"a:queued", "b<a:incomplete"}, id: "b", maxDepth: -1, continueIncomplete: true, wantErr: retryable(failure(store.CodeUnavailable, "a", "b"))},
		"G10 all statuses included":   {turns: []string{"a:failed", "b<a:in_progress", "c<b:odd"}, id: "c", maxDepth: -1, includeIncomplete: true, want: []string{"a", "b", "c"}},
		"G10 depth still checked":     {turns: []string{"a:failed", "b<a:failed"}, id: "b", maxDepth: 1, includeIncomplete: true, wantErr: failure(store.CodeDepthExceeded, "a", "b")},
		"G10 missing still checked":   {turns: []string{"a<gone:failed"}, id: "a", maxDepth: -1, includeIncomplete: true, wantErr: failure(store.CodeNotFound, "gone", "a")},
		"G11 empty ID":                {turns: row, maxDepth: -1},
		"G11 empty ID, depth 0":       {turns: row},
		"G30 fork":                    {turns: append(row, "fork<a"), id: "fork", maxDepth: -1, want: []string{"a", "fork"}},
		"G30 other branch":            {turns: append(row, "fork<a"), id: "c", maxDepth: -1, want: []string{"a", "b", "c"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			saveTurns(t, st, tc.turns)
			options := store.ResolveOptions{ContinueIncomplete: tc.continueIncomplete, IncludeIncomplete: tc.includeIncomplete}
			if tc.maxDepth >= 0 {
				options.MaxDepth = &tc.maxDepth
			}
			history, err := st.Resolve(t.Context(), tc.id, options)
			if tc.wantErr != nil {
				wantResolveError(t, err, tc.wantErr)
				return
			}
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			wantHistory(t, history, tc.id, tc.want...)
		})
	}
}

// testDefaultDepth: G3 and G6 with the default depth, and with a larger one.
func testDefaultDepth(t *testing.T, s *suite) {
	st := s.newStore(t)
	var ids []string
	for i := range store.DefaultMaxDepth + 1 {
		ids = append(ids, fmt.Sprintf("resp_%d", i+1))
	}
	saveRow(t, st, ids[1:]...) // resp_2 is the first one
	wantHistory(t, resolve(t, st, "resp_65", store.ResolveOptions{}), "resp_65", ids[1:]...)

	save(t, st, testturn.Make("resp_66", "resp_65"), store.SaveOptions{})
	_, err := st.Resolve(t.Context(), "resp_66", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeDepthExceeded, ResponseID: "resp_2", PreviousResponseID: "resp_66"})
	more := store.DefaultMaxDepth + 1
	wantHistory(t, resolve(t, st, "resp_66", store.ResolveOptions{MaxDepth: &more}), "resp_66", append(ids[1:], "resp_66")...)
}

// testLateParent: G28, chains saved in the wrong order resolve as soon as they are complete.
func testLateParent(t *testing.T, s *suite) {
	st := s.newStore(t)
	save(t, st, testturn.Make("c", "b"), store.SaveOptions{})
	for i, turn := range []string{"b<a", "a"} {
		_, err := st.Resolve(t.Context(), "c", store.ResolveOptions{})
		wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: []string{"b", "a"}[i], PreviousResponseID: "c"})
		saveTurns(t, st, []string{turn})
	}
	wantHistory(t, resolve(t, st, "c", store.ResolveOptions{}), "c", "a", "b", "c")

	// A turn that was queued and has completed.
	saveTurns(t, st, []string{"d<c:queued"})
	_, err := st.Resolve(t.Context(), "d", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeUnavailable, ResponseID: "d", PreviousResponseID: "d", Retryable: true})
	save(t, st, testturn.Make("d", "c"), store.SaveOptions{Overwrite: true})
	wantHistory(t, resolve(t, st, "d", store.ResolveOptions{}), "d", "a", "b", "c", "d")
}

// testParent: the handle identifies the requested turn.
func testParent(t *testing.T, s *suite) {
	st := s.newStore(t)
	saveRow(t, st, "a", "b")
	a, b := resolve(t, st, "a", store.ResolveOptions{}).Parent, resolve(t, st, "b", store.ResolveOptions{}).Parent
	if a.UID == b.UID {
		t.Errorf("Two turns have the UID %q", a.UID)
	}
	changed := testturn.Make("a", "")
	changed.Metadata = json.RawMessage(`{"changed":true}`)
	save(t, st, changed, store.SaveOptions{Overwrite: true})
	if again := resolve(t, st, "a", store.ResolveOptions{}).Parent; again != a {
		t.Errorf("The handle was %v before an overwrite and %v after it", a, again)
	}
}

// testFlatten: G13 to G16, every item unchanged and in its place.
func testFlatten(t *testing.T, s *suite) {
	st := s.newStore(t)
	user := `{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}`
	system := `{"type":"message","role":"system","content":[{"type":"input_text","text":%s}]}`
	tests := map[string]struct {
		request, response string
		want              []string
	}{
		"G13 order": {
			request:  `{"input":"hi","instructions":"be brief"}`,
			response: `{"output":[{"type":"message","role":"assistant","content":[]}]}`,
			want:     []string{fmt.Sprintf(system, `"be brief"`), fmt.Sprintf(user, `"hi"`), `{"type":"message","role":"assistant","content":[]}`},
		},
		"G14 empty instructions": {request: `{"instructions":"","input":"hi"}`, want: []string{fmt.Sprintf(user, `"hi"`)}},
		"G14 null instructions":  {request: `{"instructions":null,"input":"hi"}`, want: []string{fmt.Sprintf(user, `"hi"`)}},
		"G14 only instructions":  {request: `{"instructions":"é \"x\"\n"}`, want: []string{fmt.Sprintf(system, `"é \"x\"\n"`)}},
		"G15 list": {
			request: `{"input":[{"role":"user","content":"short"},{"type":"function_call_output","call_id":"c","output":"{}"}]}`,
			want:    []string{`{"role":"user","content":"short"}`, `{"type":"function_call_output","call_id":"c","output":"{}"}`},
		},
		"G15 unicode":      {request: `{"input":"é 😀 \u0000 <&>"}`, want: []string{fmt.Sprintf(user, `"é 😀 \u0000 <&>"`)}},
		"G15 empty string": {request: `{"input":""}`},
		"G15 null":         {request: `{"input":null}`},
		"G15 absent":       {request: `{}`},
		"G15 empty lists":  {request: `{"input":[]}`, response: `{"output":[]}`},
		"G15 no bodies":    {},
		"G16 unknown types": {
			response: `{"output":[{"type":"reasoning","encrypted_content":"x"},{"type":"of the future","n":[12345678901234567890,1.0,null]},{}]}`,
			want:     []string{`{"type":"reasoning","encrypted_content":"x"}`, `{"type":"of the future","n":[12345678901234567890,1.0,null]}`, `{}`},
		},
		"G16 null output": {request: `{"input":"hi"}`, response: `{"output":null}`, want: []string{fmt.Sprintf(user, `"hi"`)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			save(t, st, &store.Session{
				ResponseID: name, Status: store.StatusCompleted, Request: json.RawMessage(tc.request), Response: json.RawMessage(tc.response),
			}, store.SaveOptions{})
			wantItems(t, resolve(t, st, name, store.ResolveOptions{}), tc.want)
		})
	}
}

func wantItems(t *testing.T, h *store.History, want []string) {
	t.Helper()
	if len(h.Items) != len(want) {
		t.Fatalf("Unexpected items: want %d, got %s", len(want), h.Items)
	}
	for i := range want {
		if difference := differenceJSON(json.RawMessage(want[i]), h.Items[i]); difference != "" {
			t.Errorf("Item %d%s", i, difference)
		}
	}
}

// testInstructions: G14, the instructions of every turn or as selected by the option, and the order of the items.
func testInstructions(t *testing.T, s *suite) {
	st := s.newStore(t)
	previous := ""
	for _, id := range []string{"a", "b", "c"} {
		turn := testturn.Make(id, previous)
		if id != "b" {
			turn.Request = fmt.Appendf(nil, `{"instructions":"be brief","input":"question of %s"}`, id)
		}
		save(t, st, turn, store.SaveOptions{})
		previous = id
	}
	all := []string{
		"system: be brief", "user: question of a", "assistant: answer of a", "user: question of b", "assistant: answer of b",
		"system: be brief", "user: question of c", "assistant: answer of c",
	}
	tests := map[string]struct {
		id      string
		options store.ResolveOptions
		want    []string
	}{
		"default":            {id: "c", want: all},
		"all":                {id: "c", options: store.ResolveOptions{Instructions: store.InstructionsAll, Order: store.OrderAscending}, want: all},
		"last":               {id: "c", options: store.ResolveOptions{Instructions: store.InstructionsLast}, want: all[1:]},
		"last, absent":       {id: "b", options: store.ResolveOptions{Instructions: store.InstructionsLast}, want: texts("a", "b")},
		"omit":               {id: "c", options: store.ResolveOptions{Instructions: store.InstructionsOmit}, want: texts("a", "b", "c")},
		"newest first":       {id: "c", options: store.ResolveOptions{Order: store.OrderDescending}, want: reversed(all)},
		"newest first, last": {id: "c", options: store.ResolveOptions{Order: store.OrderDescending, Instructions: store.InstructionsLast}, want: reversed(all[1:])},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			history := resolve(t, st, tc.id, tc.options)
			if diff := cmp.Diff(tc.want, textsOf(t, history)); diff != "" {
				t.Errorf("Unexpected items (-want,+got):\n%s", diff)
			}
			if want := []string{"a", "b", "c"}; tc.id == "c" && !cmp.Equal(want, history.Turns) {
				t.Errorf("Unexpected turns: want the oldest first, got %v", history.Turns)
			}
		})
	}
}

func reversed(list []string) []string {
	var reversed []string
	for i := range list {
		reversed = append(reversed, list[len(list)-1-i])
	}
	return reversed
}
