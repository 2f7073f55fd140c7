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

// Command catena is Catena's operator. With the subcommands export and import, it copies the sessions and the conversations
// of a namespace into a file, and back.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/catena-dev/catena/internal/logging"
	"github.com/catena-dev/catena/internal/memorylimit"
	"github.com/catena-dev/catena/internal/operator"
	"github.com/catena-dev/catena/internal/operator/resolve"
	_ "github.com/catena-dev/catena/internal/snapshot/buckets" // for --snapshot-store
	"github.com/catena-dev/catena/internal/version"
)

// gcPercent is how much the heap grows between two garbage collections, unless the environment sets GOGC. Most of the heap is
// the view, which is cheap to scan; Go's default of 100 would double its memory.
const gcPercent = 50

// programBytes is the memory that the operator takes in addition to what its flags limit, with 100,000 sessions, and
// mappedBytes is the part that Go's runtime does not manage: the mapped binary itself.
const (
	programBytes = 250 << 20
	mappedBytes  = 64 << 20
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "catena: %v\n", err)
		os.Exit(1)
	}
}

// commands are the subcommands. Without one, the operator runs.
var commands = map[string]func(ctx context.Context, args []string) error{"export": runExport, "import": runImport}

// run runs a subcommand, or the operator, until it ends or a signal stops it.
func run(args []string) error {
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctrl.SetupSignalHandler(), args[1:])
		}
	}
	return runOperator(args)
}

func runOperator(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Println("catena", version.String())
		return nil
	}
	if err := o.operator.Validate(); err != nil {
		return err
	}
	ctrl.SetLogger(logr.FromSlogHandler(logging.NewHandler(os.Stderr, o.logLevel)))
	klog.SetLogger(ctrl.Log)
	if err := limitMemory(&o.operator.Resolve); err != nil {
		return err
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version.String())
	return operator.Run(ctrl.SetupSignalHandler(), config, o.operator)
}

// limitMemory limits the memory to that of the container, in which more sessions than docs/architecture.md assumes may fit, or, without one,
// to what it promises.
func limitMemory(o *resolve.Options) error {
	needed := int64(math.MaxInt64)
	if o.CacheBytes < math.MaxInt64/8 && o.InFlightBytes < math.MaxInt64/8 {
		needed = o.CacheBytes + 3*o.InFlightBytes + programBytes
	}
	container, err := memorylimit.OfContainer(mappedBytes)
	if err != nil {
		return err
	}
	if container == math.MaxInt64 {
		container = needed
	}
	if container < needed {
		ctrl.Log.Info("The memory limit of the container is below what the flags permit with 100,000 sessions: raise it, "+
			"or lower --body-cache-bytes or --max-inflight-bytes", "limit", container, "permitted", needed)
	}
	memorylimit.Set(container, mappedBytes)
	return nil
}

const usage = `Run the operator, or a subcommand.

Usage: catena [flags]
       catena export [flags]
       catena import [flags] FILE

Flags of the operator:
`

// options are the command-line options of the operator and of the program itself.
type options struct {
	operator   *operator.Options
	kubeconfig string
	logLevel   slog.Level
	version    bool
}

// parse reads the command line.
func parse(args []string) (*options, error) {
	o := &options{operator: operator.NewOptions()}
	flags := pflag.NewFlagSet("catena", pflag.ContinueOnError)
	o.addFlags(flags)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: subcommands are export and import, before all flags", flags.Arg(0))
	}
	return o, nil
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	o.operator.AddFlags(flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file; not needed in a cluster.")
	flags.BoolVar(&o.version, "version", false, "Print the version and exit.")
	logging.AddFlag(flags, &o.logLevel)
}

func (o *options) restConfig() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("unable to load the configuration of the Kubernetes client: %w", err)
	}
	return config, nil
}
