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

package operator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/silence"
)

// TestUnansweredRequests: a watch, and any other request, ends by its own timeout if the kube-apiserver does not respond.
func TestUnansweredRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	const short = 20 * time.Millisecond
	tests := map[string]struct {
		silence, timeout time.Duration
		client           func(*clients) rest.Interface
		wantSilent       bool
	}{
		"watch":         {short, time.Hour, func(c *clients) rest.Interface { return c.watch }, true},
		"other request": {time.Hour, short, func(c *clients) rest.Interface { return c.sessions }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			o.WatchSilence, o.APITimeout = tc.silence, tc.timeout
			clients, err := newClients(&rest.Config{Host: server.URL}, o)
			if err != nil {
				t.Fatal(err)
			}
			err = tc.client(clients).Get().AbsPath("/").Do(t.Context()).Error()
			if err == nil || errors.Is(err, silence.ErrSilent) != tc.wantSilent {
				t.Errorf("got %v, want ErrSilent: %t", err, tc.wantSilent)
			}
		})
	}
}

// TestSweeperTime: sweeps use the time of the kube-apiserver, not that of the operator.
func TestSweeperTime(t *testing.T) {
	want := time.Date(2020, 2, 29, 8, 0, 0, 0, time.UTC)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", want.Format(http.TimeFormat))
	}))
	defer server.Close()
	o := NewOptions()
	clients, err := newClients(&rest.Config{Host: server.URL}, o)
	if err != nil {
		t.Fatal(err)
	}
	sweeper := (&shared{clients: clients, options: o}).sweeper()
	if got, err := sweeper.Now(t.Context()); err != nil || !got.Equal(want) {
		t.Errorf("got %s and %v, want %s", got, err, want)
	}
}
