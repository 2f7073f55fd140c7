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
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/httpheader"
	"github.com/catena-dev/catena/internal/operator/connections"
)

const (
	// maxHeaderBytes is the size of a header with the longest URL, and with some hundred groups of a user, of which each counts 32 bytes more in
	// HTTP/2. With many short values, a header takes 30 times its size.
	maxHeaderBytes = maxURIBytes + 32<<10
	// maxHeaderValues is the number of values that a header may have once it has arrived. Each group of a user is one.
	maxHeaderValues = 1024
	headerTimeout   = 10 * time.Second
	idleTimeout     = 90 * time.Second
	// bodyTimeout is how long a client that is still sending a body, which is not used, has after the answer.
	bodyTimeout = 500 * time.Millisecond
	// defaultStreams is the number of streams of a connection with HTTP/2 without --http2-max-streams-per-connection, as in k8s.io/apiserver.
	defaultStreams = 100
	// shutdownTimeout is how long the clients have, when all requests are finished, to read that the server ends.
	shutdownTimeout = 2 * time.Second
)

// run serves until ctx is done. k8s.io/apiserver serves headers of a megabyte, of any number of clients, and without limits for one:
// so it gets a listener without connections, and decides only when to stop.
func (s *Server) run(ctx context.Context) error {
	serving := s.generic.SecureServingInfo
	if serving == nil {
		return s.generic.PrepareRun().RunWithContext(ctx)
	}
	listener := serving.Listener
	serving.Listener = &placeholder{address: listener.Addr(), closed: make(chan struct{})}
	config, prepared := newTLSConfig(ctx, serving), s.generic.PrepareRun() // which adds the paths of probes
	server := &http.Server{
		Handler: s.generic.Handler, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(serving.HTTP2MaxStreamsPerConnection, defaultStreams)},
		ErrorLog: stdlog.New(errorLog{log.FromContext(ctx)}, "", 0),
	}
	httpheader.Limit(server, maxHeaderValues)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(tls.NewListener(connections.Limit(listener, s.connections), config)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		err := prepared.RunWithContext(ctx)
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(shutdown) != nil {
			_ = server.Close()
		}
		return err
	})
	return group.Wait()
}

// newTLSConfig returns the configuration that k8s.io/apiserver uses. The certificates and CAs in it follow their files and objects until ctx is
// done, once k8s.io/apiserver runs, which reads them.
func newTLSConfig(ctx context.Context, serving *genericapiserver.SecureServingInfo) *tls.Config {
	config := &tls.Config{
		MinVersion: max(serving.MinTLSVersion, tls.VersionTLS12), CipherSuites: serving.CipherSuites, CurvePreferences: serving.CurvePreferences,
		NextProtos: []string{"h2", "http/1.1"},
	}
	if serving.DisableHTTP2 {
		config.NextProtos = []string{"http/1.1"}
	}
	if serving.ClientCA != nil {
		config.ClientAuth = tls.RequestClientCert // authenticators verify it
	}
	certificates := dynamiccertificates.NewDynamicServingCertificateController(config, serving.ClientCA, serving.Cert, serving.SNICerts, nil)
	if serving.ClientCA != nil {
		serving.ClientCA.AddListener(certificates)
	}
	if serving.Cert != nil {
		serving.Cert.AddListener(certificates)
	}
	for _, cert := range serving.SNICerts {
		cert.AddListener(certificates)
	}
	if err := certificates.RunOnce(); err != nil { // it is repeated when they change: until then, no handshake succeeds
		log.FromContext(ctx).Info("Not all certificates and CAs are available yet", "reason", err.Error())
	}
	config.GetConfigForClient = certificates.GetConfigForClient
	go certificates.Run(1, ctx.Done())
	return config
}

// errorLog logs the errors of connections. That a handshake fails is not worth more than a debug message: every scan of the port causes it.
type errorLog struct{ logr.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	message := strings.TrimSpace(string(line))
	if strings.HasPrefix(message, "http: TLS handshake error") {
		l.V(1).Info(message)
	} else {
		l.Info("The server reports an error", "error", message)
	}
	return len(line), nil
}

// placeholder is a listener without connections.
type placeholder struct {
	address net.Addr
	close   sync.Once
	closed  chan struct{}
}

// Accept waits until the listener is closed.
func (p *placeholder) Accept() (net.Conn, error) {
	<-p.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (p *placeholder) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the address of the listener with the connections.
func (p *placeholder) Addr() net.Addr { return p.address }

// checkRequest rejects headers with many values, before anything waits that holds them, and WebSockets, over which k8s.io/apiserver would
// answer: it has no deadline for them, and its process ends if such a request arrives at its deadline. A body, which no request of the API
// needs, is not waited for.
func checkRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		upgrade := strings.ToLower(strings.Join(req.Header["Upgrade"], ","))
		req.Header.Del("Upgrade")
		if hasBody := req.ContentLength != 0; req.ProtoMajor == 1 && (upgrade != "" || hasBody) {
			w.Header().Set("Connection", "close") // the kube-apiserver makes a connection of its own for an upgrade
			defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) }()
		}
		if strings.HasPrefix(req.URL.Path, "/openapi/") {
			req.Header.Del("Accept-Encoding") // a document is compressed for each request
		}
		switch {
		case httpheader.Exceeds(req.Header, maxHeaderValues):
			http.Error(w, "the header has too many values", http.StatusRequestHeaderFieldsTooLarge)
		case strings.Contains(upgrade, "websocket"):
			http.Error(w, "the API has no WebSockets", http.StatusBadRequest)
		default:
			next.ServeHTTP(w, req)
		}
	})
}
