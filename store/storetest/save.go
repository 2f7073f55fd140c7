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
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testInvalid: an invalid session is not stored.
func testInvalid(t *testing.T, s *suite) {
	st := s.newStore(t)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tests := map[string]func(*store.Session){
		"no ID":                           func(s *store.Session) { s.ResponseID = "" },
		"long ID":                         func(s *store.Session) { s.ResponseID = strings.Repeat("x", store.MaxIDLength+1) },
		"long ID, unicode":                func(s *store.Session) { s.ResponseID = strings.Repeat("é", store.MaxIDLength+1) },
		"ID, invalid UTF-8":               func(s *store.Session) { s.ResponseID = "a\xff" },
		"long parent":                     func(s *store.Session) { s.PreviousResponseID = strings.Repeat("x", store.MaxIDLength+1) },
		"long conversation":               func(s *store.Session) { s.ConversationID = strings.Repeat("x", store.MaxIDLength+1) },
		"own parent":                      func(s *store.Session) { s.PreviousResponseID = s.ResponseID },
		"no status":                       func(s *store.Session) { s.Status = "" },
		"long status":                     func(s *store.Session) { s.Status = strings.Repeat("x", store.MaxStatusLength+1) },
		"request, not JSON":               func(s *store.Session) { s.Request = raw(`{"input":`) },
		"response, not JSON":              func(s *store.Session) { s.Response = raw(`{} {}`) },
		"metadata, not JSON":              func(s *store.Session) { s.Metadata = raw(`{a:1}`) },
		"request that is a list":          func(s *store.Session) { s.Request = raw(`[]`) },
		"response that is a string":       func(s *store.Session) { s.Response = raw(`"done"`) },
		"metadata that is a list":         func(s *store.Session) { s.Metadata = raw(`[1]`) },
		"metadata that is null":           func(s *store.Session) { s.Metadata = raw(`null`) },
		"request, invalid UTF-8":          func(s *store.Session) { s.Request = raw("{\"input\":\"a\xff\"}") },
		"metadata, invalid UTF-8":         func(s *store.Session) { s.Metadata = raw("{\"a\":\"\xc3\x28\"}") },
		"input that is a number":          func(s *store.Session) { s.Request = raw(`{"input":1}`) },
		"input that is a list of strings": func(s *store.Session) { s.Request = raw(`{"input":["hi"]}`) },
		"instructions that are a list":    func(s *store.Session) { s.Request = raw(`{"instructions":[]}`) },
		"output that is a string":         func(s *store.Session) { s.Response = raw(`{"output":"done"}`) },
		"time beyond RFC 3339":            func(s *store.Session) { s.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"nested too deeply": func(s *store.Session) {
			s.Metadata = raw(strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001))
		},
		"unclosed lists":                 func(s *store.Session) { s.Request = raw(strings.Repeat("[", 16<<20)) },
		"output that is a list of nulls": func(s *store.Session) { s.Response = raw(`{"output":[null]}`) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			session := testturn.Make("resp_1", "")
			change(session)
			unexpected := "unexpected"
			for _, options := range []store.SaveOptions{{}, {Overwrite: true}, {ExpectedPreviousResponseID: &unexpected}} {
				wantError(t, st.Save(t.Context(), session, options), &store.Error{Code: store.CodeInvalid})
			}
			wantMissing(t, st, "resp_1")
			if id := session.ResponseID; id != "" && len(id) < store.MaxIDLength && id == strings.ToValidUTF8(id, "") {
				wantMissing(t, st, id)
			}
		})
	}
}

// testSaveAgain: a save whose response was lost can be repeated.
func testSaveAgain(t *testing.T, s *suite) {
	st := s.newStore(t)
	want := testturn.Make("resp_1", "resp_0")
	want.ConversationID, want.Metadata = "conv_1", json.RawMessage(`{"a":1.0}`)
	want.CreatedAt, want.CompletedAt = time.Unix(1_700_000_000, 123), time.Unix(1_700_000_001, 0)
	want.Immutable = true
	expected := "resp_0"
	for _, options := range []store.SaveOptions{{}, {}, {Overwrite: true}, {ExpectedPreviousResponseID: &expected}} {
		session := want.Clone()
		save(t, st, session, options)
		if session.Version == "" {
			t.Error("The session has no version")
		}
		wantStored(t, st, want)
	}
	again := get(t, st, "resp_1")
	again.Request = json.RawMessage(strings.Replace(string(again.Request), "{", "{ ", 1)) // the same value
	save(t, st, again, store.SaveOptions{})
	save(t, st, again, store.SaveOptions{Overwrite: true})
}

