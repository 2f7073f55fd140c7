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

// Command gateway serves the OpenAI Responses API with state, in front of an engine that keeps none.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/catena-dev/catena/internal/gateway"
	"github.com/catena-dev/catena/internal/logging"
	"github.com/catena-dev/catena/internal/memorylimit"
	"github.com/catena-dev/catena/internal/profiling"
	_ "github.com/catena-dev/catena/internal/snapshot/buckets" // for the snapshot-store parameter of a kube: URL
	"github.com/catena-dev/catena/internal/version"
	"github.com/catena-dev/catena/store"
	_ "github.com/catena-dev/catena/store/kube"
	_ "github.com/catena-dev/catena/store/memory"
	_ "github.com/catena-dev/catena/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "gateway: %v\n", err)
		os.Exit(1)
	}
}

// run runs the gateway until ctx is done.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Fprintln(stdout, "gateway", version.String())
		return nil
	}
	if err := o.gateway.Validate(); err != nil {
		return err
	}
	turns, err := store.Open(ctx, o.store)
	if err != nil {
		return err
	}
	o.gateway.Store, o.gateway.Logger = turns, slog.New(logging.NewHandler(stderr, o.logLevel))
	if err := o.checkStore(ctx); err != nil {
		return errors.Join(err, turns.Close())
	}
	return errors.Join(serve(ctx, o), turns.Close())
}

// checkStore returns an error if the store must not be used. An outage does not keep the gateway from starting.
func (o *options) checkStore(ctx context.Context) error {
	err := o.gateway.Store.Check(ctx)
	if store.IsRetryable(err) {
		o.gateway.Logger.Warn("Unable to check the store", "error", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("unable to use the store: %w", err)
	}
	return nil
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := newOptions()
	flags := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func serve(ctx context.Context, o *options) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), o.gateway.Store.Collector())
	if err := o.limitMemory(); err != nil {
		return err
	}
	g, err := gateway.New(o.gateway, registry)
	if err != nil {
		return err
	}
	listeners, err := o.listen(ctx)
	if err != nil {
		return err
	}
	o.gateway.Logger.Info("serving", "address", listeners.API.Addr().String(), "version", version.String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return profiling.Serve(ctx, o.profilingAddress) })
	group.Go(func() error { return g.Serve(ctx, listeners, registry) })
	return group.Wait()
}

// programBytes is the memory that the program and its first thousand connections take besides that of the requests in flight, and mappedBytes
// is the part that Go's runtime does not manage: the mapped binary itself.
const (
	programBytes = 128 << 20
	mappedBytes  = 64 << 20
)

// limitMemory limits the memory to what the requests in flight and the program need, or that of the container if it is less. A container needs
// more for further connections, which the kernel has buffers for.
func (o *options) limitMemory() error {
	needed := int64(math.MaxInt64)
	if o.gateway.MaxInFlightBytes < math.MaxInt64-programBytes {
		needed = o.gateway.MaxInFlightBytes + programBytes
	}
	container, err := memorylimit.OfContainer(mappedBytes)
	if err != nil {
		return err
	}
	if container < needed {
		o.gateway.Logger.Warn("the memory limit of the container is below what the flags permit: raise it, or lower --max-inflight-bytes",
			"limit", container, "permitted", needed)
	}
	memorylimit.Set(min(container, needed), mappedBytes)
	return nil
}

// listen opens the addresses to serve on.
func (o *options) listen(ctx context.Context) (listeners gateway.Listeners, err error) {
	if listeners.API, err = listen(ctx, o.gateway.ListenAddress); err != nil {
		return listeners, err
	}
	if listeners.Metrics, err = listenUnlessOff(ctx, o.metricsBindAddress); err != nil {
		return listeners, err
	}
	listeners.Health, err = listenUnlessOff(ctx, o.healthBindAddress)
	return listeners, err
}

// listenUnlessOff returns nil for the address "0".
func listenUnlessOff(ctx context.Context, address string) (net.Listener, error) {
	if address == "0" {
		return nil, nil
	}
	return listen(ctx, address)
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("unable to listen on %s: %w", address, err)
	}
	return listener, nil
}
