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

// Command catena is Catena's operator: the controller of ResponseSessions, on the elected leader, and the resolve API,
// on every replica.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/resolveapi"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
	_ "github.com/catena-dev/catena/internal/snapshot/buckets" // those that --snapshot-store takes
)

// The leader ends where it cannot renew its lease for the renew deadline, and with it that replica's resolve API. So the
// deadline is longer than a restart of the kube-apiserver takes. A leader that is told to end releases its lease at once;
// after one that crashes, verdicts wait for the lease to run out.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 45 * time.Second
	retryPeriod   = 5 * time.Second
)

// gcPercent is how much garbage there may be for what is alive, where the environment's GOGC says nothing. Most of what is
// alive is the view, which takes the collector little time; Go's own 100 would double the memory that it takes.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		ctrl.SetLogger(o.logger())
		klog.SetLogger(ctrl.Log)
		err = run(ctrl.SetupSignalHandler(), o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "catena: %v\n", err)
		os.Exit(1)
	}
}

// run runs the operator until ctx is done.
func run(ctx context.Context, o *options) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	view := sessions.NewView(int(o.resolveAPI.DefaultMaxDepth))
	if err := metrics.Registry.Register(view); err != nil {
		return fmt.Errorf("unable to register metrics: %w", err)
	}
	sessionClient, err := kubeclient.New(config)
	if err != nil {
		return err
	}
	snapshots, closeSnapshots, err := snapshot.Open(ctx, sessionClient, o.snapshotStore)
	if err != nil {
		return err
	}
	defer func() { _ = closeSnapshots() }()
	reconciler := &controllers.ResponseSessionReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		View:         view,
		Recorder:     mgr.GetEventRecorder("catena"),
		Concurrency:  o.concurrentReconciles,
		EventLimiter: controllers.NewEventLimiter(o.eventsPerSecond),
		Clock:        clock.RealClock{},
	}
	reporter := controllers.NewUnreadableReporter(reconciler)
	o.resolve.Snapshots, o.resolve.Unreadable = snapshots, reporter.Report
	resolver, err := resolve.New(view, sessionClient, o.resolve)
	if err != nil {
		return err
	}
	reconciler.ReadSnapshot = resolver.ReadSnapshot
	server, err := resolveapi.New(o.resolveAPI, resolveapi.Config{Resolve: resolver.Resolve, HasSynced: view.HasSynced})
	if err != nil {
		return err
	}
	watch := func(ctx context.Context) { view.Run(ctx, sessionClient) }
	if err := mgr.Add(&replica{watch: watch, server: server}); err != nil {
		return fmt.Errorf("unable to add the resolve API: %w", err)
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("unable to set up the controller: %w", err)
	}
	sweeper := &controllers.SnapshotSweeper{
		View: view, Live: mgr.GetAPIReader(), Stores: snapshots,
		Interval: o.snapshotSweepInterval, Grace: o.snapshotGracePeriod, Clock: clock.RealClock{},
	}
	for _, runnable := range []manager.Runnable{reporter, sweeper} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("unable to add what looks after snapshots: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("resolve-api", server.Ready); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newManager(config *rest.Config, o *options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	// In-flight requests may take as long as any after the shutdown delay.
	shutdown := o.resolveAPI.ShutdownDelay + o.resolveAPI.RequestTimeout + 5*time.Second
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionNamespace:       o.leaderElectionNamespace,
		LeaderElectionID:              "catena.sessions.catena.dev",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       &shutdown,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to set up the manager: %w", err)
	}
	return mgr, nil
}

// replica is what every replica runs: the resolve API, and the watch that it answers from. The watch goes on until the
// server has finished its last request.
type replica struct {
	watch  func(context.Context)
	server *resolveapi.Server
}

// NeedLeaderElection returns false.
func (r *replica) NeedLeaderElection() bool { return false }

// Start runs until ctx is done and the server has finished.
func (r *replica) Start(ctx context.Context) error {
	watchCtx, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatch()
	go r.watch(watchCtx)
	return r.server.Start(ctx)
}

// parse reads the command line.
func parse(args []string) (*options, error) {
	o := newOptions()
	flags := pflag.NewFlagSet("catena", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, o.validate()
}
