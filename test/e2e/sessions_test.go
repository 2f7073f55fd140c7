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
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
)

// newNamespace returns the name of a namespace of the test's own.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := env.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// turn builds a session.
type turn struct{ session *v1alpha1.ResponseSession }

// makeTurn returns a completed turn with a question and an answer that have its ID in them.
func makeTurn(namespace, id string) turn {
	return turn{&v1alpha1.ResponseSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ObjectName(id)},
		Spec:       v1alpha1.ResponseSessionSpec{ResponseID: id, ResponseStatus: v1alpha1.ResponseStatusCompleted},
	}}.request(`{"model":"m","input":` + quote("question of "+id) + `}`).response(`{"output":[` + assistant("answer of "+id) + `]}`)
}

func (t turn) after(id string) turn {
	t.session.Spec.PreviousResponseID = id
	return t
}

func (t turn) status(status string) turn {
	t.session.Spec.ResponseStatus = status
	return t
}

func (t turn) request(raw string) turn {
	t.session.Spec.Request = &runtime.RawExtension{Raw: []byte(raw)}
	return t
}

func (t turn) response(raw string) turn {
	t.session.Spec.Response = &runtime.RawExtension{Raw: []byte(raw)}
	return t
}

func (t turn) create(tb testing.TB) *v1alpha1.ResponseSession {
	tb.Helper()
	if err := env.Client.Create(tb.Context(), t.session); err != nil {
		tb.Fatalf("create %s: %v", t.session.Spec.ResponseID, err)
	}
	return t.session
}

// createChain creates turns, each the next one's parent, and returns their IDs, oldest first.
func createChain(t *testing.T, namespace, prefix string, length int) []string {
	t.Helper()
	ids := make([]string, length)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s_%d", prefix, i)
		next := makeTurn(namespace, ids[i])
		if i > 0 {
			next.after(ids[i-1])
		}
		next.create(t)
	}
	return ids
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // never: every string can be
	}
	return string(b)
}

func userText(text string) string {
	return `{"type":"message","role":"user","content":[{"type":"input_text","text":` + quote(text) + `}]}`
}

func system(text string) string {
	return `{"type":"message","role":"system","content":[{"type":"input_text","text":` + quote(text) + `}]}`
}

// assistant returns an item with its keys sorted, which is how an object comes back from the API server.
func assistant(text string) string {
	return `{"content":[{"text":` + quote(text) + `,"type":"output_text"}],"role":"assistant","type":"message"}`
}

// defaultItems are the items of chains of makeTurn's turns.
func defaultItems(ids ...string) []string {
	var items []string
	for _, id := range ids {
		items = append(items, userText("question of "+id), assistant("answer of "+id))
	}
	return items
}

// eventually waits until a condition holds; it returns what is missing, or nothing.
func eventually(t *testing.T, condition func(ctx context.Context) (missing string)) {
	t.Helper()
	missing := ""
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		missing = condition(ctx)
		return missing == "", nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, missing)
	}
}

// waitForReason waits until a session is judged with a reason.
func waitForReason(t *testing.T, namespace, id, reason string) {
	t.Helper()
	eventually(t, func(ctx context.Context) string {
		session := &v1alpha1.ResponseSession{}
		if err := env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ObjectName(id)}, session); err != nil {
			return err.Error()
		}
		if condition := chainValid(session); condition.Reason != reason {
			return fmt.Sprintf("%s is judged %q, want %q", id, condition.Reason, reason)
		}
		return ""
	})
}

func chainValid(session *v1alpha1.ResponseSession) metav1.Condition {
	condition := meta.FindStatusCondition(session.Status.Conditions, v1alpha1.ConditionChainValid)
	if condition == nil {
		return metav1.Condition{}
	}
	return *condition
}
