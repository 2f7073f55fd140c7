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
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/config"
	"github.com/catena-dev/catena/internal/manifests"
	"github.com/catena-dev/catena/internal/subprocess"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// installed are the directories of config that an upgrade applies, in order.
var installed = []string{"crd/bases", "admission", "rbac"}

// TestUpgrade upgrades from the previous version: first the manifests, then one replica after the other. Turns of both versions resolve
// on replicas of both, and what the previous version has written is not written again. A conversation, if the previous version has any, is
// continued throughout.
func TestUpgrade(t *testing.T) {
	dir := t.TempDir()
	version := testutil.CheckOutPrevious(t, dir)
	binary, err := testutil.BuildPrevious(t.Context(), dir, version, "catena")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("upgrading from %s", version)
	e := startUpgrade(t)
	e.apply(t, os.DirFS(filepath.Join(dir, "config")))
	options := catenatest.OperatorOptions{Args: []string{"--leader-elect=true", "--shutdown-delay-duration=0s"}}
	options.Binary = binary
	previous, err := e.Environment.Environment.StartOperator(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	e.save(t, testturn.Make("old_1", ""), testturn.Make("old_2", "old_1"), large("old_3", "old_2"), testturn.Make("broken_2", "broken_1"))
	e.wantReason(t, "old_3", v1alpha1.ReasonResolved)
	e.wantReason(t, "broken_2", v1alpha1.ReasonParentNotFound)
	before := e.written(t)
	_, err = os.Stat(filepath.Join(dir, "config", "crd", "bases", "sessions.catena.dev_conversations.yaml"))
	conversation := upgradedConversation{e, err == nil}
	conversation.create(t, "old_a")

	e.apply(t, config.FS)
	next, err := e.StartOperator(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	e.save(t, testturn.Make("new_4", "old_3"))
	e.wantReason(t, "new_4", v1alpha1.ReasonResolved) // the previous version leads
	e.wantResolved(t, "new_4", previous, next)
	conversation.append(t, "new_b")
	conversation.wantTurns(t, []string{"old_a", "new_b"}, previous, next)
	if err := previous.Stop(); err != nil {
		t.Fatal(err)
	}
	e.save(t, testturn.Make("new_5", "new_4"), testturn.Make("new_2", "broken_2"))
	e.wantReason(t, "new_5", v1alpha1.ReasonResolved)
	e.wantReason(t, "new_2", v1alpha1.ReasonParentNotFound)
	e.wantResolved(t, "new_5", next)
	conversation.append(t, "new_c")
	conversation.wantTurns(t, []string{"old_a", "new_b", "new_c"}, next)
	after := e.written(t)
	for name, version := range before {
		if after[name] != version {
			t.Errorf("%s was written again", name)
		}
	}
}

// upgrade is a control plane of its own, whose CRDs are those of the previous version for a time.
type upgrade struct{ *testenv.Environment }

func startUpgrade(t *testing.T) upgrade {
	t.Helper()
	own, err := testenv.Start(context.WithoutCancel(t.Context()), catenatest.Options{GarbageCollector: catenatest.Required})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	return upgrade{own}
}

// apply applies the manifests of a version.
func (e upgrade) apply(t *testing.T, files fs.FS) {
	t.Helper()
	for _, dir := range installed {
		objects, err := manifests.Read(files, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := manifests.Apply(t.Context(), e.Client, objects...); err != nil {
			t.Fatal(err)
		}
	}
}

func (e upgrade) save(t *testing.T, turns ...*store.Session) {
	t.Helper()
	for _, turn := range turns {
		if err := e.Store.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (e upgrade) wantReason(t *testing.T, id, reason string) {
	t.Helper()
	testsession.WaitForReason(t, e.Client, metav1.NamespaceDefault, id, reason)
}

// wantResolved expects a history from each of some replicas.
func (e upgrade) wantResolved(t *testing.T, id string, replicas ...*catenatest.Operator) {
	t.Helper()
	for _, replica := range replicas {
		s := e.open(t, replica)
		if _, err := s.Resolve(t.Context(), id, store.ResolveOptions{}); err != nil {
			t.Errorf("%s does not resolve on the port %d: %v", id, replica.Port, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// open returns a store that resolves on a replica.
func (e upgrade) open(t *testing.T, replica *catenatest.Operator) *store.Store {
	t.Helper()
	s, err := kube.Open(t.Context(), kube.Options{
		Config: e.Config, Namespace: metav1.NamespaceDefault,
		ResolveHost: "https://" + subprocess.Loopback(replica.Port), ResolveTLS: rest.TLSClientConfig{CAFile: e.ResolveCAFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// upgradedConversation is a conversation that is continued during an upgrade, unless the previous version serves none.
type upgradedConversation struct {
	upgrade
	served bool
}

const upgradedID = "conv_upgraded"

func (c upgradedConversation) create(t *testing.T, turn string) {
	t.Helper()
	if !c.served {
		t.Log("the previous version has no conversations")
		return
	}
	if _, err := c.Store.Conversations().Create(t.Context(), &store.Conversation{ConversationID: upgradedID}); err != nil {
		t.Fatal(err)
	}
	c.append(t, turn)
}

func (c upgradedConversation) append(t *testing.T, turn string) {
	t.Helper()
	if !c.served {
		return
	}
	if part, err := c.Store.Conversations().Append(t.Context(), upgradedID, testturn.Make(turn, ""), store.AppendOptions{}); err != nil || !part {
		t.Fatalf("%s is part of the conversation: %t, %v", turn, part, err)
	}
}

// wantTurns expects the history of the conversation from each of some replicas, and its verdict from the leader.
func (c upgradedConversation) wantTurns(t *testing.T, turns []string, replicas ...*catenatest.Operator) {
	t.Helper()
	if !c.served {
		return
	}
	for _, replica := range replicas {
		s := c.open(t, replica)
		history, err := s.Conversations().Load(t.Context(), upgradedID, store.ResolveOptions{})
		if err != nil || !slices.Equal(history.Turns, turns) {
			t.Errorf("the port %d has the history %v, %v, want %v", replica.Port, history, err, turns)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.ConversationList{}
		if err := c.Client.List(ctx, list); err != nil {
			return err
		}
		for _, conversation := range list.Items {
			status := conversation.Status
			resolved := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionHeadResolved)
			if conversation.Spec.ConversationID == upgradedID && resolved && int(status.Turns) == len(turns) {
				return nil
			}
		}
		return fmt.Errorf("the conversation has no verdict on %d turns: %v", len(turns), list.Items)
	})
}

// written returns the resource versions of all sessions and chunks.
func (e upgrade) written(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, kind := range []string{v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := e.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			versions[kind+" "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	}
	return versions
}
