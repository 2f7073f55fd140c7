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

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// settleTime is how long after an outage of the API server its 403 is not believed: longer than it takes to read the roles, and than
// the operator remembers that a user was refused.
const settleTime = 15 * time.Second

// settling makes the 403 of an API server that has just started a 503, which is retried: until it has read the roles, it grants
// nothing to anyone. The clients of a store share one. It is safe for concurrent use.
type settling struct {
	mu    sync.Mutex
	until time.Time
}

// watch returns a configuration whose requests are watched.
func (s *settling) watch(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &settlingTransport{s, next} })
	return config
}

type settlingTransport struct {
	*settling
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *settlingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil:
		if request.Context().Err() == nil {
			t.begin()
		}
	case response.StatusCode == http.StatusForbidden && (t.active() || t.starting(request)):
		return unavailable(response)
	}
	return response, err
}

// WrappedRoundTripper gives client-go the transport below this one.
func (t *settlingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (s *settling) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(settleTime)
}

func (s *settling) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until)
}

// readyTimeout is the deadline for asking whether a server is ready.
const readyTimeout = 5 * time.Second

// starting asks the server of a refused request whether it is ready, which everyone may know, except while it grants nothing.
func (t *settlingTransport) starting(refused *http.Request) bool {
	ctx, cancel := context.WithTimeout(refused.Context(), readyTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, refused.URL.Scheme+"://"+refused.URL.Host+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", refused.Header.Get("Authorization"))
	response, err := t.next.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return false
		}
	}
	t.begin()
	return true
}

// unavailable replaces a response.
func unavailable(response *http.Response) (*http.Response, error) {
	_ = response.Body.Close()
	reason := apierrors.NewServiceUnavailable("the API server has just started, and has not read the roles yet").Status()
	reason.APIVersion, reason.Kind = "v1", "Status"
	status, err := json.Marshal(reason)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "503 Service Unavailable", StatusCode: http.StatusServiceUnavailable, Proto: response.Proto, ProtoMajor: response.ProtoMajor, ProtoMinor: response.ProtoMinor,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(status)),
		ContentLength: int64(len(status)), Request: response.Request,
	}, nil
}
