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
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
)

var env *testenv.Environment

func TestMain(m *testing.M) {
	os.Exit(testenv.RunSuite(m.Run, func(_ context.Context, started *testenv.Environment) error {
		env = started
		return nil
	}))
}

// fixture is a namespace and a resolver. If freeze was called, its view is frozen at that moment. That is the oldest that a view
// can be: errors and new turns must not depend on later events of the watch.
type fixture struct {
	*testing.T
	namespace string
	silence   time.Duration // after which the view is stale
	options   resolve.Options
	// Set by follow: the number of live reads, and the gate that delays the events of the view.
	reads    atomic.Int64
	gate     *gate
	client   rest.Interface
	view     *sessions.View
	reader   *resolve.Reader
	resolver *resolve.Resolver
}

// chunks returns a store of snapshots.
func chunks(client rest.Interface) snapshot.Stores {
	return snapshot.Stores{snapshot.NewChunkStore(client)}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	sessionClient, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, namespace: env.NewNamespace(t), silence: time.Hour, options: resolve.DefaultOptions(), client: sessionClient}
}

// freeze creates the resolver, with a view of the current sessions.
func (f *fixture) freeze() {
	f.Helper()
	f.start()()
	f.resolver.SetWaits(8, 0, time.Hour)
}

// follow creates the resolver, with a view that gets no events until the resolver has requested the current resource version. Then a
// session of another namespace is saved, so that the view can catch up.
func (f *fixture) follow() {
	f.Helper()
	other := &fixture{T: f.T, namespace: env.NewNamespace(f)}
	var saves sync.WaitGroup
	var saved atomic.Int64
	f.gate = newGate()
	f.client = f.clientThrough(func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+f.namespace+"/") {
			f.reads.Add(1)
		}
		response, err := next.RoundTrip(r)
		switch {
		case err == nil && r.URL.Query().Get("watch") != "":
			response.Body = &gatedBody{response.Body, f.gate, r.Context()}
		case isVersion(r):
			saves.Go(func() {
				other.save(fmt.Sprint("resp", saved.Add(1)), "")
				f.gate.open()
			})
		}
		return response, err
	})
	stop := f.start()
	f.gate.close()
	f.Cleanup(func() {
		stop()
		saves.Wait()
	})
	f.resolver.SetWaits(0, testutil.Patience, testutil.Patience)
}

// gate blocks reads while it is closed. It is initially open.
type gate struct {
	mu     sync.Mutex
	isOpen bool
	opened chan struct{} // closed with the next change from closed to open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	g.open()
	return g
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen {
		g.isOpen = true
		close(g.opened)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		g.isOpen, g.opened = false, make(chan struct{})
	}
}

func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
	ctx  context.Context //nolint:containedctx // of the request
}

// Read returns the data that it has read once the gate is open.
func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.wait(b.ctx)
	return n, err
}

// isVersion reports whether a request of the resolver reads the current resource version.
func isVersion(r *http.Request) bool {
	return r.URL.Query().Has("fieldSelector") && strings.Contains(r.URL.Path, "/namespaces/")
}

func (f *fixture) start() (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	view := sessions.NewView(chain.DefaultMaxDepth, f.silence)
	done := make(chan struct{})
	go func() {
		defer close(done)
		view.Run(ctx, f.client)
	}()
	stop = func() {
		cancel()
		<-done
	}
	if err := view.WaitForSync(f.Context()); err != nil {
		stop()
		f.Fatal(err)
	}
	reader := resolve.NewReader(f.client, chunks(f.client), f.options)
	f.view, f.reader = view, reader
	f.resolver = resolve.New(view, reader, func(*sessions.Record) {}, f.options)
	return stop
}

