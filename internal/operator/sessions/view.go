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

// Package sessions provides the single watch of ResponseSessions that the whole operator shares. Its view has the chain of each
// session, the verdict on it, and the status of each object, but no bodies.
package sessions

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/broadcast"
	"github.com/catena-dev/catena/internal/chain"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/outdated"
	"github.com/catena-dev/catena/internal/silence"
	"github.com/catena-dev/catena/store/driver"
)

// Change notifies a subscriber of sessions that may need another status.
type Change struct {
	Namespace string
	// Name is the session that was saved, changed or deleted. It is empty for a list.
	Name string
	// Others are the names of other sessions whose verdict has changed, or that lack an ownerReference to a parent that
	// now exists.
	Others []string
}

// View is the operator's view of all ResponseSessions. It is kept current by Run, which feeds it the events of the API server,
// and by Observe. It is safe for concurrent use.
type View struct {
	maxDepth int
	timeout  time.Duration // of silence
	age      *silence.Age
	feeds    *feeds
	keep     KeepFunc
	release  ReleaseFunc
	listed   func()
	moved    broadcast.Broadcast // notified when Reflects may have changed

	mu              sync.RWMutex // not held while the lock of a namespace is awaited
	namespaces      map[string]*namespaceView
	resourceVersion uint64 // up to which events were received
	subscribers     []func(Change)

	syncedOnce, restoredOnce sync.Once
	synced, restored         chan struct{}
	// suspected is the time of the first list that is older than what was received, since the last one that is not. Only Replace uses it.
	suspected time.Time
}

// namespaceView holds the sessions of one namespace. It has its own lock, because a change of a root with 100,000 descendants must not
// block readers of other namespaces. Readers of the same namespace wait for the 13 to 20 ms that the change takes
// (BenchmarkIndexBreak): without the lock they would see inconsistent verdicts, and copy-on-write would cost the memory of the whole
// namespace for each change.
type namespaceView struct {
	name string

	mu   sync.RWMutex
	gone bool // it became empty and was removed from the view
	// index has the sessions in a chain, by response ID, and others those that are not in a chain or whose response ID does not
	// follow from their object name, by that name. So almost every session is in one map only.
	index  *chain.Index[*Record]
	others map[string]*Record
	// conversations has the listed sessions.
	conversations conversations
	// sessions is the number of all sessions, misnamed that of the misnamed ones, and bytes is the storage that all use.
	sessions, misnamed int
	bytes              int64
	// outdated are the sessions with an ownerReference to another version of the API.
	outdated outdated.Set
	// rested is how much of index.Judged earlier rests were for.
	rested uint64
	// release is that of the view.
	release ReleaseFunc
}

// NewView returns an empty view. Its verdicts allow chains of up to maxDepth turns. It is stale if the API server sends nothing
// for the timeout.
func NewView(maxDepth int, timeout time.Duration) *View {
	v := &View{
		maxDepth:   maxDepth,
		timeout:    timeout,
		age:        silence.NewAge(kubeclient.Sessions),
		namespaces: map[string]*namespaceView{},
		synced:     make(chan struct{}),
		restored:   make(chan struct{}),
	}
	v.release, v.listed = func(string, string) {}, func() {}
	v.feeds = newFeeds(v.apply, v.skip, &v.moved)
	v.feeds.isUnknown = v.isUnknown
	return v
}

// KeepFunc receives the items of a turn that has just been saved. It must not block, or change the record.
type KeepFunc func(*Record, *chain.Items)

// KeepItems has a function called with the items of each turn that is saved while Run watches, if its bodies are in its object. It must
// be called before Run.
func (v *View) KeepItems(keep KeepFunc) { v.keep = keep }

// ReleaseFunc receives the key of a snapshot to which a session has ceased to refer. It must not block. Calls may be concurrent.
type ReleaseFunc func(namespace, key string)

// replaced calls the function if the next record of a session, or nil if it is deleted, does not refer to the snapshot of the old one.
func (release ReleaseFunc) replaced(namespace string, old, next *Record) {
	s := old.Snapshot()
	if s == nil {
		return
	}
	if next == nil || next.Snapshot() == nil || next.Snapshot().Key != s.Key || next.Snapshot().Store != s.Store {
		release(namespace, s.Key)
	}
}

// OnRelease has a function called for each snapshot to which a session ceases to refer, as far as the watch has shown that it did. It must
// be called before Run.
func (v *View) OnRelease(release ReleaseFunc) { v.release = release }

// OnList has a function called after each list of all sessions, when the view may have missed releases. It must be called before Run.
func (v *View) OnList(listed func()) { v.listed = listed }

