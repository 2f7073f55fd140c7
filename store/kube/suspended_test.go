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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// suspended is the line that a saver prints before it stops.
const suspended = "suspended"

// suspend stops this process until it gets SIGCONT.
func suspend() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	_, err := fmt.Fprintln(os.Stdout, suspended)
	if err := errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGSTOP)); err != nil {
		panic(err)
	}
	<-resumed // SIGSTOP may reach the other threads first
}

// stoppedSaver is a saver process that has stopped itself.
type stoppedSaver struct {
	*exec.Cmd
	store *store.Store
	task  saverTask
}

func startAndSuspendSaver(t *testing.T, task saverTask) *stoppedSaver {
	t.Helper()
	s := open(t, kube.Options{SnapshotStore: task.Bucket})
	task.Kubeconfig, task.Namespace, task.Suspend, task.Slow = env.Kubeconfig, s.Namespace(), true, gracePeriod/2
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	saver := &stoppedSaver{exec.CommandContext(t.Context(), os.Args[0]), s, task}
	saver.Env = append(os.Environ(), saverVariable+"="+string(text))
	output, err := saver.StdoutPipe()
	if err == nil {
		err = saver.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); strings.TrimSpace(line) != suspended {
		t.Fatalf("%s: the saver has not stopped: %q, %v", saver, line, err)
	}
	return saver
}

func (s *stoppedSaver) String() string {
	return fmt.Sprintf("bucket %q, write %d, arrives %t", s.task.Bucket, s.task.Step, s.task.Arrives)
}

// resume continues the saver, and reports whether it has acknowledged the turn.
func (s *stoppedSaver) resume(t *testing.T) bool {
	t.Helper()
	if err := s.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	err := s.Wait()
	if code := s.ProcessState.ExitCode(); code != 0 && code != 1 {
		t.Fatalf("%s: %v", s, err)
	}
	return err == nil
}

// TestSuspendedSaver: a process that is suspended at any write, and resumes after its parts were swept, leaves a whole turn if
// it acknowledges it. If it never resumes, the turn does not exist.
func TestSuspendedSaver(t *testing.T) {
	t.Parallel() // mostly waits
	want := largeTurn("resp_1", "")
	measure := open(t, kube.Options{})
	save(t, measure, want.Clone())
	parts := object(t, measure.Namespace(), "resp_1").Spec.Snapshot.Parts
	tasks := []saverTask{{Bucket: bucketURL(), Step: 1}, {Bucket: bucketURL(), Step: 1, Arrives: true}}
	for step := int32(1); step <= parts+1; step++ {
		tasks = append(tasks, saverTask{Step: step}, saverTask{Step: step, Arrives: true})
	}
	var savers []*stoppedSaver
	for _, task := range tasks {
		savers = append(savers, startAndSuspendSaver(t, task))
	}
	lost := startAndSuspendSaver(t, saverTask{Step: parts + 1})
	for _, saver := range append(savers, lost) {
		_, err := saver.store.Get(t.Context(), "resp_1")
		if errors.Is(err, store.ErrNotFound) {
			testutil.Eventually(t, func(context.Context) error { return nothingStored(t, saver.store.Namespace()) })
		} else if err != nil {
			t.Errorf("%s: %v", saver, err)
		}
	}
	for _, saver := range savers {
		if !saver.resume(t) {
			t.Errorf("%s: the turn was not acknowledged", saver)
			continue
		}
		wantWhole(t, saver.String(), saver.store, want)
	}
	if err := lost.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = lost.Wait()
	wantTurns(t, lost.store.Namespace())
}

// TestLostSaver: a saver whose session arrives after its parts were swept, and which never comes back, leaves a turn that was not acknowledged
// and is marked SnapshotUnreadable.
func TestLostSaver(t *testing.T) {
	for name, bucket := range map[string]string{"chunks": "", "bucket": bucketURL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits
			namespace := env.NewNamespace(t)
			ctx, die := context.WithCancel(t.Context())
			config := rest.CopyConfig(env.Config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") {
						return next.RoundTrip(r)
					}
					testutil.Eventually(t, func(context.Context) error { return nothingStored(t, namespace) })
					response, err := next.RoundTrip(r)
					die()
					if err != nil {
						return nil, err
					}
					return nil, errors.Join(context.Canceled, response.Body.Close())
				})
			})
			s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: namespace, SnapshotStore: bucket})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Save(ctx, largeTurn("resp_1", ""), store.SaveOptions{}); err == nil {
				t.Error("the turn was acknowledged")
			}
			testsession.WaitForReason(t, env.Client, namespace, "resp_1", v1alpha1.ReasonSnapshotUnreadable)
		})
	}
}

