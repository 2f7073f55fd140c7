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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/internal/broadcast"
)

// feeds are the events that the API server has sent and that have not been applied to the view yet. While a namespace has
// events, a goroutine of its own applies them one after another, because one change of a root with 100,000 descendants takes as
// long as many changes of other sessions. Only the latest event of each object is kept, at the position of the first, so that a
// root that changes faster than the verdicts can be computed has to wait for at most one computation, and the rest after it: after an
// event that took long, its namespace leaves the processors to others.
type feeds struct {
	apply func(namespace string, e event) (rest time.Duration)
	skip  func(namespace string, e, next event) // called for each event that is not applied
	// isUnknown reports whether the view does not have an object. It returns false if it would have to wait to find out.
	isUnknown func(namespace, name string) bool
	applied   *broadcast.Broadcast // notified after each event

	running sync.WaitGroup
	mu      sync.Mutex
	waiting map[string]*feed // by namespace, only those with events, and those that rest
	hurry   chan struct{}    // closed while a caller waits for all events
	// dropped has, by namespace, the version of the first event that was dropped because a list follows that has not been applied yet.
	dropped map[string]uint64
}

// event is a change of one object, or a list of all objects in a namespace.
type event struct {
	name    string // empty for a list
	version uint64
	record  *Record // nil if the object was deleted
	isList  bool
	list    []*Record
}

// feed holds the events of one namespace.
type feed struct {
	applying *queued          // of the event that is being applied, or nil
	queue    []queued         // objects without a latest event are skipped
	latest   map[string]event // by name
}

// queued is an object in the queue of a feed, with the version of its first waiting event.
type queued struct {
	name    string
	version uint64
}

func newFeeds(
	apply func(namespace string, e event) (rest time.Duration), skip func(namespace string, e, next event), applied *broadcast.Broadcast,
) *feeds {
	return &feeds{
		apply: apply, skip: skip, applied: applied, isUnknown: func(string, string) bool { return false },
		waiting: map[string]*feed{}, hurry: make(chan struct{}),
	}
}

// add adds an event. It does not block.
func (f *feeds) add(namespace string, e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ns := f.waiting[namespace]
	if ns == nil {
		ns = &feed{latest: map[string]event{}}
		f.waiting[namespace] = ns
		defer f.running.Go(func() { f.run(namespace, ns) })
	}
	e.name = strings.Clone(e.name) // which shares the memory of a response ID that may be much longer
	waiting, found := ns.latest[e.name]
	if found {
		f.skip(namespace, waiting, e)
	} else {
		ns.queue = append(ns.queue, queued{e.name, e.version})
	}
	isApplied := ns.applying != nil && ns.applying.name == e.name
	if found && e.record == nil && !e.isList && !isApplied && f.isUnknown(namespace, e.name) {
		// It was created and deleted while it waited. A tenant that does that all the time must not fill the memory.
		delete(ns.latest, e.name)
		ns.trim()
		return
	}
	ns.latest[e.name] = e
}

// trim removes objects that no longer have an event from the queue, once they outnumber the others.
func (f *feed) trim() {
	if len(f.queue) <= 2*len(f.latest)+minTrimmed {
		return
	}
	kept := make(map[string]bool, len(f.latest))
	f.queue = slices.DeleteFunc(f.queue, func(q queued) bool {
		_, waits := f.latest[q.name]
		isFirst := !kept[q.name]
		kept[q.name] = true
		return !waits || !isFirst
	})
}

// minTrimmed is the number of objects without events that a queue may have in any case.
const minTrimmed = 64

// changes returns the latest events of the objects of a namespace that have not been applied, and none of a list.
func (f *feeds) changes(namespace string) (waiting []event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ns := f.waiting[namespace]; ns != nil {
		for _, e := range ns.latest {
			if !e.isList {
				waiting = append(waiting, e)
			}
		}
	}
	return waiting
}

// namespaces returns the namespaces with events that have not been applied.
func (f *feeds) namespaces() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.waiting))
}

// run applies the events of a namespace until none are left.
func (f *feeds) run(namespace string, ns *feed) {
	for {
		e, more := f.next(namespace, ns)
		f.applied.Notify()
		if !more {
			return
		}
		rest := f.apply(namespace, e)
		if e.isList {
			f.mu.Lock()
			delete(f.dropped, namespace)
			f.mu.Unlock()
		}
		if rest > 0 {
			f.rest(ns, rest)
		}
	}
}

// rest lets a namespace rest whose event has been applied.
func (f *feeds) rest(ns *feed, rest time.Duration) {
	f.mu.Lock()
	ns.applying = nil
	hurry := f.hurry
	f.mu.Unlock()
	f.applied.Notify()
	select {
	case <-time.After(rest):
	case <-hurry:
	}
}

// next returns the next event of a namespace, once the previous one has been applied.
func (f *feeds) next(namespace string, ns *feed) (event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(ns.queue) > 0 {
		ns.applying, ns.queue = &ns.queue[0], ns.queue[1:]
		e, found := ns.latest[ns.applying.name]
		delete(ns.latest, ns.applying.name)
		if found {
			return e, true
		}
	}
	delete(f.waiting, namespace)
	return event{}, false
}

// reflect reports whether all events up to a version have been applied: those of one namespace or, if it is empty, of all
// namespaces.
func (f *feeds) reflect(namespace string, version uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dropped, first := range f.dropped {
		if first <= version && (namespace == "" || namespace == dropped) {
			return false
		}
	}
	if namespace != "" {
		ns := f.waiting[namespace]
		return ns == nil || ns.reflects(version)
	}
	for _, ns := range f.waiting {
		if !ns.reflects(version) {
			return false
		}
	}
	return true
}

func (f *feed) reflects(version uint64) bool {
	switch {
	case f.applying != nil:
		return f.applying.version > version
	case len(f.queue) > 0:
		return f.queue[0].version > version
	}
	return true
}

// supersede drops all waiting events, because a list follows, and waits for those that are being applied: one namespace may have so many that
// they would take minutes, while no other gets any. next returns what the list has of an object. No event may be added in the meantime.
func (f *feeds) supersede(next func(namespace, name string) event) {
	f.mu.Lock()
	f.dropped = map[string]uint64{}
	for namespace, ns := range f.waiting {
		if len(ns.queue) > 0 {
			f.dropped[namespace] = ns.queue[0].version
		}
		for name, e := range ns.latest {
			f.skip(namespace, e, next(namespace, name))
		}
		ns.queue, ns.latest = nil, map[string]event{}
	}
	f.mu.Unlock()
	f.finish()
}

// wait waits until all events have been applied, those of a list included. No event may be added in the meantime.
func (f *feeds) wait() {
	f.finish()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = nil
}

// finish waits until no event is left, and lets no namespace rest until then.
func (f *feeds) finish() {
	f.mu.Lock()
	hurry := f.hurry
	f.mu.Unlock()
	close(hurry)
	f.running.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hurry = make(chan struct{})
}
