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
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// StatusLimits limit the statuses that are written for each namespace: those of sessions, and separately those of conversations. A
// namespace that exceeds a limit waits; others do not. The rates allow bursts of statusBurst's worth.
type StatusLimits struct {
	// RewritesPerSecond, more than 0, is the number of statuses that are written again although their sessions have not changed, because a
	// turn before them has: one small write can change the verdicts on 100,000 descendants. Statuses that change back while they wait
	// are not written.
	RewritesPerSecond float64
	// RewriteBytesPerSecond, more than 0, is the size of their objects, as Object.WriteBytes counts it: each status that is rewritten
	// rewrites its whole object in etcd. Both limits also apply, separately, to SnapshotReadable conditions, on each replica, and to
	// ownerReferences: to those that are added because a parent has appeared, and to those to a parent of more than 32 KiB.
	RewriteBytesPerSecond float64
	// RewriteHold is the longest time that such a status waits while an ancestor of its session keeps changing. It must not be negative.
	RewriteHold time.Duration
	// ValuesPerSecond, more than 0, is the number of JSON values in new or changed sessions, beyond the first 1,000 of each. For each
	// write, the API server makes several copies of every value: for a session with 3,000 empty objects (9 KB), the status costs three
	// times as much as the creation.
	ValuesPerSecond float64
}

// The defaults of StatusLimits.
const (
	DefaultStatusRewritesPerSecond     = 100
	DefaultStatusRewriteBytesPerSecond = 2 << 20
	DefaultStatusRewriteHold           = time.Minute
	DefaultStatusValuesPerSecond       = 5000
)

// freeValues is the number of JSON values in a session that do not count. Most turns have fewer, and packed bodies are one.
const freeValues = 1000

// nodesInValue is how many of Object.SpecNodes a value has: a member of an object has a colon and a comma, and an empty object in a list
// has a brace and a comma.
const nodesInValue = 2

// statusBurst is how far a namespace may be ahead of its limits. A status of a large object costs more, and waits: until then, the change
// that causes it may be undone.
const statusBurst = 250 * time.Millisecond

// DefaultStatusLimits returns the defaults.
func DefaultStatusLimits() StatusLimits {
	return StatusLimits{
		RewritesPerSecond: DefaultStatusRewritesPerSecond, RewriteBytesPerSecond: DefaultStatusRewriteBytesPerSecond,
		RewriteHold: DefaultStatusRewriteHold, ValuesPerSecond: DefaultStatusValuesPerSecond,
	}
}

// AddFlags adds the limits to flags.
func (l *StatusLimits) AddFlags(flags *pflag.FlagSet) {
	flags.Float64Var(&l.RewritesPerSecond, "status-rewrites-per-second", l.RewritesPerSecond,
		"Maximum rate, for each namespace, at which statuses of unchanged sessions, and of unchanged conversations, are rewritten because a "+
			"turn has changed, with bursts of "+statusBurst.String()+"'s worth.")
	flags.Float64Var(&l.RewriteBytesPerSecond, "status-rewrite-bytes-per-second", l.RewriteBytesPerSecond,
		"Maximum rate of these rewrites, for each namespace, in bytes per second. "+
			"The whole object counts, because etcd writes whole objects, and each JSON value in it as 64 bytes more.")
	flags.DurationVar(&l.RewriteHold, "status-rewrite-hold", l.RewriteHold,
		"Maximum time for which such a rewrite is delayed while the earlier turn keeps changing.")
	flags.Float64Var(&l.ValuesPerSecond, "status-values-per-second", l.ValuesPerSecond,
		"Maximum rate, for each namespace, of JSON values in new or changed sessions that get their first status, with bursts of "+
			statusBurst.String()+"'s worth. The first 1,000 values of a session do not count.")
}

// Validate returns all errors in the limits, joined.
func (l *StatusLimits) Validate() error {
	var errs []error
	for _, limit := range []struct {
		flag  string
		value float64
	}{
		{"status-rewrites-per-second", l.RewritesPerSecond},
		{"status-rewrite-bytes-per-second", l.RewriteBytesPerSecond},
		{"status-values-per-second", l.ValuesPerSecond},
	} {
		if !(limit.value > 0) { // NaN too
			errs = append(errs, fmt.Errorf("--%s is %g: must be positive", limit.flag, limit.value))
		}
	}
	if l.RewriteHold < 0 {
		errs = append(errs, fmt.Errorf("--status-rewrite-hold is %s: must not be negative", l.RewriteHold))
	}
	return errors.Join(errs...)
}