// Subscribe calls the function for every change from now on, and first for all sessions that are already there, as the Others of their
// namespaces. These take turns, so that a large one does not keep the others waiting. Calls may be concurrent and hold no lock of the
// view. The function must not block.
func (v *View) Subscribe(subscriber func(Change)) {
	v.mu.Lock()
	v.subscribers = append(v.subscribers, subscriber)
	v.mu.Unlock()
	var all []Change
	v.readAll(func(ns *namespaceView) {
		all = append(all, Change{Namespace: ns.name, Others: slices.Collect(ns.names())})
	})
	for len(all) > 0 {
		for i := range all {
			turn := min(len(all[i].Others), subscriptionTurn)
			subscriber(Change{Namespace: all[i].Namespace, Others: all[i].Others[:turn]})
			all[i].Others = all[i].Others[turn:]
		}
		all = slices.DeleteFunc(all, func(c Change) bool { return len(c.Others) == 0 })
	}
}

// subscriptionTurn is the number of sessions of a namespace in one call of a new subscriber.
const subscriptionTurn = 1000

// namespace returns a namespace, or nil if it has no sessions.
func (v *View) namespace(name string) *namespaceView {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.namespaces[name]
}

// read calls fn with the namespace, locked for reading, if it has sessions.
func (v *View) read(name string, fn func(ns *namespaceView)) {
	ns := v.namespace(name)
	if ns == nil {
		return
	}
	ns.mu.RLock()
	defer ns.mu.RUnlock()
	fn(ns)
}

// Await waits until no change of a namespace is being applied, which takes long if it concerns many sessions. Until then, other calls for
// the namespace wait, too.
func (v *View) Await(namespace string) { v.read(namespace, func(*namespaceView) {}) }

// IsBusy reports whether a change of a namespace is being applied.
func (v *View) IsBusy(namespace string) bool {
	ns := v.namespace(namespace)
	if ns == nil || !ns.mu.TryRLock() {
		return ns != nil
	}
	ns.mu.RUnlock()
	return false
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
	v.read(namespace, func(ns *namespaceView) { r = ns.get(name) })
	return r, r != nil
}

// Lookup returns the session in a chain with a response ID.
func (v *View) Lookup(namespace, responseID string) (r *Record, found bool) {
	v.read(namespace, func(ns *namespaceView) { r, found = ns.index.Get(responseID) })
	return r, found
}

// IsContinued reports whether a session in a chain continues the one with a response ID.
func (v *View) IsContinued(namespace, responseID string) (continued bool) {
	v.read(namespace, func(ns *namespaceView) {
		for range ns.index.Children(responseID) {
			continued = true
			break
		}
	})
	return continued
}

// Path returns the sessions from the root to a response ID, oldest first, or nil: see chain.Index.Path.
func (v *View) Path(namespace, responseID string, options chain.WalkOptions) (path []*Record) {
	v.read(namespace, func(ns *namespaceView) { path = ns.index.Path(responseID, options) })
	return path
}

// PathAfter finds the turn with a given lineage on the path to a response ID. It returns how many turns the path has up to and including that
// turn, or 0 if there is no such turn, followed by the remaining turns, oldest first. If a remaining turn breaks a rule, or there are more than
// driver.MaxDepthLimit, which is as far as it looks, it returns none of them.
func (v *View) PathAfter(namespace, responseID string, lineage uint64) (known int, path []*Record) {
	v.read(namespace, func(ns *namespaceView) {
		verdict, _ := ns.index.Verdict(responseID)
		since := ns.index.Since(responseID, lineage, driver.MaxDepthLimit)
		if known = verdict.Depth - since; since > 0 && since <= driver.MaxDepthLimit {
			path = ns.index.Path(responseID, chain.WalkOptions{MaxDepth: since, Last: since, ContinueIncomplete: true})
		}
	})
	return known, path
}

// Verdict is everything from which a session's status and ownerReference are derived.
type Verdict struct {
	chain.Verdict
	// Explanation is the verdict as an error, used for its message.
	Explanation *chain.Error
	// Record is the session.
	Record *Record
	// Parent is the session's parent, nil if it has none or the parent is not stored.
	Parent *Record
}

// Verdict returns the verdict on the session with an object name, and false if the session does not exist or is being
// deleted.
func (v *View) Verdict(namespace, name string) (verdict Verdict, found bool) {
	v.read(namespace, func(ns *namespaceView) {
		if r := ns.get(name); r != nil && !r.Deleting {
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
	verdict.Explanation = &chain.Error{Rule: verdict.Rule, ResponseID: verdict.BrokenAt, PreviousResponseID: r.Turn.ID, MaxDepth: maxDepth}
	if verdict.Rule == chain.NameMismatch {
		verdict.Explanation.ObjectName = v1alpha1.ObjectName(r.Turn.ID)
	}
	// The message goes into a status, which is not rewritten if an ancestor changes from queued to in_progress.
	if verdict.BrokenAt == r.Turn.ID {
		verdict.Explanation.Status, verdict.Explanation.Problem = r.Turn.Status, r.Problem()
	}
	return verdict
}

// Counts returns the number of sessions for each reason of the ChainValid condition, zeros included. Correctly named sessions
// that are being deleted do not count.
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
		for r := range ns.all() {
			if r.Snapshot() != nil {
				external = append(external, r)
			}
		}
	})
	return external
}
