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
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// progress tracks the progress of the workers of a controller. It is safe for concurrent use.
type progress struct {
	mu sync.Mutex
	// busy is the number of workers that are reconciling, and moved is when a worker last started or finished.
	busy  int
	moved time.Time
}

func (p *progress) start(now time.Time) { p.move(1, now) }

func (p *progress) finish(now time.Time) { p.move(-1, now) }

func (p *progress) move(busy int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy += busy
	p.moved = now
}

// stalled returns how long all of the given number of workers have been busy without finishing, or 0 if a worker is free.
func (p *progress) stalled(workers int, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy < workers {
		return 0
	}
	return now.Sub(p.moved)
}

// Healthy is a check of /healthz. It returns an error if the queue is stalled: all workers are busy, and none has finished for
// StallTimeout.
//
// An unavailable or unresponsive API server or bucket does not cause a stall: every request has a deadline, so reconciles end
// with an error, which counts as finished, and are retried. A restart would not help, and would empty the view and the cache.
// The remaining cause is a worker that ignores its deadline, such as one that waits for a lock or for a hung file system. In
// that case, a restart helps, or another replica that becomes the leader.
func (r *ResponseSessionReconciler) Healthy(*http.Request) error {
	if stalled := r.stalled(); stalled > r.StallTimeout {
		return fmt.Errorf("all %d workers are busy, and none has finished for %s", r.Concurrency, stalled.Round(time.Second))
	}
	return nil
}

func (r *ResponseSessionReconciler) stalled() time.Duration {
	return r.progress.stalled(r.Concurrency, r.Clock.Now())
}

var stalledDesc = prometheus.NewDesc("catena_reconciles_stalled_seconds",
	"Duration for which all workers of the leader have been busy without finishing a session, in seconds; 0 if a worker is free.", nil, nil)

var _ prometheus.Collector = &ResponseSessionReconciler{}

// Describe implements prometheus.Collector.
func (r *ResponseSessionReconciler) Describe(descs chan<- *prometheus.Desc) { descs <- stalledDesc }

// Collect implements prometheus.Collector.
func (r *ResponseSessionReconciler) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(stalledDesc, prometheus.GaugeValue, r.stalled().Seconds())
}
