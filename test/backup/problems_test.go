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

package backup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestRefusedFiles: nothing of a file that is not whole is imported.
func TestRefusedFiles(t *testing.T) {
	namespace := env.NewNamespace(t)
	testsession.Make(namespace, "resp_1").Create(t, env.Client)
	testsession.Make(namespace, "resp_2").After("resp_1").Create(t, env.Client)
	editor := newUser(t, namespace, "edit")
	whole, err := os.ReadFile(editor.export(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	wipe(t, namespace)
	text := string(whole)
	for name, tc := range map[string]struct{ file, want string }{
		"damaged":         {strings.Replace(text, "question of resp_2", "question of resp_3", 1), "the file is damaged or incomplete: line 3"},
		"truncated":       {text[:len(text)-20], "the file is damaged or incomplete: line 4: the file ends in the middle of it"},
		"another version": {strings.Replace(text, `"version":2`, `"version":3`, 1), "the file has version 3, and this program reads versions up to 2"},
		"another file":    {"apiVersion: v1\n", "the file is no export of sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			editor.run(t, "import", path).want(t, 1, tc.want)
			if left := len(testsession.Metadata(t, env.Client, namespace)); left > 0 {
				t.Errorf("%d sessions were imported", left)
			}
		})
	}
}

// TestDifferentSession: a session that exists with another content is reported, and neither it nor what follows it is written.
func TestDifferentSession(t *testing.T) {
	namespace := env.NewNamespace(t)
	testsession.Make(namespace, "resp_1").Create(t, env.Client)
	testsession.Make(namespace, "resp_2").After("resp_1").Create(t, env.Client)
	editor := newUser(t, namespace, "edit")
	file := editor.export(t, namespace)
	wipe(t, namespace)
	existing := testsession.Make(namespace, "resp_1").Request(`{"input":"other"}`).Create(t, env.Client)
	editor.run(t, "import", file).want(t, 1, "resp.1: exists with a different spec", "resp.2: left out", "1 different")
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(existing), existing); err != nil || string(existing.Spec.Request.Raw) != `{"input":"other"}` {
		t.Errorf("got %s, %v", existing.Spec.Request.Raw, err)
	}
	if left := len(testsession.Metadata(t, env.Client, namespace)); left != 1 {
		t.Errorf("got %d sessions, want 1", left)
	}
}

// TestUnreadableTurn: a turn whose chunks are lost is exported, and reported by the exit code.
func TestUnreadableTurn(t *testing.T) {
	namespace := env.NewNamespace(t)
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace, InlineBytes: -1})
	if err == nil {
		err = s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
	}
	if err == nil {
		err = env.Client.DeleteAllOf(t.Context(), &v1alpha1.SnapshotChunk{}, client.InNamespace(namespace))
	}
	if err != nil {
		t.Fatal(err)
	}
	reader := newUser(t, namespace, "catena-reader")
	path := filepath.Join(t.TempDir(), "file")
	reader.run(t, "export", "-n", namespace, "-o", path).want(t, 1, "resp.1: unable to read the snapshot", "the bodies of 1 sessions could not be read")
	reader.run(t, "export", "-n", namespace, "-o", path).want(t, 1, "exists: choose another name")
	reader.run(t, "export", "-n", namespace, "-o", path+"2", "--allow-unreadable").want(t, 0)
	wipe(t, namespace)
	newUser(t, namespace, "edit").run(t, "import", path).want(t, 0, "1 created", "1 without their bodies", "1 not verified", "0 verified")
	testsession.WaitForReason(t, env.Client, namespace, "resp_1", v1alpha1.ReasonSnapshotUnreadable)
}

// TestLostBodies: an import that is repeated writes bodies that are missing again. It reports those that are damaged, until their session
// is deleted.
func TestLostBodies(t *testing.T) {
	namespace := env.NewNamespace(t)
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace, SnapshotStore: bucketURL(), InlineBytes: -1})
	if err == nil {
		err = s.Save(t.Context(), testturn.Make("resp_1", ""), store.SaveOptions{})
	}
	if err == nil {
		err = s.Save(t.Context(), testturn.Make("resp_2", "resp_1"), store.SaveOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	editor := newUser(t, namespace, "edit")
	file := editor.export(t, namespace, "--snapshot-store="+bucketURL())
	imports := func(code int, texts ...string) {
		t.Helper()
		editor.run(t, "import", file, "--snapshot-store="+bucketURL()).want(t, code, texts...)
	}
	root := &v1alpha1.ResponseSession{}
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "resp.1"}, root); err != nil {
		t.Fatal(err)
	}
	stored, err := filepath.Glob(filepath.Join(bucketDir, namespace, "*", "*"+root.Spec.Snapshot.Key+"*"))
	if err != nil || len(stored) != 1 {
		t.Fatalf("got the objects %v of the bucket, %v, want one", stored, err)
	}

	if err := os.Remove(stored[0]); err != nil {
		t.Fatal(err)
	}
	imports(0, "2 exist already", "2 verified", "0 wrong")

	if err := os.WriteFile(stored[0], make([]byte, root.Spec.Snapshot.StoredBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	imports(1, "resp.1: unable to read the snapshot", "2 exist already", "0 verified", "2 wrong", "not everything in the file is stored as it was exported")

	wipe(t, namespace)
	imports(0, "2 created", "2 verified", "0 wrong")
}

// TestQuota: an import into a namespace whose quota is exceeded ends, and says so.
func TestQuota(t *testing.T) {
	namespace := env.NewNamespace(t)
	testsession.Make(namespace, "resp_1").Create(t, env.Client)
	editor := newUser(t, namespace, "edit")
	file := editor.export(t, namespace)
	full := env.NewNamespace(t)
	quota := &v1alpha1.SessionQuota{ObjectMeta: metav1.ObjectMeta{Namespace: full, Name: "quota"}}
	quota.Spec.Hard.Bytes = new(resource.MustParse("1"))
	if err := env.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	editorOfFull := newUser(t, full, "edit")
	testsession.Make(full, "resp_quota").Create(t, env.Client)
	testutil.Eventually(t, func(ctx context.Context) error { // the usage must be counted
		err := env.Client.Create(ctx, testsession.Make(full, "resp_more").Obj(), client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(err, errors.New("the quota is not exceeded yet"))
	})
	editorOfFull.run(t, "import", "-n", full, file).want(t, 1, "session.store.quota_exceeded")
}
