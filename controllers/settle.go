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
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/catena-dev/catena/internal/operator/sessions"
)

// settling holds back the sessions of chains that keep changing, so that their statuses are written once, when the chains have
// settled, and not after each change: a root that flips between completed and failed would otherwise cause as many writes as it
// has descendants, each time. The first change of a session takes effect on the others at once. While it keeps changing, they
// wait until it has been unchanged for a period that grows with each change, but no longer than hold in total. It is safe for
// concurrent use.
type settling struct {
	hold time.Duration

	mu      sync.Mutex
	causes  map[types.NamespacedName]cause
	sweepAt int
	held    map[string]*heldSessions // by namespace
}

// cause is a session that has changed the verdicts on others.
type cause struct {
	last time.Time
	// quiet is how long it must remain unchanged before the others are released.
	quiet time.Duration
}

// heldSessions are the held sessions of one namespace. They have a lock of their own, because they can be many.
type heldSessions struct {
	since, until time.Time // guarded by the lock of settling

	mu    sync.Mutex
	names map[string]struct{} // nil once they have been released
}

// minCauses is the minimum number of causes that are kept.
const minCauses = 64

func newSettling(hold time.Duration) *settling {
	return &settling{hold: hold, causes: map[types.NamespacedName]cause{}, sweepAt: minCauses, held: map[string]*heldSessions{}}
}

// changed releases the sessions whose verdicts a change affects: at once, or when the change has settled.
func (s *settling) changed(change sessions.Change, release func(namespace string, names []string)) {
	if len(change.Others) > 0 && !s.holds(change, release) {
		release(change.Namespace, change.Others)
	}
}

// holds reports whether the sessions are released later.
func (s *settling) holds(change sessions.Change, release func(namespace string, names []string)) bool {
	held := s.heldAfter(change, release)
	return held != nil && held.add(change.Others)
}

// heldAfter returns the held sessions of a namespace if a change of one of its sessions is not the first, otherwise nil.
func (s *settling) heldAfter(change sessions.Change, release func(namespace string, names []string)) *heldSessions {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	quiet := s.quiet(now, types.NamespacedName{Namespace: change.Namespace, Name: change.Name})
	if quiet == 0 {
		return nil
	}
	held := s.held[change.Namespace]
	if held == nil {
		held = &heldSessions{names: map[string]struct{}{}, since: now}
		s.held[change.Namespace] = held
		time.AfterFunc(quiet, func() { s.end(change.Namespace, release) })
	}
	held.until = now.Add(quiet)
	if latest := held.since.Add(s.hold); held.until.After(latest) {
		held.until = latest
	}
	return held
}

// add holds sessions, unless those of the namespace have just been released.
func (h *heldSessions) add(names []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		return false
	}
	for _, name := range names {
		h.names[name] = struct{}{}
	}
	return true
}

// take returns the sessions, which are no longer held.
func (h *heldSessions) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Collect(maps.Keys(h.names))
	h.names = nil
	return names
}

// quiet returns how long a session that changes now must remain unchanged. The time doubles with each change that comes soon
// after the previous one.
func (s *settling) quiet(now time.Time, name types.NamespacedName) time.Duration {
	c, known := s.causes[name]
	switch {
	case !known || s.calm(now, c):
		c.quiet = 0
	default:
		c.quiet = min(max(2*c.quiet, s.hold/64), s.hold/8)
	}
	c.last = now
	s.causes[name] = c
	if len(s.causes) >= s.sweepAt {
		maps.DeleteFunc(s.causes, func(_ types.NamespacedName, c cause) bool { return s.calm(now, c) })
		s.sweepAt = max(minCauses, 2*len(s.causes))
	}
	return c.quiet
}

// calm reports whether a cause has been unchanged for so long that its next change counts as its first.
func (s *settling) calm(now time.Time, c cause) bool { return now.Sub(c.last) > s.hold/8+c.quiet }

// end releases the held sessions of a namespace if they are due.
func (s *settling) end(namespace string, release func(namespace string, names []string)) {
	s.mu.Lock()
	held := s.held[namespace]
	if wait := time.Until(held.until); wait > 0 {
		time.AfterFunc(wait, func() { s.end(namespace, release) })
		s.mu.Unlock()
		return
	}
	delete(s.held, namespace)
	s.mu.Unlock()
	release(namespace, held.take())
}

// waits reports whether a session is held back. It is released later.
func (s *settling) waits(name types.NamespacedName) bool {
	s.mu.Lock()
	held := s.held[name.Namespace]
	s.mu.Unlock()
	if held == nil {
		return false
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	_, found := held.names[name.Name]
	return found
}
