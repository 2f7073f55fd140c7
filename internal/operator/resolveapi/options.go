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
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/store/driver"
)

// Options are the options of the resolve API server, which its flags set.
type Options struct {
	// SecureServing has the address and the certificate. Without a certificate, an untrusted self-signed one is generated at
	// each start. Port 0 disables serving: set the Listener to serve on a free port.
	SecureServing *genericoptions.SecureServingOptionsWithLoopback
	// Certificate replaces the certificate of SecureServing unless it is nil. It must not be empty when the server starts.
	Certificate dynamiccertificates.CertKeyContentProvider
	// Authentication and Authorization delegate to the kube-apiserver.
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions

	// DefaultMaxDepth is the number of turns that a chain may have unless the request sets maxDepth. Verdicts use the same
	// limit.
	DefaultMaxDepth int32
	// MaxDepthLimit is the largest maxDepth that a request may set. driver.MaxDepthLimit, which is always accepted, stands for it.
	MaxDepthLimit int32
	// Requests is the number of requests that may be in progress at once. The addresses of clients share it as in fair.Budget. The
	// kube-apiserver is one of them, and may send as many as resolve.Options.InFlightRequests.
	Requests int64
	// Reviews is the number of TokenReviews and SubjectAccessReviews that may be in progress at once. Addresses and users share it as in
	// fair.Budget; others wait.
	Reviews int64
	// Connections is the number of connections that one address may have.
	Connections int
	// RequestTimeout is how long a request may take.
	RequestTimeout time.Duration
	// ShutdownDelay is how long the server continues to serve, but is not ready, after its context is done, so that no new
	// requests are sent to it when it stops.
	ShutdownDelay time.Duration
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort = 10250
	serving.ServerCert.CertDirectory = "" // do not write generated certificates to disk
	serving.ServerCert.PairName = ""
	serving.HTTP2MaxStreamsPerConnection = 1000 // the kube-apiserver sends everything over one connection
	return &Options{
		SecureServing:   serving.WithLoopback(),
		Authentication:  genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:   genericoptions.NewDelegatingAuthorizationOptions(),
		DefaultMaxDepth: chain.DefaultMaxDepth,
		MaxDepthLimit:   driver.MaxDepthLimit,
		Requests:        1000,
		Reviews:         32,
		Connections:     64,
		RequestTimeout:  time.Minute,
		ShutdownDelay:   5 * time.Second,
	}
}

// AddFlags adds the flags to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.SecureServing.AddFlags(fs)
	o.Authentication.AddFlags(fs)
	o.Authorization.AddFlags(fs)
	fs.Int32Var(&o.DefaultMaxDepth, "max-depth", o.DefaultMaxDepth,
		"Maximum number of turns in a chain, for verdicts and for requests that do not set maxDepth.")
	fs.Int32Var(&o.MaxDepthLimit, "max-depth-limit", o.MaxDepthLimit, "Maximum value of maxDepth in a request.")
	fs.Int64Var(&o.Requests, "max-requests", o.Requests,
		"Maximum number of concurrent requests to the secure port, shared by the addresses of clients and, for requests that the kube-apiserver forwards, "+
			"the users and the namespaces of service accounts: one alone may use half. Requests that exceed a share are rejected with 429.")
	fs.Int64Var(&o.Reviews, "max-reviews", o.Reviews,
		"Maximum number of concurrent TokenReviews, shared by the addresses of clients, and SubjectAccessReviews, shared by users, that are sent to the kube-apiserver.")
	fs.IntVar(&o.Connections, "max-connections-per-address", o.Connections, "Maximum number of connections to the secure port from one address. Four times as many wait, and further ones are closed.")
	fs.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout, "Maximum duration of a request.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"Time for which the server continues to serve, but reports that it is not ready, after a termination signal, so that clients stop sending requests.")
}

// Validate returns all errors in the options, joined.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	if o.DefaultMaxDepth < 0 || o.DefaultMaxDepth > o.MaxDepthLimit {
		errs = append(errs, fmt.Errorf("--max-depth is %d: must be from 0 to --max-depth-limit, which is %d", o.DefaultMaxDepth, o.MaxDepthLimit))
	}
	if o.MaxDepthLimit > driver.MaxDepthLimit {
		errs = append(errs, fmt.Errorf("--max-depth-limit is %d: must be at most %d", o.MaxDepthLimit, driver.MaxDepthLimit))
	}
	if o.Requests < 1 {
		errs = append(errs, fmt.Errorf("--max-requests is %d: must be at least 1", o.Requests))
	}
	if o.Reviews < 1 {
		errs = append(errs, fmt.Errorf("--max-reviews is %d: must be at least 1", o.Reviews))
	}
	if o.Connections < 1 {
		errs = append(errs, fmt.Errorf("--max-connections-per-address is %d: must be at least 1", o.Connections))
	}
	if o.RequestTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--request-timeout is %s: must be positive", o.RequestTimeout))
	}
	if o.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration is %s: must not be negative", o.ShutdownDelay))
	}
	return errors.Join(errs...)
}

// applyTo applies the options to the configuration of a server. It reads certificates, opens the port and reads from the
// kube-apiserver the CAs of its clients and its proxy.
func (o *Options) applyTo(config *genericapiserver.Config) error {
	if o.Certificate == nil {
		if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
			return fmt.Errorf("unable to generate a self-signed certificate: %w", err)
		}
	}
	if err := o.SecureServing.ApplyToConfig(config); err != nil {
		return fmt.Errorf("unable to set up serving: %w", err)
	}
	if o.Certificate != nil {
		config.SecureServing.Cert = o.Certificate
	}
	if err := o.Authentication.ApplyTo(&config.Authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return fmt.Errorf("unable to set up authentication: %w", err)
	}
	if err := o.Authorization.ApplyTo(&config.Authorization); err != nil {
		return fmt.Errorf("unable to set up authorization: %w", err)
	}
	config.RequestTimeout = o.RequestTimeout
	config.ShutdownDelayDuration = o.ShutdownDelay
	return nil
}
