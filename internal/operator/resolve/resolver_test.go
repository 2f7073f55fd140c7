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
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/catena-dev/catena/internal/testenv"
)

var env *testenv.Environment

func TestMain(m *testing.M) {
	os.Exit(testenv.RunSuite(m.Run, func(_ context.Context, started *testenv.Environment) error {
		env = started
		return nil
	}))
}

// fixture is a namespace and a resolver whose view is frozen at the moment when freeze was called. That is the oldest that
// a view can be: errors and new turns must not depend on later events of the watch.
type fixture struct {
	*testing.T
	namespace string
	client    rest.Interface
	view      *sessions.View
	reader    *resolve.Reader
	resolver  *resolve.Resolver
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	sessionClient, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, namespace: env.NewNamespace(t), client: sessionClient}
}

// freeze creates the resolver, with a view of the current sessions.
func (f *fixture) freeze() {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	view := sessions.NewView(chain.DefaultMaxDepth)
	done := make(chan struct{})
	go func() {
		defer close(done)
		view.Run(ctx, f.client)
	}()
	if err := view.WaitForSync(ctx); err != nil {
		f.Fatal(err)
	}
	stop()
	<-done
	reader, err := resolve.NewReader(f.client, nil, resolve.DefaultOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.view, f.reader = view, reader
	f.resolver = resolve.New(view, reader, func(*sessions.Record) {}, resolve.DefaultOptions())
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
	if err := env.Client.Create(f.Context(), session); err != nil {
		f.Fatal(err)
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

// withLostSnapshot makes a turn whose bodies are in chunks that do not exist.
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

// answer summarizes the result of a resolve: the items of the turns, or the code of the error and where it happened.
func (f *fixture) answer(name string, options chain.WalkOptions) string {
	f.Helper()
	return f.answerSince(0, name, options)
}

// answerSince asks for a result at least as new as a resource version.
func (f *fixture) answerSince(version uint64, name string, options chain.WalkOptions) string {
	f.Helper()
	history, err := f.resolver.Resolve(f.Context(), f.namespace, name, version, options)
	if chainErr, ok := errors.AsType[*chain.Error](err); ok {
		return fmt.Sprintf("%s at %s", chainErr.Code(), chainErr.ResponseID)
	}
	if err != nil {
		return err.Error()
	}
	var said []string
	for _, turn := range history.Turns {
		text := strings.TrimSuffix(strings.TrimPrefix(string(turn.Items.List), `{"text":"`), `"}`)
		if !strings.Contains(text, turn.ResponseID) {
			f.Errorf("turn %s has the items %s", turn.ResponseID, turn.Items.List)
		}
		said = append(said, text)
	}
	if history.Name != v1alpha1.ObjectName(history.ResponseID) || history.UID == "" {
		f.Errorf("asked for %s, answered for %s with UID %q", name, history.Name, history.UID)
	}
	return strings.Join(said, ", ")
}

// TestResolveAheadOfTheWatch changes sessions after the view has stopped.
func TestResolveAheadOfTheWatch(t *testing.T) {
	plain := chain.WalkOptions{MaxDepth: chain.DefaultMaxDepth}
	tests := map[string]struct {
		// before saves the sessions that the view knows. It returns a function that makes changes that the view does not
		// know, and returns the options to resolve with.
		before func(f *fixture) func() chain.WalkOptions
		ask    string
		want   string
	}{
		"nothing changed": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { return plain }
			},
			ask: "b", want: "says a, says b",
		},
		"new turn": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				return func() chain.WalkOptions { f.save("b", "a"); return plain }
			},
			ask: "b", want: "says a, says b",
		},
		"three new turns": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.save("a", ""); f.save("b", "a"); f.save("c", "b"); return plain }
			},
			ask: "c", want: "says a, says b, says c",
		},
		"missing parent was saved": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("b", "a")
				return func() chain.WalkOptions { f.save("a", ""); return plain }
			},
			ask: "b", want: "says a, says b",
		},
		"pending turn was completed": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "", withStatus("in_progress"))
				f.save("b", "a")
				return func() chain.WalkOptions {
					f.update(a, withStatus("completed"))
					return plain
				}
			},
			ask: "b", want: "says a, says b",
		},
		"unreadable turn was repaired": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "", func(s *v1alpha1.ResponseSession) {
					s.Spec.Request = &runtime.RawExtension{Raw: []byte(`{"instructions":[]}`)}
				})
				return func() chain.WalkOptions {
					f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Request = nil })
					return plain
				}
			},
			ask: "a", want: "says a",
		},
		"cycle was taken apart": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "b")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); f.save("a", ""); return plain }
			},
			ask: "b", want: "says a, says b",
		},
		"too deep a chain was shortened": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				b := f.save("b", "a")
				f.save("c", "b")
				return func() chain.WalkOptions { f.delete(b); f.save("b", ""); return chain.WalkOptions{MaxDepth: 2} }
			},
			ask: "c", want: "says b, says c",
		},
		"body not read yet, turn deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			ask: "b", want: "session.chain.not_found at a",
		},
		"body not read yet, turn being deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			ask: "b", want: "session.chain.not_found at a",
		},
		"new turn, being deleted": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.delete(f.saveHeld("a", "")); return plain }
			},
			ask: "a", want: "session.chain.not_found at a",
		},
		"new turn, being deleted, by its object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.delete(f.saveHeld("a_1", "")); return plain }
			},
			ask: "a.1", want: "session.chain.not_found at a.1",
		},
		"being deleted, with its snapshot gone": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a", "", withLostSnapshot)
				f.save("b", "a")
				return func() chain.WalkOptions { f.delete(a); return plain }
			},
			ask: "b", want: "session.chain.not_found at a",
		},
		"was being deleted, saved again, by its object name": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.saveHeld("a_1", "")
				f.delete(a)
				return func() chain.WalkOptions { f.release(a); f.save("a_1", ""); return plain }
			},
			ask: "a.1", want: "says a_1",
		},
		"body not read yet, turn overwritten": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions {
					f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output("says a anew") })
					return plain
				}
			},
			ask: "b", want: "says a anew, says b",
		},
		"body not read yet, turn failed": {
			before: func(f *fixture) func() chain.WalkOptions {
				a := f.save("a", "")
				f.save("b", "a")
				return func() chain.WalkOptions { f.update(a, withStatus("failed")); return plain }
			},
			ask: "b", want: "session.chain.unavailable at a",
		},
		"deleted and saved with another parent": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				b := f.save("b", "a")
				f.save("c", "b")
				return func() chain.WalkOptions { f.delete(b); f.save("z", ""); f.save("b", "z"); return plain }
			},
			ask: "c", want: "says z, says b, says c",
		},
		"an ID that looks like an object's name": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a_b", "")
				return func() chain.WalkOptions { f.save("a.b", ""); return plain }
			},
			ask: "a.b", want: "says a.b",
		},
		"an object's name": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a_b", "")
				return func() chain.WalkOptions { return plain }
			},
			ask: "a.b", want: "says a_b",
		},
		"a new object's name": {
			before: func(f *fixture) func() chain.WalkOptions {
				return func() chain.WalkOptions { f.save("A/b", ""); return plain }
			},
			ask: v1alpha1.ObjectName("A/b"), want: "says A/b",
		},
		"nothing": {
			before: func(*fixture) func() chain.WalkOptions { return func() chain.WalkOptions { return plain } },
			ask:    "a", want: "session.chain.not_found at a",
		},
		"incomplete, asked for": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "", withStatus("failed"))
				return func() chain.WalkOptions { return chain.WalkOptions{MaxDepth: 1, IncludeIncomplete: true} }
			},
			ask: "a", want: "says a",
		},
		"depth 0": {
			before: func(f *fixture) func() chain.WalkOptions {
				f.save("a", "")
				return func() chain.WalkOptions { return chain.WalkOptions{} }
			},
			ask: "a", want: "session.chain.depth_exceeded at a",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			change := tc.before(f)
			f.freeze()
			options := change()
			if diff := cmp.Diff(tc.want, f.answer(tc.ask, options)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResolveResourceVersion: a cached body may be as old as the view, unless the query asks for a newer one.
func TestResolveResourceVersion(t *testing.T) {
	f := newFixture(t)
	a := f.save("a", "")
	f.save("b", "a")
	f.freeze()
	if got := f.answer("b", chain.WalkOptions{MaxDepth: 64}); got != "says a, says b" {
		t.Fatal(got)
	}
	version := f.update(a, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output("says a anew") })
	if got := f.answerSince(version, "b", chain.WalkOptions{MaxDepth: 64}); got != "says a anew, says b" {
		t.Errorf("asked for the new version, got %q", got)
	}
	f.delete(a)
	if got := f.answerSince(version+1, "b", chain.WalkOptions{MaxDepth: 64}); got != "session.chain.not_found at a" {
		t.Errorf("asked for what follows the deletion, got %q", got)
	}
}

func TestResolveErrors(t *testing.T) {
	f := newFixture(t)
	f.save("a", "")
	f.freeze()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.resolver.Resolve(ctx, f.namespace, "b", 0, chain.WalkOptions{MaxDepth: 64}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the context's", err)
	}

	nobody, err := env.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubeclient.New(nobody)
	if err != nil {
		t.Fatal(err)
	}
	f.reader.SetClient(client)
	if _, err := f.resolver.Resolve(t.Context(), f.namespace, "a", 0, chain.WalkOptions{MaxDepth: 64}); !apierrors.IsForbidden(err) {
		t.Errorf("error is %v, want the API server's", err)
	}
}

// TestCacheIsBounded reads more items than the cache holds.
func TestCacheIsBounded(t *testing.T) {
	const limit = 1 << 20
	f := newFixture(t)
	text := strings.Repeat("x", limit/8)
	previous := ""
	for i := range 24 {
		id := fmt.Sprintf("t%d", i)
		f.save(id, previous, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(id + text) })
		previous = id
	}
	f.freeze()
	options := resolve.DefaultOptions()
	options.CacheBytes = limit
	reader, err := resolve.NewReader(f.client, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	resolver := resolve.New(f.view, reader, func(*sessions.Record) {}, options)
	for range 3 {
		history, err := resolver.Resolve(t.Context(), f.namespace, previous, 0, chain.WalkOptions{MaxDepth: 64})
		if err != nil {
			t.Fatal(err)
		}
		for _, turn := range history.Turns {
			if !strings.Contains(string(turn.Items.List), turn.ResponseID+"x") {
				t.Fatalf("turn %s has another one's items", turn.ResponseID)
			}
		}
		if size := reader.CachedBytes(); size > limit {
			t.Errorf("%d bytes are cached, more than %d", size, limit)
		}
	}
}

// TestMemoryIsBounded: a history that is too large is refused, and so is one for which there is no memory until others are
// released.
func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	text := strings.Repeat("x", 1000)
	for i := range 8 {
		previous := ""
		if i > 0 {
			previous = fmt.Sprintf("t%d", i-1)
		}
		f.save(fmt.Sprintf("t%d", i), previous, func(s *v1alpha1.ResponseSession) { s.Spec.Response = output(text) })
	}
	f.freeze()
	options := resolve.DefaultOptions()
	options.HistoryBytes, options.InFlightBytes = 6000, 8000
	reader, err := resolve.NewReader(f.client, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	resolver := resolve.New(f.view, reader, func(*sessions.Record) {}, options)
	ask := func(id string) (*resolve.Result, error) {
		return resolver.Resolve(t.Context(), f.namespace, id, 0, chain.WalkOptions{MaxDepth: 64})
	}
	for range 3 { // a failed query must release its memory
		if _, err := ask("t7"); !errors.Is(err, resolve.ErrTooLarge) {
			t.Fatalf("error is %v, want ErrTooLarge", err)
		}
		first, err := ask("t4")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask("t4"); !errors.Is(err, resolve.ErrBusy) {
			t.Fatalf("error is %v, want ErrBusy", err)
		}
		first.Release()
		first.Release()
	}
}
