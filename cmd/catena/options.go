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
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/resolveapi"
	"github.com/catena-dev/catena/internal/snapshot"
)

// minCacheBytes keeps the cache and the other limits large enough for a turn of the largest size that one object has.
const minCacheBytes = 2 << 20

type options struct {
	kubeconfig              string
	metricsAddress          string
	healthAddress           string
	leaderElect             bool
	leaderElectionNamespace string
	concurrentReconciles    int
	eventsPerSecond         float64
	snapshotStore           string
	snapshotSweepInterval   time.Duration
	snapshotGracePeriod     time.Duration
	unsafeGracePeriod       bool
	resolve                 resolve.Options
	resolveAPI              *resolveapi.Options
	zap                     zap.Options
}

func newOptions() *options {
	return &options{
		metricsAddress:        ":8080",
		healthAddress:         ":8081",
		leaderElect:           true,
		concurrentReconciles:  16,
		eventsPerSecond:       10,
		snapshotSweepInterval: 10 * time.Minute,
		snapshotGracePeriod:   time.Hour,
		resolve:               resolve.DefaultOptions(),
		resolveAPI:            resolveapi.NewOptions(),
	}
}

// minGracePeriod leaves as much again as a save takes at most, for clocks that differ.
const minGracePeriod = 2 * snapshot.MaxWriteTime

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "The kubeconfig file to use; inside a cluster none is needed.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "Where to serve metrics; 0 for nowhere.")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress, "Where to serve /healthz and /readyz.")
	flags.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "Let only one of several replicas run the controller.")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"The namespace of the leader's lease; inside a cluster the operator's own by default.")
	flags.IntVar(&o.concurrentReconciles, "concurrent-reconciles", o.concurrentReconciles, "How many sessions are judged at once.")
	flags.Float64Var(&o.eventsPerSecond, "events-per-second", o.eventsPerSecond,
		"How many events about broken and healed chains are recorded a second, with bursts of ten seconds' worth; further ones are left out.")
	flags.Uint64Var(&o.resolve.CacheBytes, "body-cache-bytes", o.resolve.CacheBytes, "How many bytes of turns are kept in memory for the resolve API.")
	flags.Int64Var(&o.resolve.HistoryBytes, "max-history-bytes", o.resolve.HistoryBytes, "How many bytes of items one history may have; a larger one is answered with 413.")
	flags.Int64Var(&o.resolve.InFlightBytes, "max-inflight-bytes", o.resolve.InFlightBytes,
		"How many bytes of items all requests together may hold at once; a request beyond that is answered with 429. Their answers take as much again.")
	flags.Int64Var(&o.resolve.LiveReads, "max-live-reads", o.resolve.LiveReads, "How many sessions the resolve API reads from the kube-apiserver at once.")
	flags.StringVar(&o.snapshotStore, "snapshot-store", o.snapshotStore,
		"The bucket that snapshots are read from, besides SnapshotChunks, and in which those are deleted that no session refers to: "+
			"s3://, gs://, azblob:// or file://, as gocloud.dev/blob has them. Each cluster needs one, or a ?prefix=NAME/, of its own.")
	flags.DurationVar(&o.snapshotSweepInterval, "snapshot-sweep-interval", o.snapshotSweepInterval,
		"How often the snapshots that are stored are compared with the sessions that refer to them.")
	flags.DurationVar(&o.snapshotGracePeriod, "snapshot-grace-period", o.snapshotGracePeriod,
		"How old a snapshot must be that no session refers to before it is deleted, at least 30m: longer than any save takes.")
	flags.BoolVar(&o.unsafeGracePeriod, "unsafe-snapshot-grace-period", o.unsafeGracePeriod,
		"Allow a shorter grace period. A save that takes longer loses its turn: this is for tests.")
	o.resolveAPI.AddFlags(flags)

	zapFlags := flag.NewFlagSet("", flag.ContinueOnError)
	o.zap.BindFlags(zapFlags)
	flags.AddGoFlagSet(zapFlags)
}

func (o *options) validate() error {
	errs := []error{o.resolveAPI.Validate()}
	if o.concurrentReconciles < 1 {
		errs = append(errs, fmt.Errorf("--concurrent-reconciles is %d: must be at least 1", o.concurrentReconciles))
	}
	if o.eventsPerSecond < 0 {
		errs = append(errs, fmt.Errorf("--events-per-second is %g: must not be negative", o.eventsPerSecond))
	}
	if o.resolve.CacheBytes < minCacheBytes {
		errs = append(errs, fmt.Errorf("--body-cache-bytes is %d: must be at least %d", o.resolve.CacheBytes, minCacheBytes))
	}
	if o.resolve.HistoryBytes < minCacheBytes || o.resolve.HistoryBytes > o.resolve.InFlightBytes {
		errs = append(errs, fmt.Errorf("--max-history-bytes is %d: must be from %d to --max-inflight-bytes, which is %d",
			o.resolve.HistoryBytes, minCacheBytes, o.resolve.InFlightBytes))
	}
	if o.resolve.LiveReads < 1 {
		errs = append(errs, fmt.Errorf("--max-live-reads is %d: must be at least 1", o.resolve.LiveReads))
	}
	if o.snapshotSweepInterval <= 0 {
		errs = append(errs, fmt.Errorf("--snapshot-sweep-interval is %s: must be positive", o.snapshotSweepInterval))
	}
	if o.snapshotGracePeriod < minGracePeriod && !o.unsafeGracePeriod {
		errs = append(errs, fmt.Errorf("--snapshot-grace-period is %s: must be at least %s", o.snapshotGracePeriod, minGracePeriod))
	}
	return errors.Join(errs...)
}

// logger returns the logger that the flags ask for. Errors name what failed; the stack of a reconcile adds nothing.
func (o *options) logger() logr.Logger {
	if o.zap.StacktraceLevel == nil {
		o.zap.StacktraceLevel = zapcore.DPanicLevel
	}
	return zap.New(zap.UseFlagOptions(&o.zap))
}

// restConfig returns the configuration of the clients. They have no rate limit of their own: the API server's priority
// and fairness is the judge of what is too much.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("unable to load the configuration of the Kubernetes client: %w", err)
	}
	config.QPS = -1
	return config, nil
}
