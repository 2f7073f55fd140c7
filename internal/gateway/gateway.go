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

// Package gateway serves the stateful OpenAI Responses API in front of a stateless engine. A request with a previous response
// is sent to the engine with the whole conversation before its own input, and every turn is saved before the client receives
// the end of the response.
//
// All JSON passes through unchanged, except the few members that identify the turn. Bodies are never logged.
package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/cors"

	"github.com/catena-dev/catena/internal/fair"
)

// Gateway serves the Responses API.
type Gateway struct {
	options     Options
	upstream    *upstream
	tenants     *tenants     // nil without Options.TenantsFile
	upstreamKey *secret      // nil without Options.UpstreamAPIKeyFile
	certificate *certificate // nil without Options.TLSCertFile
	cors        *cors.Cors   // nil without Options.CORSAllowedOrigins
	files       []*watchedFile
	metrics     *gatewayMetrics
	log         *slog.Logger
	// The limits that tenants share.
	requests, streams, memory, sockets *sharedLimit
	parses                             *fair.Budget
	reads                              *reads
	quotas                             *quotas
	asked                              map[string]*served // by path
	stopping                           atomic.Bool
	// draining is closed when the gateway stops listening. calls counts the calls in progress, WebSocket connections included.
	draining     chan struct{}
	calls        sync.WaitGroup
	pingInterval time.Duration

	now func() time.Time
}

// New returns a gateway with valid options. It returns an error if one of the files cannot be read.
func New(options Options, registerer prometheus.Registerer) (*Gateway, error) {
	g := &Gateway{
		options:  options,
		upstream: newUpstream(options.Upstream),
		cors:     newCORS(options.CORSAllowedOrigins),
		log:      options.Logger,
		requests: newSharedLimit(options.MaxInFlightRequests, "--max-inflight-requests", "concurrent requests"),
		streams:  newSharedLimit(options.MaxInFlightStreams, "--max-inflight-streams", "concurrent streams"),
		memory:   newSharedLimit(options.MaxInFlightBytes, "--max-inflight-bytes", "memory"),
		sockets:  newSharedLimit(options.MaxWebSockets, "--max-websockets", "WebSocket connections"),
		parses:   fair.NewBudget(options.MaxParses),
		reads:    newReads(options.MaxReads, options.TenantsFile != ""),
		quotas:   newQuotas(),
		draining: make(chan struct{}),
		now:      time.Now,

		pingInterval: pingInterval,
	}
	g.asked = map[string]*served{}
	for _, path := range askPaths {
		g.asked[path] = &served{}
	}
	g.metrics = newMetrics(g.memory, g.sockets)
	if options.TenantsFile != "" {
		g.tenants = &tenants{}
		g.files = append(g.files, &watchedFile{name: "tenants", path: options.TenantsFile, load: g.tenants.load})
	}
	if options.UpstreamAPIKeyFile != "" {
		g.upstreamKey = &secret{}
		g.files = append(g.files, &watchedFile{name: "upstream-api-key", path: options.UpstreamAPIKeyFile, load: g.upstreamKey.load})
	}
	if options.TLSCertFile != "" {
		g.certificate = &certificate{keyFile: options.TLSKeyFile}
		g.files = append(g.files, &watchedFile{name: "tls-cert", path: options.TLSCertFile, load: g.certificate.load})
	}
	for _, file := range g.files {
		if err := file.reload(); err != nil {
			return nil, err
		}
		g.metrics.reloadFailures.WithLabelValues(file.name)
	}
	if err := registerer.Register(g.metrics); err != nil {
		return nil, fmt.Errorf("unable to register metrics: %w", err)
	}
	return g, nil
}

// Handler returns the handler of the API.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handler := range map[string]handler{
		"POST /v1/responses":                         g.create,
		"POST " + inputTokensPath:                    g.ask,
		"POST " + compactPath:                        g.ask,
		"GET /v1/responses":                          g.connect,
		"GET /v1/responses/{id}":                     g.retrieve,
		"DELETE /v1/responses/{id}":                  g.delete,
		"POST /v1/responses/{id}/cancel":             g.cancel,
		"GET /v1/responses/{id}/input_items":         g.listInputItems,
		"POST /v1/conversations":                     g.createConversation,
		"GET /v1/conversations/{id}":                 g.retrieveConversation,
		"POST /v1/conversations/{id}":                g.updateConversation,
		"DELETE /v1/conversations/{id}":              g.deleteConversation,
		"GET /v1/conversations/{id}/items":           g.listItems,
		"POST /v1/conversations/{id}/items":          g.createItems,
		"GET /v1/conversations/{id}/items/{item}":    g.retrieveItem,
		"DELETE /v1/conversations/{id}/items/{item}": g.deleteItem,
		"GET /v1/models":                             g.listModels,
		"/":                                          unknownURL,
	} {
		mux.Handle(pattern, g.handle(handler))
		g.metrics.initRoute(routeOf(pattern))
	}
	return mux
}

func unknownURL(_ http.ResponseWriter, r *http.Request, _ *call) error {
	return &apiError{
		status: http.StatusNotFound, kind: typeInvalidRequest, code: "unknown_url",
		message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path),
	}
}
