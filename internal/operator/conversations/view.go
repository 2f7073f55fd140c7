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

// Package conversations is the watch of Conversations, on every replica, and the verdicts on them. Its view has the head of each and
// the status of its object, lists conversations, and finds those whose history ends at a turn. Of the texts, it keeps only the
// beginnings of the titles.
package conversations

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/third_party/forked/golang/btree"

	v1alpha1 "github.com/catena-dev/catena/api/v1alpha1"
	"github.com/catena-dev/catena/internal/kubeclient"
	"github.com/catena-dev/catena/internal/operator/sessions"
	"github.com/catena-dev/catena/internal/silence"
)

// View holds every conversation. Run keeps it current. It is safe for concurrent use.
type View struct {
	age     *silence.Age
	timeout time.Duration // of silence
	clock   clock.PassiveClock
	synced  chan struct{}

	mu          sync.RWMutex
	namespaces  map[string]*namespace
	subscribers []func(namespace string, names []string)
}

// namespace holds the conversations of one namespace.
type namespace struct {
	byName map[string]*Record
	names  *btree.BTree[string] // of byName
	byTurn *btree.BTree[reference]
	lists  index
	bytes  int64 // of the objects
}

// reference is a turn that the history of a conversation may end at. The references of a namespace are in one tree, because most turns have
// one conversation or none, and one turn can have 100,000.
type reference struct {
	turn, conversation string // object names
}

// treeDegree is the degree of the trees: a node has up to 63 references.
const treeDegree = 32

func (r reference) less(other reference) bool {
	if r.turn != other.turn {
		return r.turn < other.turn
	}
	return r.conversation < other.conversation
}

// NewView returns an empty view. It is stale if the API server sends nothing for the timeout.
func NewView(timeout time.Duration, clock clock.PassiveClock) *View {
	return &View{
		age: silence.NewAge(kubeclient.Conversations), timeout: timeout, clock: clock, synced: make(chan struct{}), namespaces: map[string]*namespace{},
	}
}

// Metric returns the age of the watch.
func (v *View) Metric() prometheus.Collector { return v.age }

// Subscribe calls the function for the conversations of a namespace that are there already, and for each one that is added, changed or
// removed from now on. Calls may be concurrent. The function must not block.
func (v *View) Subscribe(subscriber func(namespace string, names []string)) {
	v.mu.Lock()
	v.subscribers = append(v.subscribers, subscriber)
	v.mu.Unlock()
	for _, name := range v.names() {
		var names []string
		v.read(name, func(ns *namespace) { names = slices.Collect(maps.Keys(ns.byName)) })
		subscriber(name, names)
	}
}

// names returns the names of all namespaces.
func (v *View) names() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(maps.Keys(v.namespaces))
}

// read calls a function with a namespace, locked for reading, if it has conversations.
func (v *View) read(name string, do func(ns *namespace)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if ns := v.namespaces[name]; ns != nil {
		do(ns)
	}
}

// Get returns the conversation with an object name.
func (v *View) Get(namespaceName, name string) (r *Record, found bool) {
	v.read(namespaceName, func(ns *namespace) { r, found = ns.byName[name] })
	return r, found
}

// Keys returns the keys of the first conversations after a key, at most limit of them, sorted by namespace and name. If the namespace is
// empty, it includes all namespaces. To continue, pass the last key of one call to the next.
func (v *View) Keys(namespaceName string, after types.NamespacedName, limit int) []types.NamespacedName {
	namespaces := []string{namespaceName}
	if namespaceName == "" {
		namespaces = v.names()
		slices.Sort(namespaces)
	}
	return sessions.FirstKeys(namespaces, after, limit, func(name, after string, limit int) (names []string) {
		v.read(name, func(ns *namespace) {
			ns.names.AscendGreaterOrEqual(after+"\x00", func(name string) bool {
				names = append(names, name)
				return len(names) < limit
			})
		})
		return names
	})
}

// Conversations returns the number of conversations of a namespace or, if it is empty, of all namespaces.
func (v *View) Conversations(namespaceName string) (conversations int) {
	if namespaceName != "" {
		v.read(namespaceName, func(ns *namespace) { conversations = len(ns.byName) })
		return conversations
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, ns := range v.namespaces {
		conversations += len(ns.byName)
	}
	return conversations
}

// Bytes returns the size of the objects of a namespace.
func (v *View) Bytes(namespaceName string) (bytes int64) {
	v.read(namespaceName, func(ns *namespace) { bytes = ns.bytes })
	return bytes
}

// AllBytes returns the size of the objects of each namespace.
func (v *View) AllBytes() map[string]int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make(map[string]int64, len(v.namespaces))
	for name, ns := range v.namespaces {
		all[name] = ns.bytes
	}
	return all
}

