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
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/catena-dev/catena/internal/snapshot"
)

// Releases remembers, for at least the grace period, when a session has ceased to refer to a snapshot. A session may refer to it only
// between two sweeps, so that neither removes a mark from before, and the grace period must begin again nevertheless. Nothing is deleted
// until no release has been missed for a grace period, since the process was started, or since it had to list all sessions again.
//
// Every replica remembers what it has received, because each may become the leader. It is safe for concurrent use.
type Releases struct {
	grace time.Duration
	clock clock.PassiveClock
	start time.Time
	seed  maphash.Seed

	mu sync.Mutex
	// current are those since begun, previous those of at least a grace period before. Both are by namespace.
	current, previous map[string]releases
	begun             time.Duration
	// complete is the time after which no release was missed.
	complete time.Duration
}

// releases has the time of the last release of each snapshot of a namespace, in seconds since the start, rounded down, by the hash of the
// snapshot's key. Two with the same hash delay a deletion.
type releases map[uint32]uint32

// maxReleases is the number of hashes, and limits the memory that a namespace takes. With a tenth as many releases in a grace period, a
// tenth of the deletions wait for another one.
const maxReleases = 1_000_000

// NewReleases returns empty Releases. Only the differences of the clock's times matter.
func NewReleases(grace time.Duration, clock clock.PassiveClock) *Releases {
	return &Releases{grace: grace, clock: clock, start: clock.Now(), seed: maphash.MakeSeed(), current: map[string]releases{}}
}

// Add adds a snapshot that is released now.
func (r *Releases) Add(namespace, key string) {
	now, hash := r.clock.Since(r.start), r.hash(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate(now)
	if r.current[namespace] == nil {
		r.current[namespace] = releases{}
	}
	r.current[namespace][hash] = uint32(now / time.Second)
}

// Interrupt notes that releases before now may have been missed.
func (r *Releases) Interrupt() {
	now := r.clock.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = now
}

func (r *Releases) hash(key string) uint32 { return uint32(maphash.String(r.seed, key) % maxReleases) }

// rotate drops the previous releases if the current ones span a grace period.
func (r *Releases) rotate(now time.Duration) {
	if now-r.begun >= r.grace {
		r.current, r.previous, r.begun = map[string]releases{}, r.current, now
	}
}

// last returns how long after the start a snapshot was last released.
func (r *Releases) last(k snapshotKey) (after time.Duration, found bool) {
	hash := r.hash(k.key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range []map[string]releases{r.current, r.previous} {
		if seconds, found := all[k.namespace][hash]; found {
			return time.Duration(seconds) * time.Second, true
		}
	}
	return 0, false
}

// releaseSlack is how much older than a mark the time of a release may seem that follows it: both, and the time to which releasesAt is
// related, are rounded to seconds.
const releaseSlack = 3 * time.Second

// releasesAt relates Releases to the clock that marks are made with.
type releasesAt struct {
	*Releases
	start time.Time
	// complete is set if no release was missed within the grace period.
	complete bool
}

// at returns the releases for a clock whose time is now.
func (r *Releases) at(now time.Time) releasesAt {
	elapsed := r.clock.Since(r.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate(elapsed)
	return releasesAt{r, now.Add(-elapsed), elapsed-r.complete >= r.grace}
}

// follows reports whether the snapshot of a part was released after the part was marked.
func (r releasesAt) follows(part snapshot.Part) bool {
	if part.Unreferenced.IsZero() {
		return false
	}
	after, found := r.last(snapshotKey{part.Session.Namespace, part.Key})
	return found && !r.start.Add(after+releaseSlack).Before(part.Unreferenced)
}
