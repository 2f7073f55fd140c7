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

// Package operator is Catena's operator: the controllers of ResponseSessions, on the elected leader, and the resolve API, on
// every replica. Both share one watch of the sessions, and one of the Conversations.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/certificates"
	"github.com/catena-dev/catena/internal/operator/conversations"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/resolveapi"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/operator/sizes"
	"github.com/catena-dev/catena/internal/profiling"
	"github.com/catena-dev/catena/internal/requests"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/internal/snapshot"
)

// A leader that cannot renew its lease for the renew deadline ends, and its replica's resolve API with it. So the deadline is
// longer than a restart of the kube-apiserver. A leader that stops releases its lease at once; after one that crashes, verdicts
// wait until the lease expires.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 45 * time.Second
	retryPeriod   = 5 * time.Second
)

// Leader election reads, creates and updates one lease, and records events about leadership.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=catena-system,resources=leases,verbs=create;get;update
// +kubebuilder:rbac:groups="",namespace=catena-system,resources=events,verbs=create;patch

// Run runs the operator with the options, which must be valid, until ctx is done. Its clients have no rate limit: the API
// server's priority and fairness limits requests, and writes adapt to it. One process can run one operator at a time, because
// the metrics of controller-runtime are global.
func Run(ctx context.Context, config *rest.Config, o *Options) error {
	clients, err := newClients(config, o)
	if err != nil {
		return err
	}
	snapshots, closeSnapshots, err := snapshot.Open(ctx, clients.sessions, o.SnapshotStore)
	if err != nil {
		return err
	}
	defer func() { _ = closeSnapshots() }()
	reader := resolve.NewReader(clients.sessions, snapshots, o.Resolve)
	mgr, err := newManager(clients, o)
	if err != nil {
		return err
	}
	view := sessions.NewView(int(o.ResolveAPI.DefaultMaxDepth), o.WatchSilence)
	view.KeepItems(reader.Keep)
	releases := controllers.NewReleases(o.Sweep.Grace, clock.RealClock{})
	view.OnRelease(releases.Add)
	view.OnList(releases.Interrupt)
	s := &shared{
		manager: mgr, clients: clients, view: view, named: conversations.NewView(o.WatchSilence, clock.RealClock{}),
		reader: reader, releases: releases, snapshots: snapshots, options: o,
		health: &health{live: map[string]healthz.Checker{"ping": healthz.Ping}, ready: map[string]healthz.Checker{}},
	}
	onReplicas, err := s.addResolveAPI()
	if err != nil {
		return err
	}
	onLeader, err := s.addControllers()
	if err != nil {
		return err
	}
	if o.HealthAddress != "" && o.HealthAddress != "0" {
		server, err := newHealthServer(o.HealthAddress, s.health)
		if err != nil {
			return err
		}
		defer func() { _ = server.Listener.Close() }() // if the manager does not start
		if err := mgr.Add(server); err != nil {
			return fmt.Errorf("unable to set up the health probes: %w", err)
		}
	}
	if err := mgr.Add(everywhere(func(ctx context.Context) error { return profiling.Serve(ctx, o.ProfilingAddress) })); err != nil {
		return fmt.Errorf("unable to set up the operator: %w", err)
	}
	for _, collector := range slices.Concat(onReplicas, onLeader, []prometheus.Collector{view, clients.limiter.Metric()}) {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("unable to register metrics: %w", err)
		}
		defer metrics.Registry.Unregister(collector)
	}
	return mgr.Start(ctx)
}

// shared has the components that the resolve API and the controllers both use.
type shared struct {
	manager   manager.Manager
	clients   *clients
	view      *sessions.View
	named     *conversations.View
	reader    *resolve.Reader
	resolver  *resolve.Resolver
	releases  *controllers.Releases
	snapshots snapshot.Stores
	health    *health
	options   *Options
}

