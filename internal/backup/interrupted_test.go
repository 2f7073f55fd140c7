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

package backup

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestInterruptedImport: an import that ends at any write continues when it is repeated.
func TestInterruptedImport(t *testing.T) {
	for stop := int32(1); ; stop++ {
		api, c, file := conversations(t)
		ctx, cancel := context.WithCancel(t.Context())
		var writes atomic.Int32
		api.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && writes.Add(1) == stop {
				cancel()
			}
			return false
		}
		_, err := c.Import(ctx, strings.NewReader(file), ImportOptions{})
		cancel()
		if err == nil {
			break // there were fewer writes
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("write %d: got %v", stop, err)
		}
		imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
		if err != nil || !imported.Complete() || imported.Sessions.Verified != 4 || imported.Conversations.Verified != 2 || imported.Summaries.Verified != 2 {
			t.Errorf("write %d: got %+v, %v", stop, imported, err)
		}
		wantOwners(t, api, "from", mustRead(t, export(t.Context(), t, c, "from")))
	}
}

// TestInterruptedVerification: an import that ends while it verifies has no result.
func TestInterruptedVerification(t *testing.T) {
	api, config := newFake()
	c := openFake(t, config)
	api.put("from", newTurn("a", ""))
	file := export(t.Context(), t, c, "from")
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(phase string, _ int) (step, end func()) {
		if phase == "verify" {
			return cancel, func() {}
		}
		return func() {}, func() {}
	}
	if imported, err := c.Import(ctx, strings.NewReader(file), ImportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v, want context.Canceled", imported, err)
	}
}

// TestBusyVerification: an API server that does not answer for a moment does not end an import while it verifies.
func TestBusyVerification(t *testing.T) {
	api, c, file := family(t)
	var verifying, refused atomic.Bool
	api.before = func(w http.ResponseWriter, _ *http.Request) bool {
		if !verifying.Load() || refused.Swap(true) {
			return false
		}
		refuse(w, apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
		return true
	}
	c.Progress = func(phase string, _ int) (step, end func()) {
		verifying.Store(phase == "verify")
		return func() {}, func() {}
	}
	imported, err := c.Import(t.Context(), strings.NewReader(file), ImportOptions{})
	if err != nil || imported.Sessions.Verified != 4 || !refused.Load() {
		t.Errorf("got %+v, %v", imported, err)
	}
}

// TestDamagedFile: nothing of a damaged file is imported. From a pipe, nothing after the damage is.
func TestDamagedFile(t *testing.T) {
	for name, in := range map[string]func(io.Reader) io.Reader{
		"file": func(r io.Reader) io.Reader { return r },
		"pipe": func(r io.Reader) io.Reader { return pipe{r} },
	} {
		t.Run(name, func(t *testing.T) {
			api, c, file := family(t)
			damaged := file[:len(file)-100]
			_, err := c.Import(t.Context(), in(strings.NewReader(damaged)), ImportOptions{})
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v, want ErrDamaged", err)
			}
			want := 0
			if name == "pipe" {
				want = 4
			}
			if got := api.count("responsesessions"); got != want {
				t.Errorf("got %d sessions, want %d", got, want)
			}
		})
	}
}

// TestTake: at most inFlightBytes are taken at once, or a larger line alone.
func TestTake(t *testing.T) {
	i := &importer{memory: semaphore.NewWeighted(inFlightBytes)}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	release, err := i.take(t.Context(), 10*inFlightBytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.take(done, 1); err == nil {
		t.Error("another line was not kept waiting")
	}
	release()
	for range 2 {
		if _, err := i.take(t.Context(), inFlightBytes/2); err != nil {
			t.Error(err)
		}
	}
}