// EndingAt returns the names of the first conversations, sorted, whose head or base is a turn with an object name, after a name, at most limit
// of them: one turn can have 100,000. The view is locked meanwhile, and the watch of all namespaces waits.
func (v *View) EndingAt(namespaceName, turn, after string, limit int) (names []string) {
	v.read(namespaceName, func(ns *namespace) {
		ns.byTurn.AscendGreaterOrEqual(reference{turn, after}, func(r reference) bool {
			if r.turn != turn || len(names) >= limit {
				return false
			}
			if r.conversation != after {
				names = append(names, r.conversation)
			}
			return true
		})
	})
	return names
}

// Observe applies the result of a write to a conversation before the watch delivers it, so that no decision is based on a state that this
// process has already changed. It does nothing if the view does not have the version that was written, because it has a newer one.
func (v *View) Observe(written, r *Record) {
	v.mu.Lock()
	known := v.namespaces[r.Namespace].get(r.Name)
	current := known != nil && known.UID == written.UID && known.ResourceVersion == written.ResourceVersion
	if current {
		v.namespaces[r.Namespace].set(r)
	}
	v.mu.Unlock()
}

// set stores a conversation that the watch has sent, unless a newer version is known already.
func (v *View) set(r *Record) {
	v.mu.Lock()
	ns := v.namespaces[r.Namespace]
	if ns == nil {
		ns = newNamespace()
		v.namespaces[r.Namespace] = ns
	}
	known := ns.get(r.Name)
	isNew := known == nil || known.ResourceVersion <= r.ResourceVersion
	if isNew {
		ns.set(r.carryOver(known))
	}
	v.mu.Unlock()
	if isNew {
		v.notify(r.Namespace, []string{r.Name})
	}
}

func (v *View) remove(r *Record) {
	v.mu.Lock()
	if ns := v.namespaces[r.Namespace]; ns != nil {
		if ns.remove(r.Name); len(ns.byName) == 0 {
			delete(v.namespaces, r.Namespace)
		}
	}
	v.mu.Unlock()
	v.notify(r.Namespace, []string{r.Name})
}

// notify calls the subscribers.
func (v *View) notify(namespace string, names []string) {
	v.mu.RLock()
	subscribers := v.subscribers
	v.mu.RUnlock()
	for _, subscriber := range subscribers {
		subscriber(namespace, names)
	}
}

// replace replaces all conversations with those of a list.
func (v *View) replace(records []*Record) {
	namespaces := map[string]*namespace{}
	for _, r := range records {
		ns := namespaces[r.Namespace]
		if ns == nil {
			ns = newNamespace()
			namespaces[r.Namespace] = ns
		}
		known, _ := v.Get(r.Namespace, r.Name) // only this goroutine stores another spec
		ns.set(r.carryOver(known))
	}
	changed := map[string][]string{}
	for name, ns := range namespaces {
		changed[name] = slices.Collect(maps.Keys(ns.byName))
	}
	for _, name := range v.names() { // only this goroutine removes conversations
		v.read(name, func(ns *namespace) {
			for gone := range ns.byName {
				if namespaces[name].get(gone) == nil {
					changed[name] = append(changed[name], gone)
				}
			}
		})
	}
	v.mu.Lock()
	v.namespaces = namespaces
	v.mu.Unlock() // from here on, Observe changes the namespaces
	select {
	case <-v.synced:
	default:
		close(v.synced)
	}
	for name, names := range changed {
		v.notify(name, names)
	}
}

func newNamespace() *namespace {
	return &namespace{
		byName: map[string]*Record{},
		names:  btree.NewWithFreeList(treeDegree, cmp.Less[string], btree.NewFreeList[string](0)),
		byTurn: btree.NewWithFreeList(treeDegree, reference.less, btree.NewFreeList[reference](0)),
	}
}

// get returns the conversation with an object name, or nil.
func (n *namespace) get(name string) *Record {
	if n == nil {
		return nil
	}
	return n.byName[name]
}

func (n *namespace) set(r *Record) {
	n.remove(r.Name)
	n.byName[r.Name] = r
	n.names.ReplaceOrInsert(r.Name)
	n.bytes += int64(r.ObjectBytes)
	for _, turn := range r.ends() {
		n.byTurn.ReplaceOrInsert(reference{turn, r.Name})
	}
	n.lists.set(r)
}

func (n *namespace) remove(name string) {
	r := n.byName[name]
	if r == nil {
		return
	}
	delete(n.byName, name)
	n.names.Delete(name)
	n.bytes -= int64(r.ObjectBytes)
	for _, turn := range r.ends() {
		n.byTurn.Delete(reference{turn, name})
	}
	n.lists.remove(r)
}

// ends returns the object names of the head and of the base.
func (r *Record) ends() (turns []string) {
	for _, id := range []string{r.Head, r.Base} {
		if id != "" {
			turns = append(turns, v1alpha1.ObjectName(id))
		}
	}
	return turns
}
