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
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/catena-dev/catena/internal/snapshot"
)

// SweepLimits limit the deletions of sweeps.
type SweepLimits struct {
	// Grace is how long a snapshot must have been unreferenced before it is deleted. It must be at least twice
	// snapshot.MaxWriteTime.
	Grace time.Duration
	// HoldOff is how long sweeps of a bucket that is new to this cluster delete nothing, counted from the first sweep or, if
	// later, from the last sweep that found a returned session which was missing when the hold-off began.
	HoldOff time.Duration
	// MaxShare is the largest share of the stored snapshots, from 0 to 1, that a sweep deletes, or marks if they are old. If a sweep would
	// delete or mark more than this share and more than 100 snapshots, something else is probably wrong, so it keeps those of the
	// namespaces furthest above the share, until the others together are within it.
	MaxShare float64
	// UnsafeGrace permits any Grace, for tests.
	UnsafeGrace bool
}

// The defaults of SweepLimits.
const (
	DefaultSweepGrace    = time.Hour
	DefaultSweepHoldOff  = 24 * time.Hour
	DefaultSweepMaxShare = 0.5
)

// minGracePeriod is twice the maximum duration of a save, to allow for clock skew.
const minGracePeriod = 2 * snapshot.MaxWriteTime

// DefaultSweepLimits returns the defaults.
func DefaultSweepLimits() SweepLimits {
	return SweepLimits{Grace: DefaultSweepGrace, HoldOff: DefaultSweepHoldOff, MaxShare: DefaultSweepMaxShare}
}

// AddFlags adds the limits to flags.
func (l *SweepLimits) AddFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&l.Grace, "snapshot-grace-period", l.Grace,
		"Time between the sweep that first finds a snapshot unreferenced and its deletion. At least "+minGracePeriod.String()+", "+
			"which is twice the maximum duration of a save.")
	flags.DurationVar(&l.HoldOff, "snapshot-sweep-hold-off", l.HoldOff,
		"Time for which sweeps of a bucket delete nothing after this cluster has claimed it or, in a restore, after the last session "+
			"has returned. To end it earlier, write the UID of the namespace kube-system to the object catena-sweeper in the bucket.")
	flags.Float64Var(&l.MaxShare, "snapshot-sweep-max-share", l.MaxShare,
		"Maximum share of the stored snapshots, from 0 to 1, that a sweep deletes, or marks if they are older than two grace periods. "+
			"A sweep that would exceed it, with more than 100 snapshots, logs an error and leaves out those of the namespaces furthest above it.")
	flags.BoolVar(&l.UnsafeGrace, "unsafe-snapshot-grace-period", l.UnsafeGrace,
		"Allow a shorter grace period, for tests only. A save that takes longer than the grace period loses its turn.")
}

// Validate returns all errors in the limits, joined.
func (l *SweepLimits) Validate() error {
	var errs []error
	if l.Grace < minGracePeriod && !l.UnsafeGrace {
		errs = append(errs, fmt.Errorf("--snapshot-grace-period is %s: must be at least %s", l.Grace, minGracePeriod))
	}
	if l.HoldOff < 0 {
		errs = append(errs, fmt.Errorf("--snapshot-sweep-hold-off is %s: must not be negative", l.HoldOff))
	}
	if !(l.MaxShare >= 0 && l.MaxShare <= 1) { // NaN neither
		errs = append(errs, fmt.Errorf("--snapshot-sweep-max-share is %g: must be from 0 to 1", l.MaxShare))
	}
	return errors.Join(errs...)
}

// maxUnchecked is the number of snapshots that a sweep may delete, or mark although they are old, regardless of SweepLimits.MaxShare.
const maxUnchecked = 100

// sweepPlan lists the actions of a sweep.
type sweepPlan struct {
	mark, unmark []snapshot.Part
	// due are the snapshots to delete. The first part of each is marked.
	due [][]snapshot.Part
	// omitted counts further snapshots of each namespace that may be due.
	omitted map[string]int
	// stored counts the snapshots of each namespace.
	stored map[string]int
	// lost counts those of each namespace that are to be marked although they are old: see lostGraces.
	lost map[string]int
	// outdated reports whether a session has ceased to refer to the snapshot of a marked part since the part was marked.
	outdated func(marked snapshot.Part) bool
}

// plan plans the actions of a sweep that runs at the given time, from the result of its comparison.
func (l SweepLimits) plan(found *comparison, now time.Time, outdated func(marked snapshot.Part) bool) sweepPlan {
	p := sweepPlan{
		stored: found.stored, omitted: maps.Clone(found.omitted), unmark: slices.Concat(found.returned, found.strayMarks), outdated: outdated,
		lost: map[string]int{},
	}
	kept, due := map[string]int{}, map[string]int{}
	for key, parts := range found.unreferenced {
		kept[key.namespace]++
		if slices.ContainsFunc(parts, outdated) {
			p.unmark = append(p.unmark, slices.DeleteFunc(slices.Clone(parts), func(part snapshot.Part) bool { return !outdated(part) })...)
			continue
		}
		switch l.stageOf(parts, now) {
		case unmarked:
			p.mark = append(p.mark, parts[0])
			if now.Sub(newest(parts)) > lostGraces*l.Grace {
				p.lost[key.namespace]++
			}
		case expired:
			slices.SortFunc(parts, func(a, b snapshot.Part) int { return cmp.Compare(rank(a), rank(b)) })
			p.due = append(p.due, parts)
			due[key.namespace]++
		}
	}
	for namespace, dropped := range found.dropped {
		if kept[namespace] > 0 {
			p.lost[namespace] += dropped * p.lost[namespace] / kept[namespace]
			dropped = dropped * due[namespace] / kept[namespace]
		}
		p.omitted[namespace] += dropped
	}
	return p
}