// wantWhole checks that a turn is complete, before and after the operator has read and swept it.
func wantWhole(t *testing.T, name string, s *store.Store, want *store.Session) {
	t.Helper()
	check := func() {
		t.Helper()
		if got, err := s.Get(t.Context(), want.ResponseID); err != nil || !want.SameContent(got) {
			t.Errorf("%s: the turn is incomplete: %v", name, err)
		}
	}
	check()
	session := testsession.WaitForReason(t, env.Client, s.Namespace(), want.ResponseID, v1alpha1.ReasonResolved)
	testutil.Eventually(t, func(context.Context) error {
		return unmarked(t, s.Namespace(), want.ResponseID, session.Spec.Snapshot.Key)
	})
	check()
}

// unmarked returns an error if any part of a snapshot is marked.
func unmarked(t *testing.T, namespace, id, key string) error {
	t.Helper()
	for _, chunk := range testsession.Chunks(t, env.Client, namespace) {
		if chunk.Annotations[v1alpha1.UnreferencedSinceAnnotation] != "" {
			return fmt.Errorf("%s has a mark", chunk.Name)
		}
	}
	marks, err := filepath.Glob(filepath.Join(bucketDir, namespace, v1alpha1.ObjectName(id), key+".*"))
	if err == nil && len(marks) > 0 {
		err = fmt.Errorf("unexpected marks %q", marks)
	}
	return err
}

// TestPartsDisappear: a slow save rewrites parts that have disappeared before its turn was stored.
func TestPartsDisappear(t *testing.T) {
	tests := map[string]struct {
		bucket string
		parts  []int
	}{
		"none":                 {},
		"first chunk":          {parts: []int{0}},
		"middle chunk":         {parts: []int{1}},
		"last chunk":           {parts: []int{2}},
		"all chunks":           {parts: []int{0, 1, 2}},
		"object in the bucket": {bucket: bucketURL(), parts: []int{0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace, want := env.NewNamespace(t), largeTurn("resp_1", "")
			config := rest.CopyConfig(env.Config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/responsesessions") {
						deleteParts(t, namespace, tc.bucket != "", tc.parts)
					}
					return next.RoundTrip(r)
				})
			})
			s, err := kube.OpenSlow(t.Context(), kube.Options{Config: config, Namespace: namespace, SnapshotStore: tc.bucket}, 0)
			if err != nil {
				t.Fatal(err)
			}
			save(t, s, want.Clone())
			wantWhole(t, name, s, want)
		})
	}
}

// deleteParts deletes parts of the only snapshot in a namespace.
func deleteParts(t *testing.T, namespace string, inBucket bool, parts []int) {
	if inBucket {
		if err := os.RemoveAll(filepath.Join(bucketDir, namespace)); err != nil {
			t.Error(err)
		}
		return
	}
	all := testsession.Chunks(t, env.Client, namespace)
	for _, part := range parts {
		err := env.Client.Delete(t.Context(), &v1alpha1.SnapshotChunk{ObjectMeta: all[part].ObjectMeta})
		if client.IgnoreNotFound(err) != nil { // the others follow the first one by themselves
			t.Error(err)
		}
	}
}

// TestRepeatedSaveWaits: a save whose turn is already stored, but with parts that a sweep may be about to delete, is
// acknowledged only once the parts are safe.
func TestRepeatedSaveWaits(t *testing.T) {
	s, want := open(t, kube.Options{}), largeTurn("resp_1", "")
	save(t, s, want.Clone())
	first := v1alpha1.SnapshotChunkName(object(t, s.Namespace(), "resp_1").Spec.Snapshot.Key, 0)
	again := openThrough(t, s.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && response.StatusCode == http.StatusConflict {
			mark(t, s.Namespace(), first)
		}
		return response, err
	})
	save(t, again, want.Clone())
	if err := unmarked(t, s.Namespace(), "resp_1", ""); err != nil {
		t.Error(err)
	}
	wantWhole(t, "after the repetition", s, want)
}

func mark(t *testing.T, namespace, chunk string) {
	object := &v1alpha1.SnapshotChunk{}
	object.Name, object.Namespace = chunk, namespace
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.UnreferencedSinceAnnotation, time.Now().UTC().Format(time.RFC3339))
	if err := env.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Error(err)
	}
}
