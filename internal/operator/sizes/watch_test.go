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

package sizes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	prometheustest "github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/testutil"
)

// logged collects the lines of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logged) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.lines, "\n"), text)
}

func metrics(t *testing.T, v *View) (samples int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(v.Metric())
	samples, err := prometheustest.GatherAndCount(registry, "catena_watch_age_seconds")
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

// TestSilentWatch: a watch that opens and then receives nothing is started again, with an error in the log, and its age is a
// metric. A bookmark ends the silence.
func TestSilentWatch(t *testing.T) {
	var watches atomic.Int32
	var speak atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			_, _ = fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
			return
		}
		if r.URL.Query().Has("sendInitialEvents") {
			http.Error(w, "", http.StatusUnprocessableEntity) // an API server without streamed lists
			return
		}
		watches.Add(1)
		for speak.Load() && r.Context().Err() == nil {
			_, _ = fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"8"}}}`)
			_ = http.NewResponseController(w).Flush()
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	client, err := kubeclient.New(silence.Limit(&rest.Config{Host: server.URL}, 20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	v, log := NewChunks(), &logged{}
	if got := metrics(t, v); got != 0 {
		t.Errorf("got %d metrics before the watch began", got)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(log.add, funcr.Options{})))
	done := make(chan struct{})
	go func() { defer close(done); v.Run(ctx, client) }()
	defer func() { cancel(); <-done }()

	testutil.Eventually(t, func(context.Context) error {
		if n := watches.Load(); n < 2 {
			return fmt.Errorf("%d watches", n)
		}
		if !log.contains(silence.ErrSilent.Error()) {
			return errors.New("no error in the log")
		}
		return nil
	})
	if got := metrics(t, v); got != 1 {
		t.Errorf("got %d metrics, want the age of the watch", got)
	}
	before := v.age.Get()
	started := time.Now()
	speak.Store(true)
	testutil.Eventually(t, func(context.Context) error {
		if age := v.age.Get(); age > before && age > time.Since(started) {
			return fmt.Errorf("the age is %s after a bookmark", age)
		}
		return nil
	})
}
