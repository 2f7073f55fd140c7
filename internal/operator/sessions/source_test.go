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

package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/testutil"
)

// serve returns a source whose requests a handler answers, and which waits for data for up to the timeout.
func serve(t *testing.T, timeout time.Duration, handler http.HandlerFunc) *source {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := kubeclient.New(silence.Limit(&rest.Config{Host: server.URL}, timeout))
	if err != nil {
		t.Fatal(err)
	}
	return &source{client: client}
}

// TestWatch: each event is parsed separately, whatever its object contains.
func TestWatch(t *testing.T) {
	const deep = 20_000
	stream := []string{
		`{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"resp.1","resourceVersion":"1"},"spec":{"responseID":"resp_1","responseStatus":"completed"}}}`,
		``,
		`{"type":"MODIFIED","object":{"metadata":{"namespace":"ns","name":"resp.2","resourceVersion":"2"},"spec":{"responseID":"resp_2","responseStatus":"completed","metadata":` +
			strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep) + `}}}`,
		`{"type":"DELETED","object":{"metadata":{"namespace":"ns","name":"resp.3","resourceVersion":"3"},"spec":{"responseID":"resp_3","responseStatus":"completed","createdAt":"2026-01-01t00:00:00z"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}`,
	}
	s := serve(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Join(stream, "\n")+"\n")
	})
	watcher, err := s.watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	want := []struct {
		kind watch.EventType
		turn chain.Turn
	}{
		{watch.Added, chain.Turn{ID: "resp_1", Status: "completed"}},
		{watch.Modified, chain.Turn{ID: "resp_2", Status: "completed"}},
		{watch.Deleted, chain.Turn{ID: "resp_3", Status: "completed", Unreadable: true}},
	}
	for _, want := range want {
		event := <-watcher.ResultChan()
		got, ok := event.Object.(*item)
		if event.Type != want.kind || !ok {
			t.Fatalf("got %s with a %T, want %s", event.Type, event.Object, want.kind)
		}
		if diff := cmp.Diff(want.turn, got.record.Turn); diff != "" {
			t.Errorf("turn (-want +got):\n%s", diff)
		}
	}
	bookmark := (<-watcher.ResultChan()).Object.(*item)
	if bookmark.ResourceVersion != "4" || bookmark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("got the bookmark %+v", bookmark.ObjectMeta)
	}
	if status, ok := (<-watcher.ResultChan()).Object.(*metav1.Status); !ok || status.Code != http.StatusGone {
		t.Errorf("got %+v, want the status", status)
	}
	if event, open := <-watcher.ResultChan(); open {
		t.Errorf("unexpected event %+v after the end of the stream", event)
	}
}

// TestItemsAreKept: the items of a turn are passed on when it is saved, but not when it is listed or deleted, or if only its status
// has changed.
func TestItemsAreKept(t *testing.T) {
	event := func(kind watch.EventType, id string, generation int) string {
		return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"namespace":"ns","name":%q,"uid":"u","generation":%d},"spec":{"responseID":%q,`+
			`"responseStatus":"completed","request":{"input":[{"id":%q}]}}}}`, kind, v1alpha1.ObjectName(id), generation, id, id)
	}
	stream := []string{
		event(watch.Added, "resp_listed", 1),
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		event(watch.Added, "resp_created", 1),
		event(watch.Modified, "resp_known", 1),
		event(watch.Modified, "resp_known", 2),
		event(watch.Deleted, "resp_deleted", 1),
	}
	s := serve(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Join(stream, "\n")+"\n")
	})
	s.known = func(_, name string) *Record {
		if name == "resp.known" {
			return &Record{Object: Object{UID: NewUID("u"), Generation: 1}}
		}
		return nil
	}
	var got []string
	s.keep = func(r *Record, items *chain.Items) {
		got = append(got, fmt.Sprintf("%s %d %s", r.Name, r.Generation, items.List))
	}
	watcher, err := s.watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for range watcher.ResultChan() {
	}
	want := []string{`resp.created 1 {"id":"resp_created"}`, `resp.known 2 {"id":"resp_known"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

// TestList: one page of a list, with an object that Go cannot decode.
func TestList(t *testing.T) {
	s := serve(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"kind":"ResponseSessionList","metadata":{"resourceVersion":"7","continue":"next"},"items":[`+
			`{"metadata":{"namespace":"ns","name":"resp.1"},"spec":{"responseID":"resp_1","completedAt":5}},`+
			`{"metadata":{"namespace":"ns","name":"resp.2"},"spec":{"responseID":"resp_2"}}]}`)
	})
	got, err := s.list(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list := got.(*metav1.List)
	if list.ResourceVersion != "7" || list.Continue != "next" || len(list.Items) != 2 {
		t.Fatalf("unexpected list %+v", list)
	}
	for i, want := range []string{"`spec.completedAt` is not an RFC 3339 time", ""} {
		if problem := list.Items[i].Object.(*item).record.Problem(); problem != want {
			t.Errorf("item %d has the problem %q, want %q", i, problem, want)
		}
	}
}

// TestListedIDsAreShared: in a list, however it is requested, the ID of a turn and the reference of its child to it are one string,
// whichever comes first. What follows a list keeps none of its strings.
func TestListedIDsAreShared(t *testing.T) {
	turn := func(id, previous string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"responseID":%q,"previousResponseID":%q}}`, v1alpha1.ObjectName(id), id, previous)
	}
	turns := []string{turn("resp_1", "resp_2"), turn("resp_2", "resp_3"), turn("resp_3", "")}
	s := serve(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(turns, ","))
			return
		}
		for _, turn := range turns {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", turn)
		}
		_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", turn("resp_4", "resp_3"))
	})
	list, err := s.list(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var listed, watched []*Record
	for _, object := range list.(*metav1.List).Items {
		listed = append(listed, object.Object.(*item).record)
	}
	watcher, err := s.watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Added {
			watched = append(watched, event.Object.(*item).record)
		}
	}
	shares := func(child, parent *Record) bool {
		return unsafe.StringData(child.Turn.Previous) == unsafe.StringData(parent.Turn.ID)
	}
	for name, records := range map[string][]*Record{"list": listed, "watch": watched} {
		if !shares(records[0], records[1]) || !shares(records[1], records[2]) {
			t.Errorf("%s: turns have their own copies of their parents' IDs", name)
		}
	}
	if shares(watched[3], watched[2]) {
		t.Error("strings of the list are kept after it")
	}
}

