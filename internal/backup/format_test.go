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

package backup

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
)

// sameObject ignores what is derived from the other fields.
var sameObject = cmpopts.IgnoreUnexported(Object{})

var header = Header{
	Format: Format, Version: Version, APIVersion: v1alpha1.GroupVersion.String(), Namespace: "team-a",
	ExportedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ClusterUID: "0f1e2d3c",
}

// fileOf returns a file of a version. It is never written again: every later build must read it.
func fileOf(t testing.TB, version int) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("version%d.jsonl", version)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func version1Sessions() []*Object {
	return []*Object{
		{Name: "resp.1", Labels: map[string]string{"team": "a"}, Spec: []byte(`{"responseID":"resp_1","responseStatus":"completed","request":{"input":"Grüße <&> \u2028","n":1}}`)},
		{Name: "resp.c1", Cycle: true, Spec: []byte(`{"responseID":"resp_c1","previousResponseID":"resp_c2","responseStatus":"completed"}`)},
		{Name: "resp.c2", Cycle: true, Spec: []byte(`{"responseID":"resp_c2","previousResponseID":"resp_c1","responseStatus":"completed"}`)},
		{Name: "resp.orphan", Annotations: map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"},
			Spec: []byte(`{"responseID":"resp_orphan","previousResponseID":"resp_gone","responseStatus":"failed","immutable":true}`)},
		{Name: "resp.2", Bodies: &Bodies{Request: []byte("{ \"input\": \"\xff\" }\n"), Response: []byte(`{"output":[]}`)},
			Spec: []byte(`{"responseID":"resp_2","previousResponseID":"resp_1","responseStatus":"completed","snapshot":{"store":"Chunks","key":"aaaaaaaaaaaaaaaaaaaaaaaaaa","parts":1,"sizeBytes":72,"storedBytes":70,"sha256":"d3a6e58c0f2084912a3e6094d570b4151eadea82615cc658056bb11f46c790b2"}}`)},
		{Name: "resp.unreadable",
			Spec: []byte(`{"responseID":"resp_unreadable","previousResponseID":"resp_1","responseStatus":"completed","snapshot":{"store":"Blob","key":"bbbbbbbbbbbbbbbbbbbbbbbbbb","parts":1,"sizeBytes":72,"storedBytes":70,"sha256":"d3a6e58c0f2084912a3e6094d570b4151eadea82615cc658056bb11f46c790b2"}}`)},
	}
}

func writeFile(t testing.TB, sessions ...*Object) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// readFile returns the sessions of a file, and the error that is not io.EOF.
func readFile(in io.Reader, maxTurnBytes int) (sessions []*Object, err error) {
	r, err := NewReader(in, maxTurnBytes)
	if err != nil {
		return nil, err
	}
	for {
		s, err := r.Next()
		if errors.Is(err, io.EOF) {
			return sessions, nil
		}
		if err != nil {
			return sessions, err
		}
		sessions = append(sessions, s)
	}
}

// version2Objects are the objects of the file of version 2, which has those of version 1.
func version2Objects() []*Object {
	return append(version1Sessions(), []*Object{
		{kind: conversationKind, Name: "conv.1", Labels: map[string]string{"team": "a"}, Spec: []byte(`{"conversationID":"conv_1","state":"Archived","headResponseID":"resp_2","baseResponseID":"resp_1","reservation":{"durationSeconds":10,"renewals":7},"title":"Grüße <&> \u2028","metadata":{"n":1},"hiddenItems":[{"responseID":"resp_1","number":0}]}`)},
		{kind: conversationKind, Name: "conv.2", Annotations: map[string]string{"note": "a"}, Spec: []byte(`{"conversationID":"conv_2","state":"Active","headResponseID":"resp_gone","forkedFrom":{"conversationID":"conv_1"},"later":true}`)},
		{kind: conversationKind, Name: "conv.3", Spec: []byte(`{"conversationID":"conv_3","state":"Active"}`)},
		{kind: summaryKind, Name: "conv.1-0-2", Spec: []byte(`{"conversationID":"conv_1","startTurn":0,"endTurn":2,"content":"short","createdAt":"2026-01-02T03:04:05Z"}`)},
	}...)
}

func TestVersions(t *testing.T) {
	objects := version2Objects()
	if diff := cmp.Diff(fileOf(t, 2), writeFile(t, objects...)); diff != "" {
		t.Errorf("written (-version 2 +now):\n%s", diff)
	}
	for version, want := range map[int][]*Object{1: objects[:len(version1Sessions())], 2: objects} {
		got, err := readFile(strings.NewReader(fileOf(t, version)), DefaultMaxTurnBytes)
		if diff := cmp.Diff(want, got, sameObject); err != nil || diff != "" {
			t.Errorf("version %d, read (-want +got):\n%s\n%v", version, diff, err)
		}
	}
}

