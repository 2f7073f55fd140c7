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

// TestGracefulShutdown checks that an operator becomes unready as soon as it gets SIGTERM, completes accepted requests, and
// rejects requests after the delay.
func TestGracefulShutdown(t *testing.T) {
	const delay = 5 * time.Second
	namespace := env.NewNamespace(t)
	ids := createChain(t, namespace, "resp", 30)
	last := createLarge(t, namespace, 8)
	stopping := startOperator(t, 0, "--shutdown-delay-duration="+delay.String())
	if err := checkHistory(t.Context(), direct(t, env.Config, stopping), namespace, "", ids...); err != nil {
		t.Fatal(err)
	}

	// Some clients have begun to read a large response, and read on while the operator shuts down.
	var slow []io.Reader
	for range 4 {
		slow = append(slow, getSlowly(t, direct(t, env.Config, stopping), itemsPath(namespace, last, "")))
	}

	var served, servedLate atomic.Int64
	var notReady atomic.Bool
	group, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		a := direct(t, env.Config, stopping)
		group.Go(func() error {
			for {
				late := notReady.Load()
				response, err := a.do(ctx, itemsPath(namespace, ids[29], ""), "")
				if rejected(response, err) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("an accepted request failed: %w", err)
				}
				h, err := response.decode()
				if err != nil {
					return err
				}
				if diff := h.check(ids, testutil.Items(ids...)); diff != "" {
					return errors.New(diff)
				}
				if served.Add(1); late {
					servedLate.Add(1)
				}
			}
		})
	}
	testutil.Eventually(t, func(context.Context) error { return unless(served.Load() > 50, "requests under way") })
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
		t.Errorf("rejected requests after %s, before the delay of %s", took, delay)
	}
	if servedLate.Load() == 0 {
		t.Error("no request was served after the operator became unready")
	}
	for _, rest := range slow {
		body, err := io.ReadAll(rest)
		if err != nil {
			t.Errorf("a large response ended after %d bytes: %v", len(body), err)
		} else if _, err := (httpResponse{code: http.StatusOK, body: body}).decode(); err != nil {
			t.Error(err)
		}
	}
	<-stopping.Done()
	if err := stopping.Err(); err != nil {
		t.Errorf("the operator failed: %v", err)
	}
	t.Logf("%d requests served, %d of them while unready; stopped %s after the signal", served.Load(), servedLate.Load(), time.Since(start).Round(time.Millisecond))
}

// createLarge creates a chain of turns of a mebibyte each and returns the ID of the last one.
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

// getSlowly returns the unread body of a response.
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
		t.Fatalf("got %s, want 200", response.Status)
	}
	return response.Body
}

// rejected reports whether a request was not accepted: the connection failed, or the response is retryable.
func rejected(response httpResponse, err error) bool {
	var network *net.OpError
	if err != nil {
		return errors.As(err, &network) && network.Op == "dial"
	}
	// k8s.io/apiserver checks for a shutdown twice, and the second check sends a different response.
	shuttingDown := response.code == http.StatusTooManyRequests || bytes.Contains(response.body, []byte("apiserver is shutting down"))
	return shuttingDown && response.header.Get("Retry-After") != ""
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
