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
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/store"
)

// Names that begin with G and a number are those of the peers' behaviour that a store is held to.

// testGet: G31.
func testGet(t *testing.T, s *suite) {
	st := s.newStore(t)
	for _, id := range []string{"resp_1", "", "a/b", "..", strings.Repeat("x", store.MaxIDLength)} {
		wantMissing(t, st, id)
	}
	save(t, st, makeTurn("resp_1", ""), store.SaveOptions{})
	wantMissing(t, st, "resp_2")
	wantMissing(t, st, "Resp_1")
	wantMissing(t, st, "resp.1")
	if version := get(t, st, "resp_1").Version; version == "" {
		t.Error("The session has no version")
	}
}

// testRoundTrip: G34, and that every value of JSON is kept.
func testRoundTrip(t *testing.T, s *suite) {
	full := makeTurn("everything", "the parent")
	full.ConversationID = "conv/1 é"
	full.CreatedAt = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	full.CompletedAt = time.Date(2026, 2, 3, 4, 5, 16, 0, time.FixedZone("", 3600))
	full.Metadata = json.RawMessage(`{"user":"é","n":null,"o":{},"l":[]}`)
	full.Request = json.RawMessage(`{"input":[{"type":"message","role":"user","content":"hi","of the future":[1,{"a":null}]}],"instructions":null,"tools":[],"unknown":{"deep":[[],{}]}}`)
	full.Response = json.RawMessage(`{"id":"everything","output":[{"type":"reasoning","summary":[]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},"error":null}`)

	body := func(member string) *store.Session {
		session := makeTurn("body", "")
		session.Metadata = json.RawMessage(`{"value":` + member + `}`)
		session.Request = json.RawMessage(`{"input":"hi","value":` + member + `}`)
		session.Response = json.RawMessage(`{"output":[{"type":"unknown","value":` + member + `}],"value":` + member + `}`)
		return session
	}
	with := func(change func(*store.Session)) *store.Session {
		session := makeTurn("changed", "")
		change(session)
		return session
	}
	tests := map[string]*store.Session{
		"everything":            full,
		"as little as possible": {ResponseID: "bare", Status: store.StatusQueued},
		"no metadata":           makeTurn("no metadata", ""),
		"only a request":        with(func(s *store.Session) { s.Response = nil }),
		"only a response":       with(func(s *store.Session) { s.Request = nil }),
		"any status":            with(func(s *store.Session) { s.Status = "of the future é" }),
		"only completed":        with(func(s *store.Session) { s.CompletedAt = time.Unix(1, 0) }),
		"a long ago":            with(func(s *store.Session) { s.CreatedAt = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC) }),
		"parts of a second":     with(func(s *store.Session) { s.CreatedAt = time.Date(2026, 2, 3, 4, 5, 6, 999_999_999, time.UTC) }),
		"null":                  body(`null`),
		"a large integer":       body(`12345678901234567890`),
		"a very large integer":  body(`-123456789012345678901234567890123456789`),
		"an int64":              body(`9007199254740993`),
		"1.0":                   body(`1.0`),
		"fractions":             body(`[0.1,-0.0,1e21,1.5E-7]`),
		"unicode":               body(`"é 漢字 😀 \u00e9 \ud83d\ude00 \u2028 \u0000 <&>"`),
		"escapes":               body(`"\"\\\/\b\f\n\r\t"`),
		"odd keys":              body(`{"":1,"a.b":2,"é":3,"a b":4,"$ref":5,"metadata":{"name":6}}`),
		"empty values":          body(`[{},[],"",false,0]`),
		"depth":                 body(strings.Repeat(`[`, 90) + strings.Repeat(`]`, 90)),
		"many items":            body(`[` + strings.Repeat(`{"type":"message","role":"user"},`, 500) + `0]`),
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			save(t, st, want.Clone(), store.SaveOptions{})
			wantStored(t, st, want)
		})
	}
}

