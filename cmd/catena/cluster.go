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
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/catena-dev/catena/internal/backup"
	"github.com/catena-dev/catena/internal/silence"
)

// clusterOptions are the options that "catena export" and "catena import" share.
type clusterOptions struct {
	backup.Options
	kubeconfig, context, namespace string
}

func addClusterFlags(flags *pflag.FlagSet, namespaceUsage string) *clusterOptions {
	o := &clusterOptions{Options: backup.Options{
		MaxTurnBytes: backup.DefaultMaxTurnBytes, Concurrency: backup.DefaultConcurrency, APITimeout: backup.DefaultAPITimeout,
	}}
	flags.StringVarP(&o.namespace, "namespace", "n", "", namespaceUsage)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig file. The default is the same as for kubectl.")
	flags.StringVar(&o.context, "context", "", "Context of the kubeconfig. The default is the current one.")
	flags.StringVar(&o.SnapshotStore, "snapshot-store", "", "URL of the bucket of the operator's flag of this name, if the cluster has one.")
	flags.IntVar(&o.MaxTurnBytes, "max-turn-bytes", o.MaxTurnBytes, "Maximum size of the bodies of a turn together, in bytes. They are in memory.")
	flags.DurationVar(&o.APITimeout, "api-timeout", o.APITimeout, "Time after which a request ends with an error if the kube-apiserver sends nothing. It ends after "+silence.MaxResponseTime.String()+" in any case.")
	return o
}

// open returns the cluster, and the namespace of --namespace or of the context.
func (o *clusterOptions) open(ctx context.Context, problems *problemList) (cluster *backup.Cluster, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	overrides.Context.Namespace = o.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if o.Config, err = loader.ClientConfig(); err == nil {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("unable to load the configuration of the Kubernetes client: %w", err)
	}
	o.Problem, o.Progress = problems.add, showProgress
	cluster, err = backup.Open(ctx, o.Options)
	return cluster, namespace, err
}

// maxProblems is how many problems with objects are listed. The others are counted.
const maxProblems = 1000

// problemList writes a line for each problem with an object, up to maxProblems.
type problemList struct {
	out   io.Writer
	mu    sync.Mutex
	count int
}

func (p *problemList) add(object, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count++; p.count <= maxProblems {
		fmt.Fprintf(p.out, "%s: %s\n", object, problem)
	}
}

// end must be called once there are no more problems.
func (p *problemList) end() {
	if more := p.count - maxProblems; more > 0 {
		fmt.Fprintf(p.out, "… and %d more\n", more)
	}
}

// progressInterval is the time between two lines about the progress if stderr is not a terminal.
const progressInterval = 10 * time.Second

// showProgress shows the progress of a phase on stderr: with a bar, or with lines if stderr is not a terminal.
func showProgress(phase string, objects int) (step, end func()) {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		bar := progressbar.NewOptions(objects, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(phase),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		return func() { _ = bar.Add(1) }, func() { _ = bar.Finish() }
	}
	return printProgress(os.Stderr, phase, objects, progressInterval)
}

// printProgress writes a line at each interval in which an object was done.
func printProgress(out io.Writer, phase string, objects int, interval time.Duration) (step, end func()) {
	of := ""
	if objects >= 0 {
		of = fmt.Sprintf(" of %d", objects)
	}
	var mu sync.Mutex
	done, last := 0, time.Now()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		if time.Since(last) >= interval {
			fmt.Fprintf(out, "%s: %d%s objects\n", phase, done, of)
			last = time.Now()
		}
	}, func() {}
}
