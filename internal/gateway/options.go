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
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/store"
)

// Options configure a Gateway. Start from DefaultOptions, set Store, Upstream and Logger, and call Validate.
type Options struct {
	// Store keeps the turns. The caller closes it after Serve has returned.
	Store *store.Store
	// Logger receives the log. Bodies are never logged.
	Logger *slog.Logger

	// ListenAddress is the address of the Responses API. It must be a loopback address unless TenantsFile or
	// InsecureAllowAnonymous is set.
	ListenAddress string
	// TLSCertFile has the serving certificate of ListenAddress, followed by those of its CAs, and TLSKeyFile its key. If they are empty,
	// the API is served without TLS.
	TLSCertFile, TLSKeyFile string
	// InsecureAllowAnonymous serves clients without API keys on any address, including web pages.
	InsecureAllowAnonymous bool
	// CORSAllowedOrigins are the web origins that may call the gateway from a browser, or * for any. If it is empty, no page can read a
	// response, unless a proxy in front of the gateway adds the headers that allow it.
	CORSAllowedOrigins []string
	// TenantsFile maps API keys to namespaces; see parseTenants. If it is empty, every client uses Namespace.
	TenantsFile string
	// Namespace is the namespace of all clients if there is no TenantsFile. If it is empty, the store's namespace is used.
	Namespace string

	// Upstream is the base URL of the engine, with or without a trailing /v1.
	Upstream *url.URL
	// UpstreamAPIKeyFile contains the API key for the engine. If it is empty, the gateway forwards the client's own key,
	// OpenAI-Organization and OpenAI-Project. With a TenantsFile it sends no key at all: tenants' keys are never forwarded.
	UpstreamAPIKeyFile string

	// Instructions selects the earlier turns whose instructions the engine gets: one of the store's Instructions constants.
	Instructions string
	// MaxDepth is the maximum number of turns in a conversation that can be continued.
	MaxDepth int

	// MaxRequestBytes limits the body of a request, before and after it is decompressed. MaxResponseBytes limits the body of the
	// engine's response, or each event of a stream. The store should accept a turn with both at their maximum; otherwise the engine's
	// work is lost.
	MaxRequestBytes, MaxResponseBytes int64
	// MaxInFlightBytes limits the memory of all requests in flight, including their conversations and responses. Memory is
	// counted before it is allocated. MaxInFlightRequests and MaxInFlightStreams limit the number of concurrent requests and
	// streams.
	//
	// Tenants share each of these limits: each of n tenants gets at least 1/(n+1) of it, so a single tenant gets half. A
	// request beyond a tenant's share is rejected with 429, or with 400 if it alone needs more memory than one tenant can get.
	MaxInFlightBytes, MaxInFlightRequests, MaxInFlightStreams int64
	// MaxWebSockets is the number of open WebSocket connections, which tenants share in the same way. If it is 0, WebSocket mode is off.
	MaxWebSockets int64
	// WebSocketLifetime is the maximum age of a WebSocket connection. A response in progress is finished first.
	WebSocketLifetime time.Duration
	// ResponseReserveBytes is the response size for which memory is reserved before the engine is called, including the memory
	// for saving it and the request. A larger response uses the free part of its tenant's share as it arrives; if that is not
	// enough, it is lost. To keep some memory free, the requirements of a request before the engine is called are limited to
	// 1/(n+2) of the limit, unless it is its tenant's only request.
	ResponseReserveBytes int64
	// MaxParses is the number of bodies of at least largeBody that are processed, and of compressed requests of any size that are
	// decompressed, at the same time. Tenants share it as they share MaxInFlightBytes, but a body beyond its tenant's share waits.
	MaxParses int64
	// MaxReads is the number of turns, histories and conversations that are read from the store at the same time. Tenants share it as they share
	// MaxInFlightBytes, but a read beyond its tenant's share waits. Of turns and conversations, a tenant has fewer at once if they are large: see
	// readUnit and maxReadPart.
	MaxReads int64
	// OnDisconnect is what happens to a response that is being created when its client goes away: OnDisconnectCancel or
	// OnDisconnectFinish.
	OnDisconnect string
	// RequestTimeout limits a whole request, including its stream. A save that has begun is limited by SaveTimeout instead.
	RequestTimeout, SaveTimeout time.Duration
	// Reservation is how long the place of a turn in a conversation is reserved at a time, and so how long others wait for the conversation if
	// the gateway dies. It is renewed after half of it, which is one write more.
	Reservation time.Duration
	// ReadTimeout limits the time in which a client must send a request.
	ReadTimeout time.Duration
	// ShutdownDelay is how long the gateway keeps serving, without being ready, after its context is done. ShutdownTimeout is
	// how long the remaining requests may then take to finish.
	ShutdownDelay, ShutdownTimeout time.Duration
	// ReloadInterval is how often the files are checked for changes.
	ReloadInterval time.Duration
}

