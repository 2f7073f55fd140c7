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

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// ifNoneMatch gets input items unless the client has them already.
func (a api) ifNoneMatch(ctx context.Context, path, accept, tags string) (httpResponse, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, http.NoBody)
	if err != nil {
		return httpResponse{}, err
	}
	request.Header.Set("If-None-Match", tags)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return httpResponse{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return httpResponse{response.StatusCode, response.Header, body}, err
}

func (r httpResponse) etag() string { return r.header.Get("ETag") }

// TestETag: through the kube-apiserver, and from each of two replicas, the same answer has the same ETag, and is sent only to clients that do not
// have it.
func TestETag(t *testing.T) {
	replicas := startPair(t)
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 3)
	sources := []api{aggregated(t), direct(t, env.Config, replicas.operators[0]), direct(t, env.Config, replicas.operators[1])}
	conditional := func(a api, query, accept, tags string) httpResponse {
		t.Helper()
		response, err := a.ifNoneMatch(t.Context(), itemsPath(namespace, ids[2], query), accept, tags)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	version, seen := "", map[string]string{}
	check := func(after string) {
		t.Helper()
		for _, query := range []string{"", "order=desc", "instructions=Omit", "limit=2", "origins=true", "digests=true"} {
			atLeast := query + "&resourceVersion=" + version
			first := sources[0].resolve(t, namespace, ids[2], atLeast)
			if other, found := seen[first.etag()]; first.code != http.StatusOK || first.etag() == "" || found {
				t.Fatalf("%q after %s: got %d with the ETag %q, which is that of %s", query, after, first.code, first.etag(), other)
			}
			seen[first.etag()] = query + " after " + after
			for i, a := range sources {
				same := a.resolve(t, namespace, ids[2], atLeast)
				if same.etag() != first.etag() || string(same.body) != string(first.body) {
					t.Errorf("%q after %s: source %d has the ETag %s, not %s, and the same body: %t", query, after, i, same.etag(), first.etag(), string(same.body) == string(first.body))
				}
				unchanged := conditional(a, atLeast, "", `"other", W/`+first.etag())
				if unchanged.code != http.StatusNotModified || unchanged.etag() != first.etag() || len(unchanged.body) > 0 {
					t.Errorf("%q after %s: source %d answers %d with the ETag %q and %d bytes, want 304", query, after, i, unchanged.code, unchanged.etag(), len(unchanged.body))
				}
			}
		}
	}
	check("nothing")
	before := sources[0].resolve(t, namespace, ids[2], "")
	testsession.WaitForReason(t, env.Client, namespace, ids[2], v1alpha1.ReasonResolved)
	if after := sources[0].resolve(t, namespace, ids[2], ""); after.etag() != before.etag() {
		t.Error("a status has changed the ETag")
	}
	for _, id := range ids {
		version = patchSpec(t, namespace, id, `{"response":{"output":[`+testutil.AssistantMessage("another answer of "+id)+`]}}`).ResourceVersion
		if changed := conditional(sources[0], "resourceVersion="+version, "", before.etag()); changed.code != http.StatusOK || changed.etag() == before.etag() {
			t.Errorf("after an overwrite of %s: got %d with the ETag %s", id, changed.code, changed.etag())
		}
		check("an overwrite of " + id)
	}
	current := sources[0].resolve(t, namespace, ids[2], "")
	for _, control := range append(current.header.Values("Cache-Control"), current.header.Get("Cache-Control")) { // the kube-apiserver adds its own
		if control != "no-cache, private" {
			t.Errorf("got Cache-Control %q", control)
		}
	}
	if whole := conditional(sources[0], "", "", "*"); whole.code != http.StatusNotModified {
		t.Errorf("any tag: got %d, want 304", whole.code)
	}
	const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	if table := conditional(sources[0], "", asTable, current.etag()); table.code != http.StatusOK || table.etag() != "" || !strings.Contains(string(table.body), `"kind":"Table"`) {
		t.Errorf("a table: got %d with the ETag %q", table.code, table.etag())
	}
	if err := env.Client.Delete(t.Context(), testsession.Make(namespace, ids[0]).Obj(), client.PropagationPolicy("Orphan")); err != nil {
		t.Fatal(err)
	}
	testsession.WaitForReason(t, env.Client, namespace, ids[2], v1alpha1.ReasonParentNotFound)
	for i, a := range sources {
		testutil.Eventually(t, func(context.Context) error {
			if broken := conditional(a, "", "", "*, "+current.etag()); broken.code != http.StatusUnprocessableEntity {
				return fmt.Errorf("source %d answers %d for a broken chain, want 422", i, broken.code)
			}
			return nil
		})
	}
}

