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
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/catena-dev/catena/internal/gateway/enginetest"
	"github.com/catena-dev/catena/store"
	"github.com/catena-dev/catena/store/memory"
)

// framer is a client that sends and receives the frames of HTTP/2.
type framer struct {
	*http2.Framer
	t *testing.T
}

// newFramer begins to use a connection.
func newFramer(t *testing.T, conn net.Conn, settings ...http2.Setting) *framer {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := &framer{Framer: http2.NewFramer(conn, conn), t: t}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return f
}

// request sends the header of a request to create a response, in any goroutine. Headers are pairs of names and values.
func (f *framer) request(stream uint32, headers ...string) {
	f.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	headers = append([]string{":method", http.MethodPost, ":path", "/v1/responses", ":scheme", "http", ":authority", "x"}, headers...)
	for i := 0; i < len(headers); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1], Sensitive: true}); err != nil {
			f.t.Error(err)
		}
	}
	fragment := block.Next(maxFrameBytes)
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fragment, EndHeaders: block.Len() == 0})
	for err == nil && block.Len() > 0 {
		fragment = block.Next(maxFrameBytes)
		err = f.WriteContinuation(stream, block.Len() == 0, fragment)
	}
	if err != nil {
		f.t.Error(err)
	}
}

// next returns the next frame of a stream.
func (f *framer) next(stream uint32) http2.Frame {
	f.t.Helper()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			f.t.Fatal(err)
		}
		if frame.Header().StreamID == stream {
			return frame
		}
	}
}

// TestHTTP2Limits checks what a connection can make the gateway buffer, and how many requests it can have in flight.
func TestHTTP2Limits(t *testing.T) {
	f := newFixture(t, enginetest.Handler())
	serveFixture(t, f)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := newFramer(t, conn)
	settings, ok := client.next(0).(*http2.SettingsFrame)
	if !ok {
		t.Fatal("the first frame has no settings")
	}
	want := map[http2.SettingID]uint32{
		http2.SettingMaxConcurrentStreams: maxStreamsPerConnection, http2.SettingMaxFrameSize: maxFrameBytes, http2.SettingInitialWindowSize: maxUnreadStreamBytes,
	}
	got := map[http2.SettingID]uint32{}
	for id := range want {
		got[id], _ = settings.Value(id)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	update, ok := client.next(0).(*http2.WindowUpdateFrame)
	for !ok { // the acknowledgement of the client's settings
		update, ok = client.next(0).(*http2.WindowUpdateFrame)
	}
	const initialWindow = 1<<16 - 1 // for the connection
	if window := initialWindow + update.Increment; window != maxUnreadBytes {
		t.Errorf("the window of the connection has %d bytes, want %d", window, maxUnreadBytes)
	}
	client.request(1, slices.Repeat([]string{"x-large", strings.Repeat("x", 1<<10)}, maxHeaderBytes>>10+1)...)
	if header, ok := client.next(1).(*http2.MetaHeadersFrame); !ok || header.PseudoValue("status") != "431" {
		t.Errorf("got %v for large headers, want 431", header)
	}
	const first = 3
	for i := range uint32(maxStreamsPerConnection + 1) {
		client.request(first + 2*i)
	}
	last := uint32(first + 2*maxStreamsPerConnection)
	if reset, ok := client.next(last).(*http2.RSTStreamFrame); !ok || reset.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("got %v for one request too many, want it refused", reset)
	}
	if err := client.WriteData(first, true, []byte(`{"input":"a"}`)); err != nil {
		t.Fatal(err)
	}
	if header, ok := client.next(first).(*http2.MetaHeadersFrame); !ok || header.PseudoValue("status") != "200" {
		t.Errorf("got %v for another one, want 200", header)
	}
}

// TestHTTP2Stalls: neither a client that does not permit the gateway to send more of a response, nor one that does not read from its
// connection, keeps a turn or a refused request.
func TestHTTP2Stalls(t *testing.T) {
	noWindow := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	stream := []byte(`{"input":"a","stream":true}`)
	expectReset := func(t *testing.T, client *framer) {
		if _, ok := client.next(1).(*http2.MetaHeadersFrame); !ok {
			t.Error("the response does not begin with a header")
		}
		if reset, ok := client.next(1).(*http2.RSTStreamFrame); !ok || reset.ErrCode != http2.ErrCodeInternal {
			t.Errorf("got %v, want the stream reset", reset)
		}
	}
	for name, tc := range map[string]struct {
		wantSaved string
		talk      func(t *testing.T, conn net.Conn)
	}{
		"refused request, no window": {"", func(t *testing.T, conn net.Conn) {
			client := newFramer(t, conn, noWindow)
			go client.request(1, "content-encoding", "br")
			expectReset(t, client)
		}},
		"stream, no window": {store.StatusCancelled, func(t *testing.T, conn net.Conn) {
			client := newFramer(t, conn, noWindow)
			go func() {
				client.request(1)
				if err := client.WriteData(1, true, stream); err != nil {
					t.Error(err)
				}
			}()
			expectReset(t, client)
		}},
		"stream, nothing is read": {store.StatusCancelled, func(t *testing.T, conn net.Conn) {
			client := newFramer(t, conn)
			client.request(1)
			if err := client.WriteData(1, true, stream); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				saved := make(chan string, 1)
				conn, end := pipeGateway(t, sse(created), func(session *store.Session) { saved <- session.Status })
				defer end()
				tc.talk(t, conn)
				if tc.wantSaved == "" {
					return
				}
				if got := <-saved; got != tc.wantSaved {
					t.Errorf("the turn is %q, want %q", got, tc.wantSaved)
				}
			})
		})
	}
}

// pipeGateway serves a gateway to one connection in memory, whose engine begins a stream and then hangs, so that a test can run in a
// bubble of synctest.
func pipeGateway(t *testing.T, begin string, onSave func(*store.Session)) (client net.Conn, end func()) {
	t.Helper()
	turns := &hookedStore{next: memory.New(memory.Options{}), onSave: func(_ context.Context, session *store.Session, next func() error) error {
		onSave(session)
		return next()
	}}
	options := DefaultOptions()
	options.Upstream, options.Store, options.Logger, options.InsecureAllowAnonymous = &url.URL{}, turns.open(), slog.New(slog.DiscardHandler), true
	g, err := New(options, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	g.upstream.of(options.Store.Namespace()).Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		body, engine := io.Pipe()
		context.AfterFunc(r.Context(), func() { _ = engine.CloseWithError(r.Context().Err()) })
		go func() { _, _ = io.WriteString(engine, begin) }()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
	})
	server := g.server(t.Context(), g.Handler())
	allowHTTP2(server)
	client, conn := net.Pipe()
	listener := &pipeListener{conns: make(chan net.Conn, 1)}
	listener.conns <- conn
	go func() { _ = server.Serve(listener) }()
	return client, func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// pipeListener returns connections of memory.
type pipeListener struct {
	conns chan net.Conn
	close sync.Once
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.close.Do(func() { close(l.conns) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }
