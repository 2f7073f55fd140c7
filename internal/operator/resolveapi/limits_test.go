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

package resolveapi

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"

	"github.com/catena-dev/catena/internal/testutil"
)

// TestRequestsOfOneAddress: an address that has used up its share is rejected, and another one is not.
func TestRequestsOfOneAddress(t *testing.T) {
	l := newLimits(&Options{Requests: 8, Reviews: 1, RequestTimeout: time.Minute})
	release := make(chan struct{})
	started := make(chan struct{}, 8)
	handler := l.share(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/hang" {
			started <- struct{}{}
			<-release
		}
	}))
	get := func(address, path string) int {
		w, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		req.RemoteAddr = address
		handler.ServeHTTP(w, req)
		if retry := w.Header().Get("Retry-After"); (w.Code == http.StatusTooManyRequests) != (retry == "1") {
			t.Errorf("got %d with Retry-After %q", w.Code, retry)
		}
		return w.Code
	}
	hung := make(chan int)
	for range 4 {
		go func() { hung <- get("10.0.0.1:1000", "/hang") }()
		<-started
	}
	if got := get("10.0.0.1:2000", "/"); got != http.StatusTooManyRequests {
		t.Errorf("the address with 4 requests in progress got %d, want 429", got)
	}
	if got := get("10.0.0.2:1000", "/"); got != http.StatusOK {
		t.Errorf("another address got %d, want 200", got)
	}
	close(release)
	for range 4 {
		if got := <-hung; got != http.StatusOK {
			t.Errorf("a request within the share got %d, want 200", got)
		}
	}
	if got := get("10.0.0.1:2000", "/"); got != http.StatusOK {
		t.Errorf("afterwards, the address got %d, want 200", got)
	}
}

// TestTenants: a request that the kube-apiserver's proxy forwards counts for the caller, and only its certificate makes it one.
func TestTenants(t *testing.T) {
	ca, otherCA := newCA(t), newCA(t)
	l := newLimits(&Options{Requests: 8, Reviews: 1, RequestTimeout: time.Minute})
	content, err := dynamiccertificates.NewStaticCAContent("test", ca.pem())
	if err != nil {
		t.Fatal(err)
	}
	l.useProxy(proxyConfig(content), time.Minute)
	const address = "address 10.0.0.1"
	tests := map[string]struct {
		certificate *x509.Certificate
		user, want  string
	}{
		"a user":                       {certificate: ca.issue(t, "front-proxy"), user: "alice", want: "user alice"},
		"a user named like an address": {certificate: ca.issue(t, "front-proxy"), user: "10.0.0.1", want: "user 10.0.0.1"},
		"a service account":            {certificate: ca.issue(t, "front-proxy"), user: "system:serviceaccount:team-a:gateway", want: "namespace team-a"},
		"no user":                      {certificate: ca.issue(t, "front-proxy"), want: address},
		"another name":                 {certificate: ca.issue(t, "mallory"), user: "alice", want: address},
		"another CA":                   {certificate: otherCA.issue(t, "front-proxy"), user: "alice", want: address},
		"no certificate":               {user: "alice", want: address},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			req.RemoteAddr, req.TLS = "10.0.0.1:1000", &tls.ConnectionState{}
			req.Header.Set("X-Remote-User", tc.user)
			if tc.certificate != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{tc.certificate}
			}
			for i := range 2 { // the second time, the certificate is known
				if got := tenantOf(req, l.forwarded(req.Clone(t.Context()))); got != tc.want {
					t.Errorf("%d: got %q, want %q", i, got, tc.want)
				}
			}
		})
	}
}

// certificateAuthority issues certificates of clients.
type certificateAuthority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newCA(t *testing.T) *certificateAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "ca"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificateAuthority{key, certificate}
}

func (c *certificateAuthority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certificate.Raw})
}

// issue returns the certificate of a client with a name.
func (c *certificateAuthority) issue(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: c.certificate.NotBefore, NotAfter: c.certificate.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, c.certificate, c.key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// TestReviewsAreShared: while the kube-apiserver does not answer the reviews of one user, those of another one are sent.
func TestReviewsAreShared(t *testing.T) {
	l := newLimits(&Options{Requests: 1, Reviews: 8, RequestTimeout: time.Minute})
	ctx, stop := context.WithCancel(t.Context())
	hung, end := make(chan error), make(chan struct{})
	for range 20 {
		go func() {
			_, err := review(ctx, l, "mallory", func(ctx context.Context) (bool, error) {
				<-end
				return true, ctx.Err()
			})
			hung <- err
		}()
	}
	testutil.Eventually(t, func(context.Context) error {
		if used := l.reviews.Used(); used != 4 {
			return errors.New("not all reviews have begun")
		}
		return nil
	})
	ask := func(context.Context) (string, error) { return "yes", nil }
	if got, err := review(t.Context(), l, "alice", ask); err != nil || got != "yes" {
		t.Errorf("got %q and %v, want an answer", got, err)
	}
	stop()
	for range 20 {
		if err := <-hung; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled", err)
		}
	}
	if used := l.reviews.Used(); used != 4 {
		t.Errorf("%d reviews count, want those whose clients have gone", used)
	}
	close(end)
	testutil.Eventually(t, func(context.Context) error {
		if used := l.reviews.Used(); used != 0 {
			return fmt.Errorf("%d reviews count after their ends", used)
		}
		return nil
	})
	if _, err := review(t.Context(), l, "alice", func(context.Context) (string, error) { panic("odd") }); err == nil || l.reviews.Used() != 0 {
		t.Errorf("a panic: got %v, and %d reviews count", err, l.reviews.Used())
	}
}

