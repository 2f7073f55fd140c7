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
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

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

	brokenHistories := fmt.Sprintf("%d not verified: their histories were broken", broken)
	verified := fmt.Sprintf("%d verified: their whole histories are stored as they were exported; 0 wrong", len(ids)-broken)
	editor.run(t, "import", "--dry-run", file).want(t, 0, fmt.Sprintf("%d would be created", len(ids)), brokenHistories)
	if left := len(testsession.Metadata(t, env.Client, namespace)); left > 0 {
		t.Fatalf("a dry run has created %d sessions", left)
	}
	editor.run(t, "import", file, "--snapshot-store="+bucketURL()).
		want(t, 0, fmt.Sprintf("%d created, 0 exist already, 0 different, 0 refused", len(ids)), brokenHistories, verified)
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
		want(t, 0, fmt.Sprintf("0 created, %d exist already, 0 different", len(ids)), brokenHistories, verified)

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
	editor.run(t, "import", "-n", other, file).want(t, 0, fmt.Sprintf("%d verified", len(ids)-broken), "into namespace "+other)
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
	editor.run(t, "import", file).want(t, 0, fmt.Sprintf("%d verified", len(ids)-broken))
	waitForGarbageCollection(t, namespace)
	waitForSweep(t, namespace)
	sameHistories(t, "after the second import", before, resolveAll(t, namespace, ids))
}
