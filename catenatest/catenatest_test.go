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

package catenatest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
)

func TestGarbageCollection(t *testing.T) {
	ctx := startContext(t)
	dir := t.TempDir()
	env := start(t, ctx, catenatest.Options{Dir: dir, GarbageCollector: catenatest.Required})
	if !env.GarbageCollector {
		t.Error("GarbageCollector is false")
	}
	before := testsession.Make("default", "resp_before").Create(t, env.Client)
	old := testsession.Make("default", "resp_old").Create(t, env.Client)
	deleteWithChild(t, ctx, env, before)
	// Not before: a garbage collector that is interrupted while it starts may need minutes to recover.
	if err := env.RestartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	deleteWithChild(t, ctx, env, old)
	other := testsession.Make("default", "resp_other").Create(t, env.Client)
	stop(t, env)

	env = start(t, ctx, catenatest.Options{Dir: dir, GarbageCollector: catenatest.Off})
	if env.GarbageCollector {
		t.Error("GarbageCollector is true")
	}
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("unable to get a session of the first run in the second run: %v", err)
	}
	stop(t, env)
}

func TestConfigFor(t *testing.T) {
	ctx := startContext(t)
	env := start(t, ctx, catenatest.Options{GarbageCollector: catenatest.Off})
	config, err := env.ConfigFor("unprivileged", "nogroup")
	if err != nil {
		t.Fatal(err)
	}
	unprivileged, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := unprivileged.List(ctx, &v1alpha1.ResponseSessionList{}); !apierrors.IsForbidden(err) {
		t.Errorf("list by a user without permissions: got %v, want Forbidden", err)
	}
}

// TestOperatorProcess kills an operator and starts another one, which must serve the resolve API on a new port until the
// environment stops.
func TestOperatorProcess(t *testing.T) {
	ctx := startContext(t)
	env := start(t, ctx, catenatest.Options{GarbageCollector: catenatest.Off})
	first, err := env.StartOperator(ctx, catenatest.OperatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	second, err := env.StartOperator(ctx, catenatest.OperatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	saveAndResolve(t, env.Environment)
	stop(t, env)
	<-second.Done()
}

// TestOperatorInProcess runs operators in the test process, one after the other.
func TestOperatorInProcess(t *testing.T) {
	ctx := startContext(t)
	env := start(t, ctx, catenatest.Options{})
	for range 2 {
		operator, err := env.Environment.StartOperator(ctx, catenatest.OperatorOptions{})
		if err != nil {
			t.Fatal(err)
		}
		saveAndResolve(t, env.Environment)
		if _, err := env.Environment.StartOperator(ctx, catenatest.OperatorOptions{}); err == nil || !strings.Contains(err.Error(), "already runs") {
			t.Errorf("got %v from a second operator, want that one already runs", err)
		}
		if err := operator.Kill(); err == nil {
			t.Error("Kill returned no error")
		}
		if err := operator.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := operator.Err(); err != nil {
			t.Errorf("the operator ended with %v", err)
		}
	}
	_, err := env.Environment.StartOperator(ctx, catenatest.OperatorOptions{Args: []string{"--concurrent-reconciles=0"}})
	if err == nil || strings.Count(err.Error(), "--concurrent-reconciles is 0") != 1 {
		t.Errorf("got %v for an invalid flag, want the reason once", err)
	}
}

func TestMissingBinaries(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		options catenatest.Options
		want    string
	}{
		"no etcd":              {options: catenatest.Options{BinaryDir: t.TempDir()}, want: "etcd is not in "},
		"no garbage collector": {options: catenatest.Options{BinaryDir: dir, GarbageCollector: catenatest.Required}, want: "kube-controller-manager is not in "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := catenatest.Start(t.Context(), tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// saveAndResolve saves two turns and resolves the second one.
func saveAndResolve(t *testing.T, env *catenatest.Environment) {
	t.Helper()
	turns := env.Store.InNamespace(env.Namespace(t))
	for _, session := range []*store.Session{
		{ResponseID: "resp_1", Status: store.StatusCompleted, Request: []byte(`{"input":"My name is Ada."}`), Response: []byte(`{"output":[]}`)},
		{ResponseID: "resp_2", PreviousResponseID: "resp_1", Status: store.StatusCompleted, Request: []byte(`{"input":"Who am I?"}`), Response: []byte(`{"output":[]}`)},
	} {
		if err := turns.Save(t.Context(), session, store.SaveOptions{}); err != nil {
			t.Fatalf("save %s: %v", session.ResponseID, err)
		}
	}
	history, err := turns.Resolve(t.Context(), "resp_2", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"resp_1", "resp_2"}, history.Turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

func startContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts an environment without an operator, with the control plane of this repository.
func start(t *testing.T, ctx context.Context, options catenatest.Options) *testenv.Environment {
	t.Helper()
	testenv.SkipIfShort(t)
	env, err := testenv.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, env) })
	return env
}

func stop(t *testing.T, env *testenv.Environment) {
	t.Helper()
	if err := env.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// deleteWithChild gives a session a child, deletes the session, and waits until the child is deleted, too.
func deleteWithChild(t *testing.T, ctx context.Context, env *testenv.Environment, session *v1alpha1.ResponseSession) {
	t.Helper()
	id := session.Spec.ResponseID
	child := testsession.Make("default", id+"_child").After(id).OwnedBy(session).Create(t, env.Client)
	if err := env.Client.Delete(ctx, session); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, ctx, env, child)
}

func waitUntilGone(t *testing.T, ctx context.Context, env *testenv.Environment, object client.Object) {
	t.Helper()
	testutil.Eventually(t, func(context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return errors.New(object.GetName() + " still exists")
		}
		return client.IgnoreNotFound(err)
	})
}
