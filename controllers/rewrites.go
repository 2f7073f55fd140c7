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
	"time"

	"github.com/spf13/pflag"
)

// RewriteLimits limit, for each namespace, the statuses that are written again although their sessions have not changed,
// because a turn before them has. One small write can change the verdicts on 100,000 descendants, and each status that is
// rewritten rewrites its whole object in etcd. A namespace that exceeds a limit waits, and statuses that change back in the
// meantime are not written. PerSecond and BytesPerSecond allow bursts of one second's worth.
type RewriteLimits struct {
	// PerSecond is the number of statuses, more than 0.
	PerSecond float64
	// BytesPerSecond is the size of their objects, as Record.WriteBytes counts it, more than 0.
	BytesPerSecond float64
	// Hold is the longest time that a status waits while an ancestor of its session keeps changing. It must not be negative.
	Hold time.Duration
}

// The defaults of RewriteLimits.
const (
	DefaultRewritesPerSecond     = 100
	DefaultRewriteBytesPerSecond = 2 << 20
	DefaultRewriteHold           = time.Minute
)

// rewriteBurst is how far a namespace may be ahead of its limits.
const rewriteBurst = time.Second

// DefaultRewriteLimits returns the defaults.
func DefaultRewriteLimits() RewriteLimits {
	return RewriteLimits{PerSecond: DefaultRewritesPerSecond, BytesPerSecond: DefaultRewriteBytesPerSecond, Hold: DefaultRewriteHold}
}

// AddFlags adds the limits to flags.
func (l *RewriteLimits) AddFlags(flags *pflag.FlagSet) {
	flags.Float64Var(&l.PerSecond, "status-rewrites-per-second", l.PerSecond,
		"Maximum rate, for each namespace, at which statuses of unchanged sessions are rewritten because an earlier turn has changed, "+
			"with bursts of one second's worth.")
	flags.Float64Var(&l.BytesPerSecond, "status-rewrite-bytes-per-second", l.BytesPerSecond,
		"Maximum rate of these rewrites, for each namespace, in bytes per second. "+
			"The whole object counts, because etcd writes whole objects, and each JSON value in it as 64 bytes more.")
	flags.DurationVar(&l.Hold, "status-rewrite-hold", l.Hold,
		"Maximum time for which such a rewrite is delayed while the earlier turn keeps changing.")
}

// Validate returns all errors in the limits, joined.
func (l *RewriteLimits) Validate() error {
	var errs []error
	if !(l.PerSecond > 0) { // NaN too
		errs = append(errs, fmt.Errorf("--status-rewrites-per-second is %g: must be positive", l.PerSecond))
	}
	if !(l.BytesPerSecond > 0) {
		errs = append(errs, fmt.Errorf("--status-rewrite-bytes-per-second is %g: must be positive", l.BytesPerSecond))
	}
	if l.Hold < 0 {
		errs = append(errs, fmt.Errorf("--status-rewrite-hold is %s: must not be negative", l.Hold))
	}
	return errors.Join(errs...)
}

// cost is the share of a namespace's limits that one rewrite of an object uses, as a duration.
func (l *RewriteLimits) cost(bytes int64) time.Duration {
	return time.Duration(max(1/l.PerSecond, float64(bytes)/l.BytesPerSecond) * float64(time.Second))
}
