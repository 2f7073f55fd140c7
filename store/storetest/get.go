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
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
)

// testGet: G31.
func testGet(t *testing.T, s *suite) {
	st := s.newStore(t)
	for _, id := range []string{"resp_1", "", "a/b", "..", strings.Repeat("x", store.MaxIDLength)} {
		wantMissing(t, st, id)
	}
	save(t, st, testturn.Make("resp_1", ""), store.SaveOptions{})
	wantMissing(t, st, "resp_2")
	wantMissing(t, st, "Resp_1")
	wantMissing(t, st, "resp.1")
	whole := get(t, st, "resp_1")
	if whole.Version == "" {
		t.Error("The session has no version")
	}
	whole.Request, whole.Response, whole.Metadata = nil, nil, nil
	got, err := st.GetWithoutBodies(t.Context(), "resp_1")
	if err != nil {
		t.Fatal(err)
	}
	got.Version = whole.Version // the operator may have written the status meanwhile
	if diff := cmp.Diff(whole, got); diff != "" {
		t.Errorf("without bodies (-want +got):\n%s", diff)
	}
	for _, id := range []string{"resp_2", ""} {
		if _, err := st.GetWithoutBodies(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q without bodies: got %v, want ErrNotFound", id, err)
		}
	}
}

// testRoundTrip: G34, and every JSON value is kept.
func testRoundTrip(t *testing.T, s *suite) {
	full := testturn.Make("everything", "the parent")
	full.ConversationID = "conv/1 é"
	full.CreatedAt = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	full.CompletedAt = time.Date(2026, 2, 3, 4, 5, 16, 0, time.FixedZone("", 3600))
	full.Metadata = json.RawMessage(`{"user":"é","n":null,"o":{},"l":[]}`)
	full.Request = json.RawMessage(`{"input":[{"type":"message","role":"user","content":"hi","of the future":[1,{"a":null}]}],"instructions":null,"tools":[],"unknown":{"deep":[[],{}]}}`)
	full.Response = json.RawMessage(`{"id":"everything","output":[{"type":"reasoning","summary":[]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},"error":null}`)

	body := func(member string) *store.Session {
		session := testturn.Make("body", "")
		session.Metadata = json.RawMessage(`{"value":` + member + `}`)
		session.Request = json.RawMessage(`{"input":"hi","value":` + member + `}`)
		session.Response = json.RawMessage(`{"output":[{"type":"unknown","value":` + member + `}],"value":` + member + `}`)
		return session
	}
	manyItems := json.RawMessage(`{"input":[` + strings.Repeat(`{},`, 20_000) + `{}]}`)
	with := func(change func(*store.Session)) *store.Session {
		session := testturn.Make("changed", "")
		change(session)
		return session
	}
	tests := map[string]*store.Session{
		"everything":               full,
		"minimal":                  {ResponseID: "bare", Status: store.StatusQueued},
		"no metadata":              testturn.Make("no metadata", ""),
		"only a request":           with(func(s *store.Session) { s.Response = nil }),
		"only a response":          with(func(s *store.Session) { s.Request = nil }),
		"any status":               with(func(s *store.Session) { s.Status = "of the future é" }),
		"only completed":           with(func(s *store.Session) { s.CompletedAt = time.Unix(1, 0) }),
		"before 1970":              with(func(s *store.Session) { s.CreatedAt = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC) }),
		"fractional second":        with(func(s *store.Session) { s.CreatedAt = time.Date(2026, 2, 3, 4, 5, 6, 999_999_999, time.UTC) }),
		"null":                     body(`null`),
		"large integer":            body(`12345678901234567890`),
		"very large integer":       body(`-123456789012345678901234567890123456789`),
		"int64 beyond float64":     body(`9007199254740993`),
		"1.0":                      body(`1.0`),
		"fractions":                body(`[0.1,-0.0,1e21,1.5E-7]`),
		"unicode":                  body(`"é 漢字 😀 \u00e9 \ud83d\ude00 \u2028 \u0000 <&>"`),
		"escapes":                  body(`"\"\\\/\b\f\n\r\t"`),
		"unusual keys":             body(`{"":1,"a.b":2,"é":3,"a b":4,"$ref":5,"metadata":{"name":6}}`),
		"empty values":             body(`[{},[],"",false,0]`),
		"duplicate key":            body(`{"a":1,"a":2}`),
		"half a surrogate pair":    body(`"\ud83d"`),
		"nested beyond Kubernetes": body(strings.Repeat(`[`, 990) + strings.Repeat(`]`, 990)),
		"very many items":          with(func(s *store.Session) { s.Request = manyItems }),
		"nested":                   body(strings.Repeat(`[`, 90) + strings.Repeat(`]`, 90)),
		"many items":               body(`[` + strings.Repeat(`{"type":"message","role":"user"},`, 500) + `0]`),
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			st := s.newStore(t)
			save(t, st, want.Clone(), store.SaveOptions{})
			wantStored(t, st, want)
		})
	}
}

// testResponseIDs: an ID is any string, and different IDs are different turns.
func testResponseIDs(t *testing.T, s *suite) {
	st := s.newStore(t)
	ids := []string{
		"resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "resp.67cc", "resp-67cc", "resp_67CC", "RESP_67CC",
		"a/b", "/", "a//b/", "..", ".", "a b", " a", "a ", "é", "e\u0301", "漢字", "😀", "%2F", "a%2Fb", "?limit=1", "#", "a&b=c",
		`"quoted"`, `\`, "'; DROP TABLE turns; --", "a\tb", "*", "0", "null", "sha256_abc", "sha256.abc",
		strings.Repeat("x", store.MaxIDLength), strings.Repeat("é", store.MaxIDLength),
	}
	for _, id := range ids {
		want := &store.Error{Code: store.CodeNotFound, ResponseID: id, PreviousResponseID: id}
		_, err := st.Resolve(t.Context(), id, store.ResolveOptions{})
		wantResolveError(t, err, want)
		want.Code = store.CodeDepthExceeded
		_, err = st.Resolve(t.Context(), id, store.ResolveOptions{MaxDepth: new(0)})
		wantResolveError(t, err, want)
	}
	// The name of a turn's object in a cluster is not an ID of the turn.
	save(t, st, parseTurn("resp_1:failed"), store.SaveOptions{})
	_, err := st.Resolve(t.Context(), "resp.1", store.ResolveOptions{})
	wantResolveError(t, err, &store.Error{Code: store.CodeNotFound, ResponseID: "resp.1", PreviousResponseID: "resp.1"})

	saveRow(t, st, ids...)
	for i, id := range ids {
		previous := ""
		if i > 0 {
			previous = ids[i-1]
		}
		wantStored(t, st, testturn.Make(id, previous))
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
	large := testturn.Make("large", "first")
	large.Request = json.RawMessage(`{"input":[` + input + `]}`)

	save(t, st, testturn.Make("first", ""), store.SaveOptions{})
	save(t, st, large.Clone(), store.SaveOptions{})
	save(t, st, large.Clone(), store.SaveOptions{})
	save(t, st, testturn.Make("last", "large"), store.SaveOptions{})
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
	want := testturn.Make("resp_1", "")
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
	_ = append(first, "overwrites the next item if the items share a buffer"...)
	wantHistory(t, history, "resp_1", "resp_1")
	for _, item := range history.Items {
		scribble(item)
	}
	wantHistory(t, resolve(t, st, "resp_1", store.ResolveOptions{}), "resp_1", "resp_1")
	wantStored(t, st, want)
}