// TestEveryByteCounts: a file with any other byte, or without its end, is an error.
func TestEveryByteCounts(t *testing.T) {
	whole := fileOf(t, 2)
	for i := range len(whole) {
		if _, err := readFile(strings.NewReader(whole[:i]), DefaultMaxTurnBytes); err == nil {
			t.Errorf("no error for the first %d of %d bytes", i, len(whole))
		}
		changed := []byte(whole)
		changed[i] ^= []byte{1, 0x20, 0x80}[i%3]
		if _, err := readFile(bytes.NewReader(changed), DefaultMaxTurnBytes); err == nil {
			t.Errorf("no error although byte %d is %q instead of %q", i, changed[i], whole[i])
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	whole, conversations := fileOf(t, 1), strings.SplitAfter(fileOf(t, 2), "\n")
	lines := strings.SplitAfter(whole, "\n")
	without := func(i int) string { return strings.Join(append(append([]string{}, lines[:i]...), lines[i+1:]...), "") }
	tests := map[string]struct {
		file    string
		max     int
		want    string
		damaged bool
	}{
		"empty":                       {file: "", want: "the file is no export of sessions"},
		"other JSON":                  {file: `{"kind":"List"}` + "\n", want: "the file is no export of sessions"},
		"no JSON":                     {file: "# Notes\n", want: "the file is no export of sessions"},
		"a later version":             {file: strings.Replace(whole, `"version":1`, `"version":3,"new":1`, 1), want: "the file has version 3, and this program reads versions up to 2"},
		"another version of the API":  {file: strings.Replace(whole, "sessions.catena.dev/v1alpha1", "sessions.catena.dev/v2", 1), want: `the file has sessions of "sessions.catena.dev/v2"`},
		"a path as namespace":         {file: strings.Replace(whole, `"team-a"`, `"../x"`, 1), want: `the header names an invalid namespace: "../x"`},
		"no trailer":                  {file: without(7), want: "it ends after line 7, without its trailer", damaged: true},
		"cut off":                     {file: whole[:len(whole)-5], want: "line 8: the file ends in the middle of it", damaged: true},
		"a session is missing":        {file: without(3), want: "the SHA-256 in the trailer", damaged: true},
		"a parent is missing":         {file: without(1), want: "session resp.2: its digest does not match", damaged: true},
		"a session twice":             {file: lines[0] + lines[1] + lines[1], want: "line 3: session resp.1: the session is in the file twice", damaged: true},
		"a child before its parent":   {file: lines[0] + withoutDigest(t, lines[6]) + lines[1], want: "line 3: session resp.1: the session comes after its children", damaged: true},
		"more after the trailer":      {file: whole + "\n", want: "line 8: there is more after the trailer", damaged: true},
		"neither":                     {file: lines[0] + "{}\n", want: "line 2: it is neither an object nor the trailer", damaged: true},
		"both":                        {file: lines[0] + strings.Replace(lines[1], "{", `{"trailer":{"sessions":0,"sha256":""},`, 1), want: "line 2: it is neither", damaged: true},
		"an unknown field":            {file: lines[0] + strings.Replace(lines[1], `"name"`, `"owner":"x","name"`, 1), want: `line 2: unknown field "session.owner"`, damaged: true},
		"a field twice":               {file: lines[0] + strings.Replace(lines[1], `"name"`, `"name":"x","name"`, 1), want: `line 2: duplicate field "session.name"`, damaged: true},
		"a field twice in the spec":   {file: lines[0] + strings.Replace(lines[1], `"n":1`, `"n":1,"n":1`, 1), want: `line 2: session resp.1: unable to decode its spec: duplicate field "request.n"`},
		"no response ID":              {file: lines[0] + `{"session":{"name":"a","spec":{}}}` + "\n", want: "line 2: session a: its spec has no responseID"},
		"a path as name":              {file: lines[0] + `{"session":{"name":"../a","spec":{}}}` + "\n", want: `"../a" is not the name of a session`},
		"a later format":              {file: lines[0] + `{"session":{"name":"a","spec":{"responseID":"a","format":3}}}` + "\n", want: "its bodies are in format 3, and this program reads formats up to 2"},
		"bodies without a snapshot":   {file: lines[0] + `{"session":{"name":"a","spec":{"responseID":"a"},"bodies":{}}}` + "\n", want: "it has bodies, but spec.snapshot is absent"},
		"bodies of another snapshot":  {file: lines[0] + strings.Replace(lines[5], `"response":"eyJ`, `"response":"eyK`, 1), want: "its bodies do not match the SHA-256 in spec.snapshot"},
		"larger bodies than allowed":  {file: whole, max: 16, want: "bytes: at most 16 are allowed"},
		"a conversation in version 1": {file: lines[0] + conversations[9], want: "line 2: it is a conversation, in a file of version 1", damaged: true},
		"a session after conversations": {
			file: conversations[0] + conversations[9] + lines[1], want: "line 3: session resp.1: the session comes after a conversation", damaged: true,
		},
		"a conversation twice": {
			file: conversations[0] + conversations[9] + conversations[9], want: "conversation conv.3: the conversation is in the file twice", damaged: true,
		},
		"a summary without its conversation": {
			file: conversations[0] + conversations[10], want: "line 2: summary conv.1-0-2: its conversation is not in the file", damaged: true,
		},
		"a conversation without its last turn": {
			file: conversations[0] + conversations[7], want: "line 2: conversation conv.1: its digest does not match", damaged: true,
		},
		"a conversation on a cycle": {
			file: conversations[0] + strings.Replace(conversations[9], `"spec"`, `"cycle":true,"spec"`, 1), want: "only sessions can be on a cycle", damaged: true,
		},
		"a conversation that is being deleted": {
			file: conversations[0] + strings.Replace(conversations[9], "Active", "Deleting", 1), want: "the conversation is being deleted", damaged: true,
		},
		"a number as title": {
			file: conversations[0] + strings.Replace(conversations[9], `"state"`, `"title":1,"state"`, 1),
			want: "line 2: conversation conv.3: unable to decode its spec: a field has a value of another type",
		},
		"no conversation ID": {
			file: conversations[0] + `{"conversation":{"name":"conv.3","spec":{"conversationid":"conv_3"}}}` + "\n", want: "its spec has no conversationID",
		},
		"bodies of a conversation": {
			file: conversations[0] + strings.Replace(conversations[9], `"spec"`, `"bodies":{},"spec"`, 1), want: "it has bodies, but spec.snapshot is absent",
		},
		"a conversation is missing": {
			file: strings.Join(append(append([]string{}, conversations[:9]...), conversations[10:]...), ""), want: "the SHA-256 in the trailer", damaged: true,
		},
		"another number of conversations": {
			file: strings.Replace(fileOf(t, 2), `"conversations":3`, `"conversations":2`, 1),
			want: "the trailer is for 6 sessions, 2 conversations and 1 summaries, and there are 6, 3 and 1", damaged: true,
		},
		"a longer line than possible": {file: lines[0] + strings.Repeat(" ", maxLineBytes(8)+1), max: 8, want: "line 2: it has more than", damaged: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.max == 0 {
				tc.max = DefaultMaxTurnBytes
			}
			_, err := readFile(strings.NewReader(tc.file), tc.max)
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrDamaged) != tc.damaged {
				t.Errorf("got %v, want %q, damaged %t", err, tc.want, tc.damaged)
			}
		})
	}
}

