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
// rewritten rewrites its whole object in etcd. A namespace beyond a limit waits, and what changes back meanwhile is not
// written. Both limits allow bursts of ten seconds' worth.
type RewriteLimits struct {
	// PerSecond is the number of statuses, more than 0.
	PerSecond float64
	// BytesPerSecond is the size of their objects, more than 0.
	BytesPerSecond float64
}

// The defaults of RewriteLimits.
const (
	DefaultRewritesPerSecond     = 200
	DefaultRewriteBytesPerSecond = 8 << 20
)

// rewriteBurst is how far a namespace may be ahead of its limits.
const rewriteBurst = 10 * time.Second

// DefaultRewriteLimits returns the defaults.
func DefaultRewriteLimits() RewriteLimits {
	return RewriteLimits{PerSecond: DefaultRewritesPerSecond, BytesPerSecond: DefaultRewriteBytesPerSecond}
}

// AddFlags adds the limits to flags.
func (l *RewriteLimits) AddFlags(flags *pflag.FlagSet) {
	flags.Float64Var(&l.PerSecond, "status-rewrites-per-second", l.PerSecond,
		"Maximum rate, for each namespace, at which statuses of unchanged sessions are rewritten because an earlier turn has changed, "+
			"with bursts of ten seconds' worth.")
	flags.Float64Var(&l.BytesPerSecond, "status-rewrite-bytes-per-second", l.BytesPerSecond,
		"The same in bytes of the objects, because etcd writes whole objects.")
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
	return errors.Join(errs...)
}

// cost is the time that one rewrite of an object takes of a namespace's limits.
func (l *RewriteLimits) cost(bytes int64) time.Duration {
	return time.Duration(max(1/l.PerSecond, float64(bytes)/l.BytesPerSecond) * float64(time.Second))
}
