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
		if session.Snapshot.Store != store.Name() {
			continue
		}
		r.parts[session] = 0
		r.named[storedKey{session.Namespace, session.Name, session.Snapshot.Key}] = session
		r.found[snapshotKey{session.Namespace, session.Snapshot.Key}] = false
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
	// returned are marked parts of snapshots that a session refers to. Further ones are found again once these are unmarked.
	returned []snapshot.Part
	// strayMarks are marks of snapshots that no longer exist.
	strayMarks []snapshot.Part
}

// maxKeptChunks is how many chunks of a namespace one sweep keeps for marks and deletions, and how many to unmark. The others wait for later
// sweeps, because users can create millions, with marks and without sessions. The two are counted apart: if unreferenced chunks kept others
// from being unmarked, these would be deleted as soon as their session is, without a grace period. Objects in a bucket are only written by
// stores, and all of them must be marked while its sweeps are held off.
const maxKeptChunks = 100_000

// compare reads the list of a store and counts the parts of each session. Of each namespace, it keeps at most maxKept unreferenced parts, and
// as many returned ones.
func (r *references) compare(list iter.Seq2[snapshot.Part, error], maxKept int) (*comparison, error) {
	c := &comparison{unreferenced: map[snapshotKey][]snapshot.Part{}, omitted: map[string]int{}, stored: map[string]int{}}
	unreferenced, returned, last := map[string]int{}, map[string]int{}, snapshotKey{}
	keep := func(kept map[string]int, part snapshot.Part) bool {
		kept[part.Session.Namespace]++
		return kept[part.Session.Namespace] <= maxKept
	}
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
			if keep(unreferenced, part) {
				c.unreferenced[key] = append(c.unreferenced[key], part)
			} else if key != last && c.unreferenced[key] == nil {
				c.omitted[key.namespace]++
			}
			last = key
			continue
		}
		r.found[key] = true
		if session := r.named[storedKey{part.Session.Namespace, part.Session.Name, part.Key}]; session != nil {
			r.parts[session]++
		}
		if !part.Unreferenced.IsZero() && keep(returned, part) {
			c.returned = append(c.returned, part)
		}
	}
	for key := range c.unreferenced {
		c.stored[key.namespace]++
	}
	for namespace, omitted := range c.omitted {
		c.stored[namespace] += omitted
	}
	for key, found := range r.found {
		if found {
			c.stored[key.namespace]++
		}
	}
	return c, nil
}