// testResponseIDs: an ID is any string, and every one is another turn.
func testResponseIDs(t *testing.T, s *suite) {
	st := s.newStore(t)
	ids := []string{
		"resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "resp.67cc", "resp-67cc", "resp_67CC", "RESP_67CC",
		"a/b", "/", "a//b/", "..", ".", "a b", " a", "a ", "é", "e\u0301", "漢字", "😀", "%2F", "a%2Fb", "?limit=1", "#", "a&b=c",
		`"quoted"`, `\`, "'; DROP TABLE turns; --", "a\tb", "*", "0", "null", "sha256_abc", "sha256.abc",
		strings.Repeat("x", store.MaxIDLength), strings.Repeat("é", store.MaxIDLength),
	}
	saveRow(t, st, ids...)
	for i, id := range ids {
		previous := ""
		if i > 0 {
			previous = ids[i-1]
		}
		wantStored(t, st, makeTurn(id, previous))
	}
	last := ids[len(ids)-1]
	history := resolve(t, st, last, store.ResolveOptions{})
	wantHistory(t, history, last, ids...)
	if err := st.Delete(t.Context(), "a/b", store.DeleteOptions{}); err != nil {
		t.Fatalf("Unable to delete: %v", err)
	}
	wantMissing(t, st, "a/b")
	get(t, st, "a//b/")
	get(t, st, "a%2Fb")
}

// testLargeTurn: an image of 3 MiB.
func testLargeTurn(t *testing.T, s *suite) {
	st := s.newStore(t)
	image := "data:image/png;base64," + strings.Repeat("iVBORw0KGgoAAAAN", 3<<20/16)
	input := fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_image","image_url":%q}]}`, image)
	large := makeTurn("large", "first")
	large.Request = json.RawMessage(`{"input":[` + input + `]}`)

	save(t, st, makeTurn("first", ""), store.SaveOptions{})
	save(t, st, large.Clone(), store.SaveOptions{})
	save(t, st, large.Clone(), store.SaveOptions{})
	save(t, st, makeTurn("last", "large"), store.SaveOptions{})
	wantStored(t, st, large)
	history := resolve(t, st, "last", store.ResolveOptions{})
	if len(history.Items) != 6 {
		t.Fatalf("Unexpected number of items: want 6, got %d", len(history.Items))
	}
	if difference := differenceJSON(json.RawMessage(input), history.Items[2]); difference != "" {
		t.Errorf("The large item %s", difference)
	}

	changed := large.Clone()
	changed.Request = bytes.Replace(changed.Request, []byte("AAAAN"), []byte("AAAAM"), 1)
	wantError(t, st.Save(t.Context(), changed.Clone(), store.SaveOptions{}), &store.Error{Code: store.CodeConflict, ResponseID: "large"})
	save(t, st, changed.Clone(), store.SaveOptions{Overwrite: true})
	wantStored(t, st, changed)
}

// testIsolation: G33.
func testIsolation(t *testing.T, s *suite) {
	st := s.newStore(t)
	want := makeTurn("resp_1", "")
	want.Metadata = json.RawMessage(`{"a":1}`)
	scribble := func(raw []byte) {
		for i := range raw {
			raw[i] = 'x'
		}
	}
	spoil := func(session *store.Session) {
		for _, raw := range []json.RawMessage{session.Request, session.Response, session.Metadata} {
			scribble(raw)
		}
		session.Status, session.ResponseID = "failed", "another"
	}
	session := want.Clone()
	save(t, st, session, store.SaveOptions{})
	spoil(session)
	wantStored(t, st, want)
	spoil(get(t, st, "resp_1"))
	wantStored(t, st, want)
	history := resolve(t, st, "resp_1", store.ResolveOptions{})
	first := history.Items[0]
	_ = append(first, "overwrites what comes next, if the items share a buffer"...)
	wantHistory(t, history, "resp_1", "resp_1")
	for _, item := range history.Items {
		scribble(item)
	}
	wantHistory(t, resolve(t, st, "resp_1", store.ResolveOptions{}), "resp_1", "resp_1")
	wantStored(t, st, want)
}

