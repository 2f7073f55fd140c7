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

// outlet queues the sessions whose verdicts a change of another session has changed. It queues at most a batch of each namespace every
// outletPause: one change can affect 100,000 sessions, and to queue and reconcile these takes a processor some seconds. It is
// safe for concurrent use.
type outlet struct {
	batch int
	add   func(namespace string, names []string)

	mu    sync.Mutex
	flows map[string]*flow // by namespace, only those that have queued sessions within the last pause
}

// flow is what one namespace may still queue until the next pause ends, and the sessions that wait for that.
type flow struct {
	room    int
	waiting map[string]struct{}
}

const outletPause = 100 * time.Millisecond

// newOutlet returns an outlet through which sessions are queued ten times as fast as their statuses may be rewritten.
func newOutlet(rewritesPerSecond float64, add func(namespace string, names []string)) *outlet {
	batch := 10 * rewritesPerSecond * outletPause.Seconds()
	return &outlet{batch: int(min(max(batch, 1), math.MaxInt32)), add: add, flows: map[string]*flow{}}
}

// queue adds sessions of a namespace, now or later.
func (o *outlet) queue(namespace string, names []string) {
	o.mu.Lock()
	f := o.flows[namespace]
	if f == nil {
		f = &flow{room: o.batch, waiting: map[string]struct{}{}}
		o.flows[namespace] = f
		time.AfterFunc(outletPause, func() { o.resume(namespace) })
	}
	for _, name := range names {
		f.waiting[name] = struct{}{}
	}
	batch := f.take()
	o.mu.Unlock()
	o.add(namespace, batch)
}

// resume continues after a pause.
func (o *outlet) resume(namespace string) {
	o.mu.Lock()
	f := o.flows[namespace]
	if len(f.waiting) == 0 {
		delete(o.flows, namespace)
		o.mu.Unlock()
		return
	}
	f.room = o.batch
	batch := f.take()
	time.AfterFunc(outletPause, func() { o.resume(namespace) })
	o.mu.Unlock()
	o.add(namespace, batch)
}

// take removes as many sessions as there is room for.
func (f *flow) take() (names []string) {
	for name := range f.waiting {
		if f.room == 0 {
			break
		}
		f.room--
		delete(f.waiting, name)
		names = append(names, name)
	}
	return names
}