// addResolveAPI adds the parts that every replica runs, and returns their metrics.
func (s *shared) addResolveAPI() ([]prometheus.Collector, error) {
	mgr, view, o := s.manager, s.view, s.options
	reporter := controllers.NewSnapshotReporter(mgr.GetClient(), o.Statuses, clock.RealClock{}, o.StallTimeout)
	s.resolver = resolve.New(view, s.reader, reporter.Report, o.Resolve)
	keeper, err := s.certificateKeeper()
	if err != nil {
		return nil, err
	}
	server, err := resolveapi.New(o.ResolveAPI, s.resolver.Resolve, s.resolver.ResolveConversation, s.resolver.Share, view, s.named)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		mgr.Add(&replica{watches: []func(context.Context){
			func(ctx context.Context) { view.Run(ctx, s.clients.watch) },
			func(ctx context.Context) { s.named.Run(ctx, s.clients.watch) },
		}, keeper: keeper, server: server}),
		mgr.Add(reporter),
		mgr.Add(everywhere(view.EndIfRestored)),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to set up the resolve API: %w", err)
	}
	s.health.ready["resolve-api"], s.health.live["snapshot-reports"] = server.Ready, reporter.Healthy
	collectors := []prometheus.Collector{s.resolver.Metric(), s.named.Metric()}
	if keeper != nil {
		collectors = append(collectors, keeper.Metrics()...)
	}
	return collectors, nil
}

// certificateKeeper returns the keeper of the serving certificate, which the resolve API will use, or nil if files have it.
func (s *shared) certificateKeeper() (*certificates.Keeper, error) {
	if s.options.Certificates.Secret == "" {
		return nil, nil
	}
	// Neither the cache, which would need rights for all Secrets, nor the limit on writes, which tenants can use up.
	direct, err := client.New(s.clients.unlimited, client.Options{Scheme: s.manager.GetScheme(), Mapper: s.manager.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("unable to create the client for certificates: %w", err)
	}
	now := func(ctx context.Context) (time.Time, error) { return kubeclient.Now(ctx, s.clients.sessions) }
	keeper := certificates.New(s.options.Certificates, direct, now)
	s.options.ResolveAPI.Certificate = keeper.Content()
	return keeper, nil
}

// addControllers adds the parts that only the leader runs, and returns their metrics.
func (s *shared) addControllers() ([]prometheus.Collector, error) {
	mgr, view, o := s.manager, s.view, s.options
	chunks, summaries := sizes.NewChunks(), sizes.NewSummaries()
	usage := &controllers.UsageCounter{
		Sessions: view, Chunks: chunks, Summaries: summaries, Conversations: s.named, MaxNamespaces: o.UsageMetricNamespaces,
	}
	reconciler := &controllers.ResponseSessionReconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		View:         view,
		Recorder:     mgr.GetEventRecorder("catena"),
		Readable:     s.reader.Readable,
		Concurrency:  o.ConcurrentReconciles,
		Statuses:     o.Statuses,
		EventLimiter: controllers.NewEventLimiter(o.EventsPerSecond),
		Clock:        clock.RealClock{},
		StallTimeout: o.StallTimeout,
	}
	heads := &controllers.ConversationReconciler{
		Client: mgr.GetClient(), Live: s.clients.sessions, Resolve: s.resolver.Resolve, Conversations: s.named, Sessions: view,
		Interval: o.ConversationStatusInterval, Statuses: o.Statuses, Clock: clock.RealClock{}, StallTimeout: o.StallTimeout,
	}
	deleter := &controllers.ConversationDeleter{
		Client: s.clients.sessions, Conversations: s.named, Sessions: view, Snapshots: s.snapshots,
		Recorder: mgr.GetEventRecorder("catena"), EventLimiter: reconciler.EventLimiter,
		TurnsPerSecond: o.TurnDeletionsPerSecond, Clock: clock.RealClock{}, StallTimeout: o.StallTimeout,
	}
	quotas := &controllers.SessionQuotaReconciler{
		Client: mgr.GetClient(), Usage: usage, Interval: o.SessionQuotaInterval, Clock: clock.RealClock{},
		StallTimeout: o.StallTimeout,
	}
	owners := &controllers.OwnerVersions{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Sessions: view, Chunks: chunks, Summaries: summaries,
		Interval: o.OwnerReferenceInterval, Clock: clock.RealClock{},
	}
	err := errors.Join(
		reconciler.SetupWithManager(mgr),
		heads.SetupWithManager(mgr),
		deleter.SetupWithManager(mgr),
		quotas.SetupWithManager(mgr),
		mgr.Add(watching(chunks, s.clients.watch)),
		mgr.Add(watching(summaries, s.clients.watch)),
		mgr.Add(s.sweeper()),
		mgr.Add(owners),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to set up the controllers: %w", err)
	}
	s.health.live["reconciles"], s.health.live["conversation-reconciles"] = reconciler.Healthy, heads.Healthy
	s.health.live["conversation-deletions"], s.health.live["session-quotas"] = deleter.Healthy, quotas.Healthy
	return []prometheus.Collector{usage, quotas, owners, chunks.Metric(), summaries.Metric()}, nil
}

