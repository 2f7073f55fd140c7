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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/backup"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// TestImportSlowerThanGracePeriod: a turn is whole although its parts were marked, or deleted, before its session was created.
func TestImportSlowerThanGracePeriod(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, namespace string) error{
		"marked": func(t *testing.T, namespace string) error {
			for _, chunk := range testsession.Chunks(t, env.Client, namespace) {
				if chunk.Annotations[v1alpha1.UnreferencedSinceAnnotation] == "" {
					return fmt.Errorf("%s has no mark", chunk.Name)
				}
			}
			return nil
		},
		"deleted": func(t *testing.T, namespace string) error {
			if left := len(testsession.Chunks(t, env.Client, namespace)); left > 0 {
				return fmt.Errorf("%d chunks are left", left)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := env.NewNamespace(t)
			s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
			if err == nil {
				err = s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			before := resolveAll(t, namespace, []string{"resp_1"})
			file := newUser(t, namespace, "edit").export(t, namespace)
			wipe(t, namespace)
			var once sync.Once
			imported, err := importThrough(t, file, func(r *http.Request) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responsesessions") {
					once.Do(func() { testutil.Eventually(t, func(context.Context) error { return wait(t, namespace) }) })
				}
			})
			if err != nil || imported.Sessions.Verified != 1 || !imported.Complete() {
				t.Fatalf("got %+v, %v", imported, err)
			}
			waitForSweep(t, namespace)
			sameHistories(t, name, before, resolveAll(t, namespace, []string{"resp_1"}))
		})
	}
}

// importThrough imports a file in this process, and calls a function before each request.
func importThrough(t *testing.T, path string, before func(r *http.Request)) (*backup.Imported, error) {
	t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			before(r)
			return next.RoundTrip(r)
		})
	})
	cluster, err := backup.Open(t.Context(), backup.Options{
		Config: config, MaxTurnBytes: backup.DefaultMaxTurnBytes, Concurrency: backup.DefaultConcurrency,
		APITimeout: backup.DefaultAPITimeout,
		Problem:    func(object, problem string) { t.Errorf("%s: %s", object, problem) },
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	return cluster.Import(t.Context(), file, backup.ImportOptions{})
}

// TestVelero: what Velero restores, without owners and status and with its labels, conversations first, resolves as before. The operator makes
// the references again.
func TestVelero(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := populate(t, namespace)
	conversation := &store.Conversation{ConversationID: "conv_1", Head: store.Head{ResponseID: "resp_last"}}
	if _, err := openStore(t, namespace).Conversations().Create(t.Context(), conversation); err != nil {
		t.Fatal(err)
	}
	before, ownersBefore := resolveAll(t, namespace, ids), owners(t, namespace)
	var saved []unstructured.Unstructured
	for _, kind := range []string{v1alpha1.ConversationKind, v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
		if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		saved = append(saved, list.Items...)
	}
	bucket, copied := filepath.Join(bucketDir, namespace), filepath.Join(t.TempDir(), "bucket")
	if err := os.CopyFS(copied, os.DirFS(bucket)); err != nil {
		t.Fatal(err)
	}
	wipe(t, namespace)
	if err := os.CopyFS(bucket, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	for _, object := range saved {
		for _, field := range []string{
			"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences",
		} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
		unstructured.RemoveNestedField(object.Object, "status")
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["velero.io/backup-name"], labels["velero.io/restore-name"] = strings.Repeat("b", 63), strings.Repeat("r", 63)
		object.SetLabels(labels)
		if err := env.Client.Create(t.Context(), &object); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, func(context.Context) error {
		if diff := cmp.Diff(ownersBefore, owners(t, namespace)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	for _, id := range []string{"resp_large", "resp_bucket", "Antwort/Ü😀"} {
		testsession.WaitForReason(t, env.Client, namespace, id, v1alpha1.ReasonResolved)
	}
	waitForGarbageCollection(t, namespace)
	waitForSweep(t, namespace)
	sameHistories(t, "after the restore", before, resolveAll(t, namespace, ids))
	testutil.Eventually(t, func(context.Context) error {
		if got, want := verdicts(t, namespace)["conv_1"], "Resolved, 9 turns"; got != want {
			return fmt.Errorf("conversation: %s, want %s", got, want)
		}
		return nil
	})
}

// TestMemory: an export and an import keep the bodies of few turns in memory.
func TestMemory(t *testing.T) {
	const turns, size = 40, 8 << 20 // together about 1.5 times what a program takes on a busy machine
	namespace := env.NewNamespace(t)
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	for i := range turns {
		turn := testturn.Make(fmt.Sprintf("resp_%d", i), "")
		turn.Request = []byte(`{"input":"` + strings.Repeat("text ", size/5) + `"}`) // of which little is stored
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	editor := newUser(t, namespace, "edit")
	file, err := os.Create(filepath.Join(t.TempDir(), "sessions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	wantMemory := func(command *exec.Cmd) {
		t.Helper()
		if peak := testutil.PeakMemory(t, command.Process.Pid); peak > turns*size {
			t.Errorf("%s takes %d MiB for turns of %d MiB", command.Args[1], peak>>20, turns*size>>20)
		}
	}

	export := editor.command(t.Context(), "export", "-n", namespace)
	stdout, err := export.StdoutPipe()
	if err == nil {
		err = export.Start()
	}
	if err == nil { // almost all: the program waits for a reader of the rest
		_, err = io.CopyN(file, stdout, int64(base64.StdEncoding.EncodedLen((turns-1)*size)))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantMemory(export)
	if _, err := io.Copy(file, stdout); err != nil {
		t.Fatal(err)
	}
	if err := export.Wait(); err != nil {
		t.Fatal(err)
	}

	wipe(t, namespace)
	imports := editor.command(t.Context(), "import", "-")
	stdin, err := imports.StdinPipe()
	if err == nil {
		err = imports.Start()
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(stdin, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	wantMemory(imports) // it has read everything, and waits for the end of stdin
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := imports.Wait(); err != nil {
		t.Error(err)
	}
}
