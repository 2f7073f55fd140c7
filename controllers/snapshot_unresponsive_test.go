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

package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/snapshot"
)

// TestSweepOfUnresponsiveServer: a sweep ends with the first mark that is not answered in time, however many there are.
func TestSweepOfUnresponsiveServer(t *testing.T) {
	waitForView(t)
	var chunks []string
	for i := range 100 {
		key := strings.Repeat("a", 24) + string([]byte{'a' + byte(i/26), 'a' + byte(i%26)})
		chunks = append(chunks, fmt.Sprintf(`{"metadata":{"namespace":"silent","name":%q,"creationTimestamp":"2026-01-01T00:00:00Z"}}`,
			v1alpha1.SnapshotChunkName(key, 0)))
	}
	var marks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{},"items":[%s]}`, strings.Join(chunks, ","))
			return
		}
		marks.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // otherwise, the server does not notice that the client is gone
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	client := sessionClient(t, &rest.Config{Host: server.URL, Timeout: time.Second})
	sweeper := &controllers.SnapshotSweeper{
		View: op.view, Client: client, Now: timeOf(clock), Interval: time.Hour, Clock: clock,
		Limits: controllers.SweepLimits{Grace: time.Hour, MaxShare: 1}, Releases: controllers.NewReleases(time.Hour, clock),
	}
	err := controllers.Sweep(t.Context(), sweeper, snapshot.NewChunkStore(client))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
	if marks.Load() != 1 {
		t.Errorf("%d marks were sent, want 1", marks.Load())
	}
}
