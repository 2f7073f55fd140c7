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
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/catena-dev/catena/internal/fair"
	"github.com/catena-dev/catena/internal/operator/sessions"
)

// newOrder returns the order of a queue in which the namespaces take turns and share the workers. Objects that are not urgent
// can use an eighth of the workers, but at least two if there are that many, so that one namespace cannot occupy all of them.
func newOrder(workers int) *fair.Queue[reconcile.Request] {
	return fair.NewQueue(namespaceOf, workers, min(max(workers/8, 2), workers))
}

func namespaceOf(r reconcile.Request) string { return r.Namespace }

// sessionUnitBytes is the size of a session that counts as one unit. The status of one of several times that size takes the API server
// several times as long to write.
const sessionUnitBytes = 16 << 10

// markOf returns the mark of an object, which counts as one more unit for each unitBytes of its size. One that already has a verdict is less urgent than a new
// turn, or one that its owner has completed: one request can change it, and with it the verdicts on 100,000 descendants, and so in each
// of many namespaces.
func markOf(object *sessions.Object, awaitsVerdict bool, unitBytes int) fair.Mark {
	return fair.Mark{Urgent: awaitsVerdict, Units: 1 + int(object.WriteBytes())/unitBytes}
}

// orderedQueue is a workqueue with an order that tracks the items that are processed.
type orderedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order *fair.Queue[reconcile.Request]
	// wakes is the number of wake items that were added.
	wakes atomic.Uint64
}

// maxWakes is the number of different wake items. An item that waits already wakes no worker when it is added again.
const maxWakes = 64

// wake returns an item that only wakes a worker: a workqueue does so only when an item is added. But after one item is done, several
// others of its namespace may come out. The controller reconciles it like a session that does not exist.
func wake(n uint64) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.FormatUint(n%maxWakes, 10)}}
}

func isWake(r reconcile.Request) bool { return r.Namespace == "" }

// Get implements workqueue.TypedInterface. A worker that gets a session wakes another one if that can get an item, too.
func (q *orderedQueue) Get() (reconcile.Request, bool) {
	r, shutdown := q.TypedRateLimitingInterface.Get()
	if !shutdown && !isWake(r) && q.order.Len() > 0 {
		next := wake(q.wakes.Add(1))
		q.order.Mark(next, fair.Mark{Urgent: true})
		q.Add(next)
	}
	return r, shutdown
}

// Done implements workqueue.TypedInterface.
func (q *orderedQueue) Done(r reconcile.Request) {
	if isWake(r) {
		q.order.Mark(r, fair.Mark{Urgent: true}) // it may have been added again
	}
	q.order.Done(r)
	q.TypedRateLimitingInterface.Done(r)
}

// withOrder returns a function that makes a workqueue with an order.
func withOrder(order *fair.Queue[reconcile.Request]) func(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		provider := queueMetrics{}
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: order, MetricsProvider: provider})
		return &orderedQueue{order: order, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
				Name: name,
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
					Name: name, Queue: queue, MetricsProvider: provider,
				}),
			})}
	}
}

// queueMetrics makes the metrics of a workqueue as controller-runtime does for its own, in its collectors. It cannot be left to
// client-go's global provider, because k8s.io/component-base sets that to a provider of another registry.
type queueMetrics struct{}

var _ workqueue.MetricsProvider = queueMetrics{}

func (queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return gauge(metrics.DepthKey, "Current depth of workqueue by workqueue and priority", "priority").WithLabelValues(name, name, "")
}

func (queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return counter(metrics.AddsKey, "Total number of adds handled by workqueue").WithLabelValues(name, name)
}

func (queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return histogram(metrics.QueueLatencyKey, "How long in seconds an item stays in workqueue before being requested").WithLabelValues(name, name)
}

func (queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return histogram(metrics.WorkDurationKey, "How long in seconds processing an item from workqueue takes.").WithLabelValues(name, name)
}

func (queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return gauge(metrics.UnfinishedWorkKey, "How many seconds of work has been done that is in progress and hasn't been observed by "+
		"work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at "+
		"which this increases.").WithLabelValues(name, name)
}

func (queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return gauge(metrics.LongestRunningProcessorKey,
		"How many seconds has the longest running processor for workqueue been running.").WithLabelValues(name, name)
}

func (queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return counter(metrics.RetriesKey, "Total number of items added to the workqueue with a non-zero delay "+
		"(rate-limited requeues, explicit RequeueAfter or AddAfter calls)").WithLabelValues(name, name)
}

func counter(name, help string) *prometheus.CounterVec {
	options := prometheus.CounterOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}
	return registered(prometheus.NewCounterVec(options, []string{"name", "controller"}))
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	options := prometheus.GaugeOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}
	return registered(prometheus.NewGaugeVec(options, append([]string{"name", "controller"}, labels...)))
}

func histogram(name, help string) *prometheus.HistogramVec {
	options := prometheus.HistogramOpts{Subsystem: metrics.WorkQueueSubsystem, Name: name, Help: help}
	return registered(prometheus.NewHistogramVec(options, []string{"name", "controller"}))
}

// registered returns the collector that controller-runtime has registered under the same name, labels and help. If its
// next version has none, it panics, which fails every test that runs an operator.
func registered[C prometheus.Collector](collector C) C {
	already, ok := errors.AsType[prometheus.AlreadyRegisteredError](metrics.Registry.Register(collector))
	if !ok {
		panic(fmt.Sprintf("controller-runtime has not registered %T as expected", collector))
	}
	return already.ExistingCollector.(C)
}
