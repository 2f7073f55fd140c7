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

// Package sessions is the one watch of ResponseSessions that all of the operator shares: the chain of each session, the
// verdict on it, and the status that each object has. It holds no bodies.
package sessions

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
)

// Change notifies a subscriber of sessions that may need another status.
type Change struct {
	Namespace string
	// Name is the session that was saved, changed or deleted.
	Name string
	// Others are the names of other sessions whose verdict has changed, or that lack an ownerReference to a parent that
	// now exists.
	Others []string
}

// View is the operator's view of all ResponseSessions. It is kept current by Run, which feeds it what the API server
// sends, and by Observe. It is safe for concurrent use.
type View struct {
	maxDepth int
	silence  time.Duration
	clock    clock.PassiveClock
	feeds    *feeds
	moved    bell // rings when Reflects may have changed

	mu              sync.RWMutex // not held while the lock of a namespace is awaited
	namespaces      map[string]*namespaceView
	resourceVersion uint64    // up to which events were received
	heard           time.Time // when the API server last sent something
	subscribers     []func(Change)

	syncedOnce sync.Once
	synced     chan struct{}
}

// namespaceView has the sessions of one namespace: all of them by object name, and those that are in a chain in the index. It
// has a lock of its own, because a change of a root with 100,000 descendants must not block the readers of other namespaces. Those
// of its own wait for the 13 to 20 ms that this takes (BenchmarkIndexBreak): a reader in between would see verdicts that are right
// for no state, and a copy would cost each change the memory of the namespace.
type namespaceView struct {
	name string

	mu     sync.RWMutex
	gone   bool // it became empty and was removed from the view
	byName map[string]*Record
	index  *chain.Index[*Record]
	// misnamed is the number of misnamed sessions in byName, and bytes is what all of them store.
	misnamed int
	bytes    int64
	// outdated are the sessions with an ownerReference to another version of our API.
	outdated map[string]bool
}

// NewView returns an empty view. Its verdicts allow chains of up to maxDepth turns. If the API server sends nothing for the time
// given as silence, the view is stale, and its watch is started again.
func NewView(maxDepth int, silence time.Duration) *View {
	v := &View{
		maxDepth:   maxDepth,
		silence:    silence,
		clock:      clock.RealClock{},
		namespaces: map[string]*namespaceView{},
		synced:     make(chan struct{}),
	}
	v.feeds = newFeeds(v.take, &v.moved)
	return v
}

// Subscribe calls the function for every change from now on, and first once for each namespace with all sessions that
// are already there as its Others. Calls may be concurrent and hold no lock of the view. The function must not block.
func (v *View) Subscribe(subscriber func(Change)) {
	v.mu.Lock()
	v.subscribers = append(v.subscribers, subscriber)
	v.mu.Unlock()
	var all []Change
	v.readAll(func(ns *namespaceView) {
		all = append(all, Change{Namespace: ns.name, Others: slices.Collect(maps.Keys(ns.byName))})
	})
	for _, change := range all {
		subscriber(change)
	}
}

// read calls fn with a namespace, locked for reading, if it has sessions.
func (v *View) read(name string, fn func(ns *namespaceView)) {
	v.mu.RLock()
	ns := v.namespaces[name]
	v.mu.RUnlock()
	if ns == nil {
		return
	}
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	fn(ns)
}

// readAll calls fn with each namespace, locked for reading.
func (v *View) readAll(fn func(ns *namespaceView)) {
	v.mu.RLock()
	names := slices.Collect(maps.Keys(v.namespaces))
	v.mu.RUnlock()
	for _, name := range names {
		v.read(name, fn)
	}
}

// Get returns the session with an object name, whether it is in a chain or not.
func (v *View) Get(namespace, name string) (r *Record, found bool) {
	v.read(namespace, func(ns *namespaceView) { r, found = ns.byName[name] })
	return r, found
}

// Lookup returns the session in a chain with a response ID.
func (v *View) Lookup(namespace, responseID string) (r *Record, found bool) {
	v.read(namespace, func(ns *namespaceView) { r, found = ns.index.Get(responseID) })
	return r, found
}

// Path returns the sessions from the root to a response ID, oldest first, if the chain resolves within maxDepth turns;
// otherwise nil.
func (v *View) Path(namespace, responseID string, maxDepth int) (path []*Record) {
	v.read(namespace, func(ns *namespaceView) { path = ns.index.Path(responseID, maxDepth) })
	return path
}

// Verdict is everything that a session's status and ownerReference follow from.
type Verdict struct {
	chain.Verdict
	// Explanation is the verdict as an error, for its sentence.
	Explanation *chain.Error
	// Record is the session.
	Record *Record
	// Parent is the session's parent, nil if it has none or the parent is not stored.
	Parent *Record
}

// Verdict returns the verdict on the session with an object name, and false if there is no such session or it is being
// deleted.
func (v *View) Verdict(namespace, name string) (verdict Verdict, found bool) {
	v.read(namespace, func(ns *namespaceView) {
		if r := ns.byName[name]; r != nil && !r.Deleting {
			verdict, found = ns.verdict(r, v.maxDepth), true
		}
	})
	return verdict, found
}

func (ns *namespaceView) verdict(r *Record, maxDepth int) Verdict {
	verdict := Verdict{Record: r, Verdict: chain.Verdict{Rule: chain.NameMismatch, BrokenAt: r.Turn.ID}}
	if r.InChain() {
		verdict.Verdict, _ = ns.index.Verdict(r.Turn.ID)
		verdict.Parent, _ = ns.index.Get(r.Turn.Previous)
	}
	verdict.Explanation = &chain.Error{
		Rule: verdict.Rule, ResponseID: verdict.BrokenAt, PreviousResponseID: r.Turn.ID,
		MaxDepth: maxDepth, ObjectName: v1alpha1.ObjectName(r.Turn.ID),
	}
	// The sentence goes into a status, which is not written again if an ancestor changes from queued to in_progress.
	if verdict.BrokenAt == r.Turn.ID {
		verdict.Explanation.Status, verdict.Explanation.Problem = r.Turn.Status, r.Problem
	}
	return verdict
}

// Counts returns the number of sessions for each reason of the ChainValid condition, zeros included. Sessions with a
// right name that are being deleted do not count.
func (v *View) Counts() map[string]int {
	total := map[string]int{}
	for rule := range chain.Reasons() {
		total[rule.Reason()] = 0
	}
	v.readAll(func(ns *namespaceView) {
		for rule, count := range ns.index.Counts {
			total[rule.Reason()] += count
		}
		total[chain.NameMismatch.Reason()] += ns.misnamed
	})
	return total
}

// External returns all sessions whose bodies are outside their objects.
func (v *View) External() []*Record {
	var external []*Record
	v.readAll(func(ns *namespaceView) {
		for _, r := range ns.byName {
			if r.Snapshot != nil {
				external = append(external, r)
			}
		}
	})
	return external
}
