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

// Package sessions is the one watch of ResponseSessions that all of the operator shares: who follows whom, what the
// verdict on each chain is, and what status each object has. It holds no bodies.
package sessions

import (
	"slices"
	"sync"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/chain"
)

// Change tells a subscriber about sessions that may need another status.
type Change struct {
	Namespace string
	// Name is the session that changed, whether it was saved, changed or deleted.
	Name string
	// Others are the names of further sessions whose verdict that changed, or that have a parent now and do not refer to it.
	Others []string
}

// View is the operator's view of all ResponseSessions. It is kept current by Run, which feeds it what the API server
// sends, and by Observe. It is safe for concurrent use.
type View struct {
	maxDepth int

	mu              sync.RWMutex
	namespaces      map[string]*namespace
	resourceVersion uint64
	subscribers     []func(Change)

	syncedOnce sync.Once
	synced     chan struct{}
}

type namespace struct {
	name   string
	byName map[string]*Session
	index  *chain.Index[*Session]
	// misnamed is the number of sessions in byName that are not in the index.
	misnamed int
}

// NewView returns an empty view, whose verdicts count maxDepth turns at most.
func NewView(maxDepth int) *View {
	return &View{
		maxDepth:   maxDepth,
		namespaces: map[string]*namespace{},
		synced:     make(chan struct{}),
	}
}

// Subscribe calls the function for every change from now on, and first once for each namespace with all sessions that
// are there already as its Others. Calls may be concurrent, and hold no lock of the view's. The function must not block.
func (v *View) Subscribe(subscriber func(Change)) {
	v.mu.Lock()
	v.subscribers = append(v.subscribers, subscriber)
	var all []Change
	for _, ns := range v.namespaces {
		change := Change{Namespace: ns.name}
		for name := range ns.byName {
			change.Others = append(change.Others, name)
		}
		all = append(all, change)
	}
	v.mu.Unlock()
	for _, change := range all {
		subscriber(change)
	}
}

// Get returns the session with an object name.
func (v *View) Get(namespace, name string) (*Session, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ns := v.namespaces[namespace]
	if ns == nil {
		return nil, false
	}
	s, found := ns.byName[name]
	return s, found
}

// Lookup returns the session with a response ID.
func (v *View) Lookup(namespace, responseID string) (*Session, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ns := v.namespaces[namespace]
	if ns == nil {
		return nil, false
	}
	return ns.index.Get(responseID)
}

// Path returns the sessions from the root to a response ID, oldest first, where the chain resolves within maxDepth
// turns; otherwise nil.
func (v *View) Path(namespace, responseID string, maxDepth int) []*Session {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ns := v.namespaces[namespace]
	if ns == nil {
		return nil
	}
	return ns.index.Path(responseID, maxDepth)
}

// Judgement is all that a session's status and ownerReference follow from.
type Judgement struct {
	Session *Session
	Verdict chain.Verdict
	// Explanation is the verdict as an error, for its sentence.
	Explanation *chain.Error
	// Parent is the session's parent, nil if it has none or the parent is not stored.
	Parent *Session
}

// Judge returns the judgement on the session with an object name, and false where there is no such session.
func (v *View) Judge(namespace, name string) (Judgement, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ns := v.namespaces[namespace]
	if ns == nil || ns.byName[name] == nil {
		return Judgement{}, false
	}
	s := ns.byName[name]
	j := Judgement{Session: s, Verdict: chain.Verdict{Rule: chain.NameMismatch, BrokenAt: s.Turn.ID}}
	if !s.Misnamed {
		j.Verdict, _ = ns.index.Verdict(s.Turn.ID)
		j.Parent, _ = ns.index.Get(s.Turn.Previous)
	}
	j.Explanation = &chain.Error{
		Rule: j.Verdict.Rule, ResponseID: j.Verdict.BrokenAt, PreviousResponseID: s.Turn.ID,
		MaxDepth: v.maxDepth, ObjectName: v1alpha1.ObjectName(s.Turn.ID),
	}
	if at, found := ns.index.Get(j.Verdict.BrokenAt); found {
		j.Explanation.Status = at.Turn.Status
	}
	return j, true
}

// Reasons returns the number of sessions for each reason of the ChainValid condition, zeros included.
func (v *View) Reasons() map[string]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	total := map[string]int{}
	for r := range chain.Reasons() {
		total[r.Reason()] = 0
	}
	for _, ns := range v.namespaces {
		for broken, count := range ns.index.Counts {
			total[broken.Reason()] += count
		}
		total[chain.NameMismatch.Reason()] += ns.misnamed
	}
	return total
}

// Observe takes in what a write answered, ahead of the watch, so that nothing is decided on a state that this process
// itself has already changed: update returns the known session as the write left it (see WithMetadata). It is not called
// for a session that the view does not know, and counts for nothing where the view knows a newer one: the write's answer
// may come after the watch's word of the object's end.
func (v *View) Observe(namespace, name string, update func(known *Session) *Session) {
	v.mu.Lock()
	var change *Change
	if ns := v.namespaces[namespace]; ns != nil {
		if known := ns.byName[name]; known != nil {
			change = v.put(update(known), false)
		}
	}
	v.mu.Unlock()
	v.notify(change)
}