// TestPathsOnly: what is logged of a request has no query, which the handlers of the API get all the same.
func TestPathsOnly(t *testing.T) {
	l, handled := newLimits(&Options{Requests: 1, Reviews: 1, RequestTimeout: time.Minute}), false
	handler := l.share(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		handled = true
		if req.RequestURI != "/apis/a%2Fb" || req.URL.RawQuery != "userID=maria" {
			t.Errorf("got %q, and the query %q", req.RequestURI, req.URL.RawQuery)
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/a%2Fb?userID=maria", http.NoBody))
	if !handled {
		t.Error("the request was not handled")
	}
}

// TestUnreadAnswer: an answer that its client does not read ends, and what it holds is released then, not when its context is done.
func TestUnreadAnswer(t *testing.T) {
	for name, protocols := range map[string][]string{"HTTP/1.1": {"http/1.1"}, "HTTP/2": {"h2"}} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(&Options{Requests: 8, Reviews: 1})
			l.writeTimeout = 200 * time.Millisecond
			var order []string
			wrote := make(chan error, 1)
			done := make(chan struct{})
			server := httptest.NewUnstartedServer(l.share(withHandled(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				ctx, cancel := context.WithCancel(req.Context())
				whenHandled(ctx, func() {
					order = append(order, "released")
					close(done)
				})
				cancel()
				var err error
				for piece := make([]byte, 1<<20); err == nil; {
					_, err = w.Write(piece)
				}
				order = append(order, "written")
				wrote <- err
			}))))
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			transport := &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, NextProtos: protocols},
				ForceAttemptHTTP2: name == "HTTP/2",
			}
			t.Cleanup(transport.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.Proto[:6] != name[:6] {
				t.Fatalf("the protocol is %s, want %s", response.Proto, name)
			}
			err = <-wrote
			<-done
			if name == "HTTP/1.1" && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the write ended with %v, want a deadline", err)
			}
			if diff := cmp.Diff([]string{"written", "released"}, order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if _, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Error("the answer ended without an error")
			}
		})
	}
}

// TestLongURL: a URL that no request needs is refused before anything logs it.
func TestLongURL(t *testing.T) {
	l := newLimits(NewOptions())
	for length, want := range map[int]int{maxURIBytes: http.StatusOK, maxURIBytes + 1: http.StatusRequestURITooLong} {
		response := httptest.NewRecorder()
		l.share(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
			ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+strings.Repeat("x", length-1), nil))
		if response.Code != want {
			t.Errorf("%d bytes: got %d, want %d", length, response.Code, want)
		}
	}
}

// TestHeaderFlood: a client without credentials cannot make the server keep a large header, before it has arrived or later.
func TestHeaderFlood(t *testing.T) {
	ts := startServer(t, resolveStub(t))
	dial := func() *tls.Conn {
		t.Helper()
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // HTTP/1
		c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(ts.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*tls.Conn)
	}
	status := func(header string) int {
		t.Helper()
		c := dial()
		if _, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n"+header); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	lines := func(n int) string { return strings.Repeat("X:\r\n", n) }
	for name, tc := range map[string]struct {
		header  string
		refused bool
	}{
		"many values":       {lines(maxHeaderValues) + "\r\n", false},
		"too many values":   {lines(maxHeaderValues+1) + "\r\n", true},
		"too long, not all": {lines((maxHeaderBytes + 8<<10) / len(lines(1))), true}, // net/http adds 4 KiB
	} {
		if got := status(tc.header); (got == http.StatusRequestHeaderFieldsTooLarge) != tc.refused {
			t.Errorf("%s: got %d", name, got)
		}
	}

	// With HTTP/2, many requests with long URLs are in progress at once.
	var group errgroup.Group
	for range 50 {
		group.Go(func() error {
			code, _, body := ts.get(t, "/readyz?x="+strings.Repeat("x", maxURIBytes-100), "alice", "")
			if code != http.StatusOK {
				return fmt.Errorf("got %d: %s", code, body)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