// DefaultMaxDepth is the maximum depth that the gateway requests. `make run` sets the operator's --max-depth to the same value,
// as every installation should, so that the operator does not mark a chain of the gateway as broken. See
// docs/decisions/depth.md.
const DefaultMaxDepth = 1000

// The values of Options.OnDisconnect.
const (
	// OnDisconnectCancel stops the engine. The turn is saved as cancelled, with the output items that were finished.
	OnDisconnectCancel = "cancel"
	// OnDisconnectFinish lets the engine finish. The turn is saved as if the client had received the response, and keeps its tenant's
	// shares of the limits until then. A turn with `store: false` is cancelled nevertheless, because nobody could read it.
	OnDisconnectFinish = "finish"
)

// DefaultResponseReserveBytes is the size of a response with about 16,000 tokens of text.
const DefaultResponseReserveBytes = 64 << 10

const maxResponseReserve = 1 << 30

// requestTimeout is the default of RequestTimeout.
const requestTimeout = 10 * time.Minute

// DefaultOptions returns the default options, without Store, Upstream and Logger.
func DefaultOptions() Options {
	return Options{
		ListenAddress:        "127.0.0.1:8090",
		Instructions:         store.InstructionsOmit,
		MaxDepth:             DefaultMaxDepth,
		MaxRequestBytes:      32 << 20,
		MaxResponseBytes:     32 << 20,
		MaxInFlightBytes:     1 << 30,
		MaxInFlightRequests:  4096,
		MaxInFlightStreams:   2048,
		MaxWebSockets:        1024,
		WebSocketLifetime:    time.Hour, // as in OpenAI's API
		ResponseReserveBytes: DefaultResponseReserveBytes,
		MaxParses:            int64(max(2, runtime.GOMAXPROCS(0))),
		MaxReads:             32,
		OnDisconnect:         OnDisconnectCancel,
		RequestTimeout:       requestTimeout,
		SaveTimeout:          30 * time.Second,
		Reservation:          time.Minute, // most turns end before it is renewed
		ReadTimeout:          time.Minute,
		ShutdownDelay:        5 * time.Second,
		ShutdownTimeout:      requestTimeout, // so that a rollout aborts no request
		ReloadInterval:       5 * time.Second,
	}
}

