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

package silence

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/catena-dev/catena/internal/broadcast"
	"github.com/catena-dev/catena/internal/elapsed"
)

// Age is the time since the API server last sent a whole list, an event or a bookmark of a resource or, if it has sent none since
// the watch began, the time since then. If what it sent last lacked changes that were older by then, Age is at least as much as they
// were older. It is safe for concurrent use.
type Age struct {
	// Interval is the time between reads of the current resource version. NewAge sets it to DefaultInterval.
	Interval time.Duration

	resource string
	desc     *prometheus.Desc
	moved    broadcast.Broadcast // notified after each receipt

	mu       sync.Mutex
	received time.Time // zero before the watch begins
	version  uint64    // the newest that was received
	delay    time.Duration
	ahead    []reading // of versions that are not reached yet, oldest first
}

// reading is a resource version that the API server had before a time.
type reading struct {
	version uint64
	at      time.Time
}

// DefaultInterval is short compared with the timeouts for silence. A read costs some milliseconds.
const DefaultInterval = 30 * time.Second

// maxAhead is the maximum number of readings, half of which are dropped beyond it.
const maxAhead = 64

var _ prometheus.Collector = &Age{}

// NewAge returns the age of a resource that is not watched yet.
func NewAge(resource string) *Age {
	return &Age{Interval: DefaultInterval, resource: resource, desc: prometheus.NewDesc("catena_watch_age_seconds",
		"Time since the API server last sent an event, a bookmark or a whole list of a resource that the operator watches, or since the watch began, in seconds. "+
			"If what it sent last was late by more than that, the delay. Bookmarks arrive about once a minute.",
		nil, prometheus.Labels{"resource": resource})}
}

// Start records that the watch begins now.
func (a *Age) Start() { a.Received(0) }

// Received records that an event, a bookmark or a list with a resource version was received now, perhaps again. It is late if a newer
// version was read before. For bookmarks, this requires that such a read makes the API server's watch cache catch up, as it does
// with etcd 3.4.31, 3.5.13 and later.
func (a *Age) Received(version uint64) {
	defer a.moved.Notify()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received = time.Now()
	a.version, a.delay = max(a.version, version), 0
	a.ahead = slices.DeleteFunc(a.ahead, func(r reading) bool { return r.version <= a.version })
	if len(a.ahead) > 0 {
		a.delay = a.received.Sub(a.ahead[0].at)
	}
}

// Reached reports whether a resource version, or a newer one, was received.
func (a *Age) Reached(version uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version >= version
}

// WaitUntilReached waits until Reached, or returns the error of the context if it is done first. It can take a minute: if nothing
// changes, only bookmarks show which version is reached.
func (a *Age) WaitUntilReached(ctx context.Context, version uint64) error {
	for {
		moved := a.moved.Wait()
		if a.Reached(version) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Run reads the current resource version at each Interval until ctx is done, to find out how late events are. current returns a
// version that is at least as new as every acknowledged change.
func (a *Age) Run(ctx context.Context, current func(context.Context) (uint64, error)) {
	ticker := time.NewTicker(a.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		version, err := current(ctx)
		switch {
		case err == nil:
			a.add(reading{version, time.Now()})
		case ctx.Err() == nil:
			log.FromContext(ctx).Error(err, "unable to read the current resource version", "resource", a.resource)
		}
	}
}

func (a *Age) add(r reading) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.version <= a.version {
		return
	}
	if len(a.ahead) == maxAhead {
		even := true
		a.ahead = slices.DeleteFunc(a.ahead, func(reading) bool { even = !even; return even })
	}
	a.ahead = append(a.ahead, r)
}

// Get returns the age. It is longer than any timeout if the resource is not watched yet.
func (a *Age) Get() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(elapsed.Since(a.received), a.delay)
}

// Describe implements prometheus.Collector.
func (a *Age) Describe(descs chan<- *prometheus.Desc) { descs <- a.desc }

// Collect implements prometheus.Collector. There is no metric until the watch begins: only the leader watches some
// resources.
func (a *Age) Collect(metrics chan<- prometheus.Metric) {
	a.mu.Lock()
	begun := !a.received.IsZero()
	a.mu.Unlock()
	if begun {
		metrics <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, a.Get().Seconds())
	}
}