// save creates a completed turn whose output is one item with the text "says ID".
func (f *fixture) save(id, previous string, changes ...func(*v1alpha1.ResponseSession)) *v1alpha1.ResponseSession {
	f.Helper()
	session := &v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.ObjectName(id)},
		Spec: v1alpha1.ResponseSessionSpec{
			ResponseID: id, PreviousResponseID: previous, ResponseStatus: v1alpha1.ResponseStatusCompleted,
			Response: output("says " + id),
		},
	}
	for _, change := range changes {
		change(session)
	}
	if err := env.Client.Create(context.WithoutCancel(f.Context()), session); err != nil {
		f.Error(err)
	}
	return session
}

// saveHeld saves a turn with a finalizer, so that its deletion lasts until the end of the test, or until release.
func (f *fixture) saveHeld(id, previous string, changes ...func(*v1alpha1.ResponseSession)) *v1alpha1.ResponseSession {
	f.Helper()
	hold := func(s *v1alpha1.ResponseSession) { s.Finalizers = []string{"example.com/hold"} }
	session := f.save(id, previous, append(changes, hold)...)
	f.Cleanup(func() { f.release(session) })
	return session
}

// release removes the finalizer of a turn, if it still exists.
func (f *fixture) release(session *v1alpha1.ResponseSession) {
	f.Helper()
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := env.Client.Patch(context.WithoutCancel(f.Context()), session, release); client.IgnoreNotFound(err) != nil {
		f.Error(err)
	}
}

// withLostSnapshot moves the bodies of a turn to chunks that do not exist.
func withLostSnapshot(s *v1alpha1.ResponseSession) {
	s.Spec.Response = nil
	s.Spec.Snapshot = &v1alpha1.SnapshotReference{
		Store: v1alpha1.SnapshotStoreChunks, Key: strings.Repeat("a", 26), Parts: 1, SizeBytes: 1, StoredBytes: 1, SHA256: strings.Repeat("0", 64),
	}
}

func output(text string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"output":[{"text":%q}]}`, text)}
}

func withStatus(status string) func(*v1alpha1.ResponseSession) {
	return func(s *v1alpha1.ResponseSession) { s.Spec.ResponseStatus = status }
}

func (f *fixture) update(session *v1alpha1.ResponseSession, change func(*v1alpha1.ResponseSession)) uint64 {
	f.Helper()
	change(session)
	if err := env.Client.Update(f.Context(), session); err != nil {
		f.Fatal(err)
	}
	version, err := strconv.ParseUint(session.ResourceVersion, 10, 64)
	if err != nil {
		f.Fatal(err)
	}
	return version
}

func (f *fixture) delete(session *v1alpha1.ResponseSession) {
	f.Helper()
	if err := env.Client.Delete(f.Context(), session, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		f.Fatal(err)
	}
}

// answer summarizes the result of a resolve: the items of the turns, or the code of the error and the response ID at which it occurred.
func (f *fixture) answer(name string, options chain.WalkOptions) string {
	f.Helper()
	return f.answerSince(0, name, options)
}

// answerSince summarizes a result that is at least as new as a resource version.
func (f *fixture) answerSince(version uint64, name string, options chain.WalkOptions) string {
	f.Helper()
	history, err := f.resolver.Resolve(f.Context(), f.namespace, name, version, resolve.Query{WalkOptions: options})
	if chainErr, ok := errors.AsType[*chain.Error](err); ok {
		return fmt.Sprintf("%s at %s", chainErr.Code(), chainErr.ResponseID)
	}
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, turn := range history.Turns {
		text := strings.TrimSuffix(strings.TrimPrefix(string(turn.Items.List), `{"text":"`), `"}`)
		if !strings.Contains(text, turn.ResponseID) {
			f.Errorf("turn %s has the items %s", turn.ResponseID, turn.Items.List)
		}
		texts = append(texts, text)
	}
	if history.Name != v1alpha1.ObjectName(history.ResponseID) || history.UID == "" {
		f.Errorf("requested %s, got the history of %s with UID %q", name, history.Name, history.UID)
	}
	return strings.Join(texts, ", ")
}