// TestSilence: a list or watch fails if the server accepts the request and then sends nothing, or stops sending.
func TestSilence(t *testing.T) {
	for name, start := range map[string]string{"from the start": "", "within an event": `{"type":"ADD`, "after an event": "\n"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, 20*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(w, start)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			if _, err := s.list(t.Context(), metav1.ListOptions{}); !errors.Is(err, silence.ErrSilent) {
				t.Errorf("list: %v, want ErrSilent", err)
			}
			watcher, err := s.watch(t.Context(), metav1.ListOptions{})
			if errors.Is(err, silence.ErrSilent) {
				return // on a loaded machine, even the headers can arrive too late
			}
			if err != nil {
				t.Fatal(err)
			}
			for event := range watcher.ResultChan() {
				if event.Type != watch.Error {
					t.Errorf("unexpected event %+v", event)
				}
			}
		})
	}
	s := serve(t, 20*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if _, err := s.watch(t.Context(), metav1.ListOptions{}); !errors.Is(err, silence.ErrSilent) {
		t.Errorf("no response: %v, want ErrSilent", err)
	}
}

// TestRunAfterSilence: the view restarts its watch until the server sends something.
func TestRunAfterSilence(t *testing.T) {
	var requests atomic.Int32
	s := serve(t, 20*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 2 {
			_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	v := NewView(chain.DefaultMaxDepth, 20*time.Millisecond)
	if !v.IsStale() {
		t.Error("a view that has received nothing is not stale")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx, s.client) }()
	testutil.Eventually(t, func(context.Context) error {
		if !v.HasSynced() {
			return fmt.Errorf("not synced after %d requests", requests.Load())
		}
		return nil
	})
	cancel()
	<-done
}

// TestLateWatch: a view is stale while its watch is never silent, but delivers what happened longer ago than the timeout.
func TestLateWatch(t *testing.T) {
	const timeout = 500 * time.Millisecond
	var version atomic.Uint64 // of the bookmarks that the watch delivers
	version.Store(5)
	read := make(chan struct{})
	begin := sync.OnceFunc(func() { close(read) })
	s := serve(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("fieldSelector") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[]}`)
			begin()
			return
		}
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for r.Context().Err() == nil {
			_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", version.Load())
			_ = http.NewResponseController(w).Flush()
			<-ticker.C
		}
	})
	v := NewView(chain.DefaultMaxDepth, timeout)
	v.age.Interval = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx, s.client) }()
	defer func() { cancel(); <-done }()
	want := func(stale bool) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			if got := v.IsStale(); got != stale {
				return fmt.Errorf("stale: %t, the age is %s", got, v.Age())
			}
			return nil
		})
	}
	<-read
	began := time.Now()
	want(false)
	testutil.Eventually(t, func(context.Context) error {
		if passed := time.Since(began); passed < 2*timeout {
			return fmt.Errorf("only %s have passed", passed)
		}
		return nil
	})
	version.Store(6)
	want(true)
	version.Store(10)
	want(false)
}

// TestEventsOfBusyNamespace: while a namespace is being changed, which takes long if many verdicts change, the events of others are
// decoded and applied, even after events of that namespace.
func TestEventsOfBusyNamespace(t *testing.T) {
	events := make(chan string)
	s := serve(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case event := <-events:
				_, _ = fmt.Fprintln(w, event)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	v := NewView(chain.DefaultMaxDepth, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx, s.client) }()
	send := func(o *v1alpha1.ResponseSession) { events <- `{"type":"MODIFIED","object":` + encoded(o).Raw + `}` }
	applied := func(namespace string, version uint64) {
		t.Helper()
		testutil.Eventually(t, func(context.Context) error {
			if r, found := v.Get(namespace, "t1"); !found || r.ResourceVersion != version {
				return fmt.Errorf("%s: the event with version %d was not applied", namespace, version)
			}
			return nil
		})
	}
	send(in("busy", object("t1", "", 1)))
	events <- `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	applied("busy", 1)
	busy := v.lock("busy")
	send(in("busy", object("t1", "", 3)))
	send(in("busy", object("t1", "", 4)))
	send(object("t1", "", 5))
	applied("ns", 5)
	v.unlock(busy)
	applied("busy", 4)
	cancel()
	<-done
}
