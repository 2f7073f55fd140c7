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
	silence   time.Duration // after which the view is stale
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
	return &fixture{T: t, namespace: env.NewNamespace(t), silence: time.Hour, client: sessionClient}
}

// freeze creates the resolver, with a view of the current sessions.
func (f *fixture) freeze() {
	f.Helper()
	ctx, stop := context.WithCancel(f.Context())
	view := sessions.NewView(chain.DefaultMaxDepth, f.silence)
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
