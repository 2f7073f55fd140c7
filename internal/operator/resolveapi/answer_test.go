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

package resolveapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	resolvev1alpha1 "github.com/catena-dev/catena/api/resolve/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

func makeAnswer(t testing.TB, h *resolve.Result, o driver.ResolveOptions) *answer {
	t.Helper()
	a, err := newAnswer("team-a", h, o)
	if err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	return a
}

// encode returns the body of an answer.
func encode(t testing.TB, a *answer) []byte {
	t.Helper()
	var body bytes.Buffer
	stream := &stream{answer: a}
	if n, err := io.Copy(&body, stream); err != nil || n != int64(body.Len()) {
		t.Fatalf("%d bytes written, %d counted, error %v", body.Len(), n, err)
	}
	return body.Bytes()
}

func TestAnswerJSON(t *testing.T) {
	odd := makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`))
	odd.ResponseID, odd.Turns[0].ResponseID, odd.Name = `é"\<>`+"\u2028\x01", `é"\<>`+"\u2028\x01", "sha256.abc"
	last := makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`))
	last.Path = []*sessions.Record{{Turn: chain.Turn{Previous: "resp_0"}}}
	tests := map[string]struct {
		history *resolve.Result
		options driver.ResolveOptions
	}{
		"no items":        {history: makeHistory(testutil.FlattenTurn(t, ""))},
		"one turn":        {history: makeHistory(testutil.FlattenTurn(t, "be brief", `{"type":"message"}`))},
		"several turns":   {history: makeHistory(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`), testutil.FlattenTurn(t, ""), testutil.FlattenTurn(t, "", `{"c":1}`))},
		"a page":          {history: makeHistory(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`)), options: driver.ResolveOptions{Limit: 1}},
		"the last turn":   {history: last},
		"odd names":       {history: odd},
		"a conversation":  {history: makeConversation(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`), testutil.FlattenTurn(t, "", `{"c":1}`))},
		"part of it":      {history: makeConversation(testutil.FlattenTurn(t, "be brief", `{"a":1}`, `{"b":1}`)), options: driver.ResolveOptions{Limit: 1}},
		"without turns":   {history: makeConversation()},
		"a whole page":    {history: makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`)), options: driver.ResolveOptions{Limit: 1, Origins: true, Digests: true}},
		"hidden, origins": {history: makeConversation(testutil.FlattenTurn(t, "", `{"a":1}`, `{"b":1}`)), options: driver.ResolveOptions{Origins: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := makeAnswer(t, tc.history, tc.options)
			want := wantAnswer(a)
			got := newObject("", &resolve.Result{Conversation: tc.history.Conversation})
			body := encode(t, a)
			if err := json.Unmarshal(body, got); err != nil {
				t.Fatalf("Unable to read %s: %v", body, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Unexpected answer (-want,+got):\n%s", diff)
			}
			marshaled, err := json.Marshal(want)
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if diff := cmp.Diff(decode(t, marshaled), decode(t, body)); diff != "" {
				t.Errorf("Different from encoding/json (-want,+got):\n%s", diff)
			}
		})
	}
}

// wantAnswer returns the object that an answer should be.
func wantAnswer(a *answer) object {
	h := a.history
	items := resolvev1alpha1.HistoryItems{
		Turns: []string{}, Input: []runtime.RawExtension{}, PreviousResponseID: h.PreviousResponseID(), Digests: a.Digests(), Next: a.next(),
	}
	for _, turn := range h.Turns {
		items.Turns = append(items.Turns, turn.ResponseID)
	}
	for p := range a.Ranges() {
		for i := p.From; i < p.To; i++ {
			items.Input = append(items.Input, runtime.RawExtension{Raw: a.Entry(p.Turn, i)})
		}
	}
	for _, origin := range a.Origins() {
		items.Origins = append(items.Origins, resolvev1alpha1.ItemsOrigin{
			ResponseID: origin.ResponseID, First: int32(origin.First), Count: int32(origin.Count),
		})
	}
	switch o := a.object.DeepCopyObject().(type) {
	case *resolvev1alpha1.InputItems:
		o.ResponseID, o.HistoryItems = h.ResponseID, items
		return o
	case *resolvev1alpha1.ConversationItems:
		o.ConversationID, o.ResponseID, o.HistoryItems = h.Conversation.ID, h.ResponseID, items
		return o
	}
	return nil
}

