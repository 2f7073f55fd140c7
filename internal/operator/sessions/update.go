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

package sessions

import (
	"slices"

	"github.com/catena-dev/catena/internal/chain"
)

// Observe applies the response to a write before the watch delivers it, so that no decision is based on a state that this
// process has already changed. update returns the known record as the write left it (see Record.WithMetadata). It is not called
// for a session that the view does not have, and its result is dropped if the view has a newer version: the response may
// arrive after the watch has reported the deletion of the object.
func (v *View) Observe(namespace, name string, update func(known *Record) *Record) {
	ns := v.lock(namespace)
	if ns == nil {
		return
	}
	var changed *effect
	if known := ns.get(name); known != nil {
		changed = ns.put(update(known), false)
	}
	ns.mu.Unlock()
	v.notify(namespace, changed)
}

// lock returns a namespace, locked for writing, or nil if it has no sessions.
func (v *View) lock(name string) *namespaceView {
	for {
		ns := v.namespace(name)
		if ns == nil {
			return nil
		}
		ns.mu.Lock()
		if !ns.gone {
			return ns
		}
		ns.mu.Unlock()
	}
}

// lockOrAdd returns a namespace, locked for writing, which it adds if it is new.
func (v *View) lockOrAdd(name string) *namespaceView {
	for {
		if ns := v.lock(name); ns != nil {
			return ns
		}
		v.mu.Lock()
		if v.namespaces[name] == nil {
			v.namespaces[name] = &namespaceView{
				name: name, index: chain.NewIndex(v.maxDepth, (*Record).identity, (*Record).names), others: map[string]*Record{},
				release: v.release,
			}
		}
		v.mu.Unlock()
	}
}

// unlock unlocks a namespace that was locked for writing, and removes it from the view if it is empty.
func (v *View) unlock(ns *namespaceView) {
	if ns.sessions == 0 {
		ns.gone = true
		v.mu.Lock()
		delete(v.namespaces, ns.name)
		v.mu.Unlock()
	}
	ns.mu.Unlock()
}

// effect holds the sessions that a change of one session affects. It is converted into a Change after its namespace is
// unlocked, because it may be large, unless it is part of a list.
type effect struct {
	name string
	// changed are the sessions whose verdict has changed, and unowned are the sessions that lack an ownerReference to this one.
	changed, unowned []*Record
}

// put stores a record unless it is older than the current one, and returns the effect, or nil if nothing changed. Of two
// records of the same version, the one from the watch wins: the other has the status that was applied, which differs from the
// stored one if another writer has set some of its fields.
func (ns *namespaceView) put(r *Record, watched bool) *effect {
	old := ns.get(r.Name)
	if old != nil && r.ResourceVersion != 0 && old.ResourceVersion >= r.ResourceVersion {
		same := old.ResourceVersion == r.ResourceVersion
		if !same || !watched || old.Written == r.Written {
			if same && watched {
				ns.resize(old, r.ObjectBytes)
			}
			return nil
		}
	}
	if old != nil {
		r = r.carryOver(old)
		ns.release.replaced(ns.name, old, r)
	}
	r.Namespace = ns.name
	if parent, found := ns.index.Get(r.Turn.Previous); found {
		r.Turn.Previous = parent.Turn.ID // share one string
	}
	r.Listing.Conversation = ns.conversations.shared(r.Listing.Conversation)
	e := &effect{name: r.Name}
	created := old == nil || old.UID != r.UID
	// An object that was deleted and created again while the watch was interrupted may have another ID under its name.
	if old != nil && (old.Turn.ID != r.Turn.ID || old.InChain() != r.InChain()) {
		e.changed = ns.remove(old)
		old = nil
	}
	if old != nil {
		r.Name, r.Turn.ID = old.Name, old.Turn.ID // share their memory
	}
	e.changed = append(e.changed, ns.keep(r)...)
	if r.InChain() && (created || old == nil) {
		e.unowned = ns.unowned(r)
	}
	return e
}