// testSaveExisting: a save can be limited to a turn that is stored.
func testSaveExisting(t *testing.T, s *suite) {
	st := s.newStore(t)
	turn := testturn.Make("resp_1", "")
	for _, options := range []store.SaveOptions{{Existing: true}, {Existing: true, Overwrite: true}} {
		if err := st.Save(t.Context(), turn.Clone(), options); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%+v: got %v, want ErrNotFound", options, err)
		}
	}
	if _, err := st.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want that nothing was stored", err)
	}
	save(t, st, turn.Clone(), store.SaveOptions{})
	save(t, st, turn.Clone(), store.SaveOptions{Existing: true})
	turn.ConversationID = "conv_1"
	if err := st.Save(t.Context(), turn.Clone(), store.SaveOptions{Existing: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	save(t, st, turn, store.SaveOptions{Existing: true, Overwrite: true})
	wantStored(t, st, turn)
}

// testSaveConflict: G21 and G25, an ID that is taken.
func testSaveConflict(t *testing.T, s *suite) {
	st := s.newStore(t)
	want := testturn.Make("resp_1", "")
	save(t, st, want.Clone(), store.SaveOptions{})
	for name, change := range changes() {
		t.Run(name, func(t *testing.T) {
			session := want.Clone()
			change(session)
			changed := session.Clone()
			wantError(t, st.Save(t.Context(), session, store.SaveOptions{}), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
			wantStored(t, st, want)
			if diff := diffSessions(changed, session); diff != "" || session.Version != "" {
				t.Errorf("The session was changed to version %q (-want,+got):\n%s", session.Version, diff)
			}
		})
	}
}

// changes returns changes that each turn one of testturn.Make's turns into a different one.
func changes() map[string]func(*store.Session) {
	return map[string]func(*store.Session){
		"parent":       func(s *store.Session) { s.PreviousResponseID = "resp_0" },
		"conversation": func(s *store.Session) { s.ConversationID = "conv_1" },
		"created":      func(s *store.Session) { s.CreatedAt = time.Unix(1_700_000_000, 0) },
		"completed":    func(s *store.Session) { s.CompletedAt = time.Unix(1_700_000_000, 0) },
		"status":       func(s *store.Session) { s.Status = store.StatusFailed },
		"request":      func(s *store.Session) { s.Request = json.RawMessage(`{"input":"something else"}`) },
		"no request":   func(s *store.Session) { s.Request = nil },
		"response":     func(s *store.Session) { s.Response = json.RawMessage(`{"output":[]}`) },
		"no response":  func(s *store.Session) { s.Response = nil },
		"metadata":     func(s *store.Session) { s.Metadata = json.RawMessage(`{"a":1}`) },
		"immutable":    func(s *store.Session) { s.Immutable = true },
	}
}

// testSaveResult: Save sets the version and nothing else.
func testSaveResult(t *testing.T, s *suite) {
	st := s.newStore(t)
	session := testturn.Make("resp_1", "")
	session.CreatedAt = time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", -3600))
	want := session.Clone()
	save(t, st, session, store.SaveOptions{})
	if session.Version == "" {
		t.Error("The session has no version")
	}
	if !session.CreatedAt.Equal(want.CreatedAt) {
		t.Errorf("The time was changed from %v to %v", want.CreatedAt, session.CreatedAt)
	}
	if diff := diffSessions(want, session); diff != "" {
		t.Errorf("The session was changed (-want,+got):\n%s", diff)
	}
}

// testExpectedParent: G25 to G27.
func testExpectedParent(t *testing.T, s *suite) {
	tests := map[string]struct {
		previous, expected string
		exists             bool
		options            store.SaveOptions
		want               store.Code
	}{
		"same parent":                     {previous: "resp_0", expected: "resp_0"},
		"no parent":                       {},
		"different parent":                {previous: "resp_0", expected: "resp_9", want: store.CodeConflict},
		"parent expected, none set":       {expected: "resp_0", want: store.CodeConflict},
		"no parent expected, one set":     {previous: "resp_0", want: store.CodeConflict},
		"same parent, equal content":      {previous: "resp_0", expected: "resp_0", exists: true},
		"different parent, equal content": {previous: "resp_0", expected: "resp_9", exists: true, want: store.CodeConflict},
		"same parent, overwrite":          {previous: "resp_0", expected: "resp_0", exists: true, options: store.SaveOptions{Overwrite: true}},
		"different parent, overwrite":     {previous: "resp_0", expected: "resp_9", exists: true, options: store.SaveOptions{Overwrite: true}, want: store.CodeConflict},
		"no parent expected, overwrite":   {previous: "resp_0", exists: true, options: store.SaveOptions{Overwrite: true}, want: store.CodeConflict},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			session := testturn.Make("resp_1", tc.previous)
			if tc.exists {
				save(t, st, session.Clone(), store.SaveOptions{})
			}
			tc.options.ExpectedPreviousResponseID = &tc.expected
			err := st.Save(t.Context(), session, tc.options)
			if tc.want == "" {
				if err != nil {
					t.Errorf("Unexpected error: %v", err)
				}
				wantStored(t, st, session)
				return
			}
			wantError(t, err, &store.Error{Code: tc.want, ResponseID: "resp_1"})
			if !tc.exists {
				wantMissing(t, st, "resp_1")
			}
		})
	}
}

// testOneSaveSucceeds: of several saves of one new ID with different content, exactly one succeeds.
func testOneSaveSucceeds(t *testing.T, s *suite) {
	st := s.newStore(t)
	const savers, rounds = 8, 5
	for round := range rounds {
		id := fmt.Sprintf("resp_%d", round)
		sessions, errs := make([]*store.Session, savers), make([]error, savers)
		var wait sync.WaitGroup
		for i := range savers {
			sessions[i] = testturn.Make(id, "")
			sessions[i].Metadata = fmt.Appendf(nil, `{"saver":%d}`, i)
			wait.Go(func() { errs[i] = st.Save(t.Context(), sessions[i], store.SaveOptions{}) })
		}
		wait.Wait()
		var winner *store.Session
		for i, err := range errs {
			switch {
			case err != nil:
				wantError(t, err, &store.Error{Code: store.CodeConflict, ResponseID: id})
			case winner != nil:
				t.Errorf("More than one save of %s succeeded", id)
			default:
				winner = sessions[i]
			}
		}
		if winner == nil {
			t.Fatalf("No save of %s succeeded", id)
		}
		wantStored(t, st, winner)
	}
}
