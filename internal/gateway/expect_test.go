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

package gateway

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestExpectContinue: a client that waits for 100 Continue sends its body only if the request is not refused before.
func TestExpectContinue(t *testing.T) {
	f, _ := startTenants(t)
	for name, tc := range map[string]struct {
		key, encoding, want string
		wantSent            bool
	}{
		"accepted":             {"sk-a", "", "OK", true},
		"invalid key":          {"sk-c", "", "Unauthorized invalid_api_key", false},
		"unsupported encoding": {"sk-a", "br", "Unsupported Media Type unsupported_content_encoding", false},
	} {
		t.Run(name, func(t *testing.T) {
			body := &watchedReader{next: strings.NewReader(`{"input":"a"}`)}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/responses", body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header = http.Header{"Expect": {"100-continue"}, "Authorization": {"Bearer " + tc.key}, "Content-Encoding": {tc.encoding}}
			// This client waits for 100 Continue or a response, but no longer than the timeout.
			transport := &http.Transport{ExpectContinueTimeout: time.Hour}
			defer transport.CloseIdleConnections()
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			content, err := io.ReadAll(response.Body)
			if r := (reply{status: response.StatusCode, body: string(content)}); r.code() != tc.want || err != nil {
				t.Errorf("got %d %s %v, want %s", r.status, r.body, err, tc.want)
			}
			if sent := body.read.Load(); sent != tc.wantSent {
				t.Errorf("the client sent its body: %t, want %t", sent, tc.wantSent)
			}
		})
	}
}

// watchedReader is a reader that knows whether it was read.
type watchedReader struct {
	next io.Reader
	read atomic.Bool
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.read.Store(true)
	return r.next.Read(p)
}
