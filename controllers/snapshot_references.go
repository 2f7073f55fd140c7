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
	"iter"
	"maps"
	"slices"

	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/snapshot"
)

// references are the snapshots in one store that sessions refer to.
type references struct {
	// parts counts the stored parts of the snapshot of each session.
	parts map[*sessions.Record]int
	// named are the sessions by the names of their snapshots. Several sessions of a namespace may refer to the same snapshot.
	named map[storedKey]*sessions.Record
	// found is set for the snapshots that have a stored part.
	found map[snapshotKey]bool
}

// storedKey is the name under which a session's snapshot is stored.
type storedKey struct{ namespace, name, key string }

func (s *SnapshotSweeper) references(store snapshot.Store) *references {
	r := &references{parts: map[*sessions.Record]int{}, named: map[storedKey]*sessions.Record{}, found: map[snapshotKey]bool{}}
	for _, session := range s.View.External() {
		reference := session.Snapshot()
		if reference.Store != store.Name() {
			continue
		}
		r.parts[session] = 0
		r.named[storedKey{session.Namespace, session.Name, reference.Key}] = session
		r.found[snapshotKey{session.Namespace, reference.Key}] = false
	}
	return r
}

// comparison is the result of comparing a store with the sessions.
type comparison struct {
	// stored counts the snapshots of each namespace.
	stored map[string]int
	// unreferenced are the parts of the snapshots that no session refers to.
	unreferenced map[snapshotKey][]snapshot.Part
	// omitted counts further snapshots of each namespace that no session refers to. A store lists the parts of a snapshot together.
	omitted map[string]int
	// dropped counts further ones, of which about as many are due as of those in unreferenced.
	dropped map[string]int
	// waiting counts further objects of a bucket, each a snapshot, that have a mark and need nothing yet.
	waiting map[string]int
	// moreToMark is set if snapshots that were omitted or dropped may have to be marked.
	moreToMark bool
	// returned are marked parts of snapshots that a session refers to. Further ones are found again once these are unmarked.
	returned []snapshot.Part
	// strayMarks are marks of snapshots that no longer exist.
	strayMarks []snapshot.Part
}

// maxKeptParts is how many parts of a namespace one sweep keeps for marks and deletions, and how many to unmark. The others wait for later
// sweeps, because users can have millions, with marks and without sessions. The two are counted apart: if unreferenced chunks kept others
// from being unmarked, these would be deleted as soon as their session is, without a grace period.
//
// All namespaces together have three times as many, of which those with most give up what others need.
const maxKeptParts = 100_000

// kept counts the parts that a comparison keeps of each namespace: at most a number, and three times as many of all.
type kept struct {
	most, total, all int
	parts            map[string]int
}

func newKept(most int) *kept {
	return &kept{most: most, total: 3 * most, parts: map[string]int{}}
}

// add counts a part, and reports whether it may be kept.
func (k *kept) add(namespace string) bool {
	if k.parts[namespace] >= k.most {
		return false
	}
	k.parts[namespace]++
	k.all++
	return true
}

// exceeds reports whether there are too many of all. Then a namespace may have only half as many.
func (k *kept) exceeds() bool {
	if k.all <= k.total {
		return false
	}
	k.most /= 2
	return true
}

// drop reports whether a namespace has more parts than it may have, and subtracts some if so.
func (k *kept) drop(namespace string, parts int) bool {
	if k.parts[namespace] <= k.most {
		return false
	}
	k.parts[namespace] -= parts
	k.all -= parts
	return true
}

// keepUnreferenced keeps a part of a snapshot that no session refers to, or omits the snapshot. isNext is set for a part of the same snapshot as
// the one before it.
func (c *comparison) keepUnreferenced(k *kept, key snapshotKey, part snapshot.Part, isNext bool) {
	switch {
	case isNext && c.unreferenced[key] == nil: // the snapshot is omitted
	case k.add(key.namespace):
		c.unreferenced[key] = append(c.unreferenced[key], part)
	case !isNext:
		c.omitted[key.namespace]++
		c.moreToMark = c.moreToMark || part.Unreferenced.IsZero()
	}
	for k.exceeds() {
		maps.DeleteFunc(c.unreferenced, func(key snapshotKey, parts []snapshot.Part) bool {
			drop := k.drop(key.namespace, len(parts))
			if drop {
				c.dropped[key.namespace]++
				c.moreToMark = true
			}
			return drop
		})
	}
}

// keepReturned keeps a marked part of a snapshot that a session refers to, unless there are too many.
func (c *comparison) keepReturned(k *kept, part snapshot.Part) {
	if k.add(part.Session.Namespace) {
		c.returned = append(c.returned, part)
	}
	for k.exceeds() {
		c.returned = slices.DeleteFunc(c.returned, func(part snapshot.Part) bool { return k.drop(part.Session.Namespace, 1) })
	}
}

// compare reads the list of a store and counts the parts of each session. Of each namespace, it keeps at most a number of unreferenced parts, and
// as many returned ones. It leaves out unreferenced parts that need nothing, so that they do not take the place of others.
func (r *references) compare(
	list iter.Seq2[snapshot.Part, error], most int, needsNothing func(unreferenced snapshot.Part) bool,
) (*comparison, error) {
	c := &comparison{
		unreferenced: map[snapshotKey][]snapshot.Part{},
		omitted:      map[string]int{}, dropped: map[string]int{}, waiting: map[string]int{}, stored: map[string]int{},
	}
	unreferenced, returned, last := newKept(most), newKept(most), snapshotKey{}
	for part, err := range list {
		if err != nil {
			return nil, err
		}
		if part.Written.IsZero() {
			c.strayMarks = append(c.strayMarks, part)
			continue
		}
		key := snapshotKey{part.Session.Namespace, part.Key}
		if _, referenced := r.found[key]; !referenced {
			if needsNothing(part) {
				c.waiting[key.namespace]++
				continue
			}
			c.keepUnreferenced(unreferenced, key, part, key == last)
			last = key
			continue
		}
		r.found[key] = true
		if session := r.named[storedKey{part.Session.Namespace, part.Session.Name, part.Key}]; session != nil {
			r.parts[session]++
		}
		if !part.Unreferenced.IsZero() {
			c.keepReturned(returned, part)
		}
	}
	for key := range c.unreferenced {
		c.stored[key.namespace]++
	}
	for _, further := range []map[string]int{c.omitted, c.dropped, c.waiting} {
		for namespace, snapshots := range further {
			c.stored[namespace] += snapshots
		}
	}
	for key, found := range r.found {
		if found {
			c.stored[key.namespace]++
		}
	}
	return c, nil
}
