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

// Command bench measures Catena against a real control plane on this machine. It prints each measurement with its
// comparison in one table, and writes all samples to a file. `make bench` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/catenatest"
	"github.com/catena-dev/catena/internal/testenv"
)

// experiment is a benchmark with its own environment, in which an operator runs.
type experiment struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

var experiments = []experiment{
	{"resolve", resolveExperiment},
	{"peers", peersExperiment},
	{"write", writeExperiment},
	{"tree", treeExperiment},
	{"save", saveExperiment},
	{"inline", inlineExperiment},
	{"gateway", gatewayExperiment},
	{"scale", scaleExperiment},
	{"million", millionExperiment},
	{"load", loadExperiment},
	{"large", largeExperiment},
	{"chunks", chunksExperiment},
	{"cost", costExperiment},
	{"conversations", conversationsExperiment},
}

// bench has the environment and the parameters of an experiment, and collects its results.
type bench struct {
	env           *testenv.Environment
	operator      *catenatest.Operator
	flags         []string // of the operator, in addition to operatorOptions
	rounds        int
	sessions      int
	turns         int
	chunks        int
	stored        int
	conversations int
	recorded      string // the file, empty for synthetic turns
	progress      io.Writer

	experiment   string
	measurements []*measurement
}

// compare adds a measurement with its comparison to the report.
func (b *bench) compare(name, unit string, ours, theirs series, goal *goal) {
	b.measurements = append(b.measurements, &measurement{b.experiment, name, unit, ours, &theirs, goal})
}

// figure adds a measurement without a comparison.
func (b *bench) figure(name, unit string, goal *goal, samples ...float64) {
	b.measurements = append(b.measurements, &measurement{b.experiment, name, unit, series{"", samples}, nil, goal})
}

func main() {
	run := flag.String("run", ".", "run only the experiments whose name matches this regular expression")
	rounds := flag.Int("rounds", 5, "number of rounds, each of which runs all cases of a comparison once; experiments that take long run fewer")
	sessions := flag.Int("sessions", 20_000, "number of sessions that the scale experiment stores; the goals are for 100,000")
	turns := flag.Int("turns", 2_000, "number of turns that the tree experiment stores")
	chunks := flag.Int("chunks", 1_000, "number of chunks that the chunks experiment stores")
	output := flag.String("json", "", "the file for the measurements with all samples")
	stored := flag.Int("stored", 1_600, "number of turns that the cost experiment stores in each form, in all rounds")
	conversations := flag.Int("conversations", 10_000, "number of conversations of which the conversations experiment lists some; the goals are for 100,000")
	recorded := flag.String("recorded", "", "the cost and million experiments store the turns of this file, as cmd/replay reads it, instead of synthetic ones")
	report := flag.String("report", "", "instead of measuring, add the results in the file of -json to those in this directory, its page and its charts")
	static := flag.String("static", "", "instead of measuring, serve the files of this directory on -address, as the comparison of the resolve experiment")
	address := flag.String("address", "", "address for -static")
	flag.Parse()
	if *static != "" {
		fmt.Fprintf(os.Stderr, "bench: %v\n", serveStatic(*static, *address))
		os.Exit(1)
	}
	if *report != "" {
		if err := updateReport(*report, *output); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
			os.Exit(1)
		}
		return
	}
	log.SetLogger(logr.Discard()) // drops the logs of envtest
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	selected, err := regexp.Compile(*run)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: -run: %v\n", err)
		os.Exit(2)
	}
	machine, err := thisMachine(ctx, os.Getenv("KUBEBUILDER_ASSETS"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
	failed := false
	all := &results{Machine: machine}
	for _, e := range experiments {
		if !selected.MatchString(e.name) {
			continue
		}
		b := &bench{
			rounds: *rounds, sessions: *sessions, turns: *turns, chunks: *chunks, stored: *stored, conversations: *conversations, recorded: *recorded,
			progress: os.Stderr, experiment: e.name,
		}
		if err := b.run(ctx, e); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", e.name, err)
			failed = true
			continue // a part of the results would replace all of an earlier run
		}
		all.Measurements = append(all.Measurements, b.measurements...)
	}
	if err := all.print(os.Stdout, *output); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		failed = true
	}
	if failed {
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, e experiment) (err error) {
	fmt.Fprintf(b.progress, "==> %s: starting a control plane\n", e.name)
	options := catenatest.Options{Fsync: e.name != "chunks", GarbageCollector: catenatest.Required} // chunks measures only reads
	if e.name == "scale" {
		options.GarbageCollector = catenatest.Off
	}
	if b.env, err = testenv.Start(ctx, options); err != nil {
		return err
	}
	defer func() {
		if stopErr := b.env.Stop(); err == nil {
			err = stopErr
		}
	}()
	if b.operator, err = b.env.StartOperator(ctx, operatorOptions); err != nil {
		return err
	}
	return e.run(ctx, b)
}

// operatorOptions lift the limits on one namespace, because the experiments measure what the operator is capable of.
var operatorOptions = catenatest.OperatorOptions{Args: []string{
	"--status-rewrites-per-second=1e6", "--status-rewrite-bytes-per-second=1e12", "--status-values-per-second=1e12",
	"--answer-bytes-per-second=1000000000000",
}}

// restartOperator restarts the operator with other additional flags.
func (b *bench) restartOperator(ctx context.Context, flags ...string) (err error) {
	b.flags = flags
	if err := b.operator.Stop(); err != nil {
		return err
	}
	options := operatorOptions
	options.Args = slices.Concat(options.Args, flags)
	b.operator, err = b.env.StartOperator(ctx, options)
	return err
}

func (b *bench) logf(format string, args ...any) {
	fmt.Fprintf(b.progress, "    %s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
