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

package operator

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/controllers"
	"github.com/catena-dev/catena/internal/operator/certificates"
	"github.com/catena-dev/catena/internal/operator/resolve"
	"github.com/catena-dev/catena/internal/operator/resolveapi"
	"github.com/catena-dev/catena/internal/profiling"
)

// minStallTimeout is twice the maximum duration of a reconcile.
const minStallTimeout = 2 * controllers.ReconcileTimeout

// minWatchSilence is twice the time between two bookmarks of a watch.
const minWatchSilence = 2 * time.Minute

// minSessionQuotaInterval keeps the status of a quota from being written continuously.
const minSessionQuotaInterval = 100 * time.Millisecond

// minConversationStatusInterval keeps the status of a conversation from being written with every turn.
const minConversationStatusInterval = time.Second

// minTurnDeletions keeps the time between two deletions short.
const minTurnDeletions = 0.1

// Options are the options of Run. Use NewOptions.
type Options struct {
	// MetricsAddress is an address of the metrics that needs no credentials, and HealthAddress that of /healthz and /readyz; "0"
	// disables either. The port of the resolve API has the metrics too, for users with the right to them.
	MetricsAddress string
	HealthAddress  string
	// ProfilingAddress is the address of /debug/pprof/; empty disables it.
	ProfilingAddress string
	// LeaderElect makes only one of several replicas run the controllers. Its lease is in LeaderElectionNamespace, by default
	// the namespace of the Pod.
	LeaderElect             bool
	LeaderElectionNamespace string
	// ConcurrentReconciles is the number of sessions that are reconciled at once. One namespace alone can use half of it. With the default, that
	// is 16, so that the verdicts keep up with 16 writers.
	ConcurrentReconciles int
	// Statuses limits the statuses that are written for each namespace.
	Statuses controllers.StatusLimits
	// SessionQuotaInterval is the time between two counts of the usage of a namespace with a SessionQuota, at least 100ms.
	SessionQuotaInterval time.Duration
	// UsageMetricNamespaces is the number of namespaces that have usage metrics of their own.
	UsageMetricNamespaces int
	// EventsPerSecond is the rate of events about chains, with bursts of ten seconds' worth, of which one namespace can have half.
	// Others are dropped.
	EventsPerSecond float64
	// WatchSilence is how long the watches of the sessions, the chunks and the conversations may receive nothing. After that, a watch is
	// restarted, and until that of the sessions receives something the resolve API confirms the state of the view with live reads.
	WatchSilence time.Duration
	// APITimeout is how long a request to the kube-apiserver may take, except the lists for watches and the watches. The
	// kube-apiserver's own timeout is a minute by default.
	APITimeout time.Duration
	// ConversationStatusInterval is the time between two writes of the status of one conversation, and TurnDeletionsPerSecond the number of
	// turns of deleted conversations that are deleted for each namespace.
	ConversationStatusInterval time.Duration
	TurnDeletionsPerSecond     float64
	// StallTimeout is how long a controller may take for one object before /healthz fails.
	StallTimeout time.Duration
	// SnapshotStore is the URL of the bucket that snapshots are read from, besides SnapshotChunks; empty for none.
	SnapshotStore string
	// SnapshotSweepInterval is the time between two sweeps and the time limit of one, and Sweep limits their deletions.
	SnapshotSweepInterval time.Duration
	Sweep                 controllers.SweepLimits
	// OwnerReferenceInterval is the time between two passes that rewrite ownerReferences to another version of the API.
	OwnerReferenceInterval time.Duration
	// Resolve and ResolveAPI are the options of the resolve API.
	Resolve    resolve.Options
	ResolveAPI *resolveapi.Options
	// Certificates are the options of the serving certificate that the operator issues itself.
	Certificates certificates.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		MetricsAddress:             "0",
		HealthAddress:              ":8081",
		LeaderElect:                true,
		ConcurrentReconciles:       32,
		Statuses:                   controllers.DefaultStatusLimits(),
		SessionQuotaInterval:       3 * time.Second,
		UsageMetricNamespaces:      100,
		EventsPerSecond:            10,
		WatchSilence:               3 * time.Minute,
		APITimeout:                 time.Minute,
		StallTimeout:               5 * time.Minute,
		ConversationStatusInterval: controllers.DefaultConversationInterval,
		TurnDeletionsPerSecond:     controllers.DefaultTurnDeletionsPerSecond,
		SnapshotSweepInterval:      10 * time.Minute,
		Sweep:                      controllers.DefaultSweepLimits(),
		OwnerReferenceInterval:     time.Minute,
		Resolve:                    resolve.DefaultOptions(),
		ResolveAPI:                 resolveapi.NewOptions(),
		Certificates:               certificates.NewOptions(),
	}
}

