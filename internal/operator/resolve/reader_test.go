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

package resolve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/metered"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// TestCacheIsBounded reads more items than the cache holds.
func TestCacheIsBounded(t *testing.T) {
	const limit = 1 << 20
	f := newFixture(t)
	last := f.largeChain(24, limit/8)
	f.freeze()
	options := resolve.DefaultOptions()
	options.CacheBytes = limit
	reader := resolve.NewReader(f.client, chunks(f.client), options)
	resolver := resolve.New(f.view, reader, func(*sessions.Record) {}, options)
	for range 3 {
		history, err := resolver.Resolve(t.Context(), f.namespace, last, 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
		if err != nil {
			t.Fatal(err)
		}
		for _, turn := range history.Turns {
			if !strings.Contains(string(turn.Items.List), turn.ResponseID+"x") {
				t.Fatalf("turn %s has the items of another turn", turn.ResponseID)
			}
		}
		if size := reader.CachedBytes(); size > limit {
			t.Errorf("%d bytes are cached, more than %d", size, limit)
		}
	}
}

// largeChain saves a chain of turns with a number of bytes each, and returns the ID of the last one.
func (f *fixture) largeChain(turns, bytes int) (last string) {
	f.Helper()
	text := strings.Repeat("x", bytes)
	for i := range turns {
		id := fmt.Sprint("t", i)
		f.save(id, last, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(id + text) })
		last = id
	}
	return last
}

// TestCacheIsShared: a namespace that resolves more than the cache holds does not make the history of another one cold.
func TestCacheIsShared(t *testing.T) {
	const limit, turns = 64 << 10, 4
	greedy, modest := newFixture(t), newFixture(t)
	greedyLast, modestLast := greedy.largeChain(24, limit/8), modest.largeChain(turns, limit/16)
	modest.options.CacheBytes = limit
	var reads atomic.Int64
	modest.client = modest.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+modest.namespace+"/") {
			reads.Add(1)
		}
		return next.RoundTrip(r)
	})
	modest.freeze()
	query := func(f *fixture, id string) {
		t.Helper()
		history, err := modest.resolver.Resolve(t.Context(), f.namespace, id, 0, resolve.Query{WalkOptions: deep})
		if err != nil {
			t.Fatal(err)
		}
		history.Release()
	}
	query(modest, modestLast)
	for range 3 {
		query(greedy, greedyLast)
	}
	query(modest, modestLast)
	if got := reads.Load(); got != turns {
		t.Errorf("%d live reads of a history of %d turns that was resolved twice", got, turns)
	}
}

// TestMemoryIsBounded: a history that is too large is refused, and so is one that exceeds the available memory until others are
// released.
func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	text := strings.Repeat("x", 1000)
	for _, conversation := range []string{"t", "u"} {
		previous := ""
		for i := range 8 {
			id := fmt.Sprint(conversation, i)
			f.save(id, previous, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(text) })
			previous = id
		}
	}
	f.freeze()
	options := resolve.DefaultOptions()
	options.HistoryBytes, options.InFlightBytes = 6000, 24000
	reader := resolve.NewReader(f.client, chunks(f.client), options)
	resolver := resolve.New(f.view, reader, func(*sessions.Record) {}, options)
	query := func(id string) (*resolve.Result, error) {
		return resolver.Resolve(t.Context(), f.namespace, id, 0, resolve.Query{WalkOptions: chain.WalkOptions{MaxDepth: 64}})
	}
	for range 3 { // a failed query must release its memory
		if _, err := query("t7"); !errors.Is(err, resolve.ErrTooLarge) {
			t.Fatalf("error is %v, want ErrTooLarge", err)
		}
		first, err := query("t4")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := query("u4"); !errors.Is(err, resolve.ErrBusy) {
			t.Fatalf("error is %v, want ErrBusy", err)
		}
		first.Release()
		first.Release()
	}
}

// TestUnrelated404: a 404 that does not name the session, as when the API server does not serve its version, is an error, and
// not a turn that is missing.
func TestUnrelated404(t *testing.T) {
	f := newFixture(t)
	f.save("t1", "")
	f.freeze()
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader("404 page not found"))
			return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: body, Request: r}, nil
		})
	})
	elsewhere, err := kubeclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	f.reader.SetClient(elsewhere)
	for _, id := range []string{"t1", "T2"} { // only the first is in the view
		if answer := f.answerSince(1<<62, id, chain.WalkOptions{MaxDepth: 64}); !strings.Contains(answer, "unable to read session") {
			t.Errorf("%s: got %q, want an error", id, answer)
		}
	}
}

