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
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	_ "gocloud.dev/blob/s3blob" // s3://
	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/testenv"
	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// transport handles the requests of a client.
type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// openThrough opens the store of a namespace whose requests a function handles.
func openThrough(
	t *testing.T, namespace string, through func(next http.RoundTripper, r *http.Request) (*http.Response, error),
) *store.Store {
	t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) { return through(next, r) })
	})
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// saverOrder is the task of a saver process: it saves a turn and is killed at its Step-th write, before the request is sent
// or after it was answered.
type saverOrder struct {
	Kubeconfig, Namespace string
	Overwrite             bool
	Step                  int32
	Arrives               bool
}

// saverVariable is the environment variable with the saverOrder. If it is set, this program is that saver.
const saverVariable = "CATENA_TEST_SAVER"

// runSaver returns 0 if it has saved without being killed.
func runSaver(text string) int {
	var order saverOrder
	if err := json.Unmarshal([]byte(text), &order); err != nil {
		return 2
	}
	config, err := clientcmd.BuildConfigFromFlags("", order.Kubeconfig)
	if err != nil {
		return 2
	}
	var writes atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			last := r.Method != http.MethodGet && writes.Add(1) == order.Step
			if last && !order.Arrives {
				kill()
			}
			response, err := next.RoundTrip(r)
			if last {
				kill()
			}
			return response, err
		})
	})
	ctx := context.Background() //nolint:forbidigo // not in a test
	s, err := kube.Open(ctx, kube.Options{Config: config, Namespace: order.Namespace})
	if err != nil {
		return 2
	}
	if err := s.Save(ctx, largeTurn("resp_1", ""), store.SaveOptions{Overwrite: order.Overwrite}); err != nil {
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

// TestKilledSaver: a process that is killed at any write leaves the whole turn or none, and its leftovers are removed.
func TestKilledSaver(t *testing.T) {
	t.Parallel() // most of it is waiting
	turn := largeTurn("resp_1", "")
	s := open(t, kube.Options{})
	save(t, s, turn)
	writes := object(t, s.Namespace(), "resp_1").Spec.Snapshot.Parts + 1
	leftovers := map[string]*store.Store{}
	for step := int32(1); step <= writes; step++ {
		for _, arrives := range []bool{false, true} {
			name := fmt.Sprintf("write %d of %d, arrives %t", step, writes, arrives)
			survivor := open(t, kube.Options{})
			runAndKillSaver(t, saverOrder{env.Kubeconfig, survivor.Namespace(), false, step, arrives})
			got, err := survivor.Get(t.Context(), "resp_1")
			if step == writes && arrives {
				if err != nil || !bytes.Equal(got.Request, turn.Request) {
					t.Fatalf("%s: the turn is not whole: %v", name, err)
				}
				saveAgain(t, name, survivor)
				continue
			}
			if !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("%s: got %v, want no turn", name, err)
			}
			if left := len(chunks(t, survivor.Namespace())); left == 0 && (step > 1 || arrives) {
				t.Errorf("%s: nothing was left behind: it was not killed there", name)
			}
			leftovers[name] = survivor
		}
	}
	for name, survivor := range leftovers {
		testutil.Eventually(t, func(context.Context) error { return nothingStored(t, survivor.Namespace()) })
		saveAgain(t, name, survivor)
	}
}

