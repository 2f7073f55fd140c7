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
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/store"
)

// eachHTTP2 runs a test with TLS, which negotiates HTTP/2, and without, for clients that know that the gateway speaks it.
func eachHTTP2(t *testing.T, test func(t *testing.T, withTLS bool)) {
	for _, withTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", withTLS), func(t *testing.T) { test(t, withTLS) })
	}
}

// serveHTTP2 serves a gateway as serveFixture does, for a client that speaks only HTTP/2.
func serveHTTP2(
	t *testing.T, upstream http.Handler, withTLS bool, configure ...func(*Options),
) (f *fixture, health string, stop context.CancelFunc, done <-chan error) {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}}
	t.Cleanup(transport.CloseIdleConnections)
	if withTLS {
		cert, key := serverCertificate(t)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(cert)
		transport.Protocols.SetHTTP2(true)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "tls.crt"), string(cert))
		write(t, filepath.Join(dir, "tls.key"), string(key))
		f = newFixture(t, upstream, append(configure, func(o *Options) {
			o.TLSCertFile, o.TLSKeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		})...)
	} else {
		transport.Protocols.SetUnencryptedHTTP2(true)
		f = newFixture(t, upstream, configure...)
	}
	_, health, stop, done = serveFixture(t, f)
	if withTLS {
		f.url = strings.Replace(f.url, "http:", "https:", 1)
	}
	f.client = &http.Client{Transport: transport}
	return f, health, stop, done
}

func TestHTTP2(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		f, _, _, _ := serveHTTP2(t, enginetest.Handler(), withTLS)
		large := strings.Repeat("x", 4*maxUnreadBytes)
		created := f.create(`{"input":"` + large + `"}`)
		if r := f.do(http.MethodGet, "/v1/responses/"+created.get("id"), ""); r.body != created.body {
			t.Errorf("retrieved %.100s, created %.100s", r.body, created.body)
		}
		if r := f.create(`{"input":"a","stream":true}`); !strings.Contains(r.body, "response.completed") {
			t.Errorf("got %s", r.body)
		}
	})
}

func TestHTTP2EventsAreNotDelayed(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		steps := make(chan string)
		f, _, _, _ := serveHTTP2(t, stepHandler(steps, make(chan struct{})), withTLS)
		stream := f.open(t.Context(), `{"input":"a","stream":true}`)
		for _, step := range []string{created, unknown, completed} {
			steps <- sse(step) // the next step is sent only after the client has read this one
			if got, want := nextData(stream).get("type"), gjson.Get(step, "type").Str; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		close(steps)
	})
}

// TestHTTP2ClientDisconnects: a client that resets a stream ends its turn, but not another one on the same connection.
func TestHTTP2ClientDisconnects(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		engines := make(chan http.Handler, 1)
		f, _, _, _ := serveHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (<-engines).ServeHTTP(w, r) }), withTLS)
		saved := make(chan string, 1)
		f.store.onSave = func(_ context.Context, session *store.Session, next func() error) error {
			saved <- session.Status
			return next()
		}
		leaving, gone, staying := make(chan string), make(chan struct{}), make(chan string)
		ctx, leave := context.WithCancel(t.Context())
		engines <- stepHandler(leaving, gone)
		f.open(ctx, `{"input":"a","stream":true}`)
		engines <- stepHandler(staying, make(chan struct{}))
		ctx, reused := watchConnection(t.Context())
		stream := f.open(ctx, `{"input":"b","stream":true}`)
		leave()
		<-gone
		if got := <-saved; got != store.StatusCancelled {
			t.Errorf("the turn of the client that left is %q, want it cancelled", got)
		}
		staying <- sse(completed)
		if got := nextData(stream).get("type"); got != "response.completed" || !*reused {
			t.Errorf("the other client got %q; on the same connection: %t", got, *reused)
		}
		close(staying)
		if got := <-saved; got != store.StatusCompleted {
			t.Errorf("the turn of the other client is %q, want it completed", got)
		}
	})
}

func TestHTTP2ShutdownDrainsStreams(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		steps := make(chan string)
		f, health, stop, done := serveHTTP2(t, stepHandler(steps, make(chan struct{})), withTLS)
		stream := f.open(t.Context(), `{"input":"a","stream":true}`)
		steps <- sse(created)
		id := nextData(stream).get("response.id")
		stop()
		f.await(health+"/readyz", http.StatusServiceUnavailable)
		steps <- sse(completed)
		if got := nextData(stream).get("type"); got != "response.completed" {
			t.Errorf("got %q", got)
		}
		close(steps)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if session := f.saved(id); session == nil || session.Status != store.StatusCompleted {
			t.Errorf("got the saved turn %v, want it completed", session)
		}
	})
}

// TestHTTP2ShutdownFinishes: a gateway that finishes a response for a client that has gone waits for it, although its connection is idle.
func TestHTTP2ShutdownFinishes(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		steps := make(chan string)
		f, health, stop, done := serveHTTP2(t, stepHandler(steps, make(chan struct{})), withTLS, func(o *Options) { o.OnDisconnect = OnDisconnectFinish })
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		saved := make(chan error, 1)
		f.store.onSave = func(_ context.Context, _ *store.Session, next func() error) error {
			select {
			case <-ended:
				t.Error("the gateway has ended before it has saved the turn")
			case <-time.After(2 * time.Second): // HTTP/2 connections are closed after one
			}
			err := next()
			saved <- err
			return err
		}
		ctx, leave := context.WithCancel(t.Context())
		stream := f.open(ctx, `{"input":"a","stream":true}`)
		steps <- sse(created)
		nextData(stream)
		leave()
		f.do(http.MethodGet, "/v1/responses/none", "") // on the same connection, so that the gateway knows that the client has gone
		stop()
		f.await(health+"/readyz", http.StatusServiceUnavailable)
		steps <- sse(completed)
		close(steps)
		if err := <-saved; err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// TestHTTP2ShutdownDelay: a gateway that is still serving, but not ready, asks clients to use another connection, which reaches another
// replica.
func TestHTTP2ShutdownDelay(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, withTLS bool) {
		f, _, _, _ := serveHTTP2(t, enginetest.Handler(), withTLS)
		f.create(`{"input":"a"}`)
		f.gateway.stopping.Store(true)
		for again := true; again; {
			ctx, reused := watchConnection(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/responses", strings.NewReader(`{"input":"a"}`))
			if err != nil {
				t.Fatal(err)
			}
			response, err := f.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if diff := cmp.Diff("", response.Header.Get("Connection")); diff != "" || response.StatusCode != http.StatusOK {
				t.Errorf("status %d, Connection (-want +got):\n%s", response.StatusCode, diff)
			}
			again = *reused
		}
	})
}

// watchConnection returns a context for a request, and whether the request used a connection again, which is known with the response.
func watchConnection(ctx context.Context) (context.Context, *bool) {
	reused := new(bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { *reused = info.Reused }}), reused
}