// TestReadsOfLostSnapshotsAreShared: to find out whether a session whose snapshot is lost has been changed is a live read, too. A namespace
// has as many of them in progress as of any others.
func TestReadsOfLostSnapshotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // to wait until no more reads start
		var started atomic.Int64
		proceed := make(chan struct{})
		client := clientOf(t, lostSession, func() {
			started.Add(1)
			<-proceed
		})
		options := resolve.DefaultOptions()
		options.LiveReads = 4
		reader := resolve.NewReader(client, chunks(client), options)
		var reads sync.WaitGroup
		for i := range 10 {
			record := sessions.NewRecord(gjson.Parse(lostSession(fmt.Sprint("lost", i))), nil)
			reads.Go(func() {
				if readable, err := reader.Readable(t.Context(), record); readable || err != nil {
					t.Errorf("got %t, %v, want a lost snapshot", readable, err)
				}
			})
		}
		synctest.Wait()
		if got, share := started.Load(), options.LiveReads/2; got != share {
			t.Errorf("%d reads are in progress, want the share of %d", got, share)
		}
		close(proceed)
		reads.Wait()
	})
}

// sessionWithSnapshot returns a session with a snapshot, and with more members.
func sessionWithSnapshot(name string, ref *v1alpha1.SnapshotReference, more string) string {
	snapshot, err := json.Marshal(ref)
	if err != nil {
		panic(err)
	}
	return `{"apiVersion":"sessions.catena.dev/v1alpha1","kind":"ResponseSession",` + metadataOf(name) + `,"spec":{"responseID":"` + name + `",` +
		`"responseStatus":"completed","snapshot":` + string(snapshot) + "}" + more + "}"
}

// lostSnapshot refers to a snapshot of a byte that is not stored.
var lostSnapshot = &v1alpha1.SnapshotReference{
	Store: v1alpha1.SnapshotStoreChunks, Key: strings.Repeat("a", 26), Parts: 1, SizeBytes: 1, StoredBytes: 1, SHA256: strings.Repeat("0", 64),
}

func lostSession(name string) string { return sessionWithSnapshot(name, lostSnapshot, "") }

func metadataOf(name string) string {
	uid := uuid.NewSHA1(uuid.Nil, []byte(name))
	return `"metadata":{"namespace":"greedy","name":"` + name + `","uid":"` + uid.String() + `","generation":1}`
}

