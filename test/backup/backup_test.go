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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// largeTurn is a turn of 1.8 MB, more than etcd accepts, with a number and spaces that a custom resource does not preserve.
func largeTurn(id, previous string) *store.Session {
	image := make([]byte, 900_000)
	_, _ = rand.NewChaCha8([32]byte{byte(len(id))}).Read(image) // never fails
	turn := testturn.Make(id, previous)
	turn.Request = fmt.Appendf(nil, `{ "model":"m", "input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%x"}],"n":12345678901234567890}] }`, image)
	return turn
}

// populate fills a namespace with turns of all kinds, waits for their verdicts, and returns their response IDs.
func populate(t *testing.T, namespace string) []string {
	t.Helper()
	inChunks, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	inBucket, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace, SnapshotStore: bucketURL()})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	save := func(s *store.Store, turn *store.Session, reason string) {
		t.Helper()
		if err := s.Save(t.Context(), turn, store.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		reasons[turn.ResponseID] = reason
	}
	object := func(b testsession.Builder, reason string, edit func(*v1alpha1.ResponseSession)) {
		t.Helper()
		edit(b.Obj())
		reasons[b.Create(t, env.Client).Spec.ResponseID] = reason
	}
	nothing := func(*v1alpha1.ResponseSession) {}

	previous := ""
	for i := range 20 {
		id := fmt.Sprintf("resp_%d", 99-i)
		save(inChunks, testturn.Make(id, previous), v1alpha1.ReasonResolved)
		previous = id
	}
	save(inChunks, testturn.Make("resp_fork", "resp_95"), v1alpha1.ReasonResolved)
	save(inChunks, largeTurn("resp_large", "resp_fork"), v1alpha1.ReasonResolved)
	save(inBucket, largeTurn("resp_bucket", "resp_large"), v1alpha1.ReasonResolved)
	save(inChunks, testturn.Make("resp_last", "resp_bucket"), v1alpha1.ReasonResolved)
	unicode := testturn.Make("Antwort/Ü😀", "resp_last")
	unicode.Request = []byte(`{"input":"<Grüße> \u2028\u0000 😀 \ud83d\ude00"}`)
	unicode.Immutable = true
	save(inChunks, unicode, v1alpha1.ReasonResolved)
	save(inChunks, testturn.Make("resp_orphan", "resp_gone"), v1alpha1.ReasonParentNotFound)
	running := testturn.Make("resp_running", "resp_95")
	running.Status = store.StatusInProgress
	save(inChunks, running, v1alpha1.ReasonTurnPending)
	save(inChunks, testturn.Make("resp_c1", "resp_c2"), v1alpha1.ReasonCycleDetected)
	save(inChunks, testturn.Make("resp_c2", "resp_c3"), v1alpha1.ReasonCycleDetected)
	object(testsession.Make(namespace, "resp_c3").After("resp_c1"), v1alpha1.ReasonCycleDetected, nothing)
	save(inChunks, testturn.Make("resp_after_cycle", "resp_c3"), v1alpha1.ReasonCycleDetected)
	object(testsession.Make(namespace, "resp_alone").After("resp_95"), v1alpha1.ReasonResolved, func(s *v1alpha1.ResponseSession) {
		s.Annotations = map[string]string{v1alpha1.OmitOwnerReferenceAnnotation: "true", "note": "Notiz 😀"}
		s.Labels = map[string]string{"team": "a"}
	})
	object(testsession.Make(namespace, "resp_invalid").Request(`{"instructions":["a list"]}`), v1alpha1.ReasonSnapshotUnreadable, nothing)

	var ids []string
	for id, reason := range reasons {
		testsession.WaitForReason(t, env.Client, namespace, id, reason)
		ids = append(ids, id)
	}
	return ids
}