// testInvalid: nothing is stored of a session that is not allowed.
func testInvalid(t *testing.T, s *suite) {
	st := s.newStore(t)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tests := map[string]func(*store.Session){
		"no ID":                    func(s *store.Session) { s.ResponseID = "" },
		"long ID":                  func(s *store.Session) { s.ResponseID = strings.Repeat("x", store.MaxIDLength+1) },
		"long ID, unicode":         func(s *store.Session) { s.ResponseID = strings.Repeat("é", store.MaxIDLength+1) },
		"ID of invalid UTF-8":      func(s *store.Session) { s.ResponseID = "a\xff" },
		"long parent":              func(s *store.Session) { s.PreviousResponseID = strings.Repeat("x", store.MaxIDLength+1) },
		"long conversation":        func(s *store.Session) { s.ConversationID = strings.Repeat("x", store.MaxIDLength+1) },
		"own parent":               func(s *store.Session) { s.PreviousResponseID = s.ResponseID },
		"no status":                func(s *store.Session) { s.Status = "" },
		"long status":              func(s *store.Session) { s.Status = strings.Repeat("x", store.MaxStatusLength+1) },
		"request that is no JSON":  func(s *store.Session) { s.Request = raw(`{"input":`) },
		"response that is no JSON": func(s *store.Session) { s.Response = raw(`{} {}`) },
		"metadata that is no JSON": func(s *store.Session) { s.Metadata = raw(`{a:1}`) },
		"request that is a list":   func(s *store.Session) { s.Request = raw(`[]`) },
		"response that is a text":  func(s *store.Session) { s.Response = raw(`"done"`) },
		"metadata that is a list":  func(s *store.Session) { s.Metadata = raw(`[1]`) },
		"metadata that is null":    func(s *store.Session) { s.Metadata = raw(`null`) },
		"request of invalid UTF-8": func(s *store.Session) { s.Request = raw("{\"input\":\"a\xff\"}") },
		"metadata, invalid UTF-8":  func(s *store.Session) { s.Metadata = raw("{\"a\":\"\xc3\x28\"}") },
		"input that is a number":   func(s *store.Session) { s.Request = raw(`{"input":1}`) },
		"input of texts":           func(s *store.Session) { s.Request = raw(`{"input":["hi"]}`) },
		"instructions, a list":     func(s *store.Session) { s.Request = raw(`{"instructions":[]}`) },
		"output that is a text":    func(s *store.Session) { s.Response = raw(`{"output":"done"}`) },
		"output of nulls":          func(s *store.Session) { s.Response = raw(`{"output":[null]}`) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			session := makeTurn("resp_1", "")
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

// testSaveAgain: a save whose answer was lost can be tried again.
func testSaveAgain(t *testing.T, s *suite) {
	st := s.newStore(t)
	want := makeTurn("resp_1", "resp_0")
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
	save(t, st, again, store.SaveOptions{})
	save(t, st, again, store.SaveOptions{Overwrite: true})
}

// testSaveConflict: G21 and G25, an ID that is taken.
func testSaveConflict(t *testing.T, s *suite) {
	st := s.newStore(t)
	want := makeTurn("resp_1", "")
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

// changes are such that make makeTurn's turns others.
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
	session := makeTurn("resp_1", "")
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

// testOverwrite: G29, with the parent kept.
func testOverwrite(t *testing.T, s *suite) {
	for name, change := range changes() {
		if name == "parent" {
			continue // see testReparent
		}
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			before := makeTurn("resp_1", "")
			save(t, st, before, store.SaveOptions{})
			after := before.Clone()
			after.Version = ""
			change(after)
			save(t, st, after, store.SaveOptions{Overwrite: true})
			if after.Version == before.Version || after.Version == "" {
				t.Errorf("The version was %q and is %q", before.Version, after.Version)
			}
			wantStored(t, st, after)
		})
	}
	t.Run("back to little", func(t *testing.T) {
		st := s.newStore(t)
		full := makeTurn("resp_1", "resp_0")
		full.ConversationID, full.Metadata, full.CreatedAt = "conv_1", json.RawMessage(`{"a":1}`), time.Unix(1, 0)
		save(t, st, full, store.SaveOptions{})
		bare := &store.Session{ResponseID: "resp_1", PreviousResponseID: "resp_0", Status: store.StatusFailed}
		save(t, st, bare.Clone(), store.SaveOptions{Overwrite: true})
		wantStored(t, st, bare)
	})
	t.Run("of nothing", func(t *testing.T) {
		st := s.newStore(t)
		save(t, st, makeTurn("resp_1", "resp_0"), store.SaveOptions{Overwrite: true})
		wantStored(t, st, makeTurn("resp_1", "resp_0"))
	})
}

// testReparent: the parent never changes.
func testReparent(t *testing.T, s *suite) {
	tests := map[string]struct{ before, after string }{
		"another": {"resp_0", "resp_9"},
		"none":    {"resp_0", ""},
		"a first": {"", "resp_0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			want := makeTurn("resp_1", tc.before)
			save(t, st, want.Clone(), store.SaveOptions{})
			session := makeTurn("resp_1", tc.after)
			for _, options := range []store.SaveOptions{{}, {Overwrite: true}, {Overwrite: true, ExpectedPreviousResponseID: &tc.after}} {
				wantError(t, st.Save(t.Context(), session, options), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
			}
			wantStored(t, st, want)
		})
	}
}

func testImmutable(t *testing.T, s *suite) {
	for name, change := range changes() {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			want := makeTurn("resp_1", "")
			want.Immutable = true
			save(t, st, want.Clone(), store.SaveOptions{})
			session := want.Clone()
			change(session)
			session.Immutable = name != "immutable"
			wantError(t, st.Save(t.Context(), session, store.SaveOptions{Overwrite: true}), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
			wantStored(t, st, want)
		})
	}
	t.Run("from now on", func(t *testing.T) {
		st := s.newStore(t)
		session := makeTurn("resp_1", "")
		save(t, st, session, store.SaveOptions{})
		session.Immutable = true
		save(t, st, session, store.SaveOptions{Overwrite: true})
		session.Status = store.StatusFailed
		wantError(t, st.Save(t.Context(), session, store.SaveOptions{Overwrite: true}), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	})
	t.Run("but not undeletable", func(t *testing.T) {
		st := s.newStore(t)
		session := makeTurn("resp_1", "")
		session.Immutable = true
		save(t, st, session, store.SaveOptions{})
		if err := st.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
			t.Fatalf("Unable to delete: %v", err)
		}
		wantMissing(t, st, "resp_1")
	})
}

// testExpectedParent: G25 to G27.
func testExpectedParent(t *testing.T, s *suite) {
	tests := map[string]struct {
		previous, expected string
		exists             bool
		options            store.SaveOptions
		want               store.Code
	}{
		"the parent":                        {previous: "resp_0", expected: "resp_0"},
		"none":                              {},
		"another":                           {previous: "resp_0", expected: "resp_9", want: store.CodeConflict},
		"one where there is none":           {expected: "resp_0", want: store.CodeConflict},
		"none where there is one":           {previous: "resp_0", want: store.CodeConflict},
		"the parent, equal content":         {previous: "resp_0", expected: "resp_0", exists: true},
		"another, equal content":            {previous: "resp_0", expected: "resp_9", exists: true, want: store.CodeConflict},
		"the parent, overwrite":             {previous: "resp_0", expected: "resp_0", exists: true, options: store.SaveOptions{Overwrite: true}},
		"another, overwrite":                {previous: "resp_0", expected: "resp_9", exists: true, options: store.SaveOptions{Overwrite: true}, want: store.CodeConflict},
		"none where there is one, the same": {previous: "resp_0", exists: true, options: store.SaveOptions{Overwrite: true}, want: store.CodeConflict},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			session := makeTurn("resp_1", tc.previous)
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

// testVersion: an overwrite of a turn that has changed since it was read is a conflict.
func testVersion(t *testing.T, s *suite) {
	st := s.newStore(t)
	session := makeTurn("resp_1", "")
	session.Version = "of no meaning where nothing is overwritten"
	save(t, st, session, store.SaveOptions{})

	stale := get(t, st, "resp_1")
	overwrite := func(current *store.Session, status string) error {
		current.Status = status
		return st.Save(t.Context(), current, store.SaveOptions{Overwrite: true})
	}
	s.eventually(t, func() string { // the store may write a version of its own in between
		if err := overwrite(get(t, st, "resp_1"), store.StatusFailed); err != nil {
			return err.Error()
		}
		return ""
	})
	wantError(t, overwrite(stale.Clone(), store.StatusCancelled), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	if status := get(t, st, "resp_1").Status; status != store.StatusFailed {
		t.Errorf("Unexpected status: want failed, got %s", status)
	}
	if err := overwrite(stale.Clone(), store.StatusFailed); err != nil {
		t.Errorf("Unexpected error of the same overwrite again: %v", err)
	}
	stale.Version = ""
	if err := overwrite(stale, store.StatusCancelled); err != nil {
		t.Errorf("Unexpected error of an overwrite of any version: %v", err)
	}

	deleted := get(t, st, "resp_1")
	if err := st.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
		t.Fatalf("Unable to delete: %v", err)
	}
	wantError(t, overwrite(deleted.Clone(), store.StatusFailed), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
	wantMissing(t, st, "resp_1")
	save(t, st, makeTurn("resp_1", ""), store.SaveOptions{})
	wantError(t, overwrite(deleted, store.StatusFailed), &store.Error{Code: store.CodeConflict, ResponseID: "resp_1"})
}

// testOneSaverWins: of several saves of one new ID, with different content, exactly one is stored.
func testOneSaverWins(t *testing.T, s *suite) {
	st := s.newStore(t)
	const savers, rounds = 8, 5
	for round := range rounds {
		id := fmt.Sprintf("resp_%d", round)
		sessions, errs := make([]*store.Session, savers), make([]error, savers)
		var wait sync.WaitGroup
		for i := range savers {
			sessions[i] = makeTurn(id, "")
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
				t.Errorf("More than one saver of %s won", id)
			default:
				winner = sessions[i]
			}
		}
		if winner == nil {
			t.Fatalf("No saver of %s won", id)
		}
		wantStored(t, st, winner)
	}
}

// testNoLostUpdate: overwrites with a version do not undo each other.
func testNoLostUpdate(t *testing.T, s *suite) {
	st := s.newStore(t)
	const writers, updates = 4, 5
	session := makeTurn("resp_1", "")
	session.Metadata = json.RawMessage(`{"n":0}`)
	save(t, st, session, store.SaveOptions{})
	increment := func() error {
		for {
			session, err := st.Get(t.Context(), "resp_1")
			if err != nil {
				return err
			}
			var metadata struct{ N int }
			if err := json.Unmarshal(session.Metadata, &metadata); err != nil {
				return err
			}
			session.Metadata = fmt.Appendf(nil, `{"n":%d}`, metadata.N+1)
			// A save of what another writer has just stored is a success too, so that each says who it is.
			session.ConversationID = rand.Text()
			err = st.Save(t.Context(), session, store.SaveOptions{Overwrite: true})
			if !isConflict(err) {
				return err
			}
		}
	}
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for range updates {
				if err := increment(); err != nil {
					t.Errorf("Unexpected error: %v", err)
				}
			}
		})
	}
	wait.Wait()
	want := fmt.Sprintf(`{"n":%d}`, writers*updates)
	if difference := differenceJSON(json.RawMessage(want), get(t, st, "resp_1").Metadata); difference != "" {
		t.Errorf("Updates were lost: %s", difference)
	}
}
