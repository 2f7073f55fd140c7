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

package profiling

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	for path, want := range map[string]string{
		"/debug/pprof/":                  "Types of profiles available",
		"/debug/pprof/heap?debug=1":      "heap profile",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/cmdline":           "test",
		"/debug/pprof/symbol":            "num_symbols",
	} {
		w := httptest.NewRecorder()
		handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %.200q, want %q", path, w.Code, w.Body, want)
		}
	}
}

func TestServe(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx, listener) }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/debug/pprof/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got status %d, want 200", response.StatusCode)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("got error %v after the context was done, want none", err)
	}
}

func TestServeAddress(t *testing.T) {
	if err := Serve(t.Context(), ""); err != nil {
		t.Errorf("got error %v without an address, want none", err)
	}
	if err := Serve(t.Context(), "127.0.0.1:x"); err == nil || !strings.Contains(err.Error(), "unable to listen on 127.0.0.1:x") {
		t.Errorf("got error %v for an invalid address, want one that names it", err)
	}
}
