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
	"iter"

	"github.com/catena-dev/catena/api/v1alpha1"
)

// get returns the session with an object name, or nil.
func (ns *namespaceView) get(name string) *Record {
	if r := ns.others[name]; r != nil {
		return r
	}
	id, _ := v1alpha1.ResponseID(name)
	if r, found := ns.index.Get(id); found && r.Name == name {
		return r
	}
	return nil
}

// all yields all sessions, in no order.
func (ns *namespaceView) all() iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for r := range ns.index.All {
			if !yield(r) {
				return
			}
		}
		for _, r := range ns.others {
			if !r.InChain() && !yield(r) {
				return
			}
		}
	}
}

// names yields the object names of all sessions, in no order.
func (ns *namespaceView) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for r := range ns.all() {
			if !yield(r.Name) {
				return
			}
		}
	}
}

// keep stores a record, and returns the sessions whose verdict has changed. If there is one with its name, that has the same response
// ID, and both are in a chain, or neither.
func (ns *namespaceView) keep(r *Record) []*Record {
	if old := ns.get(r.Name); old != nil {
		ns.discount(old)
	}
	ns.sessions++
	ns.bytes += r.storedBytes()
	if r.Misnamed {
		ns.misnamed++
	}
	if r.OutdatedOwner {
		ns.outdated.Put(r.Name, r.Version())
	}
	if _, follows := v1alpha1.ResponseID(r.Name); !follows || !r.InChain() {
		ns.others[r.Name] = r
	}
	if !r.InChain() {
		return nil
	}
	ns.conversations.set(r)
	return ns.index.Set(r.Turn, r)
}

// remove removes a record, and returns the other sessions whose verdict has changed.
func (ns *namespaceView) remove(r *Record) []*Record {
	ns.discount(r)
	delete(ns.others, r.Name)
	if !r.InChain() {
		return nil
	}
	return ns.index.Delete(r.Turn.ID)
}

// discount subtracts a record from everything that is counted, and removes it from the list of its conversation.
func (ns *namespaceView) discount(r *Record) {
	ns.conversations.remove(r)
	ns.sessions--
	ns.bytes -= r.storedBytes()
	if r.Misnamed {
		ns.misnamed--
	}
	ns.outdated.Delete(r.Name)
}
