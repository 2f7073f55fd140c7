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
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// TestUnreadAnswer: little of an answer arrives that the gateway does not read, with HTTP/2 too.
func TestUnreadAnswer(t *testing.T) {
	const piece = 16 << 10
	written := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		defer func() { written <- n }()
		control := http.NewResponseController(w)
		for n < 8<<20 {
			if err := control.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
				return
			}
			if _, err := w.Write(make([]byte, piece)); err != nil || control.Flush() != nil {
				return
			}
			n += piece
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := newUpstream(base).of("a")
	client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got := <-written; response.ProtoMajor != 2 || got > unreadAnswerBytes {
		t.Errorf("the engine sent %d bytes with %s, want at most %d with HTTP/2", got, response.Proto, unreadAnswerBytes)
	}
}