// clientOf returns a client of an API server that has the session that object returns under each name. It calls onLook when it is asked whether
// a session is still the same.
func clientOf(t *testing.T, object func(name string) string, onLook func()) rest.Interface {
	t.Helper()
	client, err := kubeclient.New(&rest.Config{Host: "http://kube", Transport: transport(func(r *http.Request) (*http.Response, error) {
		name := path.Base(r.URL.Path)
		body := object(name)
		if r.Header.Get("Accept") == kubeclient.MetadataOnly {
			body = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",` + metadataOf(name) + `}`
			onLook()
		}
		header := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// processing is a store of snapshots that processes large data for each read.
type processing struct {
	snapshot.Store
	process func() error
}

func (p *processing) Name() string { return v1alpha1.SnapshotStoreChunks }

func (p *processing) Read(ctx context.Context, _ types.NamespacedName, _ string, _ int, _ int64) (io.Reader, error) {
	return nil, metered.Process(ctx, 1<<20, p.process)
}

// TestSnapshotsTakeTurns: the snapshots of one namespace are processed with half of the processors.
func TestSnapshotsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int64
		proceed, processed := make(chan struct{}), errors.New("processed")
		store := &processing{process: func() error {
			started.Add(1)
			<-proceed
			return processed
		}}
		reader := resolve.NewReader(clientOf(t, lostSession, func() {}), snapshot.Stores{store}, resolve.DefaultOptions())
		var reads sync.WaitGroup
		for i := range 4 + runtime.GOMAXPROCS(0) {
			record := sessions.NewRecord(gjson.Parse(lostSession(fmt.Sprint("lost", i))), nil)
			reads.Go(func() {
				if _, err := reader.Readable(t.Context(), record); !errors.Is(err, processed) {
					t.Errorf("got %v, want %v", err, processed)
				}
			})
		}
		synctest.Wait()
		if got, share := started.Load(), int64(max(2, runtime.GOMAXPROCS(0))/2); got != share {
			t.Errorf("%d snapshots are processed at once, want the share of %d", got, share)
		}
		close(proceed)
		reads.Wait()
	})
}

// gated is a store of snapshots in memory whose reads wait.
type gated struct {
	snapshot.Store
	data    []byte
	reads   atomic.Int64
	proceed chan struct{}
}

func (g *gated) Name() string { return v1alpha1.SnapshotStoreChunks }

func (g *gated) Write(_ context.Context, _ types.NamespacedName, _ string, encode func(io.Writer) error) (int, error) {
	var data bytes.Buffer
	err := encode(&data)
	g.data = data.Bytes()
	return 1, err
}

func (g *gated) Read(ctx context.Context, _ types.NamespacedName, _ string, _ int, _ int64) (io.Reader, error) {
	g.reads.Add(1)
	select {
	case <-g.proceed:
		return bytes.NewReader(g.data), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sharing has a session with a snapshot whose reads wait until proceed is closed.
type sharing struct {
	store  *gated
	client rest.Interface
	reader *resolve.Reader
	record *sessions.Record
}

// newSharing returns a session whose snapshot has about size bytes. More is added to its JSON. Call it outside a synctest bubble: the pools of
// compressors outlive the bubble and must not hold its channels.
func newSharing(t *testing.T, size int, more string) *sharing {
	t.Helper()
	store := &gated{proceed: make(chan struct{})}
	close(store.proceed)
	name := types.NamespacedName{Namespace: "greedy", Name: "t1"}
	ref, err := snapshot.Write(t.Context(), store, name, snapshot.Bodies{Response: output(strings.Repeat("x", size)).Raw})
	if err != nil {
		t.Fatal(err)
	}
	object := sessionWithSnapshot(name.Name, ref, more)
	s := &sharing{
		store: store, client: clientOf(t, func(string) string { return object }, func() {}), record: sessions.NewRecord(gjson.Parse(object), nil),
	}
	s.start()
	if err := s.request(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// start replaces the reader with a new one, and resets the count of reads.
func (s *sharing) start() {
	s.reader = resolve.NewReader(s.client, snapshot.Stores{s.store}, resolve.DefaultOptions())
	s.store.reads.Store(0)
}

// startGated is start for reads that wait until proceed is closed.
func (s *sharing) startGated() {
	s.store.proceed = make(chan struct{})
	s.start()
}

func (s *sharing) verify(ctx context.Context) error {
	readable, err := s.reader.Readable(ctx, s.record)
	if err == nil && !readable {
		err = errors.New("the snapshot is unreadable")
	}
	return err
}

func (s *sharing) request(ctx context.Context) error {
	_, items, err := s.reader.GetID(ctx, s.record.Namespace, s.record.Turn.ID)
	if err == nil && items == nil {
		err = errors.New("there are no items")
	}
	return err
}

// TestSnapshotIsReadOnce: a snapshot that is verified for the first time and requested meanwhile is read once, unless that costs others too much.
func TestSnapshotIsReadOnce(t *testing.T) {
	const judged = `,"status":{"observedGeneration":1,"conditions":[{"type":"ChainValid","status":"True","reason":"Resolved"}]}`
	const reported = `,"status":{"conditions":[{"type":"SnapshotReadable","status":"False","reason":"Unreadable","observedGeneration":1}]}`
	type use = func(*sharing, context.Context) error
	for name, tc := range map[string]struct {
		size        int
		more        string
		first, then use
		want        int64
	}{
		"verified first":         {1 << 10, "", (*sharing).verify, (*sharing).request, 1},
		"requested first":        {1 << 10, "", (*sharing).request, (*sharing).verify, 1},
		"requested twice":        {1 << 10, "", (*sharing).request, (*sharing).request, 1},
		"large, requested first": {5 << 20, "", (*sharing).request, (*sharing).verify, 1},
		"large, verified first":  {5 << 20, "", (*sharing).verify, (*sharing).request, 2},
		"reported as gone":       {1 << 10, reported, (*sharing).request, (*sharing).verify, 2},
		"verified again":         {1 << 10, judged, (*sharing).request, (*sharing).verify, 2},
		"large, verified again":  {5 << 20, judged, (*sharing).request, (*sharing).verify, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSharing(t, tc.size, tc.more)
			synctest.Test(t, func(t *testing.T) {
				s.startGated()
				var group errgroup.Group
				for _, use := range []use{tc.first, tc.then} {
					group.Go(func() error { return use(s, t.Context()) })
					synctest.Wait()
				}
				if got := s.store.reads.Load(); got != tc.want {
					t.Errorf("the snapshot is read %d times, want %d", got, tc.want)
				}
				close(s.store.proceed)
				if err := group.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestVerifiedAgain: a verification reads the snapshot, even if its items are cached.
func TestVerifiedAgain(t *testing.T) {
	s := newSharing(t, 1<<10, "")
	s.start()
	for want := int64(1); want <= 2; want++ {
		if err := s.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.store.reads.Load(); got != want {
			t.Errorf("the snapshot was read %d times, want %d", got, want)
		}
	}
}

// TestFailedReadIsNotShared: if the read of a snapshot is canceled, a caller that waits for it reads the snapshot itself.
func TestFailedReadIsNotShared(t *testing.T) {
	s := newSharing(t, 1<<10, "")
	synctest.Test(t, func(t *testing.T) {
		s.startGated()
		ctx, cancel := context.WithCancel(t.Context())
		var group errgroup.Group
		group.Go(func() error {
			if err := s.verify(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the error of the context", err)
			}
			return nil
		})
		synctest.Wait()
		group.Go(func() error { return s.request(t.Context()) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		if got := s.store.reads.Load(); got != 2 {
			t.Errorf("the snapshot is read %d times, want 2", got)
		}
		close(s.store.proceed)
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}
