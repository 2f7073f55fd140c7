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

// Package hostile_test attacks Catena from one namespace and checks that other namespaces are not affected.
package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
)

var (
	env      *testenv.Environment
	operator *catenatest.Operator
	// sessions is a client that sends and receives sessions as bytes.
	sessions rest.Interface
)

func TestMain(m *testing.M) { os.Exit(testenv.RunSuite(m.Run, prepare)) }

// prepare sets the control plane of the tests.
func prepare(ctx context.Context, started *testenv.Environment) (err error) {
	env = started
	if sessions, err = kubeclient.New(env.Config); err != nil {
		return err
	}
	operator, err = env.StartOperator(ctx, operatorOptions())
	return err
}

func operatorOptions() catenatest.OperatorOptions {
	return catenatest.OperatorOptions{Args: append(operatorArgs, strings.Fields(*extra)...)}
}

// restartOperator replaces the operator with one that lists everything again.
func restartOperator(t testing.TB) {
	t.Helper()
	if err := operator.Stop(); err != nil {
		t.Error(err)
	}
	var err error
	if operator, err = env.StartOperator(t.Context(), operatorOptions()); err != nil {
		t.Fatal(err)
	}
}

// create creates a session from JSON and returns the API server's error.
func create(t *testing.T, namespace string, object []byte) error {
	t.Helper()
	return createOf(t, kubeclient.Sessions, namespace, object)
}

// createOf creates an object of a resource from JSON and returns the API server's error.
func createOf(t *testing.T, resource, namespace string, object []byte) error {
	t.Helper()
	return sessions.Post().Namespace(namespace).Resource(resource).SetHeader("Content-Type", "application/json").Body(object).
		Do(t.Context()).Error()
}

// turns counts the victim's turns.
var turns int

// wantUnharmed checks that the next turn in another tenant's namespace is saved, gets a verdict and resolves.
func wantUnharmed(t *testing.T, namespace string) {
	t.Helper()
	turns++
	id := fmt.Sprintf("resp_%d", turns)
	testsession.Make(namespace, id).Create(t, env.Client)
	wantReason(t, namespace, id, v1alpha1.ReasonResolved, "")
	history, err := env.Store.InNamespace(namespace).Resolve(t.Context(), id, store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(history.Turns) != 1 {
		t.Errorf("resolved %q, want one turn", history.Turns)
	}
}

// wantConversationUnharmed checks that a conversation that ends at the next turn in another tenant's namespace gets its verdict and figures.
func wantConversationUnharmed(t *testing.T, namespace string) {
	t.Helper()
	turns++
	id := fmt.Sprintf("resp_%d", turns)
	testsession.Make(namespace, id).Create(t, env.Client)
	conversation := &v1alpha1.Conversation{Spec: v1alpha1.ConversationSpec{ConversationID: "conv_of_" + id, HeadResponseID: id}}
	conversation.Namespace, conversation.Name = namespace, v1alpha1.ObjectName(conversation.Spec.ConversationID)
	if err := env.Client.Create(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		err := env.Client.Get(ctx, client.ObjectKeyFromObject(conversation), conversation)
		if status := conversation.Status; err == nil && (status.Turns != 1 || status.Items == 0) {
			err = fmt.Errorf("the status is %+v", status)
		}
		return err
	})
}

// wantReason waits until a session has a reason, and a message that contains text.
func wantReason(t testing.TB, namespace, id, reason, text string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		condition, err := chainValid(ctx, namespace, v1alpha1.ObjectName(id))
		if err == nil && (condition.Reason != reason || !strings.Contains(condition.Message, text)) {
			err = fmt.Errorf("%s is %s: %s", id, condition.Reason, condition.Message)
		}
		return err
	})
}

// wantVerdict waits until an object has a verdict.
func wantVerdict(t *testing.T, namespace, name string) {
	t.Helper()
	testutil.Eventually(t, func(ctx context.Context) error {
		_, err := chainValid(ctx, namespace, name)
		return err
	})
}

// chainValid returns the ChainValid condition of an object whose spec may be one that Go cannot decode.
func chainValid(ctx context.Context, namespace, name string) (*metav1.Condition, error) {
	raw, err := kubeclient.GetRaw(ctx, sessions, kubeclient.Sessions, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	status := &v1alpha1.ResponseSessionStatus{}
	if written := gjson.GetBytes(raw, "status").Raw; written != "" {
		if err := json.Unmarshal([]byte(written), status); err != nil {
			return nil, err
		}
	}
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionChainValid)
	if condition == nil {
		return nil, errors.New(name + " has no verdict")
	}
	return condition, nil
}
