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

// Package gateway serves the OpenAI Responses API with state in front of an upstream that keeps none. A request that
// names a previous response is sent on with the whole conversation before its own input, and every turn is saved before
// the client sees the end of it.
//
// JSON goes through unread and unchanged but for the few members that say which turn this is. Bodies are never logged.
package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/store"
)

// Options say how a gateway works. All of them are required, unless they say otherwise.
type Options struct {
	// Store is where turns are kept. The caller closes it when Serve has returned.
	Store store.Store
	// Namespace is the one of all clients where there is no TenantsFile. Where it is empty, it is that of the store.
	Namespace string
	// TenantsFile maps API keys to namespaces; see parseTenants. Where it is empty, every client may use Namespace.
	TenantsFile string

	// LoopbackOnly refuses what a web page may have sent from the user's browser, for a gateway without a TenantsFile that
	// only this machine reaches: a request of another origin, or to a host that is not a loopback one.
	LoopbackOnly bool

	// Upstream is the base URL of the engine, with or without the /v1 at its end.
	Upstream *url.URL
	// UpstreamAPIKeyFile has the key that is sent to the upstream. Where it is empty, it is the client's own key, or none
	// where there is a TenantsFile: a tenant's key is the gateway's business only. The client's OpenAI-Organization and
	// OpenAI-Project go with its own key only.
	UpstreamAPIKeyFile string

	// Instructions says which earlier turns' instructions the upstream gets: one of the store's Instructions constants.
	Instructions string
	// MaxDepth is how many turns a conversation that is continued may have.
	MaxDepth int

	// MaxRequestBytes and MaxResponseBytes limit a client's body, and an upstream's body or single event. The store
	// should take a turn with both: otherwise the upstream has worked for nothing.
	MaxRequestBytes, MaxResponseBytes int64
	// MaxInFlightBytes limits what the requests and histories of all calls together have at once. A history counts once it
	// has been read. A call beyond that is answered with 503, and one that has more by itself with 400. They take about
	// three times as much memory.
	MaxInFlightBytes int64
	// RequestTimeout limits a request as a whole, streams included. A save that has begun has SaveTimeout of its own.
	RequestTimeout, SaveTimeout time.Duration
	// ReadTimeout limits how long a client may take to send a request.
	ReadTimeout time.Duration
	// ShutdownDelay is how long the gateway goes on as before, but not ready, once it is told to end: until nobody sends it
	// requests any more. ShutdownTimeout is how long requests may go on after that.
	ShutdownDelay, ShutdownTimeout time.Duration
	// ReloadInterval is how often the files are looked at for changes.
	ReloadInterval time.Duration

	Logger *slog.Logger
}

// DefaultOptions returns options that lack only Store, Upstream and Logger.
func DefaultOptions() Options {
	return Options{
		Instructions:     store.InstructionsOmit,
		MaxDepth:         1000,
		MaxRequestBytes:  32 << 20,
		MaxResponseBytes: 32 << 20,
		MaxInFlightBytes: 256 << 20,
		RequestTimeout:   10 * time.Minute,
		SaveTimeout:      30 * time.Second,
		ReadTimeout:      time.Minute,
		ShutdownDelay:    5 * time.Second,
		ShutdownTimeout:  30 * time.Second,
		ReloadInterval:   5 * time.Second,
	}
}

// Gateway serves the Responses API.
type Gateway struct {
	options     Options
	upstream    *upstream
	tenants     *tenants // nil where there is no file
	upstreamKey *secret  // nil where there is no file
	files       []*watchedFile
	metrics     *gatewayMetrics
	log         *slog.Logger
	inFlight    *semaphore.Weighted
	stopping    atomic.Bool

	now func() time.Time
}

// New returns a gateway. It fails where an option is not usable or one of the files cannot be read.
func New(options Options, registerer prometheus.Registerer) (*Gateway, error) {
	g := &Gateway{options: options, metrics: newMetrics(), log: options.Logger, now: time.Now}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.TenantsFile != "" {
		g.tenants = &tenants{}
		g.files = append(g.files, &watchedFile{name: "tenants", path: options.TenantsFile, load: g.tenants.load})
	}
	if options.UpstreamAPIKeyFile != "" {
		g.upstreamKey = &secret{}
		g.files = append(g.files, &watchedFile{name: "upstream-api-key", path: options.UpstreamAPIKeyFile, load: g.upstreamKey.load})
	}
	for _, file := range g.files {
		if err := file.reload(); err != nil {
			return nil, err
		}
	}
	g.upstream, g.inFlight = newUpstream(options.Upstream), semaphore.NewWeighted(options.MaxInFlightBytes)
	if err := registerer.Register(g.metrics); err != nil {
		return nil, fmt.Errorf("unable to register metrics: %w", err)
	}
	return g, nil
}

func (o *Options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Upstream != nil && o.Upstream.Host != "" && (o.Upstream.Scheme == "http" || o.Upstream.Scheme == "https"),
		"the upstream must be an http or https URL")
	check(o.Upstream == nil || o.Upstream.RawQuery == "" && o.Upstream.Fragment == "", "the upstream's URL must have no query and no fragment")
	check(o.MaxDepth >= 1, "the maximum depth is %d: must be at least 1", o.MaxDepth)
	check(o.MaxRequestBytes >= 1 && o.MaxResponseBytes >= 1, "the limits of bodies must be at least 1 byte")
	check(o.MaxInFlightBytes >= o.MaxRequestBytes, "the limit of all bytes in flight is %d: must be at least that of a request", o.MaxInFlightBytes)
	check(min(o.RequestTimeout, o.SaveTimeout, o.ReadTimeout, o.ShutdownTimeout, o.ReloadInterval) > 0, "time limits must be greater than 0")
	check(o.ShutdownDelay >= 0, "the shutdown delay is %s: must not be negative", o.ShutdownDelay)
	if o.Namespace != "" {
		errs = append(errs, validNamespace(o.Namespace))
	}
	return errors.Join(append(errs, o.resolveOptions().Validate())...)
}

// resolveOptions returns the options with which a request's conversation is read.
func (o *Options) resolveOptions() store.ResolveOptions {
	return store.ResolveOptions{MaxDepth: &o.MaxDepth, Instructions: o.Instructions}
}

// Handler returns the handler of the API.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handler := range map[string]handler{
		"POST /v1/responses":                 g.create,
		"GET /v1/responses/{id}":             g.retrieve,
		"DELETE /v1/responses/{id}":          g.delete,
		"GET /v1/responses/{id}/input_items": g.listInputItems,
		"GET /v1/models":                     g.listModels,
		"/":                                  unknownURL,
	} {
		mux.Handle(pattern, g.handle(handler))
	}
	return mux
}

func unknownURL(_ http.ResponseWriter, r *http.Request, _ *call) error {
	return &apiError{
		status: http.StatusNotFound, kind: typeInvalidRequest, code: "unknown_url",
		message: fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path),
	}
}
