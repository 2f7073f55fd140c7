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
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/testutil/testturn"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/kube"
)

// requestLog is the requests of all clients of a store.
type requestLog struct {
	mu   sync.Mutex
	sent []string
}

// through is a transport that logs the requests.
func (c *requestLog) through(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	kind := ""
	if strings.Contains(r.Header.Get("Accept"), kubeclient.MetadataOnly) {
		kind = " metadata"
	}
	path := strings.Split(r.URL.Path, "/")
	c.mu.Lock()
	c.sent = append(c.sent, fmt.Sprintf("%s %s%s", r.Method, path[6], kind))
	c.mu.Unlock()
	return next.RoundTrip(r)
}

// TestRequestsPerCall: a save reads the parent's metadata once and creates one object. For a large turn, it also checks the
// quota and creates one object for each part.
func TestRequestsPerCall(t *testing.T) {
	sent := &requestLog{}
	s := openThrough(t, env.NewNamespace(t), sent.through)
	check := func(session *store.Session, want ...string) {
		t.Helper()
		sent.sent = nil
		begin := time.Now()
		save(t, s, session)
		const again = "GET responsesessions metadata"
		if n := len(sent.sent) - 1; time.Since(begin) >= kube.OwnerValid && sent.sent[n] == again { // the API server was slow
			sent.sent = sent.sent[:n]
		}
		if diff := cmp.Diff(want, sent.sent); diff != "" {
			t.Errorf("%s (-want +got):\n%s", session.ResponseID, diff)
		}
	}
	check(testturn.Make("resp_1", ""), "POST responsesessions metadata")
	check(testturn.Make("resp_2", "resp_1"), "GET responsesessions metadata", "POST responsesessions metadata")
	check(testturn.Make("resp_3", "resp_gone"), "GET responsesessions metadata", "POST responsesessions metadata")
	large := testturn.Make("resp_4", "resp_2")
	large.Request = fmt.Appendf(nil, `{"input":%q}`, strings.Repeat("a", kube.DefaultInlineBytes))
	check(large, "GET sessionquotas", "POST snapshotchunks metadata", "GET responsesessions metadata", "POST responsesessions metadata")
}

// TestResolveHost: histories are read from the operator directly, with the same credentials.
func TestResolveHost(t *testing.T) {
	s := open(t, kube.Options{
		ResolveHost: fmt.Sprintf("https://localhost:%d", operator.Port), ResolveTLS: rest.TLSClientConfig{CAFile: env.ResolveCAFile},
	})
	save(t, s, testturn.Make("resp_1", ""))
	history, err := s.Resolve(t.Context(), "resp_1", store.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"resp_1"}, history.Turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	other, err := kube.Open(t.Context(), kube.Options{
		Config: &rest.Config{Host: env.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: env.Config.CAData}}, Namespace: s.Namespace(),
		ResolveHost: fmt.Sprintf("https://localhost:%d", operator.Port), ResolveTLS: rest.TLSClientConfig{CAFile: env.ResolveCAFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resolve(t.Context(), "resp_1", store.ResolveOptions{}); err == nil || store.IsRetryable(err) {
		t.Errorf("resolved without credentials, or the error is retryable: %v", err)
	}
}
