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

package silence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
)

// TestDrip: a response of which a proxy keeps sending a few bytes ends with an error, although it is never silent.
func TestDrip(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for err := error(nil); err == nil && r.Context().Err() == nil; {
			_, err = fmt.Fprintln(w)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer server.Close()
	client, err := kubeclient.New(limit(&rest.Config{Host: server.URL}, time.Hour, 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	response, err := kubeclient.ListRequest(client, kubeclient.Sessions, &metav1.ListOptions{}).Stream(t.Context())
	if err == nil { // on a loaded machine, even the headers can arrive too late
		_, err = io.Copy(io.Discard, response)
		_ = response.Close()
	}
	if !errors.Is(err, ErrEndless) {
		t.Errorf("got %v, want ErrEndless", err)
	}
}

// TestAge: the age counts from the beginning of the watch, so that it shows a first list that never completes.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		age := NewAge(kubeclient.Sessions)
		if n := testutil.CollectAndCount(age); n != 0 {
			t.Errorf("got %d metrics before the watch began", n)
		}
		check := func(want time.Duration) {
			t.Helper()
			time.Sleep(want) //nolint:forbidigo // on the bubble's clock
			if got := testutil.ToFloat64(age); got != want.Seconds() || age.Get() != want {
				t.Errorf("the age is %s and the metric %v, want %s", age.Get(), got, want)
			}
		}
		age.Start()
		check(time.Hour)
		age.Received(1)
		check(time.Second)
	})
}

// TestDelay: what arrives after a newer version was read is late.
func TestDelay(t *testing.T) {
	const interval = DefaultInterval
	synctest.Test(t, func(t *testing.T) {
		age := NewAge(kubeclient.Sessions)
		ctx, cancel := context.WithCancel(t.Context())
		var current atomic.Uint64
		var failing atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			age.Run(ctx, func(context.Context) (uint64, error) {
				if failing.Load() {
					return 0, errors.New("no answer")
				}
				return current.Load(), nil
			})
		}()
		check := func(want time.Duration) {
			t.Helper()
			if got := age.Get(); got != want {
				t.Errorf("the age is %s, want %s", got, want)
			}
		}
		read := func(version uint64) { // waits for the next read
			current.Store(version)
			time.Sleep(interval) //nolint:forbidigo // on the bubble's clock
			synctest.Wait()
		}
		age.Start()
		read(10)
		age.Received(11)
		check(0)
		read(20)
		read(30)
		check(2 * interval) // nothing was received
		age.Received(19)
		check(interval) // 20 was current one interval ago
		age.Received(20)
		check(0) // 30 was read just now
		read(30)
		age.Received(20)
		check(interval) // a bookmark of the same version
		read(30)
		age.Received(20)
		check(2 * interval)
		age.Received(30)
		check(0)
		read(30)
		age.Received(30)
		check(0) // no newer version exists
		failing.Store(true)
		read(40)
		age.Received(30)
		check(0) // 40 could not be read
		failing.Store(false)
		for version := range uint64(2 * maxAhead) {
			read(100 + version)
		}
		if got := len(age.ahead); got > maxAhead {
			t.Errorf("%d versions are kept, want at most %d", got, maxAhead)
		}
		age.Received(99)
		check((2*maxAhead - 1) * interval)
		age.Received(99 + 2*maxAhead - 10)
		check(9 * interval)
		age.Received(1000)
		check(0)
		cancel()
		<-done
	})
}
