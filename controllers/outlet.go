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
	"math"
	"sync"
	"time"
)

// outlet queues what a change of a session has affected: other sessions, or conversations. It queues at most a batch of each namespace every
// outletPause: one change can affect 100,000, and to queue and reconcile these takes a processor some seconds. It is safe for concurrent use.
type outlet struct {
	batch    int
	affected affectedFunc
	add      func(namespace string, names []string)

	mu    sync.Mutex
	flows map[string]*flow // by namespace, only those that have queued something within the last pause
}

// affectedFunc returns the first names, sorted, of what a session affects, after a name, at most limit of them. It must not block.
type affectedFunc func(namespace, session, after string, limit int) []string

// flow is what one namespace may still queue until the next pause ends, and the sessions of which not all that they affect has been queued.
// It has a lock of its own, because these can be many.
type flow struct {
	mu      sync.Mutex
	ended   bool
	room    int
	lookups int
	waiting map[string]place
}

// place is how far the names that a session affects have been queued.
type place struct {
	after string
	// again is set if the session has been queued once more since the first of them were.
	again bool
}

const outletPause = 100 * time.Millisecond

// newOutlet returns an outlet that queues ten times as fast as statuses may be rewritten.
func newOutlet(rewritesPerSecond float64, affected affectedFunc, add func(namespace string, names []string)) *outlet {
	batch := 10 * rewritesPerSecond * outletPause.Seconds()
	return &outlet{batch: int(min(max(batch, 1), math.MaxInt32/maxLookups)), affected: affected, add: add, flows: map[string]*flow{}}
}

// itself is the affectedFunc for the affected sessions.
func itself(_, session, after string, _ int) []string {
	if after != "" {
		return nil
	}
	return []string{session}
}

// queue adds what sessions of a namespace affect, now or later.
func (o *outlet) queue(namespace string, sessions []string) {
	if len(sessions) == 0 {
		return
	}
	f := o.flow(namespace)
	for !f.wait(sessions) { // it has just ended
		f = o.flow(namespace)
	}
	o.release(namespace, f)
}

// flow returns the one that is running for a namespace, or starts it.
func (o *outlet) flow(namespace string) *flow {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.flows[namespace]
	if f == nil {
		f = &flow{waiting: map[string]place{}}
		f.refill(o.batch)
		o.flows[namespace] = f
		time.AfterFunc(outletPause, func() { o.resume(namespace, f) })
	}
	return f
}

func (f *flow) refill(batch int) { f.room, f.lookups = batch, max(maxLookups*batch, minLookups) }

// wait has sessions wait, unless the flow has ended.
func (f *flow) wait(sessions []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range sessions {
		at := f.waiting[name]
		at.again = at.after != ""
		f.waiting[name] = at
	}
	return !f.ended
}

// resume continues after a pause, or ends the flow.
func (o *outlet) resume(namespace string, f *flow) {
	if o.end(namespace, f) {
		return
	}
	o.release(namespace, f)
	time.AfterFunc(outletPause, func() { o.resume(namespace, f) })
}

// end gives a flow room for the next batch, or ends it if nothing waits, and reports that.
func (o *outlet) end(namespace string, f *flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refill(o.batch); len(f.waiting) > 0 {
		return false
	}
	f.ended = true
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.flows, namespace)
	return true
}

// Many sessions may affect nothing, and so take no room. A flow looks up at most maxLookups sessions for each one that a batch has room for, or
// minLookups in total if that is more.
const (
	maxLookups = 10
	minLookups = 1000
)

// release queues as much as there is room for.
func (o *outlet) release(namespace string, f *flow) {
	var names []string
	f.mu.Lock()
	for session, at := range f.waiting {
		if f.room <= 0 || f.lookups <= 0 {
			break
		}
		f.lookups--
		limit := f.room
		if len(f.waiting) > 1 {
			limit = (limit + 1) / 2 // leave room for the others
		}
		page := o.affected(namespace, session, at.after, limit)
		names = append(names, page...)
		f.room -= len(page)
		switch {
		case len(page) == limit: // there may be more
			f.waiting[session] = place{page[len(page)-1], at.again}
		case at.again:
			f.waiting[session] = place{}
		default:
			delete(f.waiting, session)
		}
	}
	f.mu.Unlock()
	o.add(namespace, names)
}
