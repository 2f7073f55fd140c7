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

// Package profiling serves the runtime profiles of net/http/pprof, for all programs behind the same flag.
package profiling

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/spf13/pflag"
)

// AddFlag adds --profiling-bind-address, which sets the address for Serve.
func AddFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, "profiling-bind-address", *address,
		"Address to serve /debug/pprof/ on, such as 127.0.0.1:6060. If it is empty, profiling is disabled. Profiles are served without authentication: keep the address private.")
}

// Serve serves profiles on address until ctx is done. It returns at once if the address is empty.
func Serve(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("unable to listen on %s: %w", address, err)
	}
	return serve(ctx, listener)
}

func serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("unable to serve profiles on %s: %w", listener.Addr(), err)
	}
	return nil
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