// TestKilledOverwriter: a process that is killed at any write of an overwrite leaves the old turn or the new one.
func TestKilledOverwriter(t *testing.T) {
	t.Parallel() // most of it is waiting
	before, after := smallTurn("resp_1", ""), largeTurn("resp_1", "")
	measure := open(t, kube.Options{})
	save(t, measure, after.Clone())
	parts := object(t, measure.Namespace(), "resp_1").Spec.Snapshot.Parts
	survivors := map[string]*store.Store{}
	for step := int32(1); step <= parts+1; step++ {
		for _, arrives := range []bool{false, true} {
			name := fmt.Sprintf("write %d of %d, arrives %t", step, parts+1, arrives)
			survivor := open(t, kube.Options{})
			save(t, survivor, before.Clone())
			runAndKillSaver(t, saverOrder{env.Kubeconfig, survivor.Namespace(), true, step, arrives})
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
	if got := len(chunks(t, s.Namespace())); got != want {
		return fmt.Errorf("%s: there are %d chunks, not %d", name, got, want)
	}
	return nil
}

func runAndKillSaver(t *testing.T, order saverOrder) {
	t.Helper()
	text, err := json.Marshal(order)
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

// saveAgain repeats a save as a client does that got no response.
func saveAgain(t *testing.T, name string, s *store.Store) {
	t.Helper()
	save(t, s, largeTurn("resp_1", ""))
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestSaveAgain: a save that fails is repeated if that can help, also if the first attempt had succeeded.
func TestSaveAgain(t *testing.T) {
	refused := func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }
	for name, tc := range map[string]struct {
		fail     func(next http.RoundTripper, r *http.Request) (*http.Response, error)
		failures int32
		// wantWrites is the number of write requests.
		wantWrites int32
		wantErr    bool
	}{
		"not asked": {refused, 2, 3, false},
		"answer lost": {func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			return nil, errors.Join(io.ErrUnexpectedEOF, response.Body.Close())
		}, 1, 1, false},
		"overloaded": {func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusServiceUnavailable), nil
		}, 2, 3, false},
		"forbidden": {func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return answer(r, http.StatusForbidden), nil
		}, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var writes atomic.Int32
			s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet && writes.Add(1) <= tc.failures {
					return tc.fail(next, r)
				}
				return next.RoundTrip(r)
			})
			err := s.Save(t.Context(), smallTurn("resp_1", ""), store.SaveOptions{})
			if (err != nil) != tc.wantErr {
				t.Errorf("got %v", err)
			}
			if writes.Load() != tc.wantWrites {
				t.Errorf("%d writes, want %d", writes.Load(), tc.wantWrites)
			}
			if _, err := s.Get(t.Context(), "resp_1"); (err != nil) != tc.wantErr {
				t.Errorf("Get: %v", err)
			}
		})
	}
}

func answer(r *http.Request, code int) *http.Response {
	return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{}, Request: r}
}

// TestSaveGivesUp: a save gives up after some attempts.
func TestSaveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(*http.Request) (*http.Response, error) {
				attempts++
				return nil, syscall.ECONNREFUSED
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Save(t.Context(), smallTurn("resp_1", ""), store.SaveOptions{})
		if !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
			t.Errorf("got %v, want it to be unreachable", err)
		}
		if attempts != 7 {
			t.Errorf("%d attempts, want 7", attempts)
		}
	})
}

