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

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/internal/gateway"
)

type options struct {
	listenAddress     string
	metricsAddress    string
	insecureAnonymous bool
	store             string
	upstream          string
	logLevel          slog.Level
	gateway           gateway.Options
}

func newOptions() *options {
	return &options{
		listenAddress:  "127.0.0.1:8090",
		metricsAddress: "127.0.0.1:8091",
		store:          "kube:",
		gateway:        gateway.DefaultOptions(),
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	g := &o.gateway
	flags.StringVar(&o.listenAddress, "listen-address", o.listenAddress, "Where to serve the Responses API.")
	flags.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "Where to serve /metrics, /healthz and /readyz; :8091 for the probes of a Pod.")
	flags.StringVar(&o.store, "store", o.store, "Where turns are kept: kube:, sqlite:PATH or memory:.")
	flags.StringVar(&o.upstream, "upstream", o.upstream, "The base URL of the engine, with or without /v1 at its end. Required.")
	flags.StringVar(&g.UpstreamAPIKeyFile, "upstream-api-key-file", g.UpstreamAPIKeyFile,
		"A file with the API key for the engine. Without it, the engine gets the client's own Authorization, OpenAI-Organization and OpenAI-Project, or none where there is a tenants file.")
	flags.StringVar(&g.TenantsFile, "tenants-file", g.TenantsFile,
		"A YAML or JSON file with a list of {namespace, key} or {namespace, keySHA256}: who may use which namespace. It is read again when it changes.")
	flags.StringVar(&g.Namespace, "namespace", g.Namespace, "The namespace of all clients where there is no tenants file; that of the store's URL by default.")
	flags.BoolVar(&o.insecureAnonymous, "insecure-allow-anonymous", o.insecureAnonymous,
		"Serve on other addresses than loopback without a tenants file: whoever reaches the address can read and continue every conversation whose ID they know.")
	flags.StringVar(&g.Instructions, "instructions", g.Instructions,
		"Which earlier turns' instructions the engine gets: Omit, as OpenAI's own API does, Last or All.")
	flags.IntVar(&g.MaxDepth, "max-depth", g.MaxDepth, "How many turns a conversation may have that is continued with one more.")
	flags.Int64Var(&g.MaxRequestBytes, "max-request-bytes", g.MaxRequestBytes, "How many bytes a client's request may have.")
	flags.Int64Var(&g.MaxResponseBytes, "max-response-bytes", g.MaxResponseBytes,
		"How many bytes an answer of the engine may have; of a stream, each event and all finished output items.")
	flags.Int64Var(&g.MaxInFlightBytes, "max-inflight-bytes", g.MaxInFlightBytes,
		"How many bytes the requests and histories of all calls may have at once, histories once they have been read. "+
			"A call beyond that is answered with 503, and one that has more by itself with 400. They take about three times as much memory.")
	flags.DurationVar(&g.RequestTimeout, "request-timeout", g.RequestTimeout, "How long a request may take, streams included.")
	flags.DurationVar(&g.ReadTimeout, "read-timeout", g.ReadTimeout, "How long a client may take to send a request.")
	flags.DurationVar(&g.SaveTimeout, "save-timeout", g.SaveTimeout, "How long saving a turn may take, with all attempts.")
	flags.DurationVar(&g.ShutdownDelay, "shutdown-delay", g.ShutdownDelay,
		"How long the gateway goes on as before, but not ready, once it is told to end, so that no new requests are sent to it when it stops listening.")
	flags.DurationVar(&g.ShutdownTimeout, "shutdown-timeout", g.ShutdownTimeout, "How long requests may go on after the shutdown delay.")
	flags.DurationVar(&g.ReloadInterval, "reload-interval", g.ReloadInterval, "How often the files are looked at for changes.")
	flags.TextVar(&o.logLevel, "log-level", o.logLevel, "The least level of what is logged: DEBUG, INFO, WARN or ERROR.")
}

// complete checks the options and fills in those of the gateway.
func (o *options) complete(stderr io.Writer) error {
	upstream, err := url.Parse(o.upstream)
	switch {
	case o.upstream == "":
		return errors.New("--upstream is required")
	case err != nil:
		return fmt.Errorf("--upstream is not a URL: %w", err)
	}
	o.gateway.Upstream = upstream
	o.gateway.Logger = slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))
	o.gateway.LoopbackOnly = o.gateway.TenantsFile == "" && !o.insecureAnonymous
	if o.gateway.LoopbackOnly && !gateway.IsLoopback(o.listenAddress) {
		return fmt.Errorf("--listen-address is %s: without --tenants-file it must be a loopback address, unless --insecure-allow-anonymous is given", o.listenAddress)
	}
	return nil
}
