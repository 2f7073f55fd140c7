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

package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// saverTask is the task of a saver process: it saves a turn and is killed or suspended at its Step-th write, either before
// the request is sent or after the response has arrived.
type saverTask struct {
	Kubeconfig, Namespace string
	Overwrite             bool
	Step                  int32
	Arrives               bool
	Suspend               bool
	// Bucket is the URL of the bucket for snapshots, and Slow is the time after which the parts are checked once more.
	Bucket string
	Slow   time.Duration
}

// saverVariable is the environment variable with the saverTask. If it is set, the test binary runs as the saver.
const saverVariable = "CATENA_TEST_SAVER"

// runSaver returns 0 if it saved the turn without being killed.
func runSaver(text string) int {
	var task saverTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return 2
	}
	config, err := clientcmd.BuildConfigFromFlags("", task.Kubeconfig)
	if err != nil {
		return 2
	}
	stop := kill
	if task.Suspend {
		stop = suspend
	}
	var writes atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			last := r.Method != http.MethodGet && writes.Add(1) == task.Step
			if last && !task.Arrives {
				stop()
			}
			response, err := next.RoundTrip(r)
			if last && task.Arrives {
				stop()
			}
			return response, err
		})
	})
	ctx := context.Background() //nolint:forbidigo // not in a test
	s, err := kube.OpenSlow(ctx, kube.Options{Config: config, Namespace: task.Namespace, SnapshotStore: task.Bucket}, task.Slow)
	if err != nil {
		return 2
	}
	if err := s.Save(ctx, largeTurn("resp_1", ""), store.SaveOptions{Overwrite: task.Overwrite}); err != nil {
		return 1
	}
	return 0
}

func kill() {
	process, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// TestKilledSaver: a process that is killed at any write leaves either the whole turn or no turn, and its leftovers are
// removed.
func TestKilledSaver(t *testing.T) {
	t.Parallel() // mostly waits
	turn := largeTurn("resp_1", "")
	s := open(t, kube.Options{})
	save(t, s, turn)
	writes := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Parts + 1
	leftovers := map[string]*store.Store{}
	for step := int32(1); step <= writes; step++ {
		for _, arrives := range []bool{false, true} {
			name := fmt.Sprintf("write %d of %d, arrives %t", step, writes, arrives)
			survivor := open(t, kube.Options{})
			runAndKillSaver(t, saverTask{Kubeconfig: env.Kubeconfig, Namespace: survivor.Namespace(), Step: step, Arrives: arrives})
			got, err := survivor.Get(t.Context(), "resp_1")
			if step == writes && arrives {
				if err != nil || !bytes.Equal(got.Request, turn.Request) {
					t.Fatalf("%s: the turn is incomplete: %v", name, err)
				}
				saveAgain(t, name, survivor)
				continue
			}
			if !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("%s: got %v, want no turn", name, err)
			}
			if left := len(testsession.Chunks(t, env.Client, survivor.Namespace())); left == 0 && (step > 1 || arrives) {
				t.Errorf("%s: no parts were left behind: the saver was not killed at this write", name)
			}
			leftovers[name] = survivor
		}
	}
	for name, survivor := range leftovers {
		testutil.Eventually(t, func(context.Context) error { return nothingStored(t, survivor.Namespace()) })
		saveAgain(t, name, survivor)
	}
}

// TestKilledOverwriter: a process that is killed at any write of an overwrite leaves either the old turn or the new one.
func TestKilledOverwriter(t *testing.T) {
	t.Parallel() // mostly waits
	before, after := testturn.Make("resp_1", ""), largeTurn("resp_1", "")
	measure := open(t, kube.Options{})
	save(t, measure, after.Clone())
	parts := object(t, measure.Namespace(), "resp_1").Spec.Snapshot.Parts
	survivors := map[string]*store.Store{}
	for step := int32(1); step <= parts+1; step++ {
		for _, arrives := range []bool{false, true} {
			name := fmt.Sprintf("write %d of %d, arrives %t", step, parts+1, arrives)
			survivor := open(t, kube.Options{})
			save(t, survivor, before.Clone())
			runAndKillSaver(t, saverTask{
				Kubeconfig: env.Kubeconfig, Namespace: survivor.Namespace(), Overwrite: true, Step: step, Arrives: arrives,
			})
			want := before
			if step == parts+1 && arrives {
				want = after
			}
			if got, err := survivor.Get(t.Context(), "resp_1"); err != nil || !want.SameContent(got) {
				t.Fatalf("%s: the turn is neither the old nor the new one: %v", name, err)
			}
			if err := survivor.Save(t.Context(), after.Clone(), store.SaveOptions{Overwrite: true}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			survivors[name] = survivor
		}
	}
	for name, survivor := range survivors {
		testutil.Eventually(t, func(context.Context) error { return wantChunks(t, name, survivor, int(parts)) })
	}
}

func wantChunks(t *testing.T, name string, s *store.Store, want int) error {
	t.Helper()
	if got := len(testsession.Chunks(t, env.Client, s.Namespace())); got != want {
		return fmt.Errorf("%s: got %d chunks, want %d", name, got, want)
	}
	return nil
}

func runAndKillSaver(t *testing.T, task saverTask) {
	t.Helper()
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), saverVariable+"="+string(text))
	output, err := command.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		t.Fatalf("the saver was not killed: %v\n%s", err, output)
	}
}

// saveAgain repeats a save like a client that did not get a response.
func saveAgain(t *testing.T, name string, s *store.Store) {
	t.Helper()
	save(t, s, largeTurn("resp_1", ""))
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
