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

package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"pgregory.net/rapid"

	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/driver"
	"github.com/catena-dev/catena/store/memory"
	"github.com/catena-dev/catena/store/sqlite"
)

// paged is a driver that returns the histories and errors of a list, one after the other, and records the limits.
type paged struct {
	driver.Store
	pages  []page
	limits []int
}

type page struct {
	history store.History
	err     error
}

func (p *paged) Resolve(_ context.Context, _, _ string, options store.ResolveOptions) (*store.History, error) {
	p.limits = append(p.limits, options.Limit)
	next := p.pages[0]
	p.pages = p.pages[1:]
	return &next.history, next.err
}

// TestFindItemReads: the newest items are read first, and then the whole history.
func TestFindItemReads(t *testing.T) {
	const x = `{"id":"x"}`
	items := func(items ...json.RawMessage) store.History {
		return store.History{Items: items, Origins: []store.Origin{{ResponseID: "a", First: 8, Count: len(items)}}, Next: "next"}
	}
	other, whole := page{history: items([]byte(`{}`))}, page{history: items([]byte(`{}`))}
	whole.history.Next = ""
	broken := page{err: &store.Error{Code: store.CodeNotFound, ResponseID: "gone", PreviousResponseID: "b"}}
	older := page{history: store.History{Items: []json.RawMessage{[]byte(x)}}}
	found := page{history: items([]byte(`{}`), []byte(x), []byte(x))}
	surplus := page{history: items([]byte(`{}`))}
	surplus.history.Origins[0].Count = 2
	newest, all := []int{store.MaxLimit}, []int{store.MaxLimit, 0}
	for name, tc := range map[string]struct {
		pages   []page
		want    []int // the limits
		wantErr error
	}{
		"newest":           {[]page{found}, newest, nil},
		"older":            {[]page{other, found}, all, nil},
		"not there":        {[]page{other, whole}, all, store.ErrNotFound},
		"short, not there": {[]page{whole}, newest, store.ErrNotFound},
		"empty":            {[]page{{}}, newest, store.ErrNotFound},
		"deleted":          {[]page{other, broken}, all, store.ErrNotFound},
		"older operator":   {[]page{older}, newest, store.ErrUnsupported},
		"too many origins": {[]page{surplus}, newest, store.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			p := &paged{pages: tc.pages}
			item, err := store.New(p, driver.Options{}).FindItem(t.Context(), "b", "x", store.ResolveOptions{})
			if !errors.Is(err, tc.wantErr) || store.IsRetryable(err) {
				t.Errorf("got %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, p.limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(&store.Item{ResponseID: "a", Number: 7, JSON: []byte(x)}, item); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFindItemMetric: a search is one operation, whatever it reads.
func TestFindItemMetric(t *testing.T) {
	s := memory.New(memory.Options{})
	if _, err := s.FindItem(t.Context(), "", strings.Repeat("é", 2*store.MaxIDLength), store.ResolveOptions{}); !errors.Is(err, store.ErrNotFound) || len(err.Error()) > 3*store.MaxIDLength {
		t.Errorf("got %v, want ErrNotFound with a short text", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	for line, want := range map[string]int{`code="session.chain.not_found",operation="find_item"} 1`: 1, `code="ok",operation="resolve"} 0`: 1} {
		if got := strings.Count(answer.Body.String(), "catena_store_operation_seconds_count{"+line+"\n"); got != want {
			t.Errorf("%d lines %s, want %d:\n%s", got, line, want, answer.Body)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FindItem(t.Context(), "", "x", store.ResolveOptions{}); err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("a closed store returned %v", err)
	}
}

// TestBodiesMemory: the memory of bodies is counted before it is taken, beside that of the items.
func TestBodiesMemory(t *testing.T) {
	refused := errors.New("refused")
	for name, s := range localStores(t) {
		turn := &store.Session{
			ResponseID: "a", Status: store.StatusCompleted, Request: fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("x", 1<<20)),
			Metadata: fmt.Appendf(nil, `{"m":%q}`, strings.Repeat("x", 1<<20)),
		}
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		taken := func(options store.ResolveOptions, limit int64) (total int64, err error) {
			ctx := metered.With(t.Context(), func(bytes int64) error {
				if total += bytes; total > limit {
					return refused
				}
				return nil
			})
			_, err = s.Resolve(ctx, "a", options)
			return total, err
		}
		without, err := taken(store.ResolveOptions{}, 1<<30)
		with, err2 := taken(store.ResolveOptions{Bodies: true}, 1<<30)
		if err := errors.Join(err, err2); err != nil || with-without != int64(len(turn.Request)+len(turn.Metadata)) {
			t.Errorf("%s: %d bytes with bodies and %d without, error %v", name, with, without, err)
		}
		if _, err := taken(store.ResolveOptions{Bodies: true}, without); !errors.Is(err, refused) {
			t.Errorf("%s: got %v, want the error of the meter", name, err)
		}
	}
}

// localStores returns a store of each kind that needs no cluster.
func localStores(t *testing.T) map[string]*store.Store {
	t.Helper()
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "turns.db"), sqlite.Options{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return map[string]*store.Store{"memory": memory.New(memory.Options{Namespace: "default"}), "sqlite": file}
}

// TestHistoriesOfForests: in any forest, the sessions of a history are those that Get returns, and FindItem finds what a scan of the whole
// history finds, or each fails as Resolve does.
func TestHistoriesOfForests(t *testing.T) {
	stores, namespaces := localStores(t), 0
	ids := rapid.SampledFrom([]string{`"x"`, `"y"`, `"\u0078"`, `7`, `null`, `{"id":"x"}`, `"é"`, `"\u00e9"`, `""`, `"\\u0078"`})
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return fmt.Sprintf(`{"n":%d}`, rapid.IntRange(0, 9).Draw(t, "n"))
		case 1:
			return fmt.Sprintf(`{"id":%s,"x":[{"id":"y"}],"\u0069d":%s}`, ids.Draw(t, "first"), ids.Draw(t, "second"))
		}
		return fmt.Sprintf(`{"id": %s , "a":1}`, ids.Draw(t, "id"))
	}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		namespaces++
		turns := rapid.IntRange(1, 7).Draw(t, "turns")
		name := func(i int) string { return fmt.Sprintf("resp_%d", i) }
		for i := range turns {
			turn := &store.Session{
				ResponseID: name(i),
				Status:     rapid.SampledFrom([]string{"completed", "completed", "completed", "incomplete", "failed"}).Draw(t, "status"),
				Request:    fmt.Appendf(nil, `{"instructions":"i","input":[%s]}`, strings.Join(items.Draw(t, "input"), ",")),
				Response:   fmt.Appendf(nil, `{"output":[%s]}`, strings.Join(items.Draw(t, "output"), ",")),
			}
			if parent := rapid.IntRange(-1, turns).Draw(t, "parent"); parent >= 0 && parent != i {
				turn.PreviousResponseID = name(parent)
			}
			if rapid.Bool().Draw(t, "more") {
				turn.Metadata, turn.ConversationID = []byte(`{"m":1}`), "conv"
			}
			for kind, s := range stores {
				if err := s.InNamespace(fmt.Sprint(namespaces)).Save(t.Context(), turn, store.SaveOptions{}); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				turn.Version = ""
			}
		}
		options := store.ResolveOptions{
			MaxDepth: new(rapid.IntRange(0, turns+1).Draw(t, "depth")), IncludeIncomplete: rapid.Bool().Draw(t, "include"),
			ContinueIncomplete: rapid.Bool().Draw(t, "continue"),
		}
		for _, s := range stores {
			for i := range turns + 1 {
				checkHistory(t, s.InNamespace(fmt.Sprint(namespaces)), name(i), options)
			}
		}
	})
}

// checkHistory compares Resolve with bodies, and FindItem, with Resolve and Get.
func checkHistory(t *rapid.T, s *store.Store, id string, options store.ResolveOptions) {
	whole := options
	whole.Instructions, whole.Order, whole.Origins = store.InstructionsOmit, store.OrderDescending, true
	want, wantErr := s.Resolve(t.Context(), id, whole)
	whole.Bodies = true
	got, err := s.Resolve(t.Context(), id, whole)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%s with bodies: got %v, want %v", id, err, wantErr)
	}
	for _, itemID := range []string{"x", "y", "é", `\u0078`, "absent"} {
		item, err := s.FindItem(t.Context(), id, itemID, options)
		switch wantItem := scan(t, want, itemID); {
		case wantErr != nil:
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("item %q of %s: got %v, want %v", itemID, id, err, wantErr)
			}
		case wantItem == nil:
			if !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("item %q of %s: got %+v and %v, want ErrNotFound", itemID, id, item, err)
			}
		case err != nil || !cmp.Equal(wantItem, item):
			t.Fatalf("item %q of %s: error %v (-want +got):\n%s", itemID, id, err, cmp.Diff(wantItem, item))
		}
	}
	if wantErr != nil {
		return
	}
	for _, turn := range want.Turns {
		session, err := s.Get(t.Context(), turn)
		if err != nil {
			t.Fatal(err)
		}
		want.Sessions = append(want.Sessions, session)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s with bodies (-want +got):\n%s", id, diff)
	}
}

// scan returns the first item of a history with a string as its ID, or nil.
func scan(t *rapid.T, h *store.History, itemID string) *store.Item {
	if h == nil {
		return nil
	}
	next := 0
	for _, origin := range h.Origins {
		for i := range origin.Count {
			var item map[string]any
			if err := json.Unmarshal(h.Items[next], &item); err != nil {
				t.Fatal(err)
			}
			if item["id"] == itemID {
				return &store.Item{ResponseID: origin.ResponseID, Number: origin.First - i, JSON: h.Items[next]}
			}
			next++
		}
	}
	return nil
}
