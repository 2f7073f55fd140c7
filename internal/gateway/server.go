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
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/httpheader"
)

// Listeners are where a gateway serves.
type Listeners struct {
	API net.Listener
	// Metrics serves /metrics, and Health /healthz and /readyz. Either may be nil.
	Metrics, Health net.Listener
}

// Serve serves until ctx is done. The gateway then becomes not ready, keeps serving for the shutdown delay, and finally closes
// the API's listener and waits for the requests in progress. Requests that outlast the shutdown timeout are aborted: a stream
// ends with an error event, and its turn is saved as failed.
func (g *Gateway) Serve(ctx context.Context, listeners Listeners, gatherer prometheus.Gatherer) error {
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	apiServer := g.server(base, g.Handler())
	allowHTTP2(apiServer)
	// A stream sets a deadline for each piece of an event; this one is for clients that stop reading their response.
	apiServer.WriteTimeout = g.options.ReadTimeout + g.options.RequestTimeout + g.options.SaveTimeout + writeTimeout
	if g.certificate != nil {
		listeners.API = g.certificate.listen(listeners.API)
	}
	metricsServer, healthServer := g.server(base, metricsHandler(gatherer)), g.server(base, g.healthHandler())

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(apiServer, listeners.API) })
	group.Go(func() error { return serve(metricsServer, listeners.Metrics) })
	group.Go(func() error { return serve(healthServer, listeners.Health) })
	group.Go(func() error {
		g.watchFiles(ctx)
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		g.log.Info("shutting down", "delay", g.options.ShutdownDelay.String())
		g.stopping.Store(true)
		defer func() { _, _ = metricsServer.Close(), healthServer.Close() }()
		<-time.After(g.options.ShutdownDelay)
		return g.drain(base, apiServer, abort)
	})
	return group.Wait()
}

// The limits of the header of a request, which is read before the tenant is known. With many short values, it takes 30 times its size.
const (
	maxHeaderBytes  = 16 << 10
	maxHeaderValues = 128
)

// checkHeader returns an error if a header has so many values that it takes much more memory than a call counts.
func checkHeader(header http.Header) error {
	if !httpheader.Exceeds(header, maxHeaderValues) {
		return nil
	}
	return &apiError{
		status: http.StatusRequestHeaderFieldsTooLarge, kind: typeInvalidRequest, code: "header_too_large",
		message: fmt.Sprintf("The request has more than %d headers.", maxHeaderValues),
	}
}

// baseContext is the key of a server's base context among the values of its requests' contexts. It is done when the remaining requests are
// aborted, whether their clients are still connected or not.
type baseContext struct{}

func withBase(base context.Context) context.Context {
	return context.WithValue(base, baseContext{}, base)
}

func (g *Gateway) server(base context.Context, handler http.Handler) *http.Server {
	server := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return withBase(base) },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelWarn),
	}
	httpheader.Limit(server, maxHeaderValues)
	return server
}

func serve(server *http.Server, listener net.Listener) error {
	if listener == nil {
		return nil
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("unable to serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// drain waits for the requests in progress, and aborts them after the shutdown timeout. WebSocket connections end when they have no
// response in progress.
func (g *Gateway) drain(ctx context.Context, server *http.Server, abort context.CancelCauseFunc) error {
	close(g.draining)
	wait, cancel := context.WithTimeout(ctx, g.options.ShutdownTimeout)
	defer cancel()
	if g.finished(wait, server) == nil {
		return nil
	}
	g.log.Warn("aborting the remaining requests: the shutdown timeout has passed")
	abort(errShuttingDown)
	// The aborted requests still save their turns and write one event each.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.SaveTimeout+writeTimeout)
	defer cancel()
	if err := g.finished(last, server); err != nil {
		return errors.Join(fmt.Errorf("unable to finish all requests: %w", err), server.Close())
	}
	return nil
}

// finished waits for all calls. A server waits neither for WebSocket connections nor for a call whose HTTP/2 client has gone.
func (g *Gateway) finished(ctx context.Context, server *http.Server) error {
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		g.calls.Wait()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func metricsHandler(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	return mux
}

func (g *Gateway) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", g.ready)
	return mux
}

// ready reports whether the gateway accepts requests. It does not depend on the store: if the store were unreachable, all
// replicas would become unready at once, and clients would get refused connections instead of an error that explains the
// cause.
func (g *Gateway) ready(w http.ResponseWriter, _ *http.Request) {
	if g.stopping.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
