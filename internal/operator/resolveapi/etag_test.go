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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	prometheustest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store/driver"
)

// TestAnswerFormat: whatever changes the bytes of an answer, or its ETag, increases answerFormat. Then pin the new hash with the new version.
func TestAnswerFormat(t *testing.T) {
	pinned := map[int]string{1: "04f0587d6c92db9c7d6910bd87ba2ace04761797a2404894c57dcde3a032d7c6"}
	flat := func(request, response string) *chain.Items {
		items, err := chain.Flatten([]byte(request), []byte(response))
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	hash := sha256.New()
	for _, options := range []driver.ResolveOptions{
		{}, {Origins: true, Digests: true}, {Instructions: driver.InstructionsLast}, {Instructions: driver.InstructionsOmit, Order: driver.OrderDescending},
		{Limit: 2}, {Limit: 1, IncludeIncomplete: true, Order: driver.OrderDescending},
	} {
		h := makeHistory(flat(`{"instructions":"be brief","input":"hi"}`, `{"output":[{ "n" : 1.0 }]}`), flat("", ""),
			flat(`{"instructions":"é","input":[{"a":"\u003c"},{}]}`, `{"output":[]}`))
		a := makeAnswer(t, h, options)
		_, _ = fmt.Fprintf(hash, "%s %s", a.etag, encode(t, a))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != pinned[answerFormat] {
		t.Errorf("the answers of format %d have the hash %s, not %s: has answerFormat been increased?", answerFormat, got, pinned[answerFormat])
	}
}

// TestETagOptions: an option changes the ETag unless it cannot change the bytes of an answer.
func TestETagOptions(t *testing.T) {
	same := map[string]bool{"MaxDepth": true, "ContinueIncomplete": true, "Version": true, "Bodies": true} // the last is not a parameter
	other := driver.ResolveOptions{
		MaxDepth: new(9), ContinueIncomplete: true, Last: 2, IncludeIncomplete: true, Origins: true, Digests: true, Bodies: true, Instructions: driver.InstructionsOmit,
		Limit: 5, After: "x", Order: driver.OrderDescending, Version: "7",
	}
	h := makeHistory(testutil.FlattenTurn(t, "", `{"a":1}`))
	for field := range reflect.TypeFor[driver.ResolveOptions]().Fields() {
		options := driver.ResolveOptions{}
		value := reflect.ValueOf(other).FieldByIndex(field.Index)
		if value.IsZero() {
			t.Errorf("the option %s is not tested", field.Name)
		}
		reflect.ValueOf(&options).Elem().FieldByIndex(field.Index).Set(value)
		if equal := etagOf("team-a", h, options) == etagOf("team-a", h, driver.ResolveOptions{}); equal != same[field.Name] {
			t.Errorf("%s: the ETags are equal: %t", field.Name, equal)
		}
	}
	defaults := driver.ResolveOptions{Instructions: driver.InstructionsAll, Order: driver.OrderAscending}
	if etagOf("team-a", h, defaults) != etagOf("team-a", h, driver.ResolveOptions{}) {
		t.Error("explicit defaults change the ETag")
	}
}

// TestETagOfHistory: the ETag depends on everything that identifies a history.
func TestETagOfHistory(t *testing.T) {
	type history = resolve.Result
	all := map[string]string{}
	for name, tc := range map[string]struct {
		namespace string
		history   history
	}{
		"first":             {"team-a", history{Name: "resp.1", UID: "u1"}},
		"another namespace": {"team-b", history{Name: "resp.1", UID: "u1"}},
		"another name":      {"team-a", history{Name: "resp.2", UID: "u1"}},
		"another UID":       {"team-a", history{Name: "resp.1", UID: "u2"}},
		"another revision":  {"team-a", history{Name: "resp.1", UID: "u1", Revision: resolve.Revision{1}}},
		"of a conversation": {"team-a", history{Name: "resp.1", UID: "u1", Conversation: &resolve.Conversation{Name: "conv.1", UID: "u3"}}},
		"of another":        {"team-a", history{Name: "resp.1", UID: "u1", Conversation: &resolve.Conversation{Name: "conv.2", UID: "u3"}}},
		"created again":     {"team-a", history{Name: "resp.1", UID: "u1", Conversation: &resolve.Conversation{Name: "conv.1", UID: "u4"}}},
		"a hidden item": {"team-a", history{Name: "resp.1", UID: "u1", Conversation: &resolve.Conversation{
			Name: "conv.1", UID: "u3", Hidden: []driver.HiddenItem{{ResponseID: "resp_1", Number: 1}},
		}}},
	} {
		tag := etagOf(tc.namespace, &tc.history, driver.ResolveOptions{})
		if other, found := all[tag]; found {
			t.Errorf("%s and %s have the same ETag", name, other)
		}
		all[tag] = name
	}
}

// revisedStub is resolveStub for a history that changes with the revision, and which counts how often items are read.
func revisedStub(t testing.TB, revision, reads *int) ResolveFunc {
	stub := resolveStub(t)
	return func(ctx context.Context, namespace, name string, version uint64, query resolve.Query) (*resolve.Result, error) {
		h, err := stub(ctx, namespace, name, version, query)
		if err != nil {
			return nil, err
		}
		result := &resolve.Result{Name: h.Name, UID: h.UID, ResponseID: h.ResponseID, Revision: resolve.Revision{byte(*revision)}}
		if result.Unchanged = query.Unchanged != nil && query.Unchanged(result); !result.Unchanged {
			*reads++
			result.Turns = h.Turns
		}
		return result, nil
	}
}

// httpAnswer is an answer whose body has been read.
type httpAnswer struct {
	code   int
	header http.Header
	body   string
}

func (a httpAnswer) etag() string { return a.header.Get("ETag") }

// conditionalGet sends a request with headers.
func (ts *testServer) conditionalGet(t testing.TB, path string, header http.Header) httpAnswer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	req.Header.Set("Authorization", "Bearer alice")
	response, err := ts.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return httpAnswer{response.StatusCode, response.Header, string(body)}
}

func TestNotModified(t *testing.T) {
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	revision, reads := 1, 0
	ts := startServer(t, revisedStub(t, &revision, &reads))
	type header = http.Header
	first := ts.conditionalGet(t, inputItems+"resp_2", header{})
	tag := first.etag()
	if first.code != http.StatusOK || len(tag) < 40 || !strings.HasPrefix(tag, `"`) || first.body == "" {
		t.Fatalf("got %d with the ETag %q: %s", first.code, tag, first.body)
	}
	for name, tc := range map[string]struct {
		query     string
		header    header
		want      int
		wantReads int
		wantTag   bool
	}{
		"same":                {header: header{"If-None-Match": {tag}}, want: 304, wantTag: true},
		"weak":                {header: header{"If-None-Match": {"W/" + tag}}, want: 304, wantTag: true},
		"list":                {header: header{"If-None-Match": {`"a", "b"`, tag + `, "c"`}}, want: 304, wantTag: true},
		"JSON by name":        {header: header{"If-None-Match": {tag}, "Accept": {"application/json, */*"}}, want: 304, wantTag: true},
		"explicit defaults":   {query: "?order=asc&instructions=All&maxDepth=9&resourceVersion=1&origins=false", header: header{"If-None-Match": {tag}}, want: 304, wantTag: true},
		"any":                 {header: header{"If-None-Match": {"*"}}, want: 304, wantReads: 1, wantTag: true},
		"other":               {header: header{"If-None-Match": {`"a"`}}, want: 200, wantReads: 1, wantTag: true},
		"malformed":           {header: header{"If-None-Match": {tag + " x"}}, want: 200, wantReads: 1, wantTag: true},
		"other options":       {query: "?order=desc", header: header{"If-None-Match": {tag}}, want: 200, wantReads: 1, wantTag: true},
		"page":                {query: "?limit=1", header: header{"If-None-Match": {tag}}, want: 200, wantReads: 1, wantTag: true},
		"table":               {header: header{"If-None-Match": {tag}, "Accept": {asTable}}, want: 200, wantReads: 1},
		"table, any":          {header: header{"If-None-Match": {"*"}, "Accept": {asTable + ",application/json"}}, want: 200, wantReads: 1},
		"unknown table":       {header: header{"If-None-Match": {tag}, "Accept": {strings.Replace(asTable, "v1", "v9", 1) + ",application/json"}}, want: 304, wantTag: true},
		"older table":         {header: header{"If-None-Match": {tag}, "Accept": {strings.Replace(asTable, "v1", "v1beta1", 1)}}, want: 200, wantReads: 1},
		"metadata":            {header: header{"If-None-Match": {tag}, "Accept": {"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}}, want: 200, wantReads: 1},
		"error":               {query: "?maxDepth=1", header: header{"If-None-Match": {tag}}, want: 422},
		"error, any":          {query: "?maxDepth=1", header: header{"If-None-Match": {"*"}}, want: 422},
		"bad parameter":       {query: "?maxDepth=x", header: header{"If-None-Match": {"*"}}, want: 400},
		"bad cursor, any":     {query: "?limit=1&after=x", header: header{"If-None-Match": {"*"}}, want: 400, wantReads: 1},
		"only unknown table":  {header: header{"If-None-Match": {tag}, "Accept": {strings.Replace(asTable, "v1", "v9", 1)}}, want: 406},
		"not acceptable":      {header: header{"If-None-Match": {tag}, "Accept": {"application/yaml"}}, want: 406},
		"condition of tokens": {header: header{"If-None-Match": {strings.Trim(tag, `"`)}}, want: 200, wantReads: 1, wantTag: true},
	} {
		t.Run(name, func(t *testing.T) {
			reads = 0
			counted, bytes := prometheustest.ToFloat64(requestsTotal.WithLabelValues("not_modified")), prometheustest.ToFloat64(bytesTotal)
			got := ts.conditionalGet(t, inputItems+"resp_2"+tc.query, tc.header)
			if got.code != tc.want || reads != tc.wantReads {
				t.Fatalf("got %d after %d reads, want %d after %d: %s", got.code, reads, tc.want, tc.wantReads, got.body)
			}
			if found := got.etag() != ""; found != tc.wantTag {
				t.Errorf("got the ETag %q, want one: %t", got.etag(), tc.wantTag)
			}
			if control := got.header.Values("Cache-Control"); len(control) != 1 || control[0] != "no-cache, private" {
				t.Errorf("got Cache-Control %q", control)
			}
			counted = prometheustest.ToFloat64(requestsTotal.WithLabelValues("not_modified")) - counted
			if tc.want != http.StatusNotModified {
				if counted != 0 {
					t.Error("it is counted as not modified")
				}
				return
			}
			if got.body != "" || got.header.Get("Content-Type") != "" || got.etag() != tag || prometheustest.ToFloat64(bytesTotal) != bytes {
				t.Errorf("got %v %q, want only the ETag %s", got.header, got.body, tag)
			}
			if counted != 1 {
				t.Errorf("it is counted %v times as not modified", counted)
			}
		})
	}
	revision = 2
	second := ts.conditionalGet(t, inputItems+"resp_2", header{"If-None-Match": {tag}})
	if second.code != http.StatusOK || second.etag() == tag || second.body == "" {
		t.Errorf("after a change: got %d with the ETag %q", second.code, second.etag())
	}
	paged := ts.conditionalGet(t, inputItems+"resp_2?limit=1&origins=true", header{})
	if got := ts.conditionalGet(t, inputItems+"resp_2?origins=true&limit=1", header{"If-None-Match": {paged.etag()}}); got.code != http.StatusNotModified {
		t.Errorf("a page: got %d, want 304", got.code)
	}
	if got := ts.conditionalGet(t, sessionVerdicts, header{"If-None-Match": {"*"}}); got.code != http.StatusOK || got.etag() != "" {
		t.Errorf("verdicts: got %d with the ETag %q", got.code, got.etag())
	}
}