// AddFlags adds a flag for every option that can be set on the command line.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.ListenAddress, "listen-address", o.ListenAddress, "Address to serve the Responses API on.")
	flags.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile,
		"File with the serving certificate of --listen-address, followed by those of its CAs. It is reloaded when it changes. If it is not set, the API is served without TLS.")
	flags.StringVar(&o.TLSKeyFile, "tls-private-key-file", o.TLSKeyFile, "File with the key of --tls-cert-file.")
	flags.Func("upstream", "Base `URL` of the engine, with or without a trailing /v1. Required.", o.setUpstream)
	flags.StringVar(&o.UpstreamAPIKeyFile, "upstream-api-key-file", o.UpstreamAPIKeyFile,
		"File with the API key for the engine. If it is not set, the client's own Authorization, OpenAI-Organization and OpenAI-Project headers are forwarded to the engine, or none of them if --tenants-file is set.")
	flags.StringVar(&o.TenantsFile, "tenants-file", o.TenantsFile,
		"YAML or JSON file with a list of {namespace, key} or {namespace, keySHA256}, which maps API keys to namespaces. It is reloaded when it changes.")
	flags.StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace of all clients if --tenants-file is not set; by default the namespace of the store's URL.")
	flags.BoolVar(&o.InsecureAllowAnonymous, "insecure-allow-anonymous", o.InsecureAllowAnonymous,
		"Serve on addresses other than loopback without --tenants-file. Anyone who can reach the address can read and continue every conversation whose ID they know.")
	flags.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", o.CORSAllowedOrigins,
		"Web origins that may call the gateway from a browser, such as https://app.example.com, or * for any. By default, none may.")
	flags.StringVar(&o.Instructions, "instructions", o.Instructions,
		"Earlier turns whose instructions are sent to the engine: Omit (none, like OpenAI's API), Last or All.")
	flags.IntVar(&o.MaxDepth, "max-depth", o.MaxDepth, "Maximum number of turns in a conversation that can be continued.")
	flags.Int64Var(&o.MaxRequestBytes, "max-request-bytes", o.MaxRequestBytes, "Maximum size of a client's request, in bytes, also after it is decompressed.")
	flags.Int64Var(&o.MaxResponseBytes, "max-response-bytes", o.MaxResponseBytes,
		"Maximum size of the engine's response, in bytes. For a stream, it applies to each event, and to all finished output items together.")
	flags.Int64Var(&o.MaxInFlightBytes, "max-inflight-bytes", o.MaxInFlightBytes,
		"Maximum memory of all requests in flight, including their conversations and responses, in bytes. Tenants share it: a single tenant gets half of it, two tenants a third each. "+
			"A request beyond its tenant's share is rejected with 429, or with 400 if it alone exceeds the share.")
	flags.Int64Var(&o.MaxInFlightRequests, "max-inflight-requests", o.MaxInFlightRequests, "Maximum number of concurrent requests, shared among tenants like --max-inflight-bytes.")
	flags.Int64Var(&o.MaxInFlightStreams, "max-inflight-streams", o.MaxInFlightStreams, "Maximum number of concurrent streams, shared among tenants like --max-inflight-bytes.")
	flags.Int64Var(&o.MaxWebSockets, "max-websockets", o.MaxWebSockets,
		"Maximum number of open WebSocket connections, shared among tenants like --max-inflight-bytes. 0 turns WebSocket mode off.")
	flags.DurationVar(&o.WebSocketLifetime, "websocket-lifetime", o.WebSocketLifetime,
		"Maximum age of a WebSocket connection. A response in progress is finished before it is closed.")
	flags.Int64Var(&o.ResponseReserveBytes, "response-reserve-bytes", o.ResponseReserveBytes,
		"Response size, in bytes, for which memory is reserved before the engine is called. A larger response is lost if its tenant's share has no memory left when it arrives.")
	flags.Int64Var(&o.MaxParses, "max-parses", o.MaxParses,
		fmt.Sprintf("Maximum number of bodies of %d KiB or more that are processed, and of compressed requests that are decompressed, at the same time, shared among tenants like --max-inflight-bytes; others wait. "+
			"By default as many as the process has CPUs.", largeBody>>10))
	flags.Int64Var(&o.MaxReads, "max-reads", o.MaxReads,
		fmt.Sprintf("Maximum number of turns, histories and conversations that are read from the store at the same time, shared among tenants like --max-inflight-bytes; others wait. "+
			"With --tenants-file, a tenant reads fewer turns and conversations at once while they have %d KiB or more: a third of the limit divided by the number of such units.", readUnit>>10))
	flags.StringVar(&o.OnDisconnect, "on-disconnect", o.OnDisconnect,
		"What happens to a response that is being created when its client goes away: cancel (the engine stops, and the turn is saved as cancelled) or finish (the turn is saved as if the client had received the response, unless the client asked not to store it).")
	flags.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "Maximum duration of a request, including its stream.")
	flags.DurationVar(&o.ReadTimeout, "read-timeout", o.ReadTimeout, "Maximum time for a client to send a request.")
	flags.DurationVar(&o.Reservation, "conversation-reservation", o.Reservation,
		"Time for which a conversation is reserved for a turn that is being created, in whole seconds. The reservation is renewed after half of it, with one write, until the turn is saved. If the gateway dies, others wait so long.")
	flags.DurationVar(&o.SaveTimeout, "save-timeout", o.SaveTimeout, "Maximum time to save a turn, including retries.")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"Time to keep serving, without being ready, after a termination signal, so that no new requests arrive when the gateway stops listening.")
	flags.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "Maximum time for requests to finish after the shutdown delay.")
	flags.DurationVar(&o.ReloadInterval, "reload-interval", o.ReloadInterval, "Interval at which --tenants-file, --upstream-api-key-file and --tls-cert-file are checked for changes.")
}

// setUpstream parses and sets Upstream. It returns an error unless requests can be sent to the URL.
func (o *Options) setUpstream(text string) error {
	upstream, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https":
		return errors.New("must be an http or https URL")
	case upstream.RawQuery != "" || upstream.Fragment != "":
		return errors.New("must not have a query or a fragment")
	}
	o.Upstream = upstream
	return nil
}

var instructions = []string{store.InstructionsOmit, store.InstructionsLast, store.InstructionsAll}