// AddFlags adds the options to flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "Address to serve metrics on without authentication; 0 for none. --secure-port has them for users who may get /metrics.")
	flags.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, "Address to serve /healthz and /readyz on; 0 for none.")
	profiling.AddFlag(flags, &o.ProfilingAddress)
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Elect a leader, so that only one of several replicas runs the controllers.")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"Namespace of the leader election lease. In a cluster, the default is the operator's own namespace.")
	flags.IntVar(&o.ConcurrentReconciles, "concurrent-reconciles", o.ConcurrentReconciles, "Maximum number of sessions that are reconciled concurrently.")
	o.Statuses.AddFlags(flags)
	flags.DurationVar(&o.SessionQuotaInterval, "session-quota-interval", o.SessionQuotaInterval,
		"Interval at which the usage of a namespace with a SessionQuota is counted, at least "+minSessionQuotaInterval.String()+". A namespace can exceed its limit by as much as it saves in one interval.")
	flags.IntVar(&o.UsageMetricNamespaces, "usage-metric-namespaces", o.UsageMetricNamespaces,
		"Number of namespaces that have usage metrics of their own: those that store the most. The metrics of all others are summed up.")
	flags.Float64Var(&o.EventsPerSecond, "events-per-second", o.EventsPerSecond,
		"Maximum rate of events about broken and healed chains, per second, with bursts of ten seconds' worth. Namespaces share it, and one alone can use half. Further events are dropped.")
	flags.DurationVar(&o.WatchSilence, "watch-silence-timeout", o.WatchSilence,
		"Time after which a watch of ResponseSessions, SnapshotChunks, Conversations or ConversationSummaries is restarted if it has received nothing, not even a bookmark. "+
			"Until that of ResponseSessions receives something, or while it receives it later than that, the resolve API confirms its state with live reads. At least "+minWatchSilence.String()+": bookmarks arrive about once a minute.")
	flags.DurationVar(&o.APITimeout, "api-timeout", o.APITimeout,
		"Timeout of a request to the kube-apiserver, including the response body. The watches of ResponseSessions, SnapshotChunks, Conversations and ConversationSummaries, and their lists, use "+
			"--watch-silence-timeout instead.")
	flags.DurationVar(&o.ConversationStatusInterval, "conversation-status-interval", o.ConversationStatusInterval,
		"Time between two writes of the status of one Conversation, at least "+minConversationStatusInterval.String()+". It is also how long its status waits for a turn that is being saved.")
	flags.Float64Var(&o.TurnDeletionsPerSecond, "turn-deletions-per-second", o.TurnDeletionsPerSecond,
		"Maximum rate at which the turns of Conversations in the state Deleting, and their chunks, are deleted in each namespace, per second, at least "+fmt.Sprint(minTurnDeletions)+".")
	flags.DurationVar(&o.StallTimeout, "stall-timeout", o.StallTimeout,
		"Time after which /healthz fails if a worker has not finished its session, conversation, SessionQuota or report, not even with an error, or if some wait and none begins, except for SessionQuotas. At least "+minStallTimeout.String()+", "+
			"which is twice the timeout of a reconcile.")
	flags.StringVar(&o.SnapshotStore, "snapshot-store", o.SnapshotStore,
		"URL of the bucket from which snapshots are read, in addition to SnapshotChunks, and in which unreferenced snapshots are deleted: "+
			"s3://, azblob:// or file://, as gocloud.dev/blob defines them; gs:// uses the S3-compatible API of Google Cloud Storage. "+
			"Each cluster needs a bucket, or a ?prefix=NAME/, of its own.")
	flags.DurationVar(&o.SnapshotSweepInterval, "snapshot-sweep-interval", o.SnapshotSweepInterval,
		"Interval between sweeps, which compare the stored snapshots with the sessions that refer to them. A sweep of chunks or of the bucket "+
			"that has not marked and deleted everything after this time leaves the rest to the next, which follows at once.")
	o.Sweep.AddFlags(flags)
	flags.DurationVar(&o.OwnerReferenceInterval, "owner-reference-interval", o.OwnerReferenceInterval,
		"Interval between passes that rewrite ownerReferences to another version of the API than the operator's.")
	o.Resolve.AddFlags(flags)
	o.ResolveAPI.AddFlags(flags)
	o.Certificates.AddFlags(flags)
}