func TestAnswerBadCursor(t *testing.T) {
	o := driver.ResolveOptions{Limit: 1, After: "AAAA"}
	_, err := newAnswer("team-a", makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`)), o)
	var want error = badRequest(`query parameter "after" is invalid: it is not a cursor of this API`)
	if !errors.Is(err, want) {
		t.Errorf("Unexpected error: want %q, got %q", want, err)
	}
}

func decode(t *testing.T, b []byte) (value any) {
	t.Helper()
	if err := json.Unmarshal(b, &value); err != nil {
		t.Fatalf("Unable to read %s: %v", b, err)
	}
	return value
}

func TestAnswerItemsAreVerbatim(t *testing.T) {
	items := `{ "z" : 1.0, "a":12345678901234567890,"html":"<b>&é\u00e9" }`
	a := makeAnswer(t, makeHistory(testutil.FlattenTurn(t, "", items)), driver.ResolveOptions{})
	if body := string(encode(t, a)); !strings.Contains(body, `"input":[`+items+`]`) {
		t.Errorf("The item %s is not verbatim in %s", items, body)
	}
}

func TestInputStream(t *testing.T) {
	a := makeAnswer(t, makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`)), driver.ResolveOptions{})
	var want resolvev1alpha1.InputItems
	if err := json.Unmarshal(encode(t, a), &want); err != nil {
		t.Fatalf("Unexpected error: %v", err)
	}
	tests := map[string]struct {
		accept   string
		wantType string
	}{
		"no media type":      {wantType: runtime.ContentTypeJSON},
		"any media type":     {accept: "*/*", wantType: runtime.ContentTypeJSON},
		"JSON":               {accept: "application/json", wantType: runtime.ContentTypeJSON},
		"YAML":               {accept: "application/yaml"},
		"YAML preferred":     {accept: "application/json;q=0.5,application/yaml", wantType: runtime.ContentTypeJSON},
		"protobuf or JSON":   {accept: "application/vnd.kubernetes.protobuf,application/json", wantType: runtime.ContentTypeJSON},
		"protobuf only":      {accept: "application/vnd.kubernetes.protobuf"},
		"a table or JSON":    {accept: "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", wantType: runtime.ContentTypeJSON},
		"unknown media type": {accept: "image/png"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stream, _, contentType, err := a.InputStream(t.Context(), "", tc.accept)
			if tc.wantType == "" {
				if apierrors.ReasonForError(err) != "NotAcceptable" {
					t.Errorf("Unexpected error: want NotAcceptable, got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			if contentType != tc.wantType {
				t.Errorf("Unexpected content type: want %s, got %s", tc.wantType, contentType)
			}
			var body bytes.Buffer
			if _, err := io.Copy(&body, stream); err != nil {
				t.Fatalf("Unexpected error: %v", err)
			}
			var got resolvev1alpha1.InputItems
			if err := json.Unmarshal(body.Bytes(), &got); err != nil {
				t.Fatalf("Unable to read %s: %v", body.Bytes(), err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Unexpected answer (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestTooLarge: a table that needs many times the memory of JSON is refused; JSON is not.
func TestTooLarge(t *testing.T) {
	items := strings.Repeat(`{"a":1},`, maxTableRows) + `{}`
	a := makeAnswer(t, makeHistory(testutil.FlattenTurn(t, "", items)), driver.ResolveOptions{})
	if _, _, _, err := a.InputStream(t.Context(), "", "application/json"); err != nil {
		t.Errorf("JSON: unexpected error: %v", err)
	}
	if _, err := (tableConvertor{}).ConvertToTable(t.Context(), a, nil); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("table: want RequestEntityTooLarge, got %v", err)
	}
	page := makeAnswer(t, makeHistory(testutil.FlattenTurn(t, "", items)), driver.ResolveOptions{Limit: resolvev1alpha1.MaxLimit})
	if _, err := (tableConvertor{}).ConvertToTable(t.Context(), page, nil); err != nil {
		t.Errorf("a page as a table: unexpected error: %v", err)
	}
}

// TestAnswerAllocations: the number of allocations does not depend on the number of turns.
func TestAnswerAllocations(t *testing.T) {
	allocations := func(turns int) float64 {
		var flat []*chain.Items
		for range turns {
			flat = append(flat, testutil.FlattenTurn(t, "be brief", `{"a":1}`))
		}
		h, o := makeHistory(flat...), driver.ResolveOptions{}
		return testing.AllocsPerRun(100, func() { _, _ = makeAnswer(t, h, o).WriteTo(io.Discard) })
	}
	// The garbage collector and the race detector empty pools now and then, which costs some allocations in either run.
	const turns = 500
	if few, many := allocations(1), allocations(turns); many-few > turns/10 {
		t.Errorf("%d turns take %v allocations, one takes %v", turns, many, few)
	}
}

// TestAnswerMemory: the memory that an answer takes does not depend on the size of its items.
func TestAnswerMemory(t *testing.T) {
	item := `{"text":"` + strings.Repeat("x", 1<<20) + `"}`
	h, o := makeHistory(testutil.FlattenTurn(t, "", item, item, item, item)), driver.ResolveOptions{Order: driver.OrderDescending}
	got := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			stream, _, _, err := makeAnswer(t, h, o).InputStream(t.Context(), "", runtime.ContentTypeJSON)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, stream)
		}
	}).AllocedBytesPerOp()
	if got > writeBuffer {
		t.Errorf("The answer takes %d bytes, more than %d", got, writeBuffer)
	}
}

// TestAnswerClosed: a client that stops reading ends the goroutine that writes its response.
func TestAnswerClosed(t *testing.T) {
	a := makeAnswer(t, longHistory(t), driver.ResolveOptions{})
	r, w := io.Pipe()
	_ = r.Close()
	if _, err := a.WriteTo(w); err == nil {
		t.Error("The error of the writer was not returned")
	}
}

// longHistory has 64 turns of 4 KiB.
func longHistory(t testing.TB) *resolve.Result {
	item := `{"type":"message","role":"user","content":[{"type":"input_text","text":"` + strings.Repeat("x", 4<<10) + `"}]}`
	var turns []*chain.Items
	for range 64 {
		turns = append(turns, testutil.FlattenTurn(t, "", item))
	}
	return makeHistory(turns...)
}

func BenchmarkRender(b *testing.B) {
	h, o := longHistory(b), driver.ResolveOptions{}
	b.ReportAllocs()
	b.SetBytes(int64(len(encode(b, makeAnswer(b, h, o)))))
	for b.Loop() {
		_, _ = makeAnswer(b, h, o).WriteTo(io.Discard)
	}
}

// BenchmarkServe is a request from a client on the same machine, over TLS, with everything except the resolve itself.
func BenchmarkServe(b *testing.B) {
	klog.SetLogger(logr.Discard()) // the server's lines would be in the middle of the results
	h := longHistory(b)
	ts := startServer(b, func(context.Context, string, string, uint64, resolve.Query) (*resolve.Result, error) {
		return h, nil
	})
	b.ReportAllocs()
	for b.Loop() {
		if code, _, body := ts.get(b, inputItems+"resp_64", "alice", ""); code != 200 {
			b.Fatalf("Unexpected answer %d: %s", code, body)
		}
	}
}