// withoutDigest gives the line of a session the digest of a session without a parent in the file.
func withoutDigest(t *testing.T, text string) string {
	t.Helper()
	before, rest, _ := strings.Cut(text, `"digest":"`)
	spec, err := parse(sessionKind, []byte(between(before, `"spec":`)))
	if err != nil {
		t.Fatal(err)
	}
	alone := fold(digest{}, spec.content)
	return before + `"digest":"` + hex.EncodeToString(alone[:]) + rest[hex.EncodedLen(len(alone)):]
}

// between returns the JSON object after a key.
func between(text, key string) string {
	_, rest, _ := strings.Cut(text, key)
	return rest[:strings.LastIndex(rest, "}")+1]
}

func TestWriterRefuses(t *testing.T) {
	child := &Object{Name: "b", Spec: []byte(`{"responseID":"b","previousResponseID":"a"}`)}
	parent := &Object{Name: "a", Spec: []byte(`{"responseID":"a"}`)}
	w, err := NewWriter(io.Discard, header)
	if err == nil {
		err = w.Write(child)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(parent); err == nil {
		t.Error("no error for a parent after its child")
	}
	if _, err := NewWriter(io.Discard, Header{}); err == nil {
		t.Error("no error for an empty header")
	}
}

// TestDigest: the digest depends on the whole history, and neither on how the spec is written nor on where bodies are stored.
func TestDigest(t *testing.T) {
	digestOf := func(specs ...string) string {
		t.Helper()
		var sessions []*Object
		for _, spec := range specs {
			s := &Object{Spec: []byte(spec)}
			if s.parsed, _ = parse(sessionKind, s.Spec); s.parsed == nil {
				t.Fatalf("invalid spec %s", spec)
			}
			s.Name = v1alpha1.ObjectName(s.parsed.id)
			sessions = append(sessions, s)
		}
		writeFile(t, sessions...)
		return sessions[len(sessions)-1].Digest
	}
	const child = `{"responseID":"b","previousResponseID":"a"}`
	want := digestOf(`{"responseID":"a","request":{"x":"<","y":1}}`, child)
	tests := map[string]struct {
		parent string
		same   bool
	}{
		"the same":               {`{"responseID":"a","request":{"x":"<","y":1}}`, true},
		"written in another way": {`{ "request": {"y":1, "x":"\u003c"}, "responseID":"a"}`, true},
		"another value":          {`{"responseID":"a","request":{"x":"<","y":2}}`, false},
		"another number":         {`{"responseID":"a","request":{"x":"<","y":1.5}}`, false},
		"another field":          {`{"responseID":"a","request":{"x":"<","y":1},"later":true}`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := digestOf(tc.parent, child) == want; got != tc.same {
				t.Errorf("same digest: got %t, want %t", got, tc.same)
			}
		})
	}
	if digestOf(child) == want {
		t.Error("an orphan has the digest of a turn with a parent")
	}
	const there = `{"responseID":"a","snapshot":{"store":"Chunks","key":"k","parts":1,"sizeBytes":1,"storedBytes":2,"sha256":"3"}}`
	const moved = `{"responseID":"a","snapshot":{"store":"Blob","key":"l","parts":2,"sizeBytes":1,"storedBytes":3,"sha256":"3"}}`
	const other = `{"responseID":"a","snapshot":{"store":"Chunks","key":"k","parts":1,"sizeBytes":1,"storedBytes":2,"sha256":"4"}}`
	if digestOf(there) != digestOf(moved) || digestOf(there) == digestOf(other) {
		t.Error("the digest must depend on the SHA-256 of a snapshot, and not on where it is")
	}
}

