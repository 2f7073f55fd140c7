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

// Package backup_test tests `catena export` and `catena import` with a real API server, its garbage collector, and an operator that sweeps
// continuously.
package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "gocloud.dev/blob/fileblob" // file://
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/snapshot"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

var (
	env *testenv.Environment
	// bucketDir is the bucket that the operator reads from.
	bucketDir string
	// program is bin/catena.
	program string
)

// gracePeriod is the operator's grace period.
const gracePeriod = 4 * time.Second

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "catena-bucket-")
	if err != nil {
		panic(err)
	}
	bucketDir = dir
	code := testenv.RunSuite(m.Run, func(ctx context.Context, started *testenv.Environment) (err error) {
		env = started
		if program, err = testenv.BuildProgram(ctx, "catena"); err != nil {
			return err
		}
		_, err = env.StartOperator(ctx, catenatest.OperatorOptions{Args: []string{
			"--shutdown-delay-duration=0s", "--snapshot-store=" + bucketURL(), "--snapshot-sweep-interval=1s",
			"--snapshot-grace-period=" + gracePeriod.String(), "--unsafe-snapshot-grace-period", "--snapshot-sweep-hold-off=0s",
		}})
		return err
	})
	_ = os.RemoveAll(bucketDir)
	os.Exit(code)
}

func bucketURL() string { return "file://" + bucketDir + "?no_tmp_dir=true&metadata=skip" }

// user is a user of a namespace with the rights of a ClusterRole.
type user struct{ kubeconfig string }

// newUser returns a user once it has its rights.
func newUser(t *testing.T, namespace, role string) user {
	t.Helper()
	name := role + "-" + namespace
	sessions, err := client.New(env.NewUser(t, role, namespace, "ClusterRole", role), client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error { // the API server receives roles through a watch
		err := sessions.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "none"}, &v1alpha1.ResponseSession{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("no rights yet"))
	})
	kubeconfig, err := env.KubeconfigFor(name)
	if err != nil {
		t.Fatal(err)
	}
	return user{kubeconfig}
}

// result is how a program has ended.
type result struct {
	stdout, stderr string
	code           int
}

// want fails the test unless the program has ended with a code, and its output contains all texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	if t.Failed() {
		t.Fatalf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
}

// command returns a subcommand of catena.
func (u user) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, append(args, "--kubeconfig="+u.kubeconfig)...)
}

func (u user) run(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := u.command(t.Context(), args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// export exports a namespace into a new file, and returns its path.
func (u user) export(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sessions.jsonl")
	u.run(t, append([]string{"export", "-n", namespace, "-o", path}, args...)...).want(t, 0)
	return path
}

// wipe deletes everything that Catena has in a namespace, and what it has in the bucket.
func wipe(t *testing.T, namespace string) {
	t.Helper()
	for _, kind := range []client.Object{
		&v1alpha1.Conversation{}, &v1alpha1.ConversationSummary{}, &v1alpha1.ResponseSession{}, &v1alpha1.SnapshotChunk{},
	} {
		if err := env.Client.DeleteAllOf(t.Context(), kind, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, func(context.Context) error {
		left := len(testsession.Metadata(t, env.Client, namespace)) + len(testsession.Chunks(t, env.Client, namespace)) +
			len(conversationsOf(t, namespace)) + len(summariesOf(t, namespace))
		if left > 0 {
			return fmt.Errorf("%d objects are left", left)
		}
		return nil
	})
	testutil.Eventually(t, func(context.Context) error { return os.RemoveAll(filepath.Join(bucketDir, namespace)) }) // a sweep may write there
}

// waitForGarbageCollection waits until the garbage collector has seen all sessions.
func waitForGarbageCollection(t *testing.T, namespace string) {
	t.Helper()
	testsession.WaitForGarbageCollection(t, env.Client, testsession.Make(namespace, "resp_canary").Create(t, env.Client))
}

// waitForSweep waits until the sweeper has deleted a chunk that is newer than all others and that no session refers to.
func waitForSweep(t *testing.T, namespace string) {
	t.Helper()
	config, err := kubeclient.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Namespace: namespace, Name: "resp.canary"}
	ref, err := snapshot.Write(t.Context(), snapshot.NewChunkStore(config), name, snapshot.Bodies{Request: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error {
		key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.SnapshotChunkName(ref.Key, 0)}
		err := env.Client.Get(ctx, key, &v1alpha1.SnapshotChunk{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("the canary lives"))
	})
}

// transport handles the requests of a client.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
