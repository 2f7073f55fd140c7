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

package testenv_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
)

func TestEnvironment(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()

	env := start(t, ctx, testenv.Options{Dir: dir, GarbageCollector: true, UnsafeNoFsync: true})
	root := createSession(t, ctx, env, "resp_root", nil)
	if err := env.RestartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	child := createSession(t, ctx, env, "resp_child", root)
	orphan := createSession(t, ctx, env, "resp_orphan", nil)
	if err := env.Client.Delete(ctx, root); err != nil {
		t.Fatal(err)
	}
	waitUntilGone(t, ctx, env, child)
	stop(t, env)

	env = start(t, ctx, testenv.Options{Dir: dir})
	if err := env.Client.Get(ctx, client.ObjectKeyFromObject(orphan), orphan); err != nil {
		t.Errorf("a session of the first start is not there in the second: %v", err)
	}
	stop(t, env)
}

func TestRESTConfigFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	env := start(t, ctx, testenv.Options{UnsafeNoFsync: true})
	config, err := env.RESTConfigFor("nobody", "nogroup")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.List(ctx, &v1alpha1.ResponseSessionList{}); !apierrors.IsForbidden(err) {
		t.Errorf("list by a user without rights: got %v, want Forbidden", err)
	}
}

func TestOperator(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	env := start(t, ctx, testenv.Options{UnsafeNoFsync: true})
	first := startOperator(t, ctx, env, testenv.OperatorOptions{})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	second := startOperator(t, ctx, env, testenv.OperatorOptions{Port: first.Port})
	stop(t, env)
	<-second.Done()
}

// startOperator returns when the kube-apiserver reaches the operator's resolve API.
func startOperator(t *testing.T, ctx context.Context, env *testenv.Environment, options testenv.OperatorOptions) *testenv.Operator {
	t.Helper()
	operator, err := env.StartServingOperator(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	return operator
}

func start(t *testing.T, ctx context.Context, options testenv.Options) *testenv.Environment {
	t.Helper()
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

func createSession(t *testing.T, ctx context.Context, env *testenv.Environment, id string, parent *v1alpha1.ResponseSession) *v1alpha1.ResponseSession {
	t.Helper()
	session := &v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.ObjectName(id)},
		Spec:       v1alpha1.ResponseSessionSpec{ResponseID: id, ResponseStatus: v1alpha1.ResponseStatusCompleted},
	}
	if parent != nil {
		session.Spec.PreviousResponseID = parent.Spec.ResponseID
		session.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(),
			Kind:       "ResponseSession",
			Name:       parent.Name,
			UID:        parent.UID,
		}}
	}
	if err := env.Client.Create(ctx, session); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
	return session
}

func waitUntilGone(t *testing.T, ctx context.Context, env *testenv.Environment, object client.Object) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(env.Client.Get(ctx, client.ObjectKeyFromObject(object), object)), nil
	})
	if err != nil {
		t.Fatalf("%s is still there: %v", object.GetName(), err)
	}
}