// TestETagsIdentifyAnswers: over random chains, overwrites, deletions and options, answers with the same ETag have the same bytes, and the same
// request has the same ETag until a turn of its chain changes.
func TestETagsIdentifyAnswers(t *testing.T) {
	namespace, a := env.NewNamespace(t), aggregated(t)
	rapid.Check(t, func(r *rapid.T) {
		f := forest{namespace: namespace, prefix: fmt.Sprintf("resp_%x_", rand.Uint64()), parents: map[string]string{}}
		bodies, tags := map[string]string{}, map[string]string{} // by ETag, and by request and state of its chain
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			f.change(t, r)
			for range 2 {
				id, query := rapid.SampledFrom(f.ids).Draw(r, "id"), f.query(r)
				response := a.resolve(t, namespace, id, query+"&resourceVersion="+f.version)
				if response.code != http.StatusOK {
					if response.etag() != "" {
						r.Fatalf("an error has an ETag: %s", response.body)
					}
					continue
				}
				tag, body := response.etag(), string(response.body)
				if same, found := bodies[tag]; found && same != body {
					r.Fatalf("two answers have the ETag %s:\n%s\n%s", tag, same, body)
				}
				bodies[tag] = body
				state := id + "?" + query + f.state(id)
				if before, found := tags[state]; found && before != tag || tag == "" {
					r.Fatalf("the ETag of %s was %q and is %q", state, before, tag)
				}
				tags[state] = tag
				again, err := a.ifNoneMatch(t.Context(), itemsPath(namespace, id, query), "", tag)
				if err != nil || again.code != http.StatusNotModified {
					r.Fatalf("got %d and %v, want 304", again.code, err)
				}
				if next := response.history(t).Next; next != "" {
					f.cursors = append(f.cursors, query+"&after="+url.QueryEscape(next))
				}
			}
		}
	})
}

// forest is a set of chains that changes at random.
type forest struct {
	namespace, prefix string
	ids               []string
	parents           map[string]string // of the turns that are stored
	changes           int
	changed           map[string]int // the number of the last change of a turn
	version           string
	cursors           []string // queries of next pages
}

// change creates, overwrites or deletes a turn.
func (f *forest) change(t *testing.T, r *rapid.T) {
	t.Helper()
	f.changes++
	if f.changed == nil {
		f.changed = map[string]int{}
	}
	kind := rapid.SampledFrom([]string{"create", "create", "overwrite", "delete"}).Draw(r, "kind")
	if len(f.parents) == 0 {
		kind = "create"
	}
	if kind == "create" {
		id := fmt.Sprint(f.prefix, len(f.ids))
		if missing := slices.DeleteFunc(slices.Clone(f.ids), func(id string) bool { _, found := f.parents[id]; return found }); len(missing) > 0 {
			id = rapid.SampledFrom(missing).Draw(r, "again")
		} else {
			f.ids = append(f.ids, id)
		}
		next := testsession.Make(f.namespace, id)
		next.Obj().Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true"}
		f.parents[id] = ""
		if i := slices.Index(f.ids, id); i > 0 && rapid.Bool().Draw(r, "child") {
			f.parents[id] = f.ids[i-1]
			next.After(f.parents[id])
		}
		f.changed[id], f.version = f.changes, next.Create(t, env.Client).ResourceVersion
		return
	}
	id := rapid.SampledFrom(sortedKeys(f.parents)).Draw(r, "changed")
	f.changed[id] = f.changes
	if kind == "overwrite" {
		text := rapid.SampledFrom([]string{"one", "two"}).Draw(r, "text")
		response, err := json.Marshal(map[string]any{"output": []any{map[string]any{"text": text, "n": f.changes % 2}}})
		if err != nil {
			t.Fatal(err)
		}
		f.version = patchSpec(t, f.namespace, id, `{"response":`+string(response)+`}`).ResourceVersion
		return
	}
	session := testsession.Make(f.namespace, id).Obj()
	if err := env.Client.Delete(t.Context(), session, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	delete(f.parents, id)
	// The version of a deletion is not returned, that of the next write is later.
	f.version = testsession.Make(f.namespace, fmt.Sprint(f.prefix, "later", f.changes)).Create(t, env.Client).ResourceVersion
}

// state identifies the state of the chain of a turn.
func (f *forest) state(id string) string {
	var state strings.Builder
	for ; id != ""; id = f.parents[id] {
		fmt.Fprintf(&state, " %s=%d", id, f.changed[id])
	}
	return state.String()
}

// query draws a query, possibly of a next page.
func (f *forest) query(r *rapid.T) string {
	if len(f.cursors) > 0 && rapid.Bool().Draw(r, "next page") {
		return rapid.SampledFrom(f.cursors).Draw(r, "cursor")
	}
	query := url.Values{}
	for _, parameter := range [][]string{
		{"order", "", "asc", "desc"}, {"instructions", "", "All", "Last", "Omit"}, {"limit", "", "1", "2", "1000"},
		{"origins", "", "true"}, {"digests", "", "true"}, {"includeIncomplete", "", "true"}, {"maxDepth", "", "50"},
	} {
		if value := rapid.SampledFrom(parameter[1:]).Draw(r, parameter[0]); value != "" {
			query.Set(parameter[0], value)
		}
	}
	return query.Encode()
}

func sortedKeys(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