// lostGraces is the number of grace periods for which a snapshot must have been stored to count as lost. Some clients store only sessions that live for
// minutes, so that many of their snapshots become unreferenced between two sweeps.
const lostGraces = 2

// markable returns the snapshots that may be marked, and an error if those of some namespaces must not be, because too many old ones have lost their
// sessions since the last sweep. Sweeps mark them one after the other, so that they would also expire in parts too small for MaxShare to stop.
func (l SweepLimits) markable(p sweepPlan) ([]snapshot.Part, error) {
	keep, err := l.refused("mark", p.lost, p.stored)
	return slices.DeleteFunc(slices.Clone(p.mark), func(part snapshot.Part) bool { return keep.Has(part.Session.Namespace) }), err
}

// rank sorts marked parts first: if the mark has been removed since, none of the parts is deleted.
func rank(part snapshot.Part) int {
	if part.Unreferenced.IsZero() {
		return 1
	}
	return 0
}

// permitted returns the due snapshots that may be deleted, and an error if those of some namespaces must be kept.
func (l SweepLimits) permitted(p sweepPlan) ([][]snapshot.Part, error) {
	due := map[string]int{}
	maps.Copy(due, p.omitted)
	for _, parts := range p.due {
		due[parts[0].Session.Namespace]++
	}
	keep, err := l.refused("delete", due, p.stored)
	return slices.DeleteFunc(slices.Clone(p.due), func(parts []snapshot.Part) bool { return keep.Has(parts[0].Session.Namespace) }), err
}

// refused returns the namespaces whose snapshots a sweep must not mark or delete, given how many it would, and an error if there are any.
func (l SweepLimits) refused(action string, unreferenced, stored map[string]int) (sets.Set[string], error) {
	keep := l.excessive(unreferenced, stored)
	if len(keep) == 0 {
		return nil, nil
	}
	kept, of := 0, 0
	for _, namespace := range keep {
		kept, of = kept+unreferenced[namespace], of+stored[namespace]
	}
	return sets.New(keep...), fmt.Errorf("refusing to %s %d of %d snapshots of %d namespaces, foremost %s, to which no session refers: "+
		"if this is expected, raise --snapshot-sweep-max-share until they are deleted", action, kept, of, len(keep), keep[0])
}

// excessive returns the namespaces whose snapshots must be neither deleted nor marked, given how many of each would be: those furthest above
// MaxShare, until the others together are within it. So a namespace that is within it is never kept because of others, however
// many snapshots they store. If all namespaces have lost their sessions, all are kept, because none offsets another.
func (l SweepLimits) excessive(unreferenced, stored map[string]int) []string {
	all, allStored := 0, 0
	for namespace := range stored {
		all, allStored = all+unreferenced[namespace], allStored+stored[namespace]
	}
	if all <= maxUnchecked {
		return nil
	}
	excess := func(namespace string) float64 {
		return float64(unreferenced[namespace]) - l.MaxShare*float64(stored[namespace])
	}
	namespaces := slices.SortedFunc(maps.Keys(stored), func(a, b string) int {
		return cmp.Or(cmp.Compare(excess(b), excess(a)), cmp.Compare(a, b))
	})
	for i, namespace := range namespaces {
		if float64(all) <= l.MaxShare*float64(allStored) {
			return namespaces[:i]
		}
		all, allStored = all-unreferenced[namespace], allStored-stored[namespace]
	}
	return namespaces
}

// needsNothing reports whether a sweep leaves an unreferenced object of a bucket as it is, unless its mark is outdated: it has a mark, and its grace
// period has not passed, or the sweep deletes nothing.
func (l SweepLimits) needsNothing(object snapshot.Part, now time.Time, deletes bool) bool {
	return isMark(object.Unreferenced, now) && (!deletes || now.Sub(object.Unreferenced) < l.Grace)
}

// stage is the progress of an unreferenced snapshot towards deletion.
type stage int

const (
	// written: it may belong to a save that has not ended.
	written stage = iota
	// unmarked: it must be marked.
	unmarked
	// marked: the grace period has not passed.
	marked
	// expired: it must be deleted.
	expired
	// deleted: it is kept by finalizers, which others remove or not.
	deleted
)

// maxMarkAhead is how far a mark may be in the future. The clocks of two leaders may differ, but a tenant can plant any mark on a chunk. A later one
// is not a mark, and is replaced.
const maxMarkAhead = time.Hour

func isMark(mark, now time.Time) bool { return !mark.IsZero() && !mark.After(now.Add(maxMarkAhead)) }

func (l SweepLimits) stageOf(parts []snapshot.Part, now time.Time) stage {
	var since time.Time
	deleting := true
	for _, part := range parts {
		deleting = deleting && part.Deleting
		if mark := part.Unreferenced; isMark(mark, now) && (since.IsZero() || mark.Before(since)) {
			since = mark
		}
	}
	age := now.Sub(newest(parts))
	switch {
	case deleting:
		return deleted
	case age < min(snapshot.MaxWriteTime, l.Grace/2):
		return written
	case since.IsZero():
		return unmarked
	case now.Sub(since) < l.Grace || age < l.Grace:
		return marked
	}
	return expired
}

// newest returns when the last part of a snapshot was written.
func newest(parts []snapshot.Part) time.Time {
	return slices.MaxFunc(parts, func(a, b snapshot.Part) int { return a.Written.Compare(b.Written) }).Written
}
