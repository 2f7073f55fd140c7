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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/testutil"
	"github.com/catena-dev/catena/internal/testutil/testsession"
)

// TestGracefulShutdown: an operator that is told to stop is not ready at once, answers what it has accepted, and sends
// away what comes later.
func TestGracefulShutdown(t *testing.T) {
	const delay = 5 * time.Second
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 30)
	last := createLarge(t, namespace, 8)
	stopping := startOperator(t, 0, "--shutdown-delay-duration="+delay.String())
	if err := resolved(t.Context(), direct(t, env.Config, stopping), namespace, "", ids...); err != nil {
		t.Fatal(err)
	}

	// Some have begun to read a large answer, and read on when the operator is about to end.
	var slow []io.Reader
	for range 4 {
		slow = append(slow, getSlowly(t, direct(t, env.Config, stopping), itemsPath(namespace, last, "")))
	}

	var answered, answeredLate atomic.Int64
	var notReady atomic.Bool
	group, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		a := direct(t, env.Config, stopping)
		group.Go(func() error {
			for {
				late := notReady.Load()
				answer, err := a.do(ctx, itemsPath(namespace, ids[29], ""), "")
				if refused(answer, err) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("an accepted request failed: %w", err)
				}
				h, err := answer.decode()
				if err != nil {
					return err
				}
				if diff := h.check(ids, testsession.Items(ids...)); diff != "" {
					return errors.New(diff)
				}
				if answered.Add(1); late {
					answeredLate.Add(1)
				}
			}
		})
	}
	testutil.Eventually(t, func(context.Context) error { return unless(answered.Load() > 50, "requests are under way") })
	start := time.Now()
	if err := syscall.Kill(stopping.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func(ctx context.Context) error { return unless(!ready(ctx, stopping.HealthURL), "not ready") })
	notReady.Store(true)
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < delay {
		t.Errorf("sent requests away after %s already, before the delay of %s", took, delay)
	}
	if answeredLate.Load() == 0 {
		t.Error("no request was answered that came when it was not ready")
	}
	for _, rest := range slow {
		body, err := io.ReadAll(rest)
		if err != nil {
			t.Errorf("a large answer broke off after %d bytes: %v", len(body), err)
		} else if _, err := (reply{code: http.StatusOK, body: body}).decode(); err != nil {
			t.Error(err)
		}
	}
	<-stopping.Done()
	if err := stopping.Err(); err != nil {
		t.Errorf("the operator ended with %v", err)
	}
	t.Logf("%d requests answered, %d of them when it was not ready; ended %s after it", answered.Load(), answeredLate.Load(), time.Since(start).Round(time.Millisecond))
}

// createLarge creates turns of a megabyte and returns the last one's ID.
func createLarge(t *testing.T, namespace string, turns int) string {
	t.Helper()
	text := strings.Repeat("a", 1<<20)
	previous := ""
	for i := range turns {
		id := fmt.Sprintf("resp_large_%d", i)
		testsession.Make(namespace, id).After(previous).Response(`{"output":[`+testutil.AssistantMessage(text)+`]}`).Create(t, env.Client)
		previous = id
	}
	return previous
}

// getSlowly returns the body of an answer of which only the header has been read.
func getSlowly(t *testing.T, a api, path string) io.Reader {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("answer %s", response.Status)
	}
	return response.Body
}

// refused reports whether a request was not accepted: there was nobody to connect to, or it was told to go elsewhere.
func refused(answer reply, err error) bool {
	var network *net.OpError
	if err != nil {
		return errors.As(err, &network) && network.Op == "dial"
	}
	// k8s.io/apiserver looks twice, and answers otherwise where it ends between the two.
	elsewhere := answer.code == http.StatusTooManyRequests || bytes.Contains(answer.body, []byte("apiserver is shutting down"))
	return elsewhere && answer.header.Get("Retry-After") != ""
}

func ready(ctx context.Context, healthURL string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, healthURL+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
