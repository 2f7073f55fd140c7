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

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/operator/sizes"
)

// ownersAtOnce is the number of objects whose ownerReferences are rewritten concurrently.
const ownersAtOnce = 4

// +kubebuilder:rbac:groups=sessions.catena.dev,resources=responsesessions,verbs=get;patch;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=snapshotchunks;conversationsummaries,verbs=get;patch;delete
// +kubebuilder:rbac:groups=sessions.catena.dev,resources=conversations,verbs=get

// OwnerVersions rewrites outdated ownerReferences of sessions, chunks and summaries: references to a session, chunk or conversation in another
// version of the API than this build uses. Garbage collection looks up an owner at the version in the reference. If that is no longer
// served, it can delete objects whose owner exists, and keep objects whose owner was deleted. OwnerVersions runs on the leader
// only, so that operators of two versions do not undo each other's work. It also collects a metric that shows when the other
// version can be removed.
type OwnerVersions struct {
	Client client.Client
	// Live bypasses every cache.
	Live      client.Reader
	Sessions  *sessions.View
	Chunks    *sizes.View
	Summaries *sizes.View
	// Interval is the time between two passes over the outdated references, and the time after which a pass begins no more rewrites.
	Interval time.Duration
	Clock    clock.Clock
}

// object identifies a session, a chunk or a summary.
type object struct {
	kind string
	types.NamespacedName
}

// NeedLeaderElection returns true.
func (o *OwnerVersions) NeedLeaderElection() bool { return true }

// Start rewrites references until ctx is done. Failed rewrites are retried in the next pass.
func (o *OwnerVersions) Start(ctx context.Context) error {
	for {
		if failed, err := o.pass(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Unable to rewrite ownerReferences to another version of the API", "objects", failed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.Clock.After(o.Interval):
		}
	}
}

// pass rewrites the references of objects that have outdated ones, and returns the number of failures and the first error. It stops
// after the first request that times out, because all others would take as long, and after Interval, so that the next pass includes what
// other namespaces have stored meanwhile.
func (o *OwnerVersions) pass(ctx context.Context) (failed int, first error) {
	end, views := o.Clock.Now().Add(o.Interval), o.views()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ownersAtOnce)
	for key := range inTurns(slices.Values(outdated(views)), func(key object) string { return key.Namespace }) {
		if !o.Clock.Now().Before(end) {
			break
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			version, err := o.rewrite(ctx, key)
			if err == nil {
				views[key.kind].Settle(key.NamespacedName, version)
				return nil
			}
			ownerFailures.Inc()
			mu.Lock()
			defer mu.Unlock()
			if failed++; first == nil {
				first = fmt.Errorf("unable to rewrite the ownerReferences of %s %s: %w", key.kind, key, err)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
	}
	_ = group.Wait() // first has its error
	return failed, first
}

// maxOutdated is the number of objects of a kind and namespace that a pass rewrites or settles. A tenant can store any number.
const maxOutdated = 10_000

// outdated returns the objects with outdated references that a pass handles.
func outdated(views map[string]ownersView) (all []object) {
	for kind, view := range views {
		for key := range view.Outdated(maxOutdated) {
			all = append(all, object{kind, key})
		}
	}
	return all
}

// views returns the views of the objects whose references are rewritten.
func (o *OwnerVersions) views() map[string]ownersView {
	return map[string]ownersView{
		v1alpha1.ResponseSessionKind:     o.Sessions,
		v1alpha1.SnapshotChunkKind:       o.Chunks,
		v1alpha1.ConversationSummaryKind: o.Summaries,
	}
}

// ownersView is a view that knows the objects with outdated references. Those whose owners do not exist are settled: they are not read again in
// every pass, because a tenant can store many of them.
type ownersView interface {
	HasSynced() bool
	CountOutdated() int
	Outdated(limit int) map[types.NamespacedName]string
	Settle(key types.NamespacedName, version string)
}

// ownerKinds are the kinds of the owners that Catena's ownerReferences name. The policy in config/admission/operator.yaml has them, too.
var ownerKinds = map[string][]string{
	v1alpha1.ResponseSessionKind:     {v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind},
	v1alpha1.SnapshotChunkKind:       {v1alpha1.ResponseSessionKind, v1alpha1.SnapshotChunkKind},
	v1alpha1.ConversationSummaryKind: {v1alpha1.ConversationKind},
}

// rewrite changes the version in the outdated references of an object to owners that exist, and nothing else. It never adds a
// reference: if the object has changed since it was read, nothing is written. If there was nothing to write, it returns the
// resource version of the object, otherwise an empty string.
func (o *OwnerVersions) rewrite(ctx context.Context, key object) (settled string, err error) {
	current := partialMetadata(key.kind, key.Namespace, key.Name)
	if err := o.Live.Get(ctx, key.NamespacedName, current); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if !kubeclient.HasOutdatedOwner(current.OwnerReferences) { // it has changed
		return current.ResourceVersion, nil
	}
	before, changed := current.DeepCopy(), false
	for i := range current.OwnerReferences {
		owner := &current.OwnerReferences[i]
		if !kubeclient.IsOutdated(*owner) {
			continue
		}
		exists, err := o.exists(ctx, key, owner)
		if err != nil {
			return "", fmt.Errorf("unable to read the owner: %w", err)
		}
		if exists {
			owner.APIVersion, changed = v1alpha1.GroupVersion.String(), true
		}
	}
	if !changed {
		return current.ResourceVersion, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return "", ignoreGone(o.Client.Patch(ctx, current, patch, FieldOwner))
}

// exists reports whether the owner in a reference exists. A reference to a missing owner is left to garbage collection:
// rewriting it would cause an object that was restored without its owner to be deleted.
func (o *OwnerVersions) exists(ctx context.Context, of object, owner *metav1.OwnerReference) (bool, error) {
	// No object has a name that cannot be a segment of a path.
	if !slices.Contains(ownerKinds[of.kind], owner.Kind) || len(content.IsPathSegmentName(owner.Name)) > 0 {
		return false, nil
	}
	found := partialMetadata(owner.Kind, of.Namespace, owner.Name)
	err := o.Live.Get(ctx, client.ObjectKeyFromObject(found), found)
	if kubeclient.IsAnyGone(err) {
		return false, nil
	}
	return err == nil && found.UID == owner.UID, err
}

var ownerFailures = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "catena_owner_reference_failures_total",
	Help: "Number of failed attempts to rewrite the outdated ownerReferences of an object. They are repeated every --owner-reference-interval.",
})

func init() { metrics.Registry.MustRegister(ownerFailures) }

var outdatedOwnersDesc = prometheus.NewDesc("catena_outdated_owner_references",
	"Number of objects with an ownerReference to a session, chunk or conversation in another version of the API than the operator's. A version that is to "+
		"be removed must be served until this is 0. Only the leader reports it.", []string{"kind"}, nil)

var _ prometheus.Collector = &OwnerVersions{}

// Describe implements prometheus.Collector.
func (o *OwnerVersions) Describe(descs chan<- *prometheus.Desc) { descs <- outdatedOwnersDesc }

// Collect implements prometheus.Collector. No metric is exported until everything has been listed once.
func (o *OwnerVersions) Collect(collected chan<- prometheus.Metric) {
	views := o.views()
	for _, view := range views {
		if !view.HasSynced() {
			return
		}
	}
	for kind, view := range views {
		collected <- prometheus.MustNewConstMetric(outdatedOwnersDesc, prometheus.GaugeValue, float64(view.CountOutdated()), kind)
	}
}