// FuzzReader: whatever a file contains, what is read from it can be written and read again.
func FuzzReader(f *testing.F) {
	f.Add([]byte(fileOf(f, 1)))
	f.Add([]byte(fileOf(f, 2)))
	lines := strings.SplitAfter(fileOf(f, 2), "\n")
	for _, line := range lines[1:] {
		f.Add([]byte(lines[0] + line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sessions, _ := readFile(bytes.NewReader(data), 1<<10)
		again, err := readFile(strings.NewReader(writeFile(t, sessions...)), 1<<10)
		if diff := cmp.Diff(sessions, again, sameObject, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("(-before +after):\n%s\n%v", diff, err)
		}
	})
}

// TestTooDeep: of objects that are nested as deeply as Kubernetes allows, those that could not be read are not written.
func TestTooDeep(t *testing.T) {
	nested := func(id string, depth int) *Object { // depth counts the spec
		return &Object{Name: id, Spec: []byte(fmt.Sprintf(`{"responseID":%q,"responseStatus":"completed","request":{"input":%s%s}}`,
			id, strings.Repeat("[", depth-2), strings.Repeat("]", depth-2)))}
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(nested("a", 9_998)), w.Write(newTurn("b", "c"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(nested("c", 9_999)); !errors.Is(err, ErrTooDeep) {
		t.Errorf("got %v, want ErrTooDeep", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if read, err := readFile(&out, DefaultMaxTurnBytes); err != nil || len(read) != 2 {
		t.Errorf("read %d objects, %v", len(read), err)
	}
}

// FuzzSession: a session with any spec, name and bodies either cannot be written, or is read as it was written.
func FuzzSession(f *testing.F) {
	for _, s := range version1Sessions() {
		f.Add(s.Name, "note", []byte(s.Spec))
	}
	f.Fuzz(func(t *testing.T, name, note string, spec []byte) {
		var out bytes.Buffer
		w, err := NewWriter(&out, header)
		if err != nil {
			t.Fatal(err)
		}
		written := &Object{Name: name, Annotations: map[string]string{"note": strings.ToValidUTF8(note, "?")}, Spec: spec}
		if !utf8.Valid(spec) || w.Write(written) != nil {
			return
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		read, err := readFile(&out, 1<<10)
		if err != nil || len(read) != 1 || read[0].digest != written.digest || read[0].Annotations["note"] != written.Annotations["note"] {
			t.Errorf("wrote %+v, read %+v, %v", written, read, err)
		}
	})
}