// put stores a session unless it is older than the one that is there, and returns what that changes. Of two of the same
// version the watched one counts: the other has the status that was asked for, which may differ from the one that is
// there where somebody else has a hand in it.
func (v *View) put(s *Session, watched bool) *Change {
	ns := v.namespaces[s.Namespace]
	if ns == nil {
		ns = &namespace{name: s.Namespace, byName: map[string]*Session{}, index: chain.NewIndex[*Session](v.maxDepth)}
		v.namespaces[s.Namespace] = ns
	}
	old := ns.byName[s.Name]
	if old != nil && s.ResourceVersion != 0 && old.ResourceVersion >= s.ResourceVersion {
		same := old.ResourceVersion == s.ResourceVersion
		if !same || !watched || old.Written == s.Written {
			return nil
		}
	}
	if old != nil {
		s = s.carryOver(old)
	}
	s.Namespace = ns.name
	if parent, found := ns.index.Get(s.Turn.Previous); found {
		s.Turn.Previous = parent.Turn.ID // the same string in one place
	}
	// An object that was deleted and created again while nobody watched may have another ID under its name.
	change := &Change{Namespace: s.Namespace, Name: s.Name}
	if old != nil && (old.Turn.ID != s.Turn.ID || old.Misnamed != s.Misnamed) {
		change.Others = ns.remove(old)
		old = nil
	}
	if old != nil {
		s.Turn.ID = old.Turn.ID
	}
	ns.byName[s.Name] = s
	if s.Misnamed {
		if old == nil {
			ns.misnamed++
		}
		return change
	}
	change.Others = append(change.Others, ns.names(ns.index.Set(s.Turn, s), s.Name)...)
	if old == nil {
		change.Others = append(change.Others, ns.unowned(s)...)
		slices.Sort(change.Others)
		change.Others = slices.Compact(change.Others)
	}
	return change
}

// carryOver returns the session with what is known of its snapshot, where that is newer than what its status says.
func (s *Session) carryOver(old *Session) *Session {
	if s.Snapshot == nil || !s.SameSpec(old) || s.Verified || s.Turn.Unreadable {
		return s
	}
	next := *s
	next.Verified, next.Turn.Unreadable = old.Verified, old.Turn.Unreadable
	return &next
}

// SetReadable tells the view what reading the snapshot of a session has shown, and its subscribers whose verdict that
// changes. It does nothing where the view knows a newer session or none.
func (v *View) SetReadable(s *Session, readable bool) {
	v.set(s, func(next *Session) (changed bool) {
		changed = next.Verified != readable || next.Turn.Unreadable == readable
		next.Verified, next.Turn.Unreadable = readable, !readable
		return changed
	})
}

// Recheck tells the subscribers of a session whose snapshot should be read again, because it may not be what it was.
func (v *View) Recheck(s *Session) {
	v.set(s, func(next *Session) bool {
		next.Verified = false
		return true
	})
}

// set changes what is known of a session's snapshot, and tells the subscribers where change says so.
func (v *View) set(s *Session, change func(next *Session) bool) {
	v.mu.Lock()
	ns := v.namespaces[s.Namespace]
	if ns == nil || ns.byName[s.Name] == nil || !ns.byName[s.Name].SameSpec(s) {
		v.mu.Unlock()
		return
	}
	next := *ns.byName[s.Name]
	if !change(&next) {
		v.mu.Unlock()
		return
	}
	ns.byName[s.Name] = &next
	changed := &Change{Namespace: s.Namespace, Name: s.Name}
	if !next.Misnamed {
		changed.Others = ns.names(ns.index.Set(next.Turn, &next), s.Name)
	}
	v.mu.Unlock()
	v.notify(changed)
}

// External returns all sessions whose bodies are not in their objects.
func (v *View) External() []*Session {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var external []*Session
	for _, ns := range v.namespaces {
		for _, s := range ns.byName {
			if s.Snapshot != nil {
				external = append(external, s)
			}
		}
	}
	return external
}

// unowned returns the names of a new session's children that have no ownerReference to it. Their verdict need not have
// changed: they may be incomplete themselves.
func (ns *namespace) unowned(parent *Session) []string {
	var names []string
	for child := range ns.index.Children(parent.Turn.ID) {
		if child.OwnerUID == "" && child != parent {
			names = append(names, child.Name)
		}
	}
	return names
}

// remove forgets a session and returns the names of the others whose verdict that changed.
func (ns *namespace) remove(s *Session) []string {
	delete(ns.byName, s.Name)
	if s.Misnamed {
		ns.misnamed--
		return nil
	}
	return ns.names(ns.index.Delete(s.Turn.ID), s.Name)
}

// names returns the object names of turns, but for one.
func (ns *namespace) names(ids []string, except string) []string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if s, found := ns.index.Get(id); found && s.Name != except {
			names = append(names, s.Name)
		}
	}
	return slices.Clip(names)
}

func (v *View) delete(namespace, name string) *Change {
	ns := v.namespaces[namespace]
	if ns == nil || ns.byName[name] == nil {
		return nil
	}
	change := &Change{Namespace: namespace, Name: name, Others: ns.remove(ns.byName[name])}
	if len(ns.byName) == 0 {
		delete(v.namespaces, namespace)
	}
	return change
}

func (v *View) notify(change *Change) {
	if change == nil {
		return
	}
	v.mu.RLock()
	subscribers := v.subscribers
	v.mu.RUnlock()
	for _, subscriber := range subscribers {
		subscriber(*change)
	}
}
