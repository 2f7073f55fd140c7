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

// Command replay stores recorded turns of the Responses API in a cluster, resolves them through the resolve API, and compares
// the result with the input.
//
// The file has one turn per line, plain or gzipped: a JSON object with the `request` and the `response` of the Responses API.
// The turns are stored as chains in file order, as a gateway would store them: each has the previous turn as its
// previous_response_id. A turn keeps its response ID unless another turn in the namespace already has it; in that case, a
// suffix for this run is appended.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/internal/recorded"
	"github.com/catena-dev/catena/internal/version"
	"github.com/catena-dev/catena/store/kube"
)

type options struct {
	kubeconfig   string
	namespace    string
	chainLength  int
	workers      int
	maxTurnBytes int
}

func main() {
	o := options{namespace: "catena-replay", chainLength: 16, workers: 4, maxTurnBytes: kube.DefaultMaxTurnBytes}
	flags := pflag.NewFlagSet("replay", pflag.ExitOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "Path of a kubeconfig file. The default is the same as for kubectl.")
	flags.StringVarP(&o.namespace, "namespace", "n", o.namespace, "Namespace in which to store the turns. It is created if it does not exist.")
	flags.IntVar(&o.chainLength, "chain-length", o.chainLength, "Maximum number of turns per chain.")
	flags.IntVar(&o.workers, "workers", o.workers, "Number of chains stored and resolved concurrently.")
	flags.IntVar(&o.maxTurnBytes, "max-turn-bytes", o.maxTurnBytes, "Maximum size of a turn's request and response together, in bytes. Larger turns are skipped.")
	showVersion := flags.Bool("version", false, "Print the version and exit.")
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "Store recorded turns, resolve them, and compare.\n\nUsage: replay [flags] FILE\n\n%s", flags.FlagUsages())
	}
	_ = flags.Parse(os.Args[1:]) // exits
	if *showVersion {
		fmt.Println("replay", version.String())
		return
	}
	if flags.NArg() != 1 || o.chainLength < 1 || o.workers < 1 || o.maxTurnBytes < 1 {
		flags.Usage()
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, &o, flags.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// run replays a file and prints the summary. It returns an error unless everything was read back exactly as stored.
func run(ctx context.Context, o *options, path string) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig, Precedence: clientcmd.NewDefaultClientConfigLoadingRules().Precedence},
		nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("unable to load the configuration of the Kubernetes client: %w", err)
	}
	if err := createNamespace(ctx, config, o.namespace); err != nil {
		return err
	}
	target, err := kube.Open(ctx, kube.Options{Config: config, Namespace: o.namespace, MaxTurnBytes: o.maxTurnBytes})
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	turns, err := recorded.Open(path)
	if err != nil {
		return err
	}
	defer turns.Close()

	r := newReplay(o, target)
	stopProgress := r.showProgress(os.Stderr)
	err = r.replay(ctx, turns)
	stopProgress()
	r.summarize(os.Stdout)
	if err == nil && r.differences > 0 {
		err = fmt.Errorf("%d differences", r.differences)
	}
	if err == nil && r.recorded == 0 {
		err = errors.New("the file contains no turns")
	}
	return err
}
