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
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/logging"
	"github.com/catena-dev/catena/internal/profiling"
)

// options are the options of the command line: those of the gateway and those of the program itself.
type options struct {
	gateway            gateway.Options
	store              string
	metricsBindAddress string
	healthBindAddress  string
	profilingAddress   string
	logLevel           slog.Level
	version            bool
}

func newOptions() *options {
	return &options{
		gateway:            gateway.DefaultOptions(),
		store:              "kube:",
		metricsBindAddress: "127.0.0.1:8091",
		healthBindAddress:  "127.0.0.1:8092",
	}
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	o.gateway.AddFlags(flags)
	flags.StringVar(&o.store, "store", o.store, "`URL` of the store for turns: kube:, sqlite:PATH or memory:.")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", o.metricsBindAddress, "Address to serve /metrics on; 0 for none.")
	flags.StringVar(&o.healthBindAddress, "health-probe-bind-address", o.healthBindAddress,
		"Address to serve /healthz and /readyz on; 0 for none, and :8092 for the probes of a Pod.")
	profiling.AddFlag(flags, &o.profilingAddress)
	logging.AddFlag(flags, &o.logLevel)
	flags.BoolVar(&o.version, "version", o.version, "Print the version and exit.")
}
