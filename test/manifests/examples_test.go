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

package manifests_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestEncryption: with config/examples/encryption.yaml, no file of etcd has the text of a conversation or a key of a tenant.
func TestEncryption(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	const plain, secret = "text-that-is-not-encrypted", "text-of-a-conversation"
	chunk := &v1alpha1.SnapshotChunk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "chunk"}, Spec: v1alpha1.SnapshotChunkSpec{Data: []byte(secret)}}
	for _, object := range []client.Object{
		session(namespace, "resp_1", secret),
		chunk,
		&v1alpha1.Conversation{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1"}, Spec: v1alpha1.ConversationSpec{ConversationID: "conv_1", Title: secret},
		},
		&v1alpha1.ConversationSummary{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "conv.1-0-1"},
			Spec:       v1alpha1.ConversationSummarySpec{ConversationID: "conv_1", EndTurn: 1, Content: secret},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenants"}, StringData: map[string]string{"tenants.yaml": secret}},
		// The last one: what is older is in the files too once this is.
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plain"}, Data: map[string]string{"a": plain}},
	} {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, func(context.Context) error {
		if !etcdHas(t, c, []byte(plain)) {
			return errors.New("etcd's files do not have the text of the ConfigMap")
		}
		return nil
	})
	for _, text := range [][]byte{[]byte(secret), []byte(base64.StdEncoding.EncodeToString([]byte(secret)))} {
		if etcdHas(t, c, text) {
			t.Errorf("etcd's files have %q", text)
		}
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(chunk), chunk); err != nil || string(chunk.Spec.Data) != secret {
		t.Errorf("read %q, %v, want what was written", chunk.Spec.Data, err)
	}
}

// etcdHas reports whether a file of etcd has a text.
func etcdHas(t *testing.T, c *cluster, text []byte) (found bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(c.dir, "cluster", "etcd"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAudit: with config/examples/audit-policy.yaml, the log has who wrote and read conversations, and no text of them.
func TestAudit(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	const text = "text-that-is-not-logged"
	object := session(namespace, "resp_1", text)
	if err := c.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		audited := map[string]auditv1.Level{}
		for _, event := range c.events(t, "admin") {
			if event.ObjectRef != nil && event.ObjectRef.Namespace == namespace && event.ObjectRef.Name == object.Name {
				audited[event.Verb] = event.Level
			}
		}
		if audited["create"] != auditv1.LevelMetadata || audited["get"] != auditv1.LevelMetadata {
			return fmt.Errorf("audited %v, want the create and the get at the level Metadata", audited)
		}
		return nil
	})
	if content, err := os.ReadFile(c.auditLog()); err != nil || bytes.Contains(content, []byte(text)) {
		t.Errorf("the log has the text of a conversation, or cannot be read: %v", err)
	}
}

// TestTenant: config/examples/tenant.yaml limits a namespace.
func TestTenant(t *testing.T) {
	c := sharedCluster(t)
	namespace := c.Namespace(t)
	manifest, err := os.ReadFile(filepath.Join(testutil.Root(), "config", "examples", "tenant.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range parse(t, manifest) {
		object.SetNamespace(namespace)
		if err := apply(t.Context(), c.Client, object); err != nil {
			t.Fatal(err)
		}
	}
	usage := func(ctx context.Context) (used, hard resource.Quantity, err error) {
		quota, name := &corev1.ResourceQuota{}, corev1.ResourceName("count/responsesessions.sessions.catena.dev")
		err = c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "conversations"}, quota)
		return quota.Status.Used[name], quota.Status.Hard[name], err
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		if _, hard, err := usage(ctx); err != nil || hard.IsZero() {
			return fmt.Errorf("sessions are not counted yet: %w", err)
		}
		return nil
	})
	if err := c.Client.Create(t.Context(), session(namespace, "resp_1", "text")); err != nil {
		t.Fatal(err)
	}
	if used, _, err := usage(t.Context()); err != nil || used.Value() != 1 {
		t.Errorf("%s sessions are counted (%v), want 1", used.String(), err)
	}
}

// session returns a session that has a text as its input, as JSON.
func session(namespace, id, text string) *v1alpha1.ResponseSession {
	return testsession.Make(namespace, id).Request(fmt.Sprintf(`{"input": %q}`, text)).Obj()
}