// watching returns what keeps a view current.
func watching(view *sizes.View, client rest.Interface) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		view.Run(ctx, client)
		return nil
	})
}

// sweeper returns the sweeper of the snapshots. Its time is that of the kube-apiserver.
func (s *shared) sweeper() *controllers.SnapshotSweeper {
	return &controllers.SnapshotSweeper{
		View: s.view, Client: s.clients.sessions, Stores: s.snapshots, Clock: clock.RealClock{},
		Interval: s.options.SnapshotSweepInterval, Limits: s.options.Sweep, Releases: s.releases,
		Now: func(ctx context.Context) (time.Time, error) { return kubeclient.Now(ctx, s.clients.sessions) },
	}
}

// clients are the operator's connections to the kube-apiserver.
type clients struct {
	// watch has a timeout for silence, and none for requests. sessions has one for requests, and its writes are limited by
	// limiter, as those of clients for config are. unlimited is the configuration of a client with a timeout and without the
	// limiter.
	watch, sessions   rest.Interface
	limiter           *requests.Limiter
	config, unlimited *rest.Config
}

func newClients(config *rest.Config, o *Options) (*clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	watch, err := kubeclient.New(silence.Limit(config, o.WatchSilence))
	if err != nil {
		return nil, err
	}
	config.Timeout = o.APITimeout
	limiter := requests.NewLimiter(requests.Limits{Writes: 2 * int64(o.ConcurrentReconciles)})
	limited := limiter.Limit(config)
	sessionClient, err := kubeclient.New(limited)
	if err != nil {
		return nil, err
	}
	return &clients{watch: watch, sessions: sessionClient, limiter: limiter, config: limited, unlimited: config}, nil
}

// newManager returns the manager of everything that the operator runs.
func newManager(clients *clients, o *Options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	// After the shutdown delay, requests in flight still have the full request timeout.
	shutdown := o.ResolveAPI.ShutdownDelay + o.ResolveAPI.RequestTimeout + 5*time.Second
	mgr, err := ctrl.NewManager(clients.config, manager.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress},
		HealthProbeBindAddress:        "0", // see newHealthServer
		LeaderElection:                o.LeaderElect,
		LeaderElectionConfig:          clients.unlimited,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
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

// everywhere is a Runnable that runs on every replica, leader or not.
type everywhere func(ctx context.Context) error

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }

// Start runs the function until ctx is done.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// replica runs on every replica: the resolve API, and the watches and the certificate that it depends on. They continue until the
// server has finished its last request.
type replica struct {
	watches []func(context.Context)
	keeper  *certificates.Keeper // nil if files have the certificate
	server  *resolveapi.Server
}

// NeedLeaderElection returns false.
func (r *replica) NeedLeaderElection() bool { return false }

// Start runs until ctx is done and the server has finished.
func (r *replica) Start(ctx context.Context) error {
	watchCtx, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatch()
	for _, watch := range r.watches {
		go watch(watchCtx)
	}
	if r.keeper != nil {
		go r.keeper.Run(watchCtx)
		select {
		case <-r.keeper.Ready():
		case <-ctx.Done():
			return nil
		}
	}
	return r.server.Start(ctx)
}