// TestDeleteGivesUp: a delete gives up if garbage collection does not work.
func TestDeleteGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deletes := 0
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				kind, version := "PartialObjectMetadata", "meta.k8s.io/v1"
				if r.Method == http.MethodDelete {
					kind, version = v1alpha1.ResponseSessionKind, v1alpha1.GroupVersion.String()
					deletes++
				}
				response := answer(r, http.StatusOK)
				response.Header.Set("Content-Type", "application/json")
				response.Body = io.NopCloser(strings.NewReader(
					`{"apiVersion":"` + version + `","kind":"` + kind + `","metadata":{"name":"resp.1","deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
				return response, nil
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = s.Delete(t.Context(), "resp_1", store.DeleteOptions{})
		if !errors.Is(err, store.ErrUnreachable) || !store.IsRetryable(err) {
			t.Errorf("got %v, want it to be unreachable", err)
		}
		if took := time.Since(start); took != 30*time.Second || deletes != 1 {
			t.Errorf("it took %s and %d deletes, want 30s and 1", took, deletes)
		}
	})
}

// TestDeadlineBetweenAttempts: the error contains the context's and that of the last attempt.
func TestDeadlineBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }),
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Get(ctx, "resp_1")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRetryAfter: a server that sends Retry-After gets only the retries of client-go.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s, err := kube.Open(t.Context(), kube.Options{Namespace: "a", Config: &rest.Config{
			Host: "https://localhost:1", QPS: -1,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				attempts++
				response := answer(r, http.StatusTooManyRequests)
				response.Header.Set("Retry-After", "1")
				return response, nil
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), "resp_1"); !errors.Is(err, store.ErrUnreachable) {
			t.Errorf("got %v, want it to be unreachable", err)
		}
		if attempts != 11 {
			t.Errorf("%d attempts, want 11", attempts)
		}
	})
}

// TestOverwriteAgain: an overwrite whose response was lost does not undo a later overwrite.
func TestOverwriteAgain(t *testing.T) {
	others := open(t, kube.Options{})
	save(t, others, smallTurn("resp_1", ""))
	var lost atomic.Bool
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut || lost.Swap(true) {
			return response, err
		}
		_ = response.Body.Close()
		newest, err := others.Get(t.Context(), "resp_1")
		if err != nil {
			return nil, err
		}
		newest.ConversationID = "newest"
		return nil, errors.Join(io.ErrUnexpectedEOF, others.Save(t.Context(), newest, store.SaveOptions{Overwrite: true}))
	})
	mine := smallTurn("resp_1", "")
	mine.ConversationID = "mine"
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "newest" {
		t.Errorf("got %+v and %v, want the newest", got, err)
	}
}

// TestOverwriteArrived: an overwrite that was stored is a success, also if a proxy that lost the response makes client-go
// send it again.
func TestOverwriteArrived(t *testing.T) {
	others := open(t, kube.Options{})
	save(t, others, smallTurn("resp_1", ""))
	var lost atomic.Bool
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPut || lost.Swap(true) {
			return response, err
		}
		return comeAgain(r), response.Body.Close()
	})
	mine := smallTurn("resp_1", "")
	mine.ConversationID = "mine"
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "mine" {
		t.Errorf("got %+v and %v, want mine", got, err)
	}
	mine.ConversationID = "again" // with its current version
	if err := s.Save(t.Context(), mine, store.SaveOptions{Overwrite: true}); err != nil {
		t.Error(err)
	}
}

// comeAgain is a response after which client-go repeats a request by itself.
func comeAgain(r *http.Request) *http.Response {
	response := answer(r, http.StatusServiceUnavailable)
	response.Header.Set("Retry-After", "0")
	return response
}

// TestChunkArrived: the same for a chunk, the first and another one.
func TestChunkArrived(t *testing.T) {
	for _, part := range []int32{1, 3} {
		namespace := open(t, kube.Options{}).Namespace()
		var posted atomic.Int32
		s := openThrough(t, namespace, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method != http.MethodPost || posted.Add(1) != part {
				return response, err
			}
			return comeAgain(r), response.Body.Close()
		})
		save(t, s, largeTurn("resp_1", ""))
		if _, err := s.Get(t.Context(), "resp_1"); err != nil {
			t.Error(err)
		}
	}
}

// TestDeletedMeanwhile: a create whose response was lost is repeated with a new snapshot if the turn has been deleted in the
// meantime, with its snapshot.
func TestDeletedMeanwhile(t *testing.T) {
	for name, attempt := range map[string]store.SaveOptions{"create": {}, "overwrite of nothing": {Overwrite: true}} {
		t.Run(name, func(t *testing.T) {
			others := open(t, kube.Options{})
			var lost atomic.Bool
			s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") || lost.Swap(true) {
					return response, err
				}
				_ = response.Body.Close()
				return nil, errors.Join(io.ErrUnexpectedEOF, others.Delete(t.Context(), "resp_1", store.DeleteOptions{}))
			})
			if err := s.Save(t.Context(), largeTurn("resp_1", ""), attempt); err != nil {
				t.Fatal(err)
			}
			parts := int(object(t, others.Namespace(), "resp_1").Spec.Snapshot.Parts)
			// Garbage collection may not have finished with the first one.
			testutil.Eventually(t, func(context.Context) error { return wantChunks(t, name, others, parts) })
			if _, err := others.Get(t.Context(), "resp_1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSnapshotInUse: a refused save keeps its snapshot if its first attempt had succeeded and the turn was edited since.
func TestSnapshotInUse(t *testing.T) {
	others := open(t, kube.Options{})
	s := openThrough(t, others.Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responsesessions") || response.StatusCode != http.StatusCreated {
			return response, err
		}
		_ = response.Body.Close()
		return nil, errors.Join(io.ErrUnexpectedEOF, edit(t, others.Namespace(), "resp_1", "edited"))
	})
	if err := s.Save(t.Context(), largeTurn("resp_1", ""), store.SaveOptions{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if got, err := others.Get(t.Context(), "resp_1"); err != nil || got.ConversationID != "edited" {
		t.Errorf("the turn cannot be read: %v", err)
	}
}

// TestOtherCalls: reading, resolving and deleting are repeated too.
func TestOtherCalls(t *testing.T) {
	var failures atomic.Int32
	s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if failures.Add(-1) >= 0 {
			return answer(r, http.StatusServiceUnavailable), nil
		}
		return next.RoundTrip(r)
	})
	save(t, s, smallTurn("resp_1", ""))
	failures.Store(2)
	if _, err := s.Get(t.Context(), "resp_1"); err != nil {
		t.Error(err)
	}
	failures.Store(2)
	if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
		t.Error(err)
	}
	failures.Store(2)
	if err := s.Delete(t.Context(), "resp_1", store.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestAnswerCutOff: a request whose response ends early, as when a server is killed, is repeated.
func TestAnswerCutOff(t *testing.T) {
	for name, cut := range map[string]error{
		"HTTP/1": io.ErrUnexpectedEOF,
		"HTTP/2": http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Int32
			s := openThrough(t, open(t, kube.Options{}).Namespace(), func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err == nil && failures.Add(-1) >= 0 {
					_ = response.Body.Close()
					response.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(cut)))
				}
				return response, err
			})
			failures.Store(1)
			save(t, s, smallTurn("resp_1", ""))
			failures.Store(1)
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
				t.Error(err)
			}
			failures.Store(1)
			if _, err := s.Get(t.Context(), "resp_1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOtherNamespaces: an invalid namespace does not lead to another one.
func TestOtherNamespaces(t *testing.T) {
	s := open(t, kube.Options{})
	save(t, s, smallTurn("resp_1", ""))
	if _, err := s.InNamespace("x/../"+s.Namespace()).Resolve(t.Context(), "resp_1", store.ResolveOptions{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v, want it to be invalid", err)
	}
}

// TestUntrustedServer: an untrusted certificate is not retryable.
func TestUntrustedServer(t *testing.T) {
	config := rest.CopyConfig(env.Config)
	config.CAData, config.CAFile = nil, env.ResolveCAFile
	s, err := kube.Open(t.Context(), kube.Options{Config: config, Namespace: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), smallTurn("resp_1", ""), store.SaveOptions{}); err == nil || store.IsRetryable(err) {
		t.Errorf("got %v, want an error that is not retryable", err)
	}
}

// TestBucketFails: an overloaded bucket gets three requests, and one that refuses gets one.
func TestBucketFails(t *testing.T) {
	for status, tc := range map[int]struct {
		wantRequests  int32
		wantRetryable bool
	}{
		http.StatusServiceUnavailable: {3, true},
		http.StatusForbidden:          {1, false},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var requests atomic.Int32
			bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.WriteHeader(status)
			}))
			defer bucket.Close()
			s := open(t, kube.Options{
				InlineBytes:   -1,
				SnapshotStore: "s3://snapshots?anonymous=true&region=us-east-1&use_path_style=true&endpoint=" + bucket.URL,
			})
			err := s.Save(t.Context(), smallTurn("resp_1", ""), store.SaveOptions{})
			if err == nil || errors.Is(err, store.ErrUnreachable) != tc.wantRetryable || store.IsRetryable(err) != tc.wantRetryable {
				t.Errorf("got %v, want retryable: %t", err, tc.wantRetryable)
			}
			if got := requests.Load(); got != tc.wantRequests {
				t.Errorf("%d requests, want %d", got, tc.wantRequests)
			}
		})
	}
}

// TestEscaped: the size of a turn in its object includes the escapes.
func TestEscaped(t *testing.T) {
	for name, tc := range map[string]struct {
		options    kube.Options
		characters int
		wantInline bool
	}{
		"by default":       {kube.Options{}, 60_000, false},
		"the largest ones": {kube.Options{InlineBytes: 512 << 10}, 500_000, false},
		"few of them":      {kube.Options{InlineBytes: 512 << 10}, 80_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, tc.options)
			turn := smallTurn("resp_1", "")
			turn.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("<", tc.characters))
			save(t, s, turn)
			if inline := object(t, s.Namespace(), "resp_1").Spec.Snapshot == nil; inline != tc.wantInline {
				t.Errorf("in the object: %t", inline)
			}
			if _, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTooLargeForEtcd: an object that etcd refuses is too large and not retryable.
func TestTooLargeForEtcd(t *testing.T) {
	s := open(t, kube.Options{InlineBytes: 512 << 10})
	turn := smallTurn("resp_1", "")
	turn.Request = []byte(`{"input":"a","n":[` + strings.Repeat("1e20,", 100_000) + `0]}`)
	if err := s.Save(t.Context(), turn, store.SaveOptions{}); !errors.Is(err, store.ErrTooLarge) || store.IsRetryable(err) {
		t.Errorf("got %v, want it to be too large", err)
	}
}

// TestOpenURL: the parameters of the URL reach the store.
func TestOpenURL(t *testing.T) {
	namespace := open(t, kube.Options{}).Namespace()
	base := testenv.StoreURL(namespace, env.Kubeconfig)
	s, err := store.Open(t.Context(), base+"&max-turn-bytes=20&inline-bytes=-1")
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, smallTurn("resp_1", ""))
	if object(t, namespace, "resp_1").Spec.Snapshot == nil {
		t.Error("its bodies are in the object")
	}
	large := smallTurn("resp_2", "")
	large.Metadata = []byte(`{"a":1}`)
	if err := s.Save(t.Context(), large, store.SaveOptions{}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("got %v, want it to be too large", err)
	}
	for _, parameters := range []string{"&max-turn-bytes=x", "&max-turn-bytes=-1", "&inline-bytes=2000000", "&unknown=1", "#fragment"} {
		if s, err := store.Open(t.Context(), base+parameters); err == nil {
			t.Errorf("%s opens %v", parameters, s)
		}
	}
}