// HasSnapshotOf reports whether both are records of the same session with the same snapshot, whose content never changes. The rest of the spec may
// differ: a tenant can change that much faster than a large snapshot can be read.
func (r *Record) HasSnapshotOf(old *Record) bool {
	reference, known := r.Snapshot(), old.Snapshot()
	return r.UID == old.UID && reference != nil && known != nil && *reference == *known
}

// carryOver returns the record with the known state of its snapshot if that is newer than the state recorded in its status. A
// new report that the snapshot is unreadable takes precedence over both.
func (r *Record) carryOver(old *Record) *Record {
	reported := r.Reported() == r.Generation && old.Reported() != r.Reported()
	if !r.HasSnapshotOf(old) || old.Problem() != "" || r.Verified || r.Turn.Unreadable || reported {
		return r
	}
	next := *r
	next.Verified, next.Turn.Unreadable = old.Verified, old.Turn.Unreadable
	return &next
}

// SetReadable records whether the snapshot of a session could be read, and notifies the subscribers if a verdict changes.
// It does nothing if the view has another snapshot of the session, or does not have the session, or if the snapshot has been
// reported as unreadable since the record was read: then it must be read again.
func (v *View) SetReadable(r *Record, readable bool) {
	v.update(r, func(next *Record) (changed bool) {
		if next.Reported() != r.Reported() {
			return false
		}
		changed = next.Verified != readable || next.Turn.Unreadable == readable
		next.Verified, next.Turn.Unreadable = readable, !readable
		return changed
	})
}

// Recheck notifies the subscribers of a session whose snapshot must be read again because it may have changed.
func (v *View) Recheck(r *Record) {
	v.update(r, func(next *Record) bool {
		next.Verified = false
		return true
	})
}

// update changes the known state of a session's snapshot, and notifies the subscribers if change returns true.
func (v *View) update(r *Record, change func(next *Record) bool) {
	ns := v.lock(r.Namespace)
	if ns == nil {
		return
	}
	changed := ns.update(r, change)
	ns.mu.Unlock()
	v.notify(r.Namespace, changed)
}

func (ns *namespaceView) update(r *Record, change func(next *Record) bool) *effect {
	known := ns.get(r.Name)
	if known == nil || !known.SameSpec(&r.Object) && !known.HasSnapshotOf(r) {
		return nil
	}
	next := *known
	if !change(&next) {
		return nil
	}
	return &effect{name: r.Name, changed: ns.keep(&next)}
}

// delete removes the session with an object name.
func (ns *namespaceView) delete(name string) *effect {
	r := ns.get(name)
	if r == nil {
		return nil
	}
	ns.release.replaced(ns.name, r, nil)
	return &effect{name: name, changed: ns.remove(r)}
}

// unowned returns a new session's children that have no ownerReference to it. Their verdicts may not have changed, because they
// may be incomplete themselves.
func (ns *namespaceView) unowned(parent *Record) []*Record {
	var children []*Record
	for child := range ns.index.Children(parent.Turn.ID) {
		if !child.HasOwner && child != parent {
			children = append(children, child)
		}
	}
	return children
}

// others returns the names of the other sessions that the change affects.
func (e *effect) others() []string {
	var others []string
	for _, list := range [][]*Record{e.changed, e.unowned} {
		for _, r := range list {
			if r.Name != e.name {
				others = append(others, r.Name)
			}
		}
	}
	if len(e.unowned) > 0 {
		slices.Sort(others)
		others = slices.Compact(others)
	}
	return slices.Clip(others)
}

// notify sends an effect, unless it is nil, to the subscribers.
func (v *View) notify(namespace string, e *effect) {
	if e != nil {
		v.send(Change{Namespace: namespace, Name: e.name, Others: e.others()})
	}
}

func (v *View) send(change Change) {
	v.mu.RLock()
	subscribers := v.subscribers
	v.mu.RUnlock()
	for _, subscriber := range subscribers {
		subscriber(change)
	}
}