// statusPaces keep each namespace within the limits. They are safe for concurrent use.
type statusPaces struct {
	limits StatusLimits
	// rewrites and firsts are statuses, of unchanged and of changed sessions. owners are ownerReferences of unchanged sessions, and readable
	// SnapshotReadable conditions. rereads are reads of snapshots of sessions that have had a verdict before.
	rewrites, firsts, owners, readable, rereads *fair.Pace[types.NamespacedName]
}

func newStatusPaces(limits StatusLimits) statusPaces {
	pace := func() *fair.Pace[types.NamespacedName] { return fair.NewPrepaidPace[types.NamespacedName](statusBurst) }
	return statusPaces{limits, pace(), pace(), pace(), pace(), pace()}
}

// delay returns how long an object must wait until its status may be written. It is a rewrite if the object has not changed since its
// status was written.
func (p *statusPaces) delay(now time.Time, object *sessions.Object, rewrite bool) time.Duration {
	if !rewrite {
		p.rewrites.Forget(object.NamespacedName())
		return p.first(now, object)
	}
	p.firsts.Forget(object.NamespacedName())
	return p.rewrites.Delay(now, object.Namespace, object.NamespacedName(), p.rewriteCost(object))
}

// ownerDelay returns how long a session must wait until its ownerReference may be added, for which its parent is read ownerReads times.
func (p *statusPaces) ownerDelay(now time.Time, object, parent *sessions.Object) time.Duration {
	read := float64(ownerReads*int64(parent.ObjectBytes)) / p.limits.RewriteBytesPerSecond
	return p.owners.Delay(now, object.Namespace, object.NamespacedName(), p.rewriteCost(object)+seconds(read))
}

// ownerReads is how often an owner is read to set an ownerReference to it, if the API server is slow.
const ownerReads = 3

// readableDelay returns how long a session must wait until its SnapshotReadable condition may be written.
func (p *statusPaces) readableDelay(now time.Time, object *sessions.Object) time.Duration {
	return p.readable.Delay(now, object.Namespace, object.NamespacedName(), p.rewriteCost(object))
}

// rereadBytesPerSecond is the rate, for each namespace, of reads of the snapshots of sessions that have had a verdict.
const rereadBytesPerSecond = 32 << 20

// rereadDelay returns how long a session that has had a verdict must wait until its snapshot may be read.
func (p *statusPaces) rereadDelay(now time.Time, session *sessions.Record) time.Duration {
	reference := session.Snapshot()
	bytes := max(reference.SizeBytes, reference.StoredBytes, v1alpha1.MaxSnapshotChunkBytes)
	return p.rereads.Delay(now, session.Namespace, session.NamespacedName(), seconds(float64(bytes)/rereadBytesPerSecond))
}

func (p *statusPaces) rewriteCost(object *sessions.Object) time.Duration {
	return seconds(max(1/p.limits.RewritesPerSecond, float64(object.WriteBytes())/p.limits.RewriteBytesPerSecond))
}

// first is delay for the first status of a generation. Its owner has written the object equally often, so only what costs much more than
// that is limited.
func (p *statusPaces) first(now time.Time, object *sessions.Object) time.Duration {
	counted := float64(object.SpecNodes/nodesInValue - freeValues)
	if counted <= 0 {
		p.firsts.Forget(object.NamespacedName())
		return 0
	}
	return p.firsts.Delay(now, object.Namespace, object.NamespacedName(), seconds(counted/p.limits.ValuesPerSecond))
}

// forgetStatus ends the wait of an object for its status, and forget all of its waits.
func (p *statusPaces) forgetStatus(name types.NamespacedName) {
	p.rewrites.Forget(name)
	p.firsts.Forget(name)
}

func (p *statusPaces) forget(name types.NamespacedName) {
	p.forgetStatus(name)
	p.owners.Forget(name)
	p.readable.Forget(name)
	p.rereads.Forget(name)
}

// seconds returns a duration, at most the longest one.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(math.MaxInt64/2)))
}
