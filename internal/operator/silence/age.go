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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Age is the time since the API server last sent a whole list, an event or a bookmark of a resource or, if it has sent none since
// the watch began, the time since then. It is safe for concurrent use.
type Age struct {
	desc     *prometheus.Desc
	received atomic.Pointer[time.Time]
}

var _ prometheus.Collector = &Age{}

// NewAge returns the age of a resource that is not watched yet.
func NewAge(resource string) *Age {
	return &Age{desc: prometheus.NewDesc("catena_watch_age_seconds",
		"Time since the API server last sent an event, a bookmark or a whole list of a resource that the operator watches, or since the watch began, in seconds. "+
			"Bookmarks arrive about once a minute.",
		nil, prometheus.Labels{"resource": resource})}
}

// Start records that the watch begins now.
func (a *Age) Start() { a.Received() }

// Received records that something was received now.
func (a *Age) Received() {
	now := time.Now()
	a.received.Store(&now)
}

// Get returns the age. It is longer than any timeout if the resource is not watched yet.
func (a *Age) Get() time.Duration {
	received := a.received.Load()
	if received == nil {
		received = &time.Time{}
	}
	return time.Since(*received)
}

// Describe implements prometheus.Collector.
func (a *Age) Describe(descs chan<- *prometheus.Desc) { descs <- a.desc }

// Collect implements prometheus.Collector. There is no metric until the watch begins: only the leader watches some
// resources.
func (a *Age) Collect(metrics chan<- prometheus.Metric) {
	if a.received.Load() != nil {
		metrics <- prometheus.MustNewConstMetric(a.desc, prometheus.GaugeValue, a.Get().Seconds())
	}
}