// Validate returns all errors in the options, joined.
func (o *Options) Validate() error {
	errs := []error{o.Resolve.Validate(), o.ResolveAPI.Validate(), o.Statuses.Validate(), o.Sweep.Validate(), o.Certificates.Validate()}
	if files := o.ResolveAPI.SecureServing.ServerCert.CertKey; o.Certificates.Secret != "" && files.CertFile+files.KeyFile != "" {
		errs = append(errs, errors.New("--serving-secret is set: --tls-cert-file and --tls-private-key-file must not be"))
	}
	if o.ConcurrentReconciles < 1 {
		errs = append(errs, fmt.Errorf("--concurrent-reconciles is %d: must be at least 1", o.ConcurrentReconciles))
	}
	if o.SessionQuotaInterval < minSessionQuotaInterval {
		errs = append(errs, fmt.Errorf("--session-quota-interval is %s: must be at least %s", o.SessionQuotaInterval, minSessionQuotaInterval))
	}
	if o.UsageMetricNamespaces < 0 {
		errs = append(errs, fmt.Errorf("--usage-metric-namespaces is %d: must not be negative", o.UsageMetricNamespaces))
	}
	if o.EventsPerSecond < 0 {
		errs = append(errs, fmt.Errorf("--events-per-second is %g: must not be negative", o.EventsPerSecond))
	}
	if o.WatchSilence < minWatchSilence {
		errs = append(errs, fmt.Errorf("--watch-silence-timeout is %s: must be at least %s", o.WatchSilence, minWatchSilence))
	}
	if o.APITimeout <= 0 {
		errs = append(errs, fmt.Errorf("--api-timeout is %s: must be positive", o.APITimeout))
	}
	if o.ConversationStatusInterval < minConversationStatusInterval {
		errs = append(errs, fmt.Errorf("--conversation-status-interval is %s: must be at least %s", o.ConversationStatusInterval, minConversationStatusInterval))
	}
	if !(o.TurnDeletionsPerSecond >= minTurnDeletions) {
		errs = append(errs, fmt.Errorf("--turn-deletions-per-second is %g: must be at least %g", o.TurnDeletionsPerSecond, minTurnDeletions))
	}
	if o.StallTimeout < minStallTimeout {
		errs = append(errs, fmt.Errorf("--stall-timeout is %s: must be at least %s", o.StallTimeout, minStallTimeout))
	}
	if o.SnapshotSweepInterval <= 0 {
		errs = append(errs, fmt.Errorf("--snapshot-sweep-interval is %s: must be positive", o.SnapshotSweepInterval))
	}
	if o.OwnerReferenceInterval <= 0 {
		errs = append(errs, fmt.Errorf("--owner-reference-interval is %s: must be positive", o.OwnerReferenceInterval))
	}
	return errors.Join(errs...)
}