// resolveAll returns the histories of turns, or the codes of the errors, with the turns at which they occurred.
func resolveAll(t *testing.T, namespace string, ids []string) map[string]string {
	t.Helper()
	s, err := kube.Open(t.Context(), kube.Options{Config: env.Config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, id := range ids {
		history, err := s.Resolve(t.Context(), id, store.ResolveOptions{})
		if e, ok := errors.AsType[*store.Error](err); ok {
			results[id] = string(e.Code) + " " + e.ResponseID
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		results[id] = strings.Join(history.Turns, " ") + "\n" + string(bytes.Join(raws(history.Items), []byte("\n")))
	}
	return results
}

func raws(items []json.RawMessage) [][]byte {
	var all [][]byte
	for _, item := range items {
		all = append(all, item)
	}
	return all
}

// sameHistories compares whole texts: cmp.Diff of megabytes takes minutes.
func sameHistories(t *testing.T, when string, want, got map[string]string) {
	t.Helper()
	for id := range want {
		if want[id] != got[id] {
			t.Errorf("%s: %s resolves to %.200q, want %.200q", when, id, got[id], want[id])
		}
	}
}

// owners returns the names of the owners of all sessions, which must exist with the UIDs in the references. It leaves out those of the
// cycle: the operator adds some while the cycle is not complete.
func owners(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all := testsession.Metadata(t, env.Client, namespace)
	uids := map[string]string{}
	for _, s := range all {
		uids[string(s.UID)] = s.Name
	}
	names := map[string]string{}
	for _, s := range all {
		for _, owner := range s.OwnerReferences {
			if uids[string(owner.UID)] != owner.Name {
				t.Errorf("%s has an owner that does not exist: %s", s.Name, owner.Name)
			}
			names[s.Name] += owner.Name
		}
	}
	for _, name := range []string{"resp.c1", "resp.c2", "resp.c3"} {
		delete(names, name)
	}
	return names
}

// specs returns the specs of all sessions without what depends on where snapshots are, and their labels and annotations.
func specs(t *testing.T, namespace string) map[string]any {
	t.Helper()
	list := &v1alpha1.ResponseSessionList{}
	if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, s := range list.Items {
		if ref := s.Spec.Snapshot; ref != nil {
			s.Spec.Snapshot = &v1alpha1.SnapshotReference{SizeBytes: ref.SizeBytes, SHA256: ref.SHA256}
		}
		all[s.Name] = []any{s.Spec, s.Labels, s.Annotations}
	}
	return all
}

// TestExportWipeImport: after everything was deleted and imported, every chain resolves as before, with the garbage collector and the
// sweeper running, and for a user who may only edit the namespace.
func TestExportWipeImport(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := populate(t, namespace)
	before, ownersBefore, specsBefore := resolveAll(t, namespace, ids), owners(t, namespace), specs(t, namespace)
	reader, editor := newUser(t, namespace, "catena-reader"), newUser(t, namespace, "edit")
	file := reader.export(t, namespace, "--snapshot-store="+bucketURL())
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v, want 0600", info.Mode(), err)
	}
	wipe(t, namespace)

	editor.run(t, "import", "--dry-run", file).want(t, 0, fmt.Sprintf("%d would be created", len(ids)))
	if left := len(testsession.Metadata(t, env.Client, namespace)); left > 0 {
		t.Fatalf("a dry run has created %d sessions", left)
	}
	editor.run(t, "import", file, "--snapshot-store="+bucketURL()).
		want(t, 0, fmt.Sprintf("%d created, 0 exist already, 0 different, 0 refused", len(ids)), fmt.Sprintf("%d verified", len(ids)))
	sameHistories(t, "after the import", before, resolveAll(t, namespace, ids))
	waitForGarbageCollection(t, namespace)
	waitForSweep(t, namespace)
	sameHistories(t, "after garbage collection and a sweep", before, resolveAll(t, namespace, ids))
	if diff := cmp.Diff(ownersBefore, owners(t, namespace)); diff != "" {
		t.Errorf("owners (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(specsBefore, specs(t, namespace)); diff != "" {
		t.Errorf("sessions (-before +after):\n%s", diff)
	}
	editor.run(t, "import", file, "--snapshot-store="+bucketURL()).
		want(t, 0, fmt.Sprintf("0 created, %d exist already, 0 different", len(ids)), fmt.Sprintf("%d verified", len(ids)))

	// The references work: the root takes its descendants along, except the one that has opted out.
	root := &v1alpha1.ResponseSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "resp.99"}}
	if err := env.Client.Delete(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		var left []string
		for _, s := range testsession.Metadata(t, env.Client, namespace) {
			left = append(left, s.Name)
		}
		want := []string{"resp.after.cycle", "resp.alone", "resp.c1", "resp.c2", "resp.c3", "resp.invalid", "resp.orphan"}
		if diff := cmp.Diff(want, left); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestOtherNamespace: an export can be imported into another namespace, and large turns go to chunks there if no bucket is named.
func TestOtherNamespace(t *testing.T) {
	namespace, other := env.NewNamespace(t), env.NewNamespace(t)
	ids := populate(t, namespace)
	editor := newUser(t, other, "edit")
	file := newUser(t, namespace, "edit").export(t, namespace, "--snapshot-store="+bucketURL())
	editor.run(t, "import", "-n", other, file).want(t, 0, fmt.Sprintf("%d verified", len(ids)), "into namespace "+other)
	sameHistories(t, "in the other namespace", resolveAll(t, namespace, ids), resolveAll(t, other, ids))
	if _, err := os.Stat(filepath.Join(bucketDir, other)); !os.IsNotExist(err) {
		t.Errorf("the bucket has something of namespace %s: %v", other, err)
	}
	editor.run(t, "export", "-n", namespace).want(t, 1, "forbidden")
	editor.run(t, "import", file).want(t, 1, "forbidden")
}

// TestKilledImport: an import that is killed in the middle continues when it is repeated.
func TestKilledImport(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := populate(t, namespace)
	before := resolveAll(t, namespace, ids)
	editor := newUser(t, namespace, "edit")
	file := editor.export(t, namespace, "--snapshot-store="+bucketURL())
	wipe(t, namespace)

	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	command := editor.command(t.Context(), "import", "-")
	stdin, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(data[:len(data)-1000]); err != nil { // it waits for the rest
		t.Fatal(err)
	}
	testutil.Eventually(t, func(context.Context) error {
		if len(testsession.Metadata(t, env.Client, namespace)) == 0 {
			return errors.New("nothing is imported yet")
		}
		return nil
	})
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if imported := len(testsession.Metadata(t, env.Client, namespace)); imported == len(ids) {
		t.Fatal("everything was imported before the import was killed")
	}
	editor.run(t, "import", file).want(t, 0, fmt.Sprintf("%d verified", len(ids)))
	waitForGarbageCollection(t, namespace)
	waitForSweep(t, namespace)
	sameHistories(t, "after the second import", before, resolveAll(t, namespace, ids))
}

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
		"another version": {strings.Replace(text, `"version":1`, `"version":2`, 1), "the file has version 2, and this program reads version 1"},
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
	newUser(t, namespace, "edit").run(t, "import", path).want(t, 0, "1 created", "1 without their bodies")
	testsession.WaitForReason(t, env.Client, namespace, "resp_1", v1alpha1.ReasonSnapshotUnreadable)
}

// TestImportSlowerThanGracePeriod: a turn is whole although its parts were marked, or deleted, before its session was created.
func TestImportSlowerThanGracePeriod(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, namespace string) error{
		"marked": func(t *testing.T, namespace string) error {
			for _, chunk := range chunks(t, namespace) {
				if chunk.Annotations[v1alpha1.UnreferencedSinceAnnotation] == "" {
					return fmt.Errorf("%s has no mark", chunk.Name)
				}
			}
			return nil
		},
		"deleted": func(t *testing.T, namespace string) error {
			if left := len(chunks(t, namespace)); left > 0 {
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
			if err != nil || imported.Verified != 1 || !imported.Complete() {
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
		Problem: func(session, problem string) { t.Errorf("%s: %s", session, problem) },
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

// TestVelero: what Velero restores, without owners and status and with its labels, sessions first, resolves as before. The operator makes
// the references again.
func TestVelero(t *testing.T) {
	namespace := env.NewNamespace(t)
	ids := populate(t, namespace)
	before, ownersBefore := resolveAll(t, namespace, ids), owners(t, namespace)
	var saved []unstructured.Unstructured
	for _, kind := range []string{v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind} {
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
}

// TestMemory: an export and an import keep the bodies of few turns in memory.
func TestMemory(t *testing.T) {
	const turns, size = 24, 8 << 20
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
	path := filepath.Join(t.TempDir(), "sessions.jsonl")
	run := func(args ...string) {
		t.Helper()
		command := editor.command(t.Context(), args...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			t.Skip("the memory of a process is unknown")
		}
		t.Logf("%s: %d MiB", args[0], usage.Maxrss>>10)
		if usage.Maxrss<<10 > turns*size {
			t.Errorf("%s takes %d MiB for turns of %d MiB", args[0], usage.Maxrss>>10, turns*size>>20)
		}
	}
	run("export", "-n", namespace, "-o", path)
	wipe(t, namespace)
	run("import", path)
}