// Validate returns an error that lists all invalid options.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Upstream != nil, "--upstream is required")
	check(!o.loopbackOnly() || isLoopback(o.ListenAddress),
		"--listen-address is %s: must be a loopback address unless --tenants-file or --insecure-allow-anonymous is set", o.ListenAddress)
	check((o.TLSCertFile == "") == (o.TLSKeyFile == ""), "--tls-cert-file and --tls-private-key-file must be set together")
	check(o.MaxDepth >= 1 && o.MaxDepth <= store.MaxDepthLimit, "--max-depth is %d: must be from 1 to %d", o.MaxDepth, store.MaxDepthLimit)
	check(slices.Contains(instructions, o.Instructions), "--instructions is %q: must be one of %s", o.Instructions, strings.Join(instructions, ", "))
	check(o.OnDisconnect == OnDisconnectCancel || o.OnDisconnect == OnDisconnectFinish,
		"--on-disconnect is %q: must be %s or %s", o.OnDisconnect, OnDisconnectCancel, OnDisconnectFinish)
	check(o.MaxRequestBytes >= 1, "--max-request-bytes is %d: must be at least 1", o.MaxRequestBytes)
	check(o.MaxResponseBytes >= 1, "--max-response-bytes is %d: must be at least 1", o.MaxResponseBytes)
	check(o.ResponseReserveBytes >= 0 && o.ResponseReserveBytes <= maxResponseReserve,
		"--response-reserve-bytes is %d: must be from 0 to %d", o.ResponseReserveBytes, maxResponseReserve)
	check(o.MaxInFlightBytes/8 >= o.MaxRequestBytes && o.MaxInFlightBytes/2 >= o.largestRequest(), // the sum may overflow
		"--max-inflight-bytes is %d: must be at least %d for --max-request-bytes=%d and --response-reserve-bytes=%d",
		o.MaxInFlightBytes, 2*o.largestRequest(), o.MaxRequestBytes, o.ResponseReserveBytes)
	check(o.MaxInFlightRequests >= 2, "--max-inflight-requests is %d: must be at least 2", o.MaxInFlightRequests)
	check(o.MaxInFlightStreams >= 2, "--max-inflight-streams is %d: must be at least 2", o.MaxInFlightStreams)
	check(o.MaxWebSockets == 0 || o.MaxWebSockets >= 2, "--max-websockets is %d: must be 0 or at least 2", o.MaxWebSockets)
	check(o.MaxParses >= 2, "--max-parses is %d: must be at least 2", o.MaxParses)
	check(o.MaxReads >= 2, "--max-reads is %d: must be at least 2", o.MaxReads)
	check(o.Reservation >= store.MinReservation && o.Reservation <= store.MaxReservation && o.Reservation%time.Second == 0,
		"--conversation-reservation is %s: must be whole seconds, from %s to %s", o.Reservation, store.MinReservation, store.MaxReservation)
	positive := func(flag string, value time.Duration) { check(value > 0, "--%s is %s: must be positive", flag, value) }
	positive("websocket-lifetime", o.WebSocketLifetime)
	positive("request-timeout", o.RequestTimeout)
	positive("read-timeout", o.ReadTimeout)
	positive("save-timeout", o.SaveTimeout)
	positive("shutdown-timeout", o.ShutdownTimeout)
	positive("reload-interval", o.ReloadInterval)
	check(o.ShutdownDelay >= 0, "--shutdown-delay-duration is %s: must not be negative", o.ShutdownDelay)
	for _, origin := range o.CORSAllowedOrigins {
		if err := validateOrigin(origin); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins: %w", err))
		}
	}
	if o.Namespace != "" {
		if err := validateNamespace(o.Namespace); err != nil {
			errs = append(errs, fmt.Errorf("--namespace: %w", err))
		}
	}
	return errors.Join(errs...)
}

// reserve returns the memory that is reserved for the response to a request, and for saving both.
func (o *Options) reserve(requestBytes int64, save bool) int64 {
	response := min(o.ResponseReserveBytes, o.MaxResponseBytes)
	last := 2 * (requestBytes + completedBytes) // what the response repeats of the request, also in its event
	if save {
		last = max(last, saveMemory(requestBytes+response))
	}
	return responseMemory(response) + last
}

// largestRequest returns the memory of the largest request without a conversation: the call, the request, the request's share
// of the body for the engine, and the reserve.
func (o *Options) largestRequest() int64 {
	return callBytes + 2*o.MaxRequestBytes + o.reserve(o.MaxRequestBytes, true)
}

// loopbackOnly reports whether the gateway is restricted to programs on this machine.
func (o *Options) loopbackOnly() bool { return o.TenantsFile == "" && !o.InsecureAllowAnonymous }

// resolveOptions returns the options for resolving the conversation of a request. Its origins are for Gateway.context and knownItems.
func (o *Options) resolveOptions() store.ResolveOptions {
	return store.ResolveOptions{MaxDepth: &o.MaxDepth, Instructions: o.Instructions, ContinueIncomplete: true, Origins: true}
}
